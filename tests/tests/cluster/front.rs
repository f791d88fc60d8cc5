//! The way of a request: through the router, the front door of a decode worker, and back.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use admission::{RejectReason, Rejected};
use engine::{AbortReason, Namespace, Outcome, RequestError, Submission};
use metric_catalog::labels;
use model::SamplingParams;
use router::{Failure, FailureKind, OverloadReason, Refusal, Request, Route, Verdict};
use transfer::{Backend, NotOffered, Offered, PeerName, Prompt};
use types::RequestId;

use super::client::{End, Stage};
use super::event::{Event, Which};
use super::rig::{Said, Tap, lock};
use super::telemetry::Trip;
use super::worker::Port;
use super::world::World;

/// The answer to an offer, with the client and the life of the decode worker that asked.
pub(crate) struct Answered {
    pub(crate) client: usize,
    pub(crate) id: RequestId,
    pub(crate) decode: usize,
    pub(crate) life: u64,
    pub(crate) answer: Result<Offered, NotOffered>,
}

const fn failure(kind: FailureKind) -> Failure {
    Failure { kind, by_prefill: false, answer_begun: false }
}

const fn by_prefill(kind: FailureKind) -> Failure {
    Failure { kind, by_prefill: true, answer_begun: false }
}

fn rejected(retry_after: Duration) -> FailureKind {
    FailureKind::Rejected { status: 429, retry_after: Some(retry_after) }
}

/// Why the router refuses, as it counts it.
const fn at_the_door(reason: OverloadReason) -> labels::RejectReason {
    match reason {
        OverloadReason::QueueRequestsFull | OverloadReason::Cooling => {
            labels::RejectReason::QueueRequestsFull
        }
        OverloadReason::QueueTokensFull => labels::RejectReason::QueueTokensFull,
        OverloadReason::DrainTime => labels::RejectReason::DrainTime,
        OverloadReason::Closed => labels::RejectReason::Unhealthy,
    }
}

/// Why a worker refused, as the router counts it.
const fn told(reason: RejectReason) -> labels::RejectReason {
    match reason {
        RejectReason::QueueRequestsFull => labels::RejectReason::QueueRequestsFull,
        RejectReason::QueueTokensFull => labels::RejectReason::QueueTokensFull,
        RejectReason::DrainTime => labels::RejectReason::DrainTime,
        RejectReason::Draining => labels::RejectReason::Draining,
        RejectReason::Unhealthy => labels::RejectReason::Unhealthy,
        RejectReason::PriorityEvicted => labels::RejectReason::PriorityEvicted,
        RejectReason::QueueTimeout => labels::RejectReason::QueueTimeout,
    }
}

impl World {
    /// A client sends its request to the router.
    pub(crate) fn arrive(&mut self, client: usize) {
        let now = self.now;
        let one = &mut self.clients[client];
        if one.is_over() {
            return;
        }
        self.agenda.plan(now + one.patience, Event::GiveUp(client, one.refusals.len()));
        one.came = now;
        one.attempt = router::Attempt::new();
        let request = Request { model: "fake", prompt: &one.text, namespace: "", repeatable: true };
        match self.router.route(&request, &mut one.attempt, now) {
            Ok(route) => self.send(client, route),
            Err(Refusal::Overloaded { reason, retry_after, .. }) => {
                self.tally.refused_by_router += 1;
                self.refuse(client, at_the_door(reason), retry_after);
            }
            Err(Refusal::NoWorker { .. } | Refusal::UnknownModel { .. }) => {
                self.finish(client, End::NoWorker);
            }
        }
    }

    /// A decode worker refuses, by its own bounds or by those of the prefill worker.
    fn refused_by(&mut self, client: usize, decode: usize, refusal: &Rejected) {
        let priority = self.clients[client].priority;
        if let Some(recorder) =
            self.decodes[decode].as_ref().and_then(|worker| worker.recorder.as_ref())
        {
            recorder.rejected(refusal, priority);
        }
        self.clients[client].reason = refusal.reason;
        self.fail(client, failure(rejected(refusal.retry_after)));
    }

    /// The router passes a request on.
    fn send(&mut self, client: usize, route: Route) {
        let decode = self.decode_named(route.serve.name.as_str());
        let prefill = route.prefill.as_ref().expect("pairs only").name.as_str().to_owned();
        self.clients[client].route = Some(route);
        let Some(worker) = self.decodes[decode].as_ref() else {
            return self.fail(client, failure(FailureKind::Connect));
        };
        worker.clock.reach(self.now);
        let now = worker.clock.read();
        let one = &self.clients[client];
        let permit = match worker.admission.try_admit(one.priority, now) {
            Ok(permit) => permit,
            Err(refusal) => return self.refused_by(client, decode, &refusal),
        };
        let tokens = one.prompt.len() as u64;
        let cached = worker.handle.cached_prefix(&Namespace::SHARED, &one.prompt);
        let missing = (one.prompt.len() - 1).saturating_sub(cached);
        let id = RequestId(self.ids.fetch_add(1, Ordering::Relaxed));
        let local = missing <= self.local_tokens;
        let charged = if local { cached as u64 } else { tokens };
        let permit = match permit.charge_cached(tokens, charged, now) {
            Ok(permit) => permit,
            Err(refusal) => return self.refused_by(client, decode, &refusal),
        };
        let submission = Submission {
            id,
            permit,
            prompt: one.prompt.clone(),
            tenant: None,
            namespace: Namespace::SHARED,
            prompt_logprobs: false,
            sampling: SamplingParams::default(),
            constraint: None,
            max_tokens: one.max_tokens,
            stop_tokens: Vec::new(),
            follower: None,
            remote: None,
            send: None,
            sink: Box::new(Tap { client, id, told: Arc::clone(&worker.told) }),
            streaming: true,
            arrived: now,
            tokenized: now,
        };
        if local {
            self.tally.local += 1;
            return self.submit(client, decode, submission);
        }
        let prompt = Prompt {
            request: format!("client-{client}"),
            traceparent: None,
            tokens: one.prompt[..one.prompt.len() - 1].to_vec(),
            namespace: Vec::new(),
            priority: one.priority,
            tenant: None,
        };
        let Port::Decode(port) = &worker.port else { unreachable!("a decode worker") };
        let (answers, life) = (Arc::clone(&self.answers), worker.life);
        let answered = move |answer| {
            lock(&answers).push(Answered { client, id, decode, life, answer });
        };
        self.clients[client].stage = Stage::Asked { decode, id };
        self.held.insert(id, submission);
        port.offer(&PeerName::new(&prefill), id, prompt, Box::new(answered));
    }

    /// A decode worker hands a request to its engine.
    fn submit(&mut self, client: usize, decode: usize, submission: Submission) {
        let worker = self.decodes[decode].as_ref().expect("it is alive");
        let id = submission.id;
        worker.live.fetch_add(1, Ordering::Relaxed);
        if worker.handle.submit(submission).is_err() {
            worker.live.fetch_sub(1, Ordering::Relaxed);
            return self.fail(client, failure(rejected(Duration::from_secs(1))));
        }
        if let Some(recorder) = &worker.recorder {
            let one = &self.clients[client];
            recorder.admitted(one.prompt.len(), one.priority);
        }
        self.clients[client].stage = Stage::Served { decode, id };
        self.wake(Which::Decode(decode));
    }

    /// Prefill workers have answered.
    pub(crate) fn take_answers(&mut self) {
        let answers = std::mem::take(&mut *lock(&self.answers));
        for Answered { client, id, decode, life, answer } in answers {
            let submission = self.held.remove(&id);
            let asked =
                matches!(self.clients[client].stage, Stage::Asked { id: own, .. } if own == id);
            let alive = self.decodes[decode].as_ref().is_some_and(|worker| worker.life == life);
            // Nobody waits for it any more: dropping it gives it up.
            let Some(mut submission) = submission.filter(|_| asked && alive) else { continue };
            match answer {
                Ok(offered) => {
                    submission.remote = Some(offered.landing);
                    self.submit(client, decode, submission);
                }
                Err(NotOffered::Rejected(refusal)) => {
                    self.tally.refused_by_prefill += 1;
                    let priority = self.clients[client].priority;
                    drop(submission);
                    let transfer::Rejected { reason, retry_after, value, limit } = refusal;
                    let reason = RejectReason::ALL[usize::from(reason)];
                    let refusal = Rejected { reason, retry_after, value, limit };
                    if let Some(worker) = &self.decodes[decode]
                        && let Some(recorder) = &worker.recorder
                    {
                        recorder.rejected(&refusal, priority);
                    }
                    self.clients[client].reason = reason;
                    self.fail(client, by_prefill(rejected(retry_after)));
                }
                Err(NotOffered::Invalid { .. }) => unreachable!("prompts are well formed"),
                Err(NotOffered::Failed(_)) => {
                    drop(submission);
                    self.fail(client, by_prefill(FailureKind::Status(502)));
                }
            }
        }
    }

    /// Looks at what the sinks of a decode worker have heard.
    pub(crate) fn take_told(&mut self, decode: usize) {
        let Some(worker) = &self.decodes[decode] else { return };
        let told = std::mem::take(&mut *lock(&worker.told));
        for (client, id, said, at) in told {
            let mine = matches!(self.clients[client].stage,
                Stage::Served { decode: own, id: served } if own == decode && served == id);
            match said {
                Said::Token(token) if mine => {
                    let one = &mut self.clients[client];
                    one.got.push(token);
                    if let Some(watch) = &self.watch {
                        match one.first_token {
                            None => watch.router.first(at.since(one.came)),
                            Some(_) => watch.router.gap(at.since(one.last_token)),
                        }
                    }
                    one.last_token = at;
                    if one.got.len() == 1 {
                        one.first_token = Some(at);
                        let route = one.route.as_mut().expect("it is open");
                        self.router.answered(route, self.now.max(at));
                    }
                }
                Said::Token(_) => {}
                Said::End(outcome) => {
                    if let Some(worker) = &self.decodes[decode] {
                        worker.live.fetch_sub(1, Ordering::Relaxed);
                    }
                    if mine {
                        self.ended(client, outcome);
                    }
                }
            }
        }
    }

    /// An engine ended a request that its client waits for.
    fn ended(&mut self, client: usize, outcome: Outcome) {
        let begun = !self.clients[client].got.is_empty();
        match outcome {
            Outcome::Stop | Outcome::Length => self.finish(client, End::Answered),
            Outcome::Rejected(refusal) => {
                self.fail(client, failure(rejected(refusal.retry_after)));
            }
            Outcome::Error(RequestError::Transfer(why)) => {
                *self.tally.transfer_errors.entry(why.label()).or_default() += 1;
                self.fail(client, by_prefill(FailureKind::Status(502)));
            }
            Outcome::Error(_) | Outcome::Aborted(_) if begun => {
                let mut cut = failure(FailureKind::Broken);
                cut.answer_begun = true;
                self.fail(client, cut);
            }
            Outcome::Error(_) | Outcome::Aborted(_) => {
                self.fail(client, failure(FailureKind::Status(500)));
            }
        }
    }

    /// The router learns that a request failed: again, elsewhere, or back to the client.
    pub(crate) fn fail(&mut self, client: usize, failure: Failure) {
        let now = self.now;
        let one = &mut self.clients[client];
        let route = one.route.take().expect("a request that fails was routed");
        one.stage = Stage::Away;
        let request = Request { model: "fake", prompt: &one.text, namespace: "", repeatable: true };
        let (verdict, _) = self.router.failed(route, failure, &request, &mut one.attempt, now);
        match verdict {
            Verdict::Again(route, _) => {
                self.tally.retries += 1;
                self.send(client, *route);
            }
            Verdict::Pass { retry_after: Some(retry_after) } => {
                let reason = self.clients[client].reason;
                self.refuse(client, told(reason), retry_after);
            }
            Verdict::Pass { retry_after: None } if failure.answer_begun => {
                self.finish(client, End::Cut);
            }
            Verdict::Pass { retry_after: None } => self.finish(client, End::Failed),
        }
    }

    fn refuse(&mut self, client: usize, reason: labels::RejectReason, retry_after: Duration) {
        let now = self.now;
        if let Some(watch) = &self.watch {
            watch.router.refused(reason, retry_after);
        }
        let one = &mut self.clients[client];
        one.refusals.push((now, now.since(one.came)));
        one.route = None;
        one.stage = Stage::Away;
        self.tally.refusals += 1;
        if one.returns == 0 {
            return self.finish(client, End::Refused);
        }
        one.returns -= 1;
        self.agenda.plan(now + retry_after, Event::Arrive(client));
    }

    /// A client leaves, wherever its request is.
    pub(crate) fn give_up(&mut self, client: usize, refusals: usize) {
        let one = &self.clients[client];
        if one.is_over() || one.first_token.is_some() || one.refusals.len() != refusals {
            return;
        }
        match one.stage {
            Stage::Over(_) => return,
            Stage::Away => {}
            // Dropping the future of the answer gives the offer up.
            Stage::Asked { id, .. } => drop(self.held.remove(&id)),
            Stage::Served { decode, id } => {
                if let Some(worker) = &self.decodes[decode] {
                    worker.handle.abort(id, AbortReason::ClientGone);
                    self.wake(Which::Decode(decode));
                }
            }
        }
        self.finish(client, End::Left);
    }

    pub(crate) fn finish(&mut self, client: usize, end: End) {
        let one = &mut self.clients[client];
        assert!(!one.is_over(), "client {client} ended twice");
        if let Some(watch) = &self.watch {
            let trip = Trip {
                first: one.first_token.map(|first| first.since(one.came)),
                duration: self.now.max(one.last_token).since(one.came),
                tokens: one.got.len() as u64,
            };
            watch.router.ended(&end, &trip);
        }
        one.route = None;
        one.stage = Stage::Over(end);
        self.open -= 1;
    }
}
