//! Pages that a link may still read or write, though their requests have ended or gave them up.
//!
//! Giving such a page to somebody else would send his rows to a stranger, or let a stranger write
//! into them. So the table stays until the link says that it has let go.

use std::collections::HashMap;

use kv_cache::{PageTable, PoolSet};
use types::{PoolId, RequestId};

use crate::stats::HeldSnapshot;

/// What one request has left behind.
#[derive(Default)]
struct Kept {
    tables: Vec<PageTable>,
    pages: u64,
    bytes: u64,
}

/// Tables of requests, until their links let go. As many as there are links that have not: each
/// ends in a bounded time, by its own limits.
#[derive(Default)]
pub(crate) struct Held {
    requests: HashMap<RequestId, Kept>,
    pages: u64,
    bytes: u64,
}

impl Held {
    pub(crate) fn keep(&mut self, id: RequestId, table: PageTable, pools: &PoolSet) {
        #[cfg(test)]
        if crate::testing::lets_go_early() {
            return;
        }
        let kept = self.requests.entry(id).or_default();
        for (pool, spec) in (0..).map(PoolId).zip(pools.specs()) {
            let pages = table.pages(pool).1.len() as u64;
            let bytes = pages * spec.page_bytes.0;
            kept.pages += pages;
            kept.bytes += bytes;
            self.pages += pages;
            self.bytes += bytes;
        }
        kept.tables.push(table);
    }

    /// The link of `id` has let go. Whether anything was kept for it.
    pub(crate) fn release(&mut self, id: RequestId) -> bool {
        let Some(kept) = self.requests.remove(&id) else { return false };
        self.pages -= kept.pages;
        self.bytes -= kept.bytes;
        true
    }

    pub(crate) fn has(&self, id: RequestId) -> bool {
        self.requests.contains_key(&id)
    }

    /// Lets go of everything: nobody will take a page any more. The requests that it was of.
    pub(crate) fn clear(&mut self) -> Vec<RequestId> {
        (self.pages, self.bytes) = (0, 0);
        self.requests.drain().map(|(id, _)| id).collect()
    }

    /// Whose pages are kept.
    pub(crate) fn ids(&self) -> impl Iterator<Item = RequestId> + '_ {
        self.requests.keys().copied()
    }

    /// The tables that are kept.
    #[cfg(test)]
    pub(crate) fn tables(&self) -> impl Iterator<Item = &PageTable> {
        self.requests.values().flat_map(|kept| &kept.tables)
    }

    pub(crate) fn snapshot(&self) -> HeldSnapshot {
        HeldSnapshot { requests: self.requests.len(), pages: self.pages, bytes: self.bytes }
    }
}
