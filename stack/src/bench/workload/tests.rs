use std::collections::BTreeMap;

use super::*;
use crate::bench::text::WORDS;
use crate::bench::trace;

/// A vocabulary of one token a byte.
fn bytes(overhead: u64) -> Vocabulary {
    Vocabulary::measured(WORDS.map(|word| word.len() as u64 + 1), 1, overhead)
}

fn synthetic(prompt: &str, turns: u64) -> Synthetic {
    Synthetic {
        prompt: prompt.parse().expect(prompt),
        output: Length::Fixed(16),
        prefix: None,
        turns: Length::Fixed(turns),
        think: Duration::from_secs(1),
    }
}

fn workload(endpoint: Endpoint, source: Source) -> Workload {
    let template = Template {
        endpoint,
        model: "m".to_owned(),
        stream: true,
        ignore_eos: true,
        temperature: 0.0,
        extra: Map::new(),
    };
    Workload { seed: 7, template, vocabulary: bytes(0), source, abort_rate: 0.0 }
}

fn made(source: Synthetic) -> Workload {
    workload(Endpoint::Completions, Source::Synthetic(source))
}

fn first(workload: &Workload, number: u64) -> Ask {
    let mut conversation = workload.conversation(number).expect("there");
    conversation.ask(workload).expect("a first turn")
}

fn prompt(ask: &Ask) -> String {
    let body: Value = serde_json::from_slice(&ask.body).expect("JSON");
    body["prompt"].as_str().expect("text").to_owned()
}

#[test]
fn a_seed_asks_the_same_in_any_order() {
    let one = made(synthetic("20..200", 1));
    let forward: Vec<Ask> = (0..20).map(|number| first(&one, number)).collect();
    let mut backward: Vec<Ask> = (0..20).rev().map(|number| first(&one, number)).collect();
    backward.reverse();
    assert_eq!(forward, backward);
    let other = Workload { seed: 8, ..one.clone() };
    assert_ne!(forward[0], first(&other, 0));
    for ask in &forward {
        assert_eq!(Some(prompt(ask).len() as u64), ask.prompt_tokens);
    }
}

#[test]
fn the_body_says_what_was_chosen() {
    let mut one = workload(Endpoint::Chat, Source::Synthetic(synthetic("9", 1)));
    one.vocabulary = bytes(4);
    let body: Value = serde_json::from_slice(&first(&one, 0).body).expect("JSON");
    let content = body["messages"][0]["content"].as_str().expect("text");
    assert_eq!(content.len(), 5, "the template's own tokens are taken off: {body}");
    assert_eq!(body["stream_options"]["include_usage"], true);
    assert_eq!(body["ignore_eos"], true);
    assert_eq!(body["max_tokens"], 16);
    one.template.ignore_eos = false;
    one.template.stream = false;
    one.template.extra.insert("priority".to_owned(), Value::from(3));
    let body: Value = serde_json::from_slice(&first(&one, 0).body).expect("JSON");
    assert_eq!((&body["priority"], &body["ignore_eos"]), (&Value::from(3), &Value::Null));
    assert_eq!(body.get("stream_options"), None);
}

#[test]
fn groups_share_their_prefix_and_nothing_else() {
    let prefix = Some(Prefix { groups: 3, tokens: Length::Fixed(64) });
    let one = made(Synthetic { prefix, ..synthetic("32", 1) });
    let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for number in 0..30 {
        let ask = first(&one, number);
        assert_eq!(ask.prompt_tokens, Some(96));
        let text = prompt(&ask);
        let (shared, own) = text.split_at(64);
        groups.entry(shared.to_owned()).or_default().push(own.to_owned());
    }
    assert_eq!(groups.len(), 3);
    let mut own: Vec<String> = groups.into_values().flatten().collect();
    own.sort();
    own.dedup();
    assert_eq!(own.len(), 30, "unique parts are unique");
}

#[test]
fn a_conversation_grows_by_what_was_answered() {
    for endpoint in [Endpoint::Chat, Endpoint::Completions] {
        let one = workload(endpoint, Source::Synthetic(synthetic("10..30", 3)));
        let mut conversation = one.conversation(0).expect("there");
        let mut before = String::new();
        for turn in 0..3 {
            let ask = conversation.ask(&one).expect("three turns");
            assert_eq!(ask.keep_text, turn < 2);
            assert_eq!(ask.prompt_tokens.is_some(), turn == 0);
            let body: Value = serde_json::from_slice(&ask.body).expect("JSON");
            let said = match endpoint {
                Endpoint::Completions => prompt(&ask),
                Endpoint::Chat => {
                    let messages = body["messages"].as_array().expect("a list");
                    assert_eq!(messages.len(), 2 * turn + 1);
                    messages.iter().filter_map(|m| m["content"].as_str()).collect()
                }
            };
            assert!(said.starts_with(&before) && said.len() > before.len());
            let answer = format!(" answer {turn}");
            before = said + &answer;
            conversation.answered(&one, answer);
        }
        assert_eq!(conversation.ask(&one), None);
    }
}

#[test]
fn equal_page_ids_are_equal_prefixes_and_only_they() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/traces/tiny_branches.jsonl");
    let file = std::fs::read(path).expect("a fixture of the repository");
    let trace = Arc::new(trace::parse(&file, path, None).expect("valid"));
    let replay = Replay { trace: Arc::clone(&trace), length_scale: 0.125 };
    let one = workload(Endpoint::Completions, Source::Replay(replay));
    let prompts: Vec<String> = (0..16).map(|number| prompt(&first(&one, number))).collect();
    assert!(one.conversation(16).is_none(), "the trace has 16 requests");
    for (a, left) in trace.entries.iter().enumerate() {
        assert_eq!(prompts[a].len(), (left.prompt as f64 * 0.125).round() as usize);
        for (b, right) in trace.entries.iter().enumerate().skip(a + 1) {
            let shared = left.pages().zip(right.pages()).take_while(|(x, y)| x == y).count();
            let same = prompts[a].bytes().zip(prompts[b].bytes()).take_while(|(x, y)| x == y);
            let pages = same.count() / 32;
            assert_eq!(pages, shared, "requests {a} and {b}");
        }
    }
}

#[test]
fn a_share_of_the_clients_leaves() {
    let one = Workload { abort_rate: 0.25, ..made(synthetic("8", 1)) };
    let left: Vec<u64> = (0..2_000).filter_map(|number| first(&one, number).leave_after).collect();
    assert!((400..600).contains(&left.len()), "{} of 2000", left.len());
    assert!(left.iter().all(|events| (1..=5).contains(events)));
    let none = made(synthetic("8", 1));
    assert!((0..100).all(|number| first(&none, number).leave_after.is_none()));
}

#[test]
fn pauses_have_their_mean() {
    let one = made(synthetic("8", 2));
    let total: f64 = (0..4_000)
        .map(|number| one.conversation(number).expect("there").think(&one).as_secs_f64())
        .sum();
    assert!((total / 4_000.0 - 1.0).abs() < 0.05, "{total}");
}
