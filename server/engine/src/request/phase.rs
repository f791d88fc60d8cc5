//! Where a request is, and how it gets from one place to the next.

use std::time::Duration;

use admission::{Evicted, PrefillDebt, QueuePermit, Rejected};
use kv_cache::PageTable;
use types::Time;

use super::Request;
use crate::output::{Outcome, RequestEnd, Sink, Stage, Timings};
use crate::stats::{Queue, QueueExit, QueueExitCause};

/// Where a request is. Each state owns what it counts for.
#[derive(Debug)]
pub(crate) enum Phase {
    /// In the waiting queue, holding its place.
    Waiting(QueuePermit),
    /// Prefill: its decode worker has no pages for it yet. Holds its place.
    Bootstrap(QueuePermit),
    /// Decode: it has no pages yet. Holds its place.
    Prealloc(QueuePermit),
    /// Decode: its pages are being filled from elsewhere.
    Transfer,
    /// Decode: its pages are filled; it waits for a running slot.
    Landed,
    /// Running, with tokens left to compute before the next one can be chosen. The debt is that of
    /// a first prefill; one that computes again after a retraction, or whose prompt was computed
    /// elsewhere, owes nothing.
    Prefill(Option<PrefillDebt>),
    /// Running; one token, the last one chosen, is computed per step.
    Decode,
    /// Preempted: no pages.
    Retracted,
    /// Prefill: computed; its pages stay until the decode worker has everything.
    Sending,
}

impl Phase {
    pub(crate) const fn permit(&self) -> Option<&QueuePermit> {
        match self {
            Self::Waiting(permit) | Self::Bootstrap(permit) | Self::Prealloc(permit) => {
                Some(permit)
            }
            Self::Transfer
            | Self::Landed
            | Self::Prefill(_)
            | Self::Decode
            | Self::Retracted
            | Self::Sending => None,
        }
    }

    pub(super) const fn permit_mut(&mut self) -> Option<&mut QueuePermit> {
        match self {
            Self::Waiting(permit) | Self::Bootstrap(permit) | Self::Prealloc(permit) => {
                Some(permit)
            }
            Self::Transfer
            | Self::Landed
            | Self::Prefill(_)
            | Self::Decode
            | Self::Retracted
            | Self::Sending => None,
        }
    }

    /// The queue that it is in; `None` while it runs.
    pub(crate) const fn queue(&self) -> Option<Queue> {
        match self {
            Self::Waiting(_) | Self::Landed => Some(Queue::Waiting),
            Self::Bootstrap(_) => Some(Queue::Bootstrap),
            Self::Prealloc(_) => Some(Queue::Prealloc),
            Self::Transfer => Some(Queue::Transfer),
            Self::Retracted => Some(Queue::Retracted),
            Self::Sending => Some(Queue::InflightSend),
            Self::Prefill(_) | Self::Decode => None,
        }
    }
}

impl Request {
    /// Where an abort finds it.
    pub(crate) const fn stage(&self) -> Stage {
        match self.phase {
            Phase::Waiting(_) | Phase::Landed | Phase::Retracted => Stage::Queued,
            Phase::Bootstrap(_) | Phase::Prealloc(_) => Stage::Bootstrap,
            Phase::Prefill(_) => Stage::Prefill,
            Phase::Transfer | Phase::Sending => Stage::Transfer,
            Phase::Decode => Stage::Decode,
        }
    }

    /// When it was given its place in the queue; for one without a place, when it is now.
    pub(crate) fn enqueued_at(&self) -> Time {
        self.phase.permit().map_or(self.timings.ended, QueuePermit::enqueued_at)
    }

    /// How it is refused, where a better one took its place in the queue.
    pub(crate) fn evicted(&self) -> Option<Rejected> {
        self.phase.permit()?.evicted()
    }

    /// How it is refused after waiting longer than `limit`; `None` where it has to wait on.
    pub(crate) fn expire(&mut self, limit: Duration, now: Time) -> Option<Rejected> {
        self.phase.permit_mut()?.expire(limit, now)
    }

    /// Gives up its place in the queue, whichever it waits in, and owes what was charged. The
    /// caller says where it is next.
    ///
    /// # Errors
    /// A better one has taken its place in the queue; it stays as it is.
    ///
    /// # Panics
    /// When it has no place.
    fn give_up_place(&mut self, now: Time) -> Result<PrefillDebt, Rejected> {
        let before = std::mem::replace(&mut self.phase, Phase::Retracted);
        let queue = before.queue();
        let (Phase::Waiting(permit) | Phase::Bootstrap(permit) | Phase::Prealloc(permit)) = before
        else {
            panic!("it has no place in a queue")
        };
        permit.start(now).map_err(|Evicted { permit, refusal }| {
            self.phase = match queue {
                Some(Queue::Prealloc) => Phase::Prealloc(permit),
                Some(Queue::Bootstrap) => Phase::Bootstrap(permit),
                Some(_) | None => Phase::Waiting(permit),
            };
            refusal
        })
    }

    /// Leaves its queue for the running batch.
    ///
    /// # Errors
    /// A better one has taken its place in the queue; it stays as it is.
    ///
    /// # Panics
    /// When it runs, or is in a queue from which nobody starts.
    pub(crate) fn start(&mut self, now: Time) -> Result<QueueExit, Rejected> {
        let exit = self.exit(now, QueueExitCause::Scheduled).expect("it does not run");
        let debt = match &self.phase {
            Phase::Waiting(_) => Some(self.give_up_place(now)?),
            Phase::Retracted | Phase::Landed => None,
            Phase::Bootstrap(_)
            | Phase::Prealloc(_)
            | Phase::Transfer
            | Phase::Prefill(_)
            | Phase::Decode
            | Phase::Sending => panic!("nobody starts from there"),
        };
        // All the memory of its answer now, none of it in a later step.
        let most = self.prompt_tokens + self.max_tokens;
        self.tokens.reserve_exact(most.saturating_sub(self.tokens.len()));
        self.table.reserve_ids(most);
        self.note_queued(exit.queue, now);
        self.timings.scheduled.get_or_insert(now);
        self.running_since = now;
        self.phase = Phase::Prefill(debt);
        Ok(exit)
    }

    /// Leaves its queue, for that of `phase`; the place in the queue goes along where `phase` takes
    /// one.
    pub(super) fn advance_to(
        &mut self,
        phase: impl FnOnce(Phase) -> Phase,
        now: Time,
    ) -> Option<QueueExit> {
        let exit = self.exit(now, QueueExitCause::Advanced);
        if let Some(exit) = &exit {
            self.note_queued(exit.queue, now);
        }
        let before = std::mem::replace(&mut self.phase, Phase::Retracted);
        self.phase = phase(before);
        self.queued_since = now;
        exit
    }

    /// Gives up its place in the queue for pages that are being filled; what was charged for it is
    /// not computed here.
    ///
    /// # Errors
    /// A better one has taken its place in the queue; it stays as it is.
    pub(crate) fn start_transfer(&mut self, now: Time) -> Result<QueueExit, Rejected> {
        let exit = self.exit(now, QueueExitCause::Advanced).expect("it is in a queue");
        drop(self.give_up_place(now)?);
        self.note_queued(exit.queue, now);
        self.phase = Phase::Transfer;
        self.queued_since = now;
        Ok(exit)
    }

    /// When it will have run for `limit` in all, unless it is retracted before.
    pub(crate) fn deadline(&self, limit: Duration) -> Time {
        self.running_since + limit.saturating_sub(self.ran)
    }

    /// Gives its pages back and waits again; what it has computed stays in the cache, where there
    /// is one, until somebody needs the room. Where a link may still read its pages they are
    /// returned, to be kept until it does not; `fresh` is its next table.
    pub(crate) fn retract(&mut self, fresh: PageTable, now: Time) -> Option<PageTable> {
        self.publish();
        self.tell_published();
        let ran = !matches!(self.phase, Phase::Landed);
        self.phase = Phase::Retracted;
        self.computed = 0;
        self.preemptions += 1;
        if ran {
            self.ran += now.since(self.running_since);
        }
        self.queued_since = now;
        let before = std::mem::replace(&mut self.table, fresh);
        self.is_on_wire().then_some(before)
    }

    /// Records that it leaves its queue, if it is in one.
    pub(crate) fn leave_queue(&mut self, now: Time, cause: QueueExitCause) -> Option<QueueExit> {
        let exit = self.exit(now, cause)?;
        self.note_queued(exit.queue, now);
        Some(exit)
    }

    fn exit(&self, now: Time, cause: QueueExitCause) -> Option<QueueExit> {
        let queue = self.phase.queue()?;
        let since = match &self.phase {
            // One that a link brought here was in another queue before.
            Phase::Waiting(permit) if self.outbox.is_none() => permit.enqueued_at(),
            Phase::Bootstrap(permit) | Phase::Prealloc(permit) => permit.enqueued_at(),
            Phase::Waiting(_)
            | Phase::Transfer
            | Phase::Landed
            | Phase::Prefill(_)
            | Phase::Decode
            | Phase::Retracted
            | Phase::Sending => self.queued_since,
        };
        Some(QueueExit { id: self.id, queue, waited: now.since(since), cause })
    }

    /// Books the time in its queue under what it waited for.
    fn note_queued(&mut self, queue: Queue, now: Time) {
        if self.timings.first_token.is_some() {
            return;
        }
        let waited = now.since(self.queued_since);
        match queue {
            Queue::Waiting | Queue::Retracted => match &mut self.timings.remote {
                Some(remote) => remote.decode_queue += waited,
                None => self.timings.queued += waited,
            },
            Queue::Bootstrap | Queue::Prealloc => self.timings.bootstrap += waited,
            // Split up when it is over; see `arrive`.
            Queue::Transfer | Queue::InflightSend => {}
        }
    }

    /// Ends it: frees permit and debt. Returns what is left to be told, and its pages, which the
    /// caller drops or keeps.
    pub(crate) fn end(
        mut self,
        outcome: Outcome,
        now: Time,
    ) -> (Box<dyn Sink>, RequestEnd, PageTable) {
        match outcome {
            // What went wrong may be in its rows.
            Outcome::Error(_) => {}
            Outcome::Stop | Outcome::Length | Outcome::Aborted(_) | Outcome::Rejected(_) => {
                self.publish();
            }
        }
        let tool_calls = outcome == Outcome::Stop && self.sink.called_tools();
        let end = RequestEnd {
            id: self.id,
            outcome,
            tool_calls,
            priority: self.priority,
            streaming: self.streaming,
            prompt_tokens: self.prompt_tokens,
            cached_tokens: self.cached,
            remote_tokens: self.remote_tokens,
            generated_tokens: self.tokens.len() - self.prompt_tokens,
            recomputed_tokens: self.recomputed,
            preemptions: self.preemptions,
            timings: Timings { ended: now, ..self.timings },
        };
        if let Some(follower) = self.follower.take().filter(|_| self.was_looked_up) {
            let left = if matches!(end.outcome, Outcome::Error(_)) { 0 } else { self.computed };
            follower.ended(self.namespace.clone(), std::mem::take(&mut self.tokens), left);
        }
        (self.sink, end, self.table)
    }
}
