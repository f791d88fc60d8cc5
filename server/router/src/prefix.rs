//! Which worker is believed to hold which beginnings of prompts.
//!
//! A tree of [`Pieces`], kept as a map from the hash of each beginning to the set of workers that
//! hold it: a beginning's hash covers all shorter ones, so no edges are needed, and one walk down
//! a prompt answers for all workers. Two orders of use, per worker and over all, bound it. Shorter
//! beginnings are always used after longer ones, so that what goes first is never what others
//! are found behind.
//!
//! It is a belief: workers evict without saying so, and two hashes may be equal. Nothing depends on
//! it but speed.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::config::PrefixConfig;
use crate::pieces::Pieces;
use crate::set::{MAX_WORKERS, WorkerSet};

const NONE: u32 = u32::MAX;

/// Keys are hashes already, or are made of small numbers that one multiplication spreads.
#[derive(Debug, Clone, Copy, Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(self.0 ^ u64::from(*byte)));
    }

    fn write_u64(&mut self, key: u64) {
        let spread = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = spread ^ spread >> 32;
    }
}

type Map = HashMap<u64, u32, BuildHasherDefault<Spread>>;

/// A beginning of prompts.
#[derive(Debug)]
struct Node {
    hash: u64,
    holders: WorkerSet,
}

/// A worker that holds a beginning, in two orders of use.
#[derive(Debug, Clone, Copy)]
struct Entry {
    node: u32,
    slot: u16,
    own: Links,
    all: Links,
}

#[derive(Debug, Clone, Copy)]
struct Links {
    older: u32,
    newer: u32,
}

/// An order of use: its ends and its length.
#[derive(Debug, Clone, Copy)]
struct Order {
    oldest: u32,
    newest: u32,
    len: usize,
}

const EMPTY: Order = Order { oldest: NONE, newest: NONE, len: 0 };

/// The beginnings that workers hold.
#[derive(Debug)]
pub(crate) struct PrefixTree {
    config: PrefixConfig,
    nodes: Vec<Node>,
    free_nodes: Vec<u32>,
    by_hash: Map,
    entries: Vec<Entry>,
    free_entries: Vec<u32>,
    /// From node and slot to the entry.
    held: Map,
    own: Vec<Order>,
    all: Order,
}

/// How many pieces of a prompt each worker holds, by slot.
pub(crate) type Depths = [u8; MAX_WORKERS];

/// Bytes that a beginning and a holder take, with what the maps keep free.
const NODE_BYTES: usize = size_of::<Node>() + 2 * size_of::<(u64, u32)>();
const ENTRY_BYTES: usize = size_of::<Entry>() + 2 * size_of::<(u64, u32)>();

impl PrefixTree {
    pub(crate) fn new(config: PrefixConfig) -> Self {
        Self {
            config,
            nodes: Vec::new(),
            free_nodes: Vec::new(),
            by_hash: Map::default(),
            entries: Vec::new(),
            free_entries: Vec::new(),
            held: Map::default(),
            own: vec![EMPTY; MAX_WORKERS],
            all: EMPTY,
        }
    }

    /// Other bounds; what is beyond them goes at once.
    pub(crate) fn configure(&mut self, config: PrefixConfig) {
        self.config = config;
        for slot in 0..self.own.len() {
            while self.own[slot].len > self.config.pieces_per_worker {
                self.remove(self.own[slot].oldest);
            }
        }
        self.trim();
    }

    /// Bytes of memory in use.
    pub(crate) fn bytes(&self) -> usize {
        self.by_hash.len() * NODE_BYTES + self.all.len * ENTRY_BYTES
    }

    /// How many pieces of the prompt each worker holds. Costs the pieces that anybody holds plus
    /// the workers that hold any.
    pub(crate) fn depths(&self, pieces: &Pieces) -> Depths {
        let mut depths = [0; MAX_WORKERS];
        let mut holders = WorkerSet::default();
        let mut depth = 0_u8;
        for hash in pieces.hashes() {
            let Some(node) = self.by_hash.get(hash) else { break };
            let found = self.nodes[*node as usize].holders;
            holders.without(found).iter().for_each(|slot| depths[usize::from(slot)] = depth);
            // Whoever lacks a shorter beginning is not found, whatever else it holds.
            holders = if depth == 0 { found } else { holders.common(found) };
            depth += 1;
        }
        holders.iter().for_each(|slot| depths[usize::from(slot)] = depth);
        depths
    }

    /// The worker at `slot` will hold the prompt.
    pub(crate) fn remember(&mut self, slot: u16, pieces: &Pieces) {
        for hash in pieces.hashes().iter().rev() {
            let node = self.by_hash.get(hash).copied();
            let found = node.and_then(|node| self.held.get(&held_key(node, slot)).copied());
            match found {
                Some(entry) => self.touch(entry),
                None => self.insert(slot, *hash, node),
            }
        }
        while self.own[usize::from(slot)].len > self.config.pieces_per_worker {
            self.remove(self.own[usize::from(slot)].oldest);
        }
        self.trim();
    }

    /// The worker at `slot` will not hold the prompt after all: takes back what a `remember` added
    /// to the first `before` pieces. Longer beginnings that it may hold are not found any more.
    pub(crate) fn take_back(&mut self, slot: u16, pieces: &Pieces, before: u8) {
        for hash in pieces.hashes().iter().skip(usize::from(before)).rev() {
            let node = self.by_hash.get(hash).copied();
            let held = node.and_then(|node| self.held.get(&held_key(node, slot)).copied());
            if let Some(entry) = held {
                self.remove(entry);
            }
        }
    }

    /// The worker at `slot` holds nothing.
    pub(crate) fn forget(&mut self, slot: u16) {
        while self.own[usize::from(slot)].oldest != NONE {
            self.remove(self.own[usize::from(slot)].oldest);
        }
    }

    fn trim(&mut self) {
        while self.bytes() > self.config.bytes_max && self.all.oldest != NONE {
            self.remove(self.all.oldest);
        }
    }

    fn insert(&mut self, slot: u16, hash: u64, node: Option<u32>) {
        let node = node.unwrap_or_else(|| {
            let node = Node { hash, holders: WorkerSet::default() };
            let at = place(&mut self.nodes, &mut self.free_nodes, node);
            self.by_hash.insert(hash, at);
            at
        });
        self.nodes[node as usize].holders.insert(slot);
        let links = Links { older: NONE, newer: NONE };
        let entry = Entry { node, slot, own: links, all: links };
        let at = place(&mut self.entries, &mut self.free_entries, entry);
        self.held.insert(held_key(node, slot), at);
        self.link(at);
    }

    fn touch(&mut self, at: u32) {
        self.unlink(at);
        self.link(at);
    }

    fn remove(&mut self, at: u32) {
        self.unlink(at);
        let Entry { node, slot, .. } = self.entries[at as usize];
        self.held.remove(&held_key(node, slot));
        self.free_entries.push(at);
        let found = &mut self.nodes[node as usize];
        found.holders.remove(slot);
        if found.holders.is_empty() {
            self.by_hash.remove(&found.hash);
            self.free_nodes.push(node);
        }
    }

    /// Puts an entry at the new end of both orders.
    fn link(&mut self, at: u32) {
        let own = &mut self.own[usize::from(self.entries[at as usize].slot)];
        append(&mut self.entries, own, at, |entry| &mut entry.own);
        append(&mut self.entries, &mut self.all, at, |entry| &mut entry.all);
    }

    fn unlink(&mut self, at: u32) {
        let own = &mut self.own[usize::from(self.entries[at as usize].slot)];
        detach(&mut self.entries, own, at, |entry| &mut entry.own);
        detach(&mut self.entries, &mut self.all, at, |entry| &mut entry.all);
    }
}

fn held_key(node: u32, slot: u16) -> u64 {
    u64::from(node) << 16 | u64::from(slot)
}

fn place<T>(all: &mut Vec<T>, free: &mut Vec<u32>, value: T) -> u32 {
    if let Some(at) = free.pop() {
        all[at as usize] = value;
        return at;
    }
    all.push(value);
    // The bound on bytes keeps it far below: 4 billion would be hundreds of gigabytes.
    (all.len() - 1) as u32
}

type LinksOf = fn(&mut Entry) -> &mut Links;

fn append(entries: &mut [Entry], order: &mut Order, at: u32, links: LinksOf) {
    *links(&mut entries[at as usize]) = Links { older: order.newest, newer: NONE };
    match order.newest {
        NONE => order.oldest = at,
        newest => links(&mut entries[newest as usize]).newer = at,
    }
    order.newest = at;
    order.len += 1;
}

fn detach(entries: &mut [Entry], order: &mut Order, at: u32, links: LinksOf) {
    let Links { older, newer } = *links(&mut entries[at as usize]);
    match older {
        NONE => order.oldest = newer,
        older => links(&mut entries[older as usize]).newer = newer,
    }
    match newer {
        NONE => order.newest = older,
        newer => links(&mut entries[newer as usize]).older = older,
    }
    order.len -= 1;
}

#[cfg(test)]
mod tests;
