//! One question: checked, sent, and its answer looked at.

use axum::body::Bytes;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use dashboards::client::address::form;
use dashboards::client::{Body, ClientError};
use hyper::Method;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::{ANSWER_BYTES_MAX, CONCURRENT, Upstream, WAITING, selector};
use crate::promapi::{ApiError, Params, Window};

/// The longest range, in milliseconds: 400 days.
const RANGE_MS_MAX: i64 = 400 * 86_400_000;

/// The longest expression, as in the store's own engine.
const QUERY_BYTES_MAX: usize = 64 * 1024;

/// An answer of a Prometheus, as it came.
#[derive(Debug)]
pub(super) struct Passed {
    pub(super) status: StatusCode,
    pub(super) body: Bytes,
}

impl Passed {
    pub(super) fn into_response(self) -> Response {
        (self.status, [(header::CONTENT_TYPE, "application/json")], self.body).into_response()
    }
}

pub(super) fn nothing(_params: &Params) -> Result<(), ApiError> {
    Ok(())
}

fn expression(params: &Params) -> Result<(), ApiError> {
    // The language is the other server's: what this program does not know may be right there.
    match params.get("query").map_or(0, str::len) {
        0 => Err(ApiError::bad("invalid parameter \"query\": it is empty")),
        length if length > QUERY_BYTES_MAX => Err(ApiError::bad(format!(
            "invalid parameter \"query\": {length} bytes, more than {QUERY_BYTES_MAX}"
        ))),
        _ => Ok(()),
    }
}

pub(super) fn instant(params: &Params) -> Result<(), ApiError> {
    expression(params)?;
    params.time("time")?;
    Ok(())
}

pub(super) fn range(params: &Params) -> Result<(), ApiError> {
    expression(params)?;
    let time = |name: &str| {
        let missing = || ApiError::bad(format!("invalid parameter {name:?}: it is missing"));
        params.time(name)?.ok_or_else(missing)
    };
    window(Window { start: time("start")?, end: time("end")?, step: params.duration("step")? })
}

/// Refuses too many steps and too long a range.
pub(super) fn window(window: Window) -> Result<(), ApiError> {
    window.check()?;
    if window.end - window.start > RANGE_MS_MAX {
        return Err(ApiError::bad(format!(
            "a range of {} days, more than {}; a shorter one would work",
            (window.end - window.start) / 86_400_000,
            RANGE_MS_MAX / 86_400_000
        )));
    }
    Ok(())
}

pub(super) fn selection(params: &Params) -> Result<(), ApiError> {
    params.time("start")?;
    params.time("end")?;
    params.limit()?;
    params.all("match[]").try_for_each(selector)
}

impl Upstream {
    /// Asks with those of the parameters that are known, once it is this question's turn.
    pub(super) async fn pass(
        &self,
        path: &str,
        params: &Params,
        known: &[&str],
        as_form: bool,
    ) -> Result<Passed, ApiError> {
        let _turn = self.turn().await?;
        let timeout = format!("{}", self.timeout.as_secs_f64());
        let mut pairs: Vec<(&str, &str)> =
            known.iter().flat_map(|name| params.all(name).map(|value| (*name, value))).collect();
        if known.contains(&"query") {
            pairs.push(("timeout", &timeout));
        }
        let form = form(&pairs);
        let http = self.prometheus.http();
        let whole = || if form.is_empty() { path.to_owned() } else { format!("{path}?{form}") };
        let mut answer = if as_form {
            let content_type = "application/x-www-form-urlencoded";
            let body = Body { content_type, bytes: form.clone().into() };
            http.send(Method::POST, path, Some(body)).await
        } else {
            http.send(Method::GET, &whole(), None).await
        };
        // What stands in front of it may let nothing but GET through.
        if as_form && matches!(&answer, Ok(answer) if answer.status == 405) {
            answer = http.send(Method::GET, &whole(), None).await;
        }
        let answer = answer.map_err(|error| self.broken(&error))?;
        let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::BAD_GATEWAY);
        match serde_json::from_slice::<Envelope>(&answer.body) {
            Ok(Envelope { status: said, data: Some(_), .. }) if said == "success" => {}
            Ok(Envelope { status: said, error: Some(_), .. }) if said == "error" => {}
            Ok(_) | Err(_) => {
                return Err(ApiError::gateway(self.prometheus.refusal(path, &answer).to_string()));
            }
        }
        Ok(Passed { status, body: answer.body })
    }

    /// Waits for a turn, unless too many wait already.
    async fn turn(&self) -> Result<tokio::sync::SemaphorePermit<'_>, ApiError> {
        if let Ok(turn) = self.turns.try_acquire() {
            return Ok(turn);
        }
        let Ok(_place) = self.waiting.try_acquire() else {
            return Err(ApiError::unavailable(format!(
                "{CONCURRENT} questions are with {} and {WAITING} wait already; ask again in a \
                 moment",
                self.address()
            )));
        };
        match tokio::time::timeout(self.timeout, self.turns.acquire()).await {
            Ok(turn) => turn.map_err(|_| ApiError::unavailable("the console ends")),
            Err(_) => Err(ApiError::timeout("query timed out in query queue", self.timeout)),
        }
    }

    /// Why there is no answer, in Prometheus' terms.
    pub(super) fn broken(&self, error: &ClientError) -> ApiError {
        match error {
            ClientError::Timeout { .. } => {
                ApiError::timeout(&format!("{} is slow", self.address()), self.timeout)
            }
            ClientError::TooLarge { .. } => ApiError::too_large(ANSWER_BYTES_MAX),
            ClientError::Url { .. }
            | ClientError::File { .. }
            | ClientError::Connect { .. }
            | ClientError::Tls { .. }
            | ClientError::Http { .. }
            | ClientError::Status { .. }
            | ClientError::Refused { .. }
            | ClientError::NotUnderstood { .. } => ApiError::gateway(error.to_string()),
        }
    }
}

/// What every answer of the API has.
#[derive(Deserialize)]
struct Envelope {
    status: String,
    data: Option<IgnoredAny>,
    error: Option<String>,
}
