//! The store behind the host tier: what it gives back, what it takes, how full it is.

use super::NOW;
use crate::build::line;
use crate::build::pools::time_series;
use crate::ir::{Panel, Section, Stack};
use metric_catalog::def::{Label, Unit};
use metric_catalog::labels::{
    Instance, StoreDeletion, StoreOperation, StorePages, StorePrefix, StoreRead, StoreWait,
    StoreWrite,
};
use metric_catalog::promql::{max, rate, ratio, sum};
use metric_catalog::server;

/// What the store finds, whom it holds up, and what it forgets.
fn life() -> Vec<Panel> {
    let prefixes = sum(rate(server::KV_STORE_PREFIXES, NOW)).by((StorePrefix::KEY, Instance::KEY));
    let waiting = max(server::KV_STORE_WAITING_REQUESTS).by((StoreWait::KEY, Instance::KEY));
    let gone = sum(rate(server::KV_STORE_DELETED_OBJECTS, NOW));
    vec![
        time_series("store-prefixes")
            .title("Prefixes looked for in the store")
            .describe(
                "`found` of those `looked_up` is what the store is worth. `timeout`: it is slower \
                 than requests wait for it; `no_host_room`: the host tier is full of pages in use.",
            )
            .unit(Unit::CountPerSecond)
            .query(prefixes, "{{event}} {{instance}}")
            .no_value("no store")
            .into(),
        time_series("store-waiting")
            .title("Requests that wait for the store")
            .describe(
                "Requests whose pages are being read or wait for it. Many for long: the store \
                 holds up what it was to speed up; shorten the time that requests wait for it.",
            )
            .unit(Unit::Requests)
            .query(waiting, "{{state}} {{instance}}")
            .no_value("no store")
            .into(),
        time_series("store-deleted")
            .title("Objects deleted")
            .describe(
                "`capacity`: the bound was reached, and the oldest went; `broken`: an object could \
                 not be read back. Many of the first with few pages found: raise the bound.",
            )
            .unit(Unit::CountPerSecond)
            .query(gone.by((StoreDeletion::KEY, Instance::KEY)), "{{reason}} {{instance}}")
            .no_value("no store")
            .into(),
        time_series("store-objects")
            .title("Objects in the store")
            .describe("Objects that this server knows of; its index of them takes memory.")
            .unit(Unit::Count)
            .query(max(server::KV_STORE_OBJECTS).by(Instance::KEY), "{{instance}}")
            .no_value("no store")
            .into(),
    ]
}

pub(super) fn section() -> Section {
    let reads = sum(rate(server::KV_STORE_READS, NOW)).by((StoreRead::KEY, Instance::KEY));
    let writes = sum(rate(server::KV_STORE_WRITES, NOW)).by((StoreWrite::KEY, Instance::KEY));
    let pages = sum(rate(server::KV_STORE_PREFETCHED_SLOTS, NOW));
    let by = (StoreOperation::KEY, Instance::KEY);
    let bandwidth = ratio(
        sum(rate(server::KV_STORE_TRANSFER_BYTES, NOW)).by(by),
        sum(rate(server::KV_STORE_TRANSFER_SECONDS, NOW)).by(by),
    );
    let pages_panels = vec![
        time_series("store-reads")
            .title("Pages read from the store")
            .describe(
                "By result. `absent` is usual; `truncated`, `corrupt` and `foreign` are objects \
                 that broke or that somebody else wrote, and `timeout` and `error` a store in \
                 trouble. None of them gives wrong tokens.",
            )
            .unit(Unit::CountPerSecond)
            .query(reads, "{{result}} {{instance}}")
            .into(),
        time_series("store-writes")
            .title("Pages written to the store")
            .describe(
                "By result. `queue_full` and `busy`: pages come faster than they are written; \
                 `no_room`: the store's bound is too small for what is being written.",
            )
            .unit(Unit::CountPerSecond)
            .query(writes, "{{result}} {{instance}}")
            .into(),
        time_series("store-prefetch")
            .title("Pages for requests")
            .describe(
                "Pages that were asked for, came in time, and entered the host tier. A gap between \
                 the first two is a store too slow for the time that requests wait.",
            )
            .unit(Unit::SlotsPerSecond)
            .query(pages.by((StorePages::KEY, Instance::KEY)), "{{step}} {{instance}}")
            .into(),
    ];
    let bytes_panels = vec![
        time_series("store-bytes")
            .title("Bytes in the store")
            .describe("Bytes held, and the most that this server keeps there.")
            .unit(Unit::Bytes)
            .query(max(server::KV_STORE_HELD_BYTES).by(Instance::KEY), "held {{instance}}")
            .query(max(server::KV_STORE_LIMIT_BYTES).by(Instance::KEY), "limit {{instance}}")
            .dashed("/^limit/")
            .into(),
        time_series("store-bandwidth")
            .title("Bandwidth of a request to the store")
            .describe(
                "Bytes over the time that reads and writes took, added up over those that ran at \
                 once: what one of them gets.",
            )
            .unit(Unit::BytesPerSecond)
            .query(bandwidth, "{{operation}} {{instance}}")
            .no_value("no store, or nothing moved")
            .into(),
        time_series("store-queued")
            .title("Bytes on their way")
            .describe("Bytes of pages that wait to be written or are being written.")
            .unit(Unit::Bytes)
            .query(max(server::KV_STORE_QUEUED_BYTES).by(Instance::KEY), "{{instance}}")
            .stacked(Stack::Sum)
            .into(),
    ];
    let lines = vec![line(8, pages_panels), line(8, bytes_panels), line(8, life())];
    crate::build::section("store", "Store", lines)
}
