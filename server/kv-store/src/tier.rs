//! A store as the engine sees it: calls that never wait, and a thread that does the work.
//!
//! ```text
//!   engine's thread                      thread "kv-store"
//!   backup(pages) ── bounded queue ──>   copies each page out, queues it in the store
//!   backups_done  <──────────────────    ids: their host pages may be reused
//!   look(prefix)  ── bounded queue ──>   asks how many pages there are
//!   fetch(pages)  ── bounded queue ──>   reads pages in order, some at once, into host memory
//!   Reading::there(), Reading::stop()    each under the lock of its reading
//! ```
//! The thread also computes the names of pages, which is more work than a step has time for.

use crate::key::PageHash;
use crate::object::{Page, Part};
use crate::stats::StoreStats;
use crate::store::{KvStore, OpenError, StoreOptions};
use crate::url::StoreUrl;
use crate::{Scope, backend::Backend};
use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio_util::task::TaskTracker;
use types::{PageId, PoolId, TokenId};

/// Orders that wait for the thread; more are refused.
const ORDERS: usize = 1024;
/// How many pages one fetch reads at once. The store bounds all of them together.
const READS_AHEAD: usize = 4;

/// Host memory by parts of the store's scope. Called on the store's thread.
pub trait HostPages: Send + Sync + 'static {
    /// The index pool whose page ids a part of the scope has.
    fn pool(&self, part: usize) -> PoolId;

    /// Copies a page of a part out; `to` has the part's bytes.
    fn read(&self, part: usize, page: PageId, to: &mut [u8]);

    /// Overwrites a page of a part.
    fn write(&self, part: usize, page: PageId, from: &[u8]);
}

/// The host page of a page in each index pool that has one.
pub type Places = Vec<(PoolId, PageId)>;

/// The pages of a text from one on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TierPages {
    /// Whose they are: pages are found under the bytes they were kept under.
    pub namespace: Vec<u8>,
    /// The text from its beginning; what does not fill a page at its end does not count.
    pub tokens: Vec<TokenId>,
    /// The number of the first page.
    pub first: usize,
}

impl TierPages {
    /// Name and tokens of each page.
    fn named(&self, page_tokens: usize) -> impl Iterator<Item = (PageHash, &[TokenId])> {
        let hashes = PageHash::pages(&self.namespace, &self.tokens, page_tokens);
        hashes.into_iter().zip(self.tokens.chunks_exact(page_tokens)).skip(self.first)
    }
}

/// A page with its name and its host pages.
struct Placed {
    hash: PageHash,
    tokens: Vec<TokenId>,
    places: Places,
}

fn placed(pages: &TierPages, places: Vec<Places>, page_tokens: usize) -> Vec<Placed> {
    let named = pages.named(page_tokens).zip(places);
    let placed = |((hash, tokens), places): ((_, &[TokenId]), _)| Placed {
        hash,
        tokens: tokens.to_vec(),
        places,
    };
    named.map(placed).collect()
}

/// The queue of orders is full; nothing was done.
#[derive(Debug, Clone, Copy, thiserror::Error, PartialEq, Eq)]
#[error("the storage tier has {ORDERS} orders already")]
pub struct TierBusy;

enum Order {
    Backup { id: u64, pages: TierPages, places: Vec<Places> },
    Look { pages: TierPages, tail: usize, shared: Arc<Shared> },
    Fetch { pages: TierPages, places: Vec<Places>, shared: Arc<Shared> },
    Close { limit: Duration, done: oneshot::Sender<()> },
}

/// What the two sides of a reading share. The thread holds the lock while it copies a page, so that
/// none is written once the other side stopped.
#[derive(Debug, Default)]
struct Progress {
    pages: usize,
    ended: bool,
    stopped: bool,
}

type Shared = Mutex<Progress>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is behind these locks is whole after every statement.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Wakes whoever asks for progress.
type Wake = Arc<dyn Fn() + Send + Sync>;

/// Wakes when it is dropped.
struct Waking(Wake);

impl Drop for Waking {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Says, when it is dropped, that the thread has ended, well or not.
struct Ending {
    ended: Arc<AtomicBool>,
    progress: Wake,
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
        (self.progress)();
    }
}

/// A store with its thread. Dropping it ends the thread after what is queued, or after 1 s.
pub struct StorageTier {
    orders: mpsc::Sender<Order>,
    backups_done: Arc<Mutex<Vec<u64>>>,
    /// Backups that nobody has heard the end of.
    handed: Mutex<BTreeSet<u64>>,
    /// The thread has, and touches host memory no more.
    ended: Arc<AtomicBool>,
    store: KvStore,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for StorageTier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StorageTier").field("store", &self.store).finish_non_exhaustive()
    }
}

/// Where a tier's store is.
#[derive(Clone)]
pub enum TierPlace {
    /// At an address.
    Url(StoreUrl),
    /// On this backend; the text names it in errors.
    Backend(Arc<dyn Backend>, String),
}

impl StorageTier {
    /// Opens the store on a thread of its own; returns when it is open. `progress` is called, on
    /// that thread, when a backup is done, pages of a fetch have arrived or the thread ends: it
    /// should wake whoever asks for them, and be quick.
    ///
    /// # Errors
    /// As [`KvStore::open`]; or that the thread did not start.
    pub fn open(
        place: TierPlace,
        scope: Scope,
        options: StoreOptions,
        host: Arc<dyn HostPages>,
        progress: Box<dyn Fn() + Send + Sync>,
    ) -> Result<Self, OpenError> {
        let (orders, receiver) = mpsc::channel(ORDERS);
        let (opened, store) = std::sync::mpsc::sync_channel(1);
        let backups_done = Arc::<Mutex<Vec<u64>>>::default();
        let done = Arc::clone(&backups_done);
        let (ended, progress) = (Arc::<AtomicBool>::default(), Wake::from(progress));
        let ending = Ending { ended: Arc::clone(&ended), progress: Arc::clone(&progress) };
        let run = move || {
            // Dropped last: what the thread was at is gone by then.
            let _ending = ending;
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = match runtime {
                Ok(runtime) => runtime,
                Err(error) => return drop(opened.send(Err(OpenError::Thread(error)))),
            };
            runtime.block_on(async move {
                let store = match place {
                    TierPlace::Url(url) => KvStore::open(&url, scope, options).await,
                    TierPlace::Backend(backend, name) => {
                        KvStore::with_backend(backend, &name, scope, options).await
                    }
                };
                let Ok(store) = store.map_err(|error| drop(opened.send(Err(error)))) else {
                    return;
                };
                // The other side waits for it.
                drop(opened.send(Ok(store.clone())));
                let worker = Arc::new(Worker { store, host, progress, done });
                worker.run(receiver).await;
            });
            // An operation of the backend that hangs in the system must not keep the process.
            runtime.shutdown_timeout(Duration::from_secs(1));
        };
        let thread = std::thread::Builder::new().name("kv-store".to_owned()).spawn(run);
        let thread = thread.map_err(OpenError::Thread)?;
        let store = store.recv().map_err(|_| {
            OpenError::Thread(std::io::Error::other("it ended before the store was open"))
        })??;
        let handed = Mutex::default();
        Ok(Self { orders, backups_done, handed, ended, store, thread: Some(thread) })
    }

    /// Queues pages to be kept, each with the parts of the pools it has a place in. Their host
    /// pages must not change until [`Self::backups_done`] has given `id`. Pages the store has no
    /// room for are dropped there, and counted.
    ///
    /// # Errors
    /// The queue is full, or the thread has ended; `id` will not come.
    pub fn backup(&self, id: u64, pages: TierPages, places: Vec<Places>) -> Result<(), TierBusy> {
        let mut handed = lock(&self.handed);
        self.orders.try_send(Order::Backup { id, pages, places }).map_err(|_| TierBusy)?;
        handed.insert(id);
        Ok(())
    }

    /// Adds the ids of backups whose host pages are free to change, in order. Where the thread has
    /// ended, those are all that are left.
    pub fn backups_done(&self, ids: &mut Vec<u64>) {
        // Before the others: what is done by then is among them.
        let ended = self.ended.load(Ordering::Acquire);
        let known = ids.len();
        let mut handed = lock(&self.handed);
        ids.append(&mut lock(&self.backups_done));
        for id in &ids[known..] {
            handed.remove(id);
        }
        if ended {
            ids.extend(std::mem::take(&mut *handed));
        }
    }

    /// Begins to find out how many of `pages` the store has: the most of them, from the first on,
    /// of which the last `tail` have all parts, where those before the first count as having them.
    ///
    /// # Errors
    /// The queue is full.
    pub fn look(&self, pages: TierPages, tail: usize) -> Result<Reading, TierBusy> {
        self.read(|shared| Order::Look { pages, tail, shared })
    }

    /// Begins to read as many of `pages` as there are `places`, each into its own, and with all
    /// parts that has places for.
    ///
    /// # Errors
    /// The queue is full.
    pub fn fetch(&self, pages: TierPages, places: Vec<Places>) -> Result<Reading, TierBusy> {
        self.read(|shared| Order::Fetch { pages, places, shared })
    }

    fn read(&self, order: impl FnOnce(Arc<Shared>) -> Order) -> Result<Reading, TierBusy> {
        let shared = Arc::<Shared>::default();
        self.orders.try_send(order(Arc::clone(&shared))).map_err(|_| TierBusy)?;
        Ok(Reading { shared })
    }

    /// The store, for its statistics.
    #[must_use]
    pub fn store(&self) -> KvStore {
        self.store.clone()
    }

    /// What the store did and holds.
    #[must_use]
    pub fn stats(&self) -> StoreStats {
        self.store.stats()
    }

    /// Takes no more orders, waits up to `limit` for backups, and ends the thread.
    pub fn close(mut self, limit: Duration) {
        self.end(limit);
    }

    fn end(&mut self, limit: Duration) {
        let Some(thread) = self.thread.take() else { return };
        let (done, closed) = oneshot::channel();
        // Full: the thread works through the queue first, and this waits for a place in it.
        if self.orders.blocking_send(Order::Close { limit, done }).is_ok() {
            drop(closed.blocking_recv());
        }
        // A panic there was reported by the thread itself.
        drop(thread.join());
    }
}

impl Drop for StorageTier {
    fn drop(&mut self) {
        self.end(Duration::from_secs(1));
    }
}

/// An answer on its way: pages that were found, or that have arrived in host memory. Dropped, it
/// stops.
#[derive(Debug)]
pub struct Reading {
    shared: Arc<Shared>,
}

impl Reading {
    /// How many leading pages there are so far, and whether that is all.
    #[must_use]
    pub fn there(&self) -> (usize, bool) {
        // Whoever worked at it may be gone with the thread.
        let abandoned = Arc::strong_count(&self.shared) == 1;
        let progress = lock(&self.shared);
        (progress.pages, progress.ended || abandoned)
    }

    /// Ends it and says how many leading pages there are. When this returns, nothing is written to
    /// any of the host pages any more.
    #[must_use]
    pub fn stop(self) -> usize {
        let mut progress = lock(&self.shared);
        progress.stopped = true;
        progress.pages
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        lock(&self.shared).stopped = true;
    }
}

/// The thread's side.
struct Worker {
    store: KvStore,
    host: Arc<dyn HostPages>,
    progress: Wake,
    done: Arc<Mutex<Vec<u64>>>,
}

impl Worker {
    async fn run(self: Arc<Self>, mut orders: mpsc::Receiver<Order>) {
        let readings = TaskTracker::new();
        let page_tokens = self.store.scope().page_tokens as usize;
        while let Some(order) = orders.recv().await {
            match order {
                Order::Backup { id, pages, places } => {
                    for page in placed(&pages, places, page_tokens) {
                        self.backup(page);
                        // Reads that are under way go on between two copies.
                        tokio::task::yield_now().await;
                    }
                    lock(&self.done).push(id);
                    (self.progress)();
                }
                Order::Look { pages, tail, shared } => {
                    let worker = Arc::clone(&self);
                    readings.spawn(async move {
                        let _waking = Waking(Arc::clone(&worker.progress));
                        // Gone before that, also by a panic: the reading has ended then.
                        let shared = shared;
                        worker.look(&pages, tail, &shared).await;
                    });
                }
                Order::Fetch { pages, places, shared } => {
                    let worker = Arc::clone(&self);
                    let pages = placed(&pages, places, page_tokens);
                    readings.spawn(async move {
                        let _waking = Waking(Arc::clone(&worker.progress));
                        let shared = shared;
                        worker.fetch(pages, &shared).await;
                    });
                }
                Order::Close { limit, done } => {
                    self.store.close(limit).await;
                    // Whoever waits for it may be gone.
                    done.send(()).ok();
                    // The runtime drops the readings that are left.
                    return;
                }
            }
        }
    }

    fn backup(&self, page: Placed) {
        let mut parts = Vec::new();
        for (part, shape) in self.store.scope().parts.iter().enumerate() {
            let pool = self.host.pool(part);
            let Some((_, place)) = page.places.iter().find(|(of, _)| *of == pool) else { continue };
            let mut bytes = vec![0; usize::try_from(shape.bytes).expect("checked by the scope")];
            self.host.read(part, *place, &mut bytes);
            parts.push(Part { part, bytes: bytes.into() });
        }
        assert!(!parts.is_empty(), "a page has a place in a pool of the scope");
        // A page that finds the queue full is counted there.
        self.store.put(page.hash, page.tokens, Page { parts }).ok();
    }

    /// Counts pages until one is missing or the other side stopped.
    async fn look(&self, pages: &TierPages, tail: usize, shared: &Shared) {
        let page_tokens = self.store.scope().page_tokens as usize;
        let mut whole = tail;
        for (index, (hash, _)) in pages.named(page_tokens).enumerate() {
            let Some(bytes) = self.store.size(&hash).await else { break };
            whole = if bytes >= self.store.whole_bytes() { whole + 1 } else { 0 };
            let mut progress = lock(shared);
            if progress.stopped {
                break;
            }
            if whole >= tail {
                progress.pages = index + 1;
            }
        }
        lock(shared).ended = true;
    }

    /// Reads pages in order until one is missing or the other side stopped.
    async fn fetch(&self, pages: Vec<Placed>, shared: &Shared) {
        let mut pages = pages.into_iter();
        let mut reading = VecDeque::new();
        let tasks = TaskTracker::new();
        loop {
            while reading.len() < READS_AHEAD {
                let Some(page) = pages.next() else { break };
                let store = self.store.clone();
                reading.push_back(tasks.spawn(async move {
                    let read = store.get(&page.hash, &page.tokens).await;
                    (page, read)
                }));
            }
            let Some(next) = reading.pop_front() else { break };
            let Ok((page, Ok(content))) = next.await else { break };
            if lock(shared).stopped || !self.arrived(&page, &content, shared) {
                break;
            }
            (self.progress)();
        }
        for read in reading {
            read.abort();
        }
        lock(shared).ended = true;
    }

    /// Copies a page into host memory; false where the other side stopped, or the object lacks a
    /// part that the page has a place for.
    fn arrived(&self, page: &Placed, content: &Page, shared: &Shared) -> bool {
        let place = |part: usize| {
            let pool = self.host.pool(part);
            page.places.iter().find(|(of, _)| *of == pool).map(|(_, place)| *place)
        };
        let there = |part: usize| content.parts.iter().any(|other| other.part == part);
        let all = 0..self.store.scope().parts.len();
        if !all.into_iter().all(|part| place(part).is_none() || there(part)) {
            return false;
        }
        let mut progress = lock(shared);
        if progress.stopped {
            return false;
        }
        for part in &content.parts {
            if let Some(place) = place(part.part) {
                self.host.write(part.part, place, &part.bytes);
            }
        }
        progress.pages += 1;
        true
    }
}
