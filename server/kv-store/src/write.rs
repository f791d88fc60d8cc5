//! The way in: a bounded queue, tasks that write, and room made by evicting what was not used for
//! the longest time.

use crate::backend::Listed;
use crate::index::Name;
use crate::key::{self, PageHash};
use crate::object::{self, Page};
use crate::stats::{DropReason, add, nanos};
use crate::store::{Inner, Moving};
use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::{sleep, timeout};
use types::{Bytes, TokenId};

/// Pages that wait, at most, whatever their size.
const QUEUE_PAGES: usize = 16_384;
/// A permit of the queue stands for so many bytes.
const PERMIT_BYTES: u64 = 1024;
/// How long to wait before listing again what could not be listed.
const LIST_AGAIN: Duration = Duration::from_secs(10);

/// A page to be written.
pub(crate) struct Job {
    pub(crate) hash: PageHash,
    pub(crate) tokens: Vec<TokenId>,
    pub(crate) page: Page,
}

/// A job with its share of the queue, which it gives back when it ends, however it ends.
pub(crate) struct Queued {
    job: Job,
    bytes: u64,
    waiting: watch::Sender<u64>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Queued {
    fn drop(&mut self) {
        self.waiting.send_modify(|bytes| *bytes -= self.bytes);
    }
}

/// The sending side of the queue.
pub(crate) struct Queue {
    room: Arc<Semaphore>,
    sender: Mutex<Option<mpsc::Sender<Queued>>>,
    /// Bytes of objects that wait or are being written.
    waiting: watch::Sender<u64>,
}

impl Queue {
    pub(crate) fn new(bytes: Bytes) -> (Self, mpsc::Receiver<Queued>) {
        let (sender, jobs) = mpsc::channel(QUEUE_PAGES);
        let permits = usize::try_from(bytes.0.div_ceil(PERMIT_BYTES)).unwrap_or(usize::MAX);
        let room = Arc::new(Semaphore::new(permits.min(Semaphore::MAX_PERMITS)));
        let waiting = watch::Sender::new(0);
        (Self { room, sender: Mutex::new(Some(sender)), waiting }, jobs)
    }

    pub(crate) fn push(&self, bytes: u64, job: Job) -> Result<(), DropReason> {
        let sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        let sender = sender.as_ref().ok_or(DropReason::Closed)?;
        let permits = u32::try_from(bytes.div_ceil(PERMIT_BYTES)).unwrap_or(u32::MAX);
        let permit = Arc::clone(&self.room).try_acquire_many_owned(permits);
        let permit = permit.map_err(|_| DropReason::QueueFull)?;
        self.waiting.send_modify(|waiting| *waiting += bytes);
        let queued = Queued { job, bytes, waiting: self.waiting.clone(), _permit: permit };
        sender.try_send(queued).map_err(|error| match error {
            TrySendError::Full(_) => DropReason::QueueFull,
            TrySendError::Closed(_) => DropReason::Closed,
        })
    }

    pub(crate) fn close(&self) {
        drop(self.sender.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    pub(crate) fn bytes(&self) -> u64 {
        *self.waiting.borrow()
    }

    pub(crate) async fn empty(&self) {
        let mut waiting = self.waiting.subscribe();
        waiting.wait_for(|bytes| *bytes == 0).await.expect("the sender is in self");
    }
}

/// One write at a time for each object: of two with different parts, the longer must be what stays.
#[derive(Default)]
pub(crate) struct Turns {
    writing: Mutex<HashSet<Name>>,
    ended: Notify,
}

/// Nobody else writes the object until this is dropped.
struct Turn<'a> {
    turns: &'a Turns,
    name: Name,
}

impl Turns {
    async fn of(&self, name: Name) -> Turn<'_> {
        loop {
            // Before the look: an end between the two is heard.
            let ended = self.ended.notified();
            if self.writing.lock().unwrap_or_else(PoisonError::into_inner).insert(name) {
                return Turn { turns: self, name };
            }
            ended.await;
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let Self { turns, name } = self;
        turns.writing.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
        turns.ended.notify_waiters();
    }
}

type Jobs = Arc<tokio::sync::Mutex<mpsc::Receiver<Queued>>>;

/// Starts the task that lists, and the tasks that write after it.
pub(crate) fn start(inner: &Arc<Inner>, jobs: mpsc::Receiver<Queued>) {
    // The tasks must not keep the sender alive: with the last handle gone, the queue ends.
    let inner = Arc::clone(inner);
    let jobs: Jobs = Arc::new(tokio::sync::Mutex::new(jobs));
    let tasks = inner.tasks.clone();
    tasks.spawn(async move {
        let stop = inner.stop.clone();
        if stop.run_until_cancelled(list(&inner)).await.is_none() {
            drain(&inner, &jobs).await;
            return;
        }
        for _ in 0..inner.options.writes.max(1) {
            let (inner, jobs) = (Arc::clone(&inner), Arc::clone(&jobs));
            let tasks = inner.tasks.clone();
            tasks.spawn(async move { work(&inner, &jobs).await });
        }
    });
}

/// Counts what is there, then evicts down to the bound.
async fn list(inner: &Inner) {
    loop {
        let mut found: Vec<(u64, Name, u64)> = Vec::new();
        let mut note = |listed: Listed| {
            if let Some((folder, page)) = key::parse(&listed.path) {
                let name = inner.held().index.name(folder, page);
                found.push((listed.modified, name, listed.bytes));
            }
        };
        if inner.backend.list(&mut note).await.is_err() {
            sleep(LIST_AGAIN).await;
            continue;
        }
        found.sort_unstable_by_key(|(modified, _, _)| *modified);
        {
            let mut held = inner.held();
            held.index.insert_older(found.into_iter().map(|(_, name, bytes)| (name, bytes)));
            held.listed = true;
        }
        // What cannot be deleted now is tried again by the next write.
        drop(make_room(inner, 0).await);
        return;
    }
}

async fn work(inner: &Inner, jobs: &Jobs) {
    loop {
        let next = async { jobs.lock().await.recv().await };
        let Some(queued) = inner.stop.run_until_cancelled(next).await else {
            drain(inner, jobs).await;
            return;
        };
        let Some(queued) = queued else { return };
        let start = inner.options.clock.now();
        let written = inner.stop.run_until_cancelled(write(inner, &queued.job)).await;
        let time = inner.options.clock.now().since(start);
        add(&inner.counters.write_nanos, nanos(time));
        if let Err(reason) = written.unwrap_or(Err(DropReason::Closed)) {
            inner.counters.dropped(reason);
        }
    }
}

/// Drops what is queued.
async fn drain(inner: &Inner, jobs: &Jobs) {
    let mut jobs = jobs.lock().await;
    while jobs.try_recv().is_ok() {
        inner.counters.dropped(DropReason::Closed);
    }
}

async fn write(inner: &Inner, job: &Job) -> Result<(), DropReason> {
    let bytes = object::length(&inner.scope, &job.page);
    let (name, path) = inner.place(&job.hash);
    let _turn = inner.turns.of(name).await;
    let known = inner.held().index.touch(&name);
    if known.is_some_and(|known| known >= bytes) {
        add(&inner.counters.present, 1);
        return Ok(());
    }
    let moving = make_room(inner, bytes).await?;
    let pieces = object::encode(&inner.scope, &job.hash, &job.tokens, &job.page);
    let result = timeout(inner.options.timeout, inner.backend.write(&path, pieces)).await;
    let result = match result {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err(DropReason::Error),
        Err(_) => Err(DropReason::Timeout),
    };
    if result != Err(DropReason::Error) {
        // After a timeout it may be there or come: it counts, and a read finds out.
        let mut held = inner.held();
        held.moving -= moving.keep();
        held.index.insert(name, bytes);
    }
    if result.is_ok() {
        add(&inner.counters.writes, 1);
        add(&inner.counters.written_bytes, bytes);
    }
    result
}

/// Evicts until `bytes` more fit, and reserves them.
async fn make_room(inner: &Inner, bytes: u64) -> Result<Moving<'_>, DropReason> {
    loop {
        let (name, path, evicted) = {
            let mut held = inner.held();
            if held.bytes() + bytes <= inner.options.max_bytes.0 {
                held.moving += bytes;
                return Ok(Moving::of(inner, bytes));
            }
            let (name, evicted) = held.index.pop_oldest().ok_or(DropReason::NoRoom)?;
            held.moving += evicted;
            (name, held.index.path(&name), evicted)
        };
        let moving = Moving::of(inner, evicted);
        let deleted = timeout(inner.options.timeout, inner.backend.delete(&path)).await;
        let failed = match deleted {
            Ok(Ok(())) => {
                add(&inner.counters.evictions, 1);
                continue;
            }
            Ok(Err(_)) => DropReason::Error,
            Err(_) => DropReason::Timeout,
        };
        // It is still there and counts; others are tried first.
        let mut held = inner.held();
        held.moving -= moving.keep();
        held.index.insert(name, evicted);
        return Err(failed);
    }
}
