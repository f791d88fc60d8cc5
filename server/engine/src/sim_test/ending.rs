//! The seven ways in which a world ends; after each, nothing is left.

use std::sync::atomic::Ordering;
use std::time::Duration;

use admission::RejectReason;

use super::ensure;
use super::world::World;
use crate::step::Turn;
use crate::{EngineState, SubmitError};

/// Turns after which an engine that should have ended has not.
const TURNS_MAX: u64 = 200_000;

/// Turns in which a copy should have come up.
const COPY_TURNS: u64 = 2_000;

pub(super) fn run(world: &mut World, seed: u64) -> Result<(), String> {
    // Something is going on when the end comes.
    for _ in 0..8 {
        world.arrive();
    }
    world.clients_act();
    match seed % 7 {
        6 => fail_with_a_copy(world)?,
        0 => serve_out_then_shut_down(world)?,
        1 => drain(world, Duration::from_secs(100_000))?,
        2 => {
            let patience = Duration::from_millis(world.dice.within(1..=40));
            drain(world, patience)?;
        }
        3 => {
            world.faults.error.store(true, Ordering::Relaxed);
            fail(world, "the model failed: planned")?;
        }
        4 => {
            world.faults.panic.store(true, Ordering::Relaxed);
            fail(world, "the model panicked: planned")?;
        }
        _ => {
            // The last handle goes, as when the server is dropped.
            world.handle = None;
            world.held_leave();
            until_ended(world)?;
            state_is(world, EngineState::Stopped)?;
        }
    }
    nothing_is_left(world)
}

fn serve_out_then_shut_down(world: &mut World) -> Result<(), String> {
    submit_held(world);
    let started = world.turns;
    while !world.core.scheduler.is_empty() || world.core.mailbox.submissions() > 0 {
        world.turn()?;
        ensure!(world.turns - started < TURNS_MAX, "requests do not end");
    }
    let queue = world.admission.snapshot(world.time.read());
    ensure!(queue.requests == 0 && queue.pending_tokens == 0, "left in the queue: {queue:?}");
    world.handle.as_ref().expect("not dropped yet").shutdown();
    until_ended(world)?;
    state_is(world, EngineState::Stopped)
}

fn drain(world: &mut World, patience: Duration) -> Result<(), String> {
    let deadline = world.time.read() + patience;
    world.handle.as_ref().expect("not dropped yet").drain(deadline);
    let refused = world.admission.try_admit(types::Priority::NORMAL, world.time.read());
    let reason = refused.map_err(|refusal| refusal.reason).err();
    ensure!(reason == Some(RejectReason::Draining), "a draining server admits");
    world.turn()?;
    // Whoever has a permit is still served.
    submit_held(world);
    until_ended(world)?;
    let late = world.time.read().since(deadline);
    ensure!(late < Duration::from_secs(5), "ended {late:?} after the deadline");
    let cut_off = world.cut_off();
    ensure!(patience < Duration::from_secs(1000) || cut_off == 0, "cut off long before time");
    state_is(world, EngineState::Stopped)
}

fn fail(world: &mut World, why: &str) -> Result<(), String> {
    submit_held(world);
    until_ended(world)?;
    let handle = world.handle.as_ref().expect("not dropped yet");
    let snapshot = handle.snapshot();
    ensure!(snapshot.failure.as_deref() == Some(why), "failed for {:?}", snapshot.failure);
    let refused = world.admission.try_admit(types::Priority::NORMAL, world.time.read());
    let reason = refused.map_err(|refusal| refusal.reason).err();
    ensure!(reason == Some(RejectReason::Unhealthy), "a failed server admits");
    state_is(world, EngineState::Failed)
}

/// A copy fails as soon as there is one; without a host tier, the model does.
fn fail_with_a_copy(world: &mut World) -> Result<(), String> {
    let copies = world.copies.is_some();
    let fault = if copies { &world.faults.copy } else { &world.faults.error };
    fault.store(true, Ordering::Relaxed);
    let started = world.turns;
    while world.turn()? != Turn::Ended {
        world.clients_act();
        if world.turns - started > COPY_TURNS {
            // Nothing is worth a copy here.
            world.faults.error.store(true, Ordering::Relaxed);
        }
        ensure!(world.turns - started < TURNS_MAX, "the engine does not end");
    }
    world.coverage.count("engines that failed with a copy", u64::from(copies));
    let snapshot = world.core.shared.snapshot().clone();
    let why = snapshot.failure.ok_or("it failed for no reason")?;
    let loading = "the model failed: loading KV pages from host memory failed: planned";
    let causes = ["copying KV pages failed: planned", loading, "the model failed: planned"];
    ensure!(causes.contains(&why.as_str()), "failed for {why}");
    submit_held(world);
    state_is(world, EngineState::Failed)
}

fn submit_held(world: &mut World) {
    for held in std::mem::take(&mut world.held) {
        world.submit(vec![held]);
    }
}

fn until_ended(world: &mut World) -> Result<(), String> {
    let started = world.turns;
    while world.turn()? != Turn::Ended {
        ensure!(world.turns - started < TURNS_MAX, "the engine does not end");
    }
    Ok(())
}

fn state_is(world: &World, state: EngineState) -> Result<(), String> {
    let (found, why) = {
        let snapshot = world.core.shared.snapshot();
        (snapshot.state, snapshot.failure.clone())
    };
    ensure!(found == state, "the engine is {found:?} instead of {state:?}: {why:?}");
    Ok(())
}

fn nothing_is_left(world: &mut World) -> Result<(), String> {
    world.held_leave();
    let snapshot = world.core.shared.snapshot().clone();
    ensure!(snapshot.running == 0 && snapshot.waiting == 0, "left: {snapshot:?}");
    ensure!(snapshot.retracted.requests == 0 && snapshot.retracted.tokens == 0, "{snapshot:?}");
    for pool in &snapshot.pools {
        let lost = pool.device.used_active;
        ensure!(lost.0 == 0, "{lost} pages are lost");
    }
    ensure!(world.core.host.is_none(), "copies go on after the end");
    let pools = &world.core.scheduler.pools;
    pools.flush();
    let kept = pools.stats().map(|stats| stats.used_active.0 + stats.used_cached.0);
    ensure!(kept.sum::<u64>() == 0, "pages are left in a flushed cache");
    for host in pools.host_stats().into_iter().flatten() {
        let kept = host.used_active.0 + host.used_cached.0;
        ensure!(kept == 0, "{kept} host pages are left in a flushed cache");
    }
    let queue = world.admission.snapshot(world.time.read());
    ensure!(queue.requests == 0, "{} permits are left", queue.requests);
    ensure!(queue.pending_tokens == 0, "{} tokens are pending", queue.pending_tokens);
    ensure!(queue.pending_uncached_tokens == 0, "uncached tokens are pending");
    ensure!(world.core.mailbox.live() == 0, "the mailbox remembers ended requests");
    // Nobody comes in any more.
    if world.handle.is_some() {
        let before = world.accepted.len();
        let errors = [SubmitError::Draining, SubmitError::Unhealthy];
        let error = world.submit_after_the_end();
        ensure!(error.is_some_and(|e| errors.contains(&e)), "a submission was accepted");
        ensure!(world.accepted.len() == before, "a submission was accepted");
    }
    Ok(())
}
