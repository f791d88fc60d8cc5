//! The part of an end that only a snapshot shows.

use crate::ends::{Peer, TransferState};
use crate::observe::{LinkSnapshot, PeerSnapshot, Side};
use crate::room::PeerName;

/// Peers of the configuration with what is wrong with them, and counts of what was ignored.
#[derive(Debug)]
pub(crate) struct Board {
    side: Side,
    peers: Vec<(PeerName, Option<String>)>,
    strays: u64,
    violations: u64,
}

impl Board {
    pub(crate) fn new(side: Side, peers: &[PeerName]) -> Self {
        let peers = peers.iter().map(|peer| (peer.clone(), None)).collect();
        Self { side, peers, strays: 0, violations: 0 }
    }

    /// What is wrong with a peer; ignored for peers that are not in the configuration.
    pub(crate) fn trouble(&mut self, name: &PeerName, trouble: Option<String>) {
        if let Some((_, place)) = self.peers.iter_mut().find(|(peer, _)| peer == name) {
            *place = trouble;
        }
    }

    /// Replaces the peers of the configuration; what is known about those that stay, stays.
    pub(crate) fn set_peers(&mut self, peers: &[PeerName]) {
        let before = std::mem::take(&mut self.peers);
        let trouble = |peer| before.iter().find(|(name, _)| name == peer)?.1.clone();
        self.peers = peers.iter().map(|peer| (peer.clone(), trouble(peer))).collect();
    }

    pub(crate) const fn stray(&mut self) {
        self.strays += 1;
    }

    pub(crate) const fn violation(&mut self) {
        self.violations += 1;
    }

    /// Without any transfer.
    pub(crate) fn snapshot<'a>(&self, peers: impl Iterator<Item = &'a Peer>) -> LinkSnapshot {
        let peer = |(peer, trouble): &(PeerName, Option<String>)| PeerSnapshot {
            trouble: trouble.clone(),
            ..PeerSnapshot::down(peer)
        };
        let all = self.peers.iter().map(peer).collect();
        let (side, strays, violations) = (self.side, self.strays, self.violations);
        let mut snapshot = LinkSnapshot { side, peers: all, strays, violations };
        for peer in peers {
            snapshot.peer(&peer.name).up = true;
        }
        snapshot
    }
}

impl PeerSnapshot {
    fn down(peer: &PeerName) -> Self {
        let peer = peer.clone();
        Self { peer, up: false, trouble: None, waiting: 0, wire: 0, held_bytes: 0 }
    }
}

impl LinkSnapshot {
    fn peer(&mut self, name: &PeerName) -> &mut PeerSnapshot {
        let found = self.peers.iter().position(|peer| peer.peer == *name);
        let at = found.unwrap_or_else(|| {
            self.peers.push(PeerSnapshot::down(name));
            self.peers.len() - 1
        });
        &mut self.peers[at]
    }

    /// Adds a transfer.
    pub(crate) fn add(&mut self, name: &PeerName, state: TransferState, held_bytes: u64) {
        let peer = self.peer(name);
        peer.held_bytes += held_bytes;
        match state {
            TransferState::Bootstrapping | TransferState::WaitingForInput => peer.waiting += 1,
            TransferState::Transferring => peer.wire += 1,
            TransferState::Success | TransferState::Failed(_) => {}
        }
    }
}
