use proptest::prelude::*;

use super::StopMatcher;

/// The definition: cut where a stop string is first complete, the longest of those.
fn expected<S: AsRef<str>>(text: &str, stops: &[S]) -> Option<String> {
    stops
        .iter()
        .map(AsRef::as_ref)
        .filter(|stop| !stop.is_empty())
        .filter_map(|stop| text.find(stop).map(|start| (start + stop.len(), start)))
        .min()
        .map(|(_, start)| text[..start].to_owned())
}

/// Pushes the parts; returns what was shown before the flush, what in all, and whether it stopped.
fn run<S: AsRef<str>>(stops: &[S], parts: &[&str]) -> (String, String, bool) {
    let mut matcher = StopMatcher::new(stops);
    let mut shown = String::new();
    let mut stopped = false;
    for part in parts {
        let (text, stop) = matcher.push(part);
        shown.push_str(&text);
        stopped |= stop;
    }
    let whole = format!("{shown}{}", matcher.flush());
    (shown, whole, stopped)
}

#[test]
fn a_stop_string_across_three_parts_is_cut() {
    let (_, whole, stopped) = run(&["END"], &["the E", "N", "D of it"]);
    assert_eq!((whole.as_str(), stopped), ("the ", true));
}

#[test]
fn only_the_shortest_possible_tail_is_held_back() {
    assert_eq!(run(&["aab"], &["xaa"]).0, "x");
    assert_eq!(run(&["aab"], &["xaaa"]).0, "xa");
    assert_eq!(run(&["aab"], &["xaaac"]).0, "xaaac");
    assert_eq!(run(&["never", "é!"], &["x é"]).0, "x ");
}

#[test]
fn the_held_tail_comes_with_the_flush() {
    let (shown, whole, stopped) = run(&["stop here"], &["please sto", "p h"]);
    assert_eq!((shown.as_str(), whole.as_str(), stopped), ("please ", "please stop h", false));
}

#[test]
fn the_earliest_end_wins_and_then_the_earliest_start() {
    // "bc" is complete one byte before "abcd".
    assert_eq!(run(&["abcd", "bc"], &["xabcd"]).1, "xa");
    // Both are complete at the same byte.
    assert_eq!(run(&["c", "abc"], &["xabc"]).1, "x");
    assert_eq!(run(&["c", "abc"], &["xa", "b", "c"]).1, "x");
}

#[test]
fn after_a_stop_nothing_is_shown_and_empty_strings_never_match() {
    let mut matcher = StopMatcher::new(&["", "."]);
    assert_eq!(matcher.push("one. two"), ("one".to_owned(), true));
    assert_eq!(matcher.push(" three"), (String::new(), true));
    assert_eq!(matcher.flush(), "");
    assert_eq!(run(&[""], &["text"]).1, "text");
}

proptest! {
    /// A small alphabet, so that partial matches and overlaps are frequent.
    #[test]
    fn any_split_into_parts_gives_the_defined_text(
        parts in prop::collection::vec("[abé]{0,4}", 0..12),
        stops in prop::collection::vec("[abé]{1,5}", 0..4),
    ) {
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let text = parts.concat();
        let expected = expected(&text, &stops);
        let (shown, whole, stopped) = run(&stops, &parts);
        prop_assert_eq!(stopped, expected.is_some());
        prop_assert_eq!(&whole, expected.as_ref().unwrap_or(&text));
        if !stopped {
            // Held back: the longest tail that begins a stop string, as the definition says.
            let tail = text
                .char_indices()
                .map(|(at, _)| &text[at..])
                .find(|tail| stops.iter().any(|stop| stop.starts_with(tail)))
                .unwrap_or("");
            prop_assert_eq!(shown, &text[..text.len() - tail.len()]);
        }
    }
}
