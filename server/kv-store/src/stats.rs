//! What happened, as plain numbers: counters are of atomic integers, and one call reads them all.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Why a page was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Miss {
    /// There is none.
    Absent,
    /// The backend took longer than [`crate::StoreOptions::timeout`].
    Timeout,
    /// The backend failed.
    Error,
    /// An object of ours that ends too early. It was deleted.
    Truncated,
    /// An object of ours whose checksum or lengths do not hold. It was deleted.
    Corrupt,
    /// Something that we did not write is in the page's place.
    Foreign,
    /// A page of another model.
    Model,
    /// A page with another layout, number of ranks or set of parts.
    Layout,
    /// A page of other tokens.
    Collision,
}

impl Miss {
    /// All of them, in the order of [`StoreStats::misses`].
    pub const ALL: [Self; 9] = [
        Self::Absent,
        Self::Timeout,
        Self::Error,
        Self::Truncated,
        Self::Corrupt,
        Self::Foreign,
        Self::Model,
        Self::Layout,
        Self::Collision,
    ];

    /// The value of a label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::Timeout => "timeout",
            Self::Error => "error",
            Self::Truncated => "truncated",
            Self::Corrupt => "corrupt",
            Self::Foreign => "foreign",
            Self::Model => "model",
            Self::Layout => "layout",
            Self::Collision => "collision",
        }
    }

    /// Whether the object is one of ours that broke.
    #[must_use]
    pub const fn is_broken(self) -> bool {
        matches!(self, Self::Truncated | Self::Corrupt)
    }
}

/// Why a page was not written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DropReason {
    /// The queue of writes is full.
    QueueFull,
    /// Nothing more could be evicted: other writes have the rest.
    NoRoom,
    /// The backend took longer than [`crate::StoreOptions::timeout`].
    Timeout,
    /// The backend failed, writing or evicting.
    Error,
    /// The store is closed or was closed first.
    Closed,
}

impl DropReason {
    /// All of them, in the order of [`StoreStats::drops`].
    pub const ALL: [Self; 5] =
        [Self::QueueFull, Self::NoRoom, Self::Timeout, Self::Error, Self::Closed];

    /// The value of a label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::QueueFull => "queue_full",
            Self::NoRoom => "no_room",
            Self::Timeout => "timeout",
            Self::Error => "error",
            Self::Closed => "closed",
        }
    }
}

/// Counts since the store was opened, and what it holds now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StoreStats {
    /// Pages read.
    pub hits: u64,
    /// Pages not read, in the order of [`Miss::ALL`].
    pub misses: [u64; Miss::ALL.len()],
    /// Bytes of objects read, good or not.
    pub read_bytes: u64,
    /// Time that reads took, added up over reads that ran at once.
    pub read_time: Duration,
    /// Pages written.
    pub writes: u64,
    /// Pages that were there already.
    pub present: u64,
    /// Pages not written, in the order of [`DropReason::ALL`].
    pub drops: [u64; DropReason::ALL.len()],
    /// Bytes of objects written.
    pub written_bytes: u64,
    /// Time that writes took, evictions included, added up over writes that ran at once.
    pub write_time: Duration,
    /// Objects deleted to make room.
    pub evictions: u64,
    /// Objects deleted because they were broken.
    pub broken_deleted: u64,
    /// Whether what was there at the start has been counted; nothing is written before.
    pub listed: bool,
    /// Objects known, of all scopes.
    pub entries: u64,
    /// Bytes of objects known, being written or being deleted.
    pub held_bytes: u64,
    /// The most that may be held.
    pub max_bytes: u64,
    /// Bytes of pages that wait to be written or are being written.
    pub queued_bytes: u64,
}

impl StoreStats {
    /// Pages not read for one reason.
    #[must_use]
    pub const fn misses_by(&self, reason: Miss) -> u64 {
        self.misses[reason as usize]
    }

    /// Pages not written for one reason.
    #[must_use]
    pub const fn drops_by(&self, reason: DropReason) -> u64 {
        self.drops[reason as usize]
    }
}

/// The counters behind [`StoreStats`].
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) hits: AtomicU64,
    pub(crate) misses: [AtomicU64; Miss::ALL.len()],
    pub(crate) read_bytes: AtomicU64,
    pub(crate) read_nanos: AtomicU64,
    pub(crate) writes: AtomicU64,
    pub(crate) present: AtomicU64,
    pub(crate) drops: [AtomicU64; DropReason::ALL.len()],
    pub(crate) written_bytes: AtomicU64,
    pub(crate) write_nanos: AtomicU64,
    pub(crate) evictions: AtomicU64,
    pub(crate) broken_deleted: AtomicU64,
}

/// Adds to a counter; wraps after 2^64, which no process reaches.
pub(crate) fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Counters {
    pub(crate) fn miss(&self, reason: Miss) {
        add(&self.misses[reason as usize], 1);
    }

    pub(crate) fn dropped(&self, reason: DropReason) {
        add(&self.drops[reason as usize], 1);
    }

    /// The counters; what is held now is left at zero.
    pub(crate) fn read(&self) -> StoreStats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut stats = StoreStats {
            hits: get(&self.hits),
            read_bytes: get(&self.read_bytes),
            read_time: Duration::from_nanos(get(&self.read_nanos)),
            writes: get(&self.writes),
            present: get(&self.present),
            written_bytes: get(&self.written_bytes),
            write_time: Duration::from_nanos(get(&self.write_nanos)),
            evictions: get(&self.evictions),
            broken_deleted: get(&self.broken_deleted),
            ..StoreStats::default()
        };
        for (value, counter) in stats.misses.iter_mut().zip(&self.misses) {
            *value = get(counter);
        }
        for (value, counter) in stats.drops.iter_mut().zip(&self.drops) {
            *value = get(counter);
        }
        stats
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_counted_in_the_order_of_their_lists() {
        let counters = Counters::default();
        for (place, reason) in Miss::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, place);
            (0..=place).for_each(|_| counters.miss(reason));
        }
        for (place, reason) in DropReason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, place);
            (0..=place).for_each(|_| counters.dropped(reason));
        }
        let stats = counters.read();
        assert_eq!(stats.misses, [1, 2, 3, 4, 5, 6, 7, 8, 9]);
        assert_eq!(stats.misses_by(Miss::Corrupt), 5);
        assert_eq!(stats.drops_by(DropReason::Closed), 5);
    }
}
