//! What a network does to transfers, fault by fault.

use super::network::Fault;
use super::*;

/// Sends a request on a thread of its own.
fn ask(set: &Set, body: &Value) -> std::thread::JoinHandle<Result<Response>> {
    let (api, body) = (set.router.api.clone(), body.clone());
    std::thread::spawn(move || http::post(&api, PATH, &body))
}

fn answer(asked: std::thread::JoinHandle<Result<Response>>) -> Result<Response> {
    asked.join().expect("it does not panic")
}

/// A request through a network in which frames meet a fault.
fn meets(set: &Set, number: u64, fault: Fault, pass: usize, meet: usize) -> Result<Response> {
    let before = set.networks[0].met();
    set.networks[0].frames(fault, pass, meet);
    let answer = http::post(&set.router.api, PATH, &prompt(number))?;
    ensure!(set.networks[0].met() > before, "{fault:?} was met by no frame");
    set.networks[0].heal();
    Ok(answer)
}

#[test]
fn what_can_be_mended_is_not_noticed() -> Result<()> {
    let (set, unified) = (Set::start(1, 1, 11)?, unified()?);
    let mended = [
        (1, Fault::Payload, 0, 1),
        (2, Fault::Payload, 3, 2),
        (3, Fault::Delay(Duration::from_millis(30)), 1, 8),
    ];
    for (number, fault, pass, meet) in mended {
        let answer = meets(&set, number, fault, pass, meet)?;
        ensure!(answer.status == 200, "{fault:?}: {}", answer.text()?);
        ensure!(choices(&answer)? == expected(&unified, &prompt(number))?, "{fault:?}");
    }
    // Nothing passes for a while: shorter than anybody's patience, but while all others wait.
    set.networks[0].frames(Fault::Hold, 2, 1);
    let asked = ask(&set, &prompt(4));
    until("a frame is held back", || Ok(set.networks[0].holds()))?;
    until("its pages are awaited", || {
        let wire = [("state", "wire")];
        Ok(set.decodes[0].metrics()?.sum("sightline_kv_transfers_active", &wire) == 1.0)
    })?;
    set.networks[0].heal();
    let answer = answer(asked)?;
    ensure!(answer.status == 200, "{}", answer.text()?);
    ensure!(choices(&answer)? == expected(&unified, &prompt(4))?);
    set.idle()?;
    ensure!(set.ended("ok")? == [4.0; 2], "{:?}", set.ended("ok")?);
    ensure!(set.ended("error")? == [0.0; 2] && set.ended("aborted")? == [0.0; 2]);
    let page = set.router.metrics()?;
    ensure!(page.sum("sightline_router_retries_total", &[]) == 0.0, "nothing was sent again");
    Ok(())
}

#[test]
fn what_breaks_has_its_reason_and_leaves_nothing() -> Result<()> {
    let (set, unified) = (Set::start(1, 1, 12)?, unified()?);
    // The reason, and how often prefill and decode workers have counted it after that.
    let broken = [
        // Again and again.
        (Fault::Payload, usize::MAX, "checksum", [1.0, 1.0]),
        // What follows a broken head cannot be found: only the one side sees why.
        (Fault::Head, 1, "checksum", [1.0, 2.0]),
        (Fault::Cut, 1, "peer_gone", [2.0, 1.0]),
    ];
    for (number, (fault, meet, reason, counts)) in broken.into_iter().enumerate() {
        let answer = meets(&set, number as u64, fault, 1, meet)?;
        explains(&answer, 502, reason).with_context(|| format!("{fault:?}"))?;
        ensure!(answer.json()?["error"]["type"] == "kv_transfer_error", "{}", answer.text()?);
        set.idle()?;
        until(
            &format!("{fault:?} is counted on both sides"),
            || Ok(set.failed(reason)? == counts),
        )?;
        set.works(&unified).with_context(|| format!("after {fault:?}"))?;
    }
    let page = set.router.metrics()?;
    let errors = page.sum("sightline_router_requests_total", &[("outcome", "upstream_error")]);
    ensure!(errors == 3.0, "each was one failed request: {errors}");
    Ok(())
}

#[test]
fn a_network_that_falls_silent_is_found_out() -> Result<()> {
    let (set, unified) = (Set::start(1, 1, 13)?, unified()?);
    set.networks[0].frames(Fault::Hold, 2, 1);
    let asked = ask(&set, &prompt(1));
    until("everything is held back", || Ok(set.networks[0].holds()))?;
    explains(&answer(asked)?, 502, "peer_gone")?;
    // Each side finds out by itself, and lets go, while nothing passes.
    set.idle()?;
    ensure!(set.failed("peer_gone")? == [1.0; 2], "{:?}", set.failed("peer_gone")?);
    set.networks[0].heal();
    set.works(&unified)
}

#[test]
fn another_pair_computes_what_one_cannot_send() -> Result<()> {
    let (set, unified) = (Set::start(2, 1, 14)?, unified()?);
    set.networks[0].frames(Fault::Payload, 0, usize::MAX);
    let mut number = 0;
    while set.networks[0].met() == 0 {
        number += 1;
        let answer = http::post(&set.router.api, PATH, &prompt(number))?;
        ensure!(answer.status == 200, "{}", answer.text()?);
        ensure!(choices(&answer)? == expected(&unified, &prompt(number))?, "prompt {number}");
    }
    let page = set.router.metrics()?;
    ensure!(page.sum("sightline_router_retries_total", &[("reason", "error")]) == 1.0);
    let failed = page.sum("sightline_router_requests_total", &[("outcome", "upstream_error")]);
    ensure!(failed == 0.0, "no client has seen it");
    ensure!(set.failed("checksum")? == [1.0; 2], "{:?}", set.failed("checksum")?);
    set.networks[0].heal();
    set.works(&unified)
}
