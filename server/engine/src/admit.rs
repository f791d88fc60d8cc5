//! Who is let into the running batch.

use admission::Rank;

use crate::preempt::Need;
use crate::request::Request;
use crate::scheduler::{Scheduler, Step};
use crate::stats::PreemptReason;

/// Where those come from that may be let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum From {
    Retracted,
    Waiting,
    /// Their KV has come from elsewhere: they lack a slot, but no pages.
    Landed,
}

/// Who may still be let in, or given pages, in this step.
#[derive(Debug)]
pub(crate) struct Doors {
    /// Whether those that need pages may.
    pub(crate) open: bool,
    /// Whether those that have theirs may.
    pub(crate) landed: bool,
    /// Who was not let in for want of pages: nobody worse is given any.
    pub(crate) blocked: Option<Rank>,
    /// Whether a running request found too few pages.
    pub(crate) short: bool,
}

impl Doors {
    /// A running request found too few pages.
    pub(crate) const fn close_for_pages(&mut self) {
        (self.open, self.landed, self.short) = (false, false, true);
    }
}

impl Scheduler {
    /// Who is let in next: the best of the retracted, the landed and the head of those that wait.
    /// Of equals, one that has begun.
    fn head(&mut self, doors: &Doors) -> Option<(From, Rank)> {
        let retracted = self.retracted.best().filter(|_| doors.open);
        let retracted = retracted.map(|request| (From::Retracted, request.rank));
        let landed = self.landed.best().filter(|_| doors.landed);
        let begun = match (retracted, landed.map(|rank| (From::Landed, rank))) {
            (Some(retracted), Some(landed)) if landed.1 < retracted.1 => Some(landed),
            (retracted, landed) => retracted.or(landed),
        };
        let waiting = if doors.open { self.waiting.head() } else { None };
        match (begun, waiting) {
            (Some(begun), Some(waiting)) if waiting.is_better_than(begun.1) => {
                Some((From::Waiting, waiting))
            }
            (Some(begun), _) => Some(begun),
            (None, waiting) => waiting.map(|waiting| (From::Waiting, waiting)),
        }
    }

    fn queued(&self, from: From, rank: Rank) -> &Request {
        let request = match from {
            From::Retracted => self.retracted.get(rank),
            From::Waiting => self.waiting.get(rank),
            From::Landed => self.landed.get(rank),
        };
        request.expect("the head is in its queue")
    }

    /// Lets requests in that are better than the running request `before`, while slots, tokens
    /// and pages allow, or can be taken from those from `before` on. The first that does not get
    /// in closes the door for this step: nobody overtakes it, but for those that have pages
    /// already, where it lacks nothing else.
    pub(crate) fn admit(&mut self, before: Option<Rank>, step: &mut Step<'_>) {
        while let Some((from, rank)) = self.head(&step.doors) {
            if before.is_some_and(|before| rank >= before) {
                return;
            }
            if from != From::Landed && self.lands.stuck.is_some_and(|stuck| stuck < rank) {
                step.doors.open = false;
                continue;
            }
            if self.has_place_for(from, rank, step)
                || before.is_some_and(|before| self.preempt_for(from, rank, before, step))
            {
                match from {
                    From::Landed => self.let_landed_in(rank, step),
                    From::Retracted | From::Waiting => self.let_in(from, rank, step),
                }
                continue;
            }
            step.doors.open = false;
            if from == From::Landed || !self.has_slot_for(self.queued(from, rank), step) {
                step.doors.landed = false;
            } else {
                step.doors.blocked = Some(rank);
            }
        }
    }

    fn has_slot_for(&self, head: &Request, step: &Step<'_>) -> bool {
        self.running.len() < self.limits.max_running
            && !step.budget.is_spent()
            && step.budget.may_score(head)
    }

    fn has_place_for(&self, from: From, rank: Rank, step: &Step<'_>) -> bool {
        let head = self.queued(from, rank);
        let has_room = || match from {
            From::Retracted | From::Waiting => self.reserve.has_room_for(head, &self.pools),
            // Where nobody runs it takes what it lacks from one that waits as it does.
            From::Landed => {
                self.running.is_empty() || self.reserve.has_room_to_grow(head, &self.pools)
            }
        };
        self.has_slot_for(head, step) && has_room()
    }

    /// Retracts what must go for the head of its queue, of those from `before` on; `false` where
    /// that is not enough, and then nobody goes.
    fn preempt_for(&mut self, from: From, rank: Rank, before: Rank, step: &mut Step<'_>) -> bool {
        // One that has its pages takes a slot from others, and nothing else.
        if from == From::Landed && self.has_slot_for(self.queued(from, rank), step) {
            return false;
        }
        let mut preemptor = std::mem::take(&mut self.preemptor);
        let head = self.queued(from, rank);
        let need = Need {
            slots: (self.running.len() + 1).saturating_sub(self.limits.max_running),
            row: step.budget.is_spent(),
            pages: from != From::Landed,
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
        let ready = found && self.has_place_for(from, rank, step);
        // What it gets is still being copied.
        step.plan.held += u64::from(found && !ready && from != From::Landed);
        ready
    }

    /// Starts or resumes a request that has a place; ends it where a better one evicted it.
    fn let_in(&mut self, from: From, rank: Rank, step: &mut Step<'_>) {
        let request = if from == From::Waiting {
            self.end_reading(rank);
            self.waiting.remove(rank)
        } else {
            self.retracted.remove(rank)
        };
        let mut request = request.expect("the head is in its queue");
        match request.start(step.now) {
            Ok(exit) => step.exits.push(exit),
            Err(refusal) => {
                self.rank_of.remove(&request.id);
                self.waiting.leave(request.slot);
                step.plan.refused.push((request, refusal));
                return;
            }
        }
        if from == From::Waiting {
            // The whole prompt at once, so that the next to start is already another tenant's.
            self.waiting.charge(request.slot, request.tokens.len());
        } else {
            self.retracted_tokens -= request.tokens.len() as u64;
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

    /// Starts a request whose pages are filled: its reserve is there, its last token is a row.
    fn let_landed_in(&mut self, rank: Rank, step: &mut Step<'_>) {
        let mut request = self.landed.remove(rank).expect("the head is in its queue");
        let exit = request.start(step.now).expect("it has no place that could be taken");
        step.exits.push(exit);
        self.deadlines.insert(&request);
        self.running.insert(request);
        self.grow(rank, step);
    }
}
