//! Sets of places in the registry.

/// Workers that a router can know at a time.
pub const MAX_WORKERS: usize = 256;

/// A set of places, 32 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct WorkerSet([u64; MAX_WORKERS / 64]);

impl WorkerSet {
    pub(crate) fn insert(&mut self, slot: u16) {
        self.0[usize::from(slot) / 64] |= 1 << (slot % 64);
    }

    pub(crate) fn remove(&mut self, slot: u16) {
        self.0[usize::from(slot) / 64] &= !(1 << (slot % 64));
    }

    pub(crate) fn contains(&self, slot: u16) -> bool {
        self.0[usize::from(slot) / 64] & 1 << (slot % 64) != 0
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0 == [0; MAX_WORKERS / 64]
    }

    pub(crate) fn union(mut self, other: Self) -> Self {
        self.0.iter_mut().zip(other.0).for_each(|(own, other)| *own |= other);
        self
    }

    pub(crate) fn common(mut self, other: Self) -> Self {
        self.0.iter_mut().zip(other.0).for_each(|(own, other)| *own &= other);
        self
    }

    pub(crate) fn without(mut self, other: Self) -> Self {
        self.0.iter_mut().zip(other.0).for_each(|(own, other)| *own &= !other);
        self
    }

    /// The members in ascending order.
    pub(crate) fn iter(self) -> impl Iterator<Item = u16> {
        self.0.into_iter().zip(0_u16..).flat_map(|(word, at)| {
            let rest = |word: &u64| Some(*word & word.wrapping_sub(1)).filter(|word| *word != 0);
            std::iter::successors(Some(word).filter(|word| *word != 0), rest)
                .map(move |word| at * 64 + word.trailing_zeros() as u16)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_holds_what_was_put_in() {
        let mut set = WorkerSet::default();
        let members = [0, 1, 63, 64, 127, 128, 255];
        members.iter().for_each(|slot| set.insert(*slot));
        assert!(set.iter().eq(members));
        assert!((0..256).all(|slot| set.contains(slot) == members.contains(&slot)));
        let mut other = set;
        other.remove(63);
        other.insert(70);
        assert!(set.without(other).iter().eq([63]));
        assert!(set.common(other).iter().eq([0, 1, 64, 127, 128, 255]));
        assert_eq!(set.union(other).iter().count(), 8);
        assert!(!set.is_empty() && WorkerSet::default().is_empty());
    }
}
