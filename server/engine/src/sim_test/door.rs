//! The front door of a simulation: who is let in, who is told to come back, and the counts of it,
//! as the server keeps them.

use std::sync::Arc;
use std::time::Duration;

use admission::{QueuePermit, RejectReason};
use types::{RequestId, Time};

use super::client::Client;
use super::ensure;
use super::link::End;
use super::load::{Kind, Wish, wish};
use super::world::World;
use crate::{AbortReason, Outcome, Submission, SubmitError};

/// A permit whose prompt is still being tokenised, with its charge.
pub(super) type Held = (QueuePermit, Wish, Time);

/// What the front door has counted, in requests.
#[derive(Debug, Default)]
pub(super) struct Door {
    /// That came.
    offered: u64,
    /// Handed to the engine, or evicted at the front door.
    admitted: u64,
    /// Refused, with everything but an eviction as the reason.
    refused: u64,
    /// Evicted before they were handed to the engine.
    evicted: u64,
    /// Gone while their prompts were tokenised.
    left: u64,
}

impl Door {
    /// The balances of the front door, and of what it let in.
    pub(super) fn check(world: &World) -> Result<(), String> {
        let Self { offered, admitted, refused, evicted, left } = world.door;
        let held = world.held.len() as u64;
        ensure!(
            offered == admitted + refused + left + held,
            "{offered} came; {admitted} admitted, {refused} refused, {left} left, {held} held"
        );
        let told = world.watcher.0.lock().expect("one thread");
        let rejected = told.rejected.values().sum::<u64>();
        let finished = told.ends.len() as u64 - rejected;
        let live = (world.core.scheduler.live() + world.core.mailbox.submissions()) as u64;
        let reasons = [RejectReason::PriorityEvicted, RejectReason::QueueTimeout];
        let others = told.rejected.keys().any(|reason| !reasons.contains(reason));
        ensure!(!others, "refused after admission: {:?}", told.rejected);
        ensure!(
            admitted == finished + live + rejected + evicted,
            "{admitted} admitted; {finished} finished, {live} live, {rejected} refused later, \
             {evicted} evicted at the door"
        );
        Ok(())
    }
}

impl World {
    /// Somebody comes to the front door.
    pub(super) fn arrive(&mut self) {
        let wish = wish(&mut self.dice, &self.conditions);
        self.come(wish);
    }

    pub(super) fn come(&mut self, wish: Wish) {
        let arrived = self.time.read();
        let (tokens, count) = (wish.prompt.len() as u64, wish.family as u64);
        self.door.offered += count;
        let admitted = self.admission.try_admit_family(wish.priority, wish.family, arrived);
        let charged = admitted.and_then(|permits| {
            self.time.pass(Duration::from_micros(50));
            let now = self.time.read();
            permits
                .into_iter()
                .map(|permit| permit.charge(tokens, now))
                .collect::<Result<Vec<_>, _>>()
        });
        match charged {
            Ok(permits) if self.dice.chance(950) => {
                self.held.extend(permits.into_iter().map(|p| (p, wish.clone(), arrived)));
            }
            Ok(_) => {
                self.door.left += count;
                self.coverage.count("left before submission", 1);
            }
            Err(refusal) => {
                self.coverage.count(&format!("refused: {}", refusal.reason.as_str()), 1);
                self.door.refused += count;
            }
        }
    }

    /// Tokenised prompts are handed to the engine together, as the choices of one response.
    pub(super) fn submit(&mut self, together: Vec<Held>) {
        let Some(handle) = self.handle.clone() else {
            self.door.left += together.len() as u64;
            return;
        };
        let mut submissions = Vec::new();
        let mut wishes = Vec::new();
        for (permit, mut wish, arrived) in together {
            if self.dice.chance(10) && wish.kind != Kind::Send {
                wish.max_tokens = handle.max_request_tokens();
            }
            if self.dice.chance(300)
                && let Some(refusal) = permit.evicted()
            {
                // As one that learns it before it is handed over.
                self.coverage.count(&format!("refused: {}", refusal.reason.as_str()), 1);
                self.door.admitted += 1;
                self.door.evicted += 1;
                continue;
            }
            let id = RequestId(self.next_id + wishes.len() as u64);
            self.ranks.insert(id, permit.rank());
            self.links.lock().expect("one thread").open(id, &wish);
            submissions.push(self.submission(id, permit, &wish, arrived));
            wishes.push((id, wish));
        }
        let count = submissions.len() as u64;
        match handle.submit_all(submissions) {
            Ok(()) => {
                self.next_id += count;
                self.door.admitted += count;
                for (id, wish) in wishes {
                    self.accepted.insert(id, wish);
                    if self.dice.chance(self.conditions.aborts) {
                        let reasons = [AbortReason::ClientGone, AbortReason::SlowClient];
                        let turn = self.turns + self.dice.within(0..=60);
                        self.aborts.push((turn, id, self.dice.pick(&reasons)));
                    }
                }
            }
            Err(refused) => {
                let mut links = self.links.lock().expect("one thread");
                wishes.iter().for_each(|(id, _)| links.close(*id));
                drop(links);
                let what = match refused.error {
                    SubmitError::Busy { .. } => "refused: busy",
                    SubmitError::TooLong { .. } => "refused: too long",
                    SubmitError::Invalid(_)
                    | SubmitError::Duplicate
                    | SubmitError::Draining
                    | SubmitError::Unhealthy => "refused: otherwise",
                };
                self.door.refused += count;
                self.coverage.count(what, 1);
                self.coverage.count("refused together", u64::from(count > 1));
            }
        }
    }

    pub(super) fn submission(
        &self,
        id: RequestId,
        permit: QueuePermit,
        wish: &Wish,
        arrived: Time,
    ) -> Submission {
        let end = |kind| {
            let (links, specs) = (Arc::clone(&self.links), self.specs.clone());
            (wish.kind == kind).then(|| End { id, links, specs })
        };
        let client = Client { id, clients: Arc::clone(&self.clients), quirk: wish.quirk };
        Submission {
            id,
            permit,
            prompt: wish.prompt.clone(),
            tenant: wish.tenant.map(Arc::from),
            namespace: wish.namespace(),
            prompt_logprobs: false,
            sampling: wish.sampling.clone(),
            constraint: None,
            follower: None,
            max_tokens: wish.max_tokens,
            stop_tokens: wish.stop_tokens.clone(),
            remote: end(Kind::Remote).map(|end| Box::new(end) as _),
            send: end(Kind::Send).map(|end| Box::new(end) as _),
            sink: Box::new(client),
            streaming: id.0.is_multiple_of(2),
            arrived,
            tokenized: self.time.read(),
        }
    }

    /// Those that are still being tokenised go away.
    pub(super) fn held_leave(&mut self) {
        self.door.left += self.held.len() as u64;
        self.held.clear();
    }

    /// Tries to submit with a permit of another controller, for this one gives none any more.
    pub(super) fn submit_after_the_end(&mut self) -> Option<SubmitError> {
        let elsewhere = admission::AdmissionController::new(self.conditions.limits, 1.0);
        let now = self.time.read();
        let permit = elsewhere.try_admit(types::Priority::NORMAL, now).ok()?;
        let wish = wish(&mut self.dice, &self.conditions);
        let submission = self.submission(RequestId(self.next_id), permit, &wish, now);
        let refused = self.handle.as_ref()?.submit(submission);
        refused.err().map(|refused| refused.error)
    }

    /// Requests that a drain's deadline has cut off so far.
    pub(super) fn cut_off(&self) -> usize {
        let told = self.watcher.0.lock().expect("one thread");
        let cut_off = |outcome: &Outcome| {
            matches!(outcome, Outcome::Aborted(abort)
                if abort.reason == AbortReason::DrainDeadline)
        };
        told.ends.iter().filter(|end| cut_off(&end.outcome)).count()
    }
}
