//! Accepts connections and speaks HTTP/1.1 on them, with a bound on how many are open.
//!
//! It knows no routes. Shutdown is in two steps: stop accepting and finish what is being answered
//! (the token), then, where that takes too long, whatever the caller does with the runtime.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::guard::Peer;
use super::socket::Socket;

/// A connection that sends no request head for this long is closed. Longer than the idle time of
/// common clients' pools, so that they close first.
const HEAD_TIMEOUT: Duration = Duration::from_secs(90);

/// After a failed accept (out of file descriptors): the time in which some may come free.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);

/// What connections may take.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Open at a time; more wait to be accepted.
    pub connections: usize,
    /// One whose client reads nothing for so long, while there is something to read, is closed.
    pub write_timeout: Duration,
}

/// A bound address, not served yet.
#[derive(Debug)]
pub struct Bound {
    listener: TcpListener,
    address: SocketAddr,
}

impl Bound {
    /// Binds `address`; port 0 chooses a free one. Needs a runtime.
    ///
    /// # Errors
    /// What the system says: in use, not permitted, not an address of this host.
    pub async fn new(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address })
    }

    /// The address with its real port.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves `router` until `stop`, then waits until every connection has been answered.
    pub async fn serve(self, router: Router, bounds: Bounds, stop: CancellationToken) {
        let tracker = TaskTracker::new();
        let free = Arc::new(Semaphore::new(bounds.connections.max(1)));
        loop {
            let place = Arc::clone(&free).acquire_owned();
            let Some(Ok(place)) = until(&stop, place).await else { break };
            let Some(accepted) = until(&stop, self.listener.accept()).await else { break };
            match accepted {
                Ok((stream, peer)) => {
                    // Tokens are small; each should leave at once.
                    if let Err(error) = stream.set_nodelay(true) {
                        tracing::debug!(%error, "A connection was gone before it was served.");
                        continue;
                    }
                    let socket = Socket::new(stream, bounds.write_timeout);
                    let connection = connection(socket, peer, router.clone(), stop.clone());
                    tracker.spawn(async move {
                        connection.await;
                        drop(place);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "A connection could not be accepted.");
                    tokio::time::sleep(ACCEPT_RETRY).await;
                }
            }
        }
        drop(self.listener);
        tracker.close();
        tracker.wait().await;
    }
}

/// `future`, or `None` once `stop` is cancelled.
async fn until<F: Future>(stop: &CancellationToken, future: F) -> Option<F::Output> {
    tokio::select! {
        biased;
        () = stop.cancelled() => None,
        output = future => Some(output),
    }
}

async fn connection(socket: Socket, peer: SocketAddr, router: Router, stop: CancellationToken) {
    let client = socket.watcher();
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(Peer(peer));
        let (answer, client) = (router.call(request), client.clone());
        async move {
            tokio::select! {
                biased;
                answer = answer => answer.map_err(io::Error::other),
                () = client.left() => Err(io::ErrorKind::ConnectionAborted.into()),
            }
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .serve_connection(TokioIo::new(socket), service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        // A client that leaves early ends here; its request's own record says so.
        tracing::debug!(%error, "A connection ended early.");
    }
}

#[cfg(test)]
mod tests;
