//! The store behind the host tier: what was read and written, and what it holds.

use engine::StorageStats;
use kv_store::{DropReason, Miss, StoreStats};
use metric_catalog::install::{GaugeHandle, Registry, TimeHandle};
use metric_catalog::labels::{
    StoreDeletion, StoreOperation, StorePages, StorePrefix, StoreRead, StoreWait, StoreWrite,
};
use metric_catalog::server as catalog;

use super::all;
use super::gauges::Follower;

/// Handles; all at 0 where there is no store.
#[derive(Debug)]
pub(super) struct StoreGauges {
    reads: Vec<Follower>,
    writes: Vec<Follower>,
    bytes: Vec<Follower>,
    seconds: Vec<TimeHandle>,
    deleted: Vec<Follower>,
    prefixes: Vec<Follower>,
    pages: Vec<Follower>,
    waiting: Vec<GaugeHandle>,
    objects: GaugeHandle,
    held: GaugeHandle,
    limit: GaugeHandle,
    queued: GaugeHandle,
}

impl StoreGauges {
    pub(super) fn new(registry: &Registry) -> Self {
        let gauge = |metric| registry.gauge(metric, ());
        let follow = Follower::new;
        Self {
            reads: all(|result| follow(registry.counter(catalog::KV_STORE_READS, (result,)))),
            writes: all(|result| follow(registry.counter(catalog::KV_STORE_WRITES, (result,)))),
            bytes: all(|way| follow(registry.counter(catalog::KV_STORE_TRANSFER_BYTES, (way,)))),
            seconds: all(|way| registry.time(catalog::KV_STORE_TRANSFER_SECONDS, (way,))),
            deleted: all(|why| follow(registry.counter(catalog::KV_STORE_DELETED_OBJECTS, (why,)))),
            prefixes: all(|event| follow(registry.counter(catalog::KV_STORE_PREFIXES, (event,)))),
            pages: all(|step| {
                follow(registry.counter(catalog::KV_STORE_PREFETCHED_SLOTS, (step,)))
            }),
            waiting: all(|state| registry.gauge(catalog::KV_STORE_WAITING_REQUESTS, (state,))),
            objects: gauge(catalog::KV_STORE_OBJECTS),
            held: gauge(catalog::KV_STORE_HELD_BYTES),
            limit: gauge(catalog::KV_STORE_LIMIT_BYTES),
            queued: gauge(catalog::KV_STORE_QUEUED_BYTES),
        }
    }

    /// What the store says, and what the engine did with it.
    pub(super) fn set(&self, store: &StoreStats, engine: &StorageStats) {
        for result in StoreRead::ALL {
            self.reads[result.index()].follow(match result {
                StoreRead::Hit => store.hits,
                StoreRead::Absent => store.misses_by(Miss::Absent),
                StoreRead::Timeout => store.misses_by(Miss::Timeout),
                StoreRead::Error => store.misses_by(Miss::Error),
                StoreRead::Truncated => store.misses_by(Miss::Truncated),
                StoreRead::Corrupt => store.misses_by(Miss::Corrupt),
                StoreRead::Foreign => store.misses_by(Miss::Foreign),
                StoreRead::Model => store.misses_by(Miss::Model),
                StoreRead::Layout => store.misses_by(Miss::Layout),
                StoreRead::Collision => store.misses_by(Miss::Collision),
            });
        }
        for result in StoreWrite::ALL {
            self.writes[result.index()].follow(match result {
                StoreWrite::Written => store.writes,
                StoreWrite::Present => store.present,
                StoreWrite::QueueFull => store.drops_by(DropReason::QueueFull),
                StoreWrite::NoRoom => store.drops_by(DropReason::NoRoom),
                StoreWrite::Timeout => store.drops_by(DropReason::Timeout),
                StoreWrite::Error => store.drops_by(DropReason::Error),
                StoreWrite::Closed => store.drops_by(DropReason::Closed),
                StoreWrite::Busy => engine.backups_dropped,
            });
        }
        for operation in StoreOperation::ALL {
            let (bytes, time) = match operation {
                StoreOperation::Read => (store.read_bytes, store.read_time),
                StoreOperation::Write => (store.written_bytes, store.write_time),
            };
            self.bytes[operation.index()].follow(bytes);
            self.seconds[operation.index()].set_total(time);
        }
        for reason in StoreDeletion::ALL {
            self.deleted[reason.index()].follow(match reason {
                StoreDeletion::Capacity => store.evictions,
                StoreDeletion::Broken => store.broken_deleted,
            });
        }
        self.objects.set_count(store.entries);
        self.held.set_count(store.held_bytes);
        self.limit.set_count(store.max_bytes);
        self.queued.set_count(store.queued_bytes);
        self.set_engine(engine);
    }

    fn set_engine(&self, engine: &StorageStats) {
        for event in StorePrefix::ALL {
            self.prefixes[event.index()].follow(match event {
                StorePrefix::LookedUp => engine.lookups,
                StorePrefix::Found => engine.found,
                StorePrefix::Timeout => engine.timeouts,
                StorePrefix::NoHostRoom => engine.no_host_room,
                StorePrefix::Busy => engine.busy,
            });
        }
        for step in StorePages::ALL {
            self.pages[step.index()].follow(match step {
                StorePages::Asked => engine.asked_pages,
                StorePages::Arrived => engine.arrived_pages,
                StorePages::Entered => engine.entered_pages,
            });
        }
        for state in StoreWait::ALL {
            self.waiting[state.index()].set_count(match state {
                StoreWait::Reading => engine.reading as u64,
                StoreWait::Queued => engine.queued as u64,
            });
        }
    }
}
