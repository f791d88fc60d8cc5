//! The prefill worker's side: it listens.

mod welcome;

use super::hub::{Hub, Port, Wake};
use super::options::{Environment, LinkOptions, ListenOptions};
use super::send;
use super::socket::{self, BindError};
use super::tls::TlsError;
use super::wire::{Wire, WireError};
use crate::{
    Act, Failure, LinkSnapshot, Message, Offers, PeerId, PeerName, PrefillEnd, PrefillPort,
};
use std::net::SocketAddr;
use std::sync::Arc;
use types::Time;
use welcome::Listener;

/// Why a prefill worker's link cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The listener.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The certificates.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// The prefill worker's side of all its links.
///
/// Dropping it closes the port and every connection soon, [`shut_down`](Self::shut_down) also waits
/// for that. What is under way then fails, here with `local_abort`, at the peers with `peer_gone`.
pub struct PrefillServer {
    hub: Arc<Hub<PrefillPort>>,
    listener: Arc<Listener>,
    address: SocketAddr,
}

impl PrefillServer {
    /// Listens, and takes what decode workers offer that fit and know the secret. Those that do not
    /// are told why, and logged once in a while. `offers` decides, one offer at a time, on threads
    /// of the runtime, never on the engine's.
    ///
    /// Needs a tokio runtime with time and I/O, and stays on it.
    ///
    /// # Errors
    /// A port that cannot be had, any but loopback without a secret, certificates that do not work.
    pub async fn start(
        options: LinkOptions,
        listen: ListenOptions,
        offers: Arc<dyn Offers>,
        around: Environment,
    ) -> Result<Self, StartError> {
        let tls = options.tls.acceptor()?;
        let ListenOptions { host, port, peers } = listen;
        let (buffer, secret) = (options.tuning.buffer_bytes, options.secret.is_some());
        let socket = socket::listen(&host, port, buffer, secret).await?;
        let failed = |error| BindError::System { host: host.clone(), port, error };
        let address = socket.local_addr().map_err(failed)?;
        let page_tokens = options.shape.page_tokens;
        let end = PrefillEnd::new(options.limits, &*around.pages, page_tokens, &peers);
        let wake = Arc::new(Wake::default());
        let port = PrefillPort::new(end, around.surroundings(&wake), offers);
        let hub = Hub::new(port, &options, &around, wake);
        let listener = Arc::new(Listener::new(&options, tls, &peers));
        hub.tasks.spawn(Arc::clone(&listener).accept(Arc::clone(&hub), socket));
        Ok(Self { hub, listener, address })
    }

    /// Where it listens; the port is the real one where 0 was asked for.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Names the decode workers of the configuration anew. Those that are connected keep the name
    /// they have until they connect again.
    pub fn set_peers(&self, peers: &[PeerName]) {
        self.listener.set_names(peers);
        self.hub.port.with(|end, _| end.set_peers(peers));
    }

    /// What is open now.
    #[must_use]
    pub fn snapshot(&self) -> LinkSnapshot {
        self.hub.port.snapshot()
    }

    /// Closes everything, and waits for it.
    pub async fn shut_down(&self) {
        self.hub.shut_down().await;
    }
}

impl Drop for PrefillServer {
    fn drop(&mut self) {
        self.hub.stop.cancel();
    }
}

impl Port for PrefillPort {
    fn poll(self: &Arc<Self>) -> Option<Act> {
        self.poll()
    }

    fn on_message(&self, peer: PeerId, message: Message) {
        self.with(|end, now| end.on_message(now, peer, message));
    }

    fn lost(&self, peer: PeerId, failure: Failure) {
        self.with(|end, now| end.lost(now, peer, failure));
    }

    fn tick(&self) {
        self.with(PrefillEnd::tick);
    }

    fn deadline(&self) -> Option<Time> {
        self.with(|end, _| end.deadline())
    }

    async fn frames(hub: Arc<Hub<Self>>, peer: PeerId, wire: Wire) -> WireError {
        send::send(hub, peer, wire).await
    }
}
