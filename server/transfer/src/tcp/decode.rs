//! The decode worker's side: it dials.

mod dial;

use super::hub::{Hub, Port, Wake, lock};
use super::options::{Environment, LinkOptions, PrefillPeer};
use super::random::SystemRandom;
use super::receive;
use super::tls::TlsError;
use super::wire::{Wire, WireError};
use crate::{
    Act, Answered, Backend, DecodeEnd, DecodePort, Failure, LinkSnapshot, Message, NotOffered,
    Offered, PeerId, PeerName, Prompt, RoomKey,
};
use dial::{Dialer, Trade};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use tokio::sync::oneshot;
use types::{RequestId, Time};

/// The decode worker's side of all its links.
///
/// Dropping it closes every connection soon, [`shut_down`](Self::shut_down) also waits for that.
/// What is under way then fails, here with `local_abort`, at the peers with `peer_gone`.
pub struct DecodeClient {
    hub: Arc<Hub<DecodePort>>,
    trade: Arc<Trade>,
    dialers: Mutex<BTreeMap<PeerName, Dialer>>,
}

impl DecodeClient {
    /// Connects to the prefill workers, now and whenever a connection is lost, with growing pauses.
    /// Those that cannot be reached or do not fit are logged once in a while and shown by
    /// [`snapshot`](Backend::snapshot); nothing fails because of them.
    ///
    /// Needs a tokio runtime with time and I/O, and stays on it.
    ///
    /// # Errors
    /// Certificates that do not work.
    pub fn start(
        options: LinkOptions,
        peers: &[PrefillPeer],
        around: Environment,
    ) -> Result<Self, TlsError> {
        let tls = options.tls.connector()?;
        let random = Box::new(SystemRandom::new());
        let end = DecodeEnd::new(options.limits, &*around.pages, &names(peers), random);
        let wake = Arc::new(Wake::default());
        let port = DecodePort::new("tcp", end, around.surroundings(&wake));
        let hub = Hub::new(port, &options, &around, wake);
        let trade = Arc::new(Trade::new(&options, tls));
        let client = Self { hub, trade, dialers: Mutex::default() };
        client.dial(peers);
        Ok(client)
    }

    /// Replaces the prefill workers. Connections to those that stay, with the same address, stay;
    /// what is under way with those that go fails with `peer_gone`.
    pub fn set_peers(&self, peers: &[PrefillPeer]) {
        self.hub.port.with(|end, _| end.set_peers(&names(peers)));
        self.dial(peers);
    }

    fn dial(&self, peers: &[PrefillPeer]) {
        let mut dialers = lock(&self.dialers);
        // Dropping a dialer ends it.
        dialers.retain(|_, dialer| peers.contains(dialer.peer()));
        for peer in peers {
            let start = || Dialer::start(&self.hub, &self.trade, peer.clone());
            dialers.entry(peer.name.clone()).or_insert_with(start);
        }
    }

    /// Offers a prompt to a prefill worker, for a request whose news go to the engine under
    /// `request`. Where no connection to it was tried to its end yet, it waits for that; otherwise
    /// it asks at once or fails.
    ///
    /// Dropping the future gives the offer up, dropping the [`Offered`] the transfer; the prefill
    /// worker learns of it at once.
    ///
    /// # Errors
    /// What [`NotOffered`] says.
    pub async fn offer(
        &self,
        peer: &PeerName,
        request: RequestId,
        prompt: Prompt,
    ) -> Result<Offered, NotOffered> {
        let tried = {
            let dialers = lock(&self.dialers);
            dialers.get(peer).map(Dialer::tried)
        };
        if let Some(tried) = tried {
            tried.await;
        }
        let (send, answer) = oneshot::channel();
        let answered: Answered = Box::new(move |answer| {
            // Nobody waits any more: what was offered is given up by being dropped.
            drop(send.send(answer));
        });
        let key = self.hub.port.ask(peer, request, prompt, answered);
        let mut given_up = GivenUp { hub: &self.hub, key };
        let answer = answer.await;
        given_up.key = None;
        answer.unwrap_or(Err(NotOffered::Failed(Failure::Internal)))
    }

    /// Closes everything, and waits for it.
    pub async fn shut_down(&self) {
        lock(&self.dialers).clear();
        self.hub.shut_down().await;
    }
}

impl Backend for DecodeClient {
    fn name(&self) -> &'static str {
        self.hub.port.name()
    }

    /// Unlike [`DecodeClient::offer`] it does not wait for the first connection.
    fn offer(&self, peer: &PeerName, request: RequestId, prompt: Prompt, answered: Answered) {
        self.hub.port.offer(peer, request, prompt, answered);
    }

    fn snapshot(&self) -> LinkSnapshot {
        self.hub.port.snapshot()
    }
}

impl Drop for DecodeClient {
    fn drop(&mut self) {
        self.hub.stop.cancel();
    }
}

fn names(peers: &[PrefillPeer]) -> Vec<PeerName> {
    peers.iter().map(|peer| peer.name.clone()).collect()
}

/// An offer whose answer is waited for.
struct GivenUp<'a> {
    hub: &'a Arc<Hub<DecodePort>>,
    key: Option<RoomKey>,
}

impl Drop for GivenUp<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.hub.port.with(|end, now| end.abandon(now, key, Failure::LocalAbort));
            self.hub.wake.all();
        }
    }
}

impl Port for DecodePort {
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
        self.with(DecodeEnd::tick);
    }

    fn deadline(&self) -> Option<Time> {
        self.with(|end, _| end.deadline())
    }

    async fn frames(hub: Arc<Hub<Self>>, peer: PeerId, wire: Wire) -> WireError {
        receive::receive(hub, peer, wire).await
    }
}
