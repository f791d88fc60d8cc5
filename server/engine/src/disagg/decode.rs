//! Decode: pages for requests whose KV comes from a prefill worker.
//!
//! A request waits for pages (`prealloc`), has them filled (`transfer`), waits for a running slot
//! with its pages (`landed`), and then computes the last token of its prompt like any other.
//!
//! **Who gets pages.** In the order of rank, beside what running and landed requests will need; of
//! those that have room, and never those of a better one that waits for pages to start. One that
//! does not fit may be overtaken by worse ones that do, until it has waited for [`PATIENCE`]: from
//! then on nobody worse than it starts or is given pages. As many as may run may have landed or be
//! landing, so that pages are held for those that will run next.
//!
//! **Why nobody waits for ever.** Pages are held by those that run, those that landed, those that
//! are landing, and by links that have not let go. The best that runs takes a page from the worst
//! of those that run or have landed; where all of these are better than itself, it gives way to
//! them. So it waits for pages only while they are landing or in the hands of a link, which ends
//! in a bounded time, by the limits of the link, without any page of this engine. Where nobody
//! runs, the best that landed starts, and takes what it lacks from the worst that landed. One that
//! waits for pages to start does not keep those that landed from running, so they end.
//!
//! That leaves requests that send: their pages stay until the receiver has everything, which comes
//! after their last token. Two that lack pages could wait for each other. Where nothing runs,
//! nothing lands and no link is to let go, the worst that sends is given up.

use std::time::Duration;

use admission::Rank;
use transfer::{Failure, RemoteTimes};
use types::{RequestId, Time};

use crate::plan::StepPlan;
use crate::preempt::Need;
use crate::scheduler::{Scheduler, Step};
use crate::stats::{PreemptReason, QueueExit};

/// For so long may one that waits for pages be overtaken.
pub(crate) const PATIENCE: Duration = admission::AGEING;

/// How many are looked at that do not fit, before the step goes on without.
const LOOKS: usize = 16;

/// What is remembered from step to step of those that wait for pages.
#[derive(Default)]
pub(crate) struct Lands {
    /// The first of them, where it does not fit and nobody may overtake it any more.
    pub(crate) stuck: Option<Rank>,
    /// Pages that are being copied are enough for it: it stays so until they have come.
    comes: bool,
    /// Spare pages, by pool, when nobody fitted; meaningless without `tried`.
    room: Vec<usize>,
    /// When nobody fitted.
    tried: Option<Tried>,
    /// How many have come.
    came: u64,
    /// Scratch.
    candidates: Vec<Rank>,
}

/// Who was looked at in vain: while all of this is the same, those who wait are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Tried {
    waiting: usize,
    came: u64,
    /// Whose turn it was.
    head: Option<Rank>,
    /// Nobody worse was looked at.
    blocked: Option<Rank>,
}

impl Lands {
    pub(crate) const fn came(&mut self) {
        self.came += 1;
    }
}

impl Scheduler {
    /// Gives pages to those that wait for them, as far as there is room.
    pub(crate) fn give_pages(&mut self, step: &mut Step<'_>) {
        let was_stuck = self.lands.stuck.take();
        if self.waiting.prealloc().is_empty() {
            step.plan.again |= was_stuck.is_some();
            return;
        }
        let next = self.waiting.head();
        let mut landed = false;
        while self.may_land(step) && !self.is_tried(step) {
            if self.give_some(step) {
                landed = true;
            } else {
                self.remember_tried(step);
            }
        }
        // The tenant of one that got pages was charged: it may be another one's turn to start.
        step.plan.again |= landed && self.waiting.head() != next;
        if self.may_land(step)
            && let Some(head) = self.waiting.prealloc_head()
            && let Some(request) = self.waiting.get(head)
            && step.now.since(request.enqueued_at()) >= PATIENCE
        {
            self.lands.stuck = Some(head);
        }
        let waits = was_stuck.filter(|rank| self.waiting.prealloc().get(*rank).is_some());
        if self.lands.comes && waits.is_some() {
            self.lands.stuck = was_stuck;
        }
        // Who was kept waiting for it may start now.
        step.plan.again |= was_stuck.is_some() && (landed || self.lands.stuck != was_stuck);
    }

    fn may_land(&self, step: &Step<'_>) -> bool {
        let Self { transfer, landed, limits, .. } = self;
        !step.doors.short
            && step.plan.held == 0
            && transfer.len() + landed.len() < limits.max_running
            && !self.waiting.prealloc().is_empty()
    }

    /// Whether nobody fitted before, and nothing has changed for the better.
    fn is_tried(&mut self, step: &Step<'_>) -> bool {
        let now = self.look(step);
        let mut rooms = self.reserve.spare(&self.pools).zip(&self.lands.room);
        self.lands.tried == Some(now) && rooms.all(|(room, before)| room <= *before)
    }

    fn look(&mut self, step: &Step<'_>) -> Tried {
        Tried {
            waiting: self.waiting.prealloc().len(),
            came: self.lands.came,
            head: self.waiting.prealloc_head(),
            blocked: step.doors.blocked,
        }
    }

    fn remember_tried(&mut self, step: &Step<'_>) {
        let now = self.look(step);
        let Self { lands, reserve, pools, .. } = self;
        lands.room.clear();
        lands.room.extend(reserve.spare(pools));
        lands.tried = Some(now);
    }

    /// One round: the head, then others in the order of rank. Whether anybody got pages.
    fn give_some(&mut self, step: &mut Step<'_>) -> bool {
        let mut candidates = std::mem::take(&mut self.lands.candidates);
        candidates.clear();
        let head = self.waiting.prealloc_head();
        candidates.extend(head);
        let others = self.waiting.prealloc().ranks().filter(|rank| Some(*rank) != head);
        candidates.extend(others.take(LOOKS));
        let mut any = false;
        for &rank in &candidates {
            if !self.may_land(step) || step.doors.blocked.is_some_and(|blocked| blocked < rank) {
                break;
            }
            let landed = self.land(rank, step);
            any |= landed;
            let request = self.waiting.get(rank).filter(|_| !landed && Some(rank) == head);
            let waited = request.map(|request| step.now.since(request.enqueued_at()));
            if waited.is_some_and(|waited| waited >= PATIENCE) {
                break;
            }
        }
        self.lands.candidates = candidates;
        any
    }

    /// Gives one its pages, or ends it where a better one evicted it. `false`: there is no room.
    fn land(&mut self, rank: Rank, step: &mut Step<'_>) -> bool {
        let request = self.waiting.get_mut(rank).expect("it waits for pages");
        if !self.reserve.has_room_for(request, &self.pools) || request.reserve_landing().is_err() {
            return false;
        }
        let mut request = self.waiting.remove(rank).expect("it waits for pages");
        match request.start_transfer(step.now) {
            Ok(exit) => step.exits.push(exit),
            Err(refusal) => {
                self.rank_of.remove(&request.id);
                self.waiting.leave(request.slot);
                request.table.clear();
                step.plan.refused.push((request, refusal));
                return true;
            }
        }
        self.waiting.charge(request.slot, request.tokens.len());
        self.reserve.add(&request, &self.pools);
        let pending = request.missing();
        self.transfer.insert(request, pending, 0);
        step.plan.landed.push(rank);
        true
    }

    /// Before anybody gets a part of the step: retracts those that the first that waits for pages
    /// exceeds by far, where that makes room for it.
    pub(crate) fn preempt_to_land(&mut self, step: &mut Step<'_>) {
        self.lands.comes = false;
        let full = self.transfer.len() + self.landed.len() >= self.limits.max_running;
        let (Some(rank), Some(worst)) = (self.waiting.prealloc_head(), self.running.worst_rank())
        else {
            return;
        };
        if full || !self.preemptor.may_take(rank, worst) {
            return;
        }
        let head = self.waiting.get(rank).expect("it waits for pages");
        if self.reserve.has_room_for(head, &self.pools) {
            return;
        }
        let need = Need {
            slots: 0,
            row: false,
            pages: true,
            reserve: &self.reserve,
            pools: &self.pools,
            copied: self.patient,
        };
        let mut preemptor = std::mem::take(&mut self.preemptor);
        if preemptor.choose(head, &need, &self.running, rank) {
            for victim in preemptor.victims() {
                self.retract(*victim, PreemptReason::Priority, step);
            }
            // What they leave is for it.
            self.lands.stuck = Some(rank);
            self.lands.comes = preemptor.victims().is_empty();
        }
        self.preemptor = preemptor;
    }

    /// Tells links of the pages that the planned step has given them. Copies out of those pages,
    /// for whom they were before, have ended by now.
    pub(crate) fn tell_landed(&mut self, plan: &mut StepPlan) {
        for rank in plan.landed.drain(..) {
            let request = self.transfer.get_mut(rank).expect("it was given pages in this step");
            request.tell_landed(&self.pools);
        }
    }

    /// Everything of it has come.
    pub(crate) fn arrive(
        &mut self,
        id: RequestId,
        times: RemoteTimes,
        now: Time,
        exits: &mut Vec<QueueExit>,
    ) {
        let Some(rank) = self.rank_of.get(&id).copied() else { return };
        let Some(mut request) = self.transfer.remove(rank) else { return };
        let (taken, exit) = request.arrive(times, now);
        self.arrived += taken;
        exits.extend(exit);
        self.landed.insert(request, 0, 0);
    }

    /// Where nothing can go on, and nothing is under way that would change it, the worst that
    /// sends is given up: its pages come back once its link has let go.
    pub(crate) fn give_up_one(&mut self, step: &mut Step<'_>) {
        let plan = &mut *step.plan;
        let copying = || {
            let pools = (0..self.pools.specs().len()).filter_map(|pool| u16::try_from(pool).ok());
            pools.map(types::PoolId).any(|pool| self.pools.copying(pool) > 0)
        };
        let waits = !plan.is_empty()
            || plan.again
            || !plan.refused.is_empty()
            || !self.transfer.is_empty()
            || !self.sending.is_empty()
            || copying()
            || self.held.ids().any(|id| !self.rank_of.contains_key(&id));
        if waits {
            return;
        }
        let stuck = self.running.iter().chain(self.retracted.iter());
        let worst = stuck.filter(|request| request.is_on_wire()).max_by_key(|r| r.rank);
        plan.given_up = worst.map(|request| (request.id, Failure::Alloc));
        // What was kept for it is free for others.
        plan.again = plan.given_up.is_some();
    }
}
