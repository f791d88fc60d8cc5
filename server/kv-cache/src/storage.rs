//! What a store behind the host tier needs: the pages that are new in host memory, and room for
//! pages that come from elsewhere.

use types::{PageId, PoolId, TokenId};

use crate::namespace::Namespace;
use crate::set::PoolSet;

/// Pages that are newly in host memory, in the order of their sequence. Their host pages keep their
/// bytes until [`PoolSet::release_run`] is told that nobody reads them any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewRun {
    /// Names the run; never used twice.
    pub id: u64,
    /// Whom its pages belong to.
    pub namespace: Namespace,
    /// The tokens of the whole prefix up to the run's end.
    pub tokens: Vec<TokenId>,
    /// Pages before its first one.
    pub first: usize,
    /// Of each page, its host page in every pool that has one of it there. A page comes again, with
    /// more of them, where a pool with a window got its part later.
    pub pages: Vec<Vec<(PoolId, PageId)>>,
}

/// Host pages for pages that come from elsewhere. It must go back to [`PoolSet::commit_host`].
#[derive(Debug, PartialEq, Eq)]
#[must_use = "its host pages are free only after commit_host"]
pub struct HostReservation {
    /// Names the reservation; never used twice.
    pub id: u64,
    /// Pages before its first one.
    pub first: usize,
    /// Of each page, a host page in every pool without a window, where it is on neither tier; and
    /// of the last ones, as far as a match at the end sees them, in every pool with one.
    pub pages: Vec<Vec<(PoolId, PageId)>>,
    /// Pages that are on either tier in the pools without a window.
    pub(crate) have: usize,
    pub(crate) namespace: Namespace,
    /// Up to the end of its last page.
    pub(crate) tokens: Vec<TokenId>,
}

impl PoolSet {
    /// Moves the runs of pages that came into host memory since the last call behind those in `to`.
    /// None come without [`HostTier::storage`](crate::HostTier::storage), and none while 256 are
    /// held or half of a pool's host pages are in them: those pages are not offered again.
    pub fn take_new_runs(&self, to: &mut Vec<NewRun>) {
        self.lock().take_new_runs(to);
    }

    /// Nobody reads the host pages of the run any more.
    ///
    /// # Panics
    /// When no such run is held.
    pub fn release_run(&self, id: u64) {
        self.lock().release_run(id);
    }

    /// Room for the pages of `tokens` behind the longest prefix that is on either tier in the pools
    /// without a window, up to `limit` pages in all. `None` where nothing is missing up to there,
    /// no room, or no [`HostTier::storage`](crate::HostTier::storage).
    ///
    /// Pools with a window get pages for the last pages before the reservation's end alone: those
    /// that a match there needs. So whoever asks chooses `limit` where the store has them. Where
    /// pages of that prefix lack theirs, the reservation begins with the first of them.
    pub fn reserve_host(
        &self,
        namespace: &Namespace,
        tokens: &[TokenId],
        limit: usize,
    ) -> Option<HostReservation> {
        self.lock().reserve_host(namespace, tokens, limit)
    }

    /// The first `pages` pages of the reservation have their bytes: they can be found from now on,
    /// as far as they still fit. The prefix before them may be gone, or somebody may have computed
    /// them meanwhile; what does not fit is free again. Returns how many
    /// entered: the last of the first `pages` ones. Those that only got what they lacked in pools
    /// with a window do not count.
    ///
    /// # Panics
    /// When the reservation is of another set.
    pub fn commit_host(&self, reservation: HostReservation, pages: usize) -> usize {
        self.lock().commit_host(reservation, pages)
    }
}
