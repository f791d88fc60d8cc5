//! What must hold, during a story and after it.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use model::FakeRunner;

use super::client::End;
use super::event::Which;
use super::rig::ensure;
use super::worker::Port;
use super::world::{Ended, World};

impl Ended {
    fn all(&self) -> u64 {
        self.ok + self.failed.values().sum::<u64>()
    }
}

/// Nobody waits for ever: everything has ended, and nothing is left of it.
pub(crate) fn at_rest(world: &World) -> Result<(), String> {
    let open: Vec<_> = world.clients.iter().filter(|client| !client.is_over()).collect();
    ensure!(open.is_empty(), "clients that never end: {:?}", open[0]);
    ensure!(world.held.is_empty(), "{} offers without an answer", world.held.len());
    for which in world.all() {
        let Some(worker) = world.worker(which) else { continue };
        let now = worker.clock.read();
        let (queue, engine) = (worker.admission.snapshot(now), worker.handle.snapshot());
        ensure!(worker.live() == 0, "{which:?} has {} requests left", worker.live());
        ensure!(queue.requests == 0, "{which:?}: {} permits are left", queue.requests);
        ensure!(
            queue.pending_tokens == 0 && queue.pending_uncached_tokens == 0,
            "{which:?}: tokens are left in the queue: {queue:?}"
        );
        let queues = [
            ("running", engine.running),
            ("waiting", engine.waiting),
            ("retracted", engine.retracted.requests),
            ("bootstrap", engine.bootstrap.requests),
            ("inflight_send", engine.inflight_send.requests),
            ("prealloc", engine.prealloc.requests),
            ("transfer", engine.transfer.requests),
            ("landed", engine.landed.requests),
            ("held", engine.held.requests),
        ];
        for (name, requests) in queues {
            ensure!(requests == 0, "{which:?}: {requests} requests are left in {name}");
        }
        for pool in &engine.pools {
            let active = pool.device.used_active.0;
            ensure!(active == 0, "{which:?}: {active} pages of {} leaked", pool.device.name);
        }
        links(world, which)?;
    }
    Ok(())
}

fn links(world: &World, which: Which) -> Result<(), String> {
    let Some(worker) = world.worker(which) else { return Ok(()) };
    let snapshot = match &worker.port {
        Port::Prefill(port) => port.snapshot(),
        Port::Decode(port) => transfer::Backend::snapshot(&**port),
    };
    for peer in &snapshot.peers {
        let open = peer.waiting + peer.wire;
        ensure!(open == 0, "{which:?} has {open} transfers open with {}", peer.peer);
        ensure!(peer.held_bytes == 0, "{which:?} holds bytes for {}", peer.peer);
    }
    Ok(())
}

/// The sums.
pub(crate) fn balances(world: &World) -> Result<(), String> {
    let tally = &world.tally;
    let counted = [End::Answered, End::Refused, End::NoWorker, End::Failed, End::Cut, End::Left]
        .iter()
        .map(|end| world.ended_with(end))
        .sum::<usize>();
    ensure!(counted == world.clients.len(), "{counted} of {} ended", world.clients.len());
    let (sent, received) = (&tally.sent, &tally.received);
    ensure!(
        sent.ok <= received.ok,
        "{} transfers arrived by the sender's count, {} by the receiver's",
        sent.ok,
        received.ok
    );
    if tally.kills == 0 {
        let accepted: u64 = world
            .prefills
            .iter()
            .flatten()
            .map(|worker| worker.accepted.load(Ordering::Relaxed))
            .sum();
        let ended = sent.all();
        ensure!(ended == accepted, "{accepted} offers were taken and {ended} transfers ended");
        if tally.cuts == 0 && tally.violations == 0 {
            ensure!(sent.ok == received.ok, "arrived: {} sent, {} received", sent.ok, received.ok);
            agree(&sent.failed, &received.failed)?;
        }
    }
    texts(world)
}

/// Where no connection was lost, both sides have seen as many fail.
fn agree(
    sent: &BTreeMap<&'static str, u64>,
    received: &BTreeMap<&'static str, u64>,
) -> Result<(), String> {
    // Who gave up is the other one's `peer_abort`; an offer that was not taken is none of the
    // sender's.
    let abort = |counts: &BTreeMap<&'static str, u64>| {
        counts.get("peer_abort").copied().unwrap_or(0)
            + counts.get("local_abort").copied().unwrap_or(0)
    };
    let (sender, receiver) = (abort(sent), abort(received));
    ensure!(
        sender <= receiver + received.values().sum::<u64>(),
        "{sender} given up by the sender's count, {receiver} by the receiver's"
    );
    Ok(())
}

/// Every answer is the model's, whole or up to where it ended.
fn texts(world: &World) -> Result<(), String> {
    for (index, client) in world.clients.iter().enumerate() {
        let model = &world.plans[&Which::Decode(0)].model;
        let mut text = client.prompt.clone();
        for (at, token) in client.got.iter().enumerate() {
            let expected = FakeRunner::next_token(model, &text);
            ensure!(
                *token == expected,
                "token {at} of client {index} is {token} and must be {expected}"
            );
            text.push(*token);
        }
        let whole = client.got.len() == client.max_tokens;
        ensure!(
            whole == (client.end() == Some(&End::Answered)),
            "client {index} got {} of {} tokens and ended {:?}",
            client.got.len(),
            client.max_tokens,
            client.end()
        );
    }
    Ok(())
}
