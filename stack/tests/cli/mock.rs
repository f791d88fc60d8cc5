//! A server that answers what it is asked with what a test wants, and counts it truly or not.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::{Value, json};

/// How the mock behaves.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Manners {
    /// Claims so many more generated tokens a request.
    pub(crate) lie: i64,
    /// It has no `/metrics`.
    pub(crate) silent: bool,
    /// Every second request is refused.
    pub(crate) refuses: bool,
    /// Answers begin and never end.
    pub(crate) hangs: bool,
    /// Streams end without their last event.
    pub(crate) cuts: bool,
}

#[derive(Debug, Default)]
struct Counts {
    offered: AtomicU64,
    admitted: AtomicU64,
    rejected: AtomicU64,
    prompt: AtomicU64,
    generated: AtomicU64,
}

/// A running mock; ends with this value.
pub(crate) struct Mock {
    pub(crate) address: SocketAddr,
    manners: Manners,
    counts: Arc<Counts>,
    _runtime: tokio::runtime::Runtime,
}

#[derive(Clone)]
struct Answering {
    manners: Manners,
    counts: Arc<Counts>,
}

impl Mock {
    pub(crate) fn start(manners: Manners) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let listen = tokio::net::TcpListener::bind("127.0.0.1:0");
        let listener = runtime.block_on(listen).expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let counts = Arc::new(Counts::default());
        let state = Answering { manners, counts: Arc::clone(&counts) };
        let routes = Router::new()
            .route("/v1/models", get(models))
            .route("/v1/completions", post(completions))
            .route("/metrics", get(metrics))
            .with_state(state);
        runtime.spawn(async move { axum::serve(listener, routes).await });
        Self { address, manners, counts, _runtime: runtime }
    }

    /// Requests that came.
    pub(crate) fn offered(&self) -> u64 {
        self.counts.offered.load(Ordering::SeqCst)
    }

    pub(crate) fn url(&self) -> String {
        // Both forms are in use.
        let version = if self.manners.silent { "/v1" } else { "" };
        format!("http://{}{version}", self.address)
    }
}

async fn models() -> Response {
    json!({"object": "list", "data": [{"id": "mock"}]}).to_string().into_response()
}

async fn completions(State(mock): State<Answering>, body: Bytes) -> Response {
    let ask: Value = serde_json::from_slice(&body).expect("JSON");
    let number = mock.counts.offered.fetch_add(1, Ordering::SeqCst);
    if mock.manners.refuses && number % 2 == 1 {
        mock.counts.rejected.fetch_add(1, Ordering::SeqCst);
        let error = json!({"error": {"message": "busy", "code": "queue_requests_full"}});
        let head = [("retry-after", "3")];
        return (StatusCode::TOO_MANY_REQUESTS, head, error.to_string()).into_response();
    }
    mock.counts.admitted.fetch_add(1, Ordering::SeqCst);
    let prompt = ask["prompt"].as_str().expect("text");
    // Two tokens a word, five for the template.
    let prompt_tokens = 2 * prompt.split_whitespace().count() as u64 + 5;
    let tokens = ask["max_tokens"].as_u64().expect("a number");
    mock.counts.prompt.fetch_add(prompt_tokens, Ordering::SeqCst);
    mock.counts.generated.fetch_add(tokens, Ordering::SeqCst);
    let usage = json!({"prompt_tokens": prompt_tokens, "completion_tokens": tokens,
        "prompt_tokens_details": {"cached_tokens": 0}});
    if ask["stream"] != true {
        let whole = json!({"choices": [{"text": "x", "finish_reason": "length"}], "usage": usage});
        return whole.to_string().into_response();
    }
    let mut events = String::new();
    for _ in 0..tokens {
        events += &format!("data: {}\n\n", json!({"choices": [{"text": " x"}], "usage": null}));
    }
    if mock.manners.hangs {
        return hanging(events).into_response();
    }
    events += &format!("data: {}\n\n", json!({"choices": [], "usage": usage}));
    if !mock.manners.cuts {
        events += "data: [DONE]\n\n";
    }
    ([("content-type", "text/event-stream")], events).into_response()
}

/// A body that begins and then says nothing.
fn hanging(start: String) -> Body {
    let frames = futures_util::stream::unfold(Some(start), |start| async move {
        match start {
            Some(text) => Some((Ok::<_, Infallible>(Bytes::from(text)), None)),
            None => std::future::pending().await,
        }
    });
    Body::from_stream(frames)
}

async fn metrics(State(mock): State<Answering>) -> Response {
    if mock.manners.silent {
        return StatusCode::NOT_FOUND.into_response();
    }
    let of = |count: &AtomicU64| count.load(Ordering::SeqCst);
    let counts = &mock.counts;
    let (admitted, rejected, prompt) =
        (of(&counts.admitted), of(&counts.rejected), of(&counts.prompt));
    let claimed = mock.manners.lie * admitted.cast_signed();
    let generated = of(&counts.generated).saturating_add_signed(claimed);
    format!(
        "sightline_requests_admitted_total {admitted}\n\
         sightline_requests_rejected_total{{reason=\"queue_requests_full\"}} {rejected}\n\
         sightline_requests_finished_total{{outcome=\"length\"}} {admitted}\n\
         sightline_requests_aborted_total{{initiator=\"client\"}} 0\n\
         sightline_request_prompt_tokens_sum {prompt}\n\
         sightline_prompt_tokens_total{{source=\"computed\"}} {prompt}\n\
         sightline_generation_tokens_total {generated}\n\
         sightline_time_to_first_token_seconds_count{{streaming=\"true\"}} {admitted}\n"
    )
    .into_response()
}
