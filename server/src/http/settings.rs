//! `/admin/config`: settings that change while a server or a router runs.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use protocol::ApiError;
use router::serve::Gateway;
use serde_json::{Map, Value, json};

use super::body::{self, BodyLimits};
use super::error::Failure;
use super::{Api, Serving, json};
use crate::live::{ChangeError, Changed, Changing, Live, LiveKey, RouterValues, Values, names};

/// A handful of settings is shorter.
pub(super) const BODY_MAX: usize = 64 << 10;

/// How long an operator's few bytes may take.
const BODY_TIME: Duration = Duration::from_secs(30);

/// What is in force at a server, and how often it has changed.
pub(super) async fn of_server(State(api): State<Arc<Api>>) -> Response {
    in_force(&api.live)
}

/// Changes some of it, all or nothing.
pub(super) async fn change_server(
    State(api): State<Arc<Api>>,
    request: Request,
) -> Result<Response, Failure> {
    change(&api.live, api.body, request, |values| api.apply(values)).await
}

impl Api {
    /// Puts values in force that were changed.
    pub(crate) fn apply(&self, values: &Values) {
        if let Some(serving) = self.serving() {
            serving.apply(values);
        }
        crate::telemetry::set_log_level(values.log_level);
        say(values);
    }

    /// Reads the file of `--config` again.
    pub(crate) fn reload(&self) {
        reload(&self.live, |values| self.apply(values));
    }
}

impl Serving {
    /// Puts what it is about in force.
    pub(super) fn apply(&self, values: &Values) {
        self.admission.set_limits(values.limits);
        let limit = values.queue_timeout.0;
        self.engine.set_queue_timeout((!limit.is_zero()).then_some(limit));
    }
}

/// A router whose settings can change.
pub(crate) struct RouterSettings {
    /// The settings.
    pub(crate) live: Live<RouterValues>,
    /// What they are put in force at.
    pub(crate) gateway: Arc<Gateway>,
}

impl RouterSettings {
    fn apply(&self, values: &RouterValues) {
        self.gateway.configure(|settings| values.put(settings));
        crate::telemetry::set_log_level(values.log_level.0);
        say(values);
    }

    /// Reads the file of `--config` again.
    pub(crate) fn reload(&self) {
        reload(&self.live, |values| self.apply(values));
    }
}

/// `/admin/config` of a router; whoever serves it guards it.
pub(crate) fn of_router(settings: &Arc<RouterSettings>) -> Router {
    let show = async |State(router): State<Arc<RouterSettings>>| in_force(&router.live);
    let change = async |State(router): State<Arc<RouterSettings>>, request: Request| {
        let limits = BodyLimits { bytes: BODY_MAX, time: BODY_TIME };
        change(&router.live, limits, request, |values| router.apply(values)).await
    };
    Router::new().route("/admin/config", get(show).post(change)).with_state(Arc::clone(settings))
}

fn say<V: Changing>(values: &V) {
    let settings = Value::Object(texts(values)).to_string();
    tracing::info!(settings, "Settings have changed.");
}

/// Reads a file of settings again, and says what came of it.
fn reload<V: Changing>(live: &Live<V>, apply: impl FnOnce(&V)) {
    match live.reload(apply) {
        Ok(Changed { generation, applied, needs_restart, .. }) => {
            let applied: Vec<_> = applied.into_iter().map(LiveKey::as_str).collect();
            tracing::info!(
                generation,
                applied = applied.join(","),
                needs_restart = needs_restart.join(","),
                "The settings were read again."
            );
        }
        Err(error) => tracing::error!(%error, "The settings stay as they are."),
    }
}

fn in_force<V: Changing>(live: &Live<V>) -> Response {
    let (generation, values, drift) = live.current();
    let body = json!({
        "generation": generation,
        "settings": texts(&values),
        "drift": drift.into_iter().map(LiveKey::as_str).collect::<Vec<_>>(),
    });
    tagged(generation, json(StatusCode::OK, &body))
}

async fn change<V: Changing>(
    live: &Live<V>,
    limits: BodyLimits,
    request: Request,
    apply: impl FnOnce(&V),
) -> Result<Response, Failure> {
    let known = known(request.headers())?;
    let limits = BodyLimits { bytes: BODY_MAX, ..limits };
    let body = body::read(request, limits).await?;
    let wanted = wanted(&body, &names::<V::Key>())?;
    let changed = live.change(known, &wanted, apply);
    let changed = changed.map_err(|error| refused(&error))?;
    Ok(told(&changed))
}

/// The generation that the caller knows; nothing is changed blindly.
fn known(headers: &HeaderMap) -> Result<Option<u64>, Failure> {
    let wrong = |status, code, message: &str| {
        let error = ApiError::malformed(message);
        Err(ApiError { status, code: Some(code), ..error }.into())
    };
    let Some(tag) = headers.get(header::IF_MATCH) else {
        let message =
            "If-Match is missing: send the generation that GET /admin/config tells, or *.";
        return wrong(428, "precondition_required", message);
    };
    let tag = tag.to_str().unwrap_or_default().trim();
    match tag.trim_matches('"').parse() {
        Ok(generation) => Ok(Some(generation)),
        Err(_) if tag == "*" => Ok(None),
        Err(_) => wrong(400, "invalid_value", "If-Match is no generation: a number is, or *."),
    }
}

/// The fields of a body that is one JSON object, or nothing.
pub(super) fn object(body: &[u8]) -> Result<Map<String, Value>, Failure> {
    let wrong = |why: &dyn std::fmt::Display| ApiError::malformed(format!("{why}"));
    if body.trim_ascii().is_empty() {
        return Ok(Map::new());
    }
    let value: Value = serde_json::from_slice(body).map_err(|error| wrong(&error))?;
    match value {
        Value::Object(fields) => Ok(fields),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Err(wrong(&"The body must be one JSON object.").into())
        }
    }
}

/// Keys with values in the words of the command line; null is what flags and file say.
fn wanted(body: &[u8], names: &str) -> Result<Vec<(String, Option<String>)>, Failure> {
    let fields = object(body)?;
    if fields.is_empty() {
        let message = format!("The body names no setting; those that can change are {names}.");
        return Err(ApiError::malformed(message).into());
    }
    let text = |(key, value): (String, Value)| match value {
        Value::Null => Ok((key, None)),
        Value::String(text) => Ok((key, Some(text))),
        Value::Number(number) => Ok((key, Some(number.to_string()))),
        Value::Bool(true) => Ok((key, Some("on".to_owned()))),
        Value::Bool(false) => Ok((key, Some("off".to_owned()))),
        Value::Array(_) | Value::Object(_) => {
            let message = format!("{key}: a setting is a string, a number, true, false or null");
            Err(ApiError::invalid(key, message).into())
        }
    };
    fields.into_iter().map(text).collect()
}

fn refused(error: &ChangeError) -> Failure {
    let message = error.to_string();
    match error {
        ChangeError::Stale { .. } => {
            let error = ApiError::malformed(message);
            ApiError { status: 412, code: Some("generation_changed"), ..error }.into()
        }
        ChangeError::Unknown { key, .. } | ChangeError::Value { key, .. } => {
            ApiError::invalid(key.clone(), message).into()
        }
        ChangeError::File(_) | ChangeError::Parse(_) | ChangeError::NoFile => {
            ApiError::malformed(message).into()
        }
    }
}

fn told<V: Changing>(changed: &Changed<V>) -> Response {
    let body = json!({
        "generation": changed.generation,
        "applied": changed.applied.iter().map(|key| key.as_str()).collect::<Vec<_>>(),
        "needs_restart": changed.needs_restart,
        "settings": texts(&changed.values),
    });
    tagged(changed.generation, json(StatusCode::OK, &body))
}

fn texts<V: Changing>(values: &V) -> Map<String, Value> {
    let text = |key: &V::Key| (key.as_str().to_owned(), Value::String(values.text(*key)));
    V::Key::ALL.iter().map(text).collect()
}

fn tagged(generation: u64, mut response: Response) -> Response {
    let tag = HeaderValue::from_str(&format!("\"{generation}\"")).expect("digits in quotes");
    response.headers_mut().insert(header::ETAG, tag);
    response.into_response()
}
