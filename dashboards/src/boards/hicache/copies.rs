//! Copies between the tiers: how fast, how many wait, what did not happen.

use super::{BY_INSTANCE, NOW};
use crate::build::line;
use crate::build::pools::time_series;
use crate::ir::{Line, Section};
use metric_catalog::def::{Label, Unit};
use metric_catalog::labels::{CopyDirection, CopyFailure, CopyWait, Instance, Pool};
use metric_catalog::promql::{max, quantile, rate, sum};
use metric_catalog::server;

pub(super) fn section() -> Section {
    crate::build::section("copies", "Copies", vec![speed(), trouble()])
}

fn speed() -> Line {
    let by = (Instance::KEY, CopyDirection::KEY);
    let bytes = sum(rate(server::HICACHE_TRANSFER_BYTES, NOW));
    let busy = max(rate(server::HICACHE_TRANSFER_BUSY_SECONDS, NOW));
    let on = ["instance", "direction"];
    let bandwidth = bytes.by(by).share_of(&on, busy.by(by)).in_unit(Unit::BytesPerSecond);
    let volume = sum(rate(server::HICACHE_TRANSFER_BYTES, NOW));
    line(
        8,
        vec![
            time_series("copy-bandwidth")
                .title("Copy bandwidth")
                .describe(
                    "Bytes of all ranks over the time that the busiest one copied in that \
                     direction: what the link gives, not how much it is used.",
                )
                .unit(Unit::BytesPerSecond)
                .query(bandwidth, "{{direction}} {{instance}}")
                .no_value("nothing was copied")
                .into(),
            time_series("copy-bytes")
                .title("Bytes copied by pool")
                .describe(
                    "Bytes of each pool in each direction. Backups follow what is computed; loads \
                     are what host hits cost.",
                )
                .unit(Unit::BytesPerSecond)
                .query(
                    volume.by((CopyDirection::KEY, Pool::KEY, Instance::KEY)),
                    "{{direction}} {{pool}} {{instance}}",
                )
                .into(),
            time_series("copy-busy")
                .title("Time spent copying")
                .describe(
                    "Share of time in which the busiest rank copied in a direction. Near 1, loads \
                     wait for each other, and backups are dropped.",
                )
                .unit(Unit::Ratio)
                .query(
                    max(rate(server::HICACHE_TRANSFER_BUSY_SECONDS, NOW)).by(by),
                    "{{direction}} {{instance}}",
                )
                .max(1.0)
                .into(),
            time_series("copy-duration")
                .title("Time of one copy")
                .describe(
                    "How long a copy of any number of pages takes once it has begun. Copies of a \
                     node run one after the other, so a long one makes the next one wait.",
                )
                .unit(Unit::Seconds)
                .query(
                    quantile(0.95, server::HICACHE_TRANSFER_DURATION, NOW)
                        .by((CopyDirection::KEY,)),
                    "p95 {{direction}}",
                )
                .into(),
        ],
    )
}

fn trouble() -> Line {
    let pending = max(server::HICACHE_PENDING_OPERATIONS);
    let waits = sum(rate(server::HICACHE_WAIT_SECONDS, NOW));
    let held = sum(rate(server::HICACHE_HELD_REQUESTS, NOW));
    let failures = sum(rate(server::HICACHE_TRANSFER_FAILURES, NOW));
    line(
        8,
        vec![
            time_series("copy-pending")
                .title("Copies pending")
                .describe("Copies queued or running. A queue of backups that is full drops them.")
                .unit(Unit::Count)
                .query(
                    pending.by((CopyDirection::KEY, Instance::KEY)),
                    "{{direction}} {{instance}}",
                )
                .into(),
            time_series("copy-waits")
                .title("Waiting for copies")
                .describe(
                    "Share of time that forward passes waited: `loads`, for pages of the host that \
                     they read; `urgent`, for copies of pages that were given away (write_back). \
                     Both delay every request of the batch.",
                )
                .unit(Unit::Ratio)
                .query(waits.by((CopyWait::KEY, Instance::KEY)), "{{cause}} {{instance}}")
                .into(),
            time_series("copy-held")
                .title("Requests held by copies")
                .describe(
                    "Requests that a turn passed over because pages that they need are being \
                     copied, counted anew in each turn.",
                )
                .unit(Unit::RequestsPerSecond)
                .query(held.by(Instance::KEY), BY_INSTANCE)
                .into(),
            time_series("copy-failures")
                .title("Pages without a copy")
                .describe(
                    "By reason: `no_host_room`, every host page belongs to a page of the device; \
                     `queue_full`, copies come faster than they are made. Such a page is computed \
                     again when it is asked for after the device gave it up.",
                )
                .unit(Unit::CountPerSecond)
                .query(
                    failures.by((CopyFailure::KEY, Pool::KEY, Instance::KEY)),
                    "{{reason}} {{pool}} {{instance}}",
                )
                .into(),
        ],
    )
}
