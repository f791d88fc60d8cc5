//! Decode and prefill workers in one process, in virtual time: every byte goes through the codec,
//! and whatever can go wrong on a network does, by a seed.
//!
//! Nothing here has a thread. Whoever drives it says what time it is; then everything that is due
//! happens, in an order that depends on the seed alone. Callbacks (news, offers) come from inside
//! of [`drive`](Loopback::drive) and must not call the loopback again; the engines' own calls may
//! come at any time.

mod dice;
mod faults;
mod member;
mod net;
#[cfg(test)]
mod tests;
mod wire;

pub use dice::Dice;
pub use faults::FaultPlan;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use memory_pool::PageBytes;
use types::Time;

use crate::decode::DecodeEnd;
use crate::ends::Limits;
use crate::handshake::HandshakeError;
use crate::link::{NewsSink, Offers};
use crate::observe::TransferObserver;
use crate::port::{DecodePort, PrefillPort, Surroundings};
use crate::prefill::PrefillEnd;
use crate::room::PeerName;
use crate::shape::Shape;
use net::Net;

/// A worker of a [`Loopback`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(usize);

/// What a worker brings.
#[derive(Clone)]
pub struct Node {
    /// What others call it.
    pub name: PeerName,
    /// What others must fit.
    pub shape: Shape,
    /// Its secret, where it has one.
    pub secret: Option<Arc<[u8]>>,
    /// Its pages.
    pub pages: Arc<dyn PageBytes>,
    /// Its bounds.
    pub limits: Limits,
    /// The others in its configuration, for its snapshot.
    pub peers: Vec<PeerName>,
    /// Takes its news.
    pub news: Arc<dyn NewsSink>,
    /// Takes its numbers.
    pub observer: Arc<dyn TransferObserver>,
}

/// Workers and the network between them.
#[derive(Clone)]
pub struct Loopback {
    now: Arc<AtomicU64>,
    net: Arc<Mutex<Net>>,
}

impl std::fmt::Debug for Loopback {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Loopback").field("now", &self.now).finish_non_exhaustive()
    }
}

impl Loopback {
    /// Without workers, at [`Time::ZERO`].
    #[must_use]
    pub fn new(seed: u64, faults: FaultPlan) -> Self {
        Self { now: Arc::default(), net: Arc::new(Mutex::new(Net::new(seed, faults))) }
    }

    fn net(&self) -> MutexGuard<'_, Net> {
        self.net.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Time {
        Time(self.now.load(Ordering::Relaxed))
    }

    /// What goes wrong from now on.
    pub fn set_faults(&self, faults: FaultPlan) {
        self.net().faults = faults;
    }

    fn surroundings(&self, node: &Node) -> Surroundings {
        let now = Arc::clone(&self.now);
        Surroundings {
            now: Box::new(move || Time(now.load(Ordering::Relaxed))),
            // Whoever drives looks at everything.
            wake: Arc::new(|| ()),
            news: Arc::clone(&node.news),
            observer: Arc::clone(&node.observer),
        }
    }

    /// Adds a decode worker.
    pub fn decode(&self, node: Node) -> (NodeId, Arc<DecodePort>) {
        let around = self.surroundings(&node);
        let mut net = self.net();
        let random = Box::new(net.dice.fork());
        let end = DecodeEnd::new(node.limits, &*node.pages, &node.peers, random);
        let port = DecodePort::new("loopback", end, around);
        (NodeId(net.add_decode(node, Arc::clone(&port))), port)
    }

    /// Adds a prefill worker; `offers` decides for it.
    pub fn prefill(&self, node: Node, offers: Arc<dyn Offers>) -> (NodeId, Arc<PrefillPort>) {
        let around = self.surroundings(&node);
        let page_tokens = node.shape.page_tokens;
        let end = PrefillEnd::new(node.limits, &*node.pages, page_tokens, &node.peers);
        let port = PrefillPort::new(end, around, offers);
        (NodeId(self.net().add_prefill(node, Arc::clone(&port))), port)
    }

    /// Connects a decode worker with a prefill worker. A connection that is lost is made again
    /// after [`FaultPlan::reconnect`].
    ///
    /// # Errors
    /// Where the two do not fit; both then show it in their snapshots.
    ///
    /// # Panics
    /// Where the workers have other roles, or are connected.
    pub fn connect(&self, decode: NodeId, prefill: NodeId) -> Result<(), HandshakeError> {
        let now = self.now();
        self.net().connect(now, decode.0, prefill.0)
    }

    /// Cuts the connection of two workers, if there is one.
    pub fn cut(&self, decode: NodeId, prefill: NodeId) {
        let now = self.now();
        self.net().cut(now, decode.0, prefill.0);
    }

    /// A worker's process is gone: it is not called any more, and the others notice.
    pub fn kill(&self, node: NodeId) {
        let now = self.now();
        self.net().kill(now, node.0);
    }

    /// It is `now`: everything that is due by then happens. Time does not go back.
    ///
    /// # Panics
    /// Where a page changed while it was being sent: that is the engine's mistake.
    pub fn drive(&self, now: Time) {
        let mut net = self.net();
        // What was said since the last time was said then, not now.
        net.turn(self.now());
        while let Some(at) = net.next_event(self.now()).filter(|at| *at <= now) {
            self.now.fetch_max(at.0, Ordering::Relaxed);
            net.turn(self.now());
        }
        self.now.fetch_max(now.0, Ordering::Relaxed);
        net.turn(self.now());
    }

    /// When something is due next, if nobody does anything before: bytes on their way, heartbeats,
    /// time limits.
    #[must_use]
    pub fn next_event(&self) -> Option<Time> {
        self.net().next_event(self.now())
    }

    /// Whether no byte is on its way.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.net().is_quiet()
    }
}
