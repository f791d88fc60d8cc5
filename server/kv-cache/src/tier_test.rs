//! The host tier: random requests over simulated bytes.

use std::collections::{HashMap, HashSet, VecDeque};

use proptest::prelude::*;
use types::{Bytes, PageId, Pages, PoolId, TokenId};

use crate::node::NO_PAGE;
use crate::state::State;
use crate::{
    CacheOptions, CopyEnd, CopyOrder, Direction, HostTier, Lookup, Namespace, PageTable, PoolSet,
    PoolSpec, Retention, WritePolicy, page_keys,
};

const SHARED: Namespace = Namespace::SHARED;

fn tiered(page_tokens: usize, device: usize, host: usize, policy: WritePolicy) -> PoolSet {
    let capacity = Pages(device as u64);
    let spec = PoolSpec { name: "kv", page_tokens, page_bytes: Bytes(1), capacity, window: None };
    let host = Some(HostTier { pages: vec![host], policy, load_back_threshold: 1, storage: false });
    PoolSet::new(vec![spec], CacheOptions { enabled: true, host, retention: Retention::All })
}

fn finish_all(set: &PoolSet) {
    let mut orders = Vec::new();
    set.take_copies(&mut orders);
    orders.iter().for_each(|order| set.finish_copy(order.id, CopyEnd::Done));
}

/// What holds between any two calls.
fn check(state: &State) {
    let tier = state.tier.as_ref().expect("a tier");
    let (mut cached, mut host_only, mut backed) = (0, 0, 0);
    let mut seen = HashSet::new();
    let (device_age, host_age): (HashMap<_, _>, HashMap<_, _>) = {
        let ages = |keys: Vec<u32>| keys.into_iter().enumerate().map(|(age, key)| (key, age));
        (ages(state.tree.lru.keys()).collect(), ages(tier.lru.keys()).collect())
    };
    for (id, node) in state.tree.nodes.live().filter(|(_, node)| !node.is_root()) {
        assert!(node.locks == 0 || node.resident == node.len(), "held pages are on the device");
        assert_eq!(device_age.contains_key(&id.0), node.locks == 0 && node.resident > 0);
        assert_eq!(host_age.contains_key(&id.0), node.len() > node.resident);
        for index in 0..node.len() {
            assert_eq!(node.pages[index] != NO_PAGE, index < node.resident);
            assert!(node.host[index] != NO_PAGE || index < node.resident, "it is somewhere");
            assert!(index >= node.resident || seen.insert((0, node.pages[index])));
            assert!(node.host[index] == NO_PAGE || seen.insert((1, node.host[index])));
        }
        let parent = &state.tree.nodes[node.parent];
        if !parent.is_root() {
            assert!(parent.locks >= node.locks);
            assert!(node.resident == 0 || parent.resident == parent.len());
            for ages in [&device_age, &host_age] {
                if let (Some(own), Some(parent)) = (ages.get(&id.0), ages.get(&node.parent.0)) {
                    assert!(own < parent, "a node is given up before its parent");
                }
            }
        }
        cached += if node.locks == 0 { node.resident } else { 0 };
        host_only += node.len() - node.resident;
        backed += node.host.iter().filter(|copy| **copy != NO_PAGE).count();
    }
    assert_eq!(state.pools[0].cached, cached);
    let stats = tier.stats(0);
    assert_eq!(stats.used_cached.0 as usize, host_only);
    assert_eq!((stats.used_active.0 + stats.used_cached.0) as usize, backed);
}

/// A table with its tokens, and how many are computed.
struct Running {
    table: PageTable,
    tokens: Vec<TokenId>,
    computed: usize,
}

/// The bytes of both tiers: the chained hash of what a page holds.
#[derive(Clone, Default)]
struct Memory {
    device: HashMap<PageId, u64>,
    host: HashMap<PageId, u64>,
}

impl Memory {
    fn copy(&mut self, order: &CopyOrder) {
        for (_, device, host) in &order.pages {
            match order.direction {
                Direction::Backup => drop(self.host.insert(*host, self.device[device])),
                Direction::Load => drop(self.device.insert(*device, self.host[host])),
            }
        }
    }
}

struct World {
    set: PoolSet,
    memory: Memory,
    queue: VecDeque<CopyOrder>,
    running: Vec<Running>,
    loads: usize,
}

impl World {
    fn new(policy: WritePolicy, host: usize) -> Self {
        let (memory, queue, running) = Default::default();
        Self { set: tiered(2, 12, host, policy), memory, queue, running, loads: 0 }
    }

    fn gather(&mut self) {
        let mut orders = Vec::new();
        self.set.take_copies(&mut orders);
        self.loads += orders.iter().filter(|order| order.direction == Direction::Load).count();
        self.queue.extend(orders);
        check(&self.set.lock());
    }

    fn begin(&mut self, tokens: Vec<TokenId>) {
        let told = self.set.cached_prefix(&SHARED, &tokens);
        let mut table = self.set.table();
        let attached = table.attach_prefix(&SHARED, &tokens, Lookup::First);
        assert_eq!((told.tokens, told.host_tokens), (attached.tokens, attached.host_tokens));
        self.gather();
        self.running.push(Running { table, tokens, computed: attached.tokens });
        self.look();
    }

    /// Every table has the rows of its tokens once the copies have run.
    fn look(&self) {
        let mut memory = self.memory.clone();
        self.queue.iter().for_each(|order| memory.copy(order));
        for running in &self.running {
            let hashes = page_keys(&SHARED, &running.tokens[..running.computed], 2);
            for (hash, page) in hashes.iter().zip(running.table.pages(PoolId(0)).1) {
                assert_eq!(memory.device.get(page), Some(hash));
            }
        }
    }

    fn compute(&mut self, nth: usize, tokens: usize) {
        let Some(running) = self.running.get_mut(nth) else { return };
        let more = (running.computed + tokens).min(running.tokens.len());
        if running.table.grow_to(more).is_err() {
            check(&self.set.lock());
            return;
        }
        let hashes = page_keys(&SHARED, &running.tokens[..more], 2);
        let pages = running.table.pages(PoolId(0)).1.iter().zip(hashes);
        self.memory
            .device
            .extend(pages.skip(running.computed / 2).map(|(page, hash)| (*page, hash)));
        running.computed = more;
        running.table.publish(&SHARED, &running.tokens, more);
        self.gather();
        self.look();
    }

    fn finish(&mut self, end: CopyEnd) {
        let Some(order) = self.queue.pop_front() else { return };
        let end = if order.direction == Direction::Load { CopyEnd::Done } else { end };
        if end == CopyEnd::Done {
            self.memory.copy(&order);
        }
        self.set.finish_copy(order.id, end);
        self.gather();
        self.look();
    }

    fn end(mut self) -> usize {
        self.running.clear();
        self.gather();
        while !self.queue.is_empty() {
            self.finish(CopyEnd::Done);
        }
        self.set.flush();
        check(&self.set.lock());
        let stats = self.set.stats().next().expect("a pool");
        assert_eq!((stats.used_active, stats.used_cached), (Pages(0), Pages(0)));
        let host = self.set.host_stats().expect("a tier")[0];
        assert_eq!((host.used_active, host.used_cached), (Pages(0), Pages(0)));
        self.loads
    }
}

#[derive(Debug, Clone)]
enum Op {
    Begin(Vec<u32>),
    Compute(usize, usize),
    End(usize),
    Finish(CopyEnd),
    Flush,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        30 => prop::collection::vec(0..2_u32, 2..18).prop_map(Op::Begin),
        40 => (0..3_usize, 1..18_usize).prop_map(|(nth, tokens)| Op::Compute(nth, tokens)),
        25 => (0..3_usize).prop_map(Op::End),
        30 => Just(Op::Finish(CopyEnd::Done)),
        4 => Just(Op::Finish(CopyEnd::Dropped)),
        2 => Just(Op::Finish(CopyEnd::Failed)),
        1 => Just(Op::Flush),
    ]
}

fn run(policy: WritePolicy, host: usize, ops: Vec<Op>) -> usize {
    let mut world = World::new(policy, host);
    for op in ops {
        match op {
            Op::Begin(tokens) if world.running.len() < 3 => {
                world.begin(tokens.into_iter().map(TokenId).collect());
            }
            Op::Begin(_) => {}
            Op::Compute(nth, tokens) => world.compute(nth, tokens),
            Op::End(nth) if nth < world.running.len() => drop(world.running.swap_remove(nth)),
            Op::End(_) => {}
            Op::Finish(end) => world.finish(end),
            Op::Flush => world.set.flush(),
        }
        check(&world.set.lock());
    }
    world.end()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn whatever_is_attached_holds_its_rows(
        ops in prop::collection::vec(op(), 1..300),
        selective in any::<bool>(),
        host in 12..40_usize,
    ) {
        let policy =
            if selective { WritePolicy::WriteThroughSelective } else { WritePolicy::WriteThrough };
        run(policy, host, ops);
    }
}

#[test]
fn what_the_device_drops_comes_back_from_the_host() {
    let set = tiered(4, 4, 8, WritePolicy::WriteThrough);
    let ids = |from: u32| (from..from + 13).map(TokenId).collect::<Vec<_>>();
    for from in [0, 100, 0] {
        let tokens = ids(from);
        let told = set.cached_prefix(&SHARED, &tokens);
        let mut table = set.table();
        let attached = table.attach_prefix(&SHARED, &tokens, Lookup::First);
        assert_eq!(told.host_tokens, attached.host_tokens);
        table.grow_to(13).expect("room");
        table.publish(&SHARED, &tokens, 13);
        let mut orders = Vec::new();
        set.take_copies(&mut orders);
        let load: Vec<_> =
            orders.iter().filter(|order| order.direction == Direction::Load).collect();
        orders.iter().for_each(|order| set.finish_copy(order.id, CopyEnd::Done));
        if from == 0 && told.tokens > 0 {
            assert_eq!((attached.tokens, load.len()), (12, 1));
            assert_eq!(load[0].pages.len() * 4, attached.host_tokens);
            let loaded = load[0].pages.iter().map(|(_, device, _)| *device).collect::<Vec<_>>();
            let pages = table.pages(PoolId(0)).1;
            assert!(pages[..3].ends_with(&loaded), "first page first");
            assert!(loaded.len() > 1);
            let stats = set.host_stats().expect("a tier")[0];
            assert_eq!((stats.used_active.0, stats.used_cached.0), (3, 3));
            assert_eq!(stats.hit_pages as usize, load[0].pages.len());
            return;
        }
    }
    panic!("the first prompt was not found again");
}

#[test]
fn a_failed_load_is_found_by_nobody() {
    let set = tiered(4, 4, 8, WritePolicy::WriteThrough);
    let ids = |from: u32| (from..from + 13).map(TokenId).collect::<Vec<_>>();
    for from in [0, 100] {
        let mut table = set.table();
        table.grow_to(13).expect("room");
        table.publish(&SHARED, &ids(from), 13);
        finish_all(&set);
    }
    let mut table = set.table();
    assert!(table.attach_prefix(&SHARED, &ids(0), Lookup::First).host_tokens > 0);
    let mut orders = Vec::new();
    set.take_copies(&mut orders);
    set.finish_copy(orders[0].id, CopyEnd::Failed);
    assert_eq!(set.cached_prefix(&SHARED, &ids(0)).tokens, 0);
    drop(table);
    check(&set.lock());
    let stats = set.stats().next().expect("a pool");
    assert_eq!((stats.used_active, stats.used_cached), (Pages(0), Pages(0)));
}
