//! What must hold after every turn, at every end, and over a whole world.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use admission::{QueuePermit, Rank};
use transfer::Failure;
use types::{PoolId, RequestId, Time};

use super::client::{Quirk, Seen};
use super::door::Door;
use super::ensure;
use super::link::Over;
use super::load::{Kind, Wish};
use super::order;
use super::rig::alone;
use super::tally::Told;
use super::world::World;
use crate::host::LATE;
use crate::request::{Phase, Request};
use crate::scheduler::Scheduler;
use crate::step::Core;
use crate::{AbortReason, Outcome, PreemptReason, Queue, RequestEnd, RequestError, Verdict};

/// How far the best running request was before a turn.
pub(super) struct Progress {
    best: Option<(Rank, usize, usize)>,
    /// Retractions for priority so far.
    for_priority: u64,
}

impl Progress {
    pub(super) fn of_best(world: &World) -> Self {
        let best = world.core.scheduler.running.best();
        let best = best.map(|request| (request.rank, request.computed(), request.generated()));
        Self { best, for_priority: for_priority(world) }
    }

    /// It has ended, come closer to its end, or given way to a better one: nobody starves.
    pub(super) fn check(&self, world: &mut World) -> Result<(), String> {
        let Scheduler { running, retracted, .. } = &world.core.scheduler;
        let Some((rank, computed, generated)) = self.best else { return Ok(()) };
        // A better one came: it took the step's tokens, or computes what this one needs next. It
        // may have ended since.
        let let_in = std::mem::take(&mut world.watcher.0.lock().expect("one thread").let_in);
        let better = |id| world.ranks.get(&id).is_some_and(|other| *other < rank);
        if running.best().is_some_and(|best| best.rank < rank) || let_in.into_iter().any(better) {
            return Ok(());
        }
        // A much better one may have come, and even ended since.
        let gave_way = for_priority(world) > self.for_priority;
        let kept = gave_way || retracted.get(rank).is_none();
        ensure!(kept, "the best running request was retracted");
        let Some(best) = running.get(rank) else { return Ok(()) };
        let moved = best.computed() > computed || best.generated() > generated;
        // Pages that are being landed, or that a link has, come back by themselves.
        if !moved && links_hold_pages(&world.core) {
            return Ok(());
        }
        let now = world.time.read();
        let held = !moved && world.core.plan.held > 0;
        ensure!(moved || held, "the best running request stands still at {computed} tokens");
        // While others run, it waits for copies only as long as those are not late.
        let since = world.held_since.filter(|(before, _)| *before == rank && held);
        world.held_since = held.then(|| since.unwrap_or((rank, now)));
        let waited = world.held_since.map_or(Duration::ZERO, |(_, since)| now.since(since));
        let most = LATE + Duration::from_millis(500);
        ensure!(waited <= most, "the best running request was held for {waited:?}");
        Ok(())
    }
}

fn links_hold_pages(core: &Core) -> bool {
    let Scheduler { transfer, sending, held, running, .. } = &core.scheduler;
    let on_wire = running.iter().any(Request::is_on_wire);
    !transfer.is_empty() || !sending.is_empty() || held.tables().count() > 0 || on_wire
}

fn for_priority(world: &World) -> u64 {
    let told = world.watcher.0.lock().expect("one thread");
    told.preempted[PreemptReason::Priority as usize]
}

/// After every turn.
pub(super) fn invariants(world: &World) -> Result<(), String> {
    pages(&world.core)?;
    order(&world.core)?;
    queue(world)?;
    snapshot(world)?;
    Door::check(world)?;
    let links = world.links.lock().expect("one thread");
    ensure!(links.wrong.is_none(), "a link: {:?}", links.wrong);
    drop(links);
    let told = world.watcher.0.lock().expect("one thread");
    ensure!(told.wrong.is_none(), "told of {:?}", told.wrong);
    let elapsed = told.last_step.since(Time::ZERO);
    // The clock starts when the engine is made, a moment after zero.
    let missing = elapsed.saturating_sub(told.stages);
    ensure!(told.stages <= elapsed && missing < Duration::from_micros(1), "stages: {missing:?}");
    ensure!(told.largest_batch <= world.config().max_batch_tokens, "a batch above its budget");
    ensure!(told.generated >= told.first_tokens, "more first tokens than tokens");
    let rows = &world.core.plan.rows;
    ensure!(rows.is_sorted_by_key(|row| !row.decode), "a decode row behind a prompt: {rows:?}");
    let too_long = rows.iter().find(|row| row.len > world.config().prefill_chunk);
    ensure!(too_long.is_none(), "a chunk of {too_long:?}");
    let live = world.core.scheduler.live() + world.core.mailbox.submissions();
    let (ended, accepted) = (told.ends.len(), world.accepted.len());
    ensure!(ended + live == accepted, "{accepted} accepted, {ended} ended, {live} live");
    Ok(())
}

/// Every active page is in the page table of a running request; more than one has it only where
/// the beginnings of their texts are the same, of one tenant, and whole pages.
fn pages(core: &Core) -> Result<(), String> {
    let scheduler = &core.scheduler;
    let pools = (0..).map(PoolId).zip(scheduler.pools.specs()).zip(scheduler.pools.stats());
    for ((pool, spec), stats) in pools {
        let (name, page_tokens) = (spec.name, spec.page_tokens);
        let mut held = HashMap::new();
        let elsewhere = scheduler.transfer.iter().chain(scheduler.landed.iter());
        let others = elsewhere.chain(scheduler.sending.iter());
        for request in scheduler.running.iter().chain(others) {
            let (first, pages) = request.table.pages(pool);
            for (index, page) in (first..).zip(pages) {
                let text = request.tokens.get(..(index + 1) * page_tokens);
                let Some(before) = held.insert(*page, (&request.namespace, text)) else { continue };
                let whole = before.1.is_some() && request.here() >= (index + 1) * page_tokens;
                ensure!(whole, "page {page} of {name} is held twice and not whole");
                ensure!(before.1 == text, "page {page} of {name} is held for two texts");
                ensure!(before.0 == &request.namespace, "page {page} is held by two tenants");
            }
        }
        let shared: HashSet<_> = held.keys().copied().collect();
        let kept = scheduler.held.tables().flat_map(|table| table.pages(pool).1);
        let held: HashSet<_> = shared.into_iter().chain(kept.copied()).collect();
        for request in scheduler.retracted.iter().chain(permit_holders(scheduler)) {
            ensure!(request.table.pages(pool).1.is_empty(), "pages of a request that waits");
        }
        let (used, capacity) = (stats.used_active.0, stats.capacity.0);
        ensure!(used <= capacity, "{used} pages of {capacity}");
        let copying = scheduler.pools.copying(pool) as u64;
        let known = held.len() as u64 + copying;
        // Pages that a link may read stay when equal ones take their place.
        let swapped = links_hold_pages(core) && used > known;
        ensure!(
            used == known || swapped,
            "page leak: {used} used, {known} held, {copying} by copies"
        );
        let kept = used + stats.used_cached.0;
        ensure!(kept <= capacity, "{kept} pages active and cached of {capacity}");
        let available = scheduler.pools.available(pool) as u64;
        ensure!(available + used == capacity, "{available} pages available, {used} used");
        let enabled = scheduler.pools.is_enabled();
        ensure!(enabled || stats.used_cached.0 == 0, "pages cached by a cache that is off");
        if let Some(host) = scheduler.pools.host_stats_of(pool) {
            let (active, cached) = (host.used_active.0, host.used_cached.0);
            ensure!(active + cached <= host.capacity.0, "{host:?}");
            let pinned = capacity.min(host.capacity.0) + cached;
            ensure!(active <= pinned, "more host pages than device pages are pinned: {host:?}");
        }
    }
    Ok(())
}

/// Counts what this turn has reached of what no observer is told.
pub(super) fn covers(world: &mut World) {
    let scheduler = &world.core.scheduler;
    let mut running = scheduler.running.iter();
    let passed = scheduler.pools.specs().len() > 1
        && running.any(|request| request.table.pages(PoolId(1)).0 > 0);
    let now = world.core.clock.last();
    let late = world.core.host.as_ref().is_some_and(|host| host.is_late(now));
    world.coverage.count("turns with a late copy", u64::from(late));
    let held = u64::from(scheduler.held.tables().count() > 0);
    world.coverage.count("turns with pages held for a link", held);
    world.coverage.count("turns with pages that a window has passed", u64::from(passed));
}

/// Who waits holds a permit, and nobody else does.
fn order(core: &Core) -> Result<(), String> {
    let scheduler = &core.scheduler;
    let in_queue = |request: &Request| request.phase.permit().is_some();
    ensure!(permit_holders(scheduler).all(in_queue), "a waiting request without permit");
    let started = scheduler.running.iter().chain(scheduler.transfer.iter());
    let mut started = started.chain(scheduler.landed.iter()).chain(scheduler.sending.iter());
    ensure!(!started.any(in_queue), "a started request with permit");
    Ok(())
}

/// The queue depth is the live permits, and the pending tokens are what they and debts hold.
fn queue(world: &World) -> Result<(), String> {
    let scheduler = &world.core.scheduler;
    let queue = world.admission.snapshot(world.time.read());
    let on_their_way = world.core.mailbox.submissions();
    // An eviction takes the place at once; the holder of the permit learns it later.
    let held = world.held.iter().map(|(permit, ..)| permit).filter(|p| p.evicted().is_none());
    let permits = held.clone().count() + on_their_way + permit_holders(scheduler).count();
    ensure!(queue.requests == permits, "{} in the queue, {permits} permits", queue.requests);
    let limit = world.conditions.limits.max_queued_requests;
    let most = limit + world.config().max_running;
    ensure!(limit == 0 || permits <= most, "{permits} wait, {most} may");
    ensure!(on_their_way == 0, "a turn left submissions behind");
    let evicted = permit_holders(scheduler).find(|request| request.evicted().is_some());
    ensure!(evicted.is_none(), "a turn left an evicted request in the queue");
    let held = held.map(QueuePermit::tokens).sum::<u64>();
    let waiting = permit_holders(scheduler).map(|r| r.tokens.len() as u64).sum::<u64>();
    let debts = scheduler.running.iter().map(|request| {
        // What a first prefill has left, by its own tokens: the debt is what is being checked.
        let owes = matches!(request.phase, Phase::Prefill(Some(_)));
        if owes { request.uncomputed() as u64 } else { 0 }
    });
    let pending = held + waiting + debts.sum::<u64>();
    let permits = permit_holders(scheduler).filter_map(|request| request.phase.permit());
    let refunded = permits.map(QueuePermit::cached).sum::<u64>();
    let (found, uncached) = (queue.pending_tokens, queue.pending_uncached_tokens);
    ensure!(found == pending, "{found} tokens pending, not {pending}");
    ensure!(uncached == pending - refunded, "{uncached} of {pending} pending, {refunded} refunded");
    Ok(())
}

fn permit_holders(scheduler: &Scheduler) -> impl Iterator<Item = &Request> {
    let peers = scheduler.waiting.bootstrap().iter().chain(scheduler.waiting.prealloc().iter());
    scheduler.waiting.iter().chain(peers)
}

/// What handles read is what is.
fn snapshot(world: &World) -> Result<(), String> {
    let scheduler = &world.core.scheduler;
    let shown = world.core.shared.snapshot();
    ensure!(shown.running == scheduler.running.len(), "running: {}", shown.running);
    ensure!(shown.running <= world.config().max_running, "{} run", shown.running);
    ensure!(shown.waiting == scheduler.waiting.len(), "waiting: {}", shown.waiting);
    ensure!(shown.retracted.requests == scheduler.retracted.len(), "{:?}", shown.retracted);
    let tokens = scheduler.retracted.iter().map(|r| r.tokens.len() as u64).sum::<u64>();
    ensure!(shown.retracted.tokens == tokens, "{:?}, not {tokens} tokens", shown.retracted);
    ensure!(shown.retracted.oldest.is_some() == (tokens > 0), "{:?}", shown.retracted);
    let waiting = &scheduler.waiting;
    let lines = [
        (shown.bootstrap, waiting.bootstrap()),
        (shown.prealloc, waiting.prealloc()),
        (shown.transfer, &scheduler.transfer),
        (shown.landed, &scheduler.landed),
        (shown.inflight_send, &scheduler.sending),
    ];
    for (shown, line) in lines {
        let oldest = line.iter().map(Request::queued_since).min();
        let fits = shown.requests == line.len() && shown.oldest == oldest;
        ensure!(fits, "{shown:?}, not {} since {oldest:?}", line.len());
        let empty = shown.pending_tokens == 0 && shown.uncached_tokens == 0;
        ensure!(!line.is_empty() || empty, "{shown:?}");
    }
    ensure!(shown.held == scheduler.held.snapshot(), "{:?}", shown.held);
    let host = shown.pools.iter().map(|pool| pool.host).collect::<Option<Vec<_>>>();
    // An engine that has ended has no copies any more and shows the last it knew.
    let fits = world.core.host.is_none() || host == scheduler.pools.host_stats();
    ensure!(fits, "the host's pages: {:?}", shown.pools);
    let device = shown.pools.iter().map(|pool| pool.device);
    ensure!(device.eq(scheduler.pools.stats()), "{:?}", shown.pools);
    ensure!(shown.iterations == world.turns, "{} turns shown", shown.iterations);
    Ok(())
}

/// Over the whole world: every request ended once, with the right text, and the sums agree.
pub(super) fn balances(world: &World) -> Result<(), String> {
    let clients = world.clients.lock().expect("one thread");
    let (mut generated, mut firsts, mut again, mut spoilt, mut after_first) = (0, 0, 0, 0, 0);
    let (mut prompts_least, mut prompts_most, mut cached, mut remote) = (0, 0, 0, 0);
    for (id, wish) in &world.accepted {
        let seen = clients.get(id).ok_or_else(|| format!("request {id} never heard a word"))?;
        let end = seen.end.as_ref().ok_or_else(|| format!("request {id} did not end"))?;
        one_end(world, *id, wish, seen, end).map_err(|why| format!("request {id}: {why}"))?;
        let tokens = end.generated_tokens as u64;
        generated += tokens;
        firsts += tokens.min(1);
        again += end.recomputed_tokens as u64;
        cached += end.cached_tokens as u64;
        remote += end.remote_tokens as u64;
        after_first += tokens.saturating_sub(1);
        prompts_most += end.prompt_tokens as u64;
        let is_spoilt = matches!(end.outcome, Outcome::Error(RequestError::Model(_)));
        spoilt += u64::from(is_spoilt);
        if tokens > 0 {
            prompts_least += end.prompt_tokens as u64;
            // The spoilt step computed the last token and chose none.
            after_first += u64::from(is_spoilt);
        }
    }
    let told = world.watcher.0.lock().expect("one thread");
    let told_urgent = told.urgent;
    ensure!(told.generated == generated, "{} generated, not {generated}", told.generated);
    ensure!(told.first_tokens == firsts, "{} first tokens, not {firsts}", told.first_tokens);
    ensure!(told.gaps == generated - firsts, "{} gaps", told.gaps);
    ensure!(told.recomputed == again, "{} recomputed, not {again}", told.recomputed);
    let answers = told.batch_tokens - told.prompt - told.recomputed;
    ensure!(answers == after_first, "{answers} answer tokens computed, not {after_first}");
    let prompts = told.prompt;
    let from_cache = told.cached;
    ensure!(from_cache == cached, "{from_cache} prompt tokens taken, not {cached}");
    let sources = prompts + from_cache + told.remote;
    ensure!(told.remote == remote, "{} tokens by links, not {remote}", told.remote);
    ensure!((prompts_least..=prompts_most).contains(&sources), "{sources} prompt tokens");
    ensure!(told.ttft == told.ttft_phases, "phases {:?} of {:?}", told.ttft_phases, told.ttft);
    exits(world, &told)?;
    ensure!(told.left_retracted == told.preemptions, "{} came back", told.left_retracted);
    if let Some(copies) = &world.copies {
        let done = copies.lock().expect("one thread").done;
        let (told, waited) = (told.gate_time, done.gate_time);
        ensure!(told == waited, "steps told of {told:?} at gates, it was {waited:?}");
        ensure!(told_urgent == done.waits, "{} waits for copies, not {told_urgent}", done.waits);
    }
    let planted = world.faults.spoilt.load(std::sync::atomic::Ordering::Relaxed);
    ensure!(spoilt == planted, "{planted} rows spoilt, {spoilt} requests ended for it");
    Ok(())
}

/// Every request leaves the queue that it came into, and each that it goes on to.
fn exits(world: &World, told: &Told) -> Result<(), String> {
    let of = |kind| world.accepted.values().filter(|wish| wish.kind == kind).count() as u64;
    let left = |queue| told.left.get(&queue).copied().unwrap_or_default();
    let (waiting, _) = left(Queue::Waiting);
    let ((bootstrap, wanted), (prealloc, landed)) = (left(Queue::Bootstrap), left(Queue::Prealloc));
    let (transfer, arrived) = left(Queue::Transfer);
    ensure!(bootstrap == of(Kind::Send), "{bootstrap} left bootstrap");
    ensure!(prealloc == of(Kind::Remote), "{prealloc} left prealloc");
    ensure!(transfer == landed, "{landed} were given pages, {transfer} left transfer");
    let came = of(Kind::Local) + wanted + arrived;
    ensure!(waiting == came, "{came} waited, {waiting} left");
    Ok(())
}

/// One request: its text, its outcome, its times.
fn one_end(
    world: &World,
    id: RequestId,
    wish: &Wish,
    seen: &Seen,
    end: &RequestEnd,
) -> Result<(), String> {
    if let Some(wrong) = &seen.wrong {
        return Err(wrong.clone());
    }
    ensure!(end.id == id && end.prompt_tokens == wish.prompt.len(), "{end:?}");
    ensure!(end.generated_tokens == seen.tokens.len(), "{} shown", seen.tokens.len());
    ensure!(end.generated_tokens <= wish.max_tokens, "{} tokens", end.generated_tokens);
    ensure!(end.cached_tokens < end.prompt_tokens.max(1), "{} cached", end.cached_tokens);
    ensure!(end.preemptions > 0 || end.recomputed_tokens == 0, "recomputed without a reason");
    let count = seen.tokens.len();
    let expected = alone(&world.conditions.model, &wish.prompt, &wish.sampling, count)
        .map_err(|error| error.to_string())?;
    ensure!(expected == seen.tokens, "text {:?}, alone {expected:?}", seen.tokens);
    let early = seen.tokens.iter().take(count.saturating_sub(1));
    let ran_past = early.into_iter().any(|token| wish.stop_tokens.contains(token));
    ensure!(!ran_past, "went on after a stop token");
    outcome(world, wish, seen, end)?;
    order::end(world, end)?;
    let told = world.watcher.0.lock().expect("one thread");
    times(end, told.retracted_before_first.get(&id).copied().unwrap_or_default())
}

/// The outcome is what the client and the text say.
fn outcome(world: &World, wish: &Wish, seen: &Seen, end: &RequestEnd) -> Result<(), String> {
    let over = world.links.lock().expect("one thread").over(end.id);
    let verdict = seen.verdict.unwrap_or(Verdict::Continue);
    let stopped = seen.tokens.last().is_some_and(|token| wish.stop_tokens.contains(token));
    let full = seen.tokens.len() == wish.max_tokens && wish.kind != Kind::Send;
    let delivered = wish.kind == Kind::Send && over == Some(Over::Well);
    let fits = match &end.outcome {
        Outcome::Stop => verdict == Verdict::Stop || (verdict == Verdict::Continue && stopped),
        Outcome::Length => verdict == Verdict::Continue && (full || delivered) && !stopped,
        Outcome::Aborted(abort) => match abort.reason {
            // By its own verdict, or by an abort from outside before anything else ended it.
            AbortReason::ClientGone | AbortReason::SlowClient => {
                matches!(verdict, Verdict::Gone | Verdict::Slow) || (!stopped && !full)
            }
            AbortReason::RunningTimeout | AbortReason::DrainDeadline | AbortReason::Shutdown => {
                !stopped && !full
            }
            AbortReason::PeerAbort => {
                wish.kind == Kind::Send && over == Some(Over::Failed(Failure::PeerAbort))
            }
        },
        Outcome::Rejected(_) => seen.tokens.is_empty(),
        Outcome::Error(RequestError::Sink) => {
            seen.panicked && matches!(wish.quirk, Some((_, Quirk::Panics)))
        }
        Outcome::Error(RequestError::Model(_) | RequestError::Engine(_)) => !stopped && !full,
        Outcome::Error(RequestError::Transfer(why)) => {
            let given_up = *why == Failure::Alloc && over == Some(Over::Abandoned(*why));
            seen.tokens.is_empty() && (given_up || over == Some(Over::Failed(*why)))
        }
    };
    ensure!(fits, "{:?} after {verdict:?}, stopped {stopped}, full {full}", end.outcome);
    Ok(())
}

/// Times are in order and phases add up exactly.
fn times(end: &RequestEnd, retracted_before_first: Duration) -> Result<(), String> {
    let times = &end.timings;
    let order = [Some(times.arrived), Some(times.tokenized), times.scheduled, times.first_token]
        .into_iter()
        .chain([times.last_token, Some(times.ended)])
        .flatten();
    ensure!(order.is_sorted(), "{times:?}");
    let (any, first) = (end.generated_tokens > 0, times.first_token.is_some());
    ensure!(any == first && any == times.last_token.is_some(), "{times:?}");
    if let (Some(ttft), Some(parts)) = (times.ttft(), times.ttft_phases()) {
        let sum = parts.total();
        ensure!(sum == ttft, "{parts:?} of {ttft:?}");
        if times.remote.is_some() {
            return Ok(());
        }
        let waited = times.scheduled.unwrap_or(times.arrived).since(times.tokenized);
        let queued = waited + retracted_before_first;
        ensure!(parts.queue == queued, "queued {:?}, not {queued:?}", parts.queue);
    }
    Ok(())
}
