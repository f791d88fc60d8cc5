//! Into how many ranks a model on disk can be shared out, and what a rank's pages weigh.

use super::*;

fn inspected(model: &str, ranks: usize) -> (Settings, Facts) {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/models");
    let settings = settings(&format!("--model {folder}/{model} --tp-size {ranks}"));
    let facts = Source::parse(&settings).and_then(|source| source.inspect(&settings));
    (settings, facts.expect("a fixture"))
}

#[test]
fn ranks_that_a_model_cannot_have_are_refused_with_some_that_it_can() {
    for (model, field, most) in
        [("tiny-llama", "num_attention_heads", 4), ("tiny-deepseek-v4", "o_groups", 2)]
    {
        for ranks in [1, 2, 3, 4, 64] {
            let refused = most % ranks != 0;
            let (settings, facts) = inspected(model, ranks);
            let found = resolve(&settings, &facts, &host(64 * GIB));
            let found = found.err().map(|findings| findings.to_string()).unwrap_or_default();
            assert_eq!(found.contains("TP001"), refused, "{model} {ranks}: {found}");
            let works = most.min(if ranks == 3 { 2 } else { ranks });
            for part in [&format!("{field} is {most}"), &format!("--tp-size {works}")] {
                assert!(!refused || found.contains(part), "{model} {ranks}: {found}");
            }
        }
    }
}

#[test]
fn a_rank_has_its_heads_rows_or_all_of_them() {
    let bytes = |model, ranks| inspected(model, ranks).1.spec.pools[0].page_bytes();
    assert_eq!(bytes("tiny-llama", 2) * 2, bytes("tiny-llama", 1));
    // Two heads, each on two ranks; and one that both have.
    assert_eq!(bytes("tiny-llama", 4), bytes("tiny-llama", 2));
    assert_eq!(bytes("tiny-llama3-rope", 2), bytes("tiny-llama3-rope", 1));
    let pools = |ranks| inspected("tiny-deepseek-v4", ranks).1.spec.pools;
    assert_eq!(pools(2), pools(1));
}
