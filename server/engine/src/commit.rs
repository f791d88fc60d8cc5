//! After the forward pass: account what was computed, hand tokens out, end requests, report.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use kv_cache::Age;
use model::{RunError, Sampled};
use types::{PoolId, Time};

use crate::event::AbortReason;
use crate::host::Host;
use crate::output::{Abort, Outcome, RequestEnd, RequestError, Sink, Stage, TokenEvent, Verdict};
use crate::plan::Row;
use crate::request::{SinkPanicked, ask};
use crate::stats::{
    CopyWaits, EngineState, FirstToken, LoopStage, QueueExit, RetractedSnapshot, StepPhase,
    StepStats,
};
use crate::step::{Core, Life};
use crate::storage::StorageTier;

/// What one turn has to tell. Kept from turn to turn, so that its memory is allocated once.
#[derive(Default)]
pub(crate) struct Report {
    pub(crate) prompt_tokens: u64,
    pub(crate) recomputed_tokens: u64,
    pub(crate) generated_tokens: u64,
    pub(crate) copy_waits: CopyWaits,
    pub(crate) ages: Vec<Age>,
    pub(crate) first_tokens: Vec<FirstToken>,
    pub(crate) inter_token: Vec<Duration>,
    pub(crate) queue_exits: Vec<QueueExit>,
    /// Ended requests whose sinks have not heard of it yet.
    pub(crate) ended: Vec<(Box<dyn Sink>, RequestEnd)>,
}

impl Report {
    fn clear(&mut self) {
        self.prompt_tokens = 0;
        self.recomputed_tokens = 0;
        self.generated_tokens = 0;
        self.copy_waits = CopyWaits::default();
        self.ages.clear();
        self.first_tokens.clear();
        self.inter_token.clear();
        self.queue_exits.clear();
    }
}

impl Core {
    /// Applies the outputs of a batch that ran for `busy`.
    pub(crate) fn commit(&mut self, busy: Duration) {
        if self.plan.rows.is_empty() {
            return;
        }
        self.sample();
        let now = self.clock.last();
        let mut sampled = std::mem::take(&mut self.sampled);
        let mut chosen = sampled.drain(..);
        let mut first = 0;
        for index in 0..self.plan.rows.len() {
            let row = self.plan.rows[index];
            self.advance(row);
            let token =
                row.logits.then(|| chosen.next().expect("one choice per row that wants one"));
            if self.commit_prompt(row, first)
                && let Some(token) = token
            {
                self.commit_token(row, token, now);
            }
            first += row.logits_rows;
        }
        drop(chosen);
        self.sampled = sampled;
        self.report_prefill_rate(busy);
    }

    fn advance(&mut self, row: Row) {
        let request = self.scheduler.running.get_mut(row.rank).expect("a planned row runs");
        let computed = request.advance(row.len);
        self.report.prompt_tokens += computed.prompt as u64;
        self.report.recomputed_tokens += computed.again as u64;
    }

    /// Scores what a row has computed of a prompt, from row `first` of the logits on. `false`: the
    /// request has ended, by that or because nothing but its prompt was wanted.
    fn commit_prompt(&mut self, row: Row, first: usize) -> bool {
        let scores = row.logits_rows > usize::from(row.logits);
        if scores {
            self.mark(LoopStage::Commit);
        }
        let request = self.scheduler.running.get_mut(row.rank).expect("a planned row runs");
        let id = request.id;
        let outcome = if scores {
            let told = request.score_prompt(&self.logits, first, row.logits_rows, &mut self.scorer);
            match told {
                Ok(verdict) => outcome_of(verdict, Stage::Prefill),
                Err(error) => {
                    if matches!(error, RequestError::Model(_)) {
                        request.tell_flushed();
                        self.scheduler.pools.flush();
                    }
                    Some(Outcome::Error(error))
                }
            }
        } else {
            None
        };
        let complete = request.ends_with_prompt();
        if complete && outcome.is_none() && request.sends() {
            self.scheduler.send_off(row.rank, self.clock.last());
            return false;
        }
        let outcome = outcome.or_else(|| complete.then_some(Outcome::Length));
        if scores {
            self.mark(LoopStage::Sample);
        }
        match outcome {
            Some(outcome) => {
                self.end(id, |_| outcome);
                false
            }
            None => true,
        }
    }

    fn commit_token(&mut self, row: Row, chosen: Result<Sampled, RunError>, now: Time) {
        let request = self.scheduler.running.get_mut(row.rank).expect("a planned row runs");
        let id = request.id;
        let sampled = match chosen {
            Ok(sampled) => sampled,
            Err(error) => {
                if matches!(error, RunError::NonFinite { .. }) {
                    // The rows behind it may be the cause, and cached they would spoil others.
                    request.tell_flushed();
                    self.scheduler.pools.flush();
                }
                let error = RequestError::Model(error.to_string());
                return self.end(id, |_| Outcome::Error(error));
            }
        };
        match request.append(sampled.token, now) {
            Some(gap) => self.report.inter_token.push(gap),
            None => self.report.first_tokens.extend(first_token(request)),
        }
        self.report.generated_tokens += 1;
        self.scheduler.waiting.charge(request.slot, 1);
        let finish = request.finish();
        let event = TokenEvent {
            token: sampled.token,
            index: request.generated() - 1,
            logprob: sampled.logprob,
            top: request.sampler.top(),
            now,
            finish,
        };
        let outcome = match ask(&mut *request.sink, &event) {
            Ok(verdict) => outcome_of(verdict, Stage::Decode).or(finish.map(Outcome::from)),
            Err(SinkPanicked) => Some(Outcome::Error(RequestError::Sink)),
        };
        if let Some(outcome) = outcome {
            self.end(id, |_| outcome);
        }
    }

    /// Tells admission how fast prefill is. A mixed step's time is shared out by tokens.
    fn report_prefill_rate(&self, busy: Duration) {
        let total = self.plan.batch.tokens.len();
        let prefill = total - self.plan.decode_tokens();
        if prefill > 0 {
            let share = busy.mul_f64(prefill as f64 / total as f64);
            self.admission.observe_prefill(prefill as u64, share);
        }
    }

    /// Tells the observer and the snapshot about the turn, then the sinks about their ends: a
    /// client that has its answer finds the gauges without its request.
    pub(crate) fn observe(&mut self, started: Time, busy: Duration) {
        let now = self.clock.last();
        for (_, end) in &self.report.ended {
            self.observer.on_request_end(end);
        }
        let phase = self.phase();
        let ran = phase != StepPhase::Idle;
        let stages = self.clock.report();
        self.scheduler.pools.take_ages(&mut self.report.ages);
        self.observer.on_step(&StepStats {
            now,
            phase,
            duration: if ran { now.since(started) } else { Duration::ZERO },
            busy: if ran { busy } else { Duration::ZERO },
            rank_busy: if ran { self.runner.busy() } else { &[] },
            requests: self.plan.rows.len(),
            tokens: self.plan.batch.tokens.len(),
            prompt_tokens: self.report.prompt_tokens,
            cached_device_tokens: self.plan.cached.device,
            cached_host_tokens: self.plan.cached.host,
            cached_storage_tokens: self.plan.cached.storage,
            cached_remote_tokens: self.plan.cached.remote,
            recomputed_tokens: self.report.recomputed_tokens,
            generated_tokens: self.report.generated_tokens,
            preemptions: self.plan.preemptions,
            copy_waits: CopyWaits { held: self.plan.held, ..self.report.copy_waits },
            first_tokens: &self.report.first_tokens,
            inter_token: &self.report.inter_token,
            queue_exits: &self.report.queue_exits,
            ages: &self.report.ages,
            copies: self.host.as_ref().map_or(&[], Host::made),
            stages: &stages,
        });
        if let Some(host) = &mut self.host {
            host.forget_made();
        }
        self.publish(now);
        self.finish_ended();
        self.report.clear();
    }

    fn phase(&self) -> StepPhase {
        let (rows, decode) = (self.plan.rows.len(), self.plan.decode_tokens());
        match (decode, rows - decode) {
            (0, 0) => StepPhase::Idle,
            (0, _) => StepPhase::Prefill,
            (_, 0) => StepPhase::Decode,
            (_, _) => StepPhase::Mixed,
        }
    }

    /// Updates the snapshot that handles read, at the end of a turn.
    pub(crate) fn publish(&self, now: Time) {
        self.publish_queues();
        let mut snapshot = self.shared.snapshot();
        snapshot.last_iteration = now;
        snapshot.iterations += 1;
    }

    /// Updates who waits and who runs. Also called before a forward pass that starts requests: it
    /// may be long, and a client that has its first token finds its request running.
    pub(crate) fn publish_queues(&self) {
        let retracted = &self.scheduler.retracted;
        let mut snapshot = self.shared.snapshot();
        snapshot.state = match &self.life {
            Life::Ready => EngineState::Ready,
            Life::Draining(_) => EngineState::Draining,
            Life::Stopped => EngineState::Stopped,
            Life::Failed(why) => {
                snapshot.failure = Some(why.clone());
                EngineState::Failed
            }
        };
        snapshot.running = self.scheduler.running.len();
        snapshot.waiting = self.scheduler.waiting.len();
        snapshot.retracted = RetractedSnapshot {
            requests: retracted.len(),
            tokens: self.scheduler.retracted_tokens(),
            // At most `max_running` requests are in there.
            oldest: retracted.iter().map(crate::request::Request::queued_since).min(),
        };
        snapshot.bootstrap = self.scheduler.waiting.bootstrap().snapshot();
        snapshot.inflight_send = self.scheduler.sending.snapshot();
        snapshot.prealloc = self.scheduler.waiting.prealloc().snapshot();
        snapshot.transfer = self.scheduler.transfer.snapshot();
        snapshot.landed = self.scheduler.landed.snapshot();
        snapshot.held = self.scheduler.held.snapshot();
        self.admission.set_open_slots(self.scheduler.open_slots());
        for (pool, stats) in snapshot.pools.iter_mut().zip(self.scheduler.pools.stats()) {
            pool.device = stats;
        }
        if let Some(host) = &self.host {
            snapshot.storage = self.scheduler.storage.as_ref().map(StorageTier::stats);
            host.stats_into(&mut snapshot.copies);
            for (pool, id) in snapshot.pools.iter_mut().zip((0..).map(PoolId)) {
                pool.host = self.scheduler.pools.host_stats_of(id);
            }
        }
    }

    /// Tells the sinks of ended requests. A panic in one is its own affair.
    pub(crate) fn finish_ended(&mut self) {
        if self.report.ended.is_empty() {
            return;
        }
        // A link may still have a word to say about the others.
        let held = &self.scheduler.held;
        let ended = self.report.ended.iter().map(|(_, end)| end.id);
        self.mailbox.forget(ended.filter(|id| !held.has(*id)));
        for (sink, end) in self.report.ended.drain(..) {
            drop(catch_unwind(AssertUnwindSafe(|| sink.finish(&end))));
        }
    }
}

/// The end that a sink's verdict means.
fn outcome_of(verdict: Verdict, stage: Stage) -> Option<Outcome> {
    let abort = |reason| Some(Outcome::Aborted(Abort { stage, reason }));
    match verdict {
        Verdict::Continue => None,
        Verdict::Stop => Some(Outcome::Stop),
        Verdict::Gone => abort(AbortReason::ClientGone),
        Verdict::Slow => abort(AbortReason::SlowClient),
    }
}

fn first_token(request: &crate::request::Request) -> Option<FirstToken> {
    let (ttft, phases) = (request.timings.ttft()?, request.timings.ttft_phases()?);
    Some(FirstToken { id: request.id, streaming: request.streaming(), ttft, phases })
}
