//! All pools of a model with the prefix cache over their pages, shared by whoever needs them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use types::{PoolId, Time, TokenId};

use crate::ages::Age;
use crate::claims::Claims;
use crate::hash::{HashFn, page_hash};
use crate::host::{CopyEnd, CopyOrder, HostStats, HostTier};
use crate::layout::PoolSpec;
use crate::namespace::Namespace;
use crate::pool::{Pool, PoolStats};
use crate::retention::Retention;
use crate::state::State;
use crate::table::PageTable;
use crate::tier::Tier;

/// How the pages are shared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheOptions {
    /// Whether pages stay cached for later requests with the same prefix. Needs pools of equal
    /// `page_tokens`, one of them at least without a window.
    pub enabled: bool,
    /// The tier behind the device; without one, pages that the device drops are gone. Needs
    /// `enabled`.
    pub host: Option<HostTier>,
    /// Which computed pages keep their part in a window pool.
    pub retention: Retention,
}

impl CacheOptions {
    /// No tier behind the device, and the default retention.
    #[must_use]
    pub const fn device_only(enabled: bool) -> Self {
        Self { enabled, host: None, retention: Retention::TailBranch }
    }
}

/// A prefix that could be taken now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CachedPrefix {
    /// Its tokens, whole pages.
    pub tokens: usize,
    /// Of these, those that the device alone would not give: pages of them would be loaded from the
    /// host. Their pages cost room on the device, as cached pages that nobody holds do.
    pub host_tokens: usize,
    /// Of its pages, those that some table holds already: taking them costs no room. Counted in
    /// the pools without a window.
    pub held_pages: usize,
}

/// All pools of a model, by `PoolId`, and the prefix cache over them. Clones share them. The lock
/// is taken by one thread in practice; any other may read.
#[derive(Debug, Clone)]
pub struct PoolSet {
    specs: Arc<[PoolSpec]>,
    state: Arc<Mutex<State>>,
    options: CacheOptions,
    hash: HashFn,
}

impl PoolSet {
    /// Whether the pages of such pools can be cached: what [`CacheOptions::enabled`] needs.
    #[must_use]
    pub fn can_cache(specs: &[PoolSpec]) -> bool {
        let equal = specs.windows(2).all(|pair| pair[0].page_tokens == pair[1].page_tokens);
        equal && specs.iter().any(|spec| spec.window.is_none())
    }

    /// One pool per spec, in the order of `PoolId`.
    ///
    /// # Panics
    /// Without any spec, with 2^16 or more, where a spec is out of range, where the cache is
    /// enabled and the pools do not fit together, or where there is a tier without a cache, or with
    /// fewer pages than the device in some pool.
    #[must_use]
    pub fn new(specs: Vec<PoolSpec>, options: CacheOptions) -> Self {
        Self::with_hash(specs, options, page_hash)
    }

    /// As [`new`](Self::new), with another hash function for pages: a weak one shows whether
    /// anything relies on it.
    pub(crate) fn with_hash(specs: Vec<PoolSpec>, options: CacheOptions, hash: HashFn) -> Self {
        assert!(!specs.is_empty(), "a model has at least one pool");
        assert!(u16::try_from(specs.len()).is_ok(), "a pool id has 16 bits");
        let fit = !options.enabled || Self::can_cache(&specs);
        assert!(fit, "cached pools have pages of equal length, and one of them has no window");
        let mut state = State::new(specs.clone(), hash);
        state.tier = options.host.as_ref().map(|host| {
            assert!(options.enabled, "a tier is one of cached pages");
            Tier::new(&specs, host)
        });
        let state = Arc::new(Mutex::new(state));
        Self { specs: specs.into(), state, options, hash }
    }

    /// An empty page table over these pools.
    #[must_use]
    pub fn table(&self) -> PageTable {
        PageTable::new(self.clone())
    }

    /// The pools' geometries in the order of `PoolId`.
    #[must_use]
    pub fn specs(&self) -> &[PoolSpec] {
        &self.specs
    }

    /// Pages of `pool` that a table could have now: free ones, and cached ones that nobody holds.
    /// Pages that are being copied are none of them ([`copying`](Self::copying)); pages that would
    /// be copied as they leave the device (write-back) are: that copy is ordered, and urgent, when
    /// a table takes them.
    ///
    /// # Panics
    /// When the model has no such pool.
    #[must_use]
    pub fn available(&self, pool: PoolId) -> usize {
        self.lock().pools[usize::from(pool.0)].available()
    }

    /// Pages of `pool` that only running copies hold: they can be had as soon as those end.
    ///
    /// # Panics
    /// When the model has no such pool.
    #[must_use]
    pub fn copying(&self, pool: PoolId) -> usize {
        self.lock().pools[usize::from(pool.0)].copying
    }

    /// Usage of each pool, in the order of `PoolId`.
    pub fn stats(&self) -> impl Iterator<Item = PoolStats> {
        (0..self.specs.len()).map(|pool| {
            let state = self.lock();
            let queries = state.query_tokens;
            Pool::stats(&state.pools[pool], queries)
        })
    }

    /// Whether pages stay cached.
    #[must_use]
    pub const fn is_enabled(&self) -> bool {
        self.options.enabled
    }

    /// What [`PageTable::attach_prefix`] on an empty table would take now. Changes nothing, not
    /// even the order in which pages are dropped.
    #[must_use]
    pub fn cached_prefix(&self, namespace: &Namespace, tokens: &[TokenId]) -> CachedPrefix {
        let Some(page_tokens) = self.cached_page_tokens() else { return CachedPrefix::default() };
        let limit = tokens.len().saturating_sub(1) / page_tokens;
        let found = self.lock().find(namespace, tokens, limit, |_| 0);
        CachedPrefix {
            tokens: found.pages * page_tokens,
            host_tokens: found.gained * page_tokens,
            held_pages: found.held,
        }
    }

    /// Drops every cached page that nobody holds, and lets nobody find the pages in use: they are
    /// free as soon as the tables that hold them let go. For changed weights, and for rows that
    /// turned out to be rubbish.
    pub fn flush(&self) {
        self.lock().flush();
    }

    /// Moves the orders to copy that came up since the last call behind those in `to`, in the order
    /// in which they must be carried out. None come up without a host tier.
    pub fn take_copies(&self, to: &mut Vec<CopyOrder>) {
        if let Some(tier) = &mut self.lock().tier {
            tier.take_copies(to);
        }
    }

    /// The order `id` was carried out, or not. Orders of one direction end in the order in which
    /// they were given, but for the last ones: they may be dropped, oldest first, while others run.
    ///
    /// # Panics
    /// When no order with this id is being carried out.
    pub fn finish_copy(&self, id: u64, result: CopyEnd) {
        self.lock().finish_copy(id, result);
    }

    /// Usage of each pool's host pages, in the order of `PoolId`; `None` without a host tier.
    #[must_use]
    pub fn host_stats(&self) -> Option<Vec<HostStats>> {
        let pools = (0..).take(self.specs.len()).map(PoolId);
        pools.map(|pool| self.host_stats_of(pool)).collect()
    }

    /// Usage of the host pages of `pool`; `None` without a host tier.
    ///
    /// # Panics
    /// When the model has no such pool.
    #[must_use]
    pub fn host_stats_of(&self, pool: PoolId) -> Option<HostStats> {
        self.lock().tier.as_ref().map(|tier| tier.stats(usize::from(pool.0)))
    }

    /// Changes how many host pages `pool` has: more at once, fewer as far as copies and readers
    /// allow that run now, and not below the pages of the device. Host pages beyond the new number
    /// are given up, whenever they were used, and pages of the device lose their copies there.
    /// Returns how many there are now; `None` without a host tier. Asked again when copies have
    /// ended, it comes nearer. The bytes are the caller's: before it grows, behind it when it
    /// shrinks.
    ///
    /// # Panics
    /// When the model has no such pool.
    pub fn set_host_pages(&self, pool: PoolId, pages: usize) -> Option<usize> {
        self.lock().set_host_pages(usize::from(pool.0), pages)
    }

    /// Tells the time, for [`take_ages`](Self::take_ages). Without it no ages are noted.
    pub fn set_now(&self, now: Time) {
        self.lock().now = Some(now);
    }

    /// Moves how long pages had lain unused that were given up or used again since the last call to
    /// `to`. A thousand entries and a few more are kept until then; what comes beyond is counted
    /// with the last one of its kind.
    pub fn take_ages(&self, to: &mut Vec<Age>) {
        to.append(&mut self.lock().ages);
    }

    /// An empty set of claims for these pools.
    #[must_use]
    pub fn claims(&self) -> Claims {
        Claims::new(self.hash)
    }

    /// Which computed pages keep their part in a window pool.
    pub(crate) const fn retention(&self) -> Retention {
        self.options.retention
    }

    /// Tokens of a page, where pages are cached.
    pub(crate) fn cached_page_tokens(&self) -> Option<usize> {
        self.options.enabled.then(|| self.specs[0].page_tokens)
    }

    /// No method leaves the state half changed.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
