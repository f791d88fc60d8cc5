//! The front door: accepts connections, asks who is there, hands out what is painted.
//!
//! Nothing here waits for a collector, reads a file or formats a page: the bytes of an answer are
//! made before anybody asks (see `paint`). Bounds: connections, answers on their way, the time of a
//! client, the bytes of a request head, password checks.

pub mod auth;
pub mod web_config;

mod answer;
mod connection;
mod listener;
mod reload;

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

pub use listener::{Bound, serve};
pub use reload::{Loaded, reload};

use crate::gpu::NotReleased;
use crate::paint::Board;
use auth::Checker;
use web_config::WebConfig;

/// Asks those who hold the cards to let go of them; says, once they have, for how long, or why not.
pub type Release = Arc<dyn Fn() -> Releasing + Send + Sync>;

/// The answer to come.
pub type Releasing = Pin<Box<dyn Future<Output = Result<Duration, NotReleased>> + Send>>;

/// The web configuration in force; replaced as a whole.
#[derive(Debug, Clone, Default)]
pub struct InForce(Arc<Mutex<InUse>>);

/// What connections that are opened now are served by.
#[derive(Debug, Clone, Default)]
struct InUse {
    config: Arc<WebConfig>,
    /// Cancelled when they are encrypted otherwise than new ones: they are to end.
    outdated: CancellationToken,
}

impl InForce {
    /// This one, from now on.
    #[must_use]
    pub fn new(config: WebConfig) -> Self {
        let config = Arc::new(config);
        Self(Arc::new(Mutex::new(InUse { config, ..InUse::default() })))
    }

    /// The one in force.
    #[must_use]
    pub fn get(&self) -> Arc<WebConfig> {
        self.in_use().config
    }

    fn in_use(&self) -> InUse {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Passwords and headers hold for the next request; TLS for connections that are made anew,
    /// which ends those that are open. Certificates may have changed behind the same names.
    fn set(&self, config: WebConfig) {
        let mut used = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if used.config.tls.is_some() || config.tls.is_some() {
            std::mem::take(&mut used.outdated).cancel();
        }
        used.config = Arc::new(config);
    }
}

/// What all connections share.
pub struct Door {
    /// What is handed out.
    pub board: Board,
    /// TLS, passwords, headers.
    pub web: InForce,
    /// Checks passwords.
    pub checker: Checker,
    /// Hook of `POST /-/release`.
    pub release: Release,
    /// Answers on their way.
    pub answers: Arc<Semaphore>,
    /// Connections at a time.
    pub connections: usize,
    /// How long a client may take to send a request, and to read an answer.
    pub timeout: Duration,
}

/// Who is at the other end of a connection.
#[derive(Debug, Clone, Copy)]
struct Peer {
    address: SocketAddr,
    /// It has shown a certificate that our CA signed.
    certified: bool,
}
