//! The host tier on the engine's thread: which copies run, and what a step waits for.
//!
//! The page tables order copies, a [`Copier`] carries them out. A step waits for two things only:
//! for copies whose device pages are somebody else's already (write-back), and, layer by layer at
//! its gate, for loads. Never for a backup: where too many run, new ones are dropped.

use std::collections::VecDeque;

use kv_cache::{CopyEnd, CopyOrder, Direction, PoolSet};
use memory_pool::{CopyDone, CopyPage, CopyStats, Full, LoadGate};

use crate::copier::Copier;

/// Backups that may run at once; more are dropped, and their pages are backed up when they are
/// used again.
pub(crate) const BACKUPS_MAX: usize = 64;

/// A copy that the page tables wait for.
#[derive(Debug)]
struct Running {
    id: u64,
    direction: Direction,
    end: Option<CopyEnd>,
}

/// See the module.
pub(crate) struct Host {
    copier: Box<dyn Copier>,
    /// In the order of their ids. Those of a direction are told to have ended in this order.
    running: VecDeque<Running>,
    /// Backups among those that have not ended.
    backups: usize,
    /// Scratch.
    orders: Vec<CopyOrder>,
    urgent: Vec<u64>,
    done: Vec<CopyDone>,
}

impl Host {
    pub(crate) fn new(copier: Box<dyn Copier>) -> Self {
        Self {
            copier,
            running: VecDeque::new(),
            backups: 0,
            orders: Vec::new(),
            urgent: Vec::new(),
            done: Vec::new(),
        }
    }

    /// Before a step is planned: tells the page tables which copies have ended.
    ///
    /// # Errors
    /// Why a copy failed: what it should have written is anything.
    pub(crate) fn settle(&mut self, pools: &PoolSet) -> Result<(), String> {
        self.copier.poll(&mut self.done);
        let mut failed = None;
        while let Some(done) = self.done.pop() {
            let end = match done.result {
                Ok(()) => CopyEnd::Done,
                Err(why) => {
                    failed.get_or_insert(why.to_string());
                    CopyEnd::Failed
                }
            };
            self.note(done.id, end);
        }
        self.tell(pools);
        failed.map_or(Ok(()), Err)
    }

    /// After a step was planned: submits what it has ordered, and waits for what cannot wait.
    /// Returns what the step has to pass.
    ///
    /// # Errors
    /// As [`settle`](Self::settle).
    pub(crate) fn begin(&mut self, pools: &PoolSet) -> Result<Option<LoadGate>, String> {
        pools.take_copies(&mut self.orders);
        if !self.orders.is_empty() {
            let mut orders = std::mem::take(&mut self.orders);
            let mut dropping = false;
            for order in orders.drain(..) {
                self.submit(order, &mut dropping, pools)?;
            }
            self.orders = orders;
            for id in self.urgent.drain(..) {
                self.copier.wait(id);
            }
            self.settle(pools)?;
        }
        Ok(self.copier.gate())
    }

    fn submit(
        &mut self,
        order: CopyOrder,
        dropping: &mut bool,
        pools: &PoolSet,
    ) -> Result<(), String> {
        let CopyOrder { id, direction, pages, urgent } = order;
        self.running.push_back(Running { id, direction, end: None });
        let page = |(pool, device, host)| CopyPage { pool, device, host };
        let mut pages: Vec<_> = pages.into_iter().map(page).collect();
        let (way, may_drop) = match direction {
            Direction::Backup => (memory_pool::Direction::Backup, !urgent),
            Direction::Load => (memory_pool::Direction::Load, false),
        };
        self.backups += usize::from(direction == Direction::Backup);
        // What comes behind a dropped backup may continue its pages.
        *dropping |= may_drop && self.backups > BACKUPS_MAX;
        if may_drop && *dropping {
            self.note(id, CopyEnd::Dropped);
            return Ok(());
        }
        while let Err(Full(back)) = self.copier.submit(id, way, pages) {
            if may_drop {
                *dropping = true;
                self.note(id, CopyEnd::Dropped);
                return Ok(());
            }
            // The step needs it: something has to end first.
            let mut before = self.running.iter().filter(|copy| copy.end.is_none());
            let oldest = before.next().map(|copy| copy.id).filter(|oldest| *oldest != id);
            let oldest = oldest.ok_or("the queue of copies has no room for one")?;
            self.copier.wait(oldest);
            self.settle(pools)?;
            pages = back;
        }
        if urgent {
            self.urgent.push(id);
        }
        Ok(())
    }

    fn note(&mut self, id: u64, end: CopyEnd) {
        let mut running = self.running.iter_mut();
        let copy = running.find(|copy| copy.id == id).expect("only what runs ends");
        copy.end = Some(end);
        self.backups -= usize::from(copy.direction == Direction::Backup);
    }

    /// Tells the page tables of ends, each direction in order.
    fn tell(&mut self, pools: &PoolSet) {
        let mut open = [false; 2];
        self.running.retain(|copy| {
            let held = &mut open[usize::from(copy.direction == Direction::Load)];
            match copy.end {
                Some(end) if !*held => {
                    pools.finish_copy(copy.id, end);
                    false
                }
                Some(_) | None => {
                    *held = true;
                    true
                }
            }
        });
    }

    pub(crate) fn stats_into(&self, stats: &mut CopyStats) {
        self.copier.stats_into(stats);
    }

    /// Ends all copies, and the threads that make them; their pages are free to go.
    pub(crate) fn close(self, pools: &PoolSet) {
        let Self { copier, mut running, mut orders, .. } = self;
        drop(copier);
        pools.take_copies(&mut orders);
        let never = orders.drain(..).map(|order| (order.id, CopyEnd::Dropped));
        let begun = running.drain(..).map(|copy| (copy.id, copy.end.unwrap_or(CopyEnd::Failed)));
        for (id, end) in begun.chain(never) {
            pools.finish_copy(id, end);
        }
    }
}
