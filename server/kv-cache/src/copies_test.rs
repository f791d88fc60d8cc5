//! The host tier: recorded traces against exact expected hits of two tiers, and random work with
//! late, reordered, dropped and failed copies against the bytes that they move.

mod examples;
mod traces;

use std::collections::{HashMap, HashSet, VecDeque};

use proptest::prelude::*;
use types::{Bytes, PageId, Pages, PoolId, TokenId};

use crate::{
    CacheOptions, CopyEnd, CopyOrder, Direction, HostTier, Lookup, Namespace, PageTable, PoolSet,
    PoolSpec, Retention, WritePolicy,
};

type Checked = Result<(), TestCaseError>;

const PAGE: usize = 2;
const SHARED: Namespace = Namespace::SHARED;

#[derive(Debug, Clone)]
enum Action {
    Open {
        bases: (u32, u32),
        cut: usize,
        len: usize,
    },
    Compute {
        pick: usize,
        tokens: usize,
    },
    Attach {
        pick: usize,
    },
    Clear {
        pick: usize,
    },
    Close {
        pick: usize,
    },
    /// The oldest running copy of a direction ends.
    End {
        direction: Direction,
        end: CopyEnd,
    },
    /// The last so many backups are not begun, whatever runs before them.
    Drop(usize),
    /// All of them do.
    Settle,
    Flush,
}

fn action() -> impl Strategy<Value = Action> {
    let pick = 0..16_usize;
    let end = prop_oneof![
        6 => Just(CopyEnd::Done),
        1 => Just(CopyEnd::Dropped),
        1 => Just(CopyEnd::Failed),
    ];
    prop_oneof![
        6 => ((0..3_u32, 0..3_u32), 0..20_usize, 8..26_usize)
            .prop_map(|(bases, cut, len)| Action::Open { bases, cut, len }),
        9 => (pick.clone(), 1..26_usize)
            .prop_map(|(pick, tokens)| Action::Compute { pick, tokens }),
        2 => pick.clone().prop_map(|pick| Action::Attach { pick }),
        1 => pick.clone().prop_map(|pick| Action::Clear { pick }),
        6 => pick.prop_map(|pick| Action::Close { pick }),
        6 => end.prop_map(|end| Action::End { direction: Direction::Backup, end }),
        4 => Just(Action::End { direction: Direction::Load, end: CopyEnd::Done }),
        1 => (1..4_usize).prop_map(Action::Drop),
        2 => Just(Action::Settle),
        1 => prop::bool::weighted(0.1).prop_map(|flush| if flush {
            Action::Flush
        } else {
            Action::Settle
        }),
    ]
}

/// What a page holds: its tokens and all before them, and how far it is written.
type Rows = Vec<u32>;

struct Request {
    table: PageTable,
    tokens: Vec<u32>,
    computed: usize,
}

struct World {
    set: PoolSet,
    requests: Vec<Request>,
    running: VecDeque<CopyOrder>,
    device: HashMap<(u16, PageId), Rows>,
    host: HashMap<(u16, PageId), Rows>,
    threshold: usize,
    loads: usize,
    host_hits: u64,
}

fn ids(tokens: &[u32]) -> Vec<TokenId> {
    tokens.iter().copied().map(TokenId).collect()
}

fn tier_set(device: &[usize], host: HostTier, page_tokens: usize) -> PoolSet {
    let spec = |(name, pages): (&'static str, &usize)| PoolSpec {
        name,
        page_tokens,
        page_bytes: Bytes(1),
        capacity: Pages(*pages as u64),
        window: None,
    };
    let specs = ["kv", "index"].into_iter().zip(device).map(spec).collect();
    let retention = Retention::TailBranch;
    PoolSet::new(specs, CacheOptions { enabled: true, host: Some(host), retention })
}

impl World {
    fn new(device: &[usize], host: HostTier) -> Self {
        let threshold = host.load_back_threshold;
        Self {
            set: tier_set(device, host, PAGE),
            requests: Vec::new(),
            running: VecDeque::new(),
            device: HashMap::new(),
            host: HashMap::new(),
            threshold,
            loads: 0,
            host_hits: 0,
        }
    }

    fn act(&mut self, action: &Action) -> Checked {
        let count = self.requests.len();
        match action {
            Action::Open { bases, cut, len } => {
                let base = |at: usize| if at < *cut { bases.0 } else { bases.1 };
                let token = |at: usize| (at as u32 * 7 + base(at) * at as u32 / 3) % 3;
                let tokens = (0..*len).map(token).collect();
                self.requests.push(Request { table: self.set.table(), tokens, computed: 0 });
                self.attach(count, Lookup::First)?;
            }
            Action::Compute { pick, tokens } if count > 0 => self.compute(pick % count, *tokens)?,
            Action::Attach { pick } if count > 0 => self.attach(pick % count, Lookup::More)?,
            Action::Clear { pick } if count > 0 => {
                let request = &mut self.requests[pick % count];
                request.table.clear();
                request.computed = 0;
            }
            Action::Close { pick } if count > 0 => drop(self.requests.swap_remove(pick % count)),
            Action::End { direction, end } => self.end(*direction, *end)?,
            Action::Drop(count) => {
                let backups = self.running.iter().rev();
                let backups = backups.filter(|order| order.direction == Direction::Backup);
                let ids: Vec<_> = backups.take(*count).map(|order| order.id).collect();
                self.running.retain(|order| !ids.contains(&order.id));
                for id in ids.into_iter().rev() {
                    self.set.finish_copy(id, CopyEnd::Dropped);
                }
            }
            Action::Settle => self.settle()?,
            Action::Flush => self.set.flush(),
            Action::Compute { .. }
            | Action::Attach { .. }
            | Action::Clear { .. }
            | Action::Close { .. } => {}
        }
        self.take_orders()?;
        self.check()
    }

    fn attach(&mut self, at: usize, lookup: Lookup) -> Checked {
        let Request { table, tokens, computed } = &mut self.requests[at];
        let all = ids(tokens);
        let fresh = table.tokens() == 0;
        let peek = self.set.cached_prefix(&SHARED, &all);
        let again = self.set.cached_prefix(&SHARED, &all);
        prop_assert_eq!(peek, again, "looking changes nothing");
        let found = table.attach_prefix(&SHARED, &all, lookup);
        if fresh {
            let told = (peek.tokens, peek.host_tokens);
            prop_assert_eq!(told, (found.tokens, found.host_tokens));
        }
        prop_assert!(found.host_tokens == 0 || found.host_tokens >= self.threshold);
        prop_assert!(found.host_tokens <= found.tokens);
        self.host_hits += (found.host_tokens / PAGE) as u64;
        *computed = (*computed).max(found.tokens);
        let before = self.loads;
        self.take_orders()?;
        prop_assert_eq!(self.loads - before, found.host_tokens / PAGE);
        Ok(())
    }

    fn compute(&mut self, at: usize, more: usize) -> Checked {
        let Request { table, tokens, computed } = &mut self.requests[at];
        let end = *computed + more;
        while tokens.len() < end {
            tokens.push(tokens.iter().sum::<u32>() % 3);
        }
        if table.grow_to(end).is_err() {
            return Ok(());
        }
        for pool in 0..self.set.specs().len() as u16 {
            let (_, pages) = table.pages(PoolId(pool));
            for page in *computed / PAGE..end.div_ceil(PAGE) {
                let place = (pool, pages[page]);
                let busy = self.running.iter().any(|order| {
                    order.pages.iter().any(|(pool, device, _)| (pool.0, *device) == place)
                });
                prop_assert!(!busy, "a page that is being copied is written");
                self.device.insert(place, tokens[..end.min((page + 1) * PAGE)].to_vec());
            }
        }
        *computed = end;
        table.publish(&SHARED, &ids(tokens), end);
        Ok(())
    }

    /// Takes what was ordered, and looks at it.
    fn take_orders(&mut self) -> Checked {
        let mut fresh = Vec::new();
        self.set.take_copies(&mut fresh);
        for order in &fresh {
            prop_assert!(!order.pages.is_empty() && !order.urgent);
            if order.direction == Direction::Load {
                self.loads += order.pages.len() / self.set.specs().len();
                for (pool, device, host) in &order.pages {
                    prop_assert!(self.host.contains_key(&(pool.0, *host)), "never written");
                    // Rubbish until the copy is done.
                    self.device.remove(&(pool.0, *device));
                }
            }
        }
        self.running.extend(fresh);
        Ok(())
    }

    fn end(&mut self, direction: Direction, end: CopyEnd) -> Checked {
        let Some(at) = self.running.iter().position(|order| order.direction == direction) else {
            return Ok(());
        };
        let order = self.running.remove(at).expect("just found");
        for (pool, device, host) in &order.pages {
            let (device, host) = ((pool.0, *device), (pool.0, *host));
            match (direction, end) {
                (Direction::Backup, CopyEnd::Done) => {
                    let rows = self.device.get(&device).expect("a page whose rows are there");
                    self.host.insert(host, rows.clone());
                }
                (Direction::Backup, CopyEnd::Failed) => {
                    self.host.insert(host, vec![u32::MAX]);
                }
                (Direction::Load, _) => {
                    self.device.insert(device, self.host[&host].clone());
                }
                (Direction::Backup, CopyEnd::Dropped) => {}
            }
        }
        self.set.finish_copy(order.id, end);
        Ok(())
    }

    fn settle(&mut self) -> Checked {
        self.take_orders()?;
        while let Some(order) = self.running.front() {
            self.end(order.direction, CopyEnd::Done)?;
        }
        Ok(())
    }

    fn check(&self) -> Checked {
        let mut loading = HashMap::new();
        for order in self.running.iter().filter(|order| order.direction == Direction::Load) {
            for (pool, device, host) in &order.pages {
                let twice = loading.insert((pool.0, *device), (pool.0, *host));
                prop_assert!(twice.is_none(), "a page is loaded twice");
            }
        }
        for request in &self.requests {
            for pool in 0..self.set.specs().len() as u16 {
                let (_, pages) = request.table.pages(PoolId(pool));
                let whole = request.computed / PAGE;
                for (page, id) in pages.iter().enumerate().take(whole) {
                    let place = (pool, *id);
                    let rows = match loading.get(&place) {
                        Some(host) => self.host.get(host),
                        None => self.device.get(&place),
                    };
                    let whole = request.tokens[..(page + 1) * PAGE].to_vec();
                    prop_assert_eq!(rows, Some(&whole), "page {} of pool {}", page, pool);
                }
            }
        }
        for (pool, stats) in (0..).map(PoolId).zip(self.set.stats()) {
            let tables = self.requests.iter().flat_map(|request| request.table.pages(pool).1);
            let held = tables.collect::<HashSet<_>>().len() + self.set.copying(pool);
            prop_assert_eq!(stats.used_active.0, held as u64, "held by tables or by copies alone");
        }
        let host = self.set.host_stats().expect("there is a tier");
        prop_assert!(host.iter().all(|stats| stats.hit_pages == self.host_hits));
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn every_page_shows_its_own_rows_however_copies_end(
        device in prop::collection::vec(5..20_usize, 1..=2),
        more in 0..40_usize,
        selective in any::<bool>(),
        load_back_threshold in prop::sample::select(vec![0, 5]),
        actions in prop::collection::vec(action(), 1..150),
    ) {
        let policy = if selective {
            WritePolicy::WriteThroughSelective
        } else {
            WritePolicy::WriteThrough
        };
        let pages = device.iter().map(|pages| pages + more).collect();
        let mut world = World::new(&device, HostTier { pages, policy, load_back_threshold, storage: false });
        for action in &actions {
            world.act(action)?;
        }
        world.settle()?;
        world.requests.clear();
        world.settle()?;
        world.check()?;
        world.act(&Action::Flush)?;
        let device = world.set.stats().map(|stats| stats.used_active.0 + stats.used_cached.0);
        prop_assert_eq!(device.sum::<u64>(), 0, "a flushed, idle cache is empty");
        let host = world.set.host_stats().expect("there is a tier").into_iter();
        prop_assert!(host.into_iter().all(|stats| stats.used_active.0 + stats.used_cached.0 == 0));
    }
}
