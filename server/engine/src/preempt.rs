//! Which running requests give way to a better one that waits: as few as possible, and only where
//! that is enough.

use admission::Rank;
use kv_cache::PoolSet;

use crate::budget::{PageGain, PageReserve};
use crate::queue::ByRank;
use crate::request::Request;

/// Chooses victims. Kept from step to step, so that its memory is allocated once.
#[derive(Debug, Default)]
pub(crate) struct Preemptor {
    /// Levels by which the better one must exceed a victim; 0 is never.
    threshold: u32,
    victims: Vec<Rank>,
    gain: PageGain,
}

impl Preemptor {
    pub(crate) fn new(threshold: u32) -> Self {
        Self { threshold, ..Self::default() }
    }

    /// Whether a request of `rank` exceeds one of rank `other` by enough.
    pub(crate) fn may_take(&self, rank: Rank, other: Rank) -> bool {
        self.threshold > 0 && rank.exceeds(other, self.threshold)
    }

    /// Whom the last choice fell on, the worst first.
    pub(crate) fn victims(&self) -> &[Rank] {
        &self.victims
    }

    /// Chooses running requests from rank `from` on without which `head` has what it needs.
    /// `false`: all that may be chosen are not enough.
    pub(crate) fn choose(
        &mut self,
        head: &Request,
        need: &Need<'_>,
        running: &ByRank,
        from: Rank,
    ) -> bool {
        self.victims.clear();
        self.gain.clear(need.reserve, need.pools);
        if self.threshold == 0 {
            return false;
        }
        let mut rows = 0;
        let mut worst = running.worst_from(from);
        while !need.is_met(head, self.victims.len(), rows, &self.gain) {
            let Some(victim) = worst.next() else { return false };
            if !self.may_take(head.rank, victim.rank) {
                return false;
            }
            rows += usize::from(victim.is_decoding());
            self.gain.add(victim, need.pools);
            self.victims.push(victim.rank);
        }
        self.spare(head, need, running, rows);
        true
    }

    /// Lets those stay, the best first, without whom it is enough too.
    fn spare(&mut self, head: &Request, need: &Need<'_>, running: &ByRank, mut rows: usize) {
        for index in (0..self.victims.len()).rev() {
            let victim = running.get(self.victims[index]).expect("a victim runs");
            let row = usize::from(victim.is_decoding());
            self.gain.remove(victim, need.pools);
            if need.is_met(head, self.victims.len() - 1, rows - row, &self.gain) {
                self.victims.remove(index);
                rows -= row;
            } else {
                self.gain.add(victim, need.pools);
            }
        }
    }
}

/// What a request lacks.
pub(crate) struct Need<'a> {
    /// Running slots.
    pub(crate) slots: usize,
    /// A decode row that gives its token to the step's budget, which is spent.
    pub(crate) row: bool,
    /// Whether it needs pages at all.
    pub(crate) pages: bool,
    pub(crate) reserve: &'a PageReserve,
    pub(crate) pools: &'a PoolSet,
    /// Whether pages that are being copied are room, too.
    pub(crate) copied: bool,
}

impl Need<'_> {
    fn is_met(&self, head: &Request, victims: usize, rows: usize, gain: &PageGain) -> bool {
        victims >= self.slots
            && (!self.row || rows > 0)
            && (!self.pages || self.reserve.leaves_room_for(head, gain, self.pools, self.copied))
    }
}
