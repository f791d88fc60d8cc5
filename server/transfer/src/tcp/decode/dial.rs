//! Connections to one prefill worker: made, lost, made again.

use super::super::backoff::Backoff;
use super::super::hub::Hub;
use super::super::link;
use super::super::options::{DATA_CONNECTIONS_MAX, LinkOptions, PrefillPeer, Tuning};
use super::super::random::SystemRandom;
use super::super::socket::{self, Use};
use super::super::stream::Stream;
use super::super::tls;
use super::super::wire::{Wire, WireError};
use crate::{DecodePort, Ready, Terms};
use std::future::Future;
use std::io;
use std::sync::Arc;
use tokio::sync::{mpsc, watch};
use tokio_rustls::{TlsConnector, TlsStream};
use tokio_util::sync::{CancellationToken, DropGuard};

/// What every dialer brings along.
pub(super) struct Trade {
    terms: Terms,
    tls: Option<TlsConnector>,
    tuning: Tuning,
    payload_max: usize,
}

impl Trade {
    pub(super) fn new(options: &LinkOptions, tls: Option<TlsConnector>) -> Self {
        Self {
            terms: options.terms(),
            tls,
            tuning: options.tuning.clone(),
            payload_max: options.shape.payload_max(),
        }
    }

    /// Every connection to a peer, with its handshake.
    async fn connect(&self, peer: &PrefillPeer) -> Result<Connected, WireError> {
        let (control, ready) = self.one(peer, Use::Control, None).await?;
        let buffer_bytes = self.tuning.buffer_bytes;
        let mut data = Vec::new();
        for _ in 0..self.tuning.data_connections.clamp(1, DATA_CONNECTIONS_MAX) {
            let what = Use::Data { buffer_bytes };
            data.push(self.one(peer, what, Some(ready.link)).await?.0);
        }
        Ok(Connected { control, data, rooms_max: ready.rooms_max })
    }

    async fn one(
        &self,
        peer: &PrefillPeer,
        what: Use,
        joins: Option<[u8; 16]>,
    ) -> Result<(Wire, Ready), WireError> {
        let stream = socket::dial(&peer.host, peer.port, what).await?;
        let stream = match &self.tls {
            None => Stream::Plain(stream),
            Some(connector) => {
                let no_name = |error| WireError::Tls(io::Error::other(error));
                let name = tls::server_name(&peer.host).map_err(no_name)?;
                let dialed = connector.connect(name, stream).await.map_err(WireError::Tls)?;
                Stream::Tls(Box::new(TlsStream::Client(dialed)))
            }
        };
        let mut wire = Wire::new(stream);
        let mut random = SystemRandom::new();
        let ready = wire.introduce(&self.terms, joins, &mut random, self.payload_max).await?;
        Ok((wire, ready))
    }
}

/// A peer's connections after their handshake.
struct Connected {
    control: Wire,
    data: Vec<Wire>,
    rooms_max: u32,
}

/// Keeps one prefill worker connected, while it lives.
pub(super) struct Dialer {
    peer: PrefillPeer,
    /// Whether a first attempt came to its end.
    tried: watch::Receiver<bool>,
    _end: DropGuard,
}

impl Dialer {
    pub(super) fn start(hub: &Arc<Hub<DecodePort>>, trade: &Arc<Trade>, peer: PrefillPeer) -> Self {
        let (tried, trying) = watch::channel(false);
        let end = hub.stop.child_token();
        let task = keep(Arc::clone(hub), Arc::clone(trade), peer.clone(), tried, end.clone());
        hub.tasks.spawn(task);
        Self { peer, tried: trying, _end: end.drop_guard() }
    }

    pub(super) const fn peer(&self) -> &PrefillPeer {
        &self.peer
    }

    /// Waits for the end of the first attempt, which the time limit of handshakes bounds.
    pub(super) fn tried(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut tried = self.tried.clone();
        async move {
            // An error says that the dialer has ended: there is nothing to wait for.
            tried.wait_for(|tried| *tried).await.ok();
        }
    }
}

async fn keep(
    hub: Arc<Hub<DecodePort>>,
    trade: Arc<Trade>,
    peer: PrefillPeer,
    tried: watch::Sender<bool>,
    end: CancellationToken,
) {
    let mut backoff = Backoff::new(SystemRandom::new().number());
    while !end.is_cancelled() {
        let attempt = tokio::time::timeout(trade.tuning.handshake, trade.connect(&peer));
        let attempt = tokio::select! {
            attempt = attempt => attempt.unwrap_or(Err(WireError::Late)),
            () = end.cancelled() => return,
        };
        let reason = match attempt {
            Ok(connected) => {
                backoff.reset();
                stay(&hub, &peer, connected, &tried, &end).await
            }
            Err(error) => {
                hub.refused(&peer.name, &format_args!("{}:{}: {error}", peer.host, peer.port));
                error.to_string()
            }
        };
        let trouble = format!("{}:{}: {reason}", peer.host, peer.port);
        hub.port.with(|end, _| end.trouble(&peer.name, Some(trouble)));
        tried.send_replace(true);
        tokio::select! {
            () = tokio::time::sleep(backoff.wait()) => {}
            () = end.cancelled() => return,
        }
    }
}

/// The life of a connection set; says why it ended.
async fn stay(
    hub: &Arc<Hub<DecodePort>>,
    peer: &PrefillPeer,
    connected: Connected,
    tried: &watch::Sender<bool>,
    end: &CancellationToken,
) -> String {
    let Connected { control, data, rooms_max } = connected;
    let (more, coming) = mpsc::channel(DATA_CONNECTIONS_MAX);
    for wire in data {
        more.try_send(wire).expect("there is place for as many");
    }
    drop(more);
    let name = &peer.name;
    let connect =
        |port: &DecodePort| port.with(|end, now| end.connected(now, name.clone(), rooms_max));
    let (id, inlet) = hub.connected(name, connect);
    tracing::info!(peer = %name, "A prefill worker is connected.");
    tried.send_replace(true);
    let close = inlet.close.clone();
    let run = link::run(Arc::clone(hub), name.clone(), id, control, inlet, coming);
    tokio::pin!(run);
    tokio::select! {
        reason = &mut run => return reason,
        () = end.cancelled() => close.cancel(),
    }
    run.await
}
