//! A tier of pages behind the host's, which outlives the process, as the engine sees it.
//!
//! Whoever keeps the bytes implements [`Storage`], none of whose methods may wait. Pages go there
//! once they are in host memory, and stay pinned there until they were read. For a request that
//! comes in, pages behind its longest prefix on device and host are looked for; those that are
//! there are read into reserved host pages, and then are pages of the host tier like any other.
//! Meanwhile the request stands aside for as long as the [`PrefetchPolicy`] says, and others are
//! served.

mod prefetch;
mod tier;

use types::{PageId, PoolId, TokenId};

use kv_cache::Namespace;

pub use prefetch::{PrefetchPolicy, PrefetchTimeout};
pub(crate) use tier::{Arrival, StorageTier, Text};

/// The host page of a page in each pool that has one.
pub type Places = Vec<(PoolId, PageId)>;

/// The pages of a text from one on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredPages {
    /// Whose they are.
    pub namespace: Namespace,
    /// The text from its beginning to the end of the last page; whole pages.
    pub tokens: Vec<TokenId>,
    /// The number of the first page.
    pub first: usize,
}

/// There are too many orders already; nothing was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StorageBusy;

/// Keeps pages by their texts. Dropped, it keeps what was handed to it as far as it can in a
/// bounded time.
pub trait Storage: Send {
    /// `wake` is to be called, from any thread, whenever a backup is done or a reading goes on.
    /// Comes once, before everything else.
    fn woken_by(&mut self, wake: Box<dyn Fn() + Send + Sync>);

    /// Keeps pages, each with what it has in the pools of its places. Their host pages do not
    /// change until [`backups_done`](Self::backups_done) has given `id`.
    ///
    /// # Errors
    /// Too many orders; `id` will not come.
    fn backup(
        &mut self,
        id: u64,
        pages: StoredPages,
        places: Vec<Places>,
    ) -> Result<(), StorageBusy>;

    /// Adds the ids of backups whose host pages may change again.
    fn backups_done(&mut self, ids: &mut Vec<u64>);

    /// Finds out how many of `pages` are kept: the most of them, from the first on, of which the
    /// last `tail` are kept with what they have in every pool, where pages before the first count
    /// as such.
    ///
    /// # Errors
    /// Too many orders.
    fn look(&mut self, pages: StoredPages, tail: usize) -> Result<Box<dyn Reading>, StorageBusy>;

    /// Reads `pages` into their places, in order, up to the first that is not kept with all of
    /// them.
    ///
    /// # Errors
    /// Too many orders.
    fn fetch(
        &mut self,
        pages: StoredPages,
        places: Vec<Places>,
    ) -> Result<Box<dyn Reading>, StorageBusy>;
}

/// Pages that are being looked for or read. Dropped, it stops.
pub trait Reading: Send {
    /// How many leading pages there are so far, and whether that is all that will ever be.
    fn there(&self) -> (usize, bool);

    /// Ends it, and says how many leading pages there are. When this returns, nothing is written to
    /// host memory any more.
    fn stop(self: Box<Self>) -> usize;
}

/// What the engine did with its storage since it started, and what is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StorageStats {
    /// Requests whose pages are being looked for or read.
    pub reading: usize,
    /// Requests that wait for others to read the same pages, or for their turn to read.
    pub queued: usize,
    /// Runs of pages that are being copied out of host memory.
    pub backups: usize,
    /// Prefixes that were looked for.
    pub lookups: u64,
    /// Of these, those of which at least as much as a load must save was there.
    pub found: u64,
    /// Pages that were to be read.
    pub asked_pages: u64,
    /// Of these, those that came, and came in time.
    pub arrived_pages: u64,
    /// Of these, those that became pages of the host tier; the others were there already, or what
    /// comes before them had gone.
    pub entered_pages: u64,
    /// Requests that stopped waiting because their time was up.
    pub timeouts: u64,
    /// Prefixes that were found and for which the host had no room.
    pub no_host_room: u64,
    /// Prefixes that were not looked for or not read, because there were too many orders.
    pub busy: u64,
    /// Pages that were not kept, because there were too many orders.
    pub backups_dropped: u64,
}
