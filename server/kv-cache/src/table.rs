//! The page table of a request: one list of pages per pool, grown together, let go of by drop.

use types::{PageId, PoolId, TokenId};

use crate::claims::Claims;
use crate::host::Attached;
use crate::namespace::Namespace;
use crate::publish::Shared;
use crate::set::PoolSet;
use crate::state::Reach;

/// A pool had too few pages; nothing was taken from any pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("pool {pool} has no room for {pages} more pages")]
pub struct NoRoom {
    /// The pool that was short.
    pub pool: PoolId,
    /// Pages that were asked of it.
    pub pages: usize,
}

/// Whether a look-up counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lookup {
    /// For a request that starts: its tokens and hits count in [`PoolStats`](crate::PoolStats).
    First,
    /// For a request that was looked up before and may find what others have computed meanwhile:
    /// the hits count, the tokens have counted.
    More,
    /// For a request that lost its pages and mostly finds its own again: nothing counts.
    Again,
}

/// The pages of a table in one pool.
#[derive(Debug, Default)]
pub(crate) struct PoolPages {
    /// Pages before this one of the sequence were given back.
    pub(crate) first: usize,
    pub(crate) pages: Vec<PageId>,
}

impl PoolPages {
    /// Pages of the sequence up to the last one held.
    pub(crate) const fn end(&self) -> usize {
        self.first + self.pages.len()
    }

    /// The page with `depth` pages before it, where it is held.
    pub(crate) fn at_mut(&mut self, depth: usize) -> Option<&mut PageId> {
        self.pages.get_mut(depth.checked_sub(self.first)?)
    }

    /// Removes and returns the pages before `first`.
    pub(crate) fn drop_before(&mut self, first: usize) -> std::vec::Drain<'_, PageId> {
        let dropped = first.saturating_sub(self.first).min(self.pages.len());
        self.first = self.first.max(first);
        self.pages.drain(..dropped)
    }
}

/// The pages of one request in every pool. Dropping it frees its own pages and lets go of the
/// shared ones, which stay cached until somebody needs the room.
#[derive(Debug)]
pub struct PageTable {
    pub(crate) set: PoolSet,
    pub(crate) lists: Vec<PoolPages>,
    pub(crate) shared: Shared,
    namespace: Option<Namespace>,
    /// What the hash of the page behind the published ones starts from; meaningless without a
    /// namespace.
    pub(crate) hash: u64,
    pub(crate) tokens: usize,
}

impl PageTable {
    pub(crate) fn new(set: PoolSet) -> Self {
        let lists = set.specs().iter().map(|_| PoolPages::default()).collect();
        Self { set, lists, shared: Shared::NONE, namespace: None, hash: 0, tokens: 0 }
    }

    /// Takes the longest cached prefix of `tokens` that is longer than what this table has
    /// published, in whole pages and without the last token, so that one is left to compute.
    /// Returns the tokens published or taken in all: their rows are in the pages.
    ///
    /// Pages of the table's own behind the published ones are freed when a longer prefix is found;
    /// so a caller must go on from the returned number where it is above its own.
    ///
    /// # Panics
    /// When the table was used with another namespace.
    pub fn attach_prefix(
        &mut self,
        namespace: &Namespace,
        tokens: &[TokenId],
        lookup: Lookup,
    ) -> Attached {
        let Some(page_tokens) = self.set.cached_page_tokens() else { return Attached::default() };
        let limit = tokens.len().saturating_sub(1) / page_tokens;
        self.belong_to(namespace);
        let Self { set, shared, lists, hash, tokens: covered, .. } = self;
        let mut state = set.lock();
        if lookup == Lookup::First {
            state.query_tokens += tokens.len() as u64;
        }
        let found = if shared.node.is_some() {
            let reach = |pool: usize| Reach { has: lists[pool].first, reads: 0 };
            state.usable(shared.node, shared.published, reach, tokens, limit)
        } else {
            state.find(namespace, tokens, limit, |_| 0)
        };
        if shared.published == 0 {
            shared.mark(tokens.len(), page_tokens, &found, set.retention());
        }
        let mut host_pages = 0;
        if found.pages > shared.published {
            host_pages = found.gained;
            state.attach(found, shared, lists, lookup, |_| 0);
            *hash = state.tree.nodes[shared.node].last_hash();
        }
        let attached = shared.published * page_tokens;
        *covered = (*covered).max(attached);
        Attached { tokens: attached, host_tokens: host_pages * page_tokens }
    }

    /// Takes the memory for the page ids of `tokens` tokens at once, so that growing up to there
    /// allocates nothing more. Takes no page.
    pub fn reserve_ids(&mut self, tokens: usize) {
        for (list, spec) in self.lists.iter_mut().zip(self.set.specs()) {
            let more = spec.pages_for(tokens).saturating_sub(list.end());
            list.pages.reserve_exact(more);
        }
    }

    /// Grows until `tokens` tokens are covered in every pool: all or nothing. Never shrinks. Drops
    /// cached pages that nobody holds, longest unused first, before it fails.
    ///
    /// # Errors
    /// [`NoRoom`]; nothing has changed, and the failure is counted at the pool that was short.
    pub fn grow_to(&mut self, tokens: usize) -> Result<(), NoRoom> {
        if tokens <= self.tokens {
            return Ok(());
        }
        let pages_more = |list: &PoolPages, spec: &crate::PoolSpec| {
            spec.pages_for(tokens).saturating_sub(list.end())
        };
        if self.lists.iter().zip(self.set.specs()).all(|(list, spec)| pages_more(list, spec) == 0) {
            self.tokens = tokens;
            return Ok(());
        }
        let mut state = self.set.lock();
        for (index, list) in self.lists.iter().enumerate() {
            let pool = &mut state.pools[index];
            let pages = pages_more(list, &pool.spec);
            if pages > pool.available() {
                pool.alloc_failures += 1;
                let pool = PoolId(u16::try_from(index).expect("checked in PoolSet::new"));
                return Err(NoRoom { pool, pages });
            }
        }
        for (index, list) in self.lists.iter_mut().enumerate() {
            let pages = pages_more(list, &state.pools[index].spec);
            state.make_free(index, pages);
            state.pools[index].take(pages, &mut list.pages);
        }
        drop(state);
        self.tokens = tokens;
        Ok(())
    }

    /// Gives back the pages of window pools that no token after the first `computed` ones sees;
    /// they must be computed. Publishes nothing: for an answer that grows token by token, whose
    /// pages are published when it ends. Costs nothing while no window has passed a page.
    pub fn slide(&mut self, computed: usize) {
        if !self.slides(computed) {
            return;
        }
        let Self { set, shared, lists, .. } = self;
        set.lock().slide(computed, shared, lists);
    }

    /// Whether a window has passed a page.
    fn slides(&self, computed: usize) -> bool {
        let mut windows = self.lists.iter().zip(self.set.specs());
        windows.any(|(list, spec)| spec.first_kept(computed) > list.first)
    }

    /// The rows of the first `computed` of `tokens` are in the pages. Publishes what is whole, so
    /// that others find it, and gives back what lies behind the windows. Costs nothing while no
    /// page is new and no window has passed one.
    ///
    /// A page that somebody else has published meanwhile is swapped for that one: the ids of
    /// [`pages`](Self::pages) may change, the rows in them do not. The table's own page is free
    /// then, unless the table [holds on to it](Self::hold_swapped).
    ///
    /// # Panics
    /// When the table was used with another namespace, or `computed` is beyond what it covers.
    pub fn publish(&mut self, namespace: &Namespace, tokens: &[TokenId], computed: usize) {
        assert!(computed <= self.tokens.min(tokens.len()), "only computed tokens are published");
        let page_tokens = self.set.cached_page_tokens();
        let fresh = page_tokens.is_some_and(|page| computed / page > self.shared.published);
        let slides = self.slides(computed);
        if !fresh && !slides {
            return;
        }
        if fresh {
            self.belong_to(namespace);
        }
        let Self { set, shared, lists, hash, .. } = self;
        let mut state = set.lock();
        if fresh {
            let whole = page_tokens.map_or(0, |page| computed / page * page);
            state.publish(namespace, &tokens[..whole], shared, lists);
            *hash = state.tree.nodes[shared.node].last_hash();
        }
        if slides {
            state.slide(computed, shared, lists);
        }
    }

    /// The pages of `pool` in the order of the tokens that they hold, and how many before them were
    /// given back.
    ///
    /// # Panics
    /// When the model has no such pool.
    #[must_use]
    pub fn pages(&self, pool: PoolId) -> (usize, &[PageId]) {
        let list = &self.lists[usize::from(pool.0)];
        (list.first, &list.pages)
    }

    /// The tokens that are covered: what the last successful growth asked for, or the prefix taken.
    #[must_use]
    pub const fn tokens(&self) -> usize {
        self.tokens
    }

    /// Frees what is its own, lets go of what is shared, and keeps the table.
    pub fn clear(&mut self) {
        self.tokens = 0;
        self.namespace = None;
        if self.lists.iter().all(|list| list.end() == 0) {
            self.shared = Shared::NONE;
            return;
        }
        let mut state = self.set.lock();
        state.release(&mut self.shared, &mut self.lists);
    }

    /// Pages of `pool` that would be available if this table alone let go of what it holds, and all
    /// copies had ended.
    ///
    /// # Panics
    /// When the model has no such pool.
    #[must_use]
    pub fn exclusive_pages(&self, pool: PoolId) -> usize {
        let index = usize::from(pool.0);
        self.set.lock().exclusive(index, &self.shared, &self.lists[index])
    }

    /// Announces every page that the tokens of `tokens` up to `to` touch behind the published ones,
    /// the last one perhaps only in part: they are about to be computed.
    pub fn claim(&mut self, namespace: &Namespace, tokens: &[TokenId], to: usize, by: &mut Claims) {
        let Some(page_tokens) = self.set.cached_page_tokens() else { return };
        self.belong_to(namespace);
        let whole = to.div_ceil(page_tokens).min(tokens.len() / page_tokens);
        let own = self.shared.published.min(whole) * page_tokens..whole * page_tokens;
        by.add(self.hash, tokens[own].chunks_exact(page_tokens));
    }

    /// Whether somebody has announced to compute the next page of this table.
    #[must_use]
    pub fn is_claimed(
        &mut self,
        namespace: &Namespace,
        tokens: &[TokenId],
        claims: &mut Claims,
    ) -> bool {
        let Some(page_tokens) = self.set.cached_page_tokens() else { return false };
        self.belong_to(namespace);
        let start = self.shared.published * page_tokens;
        // The last token is always left to compute.
        let end = start + page_tokens;
        end < tokens.len() && claims.has(self.hash, &tokens[start..end])
    }

    /// What it holds in each pool, and what the tree knows of it.
    #[cfg(test)]
    pub(crate) fn parts(&self) -> (&[PoolPages], &Shared) {
        (&self.lists, &self.shared)
    }

    pub(crate) fn belong_to(&mut self, namespace: &Namespace) {
        match &self.namespace {
            Some(own) => assert!(own == namespace, "a table belongs to one namespace"),
            None => {
                self.namespace = Some(namespace.clone());
                self.hash = namespace.seed();
            }
        }
    }
}

impl Drop for PageTable {
    fn drop(&mut self) {
        self.clear();
    }
}
