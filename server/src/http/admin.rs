//! `/admin/drain`: no new requests, and back.
//!
//! A drained server is not ready at once. Routers that know what that means get no more requests
//! in; others are served until the settle time is over, so that whatever balances them has seen
//! it. What runs ends in peace, or at the deadline where there is one. The process stays.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use engine::AbortReason;
use protocol::ApiError;
use protocol::internal::DRAIN_AWARE_HEADER;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::body::{self, BodyLimits};
use super::error::Failure;
use super::settings::{BODY_MAX, object};
use super::{Api, json};
use crate::lifecycle::Phase;

/// How long requests of those who cannot know are still taken, where nothing is said.
const SETTLE: Duration = Duration::from_secs(5);

/// The longest that may be said.
const MOST: f64 = 86_400.0;

/// After its deadline, a drain gives up what has come meanwhile so often.
const ABORT_AGAIN: Duration = Duration::from_millis(20);

/// The drain under way.
#[derive(Debug, Default)]
pub(super) struct Drain {
    now: Mutex<Now>,
    tasks: TaskTracker,
}

#[derive(Debug, Default)]
struct Now {
    times: Option<Times>,
    /// Nobody is let in any more; kept for a server that is not ready yet.
    shut: bool,
}

/// How a drain goes on.
#[derive(Debug, Clone)]
struct Times {
    settle: Duration,
    deadline: Option<Duration>,
    /// Cancelled when another drain takes its place, or none.
    over: CancellationToken,
}

impl Drain {
    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This drain goes on from now on, and none before it.
    fn begin(&self, times: Option<Times>) -> MutexGuard<'_, Now> {
        let mut now = self.now();
        if let Some(before) = std::mem::replace(&mut now.times, times) {
            before.over.cancel();
        }
        now
    }

    fn times(&self) -> Option<Times> {
        self.now().times.clone()
    }
}

/// Refuses new requests until told otherwise. A drain takes the place of the one before.
pub(super) async fn drain(
    State(api): State<Arc<Api>>,
    request: Request,
) -> Result<Response, Failure> {
    let limits = BodyLimits { bytes: BODY_MAX, ..api.body };
    let body = body::read(request, limits).await?;
    let fields = object(&body)?;
    let known = ["reason", "rollout_id", "settle_s", "deadline_s"];
    if let Some(name) = fields.keys().find(|name| !known.contains(&name.as_str())) {
        let message = format!("{name}: no such field; a drain takes {}", known.join(", "));
        return Err(ApiError::invalid(name, message).into());
    }
    let settle = seconds(&fields, "settle_s")?.unwrap_or(SETTLE);
    let deadline = seconds(&fields, "deadline_s")?;
    if let Some(deadline) = deadline.filter(|deadline| *deadline < settle) {
        let message = format!(
            "deadline_s: {} s is shorter than the {} s of settle_s, in which requests are still \
             taken; give a longer one, or settle_s 0",
            deadline.as_secs_f64(),
            settle.as_secs_f64()
        );
        return Err(ApiError::invalid("deadline_s", message).into());
    }
    let text = |name: &str| fields.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    tracing::info!(
        reason = text("reason"),
        rollout = text("rollout_id"),
        settle_seconds = settle.as_secs_f64(),
        deadline_seconds = deadline.map(|deadline| deadline.as_secs_f64()),
        "Drained by an admin."
    );
    let times = Times { settle, deadline, over: CancellationToken::new() };
    drop(api.drain.begin(Some(times.clone())));
    api.life.hold(true);
    if settle.is_zero() {
        api.shut(&times);
    }
    api.drain.tasks.spawn(go_on(Arc::clone(&api), times));
    Ok(held(&api))
}

/// Takes new requests again.
pub(super) async fn undrain(State(api): State<Arc<Api>>) -> Response {
    tracing::info!("No longer drained by an admin.");
    // A drain whose time comes just now finds that it is over.
    let mut now = api.drain.begin(None);
    api.life.hold(false);
    now.shut = false;
    api.refuse_new(false);
    drop(now);
    held(&api)
}

/// What follows from a drain when its times are over.
async fn go_on(api: Arc<Api>, times: Times) {
    let steps = async {
        tokio::time::sleep(times.settle).await;
        api.shut(&times);
        let Some(deadline) = times.deadline else { return };
        tokio::time::sleep(deadline - times.settle).await;
        let Some(serving) = api.serving() else { return };
        let mut aborted = serving.engine.abort_all(AbortReason::DrainDeadline);
        // Who had a place before may come to the engine after the deadline.
        while serving.admission.snapshot(api.clock.now()).requests > 0 {
            tokio::time::sleep(ABORT_AGAIN).await;
            aborted += serving.engine.abort_all(AbortReason::DrainDeadline);
        }
        tracing::warn!(aborted, "The deadline of a drain is over.");
    };
    tokio::select! {
        biased;
        () = times.over.cancelled() => {}
        () = steps => {}
    }
}

/// A number of seconds.
fn seconds(fields: &Map<String, Value>, name: &'static str) -> Result<Option<Duration>, Failure> {
    match fields.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => {
            let number = value.as_f64().filter(|number| (0.0..=MOST).contains(number));
            let number = number.ok_or_else(|| {
                let message = format!("{name}: {value} is no number of seconds from 0 to {MOST}");
                Failure::from(ApiError::invalid(name, message))
            })?;
            Ok(Some(Duration::from_secs_f64(number)))
        }
    }
}

fn held(api: &Api) -> Response {
    let mut state = api.life.report();
    let times = api.drain.times();
    if let Some(fields) = state.as_object_mut() {
        fields.insert("held".to_owned(), api.life.is_held().into());
        if let Some(times) = times {
            fields.insert("settle_s".to_owned(), times.settle.as_secs_f64().into());
            let deadline = times.deadline.map(|deadline| deadline.as_secs_f64());
            fields.insert("deadline_s".to_owned(), deadline.into());
        }
    }
    json(StatusCode::OK, &state)
}

impl Api {
    /// Everything is there: requests are served from now on, unless a drain came first.
    pub fn ready(&self) {
        let now = self.drain.now();
        self.life.advance(Phase::Ready);
        self.refuse_new(now.shut);
    }

    /// Lets nobody in any more, unless that drain is over.
    fn shut(&self, drain: &Times) {
        let mut now = self.drain.now();
        if !drain.over.is_cancelled() {
            now.shut = true;
            self.refuse_new(true);
        }
    }

    /// Refuses new requests at the front door, or takes them again; a process that stops does so
    /// by itself.
    fn refuse_new(&self, refuse: bool) {
        if let Some(serving) = self.serving()
            && self.life.phase() == Phase::Ready
        {
            serving.admission.set_draining(refuse);
        }
    }

    /// Refuses a request of a router that knows what a drain is, during one.
    pub(super) fn check_drain(&self, headers: &HeaderMap) -> Result<(), Failure> {
        if self.life.is_held() && headers.contains_key(DRAIN_AWARE_HEADER) {
            return Err(Failure::drained());
        }
        Ok(())
    }
}
