//! One request through the router: what is recorded of it, whatever way it ends.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use memchr::memmem::Finder;
use metric_catalog::labels::{
    AbortInitiator, AbortReason, AbortStage, Outcome, RejectReason, RouterOutcome,
};
use protocol::ApiError;
use tokio_util::task::task_tracker::TaskTrackerToken;
use types::Time;

use super::Gateway;
use super::error;
use super::relay::{End, Follower};
use super::sse;
use super::telemetry::{CLIENT_LEFT, Finished, HttpRecord, Model};
use crate::request::{Failure, FailureKind, Request, Route};

static FINISH: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\"finish_reason\":"));
static USAGE: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\"usage\":"));

/// What was asked.
#[derive(Debug)]
pub(crate) struct Asked {
    /// The model that the request is routed for.
    pub(crate) model: String,
    /// Whether the answer is to be a stream.
    pub(crate) stream: bool,
    /// What may be compared with other prompts; given up once an answer has begun.
    pub(crate) prompt: Vec<u8>,
    /// Its bytes.
    pub(crate) prompt_bytes: usize,
    /// Whose cached prefixes it may use.
    pub(crate) namespace: String,
}

impl Asked {
    /// As the core wants it. Generating twice does nothing that generating once does not.
    pub(crate) fn request(&self) -> Request<'_> {
        Request {
            model: &self.model,
            prompt: &self.prompt,
            namespace: &self.namespace,
            repeatable: true,
        }
    }
}

/// One request. Dropped before it was settled, it was given up by its client.
pub(crate) struct Trip {
    gateway: Arc<Gateway>,
    /// Where it is recorded; `None` for requests that generate nothing.
    model: Option<Arc<Model>>,
    record: HttpRecord,
    /// A drain waits for it.
    _open: TaskTrackerToken,
    pub(crate) asked: Asked,
    /// Where it is, once an answer has begun.
    route: Option<Route>,
    arrived: Time,
    /// Whether its end is recorded.
    settled: bool,
    /// When something of the answer went out first, and last.
    first: Option<Time>,
    last: Time,
    parts: u64,
    finish: Option<Outcome>,
    tokens: Option<u64>,
    /// Its prompt's tokens are known and learnt from.
    counted: bool,
    /// The worker said in its stream that it failed.
    failed: bool,
}

impl Trip {
    /// A request that arrived at `arrived`.
    pub(crate) fn new(
        gateway: &Arc<Gateway>,
        model: Option<Arc<Model>>,
        record: HttpRecord,
        asked: Asked,
        arrived: Time,
    ) -> Self {
        Self {
            gateway: Arc::clone(gateway),
            model,
            record,
            _open: gateway.open.token(),
            asked,
            route: None,
            arrived,
            settled: false,
            first: None,
            last: arrived,
            parts: 0,
            finish: None,
            tokens: None,
            counted: false,
            failed: false,
        }
    }

    /// Where it is recorded.
    pub(crate) fn model(&self) -> Option<&Model> {
        self.model.as_deref()
    }

    /// Its prompt has so many tokens: others are estimated after it, once.
    pub(crate) fn count(&mut self, prompt_tokens: u64) {
        if !std::mem::replace(&mut self.counted, true) {
            let Asked { model, prompt_bytes, .. } = &self.asked;
            self.gateway.core().usage(model, *prompt_bytes, prompt_tokens);
        }
    }

    /// It ends with `status` and none of the answer it asked for. Refused requests are told when
    /// to come back.
    pub(crate) fn refused(
        &mut self,
        status: u16,
        reason: Option<RejectReason>,
        routed: Option<RouterOutcome>,
        retry_after: Option<Duration>,
    ) {
        self.settled = true;
        self.record.set(status);
        let Some(model) = &self.model else { return };
        if let Some(outcome) = routed {
            model.routed(outcome);
        }
        match reason {
            Some(reason) => model.rejected(reason, retry_after),
            None => {
                model.admitted();
                model.finished(&self.finished(Outcome::Error, None));
            }
        }
    }

    /// A worker answers: from here on the answer is followed.
    pub(crate) fn answered(&mut self, route: Route, status: u16) {
        self.route = Some(route);
        self.asked.prompt = Vec::new();
        self.record.set(status);
        if let Some(model) = &self.model {
            model.admitted();
        }
    }

    fn finished(
        &self,
        outcome: Outcome,
        abort: Option<(AbortStage, AbortInitiator, AbortReason)>,
    ) -> Finished {
        let tokens = self.tokens.unwrap_or(self.parts);
        let mean_gap = self.first.filter(|_| tokens > 1).and_then(|first| {
            let between = u32::try_from(tokens - 1).unwrap_or(u32::MAX);
            self.last.since(first).checked_div(between)
        });
        Finished {
            outcome,
            abort,
            first: self.first.map(|first| first.since(self.arrived)),
            duration: self.gateway.clock.now().since(self.arrived),
            // An answer in one piece says nothing about its tokens.
            mean_gap: mean_gap.filter(|_| self.asked.stream),
            tokens,
        }
    }

    fn close(&mut self, status: Option<u16>, routed: RouterOutcome, finished: &Finished) {
        self.settled = true;
        if let Some(status) = status {
            self.record.set(status);
        }
        if let Some(model) = &self.model {
            model.routed(routed);
            model.finished(finished);
        }
    }

    /// The worker failed after its answer had begun.
    fn blame(&mut self, kind: FailureKind) {
        let Some(route) = self.route.take() else { return };
        self.gateway.failed_late(route, Failure { kind, by_prefill: false, answer_begun: true });
    }

    /// What the last parts of an answer say about it.
    fn learn(&mut self, part: &[u8]) {
        if let Some(at) = FINISH.find(part) {
            let rest = part[at + FINISH.needle().len()..].trim_ascii_start();
            let is = |name: &str| rest.starts_with(name.as_bytes());
            self.finish = if is("\"length\"") {
                Some(Outcome::Length)
            } else if is("\"tool_calls\"") || is("\"function_call\"") {
                Some(Outcome::ToolCall)
            } else if is("\"") {
                Some(Outcome::Stop)
            } else {
                self.finish
            };
        }
        if let Some(at) = USAGE.find(part) {
            let usage = &part[at..];
            self.tokens = number(usage, b"\"completion_tokens\":").or(self.tokens);
            if let Some(tokens) = number(usage, b"\"prompt_tokens\":") {
                self.count(tokens);
            }
        }
    }
}

/// The whole number behind `key`.
fn number(text: &[u8], key: &[u8]) -> Option<u64> {
    let at = text.windows(key.len()).position(|window| window == key)?;
    let rest = text[at + key.len()..].trim_ascii_start();
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()
}

impl Follower for Trip {
    fn part(&mut self, part: &[u8]) {
        if self.settled {
            return;
        }
        let streamed = self.asked.stream;
        if !streamed || sse::has_content(part) {
            let now = self.gateway.clock.now();
            if let Some(model) = &self.model {
                match self.first {
                    None => model.first(now.since(self.arrived), streamed),
                    Some(_) if streamed => model.gap(now.since(self.last)),
                    Some(_) => {}
                }
            }
            self.first.get_or_insert(now);
            self.last = now;
            self.parts += 1;
        }
        self.failed |= self.asked.stream && sse::is_error(part);
        self.learn(part);
    }

    fn end(&mut self, end: End) {
        if self.settled {
            return;
        }
        match end {
            End::Complete if self.failed => {
                let finished = self.finished(Outcome::Error, None);
                self.close(Some(500), RouterOutcome::UpstreamError, &finished);
            }
            End::Complete => {
                let outcome = self.finish.unwrap_or(Outcome::Stop);
                let finished = self.finished(outcome, None);
                self.close(None, RouterOutcome::Ok, &finished);
            }
            End::Cut(_) | End::Idle(_) => {
                let status = self.explain(&end).status;
                let finished = self.finished(Outcome::Error, None);
                self.close(Some(status), RouterOutcome::UpstreamError, &finished);
                let idle = matches!(end, End::Idle(_));
                self.blame(if idle { FailureKind::IdleTimeout } else { FailureKind::Broken });
            }
            End::Draining => {
                let abort =
                    (AbortStage::Decode, AbortInitiator::Server, AbortReason::DrainDeadline);
                let finished = self.finished(Outcome::Aborted, Some(abort));
                // It was routed well; the status and the abort say how it ended.
                self.close(Some(503), RouterOutcome::Ok, &finished);
            }
            End::ClientGone => {
                let stage =
                    if self.route.is_some() { AbortStage::Decode } else { AbortStage::Queued };
                if self.route.is_none()
                    && let Some(model) = &self.model
                {
                    model.admitted();
                }
                let abort = (stage, AbortInitiator::Client, AbortReason::ClientGone);
                let finished = self.finished(Outcome::Aborted, Some(abort));
                self.close(Some(CLIENT_LEFT), RouterOutcome::ClientGone, &finished);
            }
        }
        self.route = None;
    }

    fn explain(&self, end: &End) -> ApiError {
        let worker = self.route.as_ref().map_or("", |route| route.serve.name.as_str());
        match end {
            End::Cut(cause) => error::bad_gateway(worker, cause),
            End::Idle(time) => {
                let cause = format!("nothing came for {} ms", time.as_millis());
                error::gateway_timeout(worker, &cause)
            }
            End::Draining => error::draining(),
            End::Complete | End::ClientGone => error::bad_gateway(worker, "it ended early"),
        }
    }
}

impl Drop for Trip {
    fn drop(&mut self) {
        self.end(End::ClientGone);
    }
}
