//! Chooses the batch of a step: who runs, how many tokens of whom, and who must make room.
//!
//! There is one order, that of rank: effective priority, then arrival. Running requests get their
//! pages and their part of the token budget in that order, and a request that is not running is
//! let in before the first running one that it is better than. A running request that finds no
//! page takes it from the worst running one, never from a better one. So the best running request
//! always progresses, and since ranks never change, nobody takes turns at retracting each other.
//!
//! With a host tier, pages of one that has ended or was retracted may have to be copied before they
//! can be had. Where those that are being copied are enough, nobody is retracted: whoever lacks
//! them stands still, and no worse one takes a page before.
//!
//! Requests whose KV has come from elsewhere hold pages without running. They can be retracted like
//! those that run; see [`disagg`](crate::disagg).
//!
//! Pure: no clock, no model, no sink.

use std::collections::HashMap;

use admission::Rank;
use kv_cache::{Claims, PoolSet};
use model::PageList;
use types::{PoolId, RequestId, Time};

use crate::admit::Doors;
use crate::budget::{PageReserve, TokenBudget};
use crate::deadlines::Deadlines;
use crate::disagg::{Held, Lands, Line};
use crate::plan::StepPlan;
use crate::preempt::Preemptor;
use crate::queue::ByRank;
use crate::request::{Phase, Request, Taken};
use crate::stats::{PreemptReason, QueueExit, QueueExitCause};
use crate::storage::{Arrival, StorageTier};
use crate::waiting::Waiting;

/// The part of the configuration that scheduling needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) max_running: usize,
    pub(crate) max_batch_tokens: usize,
    pub(crate) prefill_chunk: usize,
    /// Prompt tokens that a step may score.
    pub(crate) scored_tokens: usize,
    pub(crate) scheduling: crate::config::Scheduling,
}

/// Every request of the engine, and the rules of their order.
pub(crate) struct Scheduler {
    pub(crate) limits: Limits,
    pub(crate) pools: PoolSet,
    pub(crate) waiting: Waiting,
    /// Where pages for waiting requests may come from.
    pub(crate) storage: Option<StorageTier>,
    arrivals: Vec<Arrival>,
    pub(crate) retracted: ByRank,
    pub(crate) running: ByRank,
    /// Decode: pages are being filled from elsewhere.
    pub(crate) transfer: Line,
    /// Decode: pages are filled, a slot is to come.
    pub(crate) landed: Line,
    /// Prefill: computed, and not yet received.
    pub(crate) sending: Line,
    /// Pages that links still use, of requests that have not.
    pub(crate) held: Held,
    /// What of waiting for pages is remembered from step to step.
    pub(crate) lands: Lands,
    /// Prompt tokens that came from elsewhere, or with those, since the last step.
    pub(crate) arrived: Taken,
    /// Tokens that the retracted requests have to compute again.
    pub(crate) retracted_tokens: u64,
    pub(crate) rank_of: HashMap<RequestId, Rank>,
    pub(crate) deadlines: Deadlines,
    pub(crate) reserve: PageReserve,
    pub(crate) preemptor: Preemptor,
    /// Whether pages that are being copied are worth waiting for.
    pub(crate) patient: bool,
    /// The pages that this step's chunks compute.
    pub(crate) claims: Claims,
    /// Scratch: the running requests at the start of a step.
    order: Vec<Rank>,
}

impl Scheduler {
    pub(crate) fn new(limits: Limits, pools: PoolSet) -> Self {
        Self {
            limits,
            claims: pools.claims(),
            pools,
            waiting: Waiting::new(limits.scheduling.fair_share),
            storage: None,
            arrivals: Vec::new(),
            retracted: ByRank::default(),
            running: ByRank::default(),
            transfer: Line::default(),
            landed: Line::default(),
            sending: Line::default(),
            held: Held::default(),
            lands: Lands::default(),
            arrived: Taken::default(),
            retracted_tokens: 0,
            rank_of: HashMap::new(),
            deadlines: Deadlines::new(limits.scheduling.request_timeout),
            reserve: PageReserve::new(limits.prefill_chunk),
            preemptor: Preemptor::new(limits.scheduling.preemption_threshold),
            patient: false,
            order: Vec::new(),
        }
    }

    /// Takes in a request.
    pub(crate) fn enqueue(&mut self, mut request: Request, now: Time) {
        request.note_cached(&self.pools);
        self.rank_of.insert(request.id, request.rank);
        match request.phase {
            Phase::Bootstrap(_) => self.waiting.insert_bootstrap(request),
            Phase::Prealloc(_) => {
                self.lands.came();
                self.waiting.insert_prealloc(request);
            }
            Phase::Waiting(_)
            | Phase::Transfer
            | Phase::Landed
            | Phase::Prefill(_)
            | Phase::Decode
            | Phase::Retracted
            | Phase::Sending => self.wait(request, now),
        }
    }

    /// A request waits for its start; it stands aside while its pages come from storage.
    pub(crate) fn wait(&mut self, request: Request, now: Time) {
        let storage = self.storage.as_mut().filter(|_| !request.scores_prompt());
        let aside = storage
            .is_some_and(|storage| storage.begin(request.rank, now, request.text(), &self.pools));
        if aside { self.waiting.insert_aside(request) } else { self.waiting.insert(request) }
    }

    /// Lets requests whose pages have come from storage, or that waited for long enough, start.
    fn call_those_aside(&mut self, now: Time) {
        let Some(storage) = &mut self.storage else { return };
        let waiting = &self.waiting;
        storage.poll(now, &self.pools, |rank| waiting.text(rank), &mut self.arrivals);
        for Arrival { rank, tokens } in self.arrivals.drain(..) {
            let Some(request) = self.waiting.get_mut(rank) else { continue };
            request.arrived(tokens, &self.pools);
            self.waiting.call(rank);
        }
    }

    /// A waiting request is about to leave its queue: it takes what has come from storage.
    pub(crate) fn end_reading(&mut self, rank: Rank) {
        let Some(storage) = &mut self.storage else { return };
        let waiting = &self.waiting;
        let text = |rank| waiting.text(rank);
        if let Some(tokens) = storage.end(rank, &self.pools, text, &mut self.arrivals)
            && let Some(request) = self.waiting.get_mut(rank)
        {
            request.arrived(tokens, &self.pools);
        }
    }

    /// Takes a request out, wherever it is. `None` when it has ended before.
    pub(crate) fn remove(&mut self, id: RequestId) -> Option<Request> {
        let request = self.take_out(id)?;
        self.waiting.leave(request.slot);
        Some(request)
    }

    fn take_out(&mut self, id: RequestId) -> Option<Request> {
        let rank = self.rank_of.remove(&id)?;
        if let Some(request) = self.retracted.remove(rank) {
            self.retracted_tokens -= request.tokens.len() as u64;
            return Some(request);
        }
        if let Some(request) = self.running.remove(rank) {
            self.deadlines.remove(&request);
            return Some(request);
        }
        let elsewhere = self.transfer.remove(rank).or_else(|| self.landed.remove(rank));
        if let Some(request) = elsewhere.or_else(|| self.sending.remove(rank)) {
            return Some(request);
        }
        self.end_reading(rank);
        self.waiting.remove(rank)
    }

    /// A request, wherever it is.
    pub(crate) fn find_mut(&mut self, id: RequestId) -> Option<&mut Request> {
        let rank = *self.rank_of.get(&id)?;
        let Self { running, retracted, transfer, landed, sending, waiting, .. } = self;
        let begun = running.get_mut(rank).or_else(|| retracted.get_mut(rank));
        let elsewhere = begun.or_else(|| transfer.get_mut(rank)).or_else(|| landed.get_mut(rank));
        elsewhere.or_else(|| sending.get_mut(rank)).or_else(|| waiting.get_mut(rank))
    }

    /// Every request there is: the running first, then those whose answers have begun, those that
    /// wait.
    pub(crate) fn ids(&self) -> Vec<RequestId> {
        let started = self.retracted.iter().chain(self.landed.iter()).chain(self.transfer.iter());
        let waiting = self.waiting.iter().chain(self.waiting.prealloc().iter());
        let others = started.chain(waiting).chain(self.waiting.bootstrap().iter());
        let all = self.running.iter().chain(others).chain(self.sending.iter());
        all.map(|request| request.id).collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rank_of.is_empty()
    }

    /// Requests in the engine.
    #[cfg(test)]
    pub(crate) fn live(&self) -> usize {
        self.rank_of.len()
    }

    /// Tokens that the retracted requests have to compute again.
    pub(crate) const fn retracted_tokens(&self) -> u64 {
        self.retracted_tokens
    }

    /// The running request whose time is up first, where it is up `now`.
    pub(crate) fn overdue(&self, now: Time) -> Option<RequestId> {
        let rank = self.deadlines.passed(now)?;
        self.running.get(rank).map(|request| request.id)
    }

    /// How many more requests the next step would start: those that come find nobody waiting.
    pub(crate) fn open_slots(&self) -> usize {
        let nobody = self.waiting.is_empty()
            && self.retracted.is_empty()
            && self.landed.is_empty()
            && self.waiting.prealloc().is_empty();
        if nobody {
            let taken = self.running.len() + self.transfer.len();
            self.limits.max_running.saturating_sub(taken)
        } else {
            0
        }
    }

    /// Plans the step that starts `now`. Requests that leave a queue are added to `exits`.
    pub(crate) fn schedule(&mut self, now: Time, plan: &mut StepPlan, exits: &mut Vec<QueueExit>) {
        plan.clear();
        plan.cached = std::mem::take(&mut self.arrived);
        self.claims.clear();
        self.call_those_aside(now);
        let anyone = !(self.waiting.is_empty() && self.retracted.is_empty());
        self.reserve.reset(&self.pools);
        for request in self.transfer.iter().chain(self.landed.iter()) {
            self.reserve.add(request, &self.pools);
        }
        let mut decoding = 0;
        for request in self.running.iter() {
            decoding += usize::from(request.is_decoding());
            self.reserve.add(request, &self.pools);
        }
        let Limits { max_batch_tokens, prefill_chunk, scored_tokens, .. } = self.limits;
        let budget = TokenBudget::new(max_batch_tokens, prefill_chunk, decoding, scored_tokens);
        let doors = Doors { open: anyone, landed: true, blocked: None, short: false };
        let mut step = Step { now, budget, doors, plan, exits };
        self.preempt_to_land(&mut step);
        let mut order = std::mem::take(&mut self.order);
        order.clear();
        order.extend(self.running.ranks());
        for &rank in &order {
            self.admit(Some(rank), &mut step);
            self.grow(rank, &mut step);
        }
        self.order = order;
        self.admit(None, &mut step);
        self.give_pages(&mut step);
        self.give_up_one(&mut step);
        self.fill(plan);
    }

    /// Gives a running request the pages for its next token or chunk, unless it was retracted for
    /// a better one in this step. A prompt goes on from what others have computed, and stands back
    /// while a better request computes what it needs next.
    pub(crate) fn grow(&mut self, rank: Rank, step: &mut Step<'_>) {
        let Some(request) = self.running.get_mut(rank) else { return };
        let decodes = request.is_decoding();
        if !decodes {
            // It would take pages that a better one waits for.
            if step.plan.held > 0 {
                return;
            }
            self.reserve.remove(request, &self.pools);
            step.plan.cached += request.take_cached();
            self.reserve.add(request, &self.pools);
            if request.finds_claimed(&mut self.claims) {
                return;
            }
        }
        let len = if decodes { 1 } else { step.budget.take_for(request) };
        if len > 0 && self.make_room(rank, len, step) {
            let request = self.running.get_mut(rank).expect("it has just grown");
            if !decodes {
                request.claim(len, &mut self.claims);
            }
            step.plan.add(request, len);
        }
    }

    /// Grows the pages of `rank` by `len` tokens, at the cost of worse requests. `false`: there is
    /// no worse one left, or pages are being copied, so it keeps what it has and waits for a better
    /// one to end, or for those.
    fn make_room(&mut self, rank: Rank, len: usize, step: &mut Step<'_>) -> bool {
        loop {
            let request = self.running.get_mut(rank).expect("it is running");
            let tokens = request.computed() + len;
            if step.plan.held > 0 && lacks(request, tokens, &self.pools).any(|(_, pages)| pages > 0)
            {
                return false;
            }
            self.reserve.remove(request, &self.pools);
            let grown = request.table.grow_to(tokens).is_ok();
            self.reserve.add(request, &self.pools);
            if grown {
                return true;
            }
            // Pages are short: whoever came in now would only be the next to go.
            step.doors.close_for_pages();
            let comes =
                |(pool, pages)| pages <= self.pools.available(pool) + self.pools.copying(pool);
            if self.patient && lacks(request, tokens, &self.pools).all(comes) {
                step.plan.held += 1;
                return false;
            }
            match self.victim(rank) {
                Some(victim) if victim != rank => {
                    self.retract(victim, PreemptReason::KvPressure, step);
                }
                Some(_) => {
                    // Whoever is better than it has pages already, and waits for its slot.
                    self.retract(rank, PreemptReason::KvPressure, step);
                    step.doors.landed = true;
                    return false;
                }
                None => return false,
            }
        }
    }

    /// Whose pages `rank` takes: those of the worst that has some and can give them up. `rank`
    /// itself, the best that runs, where everybody else with pages is better and waits for a slot;
    /// else both would wait for each other.
    fn victim(&self, rank: Rank) -> Option<Rank> {
        let mut running = self.running.worst_from(rank).filter(|request| !request.is_on_wire());
        let running = running.next().map(|request| request.rank);
        let worst = running.max(self.landed.worst())?;
        let is_best = self.running.best().is_some_and(|best| best.rank == rank);
        let gives_way = is_best && !self.landed.is_empty() && running == Some(rank);
        if worst > rank { Some(worst) } else { gives_way.then_some(rank) }
    }

    pub(crate) fn retract(&mut self, rank: Rank, reason: PreemptReason, step: &mut Step<'_>) {
        let running = self.running.remove(rank).or_else(|| self.landed.remove(rank));
        let mut request = running.expect("the victim has pages");
        let (input, output) = request.computed_parts();
        step.plan.preemptions.count(reason, input as u64, output as u64);
        if request.is_decoding() {
            step.budget.give_back_row();
        }
        self.reserve.remove(&request, &self.pools);
        self.deadlines.remove(&request);
        step.exits.extend(request.leave_queue(step.now, QueueExitCause::Advanced));
        if let Some(table) = request.retract(self.pools.table(), step.now) {
            self.held.keep(request.id, table, &self.pools);
        }
        self.retracted_tokens += request.tokens.len() as u64;
        self.retracted.insert(request);
    }

    /// Writes the rows into the batch, decode rows first.
    fn fill(&self, plan: &mut StepPlan) {
        let StepPlan { rows, chunks, batch, .. } = plan;
        rows.append(chunks);
        let pools = u16::try_from(self.pools.specs().len()).expect("checked by PoolSet");
        for row in rows.iter() {
            let request = self.running.get(row.rank).expect("a planned request is running");
            let start = request.computed();
            let tokens = &request.tokens[start..start + row.len];
            let lists = (0..pools).map(|pool| {
                let (first, pages) = request.table.pages(PoolId(pool));
                PageList { first, pages }
            });
            batch.push(tokens, start, row.logits_rows, lists);
        }
    }
}

/// The pages, per pool, that `request` has to take before it covers `tokens` tokens.
fn lacks(
    request: &Request,
    tokens: usize,
    pools: &PoolSet,
) -> impl Iterator<Item = (PoolId, usize)> {
    (0..).map(PoolId).zip(pools.specs()).map(move |(pool, spec)| {
        let (first, held) = request.table.pages(pool);
        (pool, spec.pages_for(tokens).saturating_sub(first + held.len()))
    })
}

/// What one call of [`Scheduler::schedule`] hands around.
pub(crate) struct Step<'a> {
    pub(crate) now: Time,
    pub(crate) budget: TokenBudget,
    pub(crate) doors: Doors,
    pub(crate) plan: &'a mut StepPlan,
    pub(crate) exits: &'a mut Vec<QueueExit>,
}
