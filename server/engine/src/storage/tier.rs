//! Which requests wait for pages from storage, and which runs of pages are on their way there.
//!
//! Of requests that miss the same page, one reads and the others follow: once it is done, they look
//! at what the tiers have then. At most [`READINGS_MAX`] read at a time, in the order of rank.
//!
//! Pure: no clock, no thread, no request.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use admission::Rank;
use kv_cache::{HostReservation, Namespace, NewRun, PoolSet, page_keys};
use types::{Time, TokenId, Tokens};

use super::{PrefetchPolicy, Reading, Storage, StorageStats, StoredPages};

/// Requests whose pages are looked for or read at a time.
const READINGS_MAX: usize = 64;

/// Where the pages of a request are.
enum State {
    /// Another request reads them.
    Following,
    /// Nobody reads them yet.
    Queued,
    /// It is being found out how many there are, from page `from` on.
    Looking { from: usize, reading: Box<dyn Reading> },
    /// They come into host memory.
    Fetching { reservation: HostReservation, reading: Box<dyn Reading> },
}

/// A request that may get pages.
struct Entry {
    /// Names the first page that it misses.
    key: u64,
    deadline: Option<Time>,
    state: State,
}

/// What the storage had for a request: positions of the text whose pages have come into host
/// memory, without those that somebody computed meanwhile. Empty: none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Arrival {
    pub(crate) rank: Rank,
    pub(crate) tokens: Range<usize>,
}

/// The text of a request.
pub(crate) type Text<'a> = (&'a Namespace, &'a [TokenId]);

/// See the module.
pub(crate) struct StorageTier {
    storage: Box<dyn Storage>,
    policy: PrefetchPolicy,
    /// Fewer tokens are not worth reading.
    threshold: usize,
    page_tokens: usize,
    /// Pages before the end of a prefix that it needs in the pools with a window.
    tail: usize,
    entries: BTreeMap<Rank, Entry>,
    /// Those of them that look or fetch.
    active: BTreeSet<Rank>,
    /// By the page that they miss: those that look, fetch or follow.
    keys: BTreeMap<u64, BTreeSet<Rank>>,
    queued: BTreeSet<Rank>,
    deadlines: BTreeSet<(Time, Rank)>,
    /// Runs of which the storage has not said yet that it has read them.
    backups: BTreeSet<u64>,
    stats: StorageStats,
    /// Scratch.
    runs: Vec<NewRun>,
    done: Vec<u64>,
    ranks: Vec<Rank>,
}

impl StorageTier {
    /// A tier behind the host tier of `pools`.
    pub(crate) fn new(
        storage: Box<dyn Storage>,
        policy: PrefetchPolicy,
        threshold: usize,
        pools: &PoolSet,
    ) -> Self {
        let specs = pools.specs();
        let page_tokens = specs[0].page_tokens;
        let seen = |window: usize| window.saturating_sub(1).div_ceil(page_tokens);
        Self {
            storage,
            policy,
            threshold: threshold.max(1),
            page_tokens,
            tail: specs.iter().filter_map(|spec| spec.window.map(seen)).max().unwrap_or(0),
            entries: BTreeMap::new(),
            active: BTreeSet::new(),
            keys: BTreeMap::new(),
            queued: BTreeSet::new(),
            deadlines: BTreeSet::new(),
            backups: BTreeSet::new(),
            stats: StorageStats::default(),
            runs: Vec::new(),
            done: Vec::new(),
            ranks: Vec::new(),
        }
    }

    /// See [`Storage::woken_by`].
    pub(crate) fn woken_by(&mut self, wake: Box<dyn Fn() + Send + Sync>) {
        self.storage.woken_by(wake);
    }

    /// Hands over the pages that are new in host memory, and lets go of those that were read.
    pub(crate) fn back_up(&mut self, pools: &PoolSet) {
        pools.take_new_runs(&mut self.runs);
        for NewRun { id, namespace, tokens, first, pages } in self.runs.drain(..) {
            let count = pages.len() as u64;
            match self.storage.backup(id, StoredPages { namespace, tokens, first }, pages) {
                Ok(()) => drop(self.backups.insert(id)),
                Err(super::StorageBusy) => {
                    self.stats.backups_dropped += count;
                    pools.release_run(id);
                }
            }
        }
        if self.backups.is_empty() {
            return;
        }
        self.storage.backups_done(&mut self.done);
        for id in self.done.drain(..) {
            self.backups.remove(&id);
            pools.release_run(id);
        }
    }

    /// Whether pages are on their way out of host memory.
    pub(crate) fn backs_up(&self) -> bool {
        !self.backups.is_empty()
    }

    /// A request came in. Whether it stands aside until [`poll`](Self::poll) has an arrival for it;
    /// with a policy that does not wait, [`end`](Self::end) says at its turn what has come.
    pub(crate) fn begin(&mut self, rank: Rank, now: Time, text: Text<'_>, pools: &PoolSet) -> bool {
        let from = self.local(text, pools);
        let missing = self.limit(text).saturating_sub(from) * self.page_tokens;
        if missing < self.threshold {
            return false;
        }
        let deadline = self.policy.deadline(now, Tokens(missing as u64));
        self.entries.insert(rank, Entry { key: 0, deadline, state: State::Queued });
        if let Some(deadline) = deadline {
            self.deadlines.insert((deadline, rank));
        }
        if !self.start(rank, from, text) {
            self.remove(rank);
            return false;
        }
        self.policy.waits()
    }

    /// Whole pages of a text of which the last token is not one.
    fn limit(&self, (_, tokens): Text<'_>) -> usize {
        tokens.len().saturating_sub(1) / self.page_tokens
    }

    /// Pages of the longest prefix on device and host.
    fn local(&self, (namespace, tokens): Text<'_>, pools: &PoolSet) -> usize {
        pools.cached_prefix(namespace, tokens).tokens / self.page_tokens
    }

    /// Looks for the pages of an entry from page `from` on, follows somebody who does, or queues.
    /// `false`: the storage takes no more.
    fn start(&mut self, rank: Rank, from: usize, (namespace, tokens): Text<'_>) -> bool {
        let limit = self.limit((namespace, tokens));
        let first = &tokens[..(from + 1) * self.page_tokens];
        let key = page_keys(namespace, first, self.page_tokens).pop().expect("a whole page");
        let state = if self.keys.contains_key(&key) {
            State::Following
        } else if self.active.len() >= READINGS_MAX {
            State::Queued
        } else {
            let tokens = tokens[..limit * self.page_tokens].to_vec();
            let pages = StoredPages { namespace: namespace.clone(), tokens, first: from };
            let Ok(reading) = self.storage.look(pages, self.tail) else {
                self.stats.busy += 1;
                return false;
            };
            self.stats.lookups += 1;
            State::Looking { from, reading }
        };
        match &state {
            State::Queued => drop(self.queued.insert(rank)),
            State::Following => drop(self.keys.entry(key).or_default().insert(rank)),
            State::Looking { .. } | State::Fetching { .. } => {
                self.keys.entry(key).or_default().insert(rank);
                self.active.insert(rank);
            }
        }
        let entry = self.entries.get_mut(&rank).expect("the caller has one");
        (entry.key, entry.state) = (key, state);
        true
    }

    /// Goes on with what has been read. Adds the requests that need not wait any more, in no
    /// particular order; `text` gives the text of each that does.
    pub(crate) fn poll<'a>(
        &mut self,
        now: Time,
        pools: &PoolSet,
        text: impl Fn(Rank) -> Text<'a>,
        arrivals: &mut Vec<Arrival>,
    ) {
        if self.entries.is_empty() {
            return;
        }
        let mut ranks = std::mem::take(&mut self.ranks);
        ranks.extend(&self.active);
        for rank in ranks.drain(..) {
            self.advance(rank, pools, &text, arrivals);
        }
        self.ranks = ranks;
        while let Some(&(deadline, rank)) = self.deadlines.first()
            && deadline <= now
        {
            self.stats.timeouts += 1;
            self.finish(rank, pools, &text, arrivals);
        }
        while self.active.len() < READINGS_MAX
            && let Some(rank) = self.queued.pop_first()
        {
            self.again(rank, pools, &text, arrivals);
        }
    }

    fn advance<'a>(
        &mut self,
        rank: Rank,
        pools: &PoolSet,
        text: &impl Fn(Rank) -> Text<'a>,
        arrivals: &mut Vec<Arrival>,
    ) {
        let entry = self.entries.get(&rank).expect("an active one has an entry");
        match &entry.state {
            State::Looking { from, reading } => {
                let (pages, true) = reading.there() else { return };
                let (limit, key) = (from + pages, entry.key);
                if pages * self.page_tokens >= self.threshold {
                    self.stats.found += 1;
                    if self.fetch(rank, limit, text(rank), pools) {
                        return;
                    }
                } else {
                    self.absent(key, rank, arrivals);
                }
            }
            State::Fetching { reservation, reading } => {
                let (pages, ended) = reading.there();
                if !ended && pages < reservation.pages.len() {
                    return;
                }
            }
            State::Following | State::Queued => unreachable!("it is active"),
        }
        self.finish(rank, pools, text, arrivals);
    }

    /// Begins to read the pages of an entry up to page `limit`, as far as the host has room.
    fn fetch(&mut self, rank: Rank, limit: usize, text: Text<'_>, pools: &PoolSet) -> bool {
        let (namespace, tokens) = text;
        let Some(reservation) = pools.reserve_host(namespace, tokens, limit) else {
            // Somebody may have computed them meanwhile.
            self.stats.no_host_room += u64::from(self.local(text, pools) < limit);
            return false;
        };
        let first = reservation.first;
        let end = (first + reservation.pages.len()) * self.page_tokens;
        let (namespace, tokens) = (namespace.clone(), tokens[..end].to_vec());
        let places = reservation.pages.clone();
        let Ok(reading) = self.storage.fetch(StoredPages { namespace, tokens, first }, places)
        else {
            self.stats.busy += 1;
            pools.commit_host(reservation, 0);
            return false;
        };
        self.stats.asked_pages += reservation.pages.len() as u64;
        let entry = self.entries.get_mut(&rank).expect("the caller has one");
        entry.state = State::Fetching { reservation, reading };
        true
    }

    /// The page that an entry misses is not there: those that follow it need not look.
    fn absent(&mut self, key: u64, leader: Rank, arrivals: &mut Vec<Arrival>) {
        for rank in self.keys.remove(&key).into_iter().flatten().filter(|rank| *rank != leader) {
            self.remove(rank);
            arrivals.push(Arrival { rank, tokens: 0..0 });
        }
    }

    /// Ends an entry with what is there, tells so, and lets those that follow it go on.
    fn finish<'a>(
        &mut self,
        rank: Rank,
        pools: &PoolSet,
        text: &impl Fn(Rank) -> Text<'a>,
        arrivals: &mut Vec<Arrival>,
    ) {
        let Some((tokens, led)) = self.take(rank, pools) else { return };
        arrivals.push(Arrival { rank, tokens });
        if let Some(key) = led {
            self.free_followers(key, pools, text, arrivals);
        }
    }

    /// The request leaves: it is its turn, or it has ended. What has come for it; `None` where it
    /// was not waiting for anything.
    pub(crate) fn end<'a>(
        &mut self,
        rank: Rank,
        pools: &PoolSet,
        text: impl Fn(Rank) -> Text<'a>,
        arrivals: &mut Vec<Arrival>,
    ) -> Option<Range<usize>> {
        let (tokens, led) = self.take(rank, pools)?;
        if let Some(key) = led {
            self.free_followers(key, pools, &text, arrivals);
        }
        Some(tokens)
    }

    /// Takes an entry out with what has come for it, and the key of those that may follow it.
    fn take(&mut self, rank: Rank, pools: &PoolSet) -> Option<(Range<usize>, Option<u64>)> {
        let Entry { key, state, .. } = self.remove(rank)?;
        Some(match state {
            State::Following | State::Queued => (0..0, None),
            State::Looking { .. } => (0..0, Some(key)),
            State::Fetching { reservation, reading } => {
                let pages = reading.stop();
                // Those that entered are the last: somebody may have computed others meanwhile.
                let end = reservation.first + pages;
                let entered = pools.commit_host(reservation, pages);
                let (first, end) = (end - entered, end);
                self.stats.arrived_pages += pages as u64;
                self.stats.entered_pages += entered as u64;
                (first * self.page_tokens..end * self.page_tokens, Some(key))
            }
        })
    }

    fn remove(&mut self, rank: Rank) -> Option<Entry> {
        let entry = self.entries.remove(&rank)?;
        self.active.remove(&rank);
        self.queued.remove(&rank);
        if let Some(sharing) = self.keys.get_mut(&entry.key) {
            sharing.remove(&rank);
            if sharing.is_empty() {
                self.keys.remove(&entry.key);
            }
        }
        if let Some(deadline) = entry.deadline {
            self.deadlines.remove(&(deadline, rank));
        }
        Some(entry)
    }

    fn free_followers<'a>(
        &mut self,
        key: u64,
        pools: &PoolSet,
        text: &impl Fn(Rank) -> Text<'a>,
        arrivals: &mut Vec<Arrival>,
    ) {
        for rank in self.keys.remove(&key).into_iter().flatten() {
            self.again(rank, pools, text, arrivals);
        }
    }

    /// Looks again at what an entry misses now.
    fn again<'a>(
        &mut self,
        rank: Rank,
        pools: &PoolSet,
        text: &impl Fn(Rank) -> Text<'a>,
        arrivals: &mut Vec<Arrival>,
    ) {
        let from = self.local(text(rank), pools);
        let missing = self.limit(text(rank)).saturating_sub(from) * self.page_tokens;
        if missing < self.threshold || !self.start(rank, from, text(rank)) {
            self.remove(rank);
            arrivals.push(Arrival { rank, tokens: 0..0 });
        }
    }

    /// When the next request stops waiting, whatever comes.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// What happened so far, and what is under way.
    pub(crate) fn stats(&self) -> StorageStats {
        StorageStats {
            reading: self.active.len(),
            queued: self.entries.len() - self.active.len(),
            backups: self.backups.len(),
            ..self.stats
        }
    }

    /// Lets go of all host pages: nobody writes to them any more, so that what still reads them may
    /// go on. No request may be left.
    pub(crate) fn close(&mut self, pools: &PoolSet) {
        assert!(self.entries.is_empty(), "requests end before their storage");
        pools.take_new_runs(&mut self.runs);
        let never = self.runs.drain(..).map(|run| run.id);
        for id in std::mem::take(&mut self.backups).into_iter().chain(never) {
            pools.release_run(id);
        }
    }
}
