//! A list of small integers in the order of their last use, with every operation in constant time.

/// No neighbour.
const NONE: u32 = u32::MAX;
/// Not in the list.
const OUT: u32 = u32::MAX - 1;

#[derive(Debug, Clone, Copy)]
struct Link {
    newer: u32,
    older: u32,
}

/// Keys from 0, doubly linked through a vector that is indexed by them. Its memory is that of the
/// largest key.
#[derive(Debug)]
pub(crate) struct Lru {
    links: Vec<Link>,
    newest: u32,
    oldest: u32,
}

impl Lru {
    pub(crate) const fn new() -> Self {
        Self { links: Vec::new(), newest: NONE, oldest: NONE }
    }

    /// The key that was used longest ago.
    pub(crate) const fn oldest(&self) -> Option<u32> {
        if self.oldest == NONE { None } else { Some(self.oldest) }
    }

    pub(crate) fn contains(&self, key: u32) -> bool {
        self.links.get(key as usize).is_some_and(|link| link.newer != OUT)
    }

    /// Puts in `key`, which must be out, as the most recently used.
    pub(crate) fn push_newest(&mut self, key: u32) {
        self.make_room(key);
        let before = self.newest;
        self.link(key, NONE, before);
    }

    /// Puts in `key`, which must be out, as used just after `anchor`, which must be in.
    pub(crate) fn insert_newer_than(&mut self, key: u32, anchor: u32) {
        self.make_room(key);
        debug_assert!(self.contains(anchor));
        let newer = self.links[anchor as usize].newer;
        self.link(key, newer, anchor);
    }

    /// Puts in `key`, which must be out, as used just after the newest one that `is_older` is true
    /// of; looks at every newer one.
    pub(crate) fn insert_after(&mut self, key: u32, is_older: impl Fn(u32) -> bool) {
        self.make_room(key);
        let (mut newer, mut older) = (NONE, self.newest);
        while older != NONE && !is_older(older) {
            (newer, older) = (older, self.links[older as usize].older);
        }
        self.link(key, newer, older);
    }

    /// Takes out `key`, which must be in.
    pub(crate) fn remove(&mut self, key: u32) {
        let Link { newer, older } = self.links[key as usize];
        assert!(newer != OUT, "only what is in the list is taken out");
        match newer {
            NONE => self.newest = older,
            newer => self.links[newer as usize].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.links[older as usize].newer = newer,
        }
        self.links[key as usize].newer = OUT;
    }

    /// Takes the memory that putting in `key` needs, so that doing so allocates nothing.
    pub(crate) fn reserve(&mut self, key: u32) {
        let index = key as usize;
        if index >= self.links.len() {
            self.links.resize(index + 1, Link { newer: OUT, older: OUT });
        }
    }

    fn make_room(&mut self, key: u32) {
        self.reserve(key);
        let index = key as usize;
        assert!(self.links[index].newer == OUT, "a key is in the list once");
    }

    fn link(&mut self, key: u32, newer: u32, older: u32) {
        self.links[key as usize] = Link { newer, older };
        match newer {
            NONE => self.newest = key,
            newer => self.links[newer as usize].older = key,
        }
        match older {
            NONE => self.oldest = key,
            older => self.links[older as usize].newer = key,
        }
    }

    /// Every key, oldest first.
    pub(crate) fn keys(&self) -> Vec<u32> {
        let next = |key: &u32| Some(self.links[*key as usize].newer).filter(|key| *key != NONE);
        std::iter::successors(self.oldest(), next).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_leave_in_the_order_of_their_use() {
        let mut lru = Lru::new();
        for key in [4, 0, 7] {
            lru.push_newest(key);
        }
        lru.insert_newer_than(2, 0);
        lru.insert_newer_than(9, 7);
        assert_eq!(lru.keys(), [4, 0, 2, 7, 9]);
        assert!(lru.contains(2) && !lru.contains(1) && !lru.contains(100));
        lru.remove(2);
        lru.remove(9);
        lru.remove(4);
        lru.push_newest(4);
        assert_eq!(lru.keys(), [0, 7, 4]);
        for key in [0, 7, 4] {
            assert_eq!(lru.oldest(), Some(key));
            lru.remove(key);
        }
        assert_eq!(lru.oldest(), None);
        lru.push_newest(1);
        assert_eq!(lru.keys(), [1]);
    }
}
