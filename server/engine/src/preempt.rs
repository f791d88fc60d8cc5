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

    /// Whom the last choice fell on, the worst first.
    pub(crate) fn victims(&self) -> &[Rank] {
        &self.victims
    }

    /// Chooses running requests from rank `from` on whose `slots` and pages `head` needs. Where
    /// the step's tokens are `spent`, one of them must be a decode row, which gives its token.
    /// `false`: all that may be chosen are not enough.
    #[expect(clippy::too_many_arguments, reason = "all of it is the scheduler's state")]
    pub(crate) fn choose(
        &mut self,
        head: &Request,
        running: &ByRank,
        from: Rank,
        slots: usize,
        spent: bool,
        reserve: &PageReserve,
        pools: &PoolSet,
    ) -> bool {
        self.victims.clear();
        self.gain.clear(reserve, pools);
        if self.threshold == 0 {
            return false;
        }
        let mut rows = 0;
        let mut worst = running.worst_from(from);
        loop {
            let enough = self.victims.len() >= slots
                && (!spent || rows > 0)
                && reserve.leaves_room_for(head, &self.gain, pools);
            if enough {
                break;
            }
            let Some(victim) = worst.next() else { return false };
            if !head.rank.exceeds(victim.rank, self.threshold) {
                return false;
            }
            rows += usize::from(victim.is_decoding());
            self.gain.add(victim, pools);
            self.victims.push(victim.rank);
        }
        self.spare(head, running, slots, spent.then_some(rows), reserve, pools);
        true
    }

    /// Lets those stay, the best first, without whom it is enough too.
    fn spare(
        &mut self,
        head: &Request,
        running: &ByRank,
        slots: usize,
        mut rows: Option<usize>,
        reserve: &PageReserve,
        pools: &PoolSet,
    ) {
        for index in (0..self.victims.len()).rev() {
            let victim = running.get(self.victims[index]).expect("a victim runs");
            let last_row = victim.is_decoding() && rows == Some(1);
            if self.victims.len() <= slots || last_row {
                continue;
            }
            self.gain.remove(victim, pools);
            if reserve.leaves_room_for(head, &self.gain, pools) {
                self.victims.remove(index);
                rows = rows.map(|rows| rows - usize::from(victim.is_decoding()));
            } else {
                self.gain.add(victim, pools);
            }
        }
    }
}
