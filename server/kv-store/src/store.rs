//! The store: reads whole pages, queues writes, and keeps within its bytes.

use crate::backend::{Backend, BackendError};
use crate::index::{Index, Name};
use crate::key::{PageHash, Scope, ScopeError};
use crate::object::{self, Page};
use crate::stats::{Counters, DropReason, Miss, StoreStats, add, nanos};
use crate::url::{Credentials, StoreUrl};
use crate::write::{Job, Queue, Turns};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use types::{Bytes, Clock, TokenId};

/// Bounds of a store.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// The most bytes of objects. It holds for what this process knows: what was there when it
    /// opened the store, of all scopes, and what it wrote or read since. Two processes that write
    /// to one place may together hold twice as much until one of them is started again. Files that
    /// are not named like ours do not count, nor do blocks that a file system adds.
    pub max_bytes: Bytes,
    /// Reads that run at once; more wait.
    pub reads: usize,
    /// Writes that run at once.
    pub writes: usize,
    /// The most bytes of pages that wait to be written or are being written; more are dropped.
    pub queue_bytes: Bytes,
    /// How long one operation of the backend may take.
    pub timeout: Duration,
    /// For `s3://`.
    pub credentials: Option<Credentials>,
    /// Measures reads and writes.
    pub clock: Clock,
}

impl StoreOptions {
    /// 8 reads, 4 writes, 256 MiB of queue, 10 s.
    #[must_use]
    pub const fn new(max_bytes: Bytes, clock: Clock) -> Self {
        Self {
            max_bytes,
            reads: 8,
            writes: 4,
            queue_bytes: Bytes(256 << 20),
            timeout: Duration::from_secs(10),
            credentials: None,
            clock,
        }
    }
}

/// Why a store was not opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The scope is out of bounds.
    #[error(transparent)]
    Scope(#[from] ScopeError),
    /// One page would not fit.
    #[error("a store of {max} bytes does not hold one page of {page}: give at least that")]
    TooSmall {
        /// [`StoreOptions::max_bytes`].
        max: u64,
        /// The object of a page with all parts.
        page: u64,
    },
    /// The queue of writes would not hold one page.
    #[error("a queue of {queue} bytes does not hold one page of {page}: give at least that")]
    SmallQueue {
        /// [`StoreOptions::queue_bytes`].
        queue: u64,
        /// The object of a page with all parts.
        page: u64,
    },
    /// This build lacks what the address needs.
    #[error("{url}: this build has no {feature} stores: build with the feature `{feature}`")]
    NotBuilt {
        /// The address.
        url: String,
        /// The feature of this crate.
        feature: &'static str,
    },
    /// `s3://` without credentials.
    #[error("{0}: credentials are missing: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")]
    NoCredentials(String),
    /// The thread of a [`crate::StorageTier`] did not start.
    #[error("the thread of the store did not start: {0}")]
    Thread(#[source] std::io::Error),
    /// The backend could not be set up, or refused to write, read or delete a test object.
    #[error("{url}: cannot {what}: {reason}")]
    Backend {
        /// The address.
        url: String,
        /// What was tried.
        what: &'static str,
        /// The backend's words.
        reason: String,
    },
}

/// A page that was not queued to be written.
#[derive(Debug, Clone, Copy, thiserror::Error, PartialEq, Eq)]
#[error("the page is not written: {}", .0.as_str())]
pub struct NotQueued(pub DropReason);

/// Pages of one scope in one place. Clones are handles to the same store.
///
/// It lives in the async runtime it was opened in: with [`KvStore::close`] its writes end in order;
/// with the last handle dropped, its tasks end after what is queued.
#[derive(Debug, Clone)]
pub struct KvStore {
    inner: Arc<Inner>,
    _handle: Arc<Handle>,
}

/// All clones of a store together.
#[derive(Debug)]
struct Handle(Arc<Inner>);

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.queue.close();
    }
}

/// What is known to be there, and what is on its way in or out.
#[derive(Debug, Default)]
pub(crate) struct Held {
    pub(crate) index: Index,
    /// Bytes of objects being written or being deleted; they count.
    pub(crate) moving: u64,
    pub(crate) listed: bool,
}

impl Held {
    pub(crate) const fn bytes(&self) -> u64 {
        self.index.bytes() + self.moving
    }
}

pub(crate) struct Inner {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) scope: Scope,
    pub(crate) folder: String,
    /// Length of the longest object of the scope.
    pub(crate) object_bytes: u64,
    pub(crate) options: StoreOptions,
    pub(crate) held: Mutex<Held>,
    pub(crate) counters: Counters,
    reads: Semaphore,
    pub(crate) queue: Queue,
    pub(crate) turns: Turns,
    pub(crate) tasks: TaskTracker,
    /// Ends the tasks with what they are at.
    pub(crate) stop: CancellationToken,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KvStore").field("folder", &self.folder).finish_non_exhaustive()
    }
}

impl KvStore {
    /// Opens the store at `url`, after writing, reading and deleting a test object there. What is
    /// there already is counted in the background; reads do not wait for that, writes do.
    ///
    /// # Errors
    /// What is wrong with the arguments, or what the place refuses, each with the address.
    pub async fn open(
        url: &StoreUrl,
        scope: Scope,
        options: StoreOptions,
    ) -> Result<Self, OpenError> {
        let backend = connect(url, &options).await?;
        Self::with_backend(backend, &url.to_string(), scope, options).await
    }

    /// Opens a store on a backend; `place` names it in errors.
    ///
    /// # Errors
    /// As [`KvStore::open`].
    pub async fn with_backend(
        backend: Arc<dyn Backend>,
        place: &str,
        scope: Scope,
        options: StoreOptions,
    ) -> Result<Self, OpenError> {
        scope.check()?;
        let page = object::longest(&scope);
        if options.max_bytes.0 < page {
            return Err(OpenError::TooSmall { max: options.max_bytes.0, page });
        }
        if options.queue_bytes.0 < page {
            return Err(OpenError::SmallQueue { queue: options.queue_bytes.0, page });
        }
        probe(&*backend, place, &options).await?;
        let (queue, jobs) = Queue::new(options.queue_bytes);
        let inner = Arc::new(Inner {
            backend,
            folder: scope.folder(),
            scope,
            object_bytes: page,
            reads: Semaphore::new(options.reads.clamp(1, Semaphore::MAX_PERMITS)),
            options,
            held: Mutex::default(),
            counters: Counters::default(),
            queue,
            turns: Turns::default(),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        });
        crate::write::start(&inner, jobs);
        let handle = Arc::new(Handle(Arc::clone(&inner)));
        Ok(Self { inner, _handle: handle })
    }

    /// The page of `tokens` with the hash `hash`.
    ///
    /// # Errors
    /// Why there is none. An object of ours that broke is deleted.
    pub async fn get(&self, hash: &PageHash, tokens: &[TokenId]) -> Result<Page, Miss> {
        let inner = &*self.inner;
        let permit = inner.reads.acquire().await.expect("it is never closed");
        let start = inner.options.clock.now();
        let result = inner.read(hash, tokens).await;
        let time = inner.options.clock.now().since(start);
        drop(permit);
        add(&inner.counters.read_nanos, nanos(time));
        match result {
            Ok(_) => add(&inner.counters.hits, 1),
            Err(reason) => inner.counters.miss(reason),
        }
        result
    }

    /// The length of the object with this hash, whatever is in it; `None` where there is none,
    /// which counts as a miss, as a failure does. Counts as a use where it is known already.
    pub async fn size(&self, hash: &PageHash) -> Option<u64> {
        let inner = &*self.inner;
        let (name, path) = inner.place(hash);
        if let Some(bytes) = inner.held().index.touch(&name) {
            return Some(bytes);
        }
        let permit = inner.reads.acquire().await.expect("it is never closed");
        let asked = timeout(inner.options.timeout, inner.backend.size(&path)).await;
        drop(permit);
        let miss = match asked {
            Ok(Ok(Some(bytes))) => return Some(bytes),
            Ok(Ok(None)) => Miss::Absent,
            Ok(Err(_)) => Miss::Error,
            Err(_) => Miss::Timeout,
        };
        inner.counters.miss(miss);
        None
    }

    /// The length of the object of a page with all parts; objects with fewer parts are shorter.
    #[must_use]
    pub fn whole_bytes(&self) -> u64 {
        self.inner.object_bytes
    }

    /// Queues a page to be written; never waits. One that is there already is not written again
    /// unless it has more bytes now.
    ///
    /// Panics where the page does not fit the scope or has other than `page_tokens` tokens.
    ///
    /// # Errors
    /// The queue is full or the store is closed; the page is dropped and counted.
    pub fn put(&self, hash: PageHash, tokens: Vec<TokenId>, page: Page) -> Result<(), NotQueued> {
        let bytes = object::length(&self.inner.scope, &page);
        self.inner.queue.push(bytes, Job { hash, tokens, page }).map_err(|reason| {
            self.inner.counters.dropped(reason);
            NotQueued(reason)
        })
    }

    /// What the pages of this store belong to.
    #[must_use]
    pub fn scope(&self) -> &Scope {
        &self.inner.scope
    }

    /// What happened since the store was opened, and what it holds now.
    #[must_use]
    pub fn stats(&self) -> StoreStats {
        let held = self.inner.held();
        StoreStats {
            listed: held.listed,
            entries: held.index.len() as u64,
            held_bytes: held.bytes(),
            max_bytes: self.inner.options.max_bytes.0,
            queued_bytes: self.inner.queue.bytes(),
            ..self.inner.counters.read()
        }
    }

    /// Waits until nothing is queued or being written.
    pub async fn flush(&self) {
        self.inner.queue.empty().await;
    }

    /// Takes no more pages, waits up to `limit` for those that are queued, and ends all tasks; what
    /// is left then is dropped and counted. Reads still work.
    pub async fn close(&self, limit: Duration) {
        self.inner.queue.close();
        self.inner.tasks.close();
        if timeout(limit, self.inner.tasks.wait()).await.is_err() {
            self.inner.stop.cancel();
            self.inner.tasks.wait().await;
        }
    }
}

impl Inner {
    pub(crate) fn held(&self) -> MutexGuard<'_, Held> {
        // A panic elsewhere leaves counts that are right up to one object.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn place(&self, hash: &PageHash) -> (Name, String) {
        let index = &mut self.held().index;
        let name = index.name(&self.folder, hash.name());
        (name, index.path(&name))
    }

    async fn read(&self, hash: &PageHash, tokens: &[TokenId]) -> Result<Page, Miss> {
        let (name, path) = self.place(hash);
        // What another task writes meanwhile is not taken out below.
        let known = self.held().index.stamp(&name);
        let read = self.backend.read(&path, self.object_bytes);
        let miss = match timeout(self.options.timeout, read).await {
            Err(_) => return Err(Miss::Timeout),
            Ok(Err(BackendError::Failed(_))) => return Err(Miss::Error),
            Ok(Err(BackendError::Absent)) => Miss::Absent,
            // Longer than any of ours: its end would not be where its header says.
            Ok(Err(BackendError::TooLong(_))) => Miss::Foreign,
            Ok(Ok(bytes)) => {
                add(&self.counters.read_bytes, bytes.len() as u64);
                match object::decode(&self.scope, hash, tokens, &bytes) {
                    Ok(page) => {
                        self.used(name, known, bytes.len() as u64);
                        return Ok(page);
                    }
                    Err(miss) => miss,
                }
            }
        };
        // What is not a page of ours does not count as held, and a write takes its place.
        let counted = {
            let mut held = self.held();
            let bytes = held.index.remove_if(&name, known).unwrap_or(0);
            held.moving += bytes;
            Moving { inner: self, bytes }
        };
        if miss.is_broken() {
            self.delete_broken(name, &path, counted).await;
        }
        Err(miss)
    }

    /// Notes the use of an object, and the object itself where another process wrote it, or a write
    /// that had been given up; not where that would be over the bound. `known` is its stamp from
    /// before the read: what was written meanwhile is newer than what was read.
    fn used(&self, name: Name, known: Option<u64>, bytes: u64) {
        let mut held = self.held();
        let same = held.index.stamp(&name) == known;
        let before = held.index.touch(&name);
        let news = before.is_none() || (same && before != Some(bytes));
        let others = held.bytes() - before.unwrap_or(0);
        if news && others + bytes <= self.options.max_bytes.0 {
            held.index.insert(name, bytes);
        }
    }

    /// Deletes an object that was taken out of the index; it counts until it is gone.
    async fn delete_broken(&self, name: Name, path: &str, counted: Moving<'_>) {
        let deleted = timeout(self.options.timeout, self.backend.delete(path)).await;
        if matches!(deleted, Ok(Ok(()))) {
            add(&self.counters.broken_deleted, 1);
        } else if counted.bytes > 0 {
            let mut held = self.held();
            let bytes = counted.keep();
            held.moving -= bytes;
            held.index.insert(name, bytes);
        }
    }
}

/// Bytes on their way in or out; they count until this is dropped.
pub(crate) struct Moving<'a> {
    inner: &'a Inner,
    bytes: u64,
}

impl<'a> Moving<'a> {
    /// For bytes that were added under the lock.
    pub(crate) const fn of(inner: &'a Inner, bytes: u64) -> Self {
        Self { inner, bytes }
    }

    /// Leaves the bytes to the caller, who holds the lock.
    pub(crate) fn keep(self) -> u64 {
        let bytes = self.bytes;
        // Dropping would take the lock again.
        std::mem::forget(self);
        bytes
    }
}

impl Drop for Moving<'_> {
    fn drop(&mut self) {
        self.inner.held().moving -= self.bytes;
    }
}

/// Writes, reads and deletes an object: a wrong address or missing rights are known at once.
async fn probe(
    backend: &dyn Backend,
    place: &str,
    options: &StoreOptions,
) -> Result<(), OpenError> {
    // Two processes may open one place at once.
    let path = format!("probe/{}-{}", std::process::id(), options.clock.now().0);
    let failed = |what, reason: String| OpenError::Backend { url: place.to_owned(), what, reason };
    let late = || format!("no answer within {:?}", options.timeout);
    let content = bytes::Bytes::from_static(b"sightline");
    let write = timeout(options.timeout, backend.write(&path, vec![content.clone()])).await;
    let write = write.map_err(|_| failed("write", late()))?;
    write.map_err(|error| failed("write", error.to_string()))?;
    let read = timeout(options.timeout, backend.read(&path, 64)).await;
    let read = read.map_err(|_| failed("read", late()))?;
    let read = read.map_err(|error| failed("read", error.to_string()))?;
    if read != content {
        return Err(failed("read", "what was written came back as something else".to_owned()));
    }
    let delete = timeout(options.timeout, backend.delete(&path)).await;
    let delete = delete.map_err(|_| failed("delete", late()))?;
    delete.map_err(|error| failed("delete", error.to_string()))
}

#[cfg(not(all(feature = "fs", feature = "s3")))]
fn not_built(url: &StoreUrl, feature: &'static str) -> OpenError {
    OpenError::NotBuilt { url: url.to_string(), feature }
}

#[cfg_attr(not(feature = "fs"), expect(clippy::unused_async, reason = "a folder is cleaned"))]
async fn connect(url: &StoreUrl, options: &StoreOptions) -> Result<Arc<dyn Backend>, OpenError> {
    #[cfg(any(feature = "fs", feature = "s3"))]
    let failed = |error: BackendError| OpenError::Backend {
        url: url.to_string(),
        what: "open it",
        reason: error.to_string(),
    };
    #[cfg(not(any(feature = "fs", feature = "s3")))]
    let _: &StoreOptions = options;
    match url {
        #[cfg(feature = "fs")]
        StoreUrl::File(folder) => {
            let backend = crate::backend::OperatorBackend::folder(folder).map_err(failed)?;
            // Nothing of ours takes an hour: whoever wrote it is gone.
            let now = std::time::UNIX_EPOCH
                + Duration::from_secs_f64(options.clock.unix_seconds(options.clock.now()));
            let hour = Duration::from_secs(3600);
            backend.delete_unfinished(now - hour).await.map_err(failed)?;
            Ok(Arc::new(backend))
        }
        #[cfg(not(feature = "fs"))]
        StoreUrl::File(_) => Err(not_built(url, "fs")),
        #[cfg(feature = "s3")]
        StoreUrl::S3 { bucket, prefix, endpoint, region } => {
            let credentials = options.credentials.as_ref();
            let credentials = credentials.ok_or(OpenError::NoCredentials(url.to_string()))?;
            let backend = crate::backend::OperatorBackend::bucket(
                bucket,
                prefix,
                endpoint.as_deref(),
                region,
                credentials,
                options.timeout,
            );
            Ok(Arc::new(backend.map_err(failed)?))
        }
        #[cfg(not(feature = "s3"))]
        StoreUrl::S3 { .. } => Err(not_built(url, "s3")),
    }
}
