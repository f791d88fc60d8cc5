//! Those that hold a permit: who is next, who has waited too long, and who waits for a peer.

use std::collections::BTreeSet;

use admission::Rank;
use types::Time;

use crate::disagg::Line;
use crate::queue::ByRank;
use crate::request::{Phase, Request};
use crate::shares::Shares;
use crate::storage::Text;
use crate::tenants::{Slot, Tenants};

/// Requests that hold a permit and have not started, here or elsewhere.
#[derive(Default)]
pub(crate) struct Waiting {
    requests: ByRank,
    /// Those that stand aside until their pages have come from storage.
    aside: ByRank,
    /// Prefill: those whose decode workers have no pages for them yet.
    bootstrap: Line,
    /// Decode: those that wait for pages.
    prealloc: Line,
    /// By the time of their permits. Kept without a limit on waiting too: one may come.
    by_age: BTreeSet<(Time, Rank)>,
    /// Whose turn it is, where tenants take turns.
    fair: Option<Fair>,
}

/// What fair shares need to know: also of the requests that do not wait any more.
#[derive(Default)]
struct Fair {
    tenants: Tenants,
    shares: Shares,
    /// Of those that wait for pages.
    prealloc: Shares,
}

impl Waiting {
    /// An empty queue; `fair` where tenants take turns.
    pub(crate) fn new(fair: bool) -> Self {
        Self { fair: fair.then(Fair::default), ..Self::default() }
    }

    pub(crate) fn insert(&mut self, request: Request) {
        self.note_age(&request);
        self.ready(request);
    }

    /// Takes in a request that is not to start before [`call`](Self::call).
    pub(crate) fn insert_aside(&mut self, request: Request) {
        self.note_age(&request);
        self.aside.insert(request);
    }

    /// Takes in a request that the other worker of its pair is not ready for.
    pub(crate) fn insert_bootstrap(&mut self, request: Request) {
        self.note_age(&request);
        let tokens = request.tokens.len() as u64;
        let cached = request.phase.permit().map_or(0, admission::QueuePermit::cached);
        self.bootstrap.insert(request, tokens, tokens.saturating_sub(cached));
    }

    /// Takes in a request that waits for pages.
    pub(crate) fn insert_prealloc(&mut self, mut request: Request) {
        self.note_age(&request);
        if let Some(Fair { tenants, prealloc, .. }) = &mut self.fair {
            let slot = tenants.enter(request.tenant.as_ref());
            request.slot = Some(slot);
            prealloc.insert(&request, slot, tenants);
        }
        let tokens = request.tokens.len() as u64;
        self.prealloc.insert(request, tokens, 0);
    }

    pub(crate) const fn bootstrap(&self) -> &Line {
        &self.bootstrap
    }

    pub(crate) const fn prealloc(&self) -> &Line {
        &self.prealloc
    }

    /// Who gets pages next.
    pub(crate) fn prealloc_head(&mut self) -> Option<Rank> {
        match &mut self.fair {
            Some(Fair { tenants, prealloc, .. }) => prealloc.next(tenants),
            None => self.prealloc.best(),
        }
    }

    /// A request that stands aside may start from now on.
    pub(crate) fn call(&mut self, rank: Rank) {
        if let Some(request) = self.aside.remove(rank) {
            self.ready(request);
        }
    }

    fn note_age(&mut self, request: &Request) {
        self.by_age.insert((request.enqueued_at(), request.rank));
    }

    fn ready(&mut self, mut request: Request) {
        if let Some(Fair { tenants, shares, .. }) = &mut self.fair {
            let slot = tenants.enter(request.tenant.as_ref());
            request.slot = Some(slot);
            shares.insert(&request, slot, tenants);
        }
        self.requests.insert(request);
    }

    pub(crate) fn remove(&mut self, rank: Rank) -> Option<Request> {
        let ready = self.requests.remove(rank).or_else(|| self.aside.remove(rank));
        let request = ready.or_else(|| self.bootstrap.remove(rank));
        let request = request.or_else(|| self.prealloc.remove(rank))?;
        self.by_age.remove(&(request.enqueued_at(), rank));
        if let (Some(fair), Some(slot)) = (&mut self.fair, request.slot) {
            let for_pages = matches!(request.phase, Phase::Prealloc(_));
            let shares = if for_pages { &mut fair.prealloc } else { &mut fair.shares };
            shares.remove(&request, slot, &fair.tenants);
        }
        Some(request)
    }

    /// Who starts next.
    pub(crate) fn head(&mut self) -> Option<Rank> {
        match &mut self.fair {
            Some(Fair { tenants, shares, .. }) => shares.next(tenants),
            None => self.requests.best().map(|request| request.rank),
        }
    }

    /// Tokens were computed for this tenant; without fair shares there is none.
    pub(crate) fn charge(&mut self, slot: Option<Slot>, tokens: usize) {
        if let (Some(fair), Some(slot)) = (&mut self.fair, slot) {
            fair.tenants.charge(slot, tokens as u64);
        }
    }

    /// A request of this tenant that had been in this queue ended.
    pub(crate) fn leave(&mut self, slot: Option<Slot>) {
        if let (Some(fair), Some(slot)) = (&mut self.fair, slot) {
            fair.tenants.leave(slot);
        }
    }

    /// The text of a request that waits.
    pub(crate) fn text(&self, rank: Rank) -> Text<'_> {
        self.get(rank).expect("who waits for storage is in this queue").text()
    }

    pub(crate) fn get(&self, rank: Rank) -> Option<&Request> {
        let ready = self.requests.get(rank).or_else(|| self.aside.get(rank));
        ready.or_else(|| self.bootstrap.get(rank)).or_else(|| self.prealloc.get(rank))
    }

    pub(crate) fn get_mut(&mut self, rank: Rank) -> Option<&mut Request> {
        let ready = self.requests.get_mut(rank).or_else(|| self.aside.get_mut(rank));
        ready.or_else(|| self.bootstrap.get_mut(rank)).or_else(|| self.prealloc.get_mut(rank))
    }

    /// The one that has waited longest, with the time since when; those that were
    /// [excused](Self::excuse) do not count.
    pub(crate) fn waits_since(&self) -> Option<(Time, Rank)> {
        self.by_age.first().copied()
    }

    /// It may wait for as long as it takes.
    pub(crate) fn excuse(&mut self, rank: Rank) {
        let Some(enqueued_at) = self.get(rank).map(Request::enqueued_at) else { return };
        self.by_age.remove(&(enqueued_at, rank));
    }

    /// Requests in the waiting queue; those that wait for a peer or for pages do not count.
    pub(crate) fn len(&self) -> usize {
        self.requests.len() + self.aside.len()
    }

    /// As [`len`](Self::len).
    pub(crate) fn is_empty(&self) -> bool {
        self.requests.is_empty() && self.aside.is_empty()
    }

    /// The waiting queue, best rank first; those that stand aside behind.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Request> {
        self.requests.iter().chain(self.aside.iter())
    }
}
