//! The store behind the host tier: what it gives back, what it takes, how full it is.

use super::NOW;
use crate::build::line;
use crate::build::pools::time_series;
use crate::ir::{Section, Stack};
use metric_catalog::def::{Label, Unit};
use metric_catalog::labels::{Instance, StoreOperation, StorePages, StoreRead, StoreWrite};
use metric_catalog::promql::{max, rate, ratio, sum};
use metric_catalog::server;

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
    crate::build::section("store", "Store", vec![line(8, pages_panels), line(8, bytes_panels)])
}
