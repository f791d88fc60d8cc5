//! Many requests at once through networks that do everything at any time.
//!
//! `SIGHTLINE_LINK_SEED=n` runs seed `n` alone: the same faults in the same order, as far as the
//! threads of the operating system come by in the same order.

use super::network::{Dice, Fault};
use super::*;
use transfer::Failure;

const CLIENTS: u64 = 4;
/// Requests of a client, one after the other.
const REQUESTS: u64 = 6;

#[expect(clippy::disallowed_methods, reason = "a test is replayed by hand, it has no CLI")]
fn seeds() -> std::ops::Range<u64> {
    let given = std::env::var("SIGHTLINE_LINK_SEED").ok();
    let seed = given.map(|text| text.parse().expect("SIGHTLINE_LINK_SEED is a number"));
    seed.map_or(0..2, |seed: u64| seed..seed + 1)
}

/// What came of one request: whether it was answered.
fn one(api: &str, body: &Value, expected: &Value) -> Result<bool> {
    let answer = http::post(api, PATH, body)?;
    if answer.status == 200 {
        ensure!(choices(&answer)? == *expected, "{body}");
        return Ok(true);
    }
    let told = answer.json()?;
    let code = told["error"]["code"].as_str().unwrap_or_default();
    // A machine that is slow enough meets time limits as well: which reason it was is for the
    // counters to say.
    let transfer = Failure::ALL.iter().any(|reason| reason.label() == code);
    let known = match answer.status {
        429 => code == "cooling",
        502 | 503 => transfer || ["no_worker", "no_prefill_worker"].contains(&code),
        _ => false,
    };
    ensure!(known, "an error of its own kind: {} {told}", answer.status);
    Ok(false)
}

#[test]
fn whatever_happens_each_request_is_answered_right_or_told_why() -> Result<()> {
    let unified = unified()?;
    let (mut met, mut good) = (0, 0);
    for seed in seeds() {
        println!("SIGHTLINE_LINK_SEED={seed}");
        let set = Set::start(2, 2, seed)?;
        let late = Fault::Delay(Duration::from_millis(20));
        let faults = [Fault::Payload, Fault::Head, Fault::Drop, Fault::Cut, late, late];
        for network in &set.networks {
            network.storm(&faults, 20 + Dice(seed).below(60), 40);
        }
        let clients = (0..CLIENTS).map(|client| {
            let bodies = (0..REQUESTS).map(move |at| prompt(1000 * seed + 100 * client + at));
            let known = bodies.map(|body| Ok((expected(&unified, &body)?, body)));
            let known = known.collect::<Result<Vec<(Value, Value)>>>();
            let api = set.router.api.clone();
            std::thread::spawn(move || {
                let asked = known?.into_iter().map(|(right, body)| one(&api, &body, &right));
                asked.collect::<Result<Vec<bool>>>()
            })
        });
        let clients: Vec<_> = clients.collect();
        for client in clients {
            let answered = client.join().expect("it does not panic")?;
            good += answered.into_iter().filter(|answered| *answered).count();
        }
        set.networks.iter().for_each(Network::heal);
        met += set.networks.iter().map(Network::met).sum::<usize>();
        set.idle()?;
        // A success of which the confirmation was lost is one on the receiving side only.
        let [sent, received] = set.ended("ok")?;
        ensure!(sent <= received, "seed {seed}: {sent} sent, {received} received");
        let page = set.router.metrics()?;
        let routed = page.sum("sightline_router_requests_total", &[]);
        ensure!(routed == (CLIENTS * REQUESTS) as f64, "seed {seed}: {routed} are counted");
        set.works(&unified).with_context(|| format!("seed {seed}"))?;
    }
    ensure!(met > 0 && good > 0, "{met} faults, {good} good answers");
    Ok(())
}
