//! A TCP proxy that does to bytes what a bad network does, at places a seed decides.

use super::random::Random;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// What happens to the bytes of one direction of one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// One bit is flipped.
    Corrupt,
    /// Some bytes never arrive; those after them do.
    Drop,
    /// The connection ends.
    Cut,
    /// Bytes are held back for this long.
    Delay(Duration),
    /// Nothing passes any more, and the connection stays open.
    Silence,
}

/// Which faults come, and how far apart.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// One of these each time.
    pub(crate) faults: Vec<Fault>,
    /// Bytes between two faults of a direction, at most; half of it on average.
    pub(crate) every_bytes: u64,
    /// Faults in all, over every connection; afterwards bytes just pass.
    pub(crate) at_most: usize,
}

/// Listens on loopback and passes everything on, until dropped.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    target: Mutex<SocketAddr>,
    plan: Plan,
    random: Mutex<Random>,
    left: AtomicUsize,
    done: Mutex<Vec<Fault>>,
    open: AtomicUsize,
    hushed: AtomicBool,
    stop: CancellationToken,
    cut: Mutex<CancellationToken>,
    tasks: TaskTracker,
}

impl Proxy {
    pub(crate) async fn start(target: SocketAddr, seed: u64, plan: Plan) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            target: Mutex::new(target),
            left: AtomicUsize::new(plan.at_most),
            plan,
            random: Mutex::new(Random::new(seed)),
            done: Mutex::default(),
            open: AtomicUsize::new(0),
            hushed: AtomicBool::new(false),
            stop: CancellationToken::new(),
            cut: Mutex::default(),
            tasks: TaskTracker::new(),
        });
        shared.tasks.spawn(Arc::clone(&shared).accept(listener));
        Self { address, shared }
    }

    /// The faults that happened so far.
    pub(crate) fn done(&self) -> Vec<Fault> {
        self.shared.done.lock().unwrap().clone()
    }

    /// Connections that are open now.
    pub(crate) fn open(&self) -> usize {
        self.shared.open.load(Ordering::SeqCst)
    }

    /// Ends every connection there is.
    pub(crate) fn cut_all(&self) {
        std::mem::take(&mut *self.shared.cut.lock().unwrap()).cancel();
    }

    /// From now on nothing passes, and every connection stays open.
    pub(crate) fn hush(&self) {
        self.shared.hushed.store(true, Ordering::SeqCst);
    }

    /// No more faults; those that last go on.
    pub(crate) fn heal(&self) {
        self.shared.left.store(0, Ordering::SeqCst);
    }

    /// Where connections go from now on.
    pub(crate) fn retarget(&self, target: SocketAddr) {
        *self.shared.target.lock().unwrap() = target;
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.stop.cancel();
    }
}

impl Shared {
    async fn accept(self: Arc<Self>, listener: TcpListener) {
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = self.stop.cancelled() => return,
            };
            let Ok((near, _)) = accepted else { continue };
            self.tasks.spawn(Arc::clone(&self).serve(near));
        }
    }

    async fn serve(self: Arc<Self>, near: TcpStream) {
        let target = *self.target.lock().unwrap();
        let Ok(far) = TcpStream::connect(target).await else { return };
        near.set_nodelay(true).unwrap();
        far.set_nodelay(true).unwrap();
        let cut = self.cut.lock().unwrap().child_token();
        self.open.fetch_add(1, Ordering::SeqCst);
        let (near_read, near_write) = near.into_split();
        let (far_read, far_write) = far.into_split();
        tokio::select! {
            () = self.pass(near_read, far_write) => {}
            () = self.pass(far_read, near_write) => {}
            () = cut.cancelled() => {}
            () = self.stop.cancelled() => {}
        }
        self.open.fetch_sub(1, Ordering::SeqCst);
    }

    /// One direction, until it ends or is cut.
    async fn pass(&self, mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
        let mut bytes = vec![0; 64 << 10];
        let mut next = self.distance();
        loop {
            let Ok(count) = from.read(&mut bytes).await else { return };
            if count == 0 {
                return;
            }
            if self.hushed.load(Ordering::SeqCst) {
                std::future::pending().await
            }
            let mut start = 0;
            while next < (count - start) as u64 {
                let at = start + next as usize;
                if to.write_all(&bytes[start..at]).await.is_err() {
                    return;
                }
                start = at;
                next = self.distance();
                match self.fault() {
                    None => break,
                    Some(Fault::Corrupt) => bytes[at] ^= 1 << (at % 8),
                    Some(Fault::Drop) => start = count.min(at + 1 + self.swallowed()),
                    Some(Fault::Cut) => return,
                    Some(Fault::Delay(time)) => hold(time).await,
                    Some(Fault::Silence) => std::future::pending().await,
                }
            }
            next = next.saturating_sub((count - start) as u64);
            if to.write_all(&bytes[start..count]).await.is_err() {
                return;
            }
        }
    }

    fn distance(&self) -> u64 {
        1 + self.random.lock().unwrap().below(self.plan.every_bytes)
    }

    /// How many bytes a drop takes.
    fn swallowed(&self) -> usize {
        self.random.lock().unwrap().below(100) as usize
    }

    /// The fault that is due, if any are left.
    fn fault(&self) -> Option<Fault> {
        let take = |left: usize| left.checked_sub(1);
        self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).ok()?;
        let choice = self.random.lock().unwrap().below(self.plan.faults.len() as u64);
        let fault = self.plan.faults[choice as usize];
        self.done.lock().unwrap().push(fault);
        Some(fault)
    }
}

/// Bytes stay where they are for so long: the fault itself, nobody waits for anything by it.
async fn hold(time: Duration) {
    let mut ticks = tokio::time::interval_at(tokio::time::Instant::now() + time, time);
    ticks.tick().await;
}
