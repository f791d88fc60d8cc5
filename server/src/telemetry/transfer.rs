//! The transfer between the two workers of a pair: what ended, what moves, what is open.
//!
//! Peers have series of their own from the start where the configuration names them; all others
//! share `other`. Whether a peer answers is only told of those with a name: `other` is nobody.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use metric_catalog::install::{
    CounterHandle, GaugeHandle, HistogramHandle, Members, OTHER, Registry, TimeHandle,
};
use metric_catalog::labels::{
    Peer, PeerRole, Pool, Role, TpRank, TransferEndStage, TransferFailure, TransferResult,
    TransferSide, TransferStage, TransferState,
};
use metric_catalog::pair as catalog;
use transfer::{Failure, LinkSnapshot, PeerName, Side, Stage, TransferEnd, TransferObserver};
use types::Time;

use super::all;
use crate::config::Resolved;

/// Handles of one peer.
#[derive(Debug)]
struct PeerHandles {
    /// By result.
    ended: Vec<CounterHandle>,
    /// By part.
    bytes: Vec<(&'static str, CounterHandle)>,
    busy: TimeHandle,
    /// By state.
    open: Vec<GaugeHandle>,
    held: GaugeHandle,
    /// Not of `other`.
    up: Option<GaugeHandle>,
}

/// What happens on the link of a worker of a pair.
#[derive(Debug)]
pub struct Transfers {
    registry: Registry,
    side: TransferSide,
    /// Names of the parts that go over.
    parts: Vec<&'static str>,
    peers: Mutex<Members<Arc<PeerHandles>>>,
    /// By stage and reason; `None` where the catalog says that it cannot happen.
    errors: Vec<Option<CounterHandle>>,
    /// By stage.
    durations: Vec<Option<HistogramHandle>>,
    violations: Followed,
    strays: Followed,
}

/// A counter that follows a count kept elsewhere.
#[derive(Debug)]
struct Followed {
    counter: CounterHandle,
    seen: AtomicU64,
}

impl Followed {
    fn new(counter: CounterHandle) -> Self {
        Self { counter, seen: AtomicU64::new(0) }
    }

    fn set(&self, count: u64) {
        let before = self.seen.fetch_max(count, Ordering::Relaxed);
        self.counter.add(count.saturating_sub(before));
    }
}

impl Transfers {
    /// Handles in `registry` for the link of a worker with this role; none where it has none.
    #[must_use]
    pub fn new(registry: &Registry, role: Role, resolved: &Resolved) -> Option<Arc<Self>> {
        let side = match role {
            Role::Prefill => TransferSide::Send,
            Role::Decode => TransferSide::Recv,
            Role::Unified | Role::Router => return None,
        };
        let pools = resolved.kv.iter();
        let parts = pools.flat_map(|pool| pool.parts.iter().map(|part| part.name));
        let parts: Vec<&'static str> = parts.collect();
        let known = |stage: &TransferStage| {
            let labels = (side, *stage);
            let metric = catalog::KV_TRANSFER_DURATION;
            registry.exports(metric, &labels).then(|| registry.histogram(metric, labels))
        };
        let other = Arc::new(PeerHandles::new(registry, side, &parts, OTHER));
        let transfers = Self {
            registry: registry.clone(),
            side,
            peers: Mutex::new(Members::new(other)),
            parts,
            errors: registry.counters(catalog::KV_TRANSFER_ERRORS),
            durations: TransferStage::ALL.iter().map(known).collect(),
            violations: Followed::new(registry.counter(catalog::KV_LINK_VIOLATIONS, ())),
            strays: Followed::new(registry.counter(catalog::KV_LINK_STRAY_MESSAGES, ())),
        };
        let prefill = resolved.roles.prefill_peers.iter().map(|peer| peer.api.to_string());
        let decode = resolved.roles.decode_peers.iter().map(ToString::to_string);
        for name in prefill.chain(decode) {
            transfers.join(&mut transfers.peers(), &name);
        }
        Some(Arc::new(transfers))
    }

    fn peers(&self) -> MutexGuard<'_, Members<Arc<PeerHandles>>> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn peer(&self, name: &PeerName) -> Arc<PeerHandles> {
        Arc::clone(self.peers().of(name.as_str()))
    }

    fn join(&self, peers: &mut Members<Arc<PeerHandles>>, name: &str) {
        let make =
            |name: &str| Arc::new(PeerHandles::new(&self.registry, self.side, &self.parts, name));
        if let Some(gone) = peers.join(name, make) {
            self.registry.remove(&Peer::new(gone.to_string()));
        }
    }

    /// Sets the gauges; peers that are no longer on the link lose their series after a while.
    pub fn set(&self, link: &LinkSnapshot, now: Time) {
        let now = now.since(Time::ZERO);
        self.violations.set(link.violations);
        self.strays.set(link.strays);
        let mut peers = self.peers();
        for peer in &link.peers {
            self.join(&mut peers, peer.peer.as_str());
        }
        let on_link = |name: &str| link.peers.iter().any(|peer| peer.peer.as_str() == name);
        let absent = peers.iter().map(|(name, _)| name.to_owned()).filter(|name| !on_link(name));
        for name in absent.collect::<Vec<_>>() {
            peers.of(&name).set(0, 0, 0);
            peers.leave(&name, now);
        }
        for name in peers.sweep(now) {
            self.registry.remove(&Peer::new(name.to_string()));
        }
        // Peers beyond the bound share handles, so what they have is added up first.
        let mut shared = (0, 0, 0);
        for peer in &link.peers {
            let handles = peers.of(peer.peer.as_str());
            match &handles.up {
                Some(up) => {
                    up.set(f64::from(u8::from(peer.up)));
                    handles.set(peer.waiting, peer.wire, peer.held_bytes);
                }
                None => {
                    shared.0 += peer.waiting;
                    shared.1 += peer.wire;
                    shared.2 += peer.held_bytes;
                }
            }
        }
        peers.of(OTHER).set(shared.0, shared.1, shared.2);
    }
}

impl PeerHandles {
    fn new(registry: &Registry, side: TransferSide, parts: &[&'static str], name: &str) -> Self {
        let peer = || Peer::new(name.to_owned());
        let bytes = |part: &&'static str| {
            let labels = (side, peer(), Pool::new(*part));
            (*part, registry.counter(catalog::KV_TRANSFER_BYTES, labels))
        };
        let role = match side {
            TransferSide::Send => PeerRole::Decode,
            TransferSide::Recv => PeerRole::Prefill,
        };
        let up = || registry.gauge(catalog::PD_PEER_UP, (peer(), role));
        Self {
            ended: all(|result| registry.counter(catalog::KV_TRANSFERS, (side, peer(), result))),
            bytes: parts.iter().map(bytes).collect(),
            // All ranks of a worker share one link.
            busy: registry
                .time(catalog::KV_TRANSFER_BUSY_SECONDS, (side, peer(), TpRank::new("0"))),
            open: all(|state| registry.gauge(catalog::KV_TRANSFERS_ACTIVE, (side, peer(), state))),
            held: registry.gauge(catalog::KV_TRANSFER_HELD_BYTES, (peer(),)),
            up: (name != OTHER).then(up),
        }
    }

    fn set(&self, waiting: u64, wire: u64, held: u64) {
        self.open[TransferState::Waiting.index()].set_count(waiting);
        self.open[TransferState::Wire.index()].set_count(wire);
        self.held.set_count(held);
    }
}

impl TransferObserver for Transfers {
    fn on_bytes(&self, side: Side, peer: &PeerName, part: &'static str, bytes: u64) {
        debug_assert!(own(side) == self.side, "a worker is one end of all its transfers");
        let handles = self.peer(peer);
        match handles.bytes.iter().find(|(known, _)| *known == part) {
            Some((_, counter)) => counter.add(bytes),
            None => tracing::error!(part, "Bytes of a part that the model does not have."),
        }
    }

    fn on_end(&self, end: &TransferEnd) {
        let result = match end.result {
            Ok(()) => TransferResult::Ok,
            Err(failure) => {
                self.failed(end.stage, failure);
                reason(failure).result()
            }
        };
        self.peer(&end.peer).ended[result.index()].increment();
        let times: [(TransferStage, Option<Duration>); 4] = [
            (TransferStage::Bootstrap, end.bootstrap),
            (TransferStage::Alloc, end.alloc),
            (TransferStage::Wire, end.wire),
            (TransferStage::Total, Some(end.total)),
        ];
        for (stage, time) in times {
            if let (Some(histogram), Some(time)) = (&self.durations[stage.index()], time) {
                histogram.record_duration(time);
            }
        }
    }

    fn on_busy(&self, _: Side, peer: &PeerName, busy: Duration) {
        self.peer(peer).busy.add(busy);
    }
}

impl Transfers {
    fn failed(&self, stage: Stage, failure: Failure) {
        let stage = match stage {
            Stage::Bootstrap => TransferEndStage::Bootstrap,
            Stage::Alloc => TransferEndStage::Alloc,
            Stage::Wire | Stage::Total => TransferEndStage::Wire,
        };
        let stages = TransferEndStage::ALL.len();
        let reasons = TransferFailure::ALL.len();
        let reason = reason(failure);
        let place = (self.side.index() * stages + stage.index()) * reasons + reason.index();
        match &self.errors[place] {
            Some(counter) => counter.increment(),
            None => tracing::error!(
                stage = stage.as_str(),
                reason = reason.as_str(),
                "The catalog does not declare this end of a transfer."
            ),
        }
    }
}

const fn own(side: Side) -> TransferSide {
    match side {
        Side::Send => TransferSide::Send,
        Side::Recv => TransferSide::Recv,
    }
}

const fn reason(failure: Failure) -> TransferFailure {
    match failure {
        Failure::PeerAbort => TransferFailure::PeerAbort,
        Failure::LocalAbort => TransferFailure::LocalAbort,
        Failure::BootstrapTimeout => TransferFailure::BootstrapTimeout,
        Failure::WaitingTimeout => TransferFailure::WaitingTimeout,
        Failure::Connect => TransferFailure::Connect,
        Failure::Alloc => TransferFailure::Alloc,
        Failure::Checksum => TransferFailure::Checksum,
        Failure::PeerGone => TransferFailure::PeerGone,
        Failure::Protocol => TransferFailure::Protocol,
        Failure::RestoreFailed => TransferFailure::RestoreFailed,
        Failure::Internal => TransferFailure::Internal,
    }
}

#[cfg(test)]
mod tests;
