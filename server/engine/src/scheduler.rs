//! Chooses the batch of a step: who runs, how many tokens of whom, and who must make room.
//!
//! First come, first served, by sequence number: running requests are older than retracted ones,
//! and those are older than waiting ones. Pages are granted oldest first; a request that finds no
//! room takes it from the youngest running request, never from an older one. So the oldest always
//! progresses, and nothing starves.
//!
//! Pure: no clock, no model, no sink.

use std::collections::HashMap;

use kv_cache::PoolSet;
use model::{Batch, PageList};
use types::{PoolId, RequestId, Time};

use crate::budget::{PageReserve, TokenBudget};
use crate::queue::ByAge;
use crate::request::Request;
use crate::stats::{Preemptions, Queue, QueueExit};

/// The part of the configuration that scheduling needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) max_running: usize,
    pub(crate) max_batch_tokens: usize,
    pub(crate) prefill_chunk: usize,
    /// Prompt tokens that a step may score.
    pub(crate) scored_tokens: usize,
}

/// One request's part of a step, in batch order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) seq: u64,
    pub(crate) len: usize,
    /// The next token is chosen after this slice.
    pub(crate) logits: bool,
    /// Rows of logits that come of it: of its last tokens.
    pub(crate) logits_rows: usize,
    pub(crate) decode: bool,
}

/// What a step will run. Kept from step to step, so that its memory is allocated once.
#[derive(Debug, Default)]
pub(crate) struct StepPlan {
    /// Decode rows first, then prompt chunks.
    pub(crate) rows: Vec<Row>,
    pub(crate) batch: Batch,
    pub(crate) preemptions: Preemptions,
}

impl StepPlan {
    fn clear(&mut self) {
        self.drop_rows();
        self.preemptions = Preemptions::default();
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
}

/// Every request of the engine, and the rules of their order.
pub(crate) struct Scheduler {
    limits: Limits,
    pub(crate) pools: PoolSet,
    pub(crate) waiting: ByAge,
    pub(crate) retracted: ByAge,
    pub(crate) running: ByAge,
    /// Tokens that the retracted requests have to compute again.
    retracted_tokens: u64,
    seq_of: HashMap<RequestId, u64>,
    next_seq: u64,
    reserve: PageReserve,
    /// Scratch: the running requests at the start of a step.
    order: Vec<u64>,
}

impl Scheduler {
    pub(crate) fn new(limits: Limits, pools: PoolSet) -> Self {
        Self {
            limits,
            pools,
            waiting: ByAge::default(),
            retracted: ByAge::default(),
            running: ByAge::default(),
            retracted_tokens: 0,
            seq_of: HashMap::new(),
            next_seq: 0,
            reserve: PageReserve::default(),
            order: Vec::new(),
        }
    }

    /// The sequence number of the next request.
    pub(crate) const fn next_seq(&self) -> u64 {
        self.next_seq
    }

    /// Takes in a waiting request that was made with [`next_seq`](Self::next_seq).
    pub(crate) fn enqueue(&mut self, request: Request) {
        debug_assert_eq!(request.seq, self.next_seq);
        self.next_seq += 1;
        self.seq_of.insert(request.id, request.seq);
        self.waiting.insert(request);
    }

    /// Takes a request out, wherever it is. `None` when it has ended before.
    pub(crate) fn remove(&mut self, id: RequestId) -> Option<Request> {
        let seq = self.seq_of.remove(&id)?;
        let retracted = self.retracted.remove(seq);
        if let Some(request) = &retracted {
            self.retracted_tokens -= request.tokens.len() as u64;
        }
        retracted.or_else(|| self.running.remove(seq)).or_else(|| self.waiting.remove(seq))
    }

    /// Every request there is, oldest first.
    pub(crate) fn ids(&self) -> Vec<RequestId> {
        let queues = [&self.running, &self.retracted, &self.waiting];
        queues.into_iter().flat_map(|queue| queue.iter().map(|request| request.id)).collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.seq_of.is_empty()
    }

    /// Requests in the engine.
    #[cfg(test)]
    pub(crate) fn live(&self) -> usize {
        self.seq_of.len()
    }

    /// Tokens that the retracted requests have to compute again.
    pub(crate) const fn retracted_tokens(&self) -> u64 {
        self.retracted_tokens
    }

    /// Plans the step that starts `now`. Requests that leave a queue are added to `exits`.
    pub(crate) fn schedule(&mut self, now: Time, plan: &mut StepPlan, exits: &mut Vec<QueueExit>) {
        plan.clear();
        let decoding = self.running.iter().filter(|request| request.is_decoding()).count();
        let Limits { max_batch_tokens, prefill_chunk, scored_tokens, .. } = self.limits;
        let mut budget = TokenBudget::new(max_batch_tokens, prefill_chunk, decoding, scored_tokens);
        self.grow_running(now, &mut budget, plan);
        if plan.preemptions.requests == 0 {
            self.admit(now, &mut budget, plan, exits);
        }
        self.fill(plan);
    }

    /// Gives each running request, oldest first, the pages for its next token or chunk.
    fn grow_running(&mut self, now: Time, budget: &mut TokenBudget, plan: &mut StepPlan) {
        let mut order = std::mem::take(&mut self.order);
        order.clear();
        order.extend(self.running.seqs());
        for &seq in &order {
            // Whoever was retracted for an older one is no longer here.
            let Some(request) = self.running.get(seq) else { continue };
            let len = if request.is_decoding() { 1 } else { budget.take_for(request) };
            if len > 0 && self.make_room(seq, len, now, plan) {
                self.plan_row(seq, len, plan);
            }
        }
        self.order = order;
    }

    /// Grows the pages of `seq` by `len` tokens, at the cost of younger requests. `false`: there
    /// is no younger one left, so it keeps what it has and waits for an older one to end.
    fn make_room(&mut self, seq: u64, len: usize, now: Time, plan: &mut StepPlan) -> bool {
        loop {
            let request = self.running.get_mut(seq).expect("it is running");
            if request.table.grow_to(request.computed() + len).is_ok() {
                return true;
            }
            match self.running.youngest_seq() {
                Some(victim) if victim != seq => self.retract(victim, now, plan),
                Some(_) | None => return false,
            }
        }
    }

    fn retract(&mut self, seq: u64, now: Time, plan: &mut StepPlan) {
        let mut request = self.running.remove(seq).expect("the victim is running");
        let (input, output) = request.computed_parts();
        plan.preemptions.requests += 1;
        plan.preemptions.input_tokens += input as u64;
        plan.preemptions.output_tokens += output as u64;
        request.retract(now);
        self.retracted_tokens += request.tokens.len() as u64;
        self.retracted.insert(request);
    }

    /// Lets retracted, then waiting requests in, while slots, tokens and pages allow.
    fn admit(
        &mut self,
        now: Time,
        budget: &mut TokenBudget,
        plan: &mut StepPlan,
        exits: &mut Vec<QueueExit>,
    ) {
        if self.retracted.is_empty() && self.waiting.is_empty() {
            return;
        }
        self.reserve.reset(&self.pools);
        for request in self.running.iter() {
            self.reserve.add(request, &self.pools);
        }
        while self.running.len() < self.limits.max_running && !budget.is_spent() {
            let (queue, from) = match (self.retracted.oldest(), self.waiting.oldest()) {
                (Some(head), _) => (Queue::Retracted, head),
                (None, Some(head)) => (Queue::Waiting, head),
                (None, None) => return,
            };
            if !self.reserve.leaves_room_for(from, &self.pools) {
                return;
            }
            let (seq, len) = (from.seq, budget.take_for(from));
            if len == 0 {
                return;
            }
            let mut request = match queue {
                Queue::Retracted => self.retracted.remove(seq),
                Queue::Waiting => self.waiting.remove(seq),
            }
            .expect("it was the head");
            if queue == Queue::Retracted {
                self.retracted_tokens -= request.tokens.len() as u64;
            }
            exits.push(request.start(now));
            request.table.grow_to(len).expect("there is room for all its tokens");
            self.reserve.add(&request, &self.pools);
            self.running.insert(request);
            self.plan_row(seq, len, plan);
        }
    }

    fn plan_row(&self, seq: u64, len: usize, plan: &mut StepPlan) {
        let request = self.running.get(seq).expect("a planned request is running");
        let (decode, logits) = (request.is_decoding(), request.samples_after(len));
        let logits_rows = request.logits_wanted(len);
        plan.rows.push(Row { seq, len, logits, logits_rows, decode });
    }

    /// Writes the rows into the batch, decode rows first.
    fn fill(&self, plan: &mut StepPlan) {
        plan.rows.sort_by_key(|row| !row.decode);
        for row in &plan.rows {
            let request = self.running.get(row.seq).expect("a planned request is running");
            let start = request.computed();
            let tokens = &request.tokens[start..start + row.len];
            let pools = 0..u16::try_from(self.pools.specs().len()).expect("checked by PoolSet");
            let lists = pools.map(|pool| {
                let (first, pages) = request.table.pages(PoolId(pool));
                PageList { first, pages }
            });
            plan.batch.push(tokens, start, row.logits_rows, lists);
        }
    }
}
