//! The host tier on the engine's thread: which copies run, and what a step waits for.
//!
//! The page tables order copies, a [`Copier`] carries them out. A step waits for two things only:
//! for copies whose device pages are somebody else's already (write-back), and, layer by layer at
//! its gate, for loads. Never for a backup: where too many run, or one does not end, new ones are
//! dropped.

use std::collections::VecDeque;
use std::time::Duration;

use kv_cache::{CopyEnd, CopyOrder, Direction, PoolSet};
use memory_pool::{CopyDone, CopyPage, CopyStats, CopyWaker, Full, LoadGate};
use types::Time;

use crate::copier::Copier;
use crate::stats::{CopyTime, CopyWaits};
use crate::time::TimeSource;

/// Backups that may run at once; more are dropped, and their pages are backed up when they are
/// used again.
pub(crate) const BACKUPS_MAX: usize = 64;

/// Copies that may be submitted and not ended: beside backups, what a step may wait for.
pub(crate) const fn queue(max_running: usize) -> usize {
    BACKUPS_MAX + 2 * max_running
}

/// A copy that has not ended for so long is late: nobody counts on its pages any more, and no new
/// backup is begun behind it.
pub(crate) const LATE: Duration = Duration::from_secs(1);

/// A copy that the page tables wait for.
#[derive(Debug)]
struct Running {
    id: u64,
    direction: Direction,
    since: Time,
    end: Option<CopyEnd>,
}

/// See the module.
pub(crate) struct Host {
    copier: Box<dyn Copier>,
    /// In the order of their ids. Those of a direction are told to have ended in this order.
    running: VecDeque<Running>,
    /// Backups among those that have not ended.
    backups: usize,
    /// Ends that the page tables were told of.
    told: u64,
    /// Waits since somebody last asked.
    waits: CopyWaits,
    /// Copies that were made and not reported.
    made: Vec<CopyTime>,
    /// Scratch.
    orders: Vec<CopyOrder>,
    urgent: Vec<u64>,
    done: Vec<CopyDone>,
}

impl Host {
    /// With a copier that has up to `queue` copies; `waker` is called when one has ended that no
    /// step waits for.
    pub(crate) fn new(mut copier: Box<dyn Copier>, queue: usize, waker: CopyWaker) -> Self {
        copier.wake_with(waker);
        Self {
            copier,
            running: VecDeque::with_capacity(queue),
            backups: 0,
            told: 0,
            waits: CopyWaits::default(),
            made: Vec::with_capacity(queue),
            orders: Vec::new(),
            urgent: Vec::new(),
            // Copies end while answers are decoded, any number at once.
            done: Vec::with_capacity(queue),
        }
    }

    /// Whether a copy runs for longer than copies should.
    pub(crate) fn is_late(&self, now: Time) -> bool {
        let mut open = self.running.iter().filter(|copy| copy.end.is_none());
        open.next().is_some_and(|oldest| now.since(oldest.since) > LATE)
    }

    /// How often pages were let go of because a copy had ended.
    pub(crate) const fn told(&self) -> u64 {
        self.told
    }

    /// What steps waited for since the last call.
    pub(crate) fn take_waits(&mut self) -> CopyWaits {
        std::mem::take(&mut self.waits)
    }

    /// The copies that were made since [`forget_made`](Self::forget_made).
    pub(crate) fn made(&self) -> &[CopyTime] {
        &self.made
    }

    pub(crate) fn forget_made(&mut self) {
        self.made.clear();
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
                Ok(()) => {
                    let direction = match done.direction {
                        memory_pool::Direction::Backup => Direction::Backup,
                        memory_pool::Direction::Load => Direction::Load,
                    };
                    self.made.push(CopyTime { direction, busy: done.busy });
                    CopyEnd::Done
                }
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
    pub(crate) fn begin(
        &mut self,
        pools: &PoolSet,
        now: Time,
        time: &mut dyn TimeSource,
    ) -> Result<Option<LoadGate>, String> {
        pools.take_copies(&mut self.orders);
        if !self.orders.is_empty() {
            let mut orders = std::mem::take(&mut self.orders);
            let mut dropping = self.is_late(now);
            // All of them first: where one cannot be submitted, the end comes for the others too.
            self.running.extend(orders.iter().map(|order| Running {
                id: order.id,
                direction: order.direction,
                since: now,
                end: None,
            }));
            for order in orders.drain(..) {
                self.submit(order, &mut dropping, pools, time)?;
            }
            self.orders = orders;
            let mut urgent = std::mem::take(&mut self.urgent);
            for id in urgent.drain(..) {
                self.wait(id, time);
            }
            self.urgent = urgent;
            self.settle(pools)?;
        }
        Ok(self.copier.gate())
    }

    fn submit(
        &mut self,
        order: CopyOrder,
        dropping: &mut bool,
        pools: &PoolSet,
        time: &mut dyn TimeSource,
    ) -> Result<(), String> {
        let CopyOrder { id, direction, pages, urgent } = order;
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
            self.wait(oldest, time);
            self.settle(pools)?;
            pages = back;
        }
        if urgent {
            self.urgent.push(id);
        }
        Ok(())
    }

    fn wait(&mut self, id: u64, time: &mut dyn TimeSource) {
        let start = time.now();
        self.copier.wait(id);
        self.waits.urgent += 1;
        self.waits.urgent_time += time.now().since(start);
    }

    fn note(&mut self, id: u64, end: CopyEnd) {
        let mut running = self.running.iter_mut();
        let copy = running.find(|copy| copy.id == id).expect("only what runs ends");
        copy.end = Some(end);
        self.backups -= usize::from(copy.direction == Direction::Backup);
    }

    /// Tells the page tables of ends, each direction in order; of those that were never begun at
    /// once: behind a dropped backup all are dropped that were ordered with it.
    fn tell(&mut self, pools: &PoolSet) {
        let mut open = [false; 2];
        let told = &mut self.told;
        self.running.retain(|copy| {
            let held = &mut open[usize::from(copy.direction == Direction::Load)];
            match copy.end {
                Some(end) if !*held || end == CopyEnd::Dropped => {
                    pools.finish_copy(copy.id, end);
                    *told += 1;
                    false
                }
                Some(_) | None => {
                    *held = true;
                    true
                }
            }
        });
    }

    /// Whether no copy is under way.
    pub(crate) fn is_quiet(&self) -> bool {
        self.running.is_empty()
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
