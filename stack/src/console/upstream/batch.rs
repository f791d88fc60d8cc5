//! Many queries of a page in one exchange, a few of them under way at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::task::JoinSet;

use super::{CONCURRENT, Upstream, ask};
use crate::promapi::{ApiError, BATCH_BYTES_MAX, BatchQuery, Params, Reply, batch_reply};

/// What the workers of one batch share.
struct Work {
    upstream: Arc<Upstream>,
    queries: Vec<BatchQuery>,
    next: AtomicUsize,
    /// Bytes of the answers so far.
    bytes: AtomicUsize,
}

/// The bodies of all answers, in the order of the queries.
pub(super) async fn run(upstream: &Arc<Upstream>, queries: Vec<BatchQuery>) -> Reply {
    let mut bodies = vec![String::new(); queries.len()];
    let workers = queries.len().min(CONCURRENT);
    let (next, bytes) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let work = Arc::new(Work { upstream: Arc::clone(upstream), queries, next, bytes });
    // Ends with this future: a page that is left asks no further.
    let mut running = JoinSet::new();
    for _ in 0..workers {
        running.spawn(worker(Arc::clone(&work)));
    }
    while let Some(done) = running.join_next().await {
        for (at, body) in done.unwrap_or_default() {
            bodies[at] = body;
        }
    }
    let lost = || ApiError::internal("the question was lost").body();
    batch_reply(bodies.into_iter().map(|body| if body.is_empty() { lost() } else { body }))
}

async fn worker(work: Arc<Work>) -> Vec<(usize, String)> {
    let mut done = Vec::new();
    loop {
        let at = work.next.fetch_add(1, Ordering::Relaxed);
        let Some(query) = work.queries.get(at) else { return done };
        let body = match one(&work, query).await {
            Ok(body) => body,
            Err(error) => error.body(),
        };
        done.push((at, body));
    }
}

async fn one(work: &Work, query: &BatchQuery) -> Result<String, ApiError> {
    if work.bytes.load(Ordering::Relaxed) > BATCH_BYTES_MAX {
        return Err(ApiError::too_large(BATCH_BYTES_MAX));
    }
    let seconds = |ms: i64| (ms as f64 / 1000.0).to_string();
    let mut pairs = vec![("query".to_owned(), query.query.clone())];
    let path = match query.window()? {
        Some(window) => {
            ask::window(window)?;
            for (name, ms) in [("start", window.start), ("end", window.end), ("step", window.step)]
            {
                pairs.push((name.to_owned(), seconds(ms)));
            }
            "/api/v1/query_range"
        }
        None => {
            pairs.extend(query.time_ms()?.map(|time| ("time".to_owned(), seconds(time))));
            "/api/v1/query"
        }
    };
    let known = ["query", "time", "start", "end", "step"];
    let params = Params::from(pairs);
    ask::instant(&params)?;
    let passed = work.upstream.pass(path, &params, &known, true).await?;
    work.bytes.fetch_add(passed.body.len(), Ordering::Relaxed);
    String::from_utf8(passed.body.to_vec())
        .map_err(|_| ApiError::gateway("the answer is no UTF-8 text"))
}
