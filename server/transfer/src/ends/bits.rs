//! A set of small numbers.

/// Numbers below a bound, one bit each.
#[derive(Debug, Clone, Default)]
pub(crate) struct Bits {
    words: Vec<u64>,
    count: usize,
}

impl Bits {
    /// Whether it is in. Numbers that never were are not.
    pub(crate) fn has(&self, number: usize) -> bool {
        self.words.get(number / 64).is_some_and(|word| word >> (number % 64) & 1 == 1)
    }

    /// Puts a number in; says whether it was not. Takes memory up to the largest number, so the
    /// caller bounds it.
    pub(crate) fn insert(&mut self, number: usize) -> bool {
        let at = number / 64;
        if self.words.len() <= at {
            self.words.resize(at + 1, 0);
        }
        let new = !self.has(number);
        self.words[at] |= 1 << (number % 64);
        self.count += usize::from(new);
        new
    }

    /// Takes a number out.
    pub(crate) fn remove(&mut self, number: usize) {
        if self.has(number) {
            self.words[number / 64] &= !(1 << (number % 64));
            self.count -= 1;
        }
    }

    /// How many are in.
    pub(crate) const fn len(&self) -> usize {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_set() {
        let mut bits = Bits::default();
        assert!(!bits.has(1000) && bits.insert(63) && bits.insert(64) && bits.insert(0));
        assert!(!bits.insert(64) && bits.has(64) && bits.has(63) && !bits.has(62));
        bits.remove(64);
        bits.remove(64);
        bits.remove(5000);
        assert!(bits.len() == 2 && !bits.has(64));
    }
}
