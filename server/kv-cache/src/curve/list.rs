//! One recency list that answers for every capacity at once.
//!
//! The list is cut at each capacity: a marker points at the page in that position, and each page
//! knows its *segment*, the number of markers before it. A page is a hit for every capacity whose
//! number is at least its segment; nobody computes a distance. What falls behind the last marker
//! is forgotten.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

const NONE: u32 = u32::MAX;

/// Keys are hashes already.
#[derive(Debug, Default)]
pub(super) struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }
}

pub(super) type KeyMap<V> = HashMap<u64, V, BuildHasherDefault<KeyHasher>>;

/// A page that is followed: 24 bytes, and its entry in the map.
#[derive(Debug, Clone, Copy)]
struct Node {
    key: u64,
    newer: u32,
    older: u32,
    segment: u8,
    pending: bool,
}

/// What a look-up finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// The number of the smallest capacity that holds it.
    Within(u8),
    /// It is followed, but nobody has computed it yet.
    Pending,
    /// It is not followed.
    Absent,
}

/// The list, most recent first.
#[derive(Debug)]
pub(super) struct MarkedList {
    nodes: Vec<Node>,
    unused: Vec<u32>,
    slots: KeyMap<u32>,
    newest: u32,
    oldest: u32,
    /// Ascending, at least 1 each; equal ones are allowed.
    capacities: Vec<usize>,
    /// The page in each position, while the list reaches it.
    markers: Vec<u32>,
    /// Capacities that the list has been as long as, at some time.
    reached: usize,
    dropped: u64,
}

impl MarkedList {
    /// An empty list that is cut at `capacities`, which ascend.
    pub(super) fn new(capacities: Vec<usize>) -> Self {
        debug_assert!(capacities.is_sorted() && capacities.first().is_some_and(|first| *first > 0));
        debug_assert!(capacities.len() < usize::from(u8::MAX));
        Self {
            nodes: Vec::new(),
            unused: Vec::new(),
            slots: KeyMap::default(),
            newest: NONE,
            oldest: NONE,
            markers: vec![NONE; capacities.len()],
            capacities,
            reached: 0,
            dropped: 0,
        }
    }

    /// Pages in the list.
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// How many capacities, from the smallest, the list has filled at some time.
    pub(super) const fn reached(&self) -> usize {
        self.reached
    }

    /// The keys in it, in no order.
    pub(super) fn keys(&self) -> impl Iterator<Item = u64> {
        self.slots.keys().copied()
    }

    /// Leaves the pages that `keep` says, in their order, and cuts them at other `capacities`, as
    /// many as before.
    pub(super) fn resample(&mut self, capacities: Vec<usize>, keep: impl Fn(u64) -> bool) {
        let mut next = Self::new(capacities);
        let mut slot = self.oldest;
        while slot != NONE {
            let Node { key, newer, pending, .. } = self.nodes[slot as usize];
            if keep(key) {
                next.push_new(key, pending, &mut |_, _| {});
            }
            slot = newer;
        }
        next.reached = next.reached.max(self.reached);
        next.dropped += self.dropped;
        *self = next;
    }

    /// Pages that fell behind the last marker.
    pub(super) const fn dropped(&self) -> u64 {
        self.dropped
    }

    pub(super) fn find(&self, key: u64) -> Found {
        match self.slots.get(&key) {
            None => Found::Absent,
            Some(slot) => {
                let node = self.nodes[*slot as usize];
                if node.pending { Found::Pending } else { Found::Within(node.segment) }
            }
        }
    }

    /// Whether the capacity with number `candidate` holds the page, computed or not.
    pub(super) fn is_within(&self, key: u64, candidate: usize) -> bool {
        let slot = self.slots.get(&key);
        slot.is_some_and(|slot| usize::from(self.nodes[*slot as usize].segment) <= candidate)
    }

    /// Makes the page the most recent one. A new one is `pending` as said, a known one is computed
    /// once it is touched as such. `crossed(candidate, key)` hears of each page that this pushes
    /// behind a marker.
    pub(super) fn touch(&mut self, key: u64, pending: bool, crossed: &mut impl FnMut(usize, u64)) {
        match self.slots.get(&key) {
            Some(&slot) => {
                self.nodes[slot as usize].pending &= pending;
                self.touch_known(slot, crossed);
            }
            None => self.push_new(key, pending, crossed),
        }
    }

    /// Takes the page out if nobody has computed it; `true` when it did.
    pub(super) fn drop_pending(&mut self, key: u64) -> bool {
        let Some(&slot) = self.slots.get(&key) else { return false };
        let Node { pending, segment, .. } = self.nodes[slot as usize];
        if !pending {
            return false;
        }
        // Everything behind moves up by one: each later marker goes to the page behind it.
        for index in usize::from(segment)..self.markers.len() {
            let marker = self.markers[index];
            if marker == NONE {
                continue;
            }
            let next = self.nodes[marker as usize].older;
            self.markers[index] = next;
            if next != NONE {
                // It was behind this marker and is at it now.
                let node = &mut self.nodes[next as usize];
                node.segment = node.segment.min(index as u8);
            }
        }
        self.unlink(slot);
        self.slots.remove(&key);
        self.unused.push(slot);
        true
    }

    /// Bytes that it takes.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        // An entry of the map is a key, a slot and a byte of control.
        let entry = size_of::<(u64, u32)>() + 1;
        self.nodes.capacity() * size_of::<Node>() + self.slots.capacity() * entry
    }

    /// Markers are where they belong, and segments follow from them.
    #[cfg(test)]
    pub(super) fn check(&self) {
        let next = |slot: &u32| Some(self.nodes[*slot as usize].older).filter(|slot| *slot != NONE);
        let first = Some(self.newest).filter(|slot| *slot != NONE);
        let order: Vec<u32> = std::iter::successors(first, next).collect();
        assert_eq!(order.len(), self.len());
        for (at, slot) in order.iter().enumerate() {
            let before = self.capacities.iter().filter(|capacity| **capacity <= at).count();
            assert_eq!(usize::from(self.nodes[*slot as usize].segment), before, "position {at}");
        }
        for (marker, capacity) in self.markers.iter().zip(&self.capacities) {
            assert_eq!(*marker, order.get(capacity - 1).copied().unwrap_or(NONE));
        }
    }

    fn touch_known(&mut self, slot: u32, crossed: &mut impl FnMut(usize, u64)) {
        if self.newest == slot {
            return;
        }
        let segment = usize::from(self.nodes[slot as usize].segment);
        let newer = self.nodes[slot as usize].newer;
        for marker in &mut self.markers[segment..] {
            if *marker != slot {
                break;
            }
            *marker = newer;
        }
        self.unlink(slot);
        self.push_front(slot);
        self.nodes[slot as usize].segment = 0;
        self.shift(segment, crossed);
    }

    fn push_new(&mut self, key: u64, pending: bool, crossed: &mut impl FnMut(usize, u64)) {
        let node = Node { key, newer: NONE, older: NONE, segment: 0, pending };
        let slot = match self.unused.pop() {
            Some(slot) => {
                self.nodes[slot as usize] = node;
                slot
            }
            None => {
                let slot = u32::try_from(self.nodes.len()).expect("fewer pages than 2^32");
                self.nodes.push(node);
                slot
            }
        };
        self.slots.insert(key, slot);
        self.push_front(slot);
        let full = self.markers.iter().take_while(|marker| **marker != NONE).count();
        self.shift(full, crossed);
        let len = self.len();
        for index in full..self.markers.len() {
            if self.capacities[index] == len {
                self.markers[index] = self.oldest;
                self.reached = self.reached.max(index + 1);
            }
        }
        // Only one page can be behind the last marker, and it is the oldest.
        if full == self.markers.len() {
            let oldest = self.oldest;
            self.unlink(oldest);
            self.slots.remove(&self.nodes[oldest as usize].key);
            self.unused.push(oldest);
            self.dropped += 1;
        }
    }

    /// A page has come to the front: the first `count` markers move to the page before theirs.
    fn shift(&mut self, count: usize, crossed: &mut impl FnMut(usize, u64)) {
        for index in 0..count {
            let marker = self.markers[index] as usize;
            let node = &mut self.nodes[marker];
            node.segment = index as u8 + 1;
            crossed(index, node.key);
            self.markers[index] = node.newer;
        }
    }

    fn push_front(&mut self, slot: u32) {
        let older = self.newest;
        self.nodes[slot as usize].newer = NONE;
        self.nodes[slot as usize].older = older;
        match older {
            NONE => self.oldest = slot,
            older => self.nodes[older as usize].newer = slot,
        }
        self.newest = slot;
    }

    fn unlink(&mut self, slot: u32) {
        let Node { newer, older, .. } = self.nodes[slot as usize];
        match newer {
            NONE => self.newest = older,
            newer => self.nodes[newer as usize].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.nodes[older as usize].newer = newer,
        }
    }
}
