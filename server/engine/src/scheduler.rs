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
//! Pure: no clock, no model, no sink.

use std::collections::HashMap;

use admission::{Rank, Rejected};
use kv_cache::{Claims, PoolSet};
use model::{Batch, PageList};
use types::{PoolId, RequestId, Time};

use crate::budget::{PageReserve, TokenBudget};
use crate::deadlines::Deadlines;
use crate::preempt::{Need, Preemptor};
use crate::queue::ByRank;
use crate::request::{Request, Taken};
use crate::stats::{PreemptReason, Preemptions, Queue, QueueExit};
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

/// One request's part of a step, in batch order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) rank: Rank,
    pub(crate) len: usize,
    /// The next token is chosen after this slice.
    pub(crate) logits: bool,
    /// Rows of logits that come of it: of its last tokens.
    pub(crate) logits_rows: usize,
    pub(crate) decode: bool,
}

/// What a step will run. Kept from step to step, so that its memory is allocated once.
#[derive(Default)]
pub(crate) struct StepPlan {
    /// Decode rows first, then prompt chunks.
    pub(crate) rows: Vec<Row>,
    pub(crate) batch: Batch,
    pub(crate) preemptions: Preemptions,
    /// Requests that stand still until pages are copied.
    pub(crate) held: u64,
    /// Prompt tokens taken from the cache for the first time.
    pub(crate) cached: Taken,
    /// Requests that were evicted before they could start; they have ended.
    pub(crate) refused: Vec<(Request, Rejected)>,
    /// Prompt chunks, until they follow the decode rows.
    chunks: Vec<Row>,
}

impl StepPlan {
    fn clear(&mut self) {
        self.drop_rows();
        self.preemptions = Preemptions::default();
        self.held = 0;
        self.cached = Taken::default();
    }

    /// The step did not run after all.
    pub(crate) fn drop_rows(&mut self) {
        self.rows.clear();
        self.batch.clear();
    }

    /// Tokens of decode rows, which come first.
    pub(crate) fn decode_tokens(&self) -> usize {
        self.rows.iter().take_while(|row| row.decode).count()
    }

    fn add(&mut self, request: &Request, len: usize) {
        let (decode, logits) = (request.is_decoding(), request.samples_after(len));
        let logits_rows = request.logits_wanted(len);
        let row = Row { rank: request.rank, len, logits, logits_rows, decode };
        if decode { self.rows.push(row) } else { self.chunks.push(row) }
    }
}

/// Every request of the engine, and the rules of their order.
pub(crate) struct Scheduler {
    limits: Limits,
    pub(crate) pools: PoolSet,
    pub(crate) waiting: Waiting,
    /// Where pages for waiting requests may come from.
    pub(crate) storage: Option<StorageTier>,
    arrivals: Vec<Arrival>,
    pub(crate) retracted: ByRank,
    pub(crate) running: ByRank,
    /// Tokens that the retracted requests have to compute again.
    retracted_tokens: u64,
    rank_of: HashMap<RequestId, Rank>,
    deadlines: Deadlines,
    reserve: PageReserve,
    preemptor: Preemptor,
    /// Whether pages that are being copied are worth waiting for.
    pub(crate) patient: bool,
    /// The pages that this step's chunks compute.
    claims: Claims,
    /// Scratch: the running requests at the start of a step.
    order: Vec<Rank>,
}

impl Scheduler {
    pub(crate) fn new(limits: Limits, pools: PoolSet) -> Self {
        Self {
            limits,
            claims: pools.claims(),
            pools,
            waiting: Waiting::new(
                limits.scheduling.queue_timeout.is_some(),
                limits.scheduling.fair_share,
            ),
            storage: None,
            arrivals: Vec::new(),
            retracted: ByRank::default(),
            running: ByRank::default(),
            retracted_tokens: 0,
            rank_of: HashMap::new(),
            deadlines: Deadlines::new(limits.scheduling.request_timeout),
            reserve: PageReserve::new(limits.prefill_chunk),
            preemptor: Preemptor::new(limits.scheduling.preemption_threshold),
            patient: false,
            order: Vec::new(),
        }
    }

    /// Takes in a waiting request; it stands aside while its pages come from storage.
    pub(crate) fn enqueue(&mut self, mut request: Request, now: Time) {
        request.note_cached(&self.pools);
        self.rank_of.insert(request.id, request.rank);
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
    fn end_reading(&mut self, rank: Rank) {
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
        self.end_reading(rank);
        self.waiting.remove(rank)
    }

    /// Every request there is: the running, the retracted, the waiting.
    pub(crate) fn ids(&self) -> Vec<RequestId> {
        let others = self.retracted.iter().chain(self.waiting.iter());
        self.running.iter().chain(others).map(|request| request.id).collect()
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
        if self.waiting.is_empty() && self.retracted.is_empty() {
            self.limits.max_running - self.running.len()
        } else {
            0
        }
    }

    /// Plans the step that starts `now`. Requests that leave a queue are added to `exits`.
    pub(crate) fn schedule(&mut self, now: Time, plan: &mut StepPlan, exits: &mut Vec<QueueExit>) {
        plan.clear();
        self.claims.clear();
        self.call_those_aside(now);
        let anyone = !(self.waiting.is_empty() && self.retracted.is_empty());
        self.reserve.reset(&self.pools);
        let mut decoding = 0;
        for request in self.running.iter() {
            decoding += usize::from(request.is_decoding());
            self.reserve.add(request, &self.pools);
        }
        let Limits { max_batch_tokens, prefill_chunk, scored_tokens, .. } = self.limits;
        let budget = TokenBudget::new(max_batch_tokens, prefill_chunk, decoding, scored_tokens);
        let mut step = Step { now, budget, open: anyone, plan, exits };
        let mut order = std::mem::take(&mut self.order);
        order.clear();
        order.extend(self.running.ranks());
        for &rank in &order {
            self.admit(Some(rank), &mut step);
            self.grow(rank, &mut step);
        }
        self.order = order;
        self.admit(None, &mut step);
        self.fill(plan);
    }

    /// Gives a running request the pages for its next token or chunk, unless it was retracted for
    /// a better one in this step. A prompt goes on from what others have computed, and stands back
    /// while a better request computes what it needs next.
    fn grow(&mut self, rank: Rank, step: &mut Step<'_>) {
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
            step.open = false;
            let comes =
                |(pool, pages)| pages <= self.pools.available(pool) + self.pools.copying(pool);
            if self.patient && lacks(request, tokens, &self.pools).all(comes) {
                step.plan.held += 1;
                return false;
            }
            match self.running.worst_rank() {
                Some(victim) if victim != rank => {
                    self.retract(victim, PreemptReason::KvPressure, step);
                }
                Some(_) | None => return false,
            }
        }
    }

    fn retract(&mut self, rank: Rank, reason: PreemptReason, step: &mut Step<'_>) {
        let mut request = self.running.remove(rank).expect("the victim is running");
        let (input, output) = request.computed_parts();
        step.plan.preemptions.count(reason, input as u64, output as u64);
        if request.is_decoding() {
            step.budget.give_back_row();
        }
        self.reserve.remove(&request, &self.pools);
        self.deadlines.remove(&request);
        request.retract(step.now);
        self.retracted_tokens += request.tokens.len() as u64;
        self.retracted.insert(request);
    }

    /// Who is let in next: the better of the best retracted and the head of those that wait. Of
    /// equals, the retracted one, whose answer has begun.
    fn head(&mut self) -> Option<(Queue, Rank)> {
        let retracted = self.retracted.best().map(|request| request.rank);
        match (retracted, self.waiting.head()) {
            (Some(retracted), Some(waiting)) if waiting.is_better_than(retracted) => {
                Some((Queue::Waiting, waiting))
            }
            (Some(retracted), _) => Some((Queue::Retracted, retracted)),
            (None, waiting) => waiting.map(|waiting| (Queue::Waiting, waiting)),
        }
    }

    fn queued(&self, queue: Queue, rank: Rank) -> &Request {
        let request = match queue {
            Queue::Retracted => self.retracted.get(rank),
            Queue::Waiting => self.waiting.get(rank),
        };
        request.expect("the head is in its queue")
    }

    /// Lets requests in that are better than the running request `before`, while slots, tokens
    /// and pages allow, or can be taken from those from `before` on. The first that does not get
    /// in closes the door for this step: nobody overtakes it.
    fn admit(&mut self, before: Option<Rank>, step: &mut Step<'_>) {
        while step.open {
            let Some((queue, rank)) = self.head() else { return };
            if before.is_some_and(|before| rank >= before) {
                return;
            }
            step.open = self.has_place_for(self.queued(queue, rank), step)
                || before.is_some_and(|before| self.preempt_for(queue, rank, before, step));
            if step.open {
                self.let_in(queue, rank, step);
            }
        }
    }

    fn has_place_for(&self, head: &Request, step: &Step<'_>) -> bool {
        self.running.len() < self.limits.max_running
            && !step.budget.is_spent()
            && step.budget.may_score(head)
            && self.reserve.has_room_for(head, &self.pools)
    }

    /// Retracts what must go for the head of `queue`, of those from `before` on; `false` where
    /// that is not enough, and then nobody goes.
    fn preempt_for(&mut self, queue: Queue, rank: Rank, before: Rank, step: &mut Step<'_>) -> bool {
        let mut preemptor = std::mem::take(&mut self.preemptor);
        let head = self.queued(queue, rank);
        let need = Need {
            slots: (self.running.len() + 1).saturating_sub(self.limits.max_running),
            row: step.budget.is_spent(),
            reserve: &self.reserve,
            pools: &self.pools,
            copied: self.patient,
        };
        let found =
            step.budget.may_score(head) && preemptor.choose(head, &need, &self.running, before);
        if found {
            for victim in preemptor.victims() {
                self.retract(*victim, PreemptReason::Priority, step);
            }
        }
        self.preemptor = preemptor;
        let ready = found && self.has_place_for(self.queued(queue, rank), step);
        // What it gets is still being copied.
        step.plan.held += u64::from(found && !ready);
        ready
    }

    /// Starts or resumes a request that has a place; ends it where a better one evicted it.
    fn let_in(&mut self, queue: Queue, rank: Rank, step: &mut Step<'_>) {
        let mut request = match queue {
            Queue::Retracted => self.retracted.remove(rank),
            Queue::Waiting => {
                self.end_reading(rank);
                self.waiting.remove(rank)
            }
        }
        .expect("the head is in its queue");
        match request.start(step.now) {
            Ok(exit) => step.exits.push(exit),
            Err(refusal) => {
                self.rank_of.remove(&request.id);
                self.waiting.leave(request.slot);
                step.plan.refused.push((request, refusal));
                return;
            }
        }
        match queue {
            Queue::Retracted => self.retracted_tokens -= request.tokens.len() as u64,
            // The whole prompt at once, so that the next to start is already another tenant's.
            Queue::Waiting => self.waiting.charge(request.slot, request.tokens.len()),
        }
        step.plan.cached += request.take_cached();
        if !request.finds_claimed(&mut self.claims) {
            let len = step.budget.take_for(&request);
            let tokens = request.computed() + len;
            request.table.grow_to(tokens).expect("there is room for all its tokens");
            request.claim(len, &mut self.claims);
            step.plan.add(&request, len);
        }
        self.reserve.add(&request, &self.pools);
        self.deadlines.insert(&request);
        self.running.insert(request);
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
struct Step<'a> {
    now: Time,
    budget: TokenBudget,
    /// Whether requests may still be let in.
    open: bool,
    plan: &'a mut StepPlan,
    exits: &'a mut Vec<QueueExit>,
}
