//! The advice of a server with a host tier, from the counters of its own traffic.

use serde_json::json;

use super::*;
use crate::tests::rig::Rig;

/// As many times the traffic of the test is what an hour has.
const TIMES: u64 = 50;

/// Prompt tokens of a request: twelve whole pages and half a one.
const PROMPT: usize = 200;

/// An hour of what the server has seen so far.
fn hour(advisor: &Advisor, curve: &CurveSnapshot, engine: &EngineSnapshot) -> Window {
    let Counts { requests, dropped, lookup_tokens, queried_tokens, found_tokens, candidates } =
        advisor.counts(curve, engine);
    let candidates = candidates.into_iter().map(|(hits, loss)| (TIMES * hits, TIMES * loss));
    let counts = Counts {
        requests: TIMES * requests,
        dropped: TIMES * dropped,
        lookup_tokens: TIMES * lookup_tokens,
        queried_tokens: TIMES * queried_tokens,
        found_tokens: TIMES * found_tokens,
        candidates: candidates.collect(),
    };
    Window { seconds: 3_600, since_start: true, counts }
}

#[tokio::test]
async fn a_tier_that_finds_what_the_curve_expects_is_trusted() {
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/models/tiny-llama");
    let rig = Rig::new(&format!(
        "--model {model} --kv-pool-bytes 700KiB --max-context 400 --threads 1 \
         --enable-hierarchical-cache --hicache-ratio 4"
    ));
    // Others first, so that the curve has seen more than the tier holds; then conversations in
    // turns, all of which the tier holds and of which the device holds two.
    for talk in (8..20).chain((0..24).map(|turn| turn % 8)) {
        let prompt: Vec<usize> = (0..PROMPT).map(|at| 5 + (talk * 61 + at * 7) % 200).collect();
        let body = json!({"model": rig.api.model_name, "prompt": prompt, "max_tokens": 2});
        let answer = rig.post("/v1/completions", &body).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    let seen = |rig: &Rig| rig.serving().engine.curve().map_or(0, |curve| curve.requests);
    rig.until("the curve has seen all", |rig| seen(rig) == 36).await;

    let snapshot = rig.api.snapshot();
    let (curve, engine) = snapshot.curve.zip(snapshot.engine).expect("the server is ready");
    let advisor = rig.api.advisor();
    let mut window = hour(advisor, &curve, &engine);
    let host = Host::read(&advisor.root);
    let advice = |window: &Window| {
        let server = report::Server { model: &rig.api.model_name, phase: snapshot.phase };
        advisor.answer(&server, &host, Bytes(0), Some(window), Some(&curve))["advice"].clone()
    };
    // Rounds two and three find all whole pages of theirs: 16 x 192 of 7,200 tokens.
    assert!(window.counts.hit_ratio().is_some_and(|found| found > 0.4), "{window:?}");
    let trusted = advice(&window);
    assert_eq!((&trusted["action"], &trusted["reason"]), (&json!("keep"), &json!("knee")));
    // Hits that are counted twice are more than any curve expects.
    window.counts.found_tokens *= 2;
    assert_eq!(advice(&window)["reason"], "untrusted");
}
