//! One port with everything around it: who polls it, and how its peers are reached.

use super::options::{Environment, LinkOptions};
use super::refusals::Refusals;
use super::wire::{Wire, WireError};
use crate::{Act, Failure, Limits, Message, PeerId, PeerName};
use memory_pool::PageBytes;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use types::{Clock, Time};

/// Messages to a peer that are not written yet. A peer that lets so many pile up is given up: only
/// a few per room are ever under way.
const MESSAGES_MAX: usize = 8192;

/// What the two ports have in common, for a hub.
pub(super) trait Port: Send + Sync + Sized + 'static {
    fn poll(self: &Arc<Self>) -> Option<Act>;
    fn on_message(&self, peer: PeerId, message: Message);
    fn lost(&self, peer: PeerId, failure: Failure);
    fn tick(&self);
    fn deadline(&self) -> Option<Time>;

    /// Carries one connection's frames, until it cannot.
    fn frames(
        hub: Arc<Hub<Self>>,
        peer: PeerId,
        wire: Wire,
    ) -> impl Future<Output = WireError> + Send;
}

/// Wakes whoever waits for a port; made before the port, which is given it.
#[derive(Debug, Default)]
pub(super) struct Wake {
    /// There are outputs to carry out.
    pub(super) outputs: Notify,
    /// There may be rows to be sent: all senders look.
    pub(super) frames: Notify,
}

impl Wake {
    /// Never blocks: it is called on the engine's thread and on those of forward passes.
    pub(super) fn all(&self) {
        self.outputs.notify_one();
        self.frames.notify_waiters();
    }
}

/// A port that tasks and threads share.
pub(super) struct Hub<P> {
    pub(super) port: Arc<P>,
    pub(super) pages: Arc<dyn PageBytes>,
    /// The largest payload of a frame.
    pub(super) payload_max: usize,
    /// Of the heartbeats.
    pub(super) limits: Limits,
    pub(super) wake: Arc<Wake>,
    /// Everything ends.
    pub(super) stop: CancellationToken,
    pub(super) tasks: TaskTracker,
    clock: Clock,
    links: Mutex<BTreeMap<PeerId, Outlet>>,
    refusals: Mutex<Refusals>,
    /// Whoever has it carries out outputs.
    turn: Mutex<()>,
    /// Somebody wanted the turn and did not get it.
    again: AtomicBool,
}

/// How to reach a connected peer.
struct Outlet {
    name: PeerName,
    messages: mpsc::Sender<Message>,
    /// Its connections are to be closed.
    close: CancellationToken,
}

/// The other side of an [`Outlet`].
pub(super) struct Inlet {
    pub(super) messages: mpsc::Receiver<Message>,
    pub(super) close: CancellationToken,
}

impl<P: Port> Hub<P> {
    pub(super) fn new(
        port: Arc<P>,
        options: &LinkOptions,
        environment: &Environment,
        wake: Arc<Wake>,
    ) -> Arc<Self> {
        let hub = Arc::new(Self {
            port,
            pages: Arc::clone(&environment.pages),
            payload_max: options.shape.payload_max(),
            limits: options.limits,
            wake,
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
            clock: environment.clock,
            links: Mutex::default(),
            refusals: Mutex::default(),
            turn: Mutex::new(()),
            again: AtomicBool::new(false),
        });
        hub.tasks.spawn(Arc::clone(&hub).attend());
        hub
    }

    /// A peer is new: `connect` tells the port, and from then on it can be reached.
    pub(super) fn connected(
        &self,
        name: &PeerName,
        connect: impl FnOnce(&P) -> PeerId,
    ) -> (PeerId, Inlet) {
        let (messages, receiver) = mpsc::channel(MESSAGES_MAX);
        let close = self.stop.child_token();
        let inlet = Inlet { messages: receiver, close: close.clone() };
        // Both under one lock, so that nothing for it is thrown away in between.
        let mut links = lock(&self.links);
        let peer = connect(&self.port);
        links.insert(peer, Outlet { name: name.clone(), messages, close });
        drop(links);
        self.pump();
        // Its heartbeats begin. No other time limit ends before the next of them is due.
        self.wake.outputs.notify_one();
        (peer, inlet)
    }

    /// The connections of a peer are of no more use. Nothing more is sent to it than what was
    /// handed over before.
    pub(super) fn lost(&self, peer: PeerId, failure: Failure) {
        self.port.lost(peer, failure);
        self.pump();
        lock(&self.links).remove(&peer);
    }

    /// Carries out outputs until there are none, unless another thread does: then that one goes
    /// on. To be called after each input, on threads of the runtime: whoever decides on offers and
    /// takes news is called from here.
    pub(super) fn pump(&self) {
        self.again.store(true, Ordering::SeqCst);
        loop {
            let turn = match self.turn.try_lock() {
                Ok(turn) => turn,
                // Somebody who was called panicked; the others go on.
                Err(TryLockError::Poisoned(turn)) => turn.into_inner(),
                // It looks at `again` after it has given the turn back.
                Err(TryLockError::WouldBlock) => return,
            };
            self.again.store(false, Ordering::SeqCst);
            while let Some(act) = self.port.poll() {
                self.carry_out(act);
            }
            drop(turn);
            if !self.again.load(Ordering::SeqCst) {
                return;
            }
        }
    }

    fn carry_out(&self, act: Act) {
        let links = lock(&self.links);
        match act {
            Act::Control(peer, message) => {
                if let Some(link) = links.get(&peer)
                    && link.messages.try_send(message).is_err()
                {
                    // It does not take what it is told, or is going already.
                    link.close.cancel();
                }
            }
            Act::Lost(peer, _) => {
                if let Some(link) = links.get(&peer) {
                    link.close.cancel();
                }
            }
            Act::Violated(peer, room, violation) => {
                let name = links.get(&peer).map_or_else(PeerName::other, |link| link.name.clone());
                drop(links);
                // Rooms are all different, and would make the same violation look like many.
                tracing::debug!(peer = %name, ?room, %violation, "The protocol was broken.");
                self.refused(&name, &violation);
            }
        }
    }

    /// Ends everything: connections close, and what was under way fails.
    pub(super) async fn shut_down(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Logs what is wrong with a peer, but not over and over.
    pub(super) fn refused(&self, who: &dyn Display, why: &dyn Display) {
        let text = format!("{who}: {why}");
        let told = lock(&self.refusals).tell(&text, self.clock.now());
        if let Some(untold) = told {
            tracing::warn!(peer = %who, reason = %why, untold, "A transfer link has trouble.");
        }
    }

    /// Carries out what comes from other threads, and wakes the port when its time has come.
    async fn attend(self: Arc<Self>) {
        loop {
            self.pump();
            let due = self.port.deadline();
            let sleep = async {
                match due {
                    Some(due) => tokio::time::sleep_until(self.clock.instant(due).into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.wake.outputs.notified() => {}
                () = sleep => self.port.tick(),
                () = self.stop.cancelled() => break,
            }
        }
    }
}

/// Nothing leaves these values half changed.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
