//! What a worker's end of the link is told at its start.

use super::hub::Wake;
use super::secret::Secret;
use super::tls::TlsFiles;
use crate::{Limits, NewsSink, PeerName, Shape, Surroundings, Terms, TransferObserver};
use memory_pool::PageBytes;
use std::sync::Arc;
use std::time::Duration;
use types::Clock;

/// What both roles are told.
#[derive(Debug, Clone)]
pub struct LinkOptions {
    /// How this worker calls itself to its peers, `HOST:PORT` of its API; at most 256 bytes. They
    /// look it up in their own configuration, and show it nowhere else.
    pub advertise: String,
    /// The model and its layout; must be that of the pages given beside these options.
    pub shape: Shape,
    /// What both roles share. Without it only loopback is listened to.
    pub secret: Option<Secret>,
    /// Certificates; both roles or neither.
    pub tls: TlsFiles,
    /// Bounds and time limits of transfers.
    pub limits: Limits,
    /// Sizes and time limits of connections.
    pub tuning: Tuning,
}

impl LinkOptions {
    /// What this worker brings to a handshake.
    pub(super) fn terms(&self) -> Terms {
        Terms {
            secret: self.secret.as_ref().map(Secret::bytes),
            shape: self.shape.clone(),
            name: self.advertise.clone(),
        }
    }
}

/// What happens around a link; the same for both roles.
#[derive(Clone)]
pub struct Environment {
    /// The device pages, those of the options' shape.
    pub pages: Arc<dyn PageBytes>,
    /// Takes the news: the engine's handle. Called on threads of the runtime, one call at a time
    /// and in order; must not block.
    pub news: Arc<dyn NewsSink>,
    /// Takes what happens, for metrics; called like `news`.
    pub observer: Arc<dyn TransferObserver>,
    /// The process's clock.
    pub clock: Clock,
}

impl Environment {
    /// For a port.
    pub(super) fn surroundings(&self, wake: &Arc<Wake>) -> Surroundings {
        let (clock, wake) = (self.clock, Arc::clone(wake));
        Surroundings {
            now: Box::new(move || clock.now()),
            wake: Arc::new(move || wake.all()),
            news: Arc::clone(&self.news),
            observer: Arc::clone(&self.observer),
        }
    }
}

/// Sizes and time limits of connections; none of them has to be the same on both sides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tuning {
    /// Data connections that a dialer opens per peer, beside the one for messages; 1 to
    /// [`DATA_CONNECTIONS_MAX`].
    pub data_connections: usize,
    /// Buffers of the system per data connection and direction; the system may allow less.
    pub buffer_bytes: u32,
    /// From an accepted or dialed connection to the end of its handshake, and from a peer's first
    /// connection to its last.
    pub handshake: Duration,
}

/// Most data connections of a peer.
pub const DATA_CONNECTIONS_MAX: usize = 8;
/// Connections whose handshake is not through, per listener; more are closed at once.
pub const HANDSHAKES_MAX: usize = 64;
/// Decode workers connected to one prefill worker; more are refused.
pub const PEERS_MAX: usize = 64;

impl Default for Tuning {
    fn default() -> Self {
        Self { data_connections: 2, buffer_bytes: 4 << 20, handshake: Duration::from_secs(5) }
    }
}

/// Where a prefill worker listens, and whom it knows by name.
#[derive(Debug, Clone)]
pub struct ListenOptions {
    /// A name or address of this machine.
    pub host: String,
    /// 0 takes any.
    pub port: u16,
    /// Decode workers of the configuration; others count as [`PeerName::other`].
    pub peers: Vec<PeerName>,
}

/// A prefill worker that a decode worker may ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrefillPeer {
    /// Its name in metrics and in offers: `HOST:PORT` of its API.
    pub name: PeerName,
    /// Where its transfer port is.
    pub host: String,
    /// Its transfer port.
    pub port: u16,
}
