//! A host tier with simulated bytes on both tiers, and a store behind it.

use std::collections::{HashMap, HashSet, VecDeque};

use proptest::prelude::*;
use types::{Bytes, PageId, Pages, PoolId, Time, TokenId};

use super::check::consistent;
use super::naive::{Ask, Flat};
use crate::hash::HashFn;
use crate::{
    CacheOptions, CopyEnd, CopyOrder, Direction, HostReservation, HostTier, Lookup, Namespace,
    NewRun, PageTable, PoolSet, PoolSpec, Retention, WritePolicy,
};

pub(super) type Checked = Result<(), TestCaseError>;

pub(super) const PAGE: usize = 2;

/// What a page holds: whose it is, and its tokens with all before them.
type Rows = (u8, Vec<u32>);

/// A page of a tier: pool and id.
type At = (u16, PageId);

#[derive(Debug, Clone)]
pub(super) struct Shape {
    /// Device pages of the pools without a window.
    pub(super) full: Vec<usize>,
    /// Device pages and tokens of the window.
    pub(super) window: Option<(usize, usize)>,
    /// Host pages beyond the device's.
    pub(super) more: usize,
    pub(super) policy: WritePolicy,
    pub(super) retention: Retention,
    pub(super) threshold: usize,
}

impl Shape {
    fn set(&self, hash: HashFn) -> PoolSet {
        let spec = |name, pages: usize, window| PoolSpec {
            name,
            page_tokens: PAGE,
            page_bytes: Bytes(1),
            capacity: Pages(pages as u64),
            window,
        };
        let names = ["kv", "index"].into_iter().zip(&self.full);
        let mut specs: Vec<_> = names.map(|(name, pages)| spec(name, *pages, None)).collect();
        if let Some((pages, window)) = self.window {
            // The pools' order does not matter.
            specs.insert(0, spec("swa", pages, Some(window)));
        }
        let pages = specs.iter().map(|spec| spec.capacity.0 as usize + self.more).collect();
        let host = HostTier {
            pages,
            policy: self.policy,
            load_back_threshold: self.threshold,
            storage: true,
        };
        let retention = self.retention;
        let options = CacheOptions { enabled: true, host: Some(host), retention };
        PoolSet::with_hash(specs, options, hash)
    }
}

pub(super) struct Request {
    pub(super) table: PageTable,
    pub(super) salt: u8,
    pub(super) tokens: Vec<u32>,
    pub(super) computed: usize,
    /// Up to where rows will come from elsewhere.
    pub(super) landing: Option<usize>,
}

pub(super) struct World {
    pub(super) set: PoolSet,
    pub(super) requests: Vec<Request>,
    pub(super) running: VecDeque<CopyOrder>,
    pub(super) runs: Vec<NewRun>,
    pub(super) reserved: Vec<(u8, Vec<u32>, HostReservation)>,
    /// How the next copy ends that cannot wait.
    pub(super) urgent: CopyEnd,
    pub(super) device: HashMap<At, Rows>,
    host: HashMap<At, Rows>,
    pub(super) threshold: usize,
    /// Pages by pool: taken by tables, and loaded.
    pub(super) hits: Vec<[u64; 2]>,
    pub(super) now: u64,
    pub(super) seen: Seen,
}

/// What has happened, so that a test can tell that it tested something.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Seen {
    pub(super) loads: usize,
    pub(super) window_loads: usize,
    pub(super) urgent: usize,
    pub(super) runs: usize,
    pub(super) entered: usize,
    /// Reservations for pages that lack a window alone.
    pub(super) window_alone: usize,
    /// Tables that landed, those that loaded for it, and those that took a prefix whose windows had
    /// gone.
    pub(super) landed: usize,
    pub(super) landed_loads: usize,
    pub(super) landed_holes: usize,
    /// Tables that found no room to land, and those that were given up before their rows came.
    pub(super) no_room: usize,
    pub(super) given_up: usize,
}

/// Whether a copy of a page of the device runs.
pub(super) fn is_busy(running: &VecDeque<CopyOrder>, place: At) -> bool {
    let is_of =
        |order: &CopyOrder| order.pages.iter().any(|(pool, device, _)| (pool.0, *device) == place);
    running.iter().any(is_of)
}

pub(super) fn namespace(salt: u8) -> Namespace {
    if salt == 0 { Namespace::SHARED } else { Namespace::new(None, Some("other")) }
}

pub(super) fn ids(tokens: &[u32]) -> Vec<TokenId> {
    tokens.iter().copied().map(TokenId).collect()
}

impl World {
    pub(super) fn new(shape: &Shape, hash: HashFn) -> Self {
        let set = shape.set(hash);
        let hits = vec![[0; 2]; set.specs().len()];
        Self {
            set,
            requests: Vec::new(),
            running: VecDeque::new(),
            runs: Vec::new(),
            reserved: Vec::new(),
            urgent: CopyEnd::Done,
            device: HashMap::new(),
            host: HashMap::new(),
            threshold: shape.threshold,
            hits,
            now: 0,
            seen: Seen::default(),
        }
    }

    pub(super) fn open(&mut self, salt: u8, tokens: Vec<u32>) -> Checked {
        self.now += 1;
        self.set.set_now(Time(self.now));
        let table = self.set.table();
        self.requests.push(Request { table, salt, tokens, computed: 0, landing: None });
        self.attach(self.requests.len() - 1, Lookup::First)
    }

    pub(super) fn attach(&mut self, at: usize, lookup: Lookup) -> Checked {
        let pools = self.set.specs().len() as u16;
        let Request { table, salt, tokens, computed, .. } = &mut self.requests[at];
        let (ns, all) = (namespace(*salt), ids(tokens));
        let held: Vec<_> = (0..pools).map(|pool| table.pages(PoolId(pool)).0).collect();
        let published = table.parts().1.published;
        let fresh = table.tokens() == 0;
        let told = self.set.cached_prefix(&ns, &all);
        let naive = Flat::of(&self.set).find(&self.set, *salt, tokens, self.threshold, &Ask::ALL);
        prop_assert_eq!((told.tokens / PAGE, told.host_tokens / PAGE), naive);
        let found = table.attach_prefix(&ns, &all, lookup);
        if fresh {
            prop_assert_eq!((told.tokens, told.host_tokens), (found.tokens, found.host_tokens));
        }
        prop_assert!(found.host_tokens == 0 || found.host_tokens >= self.threshold);
        prop_assert!(found.tokens < tokens.len() || found.tokens <= *computed, "a token is left");
        *computed = (*computed).max(found.tokens);
        for pool in 0..pools {
            if lookup != Lookup::Again && found.tokens / PAGE > published {
                let first = table.pages(PoolId(pool)).0;
                let new = found.tokens / PAGE - published.max(first);
                self.hits[usize::from(pool)][0] += new as u64;
                prop_assert!(first >= held[usize::from(pool)]);
            }
        }
        let loads = self.take_orders()?;
        if lookup != Lookup::Again {
            self.hits.iter_mut().zip(loads).for_each(|(hits, loads)| hits[1] += loads as u64);
        }
        self.check_hits()
    }

    pub(super) fn check_hits(&self) -> Checked {
        let host = self.set.host_stats().expect("there is a tier");
        for ((device, host), hits) in self.set.stats().zip(host).zip(&self.hits) {
            prop_assert_eq!(device.hit_pages + host.hit_pages, hits[0]);
            prop_assert_eq!(host.hit_pages, hits[1]);
        }
        Ok(())
    }

    pub(super) fn compute(&mut self, at: usize, more: usize) -> Checked {
        let Request { table, tokens, computed, .. } = &mut self.requests[at];
        let end = *computed + more;
        while tokens.len() < end {
            tokens.push(tokens.iter().sum::<u32>() % 3);
        }
        let grown = table.grow_to(end);
        // What the device gave up is copied before anything is written.
        self.take_orders()?;
        if grown.is_err() {
            return Ok(());
        }
        let Request { table, salt, tokens, computed, .. } = &mut self.requests[at];
        for pool in 0..self.set.specs().len() as u16 {
            let (first, pages) = table.pages(PoolId(pool));
            for page in (*computed / PAGE).max(first)..end.div_ceil(PAGE) {
                let place = (pool, pages[page - first]);
                prop_assert!(!is_busy(&self.running, place), "it is being copied");
                let rows = tokens[..end.min((page + 1) * PAGE)].to_vec();
                self.device.insert(place, (*salt, rows));
            }
        }
        *computed = end;
        table.publish(&namespace(*salt), &ids(tokens), end);
        self.take_orders()?;
        Ok(())
    }

    /// Takes what was ordered, and looks at it. Returns the pages that are loaded, by pool.
    pub(super) fn take_orders(&mut self) -> Result<Vec<usize>, TestCaseError> {
        let mut fresh = Vec::new();
        self.set.take_copies(&mut fresh);
        let mut loads = vec![0; self.set.specs().len()];
        for order in fresh {
            prop_assert!(!order.pages.is_empty());
            for (pool, device, host) in &order.pages {
                let (device, host) = ((pool.0, *device), (pool.0, *host));
                if order.direction == Direction::Load {
                    prop_assert!(self.host.contains_key(&host), "never written");
                    // Rubbish until the copy is done.
                    self.device.remove(&device);
                    loads[usize::from(pool.0)] += 1;
                    let is_window = self.set.specs()[usize::from(pool.0)].window.is_some();
                    self.seen.window_loads += usize::from(is_window);
                } else {
                    prop_assert!(self.device.contains_key(&device), "never written");
                    self.host.remove(&host);
                }
            }
            self.seen.loads += usize::from(order.direction == Direction::Load);
            self.seen.urgent += usize::from(order.urgent);
            let (is_urgent, id) = (order.urgent, order.id);
            self.running.push_back(order);
            if is_urgent {
                let end = std::mem::replace(&mut self.urgent, CopyEnd::Done);
                self.end(self.running.iter().position(|order| order.id == id), end)?;
            }
        }
        Ok(loads)
    }

    pub(super) fn end_oldest(&mut self, direction: Direction, end: CopyEnd) -> Checked {
        let at = self.running.iter().position(|order| order.direction == direction);
        self.end(at, end)
    }

    fn end(&mut self, at: Option<usize>, end: CopyEnd) -> Checked {
        let Some(order) = at.and_then(|at| self.running.remove(at)) else { return Ok(()) };
        for (pool, device, host) in &order.pages {
            let (device, host) = ((pool.0, *device), (pool.0, *host));
            match (order.direction, end) {
                (Direction::Backup, CopyEnd::Done) => {
                    let rows = self.device.get(&device).expect("a page whose rows are there");
                    self.host.insert(host, rows.clone());
                }
                (Direction::Backup, CopyEnd::Dropped | CopyEnd::Failed) => {}
                (Direction::Load, _) => {
                    self.device.insert(device, self.host[&host].clone());
                }
            }
        }
        self.set.finish_copy(order.id, end);
        let before = self.runs.len();
        self.set.take_new_runs(&mut self.runs);
        self.seen.runs += self.runs.len() - before;
        for run in &self.runs[before..] {
            self.look_at(run)?;
        }
        Ok(())
    }

    /// The host pages of a run hold what it says.
    fn look_at(&self, run: &NewRun) -> Checked {
        let tokens: Vec<u32> = run.tokens.iter().map(|token| token.0).collect();
        let salt = u8::from(run.namespace != Namespace::SHARED);
        prop_assert_eq!((run.first + run.pages.len()) * PAGE, tokens.len());
        for (page, copies) in (run.first..).zip(&run.pages) {
            let full = self.set.specs().iter().filter(|spec| spec.window.is_none()).count();
            prop_assert!(copies.len() >= full, "a page has all its parts but those of windows");
            for (pool, copy) in copies {
                let rows = (salt, tokens[..(page + 1) * PAGE].to_vec());
                prop_assert_eq!(self.host.get(&(pool.0, *copy)), Some(&rows));
            }
        }
        Ok(())
    }

    pub(super) fn release_run(&mut self, pick: usize) -> Checked {
        if self.runs.is_empty() {
            return Ok(());
        }
        let run = self.runs.swap_remove(pick % self.runs.len());
        self.look_at(&run)?;
        self.set.release_run(run.id);
        Ok(())
    }

    pub(super) fn reserve(&mut self, salt: u8, tokens: Vec<u32>, limit: usize) -> Checked {
        let found = self.set.reserve_host(&namespace(salt), &ids(&tokens), limit);
        let Some(reservation) = found else { return Ok(()) };
        let pages = reservation.first + reservation.pages.len();
        prop_assert!(!reservation.pages.is_empty() && pages <= limit);
        let lacks_all = |page: &Vec<(PoolId, PageId)>| page.iter().any(|(pool, _)| pool.0 == 0);
        self.seen.window_alone += usize::from(!reservation.pages.iter().any(lacks_all));
        for (pool, copy) in reservation.pages.iter().flatten() {
            self.host.remove(&(pool.0, *copy));
        }
        self.reserved.push((salt, tokens, reservation));
        Ok(())
    }

    pub(super) fn commit(&mut self, pick: usize, pages: usize) -> Checked {
        if self.reserved.is_empty() {
            return Ok(());
        }
        let (salt, tokens, reservation) = self.reserved.swap_remove(pick % self.reserved.len());
        for (page, copies) in (reservation.first..).zip(&reservation.pages).take(pages) {
            for (pool, copy) in copies {
                let rows = (salt, tokens[..(page + 1) * PAGE].to_vec());
                self.host.insert((pool.0, *copy), rows);
            }
        }
        let offered = pages.min(reservation.pages.len());
        let entered = self.set.commit_host(reservation, pages);
        prop_assert!(entered <= offered);
        self.seen.entered += entered;
        Ok(())
    }

    pub(super) fn settle(&mut self) -> Checked {
        self.take_orders()?;
        while !self.running.is_empty() {
            self.end(Some(0), CopyEnd::Done)?;
        }
        Ok(())
    }

    pub(super) fn check(&self) -> Checked {
        let tables: Vec<_> = self.requests.iter().map(|request| &request.table).collect();
        consistent(&self.set, &tables)?;
        self.check_rows()?;
        for run in &self.runs {
            self.look_at(run)?;
        }
        let mut copying = vec![HashSet::new(); self.set.specs().len()];
        for order in self.running.iter().filter(|order| !order.urgent) {
            for (pool, device, _) in &order.pages {
                copying[usize::from(pool.0)].insert(*device);
            }
        }
        let flat = Flat::of(&self.set);
        flat.check_rows(&self.host, |pool| PoolId(pool as u16))?;
        Ok(())
    }

    fn check_rows(&self) -> Checked {
        let mut loading = HashMap::new();
        for order in self.running.iter().filter(|order| order.direction == Direction::Load) {
            for (pool, device, host) in &order.pages {
                let twice = loading.insert((pool.0, *device), (pool.0, *host));
                prop_assert!(twice.is_none(), "a page is loaded twice");
            }
        }
        for request in &self.requests {
            for pool in 0..self.set.specs().len() as u16 {
                let (first, pages) = request.table.pages(PoolId(pool));
                let whole = request.computed / PAGE;
                for (page, id) in (first..whole).zip(pages) {
                    let place = (pool, *id);
                    let rows = match loading.get(&place) {
                        Some(host) => self.host.get(host),
                        None => self.device.get(&place),
                    };
                    let wanted = (request.salt, request.tokens[..(page + 1) * PAGE].to_vec());
                    prop_assert_eq!(rows, Some(&wanted), "page {} of pool {}", page, pool);
                }
            }
        }
        Ok(())
    }
}
