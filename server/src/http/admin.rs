//! `/admin/config`: settings that change while the server runs. `/admin/drain`: no new requests,
//! and back.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use protocol::ApiError;
use serde_json::{Map, Value, json};

use super::body::{self, BodyLimits};
use super::error::Failure;
use super::{Api, json};
use crate::live::{ChangeError, Changed, Key, Values, names};

/// A handful of settings is shorter.
const BODY_MAX: usize = 64 << 10;

/// What is in force, and how often it has changed.
pub(super) async fn settings(State(api): State<Arc<Api>>) -> Response {
    let (generation, values, drift) = api.live.current();
    let body = json!({
        "generation": generation,
        "settings": texts(&values),
        "drift": drift.into_iter().map(Key::as_str).collect::<Vec<_>>(),
    });
    tagged(generation, json(StatusCode::OK, &body))
}

/// Changes some of it, all or nothing.
pub(super) async fn change(
    State(api): State<Arc<Api>>,
    request: Request,
) -> Result<Response, Failure> {
    let known = known(request.headers())?;
    let limits = BodyLimits { bytes: BODY_MAX, ..api.body };
    let body = body::read(request, limits).await?;
    let wanted = wanted(&body)?;
    let changed = api.live.change(known, &wanted, |values| api.apply(values));
    let changed = changed.map_err(|error| refused(&error))?;
    Ok(told(&changed))
}

/// Refuses new requests until told otherwise; those that run end in peace. The process stays.
pub(super) async fn drain(
    State(api): State<Arc<Api>>,
    request: Request,
) -> Result<Response, Failure> {
    let limits = BodyLimits { bytes: BODY_MAX, ..api.body };
    let body = body::read(request, limits).await?;
    let fields = object(&body)?;
    if let Some(name) =
        fields.keys().find(|name| !["reason", "rollout_id"].contains(&name.as_str()))
    {
        let message = format!(
            "{name}: no such field; a drain takes reason and rollout_id. How long a stop may take \
             is --drain-deadline."
        );
        return Err(ApiError::invalid(name, message).into());
    }
    let text = |name: &str| fields.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    tracing::info!(reason = text("reason"), rollout = text("rollout_id"), "Drained by an admin.");
    api.hold(true);
    Ok(held(&api))
}

/// Takes new requests again.
pub(super) async fn undrain(State(api): State<Arc<Api>>) -> Response {
    tracing::info!("No longer drained by an admin.");
    api.hold(false);
    held(&api)
}

fn held(api: &Api) -> Response {
    let mut state = api.life.report();
    if let Some(fields) = state.as_object_mut() {
        fields.insert("held".to_owned(), api.life.is_held().into());
    }
    json(StatusCode::OK, &state)
}

impl Api {
    /// Puts values in force that were changed.
    pub(crate) fn apply(&self, values: &Values) {
        if let Some(serving) = self.serving() {
            serving.admission.set_limits(values.limits);
        }
        crate::telemetry::set_log_level(values.log_level);
        let settings = Value::Object(texts(values)).to_string();
        tracing::info!(settings, "Settings have changed.");
    }

    /// Reads the file of `--config` again.
    pub(crate) fn reload(&self) {
        match self.live.reload(|values| self.apply(values)) {
            Ok(Changed { generation, applied, needs_restart, .. }) => {
                let applied: Vec<_> = applied.into_iter().map(Key::as_str).collect();
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

    /// Refuses new requests, or takes them again.
    fn hold(&self, held: bool) {
        self.life.hold(held);
        if let Some(serving) = self.serving()
            && self.life.phase() == crate::lifecycle::Phase::Ready
        {
            serving.admission.set_draining(held);
        }
    }
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

fn object(body: &[u8]) -> Result<Map<String, Value>, Failure> {
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
fn wanted(body: &[u8]) -> Result<Vec<(String, Option<String>)>, Failure> {
    let fields = object(body)?;
    if fields.is_empty() {
        let message = format!("The body names no setting; those that can change are {}.", names());
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
        ChangeError::Unknown(key) | ChangeError::Value { key, .. } => {
            ApiError::invalid(key.clone(), message).into()
        }
        ChangeError::File(_) | ChangeError::Parse(_) | ChangeError::NoFile => {
            ApiError::malformed(message).into()
        }
    }
}

fn told(changed: &Changed) -> Response {
    let body = json!({
        "generation": changed.generation,
        "applied": changed.applied.iter().map(|key| key.as_str()).collect::<Vec<_>>(),
        "needs_restart": changed.needs_restart,
        "settings": texts(&changed.values),
    });
    tagged(changed.generation, json(StatusCode::OK, &body))
}

fn texts(values: &Values) -> Map<String, Value> {
    let text = |key: Key| (key.as_str().to_owned(), Value::String(values.text(key)));
    Key::ALL.into_iter().map(text).collect()
}

fn tagged(generation: u64, mut response: Response) -> Response {
    let tag = HeaderValue::from_str(&format!("\"{generation}\"")).expect("digits in quotes");
    response.headers_mut().insert(header::ETAG, tag);
    response.into_response()
}
