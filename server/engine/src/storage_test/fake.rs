//! Storage that tests move by hand, and the bytes that copies between the tiers move.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use memory_pool::HostMemory;
use model::PageMover;
use types::{PageId, PoolId, TokenId};

use crate::dice::Dice;
use crate::storage::{Places, Reading, Storage, StorageBusy, StoredPages};
use crate::witness;

/// The bytes of a page in each part that it has.
type Kept = Vec<Option<Vec<u8>>>;

/// What goes wrong, in thousandths.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Faults {
    /// An order is refused.
    pub(super) busy: u64,
    /// A page breaks on its way in: a look finds it and a fetch does not.
    pub(super) broken: u64,
    /// An order does not go on in a tick.
    pub(super) slow: u64,
}

enum Order {
    Backup { id: u64, pages: StoredPages, places: Vec<Places> },
    Look { pages: StoredPages, tail: usize, progress: Progress },
    Fetch { pages: StoredPages, places: Vec<Places>, progress: Progress },
}

/// Pages so far, whether that is all, whether nobody waits any more.
type Progress = Arc<Mutex<(usize, bool, bool)>>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("one thread")
}

/// What outlives an engine.
pub(super) struct Disk {
    pages: BTreeMap<(Vec<u8>, Vec<TokenId>), (Kept, bool)>,
    orders: VecDeque<Order>,
    done: Vec<u64>,
    host: Option<Arc<HostMemory>>,
    pub(super) faults: Faults,
    pub(super) dice: Dice,
    /// Pages read into host memory.
    pub(super) read: usize,
    pub(super) looks: usize,
}

pub(super) type Shared = Arc<Mutex<Disk>>;

impl Disk {
    pub(super) fn new(dice: Dice, faults: Faults) -> Shared {
        Arc::new(Mutex::new(Self {
            pages: BTreeMap::new(),
            orders: VecDeque::new(),
            done: Vec::new(),
            host: None,
            faults,
            dice,
            read: 0,
            looks: 0,
        }))
    }

    /// The disk in front of another process's host memory; what that one had asked for is gone.
    pub(super) fn attach(&mut self, host: Arc<HostMemory>) {
        self.orders.clear();
        self.done.clear();
        self.host = Some(host);
    }

    pub(super) fn kept(&self) -> usize {
        self.pages.len()
    }

    /// Orders that have not ended.
    pub(super) fn open(&self) -> usize {
        self.orders.len()
    }

    fn host(&self) -> Arc<HostMemory> {
        Arc::clone(self.host.as_ref().expect("attached"))
    }

    fn key(&self, pages: &StoredPages, index: usize) -> (Vec<u8>, Vec<TokenId>) {
        let end = (pages.first + index + 1) * super::PAGE_TOKENS;
        (pages.namespace.bytes().to_vec(), pages.tokens[..end].to_vec())
    }

    /// Every order goes on a little, or not.
    pub(super) fn tick(&mut self) {
        for _ in 0..self.orders.len() {
            let order = self.orders.pop_front().expect("counted");
            let slow = self.faults.slow;
            if self.dice.chance(slow) {
                self.orders.push_back(order);
                continue;
            }
            match order {
                Order::Backup { id, pages, places } => {
                    for (index, places) in places.iter().enumerate() {
                        self.keep(self.key(&pages, index), places);
                    }
                    self.done.push(id);
                }
                Order::Look { pages, tail, progress } => {
                    let found = self.count(&pages, tail);
                    let mut progress = lock(&progress);
                    (progress.0, progress.1) = (found, true);
                }
                Order::Fetch { pages, places, progress } => {
                    if !self.fetch(&pages, &places, &progress) {
                        self.orders.push_back(Order::Fetch { pages, places, progress });
                    }
                }
            }
        }
    }

    fn keep(&mut self, key: (Vec<u8>, Vec<TokenId>), places: &Places) {
        let host = self.host();
        let part = |(part, (layout, pool)): (usize, (&memory_pool::PartLayout, PoolId))| {
            let (_, page) = places.iter().find(|(of, _)| *of == pool)?;
            let mut bytes = vec![0; layout.page_bytes()];
            host.read_page(0, part, *page, &mut bytes);
            Some(bytes)
        };
        let kept: Kept = host.parts().enumerate().map(part).collect();
        let broken = self.faults.broken;
        let broken = self.dice.chance(broken);
        let whole = |kept: &Kept| kept.iter().flatten().count();
        if self.pages.get(&key).is_none_or(|(old, _)| whole(old) < whole(&kept)) {
            self.pages.insert(key, (kept, broken));
        }
    }

    fn count(&self, pages: &StoredPages, tail: usize) -> usize {
        let all = pages.tokens.len() / super::PAGE_TOKENS - pages.first;
        let (mut whole, mut found) = (tail, 0);
        for index in 0..all {
            let Some((kept, _)) = self.pages.get(&self.key(pages, index)) else { break };
            whole = if kept.iter().all(Option::is_some) { whole + 1 } else { 0 };
            if whole >= tail {
                found = index + 1;
            }
        }
        found
    }

    /// Reads one page; whether that was the last.
    fn fetch(&mut self, pages: &StoredPages, places: &[Places], progress: &Progress) -> bool {
        let mut progress = lock(progress);
        if progress.2 {
            return true;
        }
        let index = progress.0;
        let found = self.pages.get(&self.key(pages, index)).filter(|(_, broken)| !broken);
        let host = self.host();
        let wanted = |pool: PoolId| places[index].iter().find(|(of, _)| *of == pool);
        let whole = found.is_some_and(|(kept, _)| {
            host.parts().zip(kept).all(|((_, pool), kept)| wanted(pool).is_none() || kept.is_some())
        });
        let Some((kept, _)) = found.filter(|_| whole) else {
            progress.1 = true;
            return true;
        };
        for (part, ((_, pool), kept)) in host.parts().zip(kept).enumerate() {
            if let (Some((_, page)), Some(kept)) = (wanted(pool), kept) {
                host.write_page(0, part, *page, kept);
            }
        }
        progress.0 += 1;
        progress.1 = progress.0 == places.len();
        let ended = progress.1;
        self.read += 1;
        ended
    }

    fn order(&mut self, order: impl FnOnce(Progress) -> Order) -> Result<Progress, StorageBusy> {
        let busy = self.faults.busy;
        if self.dice.chance(busy) {
            return Err(StorageBusy);
        }
        let progress = Progress::default();
        self.orders.push_back(order(Arc::clone(&progress)));
        Ok(progress)
    }
}

/// The disk as the engine sees it.
pub(super) struct FakeStorage(pub(super) Shared);

impl Storage for FakeStorage {
    fn woken_by(&mut self, _: Box<dyn Fn() + Send + Sync>) {}

    fn backup(
        &mut self,
        id: u64,
        pages: StoredPages,
        places: Vec<Places>,
    ) -> Result<(), StorageBusy> {
        assert_eq!(pages.tokens.len(), (pages.first + places.len()) * super::PAGE_TOKENS);
        lock(&self.0).order(|_| Order::Backup { id, pages, places }).map(drop)
    }

    fn backups_done(&mut self, ids: &mut Vec<u64>) {
        ids.append(&mut lock(&self.0).done);
    }

    fn look(&mut self, pages: StoredPages, tail: usize) -> Result<Box<dyn Reading>, StorageBusy> {
        let mut disk = lock(&self.0);
        let progress = disk.order(|progress| Order::Look { pages, tail, progress })?;
        disk.looks += 1;
        Ok(Box::new(FakeReading(progress)))
    }

    fn fetch(
        &mut self,
        pages: StoredPages,
        places: Vec<Places>,
    ) -> Result<Box<dyn Reading>, StorageBusy> {
        assert_eq!(pages.tokens.len(), (pages.first + places.len()) * super::PAGE_TOKENS);
        let order = |progress| Order::Fetch { pages, places, progress };
        Ok(Box::new(FakeReading(lock(&self.0).order(order)?)))
    }
}

struct FakeReading(Progress);

impl Reading for FakeReading {
    fn there(&self) -> (usize, bool) {
        let progress = lock(&self.0);
        (progress.0, progress.1)
    }

    fn stop(self: Box<Self>) -> usize {
        let mut progress = lock(&self.0);
        progress.2 = true;
        progress.0
    }
}

impl Drop for FakeReading {
    fn drop(&mut self) {
        lock(&self.0).2 = true;
    }
}

/// Moves the bytes of pages between the memory of a witness and the host's.
pub(super) struct Mover {
    pub(super) device: witness::Bytes,
    pub(super) host: Arc<HostMemory>,
}

impl Mover {
    /// The parts of a pool, by number, with the bytes of a layer and a buffer for a page.
    fn parts(&self, pool: PoolId) -> impl Iterator<Item = (usize, usize, Vec<u8>)> {
        let parts = self.host.parts().enumerate().filter(move |(_, (_, of))| *of == pool);
        parts.map(|(part, (layout, _))| (part, layout.layer_bytes, vec![0; layout.page_bytes()]))
    }
}

impl PageMover for Mover {
    fn back_up(&self, pool: PoolId, device: PageId, host: PageId) {
        let mut memory = witness::lock(&self.device);
        let memory = memory.as_mut().expect("allocated");
        for (part, layer_bytes, mut page) in self.parts(pool) {
            for (layer, block) in page.chunks_exact_mut(layer_bytes).enumerate() {
                block.copy_from_slice(memory.block(part, device, layer));
            }
            self.host.write_page(0, part, host, &page);
        }
    }

    fn load(&self, pool: PoolId, device: PageId, host: PageId) {
        let mut memory = witness::lock(&self.device);
        let memory = memory.as_mut().expect("allocated");
        for (part, layer_bytes, mut page) in self.parts(pool) {
            self.host.read_page(0, part, host, &mut page);
            for (layer, block) in page.chunks_exact(layer_bytes).enumerate() {
                memory.block_mut(part, device, layer).copy_from_slice(block);
            }
        }
    }
}
