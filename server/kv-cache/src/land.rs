//! Pages whose rows are computed elsewhere: taken before the rows are there, and published when
//! they are; and, at the other end, which pages to send.

use types::{PageId, PoolId, TokenId};

use crate::namespace::Namespace;
use crate::state::{Match, State};
use crate::table::{Lookup, NoRoom, PageTable};

/// What [`PageTable::land`] took from the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Landed {
    /// Tokens of the cached prefix, whole pages: their rows need not come. Of window pools, only
    /// the pages that the table needs were taken.
    pub prefix_tokens: usize,
    /// Of these, those that the device alone would not have given: this call has ordered loads from
    /// the host for them.
    pub host_tokens: usize,
}

impl PageTable {
    /// Prepares for rows that come from elsewhere: takes the longest cached prefix of `tokens`, as
    /// [`attach_prefix`](Self::attach_prefix) does, and the pages for the rest up to `computed`
    /// tokens: in pools without a window all of them, in window pools those that a request keeps
    /// which has computed as many ([`first_kept`](crate::PoolSpec::first_kept)). So a prefix is
    /// usable wherever its windows have holes before that.
    ///
    /// When the rows are in the pages, [`publish`](Self::publish) with the same `computed` makes
    /// the table one that has computed them itself. Until then nobody else finds these pages, and
    /// the caller attaches nothing to this table: that would free pages which are being written.
    /// Orders that came up before this returned are carried out, urgent ones to their end, before
    /// anything is written: the pages may have been somebody else's.
    ///
    /// # Errors
    /// [`NoRoom`]; nothing has changed, and nothing is counted: whoever waits for room asks often.
    ///
    /// # Panics
    /// When the table is not empty, `computed` is beyond `tokens`, or the table was used with
    /// another namespace.
    pub fn land(
        &mut self,
        namespace: &Namespace,
        tokens: &[TokenId],
        computed: usize,
        lookup: Lookup,
    ) -> Result<Landed, NoRoom> {
        assert!(self.tokens == 0, "only an empty table lands");
        assert!(computed <= tokens.len(), "{computed} of {} tokens", tokens.len());
        let page_tokens = self.set.cached_page_tokens();
        if page_tokens.is_some() {
            self.belong_to(namespace);
        }
        let Self { set, lists, shared, hash, tokens: covered, .. } = self;
        let reads = |pool: usize| set.specs()[pool].first_kept(computed);
        let mut state = set.lock();
        let found = page_tokens.map_or(Match::NONE, |page_tokens| {
            let limit = tokens.len().saturating_sub(1).min(computed) / page_tokens;
            state.find(namespace, tokens, limit, reads)
        });
        state.check_landing(&found, computed)?;
        if lookup == Lookup::First {
            state.query_tokens += tokens.len() as u64;
        }
        if let Some(page_tokens) = page_tokens {
            shared.mark(tokens.len(), page_tokens, &found, set.retention());
        }
        if found.pages > 0 {
            state.attach(found, shared, lists, lookup, reads);
            *hash = state.tree.nodes[shared.node].last_hash();
        }
        for (index, list) in lists.iter_mut().enumerate() {
            // Behind a window that a prefix has filled already there is nothing to skip.
            list.first = list.first.max(reads(index));
            let pages = set.specs()[index].pages_for(computed).saturating_sub(list.end());
            state.make_free(index, pages);
            state.pools[index].take(pages, &mut list.pages);
        }
        *covered = computed;
        let tokens = |pages: usize| pages * page_tokens.unwrap_or_default();
        Ok(Landed { prefix_tokens: tokens(found.pages), host_tokens: tokens(found.gained) })
    }

    /// The pages that a link carries of this table, by pool and then by index in the sequence, when
    /// it has grown to `computed` tokens: pool, index, id. Nobody asks for the rows of the first
    /// `skip` tokens. Of the first `sent` tokens those of the pools without a window have been sent
    /// before; a receiver, which wants everything, says 0.
    ///
    /// Without a window, pages go when they are whole, the last one of the sequence with the
    /// `last` call. Pages of window pools go then, those that a request keeps which has `computed`
    /// tokens ([`first_kept`](crate::PoolSpec::first_kept)). So the calls of one sender name what
    /// one call of its receiver names, each page once. Rows of the last tokens may still be coming
    /// when this is asked, as may those that are loaded from the host.
    ///
    /// Nobody writes these pages as long as the table [holds on to what is
    /// swapped](Self::hold_swapped) and is not cleared.
    ///
    /// # Panics
    /// When `skip` or `sent` ends inside a page, or such a page is not the table's: it has not
    /// grown so far, or the window has passed it.
    #[must_use]
    pub fn wire_pages(
        &self,
        skip: usize,
        sent: usize,
        computed: usize,
        last: bool,
    ) -> Vec<(PoolId, usize, PageId)> {
        let mut wire = Vec::new();
        for ((id, spec), list) in (0..).map(PoolId).zip(self.set.specs()).zip(&self.lists) {
            let page = spec.page_tokens;
            let is_whole = skip.is_multiple_of(page) && sent.is_multiple_of(page);
            assert!(is_whole, "{skip} and {sent} tokens are no whole pages of {page}");
            let end = if last { spec.pages_for(computed) } else { computed / page };
            let pages = match spec.window {
                None => skip.max(sent) / page..end,
                Some(_) if last => (skip / page).max(spec.first_kept(computed))..end,
                Some(_) => continue,
            };
            for index in pages {
                let at = index.checked_sub(list.first).expect("the table keeps this page");
                wire.push((id, index, list.pages[at]));
            }
        }
        wire
    }

    /// From now on the table holds on to its own pages that [`publish`](Self::publish) swaps for
    /// equal ones, where `hold` says so: they are being read by somebody who knows their ids. They
    /// are free when it says otherwise, and when the table is cleared.
    pub fn hold_swapped(&mut self, hold: bool) {
        if hold {
            self.shared.swapped.get_or_insert_default();
        } else if self.shared.swapped.as_ref().is_some_and(|pages| !pages.is_empty()) {
            self.set.lock().free_swapped(&mut self.shared);
        } else {
            self.shared.swapped = None;
        }
    }
}

impl State {
    /// Whether there is room for `found` and the pages behind it up to `computed` tokens.
    fn check_landing(&self, found: &Match, computed: usize) -> Result<(), NoRoom> {
        let root = crate::node::NodeId::NONE;
        for (index, pool) in self.pools.iter().enumerate() {
            let first = pool.spec.first_kept(computed);
            let need = self.need(found, root, index, first);
            let behind = found.pages.max(first);
            let pages = need.load + pool.spec.pages_for(computed).saturating_sub(behind);
            if need.unheld + pages > pool.available() {
                let pool = PoolId(u16::try_from(index).expect("checked in PoolSet::new"));
                return Err(NoRoom { pool, pages });
            }
        }
        Ok(())
    }
}
