//! What the hit-ratio curve costs per page looked up, touched and published.

#[expect(dead_code, reason = "the tests read more of it")]
#[path = "../src/trace_fixture.rs"]
mod trace_fixture;

use divan::Bencher;
use divan::counter::ItemsCount;
use kv_cache::{CANDIDATE_RATIOS, CurveOptions, CurveWindow, HitCurve, Retention};

fn main() {
    divan::main();
}

/// Pages of a request.
const PAGES: u64 = 60;
const DEVICE: usize = 8_350;

fn curve(ratios: Vec<f64>, window: Option<Retention>) -> HitCurve {
    let window = window.map(|retention| CurveWindow { device_pages: DEVICE / 10, retention });
    HitCurve::new(CurveOptions {
        page_tokens: 256,
        device_pages: DEVICE,
        window,
        ratios,
        computes_last_token: true,
        max_pages: 1_000_000,
    })
}

/// Sessions that grow and come back, of which the largest candidate holds about half.
fn run(bencher: Bencher<'_, '_>, mut curve: HitCurve) {
    let sessions = 2 * 32 * DEVICE as u64 / PAGES;
    let key = |session: u64, page: u64| (session << 20 | page).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut next = 0_u64;
    let mut request = move |curve: &mut HitCurve| {
        next = next.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // Two dice: some sessions are much hotter than others.
        let session = (next >> 33) % sessions * ((next >> 13) % sessions) / sessions;
        let keys: [u64; PAGES as usize] = std::array::from_fn(|page| key(session, page as u64));
        curve.lookup(&keys, 256 * PAGES as usize + 1);
        curve.publish(&keys, keys.len());
    };
    for _ in 0..sessions * 2 {
        request(&mut curve);
    }
    bencher.counter(ItemsCount::new(PAGES)).bench_local(|| request(&mut curve));
}

#[divan::bench]
fn eleven_candidates(bencher: Bencher<'_, '_>) {
    run(bencher, curve(CANDIDATE_RATIOS.to_vec(), None));
}

#[divan::bench]
fn thirty_two_candidates(bencher: Bencher<'_, '_>) {
    run(bencher, curve((1..=32).map(f64::from).collect(), None));
}

#[divan::bench(args = [Retention::TailBranch, Retention::All])]
fn two_pools_six_candidates(bencher: Bencher<'_, '_>, retention: Retention) {
    run(bencher, curve(vec![1.0, 2.0, 4.0, 8.0, 16.0, 32.0], Some(retention)));
}

/// Recorded agents' sessions, most of whose pages were used a moment ago; a look-up and a publish
/// of each request.
fn replay(bencher: Bencher<'_, '_>, ratios: Vec<f64>, window: Option<Retention>) {
    let key = |page: &u32| (u64::from(*page) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let requests = trace_fixture::requests("agentic_p256.jsonl.gz").into_iter();
    let requests: Vec<(usize, Vec<u64>)> =
        requests.map(|request| (request.tokens, request.pages.iter().map(key).collect())).collect();
    let pages: usize = requests.iter().map(|(_, keys)| keys.len()).sum();
    let fresh = || curve(ratios.clone(), window);
    bencher.counter(ItemsCount::new(pages)).with_inputs(fresh).bench_local_values(|mut curve| {
        for (tokens, keys) in &requests {
            curve.lookup(keys, *tokens);
            curve.publish(keys, keys.len());
        }
        curve
    });
}

#[divan::bench(sample_count = 5)]
fn agentic_eleven_candidates(bencher: Bencher<'_, '_>) {
    replay(bencher, CANDIDATE_RATIOS.to_vec(), None);
}

#[divan::bench(sample_count = 5)]
fn agentic_thirty_two_candidates(bencher: Bencher<'_, '_>) {
    replay(bencher, (1..=32).map(f64::from).collect(), None);
}

#[divan::bench(sample_count = 5, args = [Retention::TailBranch, Retention::All])]
fn agentic_two_pools_six_candidates(bencher: Bencher<'_, '_>, retention: Retention) {
    replay(bencher, vec![1.0, 2.0, 4.0, 8.0, 16.0, 32.0], Some(retention));
}
