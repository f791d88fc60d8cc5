//! How the pages of a table become shared: attached from the tree, and published into it.

use types::{PageId, TokenId};

use crate::host::WritePolicy;
use crate::namespace::Namespace;
use crate::node::{NO_PAGE, NodeId};
use crate::pool::WindowPage;
use crate::retention::Retention;
use crate::state::{Match, State};
use crate::table::{Lookup, PoolPages};

/// The part of a page table that the tree knows. Pages below `published` are the tree's, those
/// behind are the table's own.
#[derive(Debug)]
pub(crate) struct Shared {
    /// The node that ends with the last published page; `NONE` while there is none.
    pub(crate) node: NodeId,
    pub(crate) published: usize,
    /// Page boundaries whose windows are worth caching once the table has gone past them; 0 is
    /// none.
    pub(crate) marks: [usize; 3],
    /// So are those of every so many pages; 0 for none.
    pub(crate) every: usize,
    /// Pages by pool that were the table's own until equal ones took their place, where it still
    /// holds such pages.
    pub(crate) swapped: Option<Vec<(usize, PageId)>>,
}

impl Shared {
    pub(crate) const NONE: Self =
        Self { node: NodeId::NONE, published: 0, marks: [0; 3], every: 0, swapped: None };

    /// Decides which windows of `tokens` tokens are worth caching. `found` is the cached prefix
    /// that they begin with.
    pub(crate) fn mark(&mut self, tokens: usize, page_tokens: usize, found: &Match, by: Retention) {
        let branch = if found.full_pages > found.pages { found.full_pages } else { 0 };
        // A prompt of whole pages that comes again can use all of them but the last one.
        let (last, again) = (tokens / page_tokens, tokens.saturating_sub(1) / page_tokens);
        (self.marks, self.every) = match by {
            Retention::All => ([last, 0, 0], 1),
            Retention::Tail => ([last, again, 0], 0),
            Retention::TailEvery(tokens) => ([last, again, 0], (tokens / page_tokens).max(1)),
            Retention::TailBranch => ([last, again, branch], 0),
        };
    }

    /// Whether the page with so many pages before it belongs to the window of a mark.
    pub(crate) fn is_marked(&self, depth: usize, window_pages: usize) -> bool {
        let last = depth + window_pages;
        let multiple = last.checked_div(self.every).unwrap_or(0) * self.every;
        depth < multiple || self.marks.iter().any(|mark| depth < *mark && *mark <= last)
    }
}

impl State {
    /// Takes the prefix `found`, which begins with the pages that `shared` has published. Pages of
    /// the table's own behind those are freed: `found` holds the same. Of window pools it takes
    /// nothing before `reads(pool)`.
    pub(crate) fn attach(
        &mut self,
        found: Match,
        shared: &mut Shared,
        lists: &mut [PoolPages],
        lookup: Lookup,
        reads: impl Fn(usize) -> usize,
    ) {
        debug_assert!(found.pages > shared.published);
        let node = if found.taken < self.tree.nodes[found.node].len() {
            self.split(found.node, found.taken)
        } else {
            found.node
        };
        let mut next = node;
        while next != shared.node && !self.tree.nodes[next].is_root() {
            if lookup != Lookup::Again {
                self.note_use(next);
            }
            self.lock(next);
            next = self.tree.nodes[next].parent;
        }
        // Before anything is loaded: what is freed here is room, and what is there stays.
        let starts = self.make_way(node, found.pages, shared, lists, reads);
        let loaded = self.load(node, |pool| starts[pool], lookup);
        for (index, list) in lists.iter_mut().enumerate() {
            let pages = self.fill(index, node, shared.published, list);
            match lookup {
                Lookup::First | Lookup::More => {
                    self.pools[index].hit_pages += (pages - loaded[index]) as u64;
                }
                Lookup::Again => {}
            }
        }
        (shared.node, shared.published) = (node, found.pages);
        if self.tier.as_ref().is_some_and(|tier| tier.policy == WritePolicy::WriteThroughSelective)
        {
            let from = self.first_window(lists);
            self.back_up(node, from, 0);
        }
    }

    /// Frees what a table that goes on to the end of `node`, which has so many pages, does not need
    /// any more, and holds what it needs of window pools and the device has. Returns the first page
    /// that is new to it in each pool.
    fn make_way(
        &mut self,
        node: NodeId,
        pages: usize,
        shared: &Shared,
        lists: &mut [PoolPages],
        reads: impl Fn(usize) -> usize,
    ) -> Vec<usize> {
        let mut starts = Vec::with_capacity(lists.len());
        for (index, list) in lists.iter_mut().enumerate() {
            self.free_own(index, shared.published, list);
            let window = self.pools[index].windows.as_ref().map(|windows| windows.pages);
            let first = window.map_or(0, |own| pages.saturating_sub(own).max(reads(index)));
            let depth = list.first;
            for (depth, page) in (depth..).zip(list.drop_before(first)) {
                self.release_window(index, page, shared.is_marked(depth, window.unwrap_or(0)));
            }
            list.pages.resize(pages.saturating_sub(list.first), NO_PAGE);
            let start = shared.published.max(list.first);
            starts.push(start);
            let mut next = node;
            while window.is_some() && self.tree.nodes[next].end() > start {
                let found = &self.tree.nodes[next];
                let parent = found.parent;
                for at in start.saturating_sub(found.depth)..found.len() {
                    let page = self.tree.nodes[next].pages[at * self.tree.pools + index];
                    if page != NO_PAGE {
                        self.note_window_use(index, page);
                        self.hold_window(index, page, false);
                    }
                }
                next = parent;
            }
        }
        starts
    }

    /// Writes the tree's pages from `from` up to the end of `node`, which are held, into `list`.
    /// Returns how many.
    fn fill(&mut self, pool: usize, node: NodeId, from: usize, list: &mut PoolPages) -> usize {
        let from = from.max(list.first);
        let mut next = node;
        while self.tree.nodes[next].end() > from {
            let found = &self.tree.nodes[next];
            let (depth, parent) = (found.depth, found.parent);
            let ids = found.pages.iter().skip(pool).step_by(self.tree.pools);
            for (page, id) in (depth..).zip(ids).skip(from.saturating_sub(depth)) {
                list.pages[page - list.first] = *id;
            }
            next = parent;
        }
        list.end() - from
    }

    /// Publishes the pages of `tokens`, which are whole and computed, behind those that are
    /// published. A page that the tree has already is swapped for the tree's and freed.
    pub(crate) fn publish(
        &mut self,
        namespace: &Namespace,
        tokens: &[TokenId],
        shared: &mut Shared,
        lists: &mut [PoolPages],
    ) {
        let page_tokens = self.tree.page_tokens;
        let full = tokens.len() / page_tokens;
        let before = shared.published;
        if !shared.node.is_some() {
            shared.node = self.tree.root_or_new(namespace);
        }
        while shared.published < full {
            let rest = &tokens[shared.published * page_tokens..];
            match self.tree.child(shared.node, rest) {
                (Some(child), _) => self.share(child, rest, shared, lists),
                (None, hash) => self.append(hash, rest, shared, lists),
            }
        }
        if self.tier.as_ref().is_some_and(|tier| tier.policy == WritePolicy::WriteThrough) {
            let from = self.first_window(lists);
            self.back_up(shared.node, from, before);
        }
    }

    /// The first page that the table of `lists` holds in a window pool.
    fn first_window(&self, lists: &[PoolPages]) -> usize {
        let windows = lists.iter().zip(&self.pools).filter(|(_, pool)| !pool.is_full());
        windows.map(|(list, _)| list.first).min().unwrap_or(usize::MAX)
    }

    /// Goes on into `child`, as far as it holds what the table has.
    fn share(
        &mut self,
        child: NodeId,
        rest: &[TokenId],
        shared: &mut Shared,
        lists: &mut [PoolPages],
    ) {
        let common = self.tree.nodes[child].common(rest, self.tree.page_tokens);
        let whole = common == self.tree.nodes[child].len();
        let child = if whole { child } else { self.split(child, common) };
        self.lock(child);
        let resident = self.tree.nodes[child].resident;
        self.revive(child);
        for (pool, list) in lists.iter_mut().enumerate() {
            for index in 0..common {
                let depth = shared.published + index;
                let Some(mine) = list.at_mut(depth) else { continue };
                let place = index * self.tree.pools + pool;
                let theirs = self.tree.nodes[child].pages[place];
                if theirs == NO_PAGE {
                    debug_assert!(!self.pools[pool].is_full() || index >= resident);
                    self.tree.nodes[child].pages[place] = *mine;
                    self.publish_window(pool, *mine, child, depth, shared);
                } else {
                    let own = std::mem::replace(mine, theirs);
                    match &mut shared.swapped {
                        Some(swapped) => swapped.push((pool, own)),
                        None => self.pools[pool].give_back(own),
                    }
                    if !self.pools[pool].is_full() {
                        self.hold_window(pool, theirs, false);
                    }
                }
            }
        }
        shared.node = child;
        shared.published += common;
    }

    /// Adds all whole pages of `rest` behind the table's last node: to that node itself where no
    /// other table is in it and nothing follows, else to a new one.
    fn append(
        &mut self,
        first: u64,
        rest: &[TokenId],
        shared: &mut Shared,
        lists: &mut [PoolPages],
    ) {
        let last = &self.tree.nodes[shared.node];
        let alone = !last.is_root() && last.locks == last.copies + 1 && last.children == 0;
        let node = if alone {
            shared.node
        } else {
            let node = self.tree.add_child(shared.node, first);
            self.tree.nodes[node].locks = 1;
            node
        };
        let found = &mut self.tree.nodes[node];
        let pages = rest.len() / self.tree.page_tokens;
        found.tokens.reserve(rest.len());
        found.hashes.reserve(pages);
        found.pages.reserve(pages * lists.len());
        let mut hash = None;
        for page in rest.chunks_exact(self.tree.page_tokens) {
            let own = match hash {
                None => first,
                Some(before) => self.tree.hasher.page(before, page),
            };
            hash = Some(own);
            let found = &mut self.tree.nodes[node];
            found.hashes.push(own);
            found.tokens.extend_from_slice(page);
            found.resident += 1;
            for list in lists.iter_mut() {
                let id = list.at_mut(shared.published).map_or(NO_PAGE, |page| *page);
                found.pages.push(id);
                if self.tier.is_some() {
                    found.host.push(NO_PAGE);
                }
            }
            for (pool, list) in lists.iter_mut().enumerate() {
                if let Some(page) = list.at_mut(shared.published) {
                    self.publish_window(pool, *page, node, shared.published, shared);
                }
            }
            shared.published += 1;
        }
        shared.node = node;
    }

    /// Notes where a page of a window pool is published, held by the table of `shared`. Nothing to
    /// note in other pools.
    fn publish_window(
        &mut self,
        pool: usize,
        page: PageId,
        node: NodeId,
        depth: usize,
        shared: &Shared,
    ) {
        let Self { pools, tree, tier, .. } = self;
        let Some(windows) = &mut pools[pool].windows else { return };
        let found = &tree.nodes[node];
        let place = (depth - found.depth) * tree.pools + pool;
        let copy = found.host.get(place).copied().filter(|copy| *copy != NO_PAGE);
        if let Some((tier, copy)) = tier.as_mut().zip(copy) {
            tier.pools[pool].delist(copy);
        }
        // What has a copy was worth it.
        let keep = copy.is_some() || shared.is_marked(depth, windows.pages);
        windows.meta[page.index()] = WindowPage { node, depth, locks: 1, keep, ..WindowPage::NONE };
    }

    /// Frees the pages behind the first `keep` ones of the sequence; they must be the table's own.
    pub(crate) fn free_own(&mut self, pool: usize, keep: usize, list: &mut PoolPages) {
        let keep = keep.saturating_sub(list.first).min(list.pages.len());
        for page in list.pages.drain(keep..).rev() {
            self.pools[pool].give_back(page);
        }
    }

    /// Gives back the pages of window pools that neither the next token after `computed` ones nor
    /// a request with the same tokens can see.
    pub(crate) fn slide(&mut self, computed: usize, shared: &Shared, lists: &mut [PoolPages]) {
        for (index, list) in lists.iter_mut().enumerate() {
            let first = self.pools[index].spec.first_kept(computed);
            let window = self.pools[index].windows.as_ref().map_or(0, |windows| windows.pages);
            let depth = list.first;
            for (depth, page) in (depth..).zip(list.drop_before(first)) {
                if depth < shared.published {
                    self.release_window(index, page, shared.is_marked(depth, window));
                } else {
                    self.pools[index].give_back(page);
                }
            }
        }
    }

    /// Pages that only the table of `shared` and `list` holds, copies aside.
    pub(crate) fn exclusive(&self, pool: usize, shared: &Shared, list: &PoolPages) -> usize {
        let swapped = shared.swapped.iter().flatten().filter(|(of, _)| *of == pool).count();
        // A window may have passed pages that were never published.
        let own = list.end().saturating_sub(shared.published.max(list.first));
        let published = if let Some(windows) = &self.pools[pool].windows {
            let published = &list.pages[..list.pages.len() - own];
            published.iter().filter(|page| windows.meta[page.index()].locks == 1).count()
        } else {
            let mut node = shared.node;
            let mut pages = 0;
            // Locks grow towards the root.
            while node.is_some() {
                let found = &self.tree.nodes[node];
                if found.locks != found.copies + 1 {
                    break;
                }
                pages += found.len();
                node = found.parent;
            }
            pages
        };
        own + published + swapped
    }

    /// What a table that goes away holds of window pools is worth caching, hence a copy.
    fn keep_all(&mut self, shared: &Shared, lists: &[PoolPages]) {
        let backs_up =
            self.tier.as_ref().is_some_and(|tier| tier.policy == WritePolicy::WriteThrough);
        if !backs_up || !shared.node.is_some() {
            return;
        }
        for (pool, list) in self.pools.iter_mut().zip(lists) {
            let Some(windows) = &mut pool.windows else { continue };
            let published = shared.published.saturating_sub(list.first);
            for page in list.pages.iter().take(published) {
                windows.meta[page.index()].keep = true;
            }
        }
        let from = self.first_window(lists);
        self.back_up(shared.node, from, from);
    }

    /// Frees the pages that were the table's own until equal ones took their place.
    pub(crate) fn free_swapped(&mut self, shared: &mut Shared) {
        for (pool, page) in shared.swapped.take().into_iter().flatten() {
            self.pools[pool].give_back(page);
        }
    }

    /// Gives everything back: the table's own pages are free, published ones are let go of.
    pub(crate) fn release(&mut self, shared: &mut Shared, lists: &mut [PoolPages]) {
        self.keep_all(shared, lists);
        self.free_swapped(shared);
        for (index, list) in lists.iter_mut().enumerate() {
            self.free_own(index, shared.published, list);
            let is_window = !self.pools[index].is_full();
            // The last page first, so that it is the first to be dropped: what comes before it is
            // of use without it, and not the other way round.
            for page in list.pages.drain(..).rev().filter(|_| is_window) {
                self.release_window(index, page, true);
            }
            list.first = 0;
        }
        if shared.node.is_some() {
            self.unlock_path(shared.node);
        }
        *shared = Shared::NONE;
    }
}
