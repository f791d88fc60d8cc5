//! The way of one request: read, routed, sent, sent again where that is safe, passed on.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, header, uri::PathAndQuery};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http_body_util::Full;
use metric_catalog::labels::{Method, RejectReason, Route as Path, RouterOutcome};
use protocol::ApiError;
use protocol::internal::{CAUSE_HEADER, CAUSE_PREFILL};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;
use types::Time;

use super::error::{self, Failed};
use super::hold::Found;
use super::relay::{Relay, first_part};
use super::telemetry::{HttpRecord, is_inference};
use super::trip::{Asked, Trip};
use super::upstream::{Answer, NoAnswer, Outgoing, Upstream, cause};
use super::{Gateway, body, headers, peek};
use crate::Attempt;
use crate::request::{Failure, FailureKind, Leg, Refusal, Route, Verdict};

/// Largest body of an answer that says why a request was refused.
const REFUSAL_MAX: usize = 64 * 1024;

/// Answers a request that some worker can answer.
pub(super) async fn forward(State(gateway): State<Arc<Gateway>>, request: Request) -> Response {
    let arrived = gateway.clock.now();
    let id = headers::request_id(request.headers()).unwrap_or_else(|| gateway.names.request_id());
    let span = tracing::info_span!("request", request_id = id.to_str().unwrap_or_default());
    let mut response = answer(&gateway, request, arrived, &id).instrument(span).await;
    response.headers_mut().insert(headers::REQUEST_ID, id);
    response
}

async fn answer(
    gateway: &Arc<Gateway>,
    request: Request,
    arrived: Time,
    id: &HeaderValue,
) -> Response {
    let path = Path::of_path(request.uri().path());
    let method = Method::from_name(request.method().as_str());
    let telemetry = &gateway.telemetry;
    let of = |model: &str| is_inference(path).then(|| telemetry.models.of(model));
    let http = of("").map_or_else(|| Arc::clone(&telemetry.http), |model| Arc::clone(&model.http));
    // Whoever leaves while it sends its body has asked for no model yet.
    let record = HttpRecord::new(http, gateway.clock, path, method, arrived);
    let target = request.uri().path_and_query().cloned();
    let mut passed = headers::of_request(request.headers());
    gateway.names.trace(&mut passed);
    passed.insert(headers::REQUEST_ID, id.clone());
    passed.insert(headers::DRAIN_AWARE, HeaderValue::from_static("1"));
    let limits = gateway.settings();
    let read = body::read(request, limits.body_bytes, limits.body_time).await;
    let known = read.and_then(|bytes| Ok((asked(gateway, &bytes)?, bytes)));
    let (asked, bytes) = match known {
        Ok(known) => known,
        Err(error) => return invalid(gateway, record, path, error),
    };
    let model = of(&asked.model);
    let record = match &model {
        Some(model) => record.of_model(&model.http),
        None => record,
    };
    let trip = Trip::new(gateway, model, record, asked, arrived);
    let target = target.unwrap_or_else(|| PathAndQuery::from_static("/"));
    let sent = Sent { gateway, target, passed, bytes, inference: is_inference(path) };
    sent.on_its_way(trip).await
}

/// A request that is no worker's business: it is wrong in itself.
fn invalid(gateway: &Gateway, mut record: HttpRecord, path: Path, error: ApiError) -> Response {
    record.set(error.status);
    if is_inference(path) {
        gateway.telemetry.models.of("").rejected(RejectReason::Invalid, None);
    }
    Failed::from(error).into_response()
}

/// What a body asks for.
fn asked(gateway: &Gateway, bytes: &[u8]) -> Result<Asked, ApiError> {
    let found = peek::peek(bytes)
        .map_err(|error| ApiError::malformed(format!("The body is not a JSON object: {error}.")))?;
    // A worker says best what is wrong with a request that names no model.
    let any = || gateway.core().models().first().map(ToString::to_string).unwrap_or_default();
    Ok(Asked {
        model: found.model.unwrap_or_else(any),
        stream: found.stream,
        prompt_bytes: found.prompt.len(),
        prompt: found.prompt,
        namespace: found.tenant.unwrap_or_default(),
    })
}

/// A request as workers get it, once or several times.
struct Sent<'a> {
    gateway: &'a Arc<Gateway>,
    target: PathAndQuery,
    passed: HeaderMap,
    bytes: Bytes,
    inference: bool,
}

/// What came from a worker.
enum Came {
    /// An answer, with its first part.
    Answer(Answer, Option<Bytes>),
    /// An answer that says no.
    No(FailureKind, Answer),
    /// No answer.
    Nothing(FailureKind, ApiError),
}

impl Sent<'_> {
    async fn on_its_way(self, mut trip: Trip) -> Response {
        let gateway = self.gateway;
        if gateway.is_draining() {
            return stopped(&mut trip, Some(RejectReason::Draining));
        }
        let (mut attempt, mut until) = (Attempt::default(), None);
        let mut route = match gateway.route(&trip.asked.request(), &mut attempt) {
            Ok(route) => route,
            Err(refusal) => match self.wait(&mut trip, &mut attempt, &mut until, refusal).await {
                Ok(route) => route,
                Err(response) => return response,
            },
        };
        loop {
            if let Some(model) = trip.model() {
                model.chosen(route.policy, route.branch, route.prefix_match);
            }
            let way = gateway.upstream(&route.serve);
            let came = tokio::select! {
                biased;
                came = self.ask(&way, &route, trip.asked.stream) => came,
                () = way.cut().cancelled() => {
                    if gateway.cut.is_cancelled() {
                        return stopped(&mut trip, None);
                    }
                    let name = route.serve.name.as_str();
                    let error = error::bad_gateway(name, "it was removed from the list");
                    Came::Nothing(FailureKind::Broken, error)
                }
            };
            if let Came::Answer(answer, _) | Came::No(_, answer) = &came
                && let Some(tokens) = headers::prompt_tokens(&answer.head.headers)
            {
                trip.count(tokens);
            }
            let (failure, no) = match came {
                Came::Answer(answer, first) => {
                    gateway.answered(&mut route);
                    return self.pass_on(trip, route, answer, first, way.cut().clone());
                }
                Came::No(kind, answer) => (self.failure(kind, Some(&answer)), Ok(answer)),
                Came::Nothing(kind, error) => (self.failure(kind, None), Err(error)),
            };
            let worker = route.serve.name.clone();
            let verdict = gateway.failed(route, failure, &trip.asked.request(), &mut attempt);
            let retry_after = match verdict {
                Verdict::Again(next, reason) => {
                    tracing::info!(
                        %worker, next = %next.serve.name, reason = reason.as_str(),
                        "A request is sent again."
                    );
                    if let Some(model) = trip.model() {
                        model.again(reason);
                    }
                    if let Ok(answer) = no {
                        answer.body.discard();
                    }
                    route = *next;
                    continue;
                }
                Verdict::Pass { retry_after } => retry_after,
            };
            let passed = (failure.kind, no, retry_after);
            route = match self.in_vain(&mut trip, &mut attempt, &mut until, passed).await {
                Ok(route) => route,
                Err(response) => return response,
            };
        }
    }

    /// A worker was asked in vain and it is not sent again: waits where it is away, else says no.
    async fn in_vain(
        &self,
        trip: &mut Trip,
        attempt: &mut Attempt,
        until: &mut Option<Time>,
        (kind, no, retry_after): (FailureKind, Result<Answer, ApiError>, Option<Duration>),
    ) -> Result<Route, Response> {
        let no = match no {
            Ok(answer) => Ok(whole(answer).await),
            Err(error) => Err(error),
        };
        if is_away(kind, no.as_ref().ok()) {
            match self.gateway.hold(trip, attempt, until, false).await {
                Some(Found::Route(route)) => return Ok(*route),
                Some(Found::Refused(refusal)) => return Err(refuse(trip, refusal)),
                Some(Found::Draining) => return Err(stopped(trip, None)),
                None => {}
            }
        }
        Err(match no {
            Ok(refusal) => pass_refusal(trip, kind, refusal, retry_after),
            Err(error) => {
                trip.refused(error.status, None, Some(RouterOutcome::UpstreamError), None);
                Failed::from(error).into_response()
            }
        })
    }

    /// Nobody can be asked: waits where that may be over soon.
    async fn wait(
        &self,
        trip: &mut Trip,
        attempt: &mut Attempt,
        until: &mut Option<Time>,
        refusal: Refusal,
    ) -> Result<Route, Response> {
        let found = match &refusal {
            Refusal::NoWorker { .. } => self.gateway.hold(trip, attempt, until, true).await,
            Refusal::Overloaded { .. } | Refusal::UnknownModel { .. } => None,
        };
        match found {
            Some(Found::Route(route)) => Ok(*route),
            Some(Found::Draining) => Err(stopped(trip, Some(RejectReason::Draining))),
            Some(Found::Refused(refusal)) => Err(refuse(trip, refusal)),
            None => Err(refuse(trip, refusal)),
        }
    }

    fn failure(&self, kind: FailureKind, answer: Option<&Answer>) -> Failure {
        let cause = answer.and_then(|answer| answer.head.headers.get(CAUSE_HEADER));
        let by_prefill = cause.is_some_and(|cause| cause == CAUSE_PREFILL);
        Failure { kind, by_prefill, answer_begun: false }
    }

    /// The request for the workers of a route.
    fn outgoing(&self, route: &Route) -> Outgoing {
        let mut request = Outgoing::new(Full::new(self.bytes.clone()));
        *request.method_mut() = hyper::Method::POST;
        *request.uri_mut() = self.target.clone().into();
        let sent = request.headers_mut();
        sent.clone_from(&self.passed);
        let host = HeaderValue::from_str(route.serve.name.as_str());
        sent.insert(header::HOST, host.unwrap_or(HeaderValue::from_static("worker")));
        let prefill = route.prefill.as_ref().filter(|_| self.inference);
        if let Some(Ok(name)) = prefill.map(|leg| HeaderValue::from_str(leg.name.as_str())) {
            sent.insert(headers::PREFILL, name);
        }
        request
    }

    /// Sends it and waits for the first byte of a whole answer, or for another answer.
    async fn ask(&self, upstream: &Arc<Upstream>, route: &Route, stream: bool) -> Came {
        let gateway = self.gateway;
        let leg: &Leg = &route.serve;
        let patience = gateway.settings().patience(stream);
        let asked = gateway.clock.now();
        let nothing = |error: &NoAnswer| {
            let name = leg.name.as_str();
            match error {
                NoAnswer::Connect(_) | NoAnswer::ConnectTimeout(_) => {
                    (FailureKind::Connect, error::bad_gateway(name, &error.to_string()))
                }
                NoAnswer::Broken(_) | NoAnswer::Closed => {
                    (FailureKind::Broken, error::bad_gateway(name, &error.to_string()))
                }
                NoAnswer::FirstByteTimeout(_) => {
                    let error = error::gateway_timeout(name, &error.to_string());
                    (FailureKind::FirstByteTimeout, error)
                }
            }
        };
        let mut answer = match upstream.send(|| self.outgoing(route), patience).await {
            Ok(answer) => answer,
            Err(error) => {
                let (kind, error) = nothing(&error);
                return Came::Nothing(kind, error);
            }
        };
        let status = answer.head.status;
        gateway.telemetry.workers.of(&leg.name).responded(status.as_u16());
        if let Some(kind) = refusal_kind(&answer) {
            return Came::No(kind, answer);
        }
        let left = patience.first_byte.saturating_sub(gateway.clock.now().since(asked));
        match tokio::time::timeout(left, first_part(&mut answer.body)).await {
            Ok(Ok(first)) => Came::Answer(answer, first),
            Ok(Err(error)) => {
                let error = error::bad_gateway(leg.name.as_str(), &cause(&error));
                Came::Nothing(FailureKind::Broken, error)
            }
            Err(_) => {
                let (kind, error) = nothing(&NoAnswer::FirstByteTimeout(patience.first_byte));
                Came::Nothing(kind, error)
            }
        }
    }

    fn pass_on(
        &self,
        mut trip: Trip,
        route: Route,
        answer: Answer,
        first: Option<Bytes>,
        cut: CancellationToken,
    ) -> Response {
        let Answer { mut head, body } = answer;
        headers::of_response(&mut head.headers);
        let kind = head.headers.get(header::CONTENT_TYPE);
        let events = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
        if events {
            // An event about an error may follow.
            head.headers.remove(header::CONTENT_LENGTH);
        }
        trip.answered(route, head.status.as_u16());
        let idle = self.gateway.settings().stream.idle;
        let relay = Relay::new(body, first, trip, events, idle, cut);
        Response::from_parts(head, Body::new(relay))
    }
}

/// How an answer that is no answer failed; `None` for one that can be passed on as it is.
fn refusal_kind(answer: &Answer) -> Option<FailureKind> {
    let status = answer.head.status.as_u16();
    match status {
        429 | 503 => {
            let value = answer.head.headers.get(header::RETRY_AFTER);
            let seconds = value.and_then(|value| value.to_str().ok()?.trim().parse().ok());
            let retry_after = seconds.map(Duration::from_secs);
            Some(FailureKind::Rejected { status, retry_after })
        }
        500.. => Some(FailureKind::Status(status)),
        400..=499 => Some(FailureKind::BadRequest(status)),
        _ => None,
    }
}

/// Was nothing of the request executed, because its worker is not there or says that it stops?
fn is_away(kind: FailureKind, no: Option<&Whole>) -> bool {
    match kind {
        FailureKind::Connect => true,
        FailureKind::Rejected { status: 503, .. } => {
            no.is_some_and(|no| reject_reason(503, &no.body) == RejectReason::Draining)
        }
        FailureKind::Rejected { .. }
        | FailureKind::Broken
        | FailureKind::FirstByteTimeout
        | FailureKind::IdleTimeout
        | FailureKind::Status(_)
        | FailureKind::BadRequest(_) => false,
    }
}

/// The router stops; a request that was not taken by any worker is refused for a reason.
fn stopped(trip: &mut Trip, reason: Option<RejectReason>) -> Response {
    let error = error::draining();
    let retry_after = reason.and(error.retry_after).map(Duration::from_secs);
    trip.refused(error.status, reason, Some(RouterOutcome::NoWorker), retry_after);
    Failed::from(error).into_response()
}

/// An answer that says no, whole.
struct Whole {
    head: axum::http::response::Parts,
    body: Vec<u8>,
}

/// Reads an answer that says no: it is short.
async fn whole(answer: Answer) -> Whole {
    let Answer { head, mut body } = answer;
    let mut whole = Vec::new();
    let read = async {
        while let Some(part) = first_part(&mut body).await.ok().flatten() {
            let room = REFUSAL_MAX.saturating_sub(whole.len());
            whole.extend_from_slice(&part[..part.len().min(room)]);
            if room <= part.len() {
                break;
            }
        }
    };
    // What has come until then is passed on.
    drop(tokio::time::timeout(REFUSAL_TIME, read).await);
    Whole { head, body: whole }
}

/// Passes on an answer that says no; its reason is counted.
fn pass_refusal(
    trip: &mut Trip,
    kind: FailureKind,
    refusal: Whole,
    retry_after: Option<Duration>,
) -> Response {
    let Whole { mut head, body: whole } = refusal;
    headers::of_response(&mut head.headers);
    head.headers.remove(header::CONTENT_LENGTH);
    if let Some(time) = retry_after {
        head.headers.insert(header::RETRY_AFTER, HeaderValue::from(time.as_secs().max(1)));
    }
    let status = head.status.as_u16();
    match kind {
        FailureKind::Rejected { .. } => {
            let reason = Some(reject_reason(status, &whole));
            trip.refused(status, reason, Some(RouterOutcome::UpstreamRejected), retry_after);
        }
        FailureKind::BadRequest(_) => {
            trip.refused(status, Some(RejectReason::Invalid), Some(RouterOutcome::Ok), None);
        }
        FailureKind::Status(_)
        | FailureKind::Connect
        | FailureKind::Broken
        | FailureKind::FirstByteTimeout
        | FailureKind::IdleTimeout => {
            trip.refused(status, None, Some(RouterOutcome::UpstreamError), None);
        }
    }
    Response::from_parts(head, Body::from(whole))
}

/// The rest of a refusal comes at once or not at all.
const REFUSAL_TIME: Duration = Duration::from_secs(1);

/// Why a worker refused, by the code in its error.
fn reject_reason(status: u16, body: &[u8]) -> RejectReason {
    let named = |reason: &&RejectReason| {
        let code = format!("\"{}\"", reason.as_str());
        memchr::memmem::find(body, code.as_bytes()).is_some()
    };
    let general =
        if status == 429 { RejectReason::QueueRequestsFull } else { RejectReason::Unhealthy };
    RejectReason::ALL.iter().find(named).copied().unwrap_or(general)
}

/// Answers a request that goes to no worker.
fn refuse(trip: &mut Trip, refusal: Refusal) -> Response {
    let (reason, routed) = match &refusal {
        Refusal::UnknownModel { .. } => (RejectReason::Invalid, RouterOutcome::NoWorker),
        Refusal::NoWorker { .. } => (RejectReason::Unhealthy, RouterOutcome::NoWorker),
        Refusal::Overloaded { reason, .. } => {
            use crate::request::OverloadReason as Why;
            let reason = match reason {
                Why::QueueRequestsFull | Why::Cooling => RejectReason::QueueRequestsFull,
                Why::QueueTokensFull => RejectReason::QueueTokensFull,
                Why::DrainTime => RejectReason::DrainTime,
                Why::Closed => RejectReason::Unhealthy,
            };
            (reason, RouterOutcome::UpstreamRejected)
        }
    };
    let error = Failed::from(refusal);
    let retry_after = error.0.retry_after.map(Duration::from_secs);
    trip.refused(error.0.status, Some(reason), Some(routed), retry_after);
    error.into_response()
}
