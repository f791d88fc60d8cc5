//! The store as an engine sees it: host memory out and in, without waiting.

use crate::{OBJECT, options, scope};
use bytes::Bytes;
use kv_store::backend::{Backend, Fault, MemoryBackend, Operation};
use kv_store::{
    DropReason, HostPages, Miss, PageHash, Places, Reading, StorageTier, TierBusy, TierPages,
    TierPlace,
};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use types::{PageId, PoolId, TokenId};

const FULL: PoolId = PoolId(0);
const WINDOW: PoolId = PoolId(1);
const HOST_PAGES: usize = 32;

/// Host memory of the scope's three parts.
struct Host {
    parts: Vec<Mutex<Vec<u8>>>,
    /// Reads wait for one message each, where there is one.
    hold: Mutex<Option<Receiver<()>>>,
}

impl Host {
    fn new() -> Arc<Self> {
        let part = |bytes: u64| Mutex::new(vec![0; HOST_PAGES * bytes as usize]);
        let parts = scope().parts.iter().map(|shape| part(shape.bytes)).collect();
        Arc::new(Self { parts, hold: Mutex::default() })
    }

    fn page(&self, part: usize, page: u32) -> Vec<u8> {
        let bytes = scope().parts[part].bytes as usize;
        self.parts[part].lock().expect("well")[page as usize * bytes..][..bytes].to_vec()
    }

    fn fill(&self, part: usize, page: u32, value: u8) {
        self.write(part, PageId(page), &vec![value; scope().parts[part].bytes as usize]);
    }
}

impl HostPages for Host {
    fn pool(&self, part: usize) -> PoolId {
        if part == 2 { WINDOW } else { FULL }
    }

    fn read(&self, part: usize, page: PageId, to: &mut [u8]) {
        if let Some(hold) = &*self.hold.lock().expect("well") {
            hold.recv().expect("the test is there");
        }
        to.copy_from_slice(&self.page(part, page.0));
    }

    fn write(&self, part: usize, page: PageId, from: &[u8]) {
        let at = page.index() * from.len();
        self.parts[part].lock().expect("well")[at..][..from.len()].copy_from_slice(from);
    }
}

/// A tier, and a message for every progress.
struct Rig {
    tier: StorageTier,
    host: Arc<Host>,
    progress: Receiver<()>,
}

fn place(backend: &Arc<MemoryBackend>) -> TierPlace {
    let backend: Arc<dyn Backend> = Arc::<MemoryBackend>::clone(backend);
    TierPlace::Backend(backend, "memory".to_owned())
}

fn rig(place: TierPlace) -> Rig {
    let host = Host::new();
    let (send, progress) = sync_channel(4096);
    let wake = Box::new(move || send.try_send(()).unwrap_or_default());
    let pages: Arc<dyn HostPages> = Arc::<Host>::clone(&host);
    let tier = StorageTier::open(place, scope(), options(64), pages, wake).expect("it opens");
    Rig { tier, host, progress }
}

/// A prefix of `pages` pages whose host pages begin at `first`; the last has a window page.
fn prefix(pages: u32, first: u32) -> (TierPages, Vec<Places>) {
    let places = (0..pages).map(|number| {
        let mut places = vec![(FULL, PageId(first + number))];
        if number + 1 == pages {
            places.push((WINDOW, PageId(first)));
        }
        places
    });
    (text(pages), places.collect())
}

/// The first `pages` pages of the text; a part of the next one does not count.
fn text(pages: u32) -> TierPages {
    let tokens: Vec<TokenId> = (0..pages * 4 + 3).map(TokenId).collect();
    TierPages { namespace: Vec::new(), tokens, first: 0 }
}

impl Rig {
    /// Keeps a prefix of `pages` pages from host page 0 on, with recognisable bytes.
    fn keep(&self, pages: u32) {
        for page in 0..pages {
            self.host.fill(0, page, page as u8 + 1);
            self.host.fill(1, page, page as u8 + 101);
        }
        self.host.fill(2, 0, 77);
        let (text, places) = prefix(pages, 0);
        self.tier.backup(9, text, places).expect("room");
        let mut ids = Vec::new();
        self.until(|rig| {
            rig.tier.backups_done(&mut ids);
            !ids.is_empty()
        });
        assert_eq!(ids, [9]);
    }

    /// Waits for a condition, looking again at every progress.
    fn until(&self, mut holds: impl FnMut(&Self) -> bool) {
        while !holds(self) {
            self.progress.recv().expect("the thread runs");
        }
    }

    fn fetch(&self, (text, places): (TierPages, Vec<Places>)) -> Reading {
        self.tier.fetch(text, places).expect("room")
    }

    /// Waits until a reading has ended by itself, and says how many pages there are.
    fn end(&self, reading: Reading) -> usize {
        self.until(|_| reading.there().1);
        reading.stop()
    }

    fn all(&self, pages: (TierPages, Vec<Places>)) -> usize {
        self.end(self.fetch(pages))
    }

    /// How many of the pages of the text from `first` on there are, the last `tail` of them whole.
    fn look(&self, pages: u32, first: usize, tail: usize) -> usize {
        let text = TierPages { first, ..text(pages) };
        self.end(self.tier.look(text, tail).expect("room"))
    }

    /// The pages from host page `first` on are those that `keep` kept.
    fn check(&self, pages: u32, first: u32) {
        for page in 0..pages {
            assert_eq!(self.host.page(0, first + page), vec![page as u8 + 1; 400], "page {page}");
            assert_eq!(self.host.page(1, first + page), vec![page as u8 + 101; 400]);
        }
    }
}

#[test]
fn what_was_kept_is_fetched_by_the_next_process() {
    let backend = Arc::new(MemoryBackend::default());
    let first = rig(place(&backend));
    first.keep(6);
    first.tier.close(Duration::from_secs(60));
    assert_eq!(backend.paths().len(), 6, "what was queued was written");

    let second = rig(place(&backend));
    assert_eq!(second.all(prefix(6, 10)), 6);
    second.check(6, 10);
    assert_eq!(second.host.page(2, 10), vec![77; 100], "the window page of the last");
    let stats = second.tier.store().stats();
    assert_eq!((stats.hits, stats.misses.iter().sum::<u64>()), (6, 0));
    assert_eq!(stats.read_bytes, 6 * OBJECT + 12 + 3 + 100);
}

#[test]
fn a_fetch_ends_before_the_first_page_that_is_not_there_whole() {
    let backend = Arc::new(MemoryBackend::default());
    let rig = rig(place(&backend));
    rig.keep(4);
    // Of a longer prefix the first four pages are the same; a window page too many is no harm.
    assert_eq!(rig.all(prefix(8, 10)), 4);
    rig.check(4, 10);
    assert_eq!(rig.host.page(0, 14), vec![0; 400], "nothing is written behind");
    assert!(rig.tier.store().stats().misses_by(Miss::Absent) > 0);

    // A page that lacks a part the caller needs: the third has no window part.
    assert_eq!(rig.all(prefix(3, 20)), 2);

    let tokens: Vec<TokenId> = (0..8).map(TokenId).collect();
    let second = PageHash::pages(b"", &tokens, 4)[1];
    let name: String = second.0[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    let path = backend.paths().into_iter().find(|path| path.ends_with(&name)).expect("kept");
    backend.replace(&path, Bytes::from_static(b"SLKVPAGE, but broken"));
    assert_eq!(rig.all(prefix(4, 20)), 1);
    assert_eq!(rig.tier.store().stats().misses_by(Miss::Truncated), 1);
    assert_eq!(rig.tier.store().stats().broken_deleted, 1);
}

#[test]
fn nothing_is_written_after_a_stop() {
    let backend = Arc::new(MemoryBackend::default());
    let rig = rig(place(&backend));
    rig.keep(6);
    // Two reads go through, the others wait.
    (0..6).for_each(|_| backend.inject(Operation::Read, Fault::Hold));
    backend.release(2);
    let fetch = rig.fetch(prefix(6, 10));
    rig.until(|_| fetch.there() == (2, false));
    assert_eq!(fetch.stop(), 2);
    backend.release(4);
    // Another fetch goes through the thread after the held reads were let go.
    assert_eq!(rig.all(prefix(6, 20)), 6);
    rig.check(2, 10);
    for page in 12..16 {
        assert_eq!(rig.host.page(0, page), vec![0; 400], "host page {page} is not ours any more");
    }
}

#[test]
fn a_look_counts_pages_up_to_the_last_that_is_whole() {
    let backend = Arc::new(MemoryBackend::default());
    let first = rig(place(&backend));
    first.keep(4);
    first.tier.close(Duration::from_secs(60));
    // What the next process does not know yet is asked for by name.
    let rig = rig(place(&backend));
    assert_eq!(rig.look(9, 0, 0), 4);
    assert_eq!(rig.look(3, 0, 0), 3);
    assert_eq!(rig.look(9, 2, 0), 2, "from the third page on");
    assert_eq!(rig.look(9, 4, 0), 0);
    // Only the fourth page has a window part.
    assert_eq!(rig.look(9, 0, 1), 4);
    assert_eq!(rig.look(3, 0, 1), 0);
    assert_eq!(rig.look(9, 0, 2), 0);
    assert_eq!(rig.look(9, 3, 2), 1, "the page before is somewhere else, and whole");
    let stats = rig.tier.store().stats();
    assert_eq!((stats.hits, stats.misses_by(Miss::Absent)), (0, 6));
    backend.inject(Operation::Size, Fault::Fail);
    assert_eq!(rig.look(5, 4, 0), 0);
    assert_eq!(rig.tier.store().stats().misses_by(Miss::Error), 1);
}

#[test]
fn a_window_part_that_comes_later_is_there_after_a_restart() {
    let backend = Arc::new(MemoryBackend::default());
    let first = rig(place(&backend));
    first.keep(4);
    // The next two pages come without one, and the last of them again with it.
    (4..6).for_each(|page| (0..2).for_each(|part| first.host.fill(part, page, 1)));
    let (_, mut places) = prefix(6, 0);
    let whole = places.split_off(5);
    let full = |page| vec![(FULL, PageId(page))];
    first.tier.backup(1, TierPages { first: 4, ..text(6) }, vec![full(4), full(5)]).expect("room");
    first.tier.backup(2, TierPages { first: 5, ..text(6) }, whole).expect("room");
    first.tier.backup(3, TierPages { first: 3, ..text(4) }, vec![full(3)]).expect("room");
    first.tier.close(Duration::from_secs(60));

    let second = rig(place(&backend));
    assert_eq!(second.look(9, 0, 1), 6, "a match may end there");
    assert_eq!(second.look(5, 0, 1), 4, "where a window part was, it stays");
    assert_eq!(second.all(prefix(6, 10)), 6);
    second.check(4, 10);
    assert_eq!(second.host.page(2, 10), vec![77; 100]);
}

#[test]
fn a_reading_that_panics_has_ended_and_wakes() {
    let rig = rig(place(&Arc::default()));
    rig.keep(2);
    // There is no such host page.
    assert_eq!(rig.all(prefix(2, HOST_PAGES as u32)), 0);
    assert_eq!(rig.look(9, 0, 0), 2, "the thread goes on");
}

#[test]
fn backups_end_with_the_thread() {
    let rig = rig(place(&Arc::default()));
    let (go, hold) = sync_channel::<()>(0);
    *rig.host.hold.lock().expect("well") = Some(hold);
    for id in 1..4 {
        let (text, places) = prefix(1, 0);
        rig.tier.backup(id, text, places).expect("room");
    }
    let look = rig.tier.look(text(1), 0).expect("room");
    // The thread panics in the middle of the first.
    drop(go);
    let mut ids = Vec::new();
    rig.until(|rig| {
        rig.tier.backups_done(&mut ids);
        ids.len() == 3
    });
    assert_eq!((ids, look.there()), (vec![1, 2, 3], (0, true)));
    let (text, places) = prefix(1, 0);
    assert_eq!(rig.tier.backup(4, text, places), Err(TierBusy));
    let mut more = Vec::new();
    rig.tier.backups_done(&mut more);
    assert_eq!(more, [0; 0], "each comes once");
}

#[test]
fn a_reading_ends_with_the_thread() {
    let backend = Arc::new(MemoryBackend::default());
    let rig = rig(place(&backend));
    rig.keep(3);
    (0..3).for_each(|_| backend.inject(Operation::Read, Fault::Hold));
    backend.release(1);
    let fetch = rig.fetch(prefix(3, 10));
    rig.until(|_| fetch.there() == (1, false));
    rig.tier.close(Duration::ZERO);
    assert_eq!(fetch.there(), (1, true));
}

#[test]
fn a_full_queue_is_said_and_not_waited_for() {
    let rig = rig(place(&Arc::default()));
    let (go, hold) = sync_channel(0);
    *rig.host.hold.lock().expect("well") = Some(hold);
    let mut queued = 0_u64;
    // The thread takes one order and waits in it; the queue fills behind.
    let busy = loop {
        let (text, places) = prefix(1, 0);
        match rig.tier.backup(queued, text, places) {
            Ok(()) => queued += 1,
            Err(busy) => break busy,
        }
        assert!(queued < 5000, "it has a bound");
    };
    assert_eq!(busy, TierBusy);
    let (pages, places) = prefix(1, 0);
    assert_eq!(rig.tier.fetch(pages, places).err(), Some(busy));
    assert_eq!(rig.tier.look(text(1), 0).err(), Some(busy));
    // The sender goes: reads go on without waiting.
    let free = std::thread::spawn(move || while go.send(()).is_ok() {});
    let mut ids = Vec::new();
    rig.until(|rig| {
        rig.tier.backups_done(&mut ids);
        ids.len() as u64 == queued
    });
    assert!(ids.is_sorted() && ids.len() as u64 == queued);
    *rig.host.hold.lock().expect("well") = None;
    free.join().expect("it ends with the receiver");
    assert_eq!(rig.tier.store().stats().drops_by(DropReason::Closed), 0);
}

#[test]
fn a_store_that_does_not_open_is_an_error_of_the_tier() {
    let backend = Arc::new(MemoryBackend::default());
    backend.inject(Operation::Write, Fault::Fail);
    let pages: Arc<dyn HostPages> = Host::new();
    let opened = StorageTier::open(place(&backend), scope(), options(64), pages, Box::new(|| ()));
    let text = opened.expect_err("refused").to_string();
    assert_eq!(text, "memory: cannot write: Write was to fail");
}
