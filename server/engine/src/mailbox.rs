//! The way in: a bounded queue of events that the engine's thread can sleep on.
//!
//! Submissions are bounded by a capacity. Aborts are bounded by being accepted once per live
//! request, so an abort is never lost to a full queue and never blocks its sender. News are bounded
//! by what a link may say of a request: a few words, and one for each chunk that it was given.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use transfer::News;
use types::{RequestId, Time};

use crate::event::{AbortReason, Event};
use crate::handle::SubmitError;
use crate::submission::Submission;

#[derive(Debug)]
struct State {
    events: Vec<Event>,
    /// Submissions in `events`.
    submissions: usize,
    /// Requests that were accepted and have not ended, or whose pages a link still uses; `true`
    /// once an abort was sent.
    live: HashMap<RequestId, bool>,
    /// Something else than an event has happened since the engine last looked.
    nudged: bool,
    /// Set when the engine takes nothing any more.
    closed: Option<SubmitError>,
}

impl State {
    /// Names all of `submissions` live, or none.
    fn admit(&mut self, submissions: &[Submission], capacity: usize) -> Result<(), SubmitError> {
        if let Some(closed) = &self.closed {
            return Err(closed.clone());
        }
        if self.submissions + submissions.len() > capacity {
            return Err(SubmitError::Busy { limit: capacity });
        }
        for (index, submission) in submissions.iter().enumerate() {
            match self.live.entry(submission.id) {
                Entry::Vacant(place) => place.insert(false),
                Entry::Occupied(_) => {
                    for before in &submissions[..index] {
                        self.live.remove(&before.id);
                    }
                    return Err(SubmitError::Duplicate);
                }
            };
        }
        self.submissions += submissions.len();
        Ok(())
    }
}

/// Shared by every handle and the engine's thread.
#[derive(Debug)]
pub(crate) struct Mailbox {
    capacity: usize,
    state: Mutex<State>,
    wake: Condvar,
}

impl Mailbox {
    pub(crate) fn new(capacity: usize) -> Self {
        let state = State {
            events: Vec::new(),
            submissions: 0,
            live: HashMap::new(),
            nudged: false,
            closed: None,
        };
        Self { capacity, state: Mutex::new(state), wake: Condvar::new() }
    }

    /// Accepts all of these submissions, or gives all back with the reason.
    pub(crate) fn submit_all(
        &self,
        submissions: Vec<Submission>,
    ) -> Result<(), (Vec<Submission>, SubmitError)> {
        let mut state = self.lock();
        if let Err(error) = state.admit(&submissions, self.capacity) {
            return Err((submissions, error));
        }
        let events = submissions.into_iter().map(|submission| Event::Submit(Box::new(submission)));
        state.events.extend(events);
        drop(state);
        self.wake.notify_one();
        Ok(())
    }

    /// Asks for a request's end. Ignored for a request that has ended or was aborted before.
    pub(crate) fn abort(&self, id: RequestId, reason: AbortReason) {
        let mut state = self.lock();
        let Some(aborted) = state.live.get_mut(&id) else { return };
        if std::mem::replace(aborted, true) {
            return;
        }
        state.events.push(Event::Abort(id, reason));
        drop(state);
        self.wake.notify_one();
    }

    /// Aborts everything that is live; returns how many.
    pub(crate) fn abort_all(&self, reason: AbortReason) -> usize {
        let mut state = self.lock();
        let live = state.live.iter_mut();
        let fresh =
            live.filter_map(|(id, aborted)| (!std::mem::replace(aborted, true)).then_some(*id));
        let mut fresh: Vec<RequestId> = fresh.collect();
        fresh.sort_unstable();
        state.events.extend(fresh.iter().map(|id| Event::Abort(*id, reason)));
        drop(state);
        if !fresh.is_empty() {
            self.wake.notify_one();
        }
        fresh.len()
    }

    /// What a link tells of a request. Ignored for one that is not (or no longer) known.
    pub(crate) fn news(&self, id: RequestId, news: News) {
        let mut state = self.lock();
        if state.live.contains_key(&id) {
            state.events.push(Event::News(id, news));
            drop(state);
            self.wake.notify_one();
        }
    }

    pub(crate) fn drain(&self, deadline: Time) {
        self.control(Event::Drain(deadline));
    }

    pub(crate) fn shutdown(&self) {
        self.control(Event::Shutdown);
    }

    fn control(&self, event: Event) {
        let mut state = self.lock();
        if state.closed.is_none() {
            state.events.push(event);
            drop(state);
            self.wake.notify_one();
        }
    }

    /// Moves what has come in to `inbox`, which must be empty.
    pub(crate) fn take(&self, inbox: &mut Vec<Event>) {
        debug_assert!(inbox.is_empty());
        let mut state = self.lock();
        state.submissions = 0;
        state.nudged = false;
        std::mem::swap(&mut state.events, inbox);
    }

    /// These requests have ended: their aborts no longer mean anything.
    pub(crate) fn forget(&self, ended: impl Iterator<Item = RequestId>) {
        let mut state = self.lock();
        for id in ended {
            state.live.remove(&id);
        }
    }

    /// Takes nothing any more; what had come in is returned. The first reason stays.
    pub(crate) fn close(&self, why: SubmitError) -> Vec<Event> {
        let mut state = self.lock();
        state.closed.get_or_insert(why);
        state.submissions = 0;
        std::mem::take(&mut state.events)
    }

    /// Wakes the engine, now or when it next goes to sleep, to look at something else than events.
    pub(crate) fn nudge(&self) {
        self.lock().nudged = true;
        self.wake.notify_one();
    }

    /// Blocks until something has come in or somebody nudges, at most `timeout`.
    pub(crate) fn wait(&self, timeout: Duration) {
        let state = self.lock();
        let empty = |state: &mut State| state.events.is_empty() && !state.nudged;
        drop(self.wake.wait_timeout_while(state, timeout, empty));
    }

    #[cfg(test)]
    pub(crate) fn submissions(&self) -> usize {
        self.lock().submissions
    }

    #[cfg(test)]
    pub(crate) fn live(&self) -> usize {
        self.lock().live.len()
    }

    /// No method leaves the state half changed.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_abort_is_kept_once_and_only_for_a_live_request() {
        let mailbox = Mailbox::new(1);
        let mut inbox = Vec::new();
        mailbox.lock().live.insert(RequestId(1), false);
        for _ in 0..1000 {
            mailbox.abort(RequestId(1), AbortReason::ClientGone);
            mailbox.abort(RequestId(2), AbortReason::ClientGone);
        }
        mailbox.take(&mut inbox);
        assert!(matches!(inbox[..], [Event::Abort(RequestId(1), AbortReason::ClientGone)]));
    }

    #[test]
    fn a_closed_mailbox_keeps_its_first_reason() {
        let mailbox = Mailbox::new(1);
        mailbox.drain(Time::ZERO);
        assert_eq!(mailbox.close(SubmitError::Unhealthy).len(), 1);
        assert!(mailbox.close(SubmitError::Draining).is_empty());
        mailbox.shutdown();
        assert!(mailbox.lock().events.is_empty());
        assert_eq!(mailbox.lock().closed, Some(SubmitError::Unhealthy));
    }
}
