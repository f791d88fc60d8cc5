//! Copies between the tiers in virtual time, with the bytes that they move: slow ones, late ones,
//! failing ones, and a queue that fills up.
//!
//! One copy runs at a time, in the order of submission. A load first makes its target rubbish, then
//! brings layer after layer; a backup reads everything at its end. So who reads a page before its
//! copy has come, or gives one away while it is being copied, is found by the witness.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use memory_pool::{
    CopyDone, CopyFailed, CopyPage, CopyStats, CopyWaker, Direction, Full, LoadFailed, LoadGate,
    Loads,
};
use model::PartSpec;
use types::{PageId, PoolId, Time};

use super::rig::VirtualTime;
use crate::copier::Copier;
use crate::dice::Dice;
use crate::testing::loses_load;
use crate::witness::{Bytes, LAYERS, Row, Witness, lock};

/// How fast copies are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    /// Copies that may be submitted and not polled.
    pub(super) queue: usize,
    /// Of each copy, and of each page of it.
    pub(super) start: Duration,
    pub(super) page: Duration,
    /// Chance, of 1000, that a copy takes a hundred times as long.
    pub(super) slow: u64,
    /// Chance, of 1000, that it takes seconds.
    pub(super) late: u64,
}

/// What the copier did.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Done {
    pub(super) backups: u64,
    pub(super) loads: u64,
    /// Copies that found the queue full.
    pub(super) refused: u64,
    /// Times and time that gates made somebody wait.
    pub(super) gates: u64,
    pub(super) gate_time: Duration,
    /// Copies that somebody waited for as a whole.
    pub(super) waits: u64,
    pub(super) failed: u64,
}

struct Job {
    id: u64,
    direction: Direction,
    pages: Vec<CopyPage>,
    /// When which layer is moved; all at once for backups.
    moves: VecDeque<(Time, Option<usize>)>,
    begun: bool,
    /// A planted fault: it moves nothing.
    lost: bool,
    /// Layers that are there.
    layers: usize,
}

/// What the copier, its gates and the world share.
pub(super) struct Copies {
    pace: Pace,
    dice: Dice,
    time: VirtualTime,
    parts: Vec<(PoolId, PartSpec)>,
    device: Bytes,
    /// By part, host page and the layer's number in the part.
    host: HashMap<(usize, PageId, usize), Vec<Row>>,
    queue: VecDeque<Job>,
    ended: Vec<CopyDone>,
    /// The next copy that ends fails.
    fault: Arc<AtomicBool>,
    pub(super) done: Done,
}

pub(super) type Shared = Arc<Mutex<Copies>>;

impl Copies {
    pub(super) fn new(
        witness: &Witness,
        pace: Pace,
        seed: u64,
        time: VirtualTime,
        fault: Arc<AtomicBool>,
    ) -> Shared {
        Arc::new(Mutex::new(Self {
            pace,
            dice: Dice::new(seed ^ 0xc0b1),
            time,
            parts: witness.parts().to_vec(),
            device: witness.bytes(),
            host: HashMap::new(),
            queue: VecDeque::new(),
            ended: Vec::new(),
            fault,
            done: Done::default(),
        }))
    }

    /// Copies that have not ended, and ends that nobody has asked for.
    pub(super) fn pending(&self) -> usize {
        self.queue.len() + self.ended.len()
    }

    /// Time passes until a copy has ended that nobody has asked for yet.
    pub(super) fn step_to_an_end(&mut self) {
        while self.ended.is_empty() {
            self.step();
        }
    }

    fn submit(&mut self, id: u64, direction: Direction, pages: Vec<CopyPage>) -> Result<(), Full> {
        if self.pending() >= self.pace.queue {
            self.done.refused += 1;
            return Err(Full(pages));
        }
        let mut takes = self.pace.start + self.pace.page * pages.len() as u32;
        if self.dice.chance(self.pace.slow) {
            takes *= 100;
        }
        if self.dice.chance(self.pace.late) {
            takes += Duration::from_millis(self.dice.within(500..=4000));
        }
        let before = self.queue.back().and_then(|job| job.moves.back());
        let start = before.map_or(self.time.read(), |(end, _)| *end).max(self.time.read());
        let layer =
            |layer: usize| (start + takes * (layer as u32 + 1) / LAYERS as u32, Some(layer));
        let moves = match direction {
            Direction::Backup => [(start + takes, None)].into(),
            Direction::Load => (0..LAYERS).map(layer).collect(),
        };
        let lost = direction == Direction::Load && loses_load();
        self.queue.push_back(Job { id, direction, pages, moves, begun: false, lost, layers: 0 });
        Ok(())
    }

    /// Everything that happens up to now.
    fn catch_up(&mut self) {
        while self.next().is_some_and(|next| next <= self.time.read()) {
            self.step();
        }
    }

    fn next(&self) -> Option<Time> {
        self.queue.front().and_then(|job| job.moves.front()).map(|(time, _)| *time)
    }

    /// The next thing that happens; time passes until then.
    pub(super) fn step(&mut self) {
        let mut job = self.queue.pop_front().expect("a copy runs");
        let (at, layer) = job.moves.pop_front().expect("it has not ended");
        self.time.pass(at.since(self.time.read()));
        if !std::mem::replace(&mut job.begun, true) {
            self.each_block(&job, None, |target, _| target.fill([u64::MAX; 2]));
        }
        if !job.lost {
            self.each_block(&job, layer, |target, from| target.copy_from_slice(from));
        }
        job.layers += 1;
        if !job.moves.is_empty() {
            return self.queue.push_front(job);
        }
        let Job { id, direction, pages, .. } = job;
        let result = if self.fault.swap(false, Ordering::Relaxed) {
            self.done.failed += 1;
            Err(CopyFailed("planned".to_owned()))
        } else {
            Ok(())
        };
        match direction {
            Direction::Backup => self.done.backups += 1,
            Direction::Load => self.done.loads += 1,
        }
        let (bytes, busy) = (Vec::new(), Duration::ZERO);
        self.ended.push(CopyDone { id, direction, pages, bytes, busy, result });
    }

    /// Shows each block of one layer, or of all: where it goes, and what is to be there.
    fn each_block(&mut self, job: &Job, layer: Option<usize>, write: impl Fn(&mut [Row], &[Row])) {
        let mut device = lock(&self.device);
        let device = device.as_mut().expect("pages are allocated");
        for page in &job.pages {
            let parts = self.parts.iter().enumerate();
            for (part, (_, spec)) in parts.filter(|(_, (pool, _))| *pool == page.pool) {
                for (at, own) in spec.layers.iter().enumerate() {
                    if layer.is_some_and(|layer| layer != *own) {
                        continue;
                    }
                    let place = (part, page.host, at);
                    match job.direction {
                        Direction::Backup => {
                            let rows = device.block::<Row>(part, page.device, at);
                            let copy = self.host.entry(place).or_default();
                            copy.resize(rows.len(), [0; 2]);
                            write(copy, rows);
                        }
                        Direction::Load => {
                            let rows = device.block_mut::<Row>(part, page.device, at);
                            let never = || vec![[0; 2]; rows.len()];
                            write(rows, &self.host.get(&place).cloned().unwrap_or_else(never));
                        }
                    }
                }
            }
        }
    }

    /// Layers of a load that are there; all where it is not to be found any more.
    fn layers_of(&self, id: u64) -> usize {
        let job = self.queue.iter().find(|job| job.id == id);
        job.map_or(LAYERS, |job| job.layers)
    }

    fn pass(&mut self, id: u64, layer: usize) -> Result<(), LoadFailed> {
        self.catch_up();
        let start = self.time.read();
        while self.layers_of(id) <= layer {
            self.step();
        }
        let waited = self.time.read().since(start);
        self.done.gates += u64::from(!waited.is_zero());
        self.done.gate_time += waited;
        let failed = |done: &&CopyDone| done.id == id && done.result.is_err();
        match self.ended.iter().find(failed) {
            Some(_) => Err(LoadFailed("planned".to_owned())),
            None => Ok(()),
        }
    }
}

/// The copier of a world.
pub(super) struct VirtualCopier(pub(super) Shared);

impl VirtualCopier {
    fn lock(&self) -> MutexGuard<'_, Copies> {
        self.0.lock().expect("one thread")
    }
}

impl Copier for VirtualCopier {
    fn submit(&mut self, id: u64, direction: Direction, pages: Vec<CopyPage>) -> Result<(), Full> {
        self.lock().submit(id, direction, pages)
    }

    fn gate(&self) -> Option<LoadGate> {
        let copies = self.lock();
        let running = copies.queue.iter().filter(|job| job.direction == Direction::Load);
        let failed = copies.ended.iter().filter(|done| done.result.is_err());
        let failed = failed.filter(|done| done.direction == Direction::Load);
        let loads = failed.map(|done| done.id).chain(running.map(|job| job.id));
        let loads: Vec<_> = loads.collect();
        let copies = Arc::clone(&self.0);
        (!loads.is_empty())
            .then(|| LoadGate::over(Arc::new(Gate { copies, loads, waited: AtomicU64::new(0) })))
    }

    fn poll(&mut self, done: &mut Vec<CopyDone>) {
        let mut copies = self.lock();
        copies.catch_up();
        done.append(&mut copies.ended);
    }

    fn wait(&mut self, id: u64) {
        let mut copies = self.lock();
        copies.done.waits += 1;
        while copies.queue.iter().any(|job| job.id == id) {
            copies.step();
        }
    }

    /// The world lets time pass where the engine would sleep.
    fn wake_with(&mut self, _: CopyWaker) {}

    fn stats_into(&self, stats: &mut CopyStats) {
        let copies = self.lock();
        let running =
            |wanted: Direction| copies.queue.iter().filter(|job| job.direction == wanted).count();
        stats.pending_backups = running(Direction::Backup);
        stats.pending_loads = running(Direction::Load);
    }
}

/// Waiting at it makes time pass.
struct Gate {
    copies: Shared,
    loads: Vec<u64>,
    waited: AtomicU64,
}

impl Loads for Gate {
    fn wait(&self, _: usize, layer: usize) -> Result<(), LoadFailed> {
        let mut copies = self.copies.lock().expect("one thread");
        let before = copies.done.gate_time;
        let passed = self.loads.iter().try_for_each(|id| copies.pass(*id, layer));
        let waited = copies.done.gate_time.saturating_sub(before).as_nanos();
        self.waited.fetch_add(u64::try_from(waited).expect("a short time"), Ordering::Relaxed);
        passed
    }

    fn wait_all(&self) -> Result<(), LoadFailed> {
        self.wait(0, LAYERS - 1)
    }

    fn is_open(&self, _: usize, layer: usize) -> bool {
        let copies = self.copies.lock().expect("one thread");
        self.loads.iter().all(|id| copies.layers_of(*id) > layer)
    }

    fn waited(&self) -> Duration {
        Duration::from_nanos(self.waited.load(Ordering::Relaxed))
    }
}
