//! Asks one worker again and again how it is and what it has to do.
//!
//! Each worker is asked by a task of its own, so that one that hangs delays no other.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{AUTHORIZATION, HOST, HeaderValue};
use hyper::http::uri::PathAndQuery;
use protocol::internal::LoadReport;
use serde::Deserialize;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::Gateway;
use super::relay::first_part;
use super::upstream::{Outgoing, Patience, Upstream};
use crate::worker::WorkerName;
use crate::{Answer, Poll};

/// Longest answer that is read.
const ANSWER_MAX: usize = 1024 * 1024;

/// Polls after which a worker that tells no load is asked for its models again.
const MODELS_EVERY: u32 = 30;

/// Asks until `stop`.
pub(super) async fn keep_asking(
    gateway: Arc<Gateway>,
    name: WorkerName,
    upstream: Arc<Upstream>,
    stop: CancellationToken,
) {
    let mut asker = Asker { gateway, name, upstream, plain: None, polls: 0 };
    loop {
        let now = asker.gateway.clock.now();
        let Some(poll) = asker.gateway.core().poll_began(&asker.name, now) else { return };
        let asked = tokio::select! {
            asked = asker.ask() => asked,
            () = stop.cancelled() => return,
        };
        asker.ended(&poll, asked);
        let wait = asker.gateway.between_polls();
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = stop.cancelled() => return,
        }
    }
}

impl Gateway {
    /// The time to the next poll: a tenth more or less, so that workers are not asked in step.
    fn between_polls(&self) -> Duration {
        let every = self.settings().poll_every;
        let share = (self.names.random() % 2001) as f64 / 10_000.0;
        every.mul_f64(0.9 + share)
    }
}

struct Asker {
    gateway: Arc<Gateway>,
    name: WorkerName,
    upstream: Arc<Upstream>,
    /// The models of a worker that tells no load.
    plain: Option<Vec<String>>,
    polls: u32,
}

#[derive(Deserialize)]
struct Models {
    data: Vec<Model>,
}

#[derive(Deserialize)]
struct Model {
    id: String,
}

impl Asker {
    fn ended(&self, poll: &Poll, asked: Result<Answer, String>) {
        let now = self.gateway.clock.now();
        let events = self.gateway.core().poll_ended(poll, asked, now);
        self.gateway.log(&events);
    }

    /// How the worker is, or why that cannot be said.
    async fn ask(&mut self) -> Result<Answer, String> {
        let limit = self.gateway.settings().poll_timeout;
        let asked = timeout(limit, self.ask_both()).await;
        let late = || format!("it did not answer within {} ms", limit.as_millis());
        let asked = asked.unwrap_or_else(|_| Err(late()));
        if asked.is_err() {
            // Whatever comes back may be something else.
            self.plain = None;
        }
        asked
    }

    async fn ask_both(&mut self) -> Result<Answer, String> {
        self.polls = self.polls.wrapping_add(1);
        // Once in a while also at a worker that had no such path: it may be a new one.
        if self.plain.is_none() || self.polls.is_multiple_of(MODELS_EVERY) {
            let (status, body) = self.get("/internal/load").await?;
            match status {
                200 => {
                    let report: Result<LoadReport, _> = serde_json::from_slice(&body);
                    let wrong = |error| format!("its /internal/load is not understood: {error}");
                    self.plain = None;
                    return report.map(Box::new).map(Answer::Load).map_err(wrong);
                }
                401 | 403 => {
                    return Err(format!(
                        "it keeps /internal/load from this router ({status}); give both the same \
                         token"
                    ));
                }
                404 | 405 | 501 => self.plain = None,
                other => return Err(format!("its /internal/load answers {other}")),
            }
        }
        let (status, _) = self.get("/health").await?;
        if status != 200 {
            return Err(format!("its /health answers {status}"));
        }
        let models = match self.plain.take() {
            Some(models) => models,
            None => self.models().await?,
        };
        self.plain = Some(models.clone());
        Ok(Answer::Plain { models })
    }

    /// What a worker that tells no load serves; one that serves nothing is not ready.
    async fn models(&self) -> Result<Vec<String>, String> {
        let (status, body) = self.get("/v1/models").await?;
        if status != 200 {
            return Err(format!("its /v1/models answers {status}"));
        }
        let list: Models = serde_json::from_slice(&body)
            .map_err(|error| format!("its /v1/models is not understood: {error}"))?;
        if list.data.is_empty() {
            return Err("it serves no model yet".to_owned());
        }
        Ok(list.data.into_iter().map(|model| model.id).collect())
    }

    async fn get(&self, path: &'static str) -> Result<(u16, Bytes), String> {
        let settings = self.gateway.settings();
        let limit = settings.poll_timeout;
        let patience = Patience { connect: limit, first_byte: limit, idle: limit };
        let request = || {
            let mut request = Outgoing::new(Full::default());
            *request.uri_mut() = PathAndQuery::from_static(path).into();
            let headers = request.headers_mut();
            let host = HeaderValue::from_str(self.name.as_str());
            headers.insert(HOST, host.unwrap_or(HeaderValue::from_static("worker")));
            let token = settings.worker_token.as_ref().map(|token| format!("Bearer {token}"));
            if let Some(Ok(token)) = token.map(HeaderValue::try_from) {
                headers.insert(AUTHORIZATION, token);
            }
            request
        };
        let answer = self.upstream.send(request, patience).await;
        let mut answer = answer.map_err(|error| error.to_string())?;
        let mut whole = Vec::new();
        loop {
            let part = first_part(&mut answer.body).await;
            let part = part.map_err(|error| format!("it broke off its {path}: {error}"))?;
            let Some(part) = part else { break };
            if whole.len() + part.len() > ANSWER_MAX {
                return Err(format!("its {path} is longer than {ANSWER_MAX} bytes"));
            }
            whole.extend_from_slice(&part);
        }
        Ok((answer.head.status.as_u16(), whole.into()))
    }
}
