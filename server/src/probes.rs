//! `/livez`, `/readyz`, `/startupz` and `/health`: on a listener and a thread of their own, so
//! that they answer while the engine computes and the API's threads are busy.
//!
//! A probe never generates a token and never waits for anything: it reads what others have written
//! down.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio_util::sync::CancellationToken;

use crate::http::listener::{Bound, Bounds};
use crate::lifecycle::{Lifecycle, Phase};

/// Probes come from a handful of supervisors, and their answers are short.
const BOUNDS: Bounds = Bounds { connections: 64, write_timeout: Duration::from_secs(10) };

/// The probe routes, for this listener and for the API's.
pub fn routes<S: Clone + Send + Sync + 'static>(life: &Arc<Lifecycle>) -> Router<S> {
    Router::new()
        .route("/livez", get(live))
        .route("/readyz", get(ready))
        .route("/startupz", get(started))
        .route("/health", get(ready))
        .with_state(Arc::clone(life))
}

/// Alive until the engine has failed: then only a restart helps.
async fn live(State(life): State<Arc<Lifecycle>>) -> Response {
    answer(&life, life.phase() != Phase::Failed)
}

/// Ready for requests.
async fn ready(State(life): State<Arc<Lifecycle>>) -> Response {
    answer(&life, life.is_ready())
}

/// Done with loading and warm-up; stays so while draining.
async fn started(State(life): State<Arc<Lifecycle>>) -> Response {
    answer(&life, matches!(life.phase(), Phase::Ready | Phase::Draining))
}

fn answer(life: &Lifecycle, good: bool) -> Response {
    let status = if good { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let body = format!("{}\n", life.report());
    (status, [(header::CONTENT_TYPE, "application/json")], body).into_response()
}

/// The probe thread; it ends when `stop` is cancelled.
#[derive(Debug)]
pub struct Probes {
    /// The address that is served.
    pub address: std::net::SocketAddr,
    thread: JoinHandle<()>,
}

impl Probes {
    /// Binds `address` and serves it from a new thread.
    ///
    /// # Errors
    /// The address cannot be bound, or the system has no thread left.
    pub fn start(
        address: std::net::SocketAddr,
        life: &Arc<Lifecycle>,
        stop: CancellationToken,
    ) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let bound = runtime.block_on(Bound::new(address))?;
        let address = bound.address();
        let router = routes(life).with_state(());
        let thread = std::thread::Builder::new()
            .name("probes".to_owned())
            .spawn(move || runtime.block_on(bound.serve(router, BOUNDS, stop)))?;
        Ok(Self { address, thread })
    }

    /// Waits for the end of the thread, after `stop`.
    pub fn join(self) {
        if self.thread.join().is_err() {
            tracing::error!("The probe thread panicked.");
        }
    }
}
