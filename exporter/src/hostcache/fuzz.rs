//! Every parser of other programs' text against text that nobody would write: no panic, no half
//! truth. Inputs that once mattered are in `tests/corpus`, and tried first.

use std::path::PathBuf;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::follow::Lines;
use super::start_log::StartLog;
use super::{expo, ours, plan_file};
use crate::mocks::sglang_log::Start;

const PAGE: &str = include_str!("../../tests/data/server_page.txt");

fn corpus(kind: &str) -> Vec<Vec<u8>> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/corpus").join(kind);
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    assert!(files.len() >= 5, "{} is too small", folder.display());
    files.iter().map(|file| std::fs::read(file).unwrap()).collect()
}

/// Text with parts cut out, doubled, swapped, or replaced by bytes that matter.
fn bent(text: String) -> impl Strategy<Value = Vec<u8>> {
    let words = select(vec![
        "\"",
        "\\",
        "{",
        "}",
        "\n",
        " ",
        ",",
        "=",
        "#",
        "NaN",
        "-1",
        "1e999",
        "99999999999999999999",
        "'",
        "(",
        ")",
        "TP0]",
        "\u{fffd}",
        "\0",
        "",
    ]);
    let change = (any::<Index>(), any::<Index>(), words, any::<bool>());
    vec(change, 1..6).prop_map(move |changes| {
        let mut bytes = text.clone().into_bytes();
        for (from, to, word, double) in changes {
            let (a, b) = (from.index(bytes.len() + 1), to.index(bytes.len() + 1));
            let (a, b) = (a.min(b), a.max(b).min(a.min(b) + 40));
            let cut = bytes[a..b].to_vec();
            let mut put = word.as_bytes().to_vec();
            if double {
                put.extend_from_slice(&cut);
                put.extend_from_slice(&cut);
            }
            bytes.splice(a..b, put);
        }
        bytes
    })
}

/// A page is refused, or every size on it is one.
fn page(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let Ok(page) = ours::read(&text) else { return };
    let Some(cache) = page.cache else { return };
    for sizes in cache.pools.0.values() {
        assert!(sizes.planned.is_some() && sizes.allocated.is_some());
    }
    assert!(cache.ratio.is_none_or(|ratio| ratio.is_finite() && ratio > 0.0));
    assert!(cache.placed.is_none_or(|placed| placed.local <= placed.total));
}

fn log(bytes: &[u8], piece: usize) {
    let mut lines = Lines::default();
    bytes.chunks(piece).for_each(|piece| lines.add(piece));
    check_log(&lines.log);
}

/// A log says nothing, that there is no tier, what was asked for, or all pools of all ranks.
fn check_log(log: &StartLog) {
    let cache = log.cache();
    assert_eq!(cache.is_some() && log.is_complete(), log.is_complete());
    for sizes in cache.iter().flat_map(|cache| cache.pools.0.values()) {
        assert!(sizes.planned.is_some());
        assert!(!log.is_complete() || sizes.allocated == sizes.planned);
    }
    assert!(!log.why_not().is_empty());
}

fn plan(bytes: &[u8]) {
    let Ok(cache) = plan_file::read(bytes) else { return };
    assert!(cache.ratio.is_none_or(|ratio| ratio.is_finite() && ratio > 0.0));
    assert!(cache.pools.0.values().all(|sizes| sizes.planned.is_some()));
}

const PLAN: &str = r#"{"valid": true, "host_tier": {"ratio": 2.0, "unit_bytes": 7, "pools":
    [{"parts": [{"name": "swa", "host_bytes": 1000}, {"name": "c4", "host_bytes": 5}]}],
    "nodes": [{"node": 0, "ranks": [0, 1]}, {"node": null, "ranks": []}]}}"#;

#[test]
fn what_once_mattered() {
    corpus("expo").iter().for_each(|bytes| page(bytes));
    for bytes in corpus("log") {
        [1, 7, 4_096].iter().for_each(|piece| log(&bytes, *piece));
    }
    corpus("plan").iter().for_each(|bytes| plan(bytes));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn pages_are_read_or_refused(bytes in bent(PAGE.to_owned())) {
        page(&bytes);
    }

    #[test]
    fn pages_of_anything_are_read_or_refused(
        name in "(a|b)?[{]?",
        labels in "([a-z]{1,3}=\"[^\n]{0,5}\",?){0,3}",
        value in "[}]? ?[0-9eE.+-]{0,6}\n?",
    ) {
        let text = format!("{name}{labels}{value}");
        drop(expo::parse(&text, &["a"]));
        drop(expo::parse(&format!("{text}\n"), &["a"]));
    }

    #[test]
    fn pages_that_are_cut_say_nothing_less(cut in any::<Index>()) {
        let cut = cut.index(PAGE.len());
        prop_assume!(PAGE.is_char_boundary(cut) && !PAGE[..cut].ends_with('\n'));
        prop_assert!(ours::read(&PAGE[..cut]).is_err());
    }

    #[test]
    fn logs_are_whole_or_nothing(
        bytes in (0_u64..1_000).prop_flat_map(|seed| bent(Start::incident(4, seed).text())),
        piece in 1_usize..200,
    ) {
        log(&bytes, piece);
    }

    #[test]
    fn a_log_with_a_line_missing_says_nothing_or_the_truth(
        seed in 0_u64..1_000, without in any::<Index>(),
    ) {
        let start = Start::incident(4, seed);
        let mut lines = start.lines();
        lines.remove(without.index(lines.len()));
        let mut log = StartLog::new();
        lines.iter().for_each(|line| log.line(line));
        check_log(&log);
        let held = log.cache().and_then(|cache| {
            cache.pools.0.values().map(|sizes| sizes.allocated).sum::<Option<u64>>()
        });
        prop_assert!(held.is_none_or(|held| held == start.total()), "{held:?}");
    }

    #[test]
    fn plans_are_read_or_refused(bytes in bent(PLAN.to_owned())) {
        plan(&bytes);
    }
}
