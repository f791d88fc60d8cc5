//! The window pages that one candidate size would hold: a small recency list.

use super::list::KeyMap;

const NONE: u32 = u32::MAX;

#[derive(Debug, Clone, Copy)]
struct Node {
    key: u64,
    newer: u32,
    older: u32,
}

/// At most `capacity` keys; the one unused longest goes first.
#[derive(Debug)]
pub(super) struct WindowList {
    capacity: usize,
    nodes: Vec<Node>,
    unused: Vec<u32>,
    slots: KeyMap<u32>,
    newest: u32,
    oldest: u32,
}

impl WindowList {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            capacity,
            nodes: Vec::new(),
            unused: Vec::new(),
            slots: KeyMap::default(),
            newest: NONE,
            oldest: NONE,
        }
    }

    pub(super) const fn capacity(&self) -> usize {
        self.capacity
    }

    pub(super) fn has(&self, key: u64) -> bool {
        self.slots.contains_key(&key)
    }

    /// Makes `key` the most recent one, at the cost of the oldest.
    pub(super) fn touch(&mut self, key: u64) {
        if self.capacity == 0 {
            return;
        }
        if !self.remove(key) && self.slots.len() == self.capacity {
            self.remove(self.nodes[self.oldest as usize].key);
        }
        let node = Node { key, newer: NONE, older: self.newest };
        let slot = match self.unused.pop() {
            Some(slot) => {
                self.nodes[slot as usize] = node;
                slot
            }
            None => {
                self.nodes.push(node);
                (self.nodes.len() - 1) as u32
            }
        };
        match self.newest {
            NONE => self.oldest = slot,
            newest => self.nodes[newest as usize].newer = slot,
        }
        self.newest = slot;
        self.slots.insert(key, slot);
    }

    /// Takes `key` out; `false` when it was not in.
    pub(super) fn remove(&mut self, key: u64) -> bool {
        let Some(slot) = self.slots.remove(&key) else { return false };
        let Node { newer, older, .. } = self.nodes[slot as usize];
        match newer {
            NONE => self.newest = older,
            newer => self.nodes[newer as usize].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.nodes[older as usize].newer = newer,
        }
        self.unused.push(slot);
        true
    }
}
