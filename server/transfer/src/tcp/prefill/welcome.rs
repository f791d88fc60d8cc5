//! Connections that come in: who they are, and to which peer they belong.

use super::super::hub::{Hub, lock};
use super::super::link;
use super::super::options::{DATA_CONNECTIONS_MAX, HANDSHAKES_MAX, LinkOptions, PEERS_MAX, Tuning};
use super::super::random::SystemRandom;
use super::super::stream::Stream;
use super::super::wire::{Guest, Wire, WireError};
use crate::{HandshakeError, PeerName, PrefillPort, Terms};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::{TlsAcceptor, TlsStream};
use tokio_util::sync::CancellationToken;

/// After an error of `accept`, which mostly means that there are no files left.
const PAUSE: Duration = Duration::from_millis(50);

/// What a peer's data connections name.
type LinkId = [u8; 16];

/// Takes connections.
pub(super) struct Listener {
    terms: Terms,
    tls: Option<TlsAcceptor>,
    tuning: Tuning,
    rooms_max: u32,
    payload_max: usize,
    names: Mutex<BTreeSet<PeerName>>,
    /// Where further data connections of a connected peer go.
    links: Mutex<BTreeMap<LinkId, mpsc::Sender<Wire>>>,
    waiting: Mutex<Waiting>,
}

/// Connections whose handshake is not through, oldest first. Where there are too many, the oldest
/// has to go: somebody who connects and says nothing keeps no worker out.
#[derive(Default)]
struct Waiting {
    queue: VecDeque<(u64, CancellationToken)>,
    next: u64,
}

impl Listener {
    pub(super) fn new(options: &LinkOptions, tls: Option<TlsAcceptor>, names: &[PeerName]) -> Self {
        Self {
            terms: options.terms(),
            tls,
            tuning: options.tuning.clone(),
            rooms_max: u32::try_from(options.limits.rooms_max).unwrap_or(u32::MAX),
            payload_max: options.shape.payload_max(),
            names: Mutex::new(names.iter().cloned().collect()),
            links: Mutex::default(),
            waiting: Mutex::default(),
        }
    }

    pub(super) fn set_names(&self, names: &[PeerName]) {
        *lock(&self.names) = names.iter().cloned().collect();
    }

    /// Takes connections until everything stops.
    pub(super) async fn accept(self: Arc<Self>, hub: Arc<Hub<PrefillPort>>, socket: TcpListener) {
        loop {
            let accepted = tokio::select! {
                accepted = socket.accept() => accepted,
                () = hub.stop.cancelled() => return,
            };
            match accepted {
                Ok((stream, from)) => {
                    let task = Arc::clone(&self).welcome(Arc::clone(&hub), stream, from);
                    hub.tasks.spawn(task);
                }
                Err(error) => {
                    hub.refused(&"the transfer port", &error);
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    /// One connection, up to the end of its handshake; then the whole life of a new peer.
    async fn welcome(
        self: Arc<Self>,
        hub: Arc<Hub<PrefillPort>>,
        stream: TcpStream,
        from: SocketAddr,
    ) {
        let (number, crowded) = self.enter();
        let greeted = tokio::select! {
            greeted = tokio::time::timeout(self.tuning.handshake, self.greet(stream)) => {
                greeted.unwrap_or(Err(WireError::Late))
            }
            () = crowded.cancelled() => Err(WireError::Crowded(HANDSHAKES_MAX)),
            () = hub.stop.cancelled() => Err(WireError::Closed),
        };
        self.leave(number);
        let seated = greeted.is_ok();
        let result = match greeted {
            Ok((wire, guest)) => self.seat(&hub, wire, guest).await,
            Err(error) => Err(error),
        };
        match result {
            Ok(()) => {}
            Err(_) if hub.stop.is_cancelled() => {}
            // A worker that stops in good order does that.
            Err(WireError::Closed) if seated => {
                tracing::info!(peer = %from.ip(), "A peer has closed its link.");
            }
            Err(error) => hub.refused(&from.ip(), &error),
        }
    }

    async fn greet(&self, stream: TcpStream) -> Result<(Wire, Guest), WireError> {
        stream.set_nodelay(true)?;
        let stream = match &self.tls {
            None => Stream::Plain(stream),
            Some(tls) => {
                let accepted = tls.accept(stream).await.map_err(WireError::Tls)?;
                Stream::Tls(Box::new(TlsStream::Server(accepted)))
            }
        };
        let mut wire = Wire::new(stream);
        let mut random = SystemRandom::new();
        let guest = wire.greet(&self.terms, self.rooms_max, &mut random).await?;
        Ok((wire, guest))
    }

    /// Gives a connection its place.
    async fn seat(
        &self,
        hub: &Arc<Hub<PrefillPort>>,
        mut wire: Wire,
        guest: Guest,
    ) -> Result<(), WireError> {
        let Guest { ready, joins, name } = guest;
        if let Some(id) = joins {
            let Some(link) = lock(&self.links).get(&id).cloned() else {
                return Err(wire.refuse(HandshakeError::NoPeer).await);
            };
            let send = wire.ready(ready, self.payload_max);
            tokio::time::timeout(self.tuning.handshake, send)
                .await
                .map_err(|_| WireError::Late)??;
            // Full: as many as there may be are waiting to be taken. Closed: the peer is gone.
            return link.try_send(wire).map_err(|_| WireError::Handshake(HandshakeError::NoPeer));
        }
        let id = ready.link;
        let (more, coming) = mpsc::channel(DATA_CONNECTIONS_MAX);
        let place = Place::take(&self.links, id, more);
        let Some(place) = place else { return Err(wire.turn_away(too_many()).await) };
        let name = self.name(&name);
        let send = wire.ready(ready, self.payload_max);
        tokio::time::timeout(self.tuning.handshake, send).await.map_err(|_| WireError::Late)??;
        let connect = |port: &PrefillPort| port.with(|end, now| end.connected(now, name.clone()));
        let (peer, inlet) = hub.connected(&name, connect);
        tracing::info!(peer = %name, "A decode worker is connected.");
        link::run(Arc::clone(hub), name, peer, wire, inlet, coming).await;
        drop(place);
        Ok(())
    }

    /// The configuration's name for a peer that calls itself `name`.
    fn name(&self, name: &str) -> PeerName {
        let name = PeerName::new(name);
        if lock(&self.names).contains(&name) { name } else { PeerName::other() }
    }

    fn enter(&self) -> (u64, CancellationToken) {
        let mut waiting = lock(&self.waiting);
        let number = waiting.next;
        waiting.next += 1;
        let token = CancellationToken::new();
        waiting.queue.push_back((number, token.clone()));
        if waiting.queue.len() > HANDSHAKES_MAX
            && let Some((_, oldest)) = waiting.queue.pop_front()
        {
            oldest.cancel();
        }
        (number, token)
    }

    fn leave(&self, number: u64) {
        lock(&self.waiting).queue.retain(|(waiting, _)| *waiting != number);
    }
}

fn too_many() -> String {
    format!("{PEERS_MAX} decode workers are connected, which is the limit")
}

/// A connected peer's entry.
struct Place<'a> {
    links: &'a Mutex<BTreeMap<LinkId, mpsc::Sender<Wire>>>,
    id: LinkId,
}

impl<'a> Place<'a> {
    /// `None` where there are too many.
    fn take(
        links: &'a Mutex<BTreeMap<LinkId, mpsc::Sender<Wire>>>,
        id: LinkId,
        more: mpsc::Sender<Wire>,
    ) -> Option<Self> {
        let mut all = lock(links);
        if all.len() >= PEERS_MAX {
            return None;
        }
        all.insert(id, more);
        Some(Self { links, id })
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        lock(self.links).remove(&self.id);
    }
}
