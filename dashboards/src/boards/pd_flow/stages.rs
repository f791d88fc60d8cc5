//! The stations after the queue: bootstrap, prefill, transfer, decode.

use super::{BY_INSTANCE, NO_PAIR, NOW};
use crate::boards::common;
use crate::build::{line, section, time_series};
use crate::ir::{Color, Section, Stack};
use metric_catalog::def::{Label, Unit};
use metric_catalog::labels::{
    Instance, Peer, Phase, Role, TransferSide, TransferStage, TransferState,
};
use metric_catalog::promql::{Selection, avg, max, quantile, rate, recorded, sum};
use metric_catalog::{pair, server, slo};

/// Until both workers know where the KV goes.
pub(super) fn bootstrap() -> Section {
    let time = |share| {
        let stages = [TransferStage::Bootstrap, TransferStage::Alloc];
        quantile(share, pair::KV_TRANSFER_DURATION.any_of(&stages), NOW)
            .by((TransferSide::KEY, TransferStage::KEY))
    };
    let waiting = sum(pair::KV_TRANSFERS_ACTIVE.is(TransferState::Waiting));
    let panels = vec![
        time_series("bootstrap-time")
            .title("Time of bootstrap")
            .describe(
                "`bootstrap`: until the offer is answered, and at the prefill worker from then \
                 until the decode worker has named its pages. `alloc`: waiting for room at the \
                 decode worker. Long ones: decode workers are full.",
            )
            .unit(Unit::Seconds)
            .query(time(0.5), "{{side}} {{stage}} p50")
            .query(time(0.95), "{{side}} {{stage}} p95")
            .no_value("no transfers")
            .into(),
        time_series("transfers-waiting")
            .title("Transfers without a byte due")
            .describe(
                "Open transfers that wait for room or for their prompt, by link. They grow with \
                 the queue; many for one peer alone: that prefill worker is behind.",
            )
            .unit(Unit::Count)
            .query(waiting.by((Instance::KEY, Peer::KEY)).above(0.0), "{{instance}} {{peer}}")
            .no_value("none")
            .detail(common::TRANSFER)
            .into(),
        time_series("decode-room")
            .title("Pools of decode workers")
            .describe(
                "Share of each pool that live requests pin, at decode workers. Above the line \
                 there is no room for another prompt: requests wait in bootstrap, whatever the \
                 prefill workers could do.",
            )
            .unit(Unit::Ratio)
            .query(recorded::POOL_ACTIVE.is(Role::Decode), "{{tier}} {{pool}} {{instance}}")
            .max(1.0)
            .no_value(NO_PAIR)
            .threshold(slo::POOL_ACTIVE_RATIO, Color::Orange)
            .threshold_lines()
            .alert("DevicePoolExhausted")
            .detail(common::KV_POOLS)
            .into(),
    ];
    section("bootstrap", "Bootstrap: room at the decode worker", vec![line(8, panels)])
}

/// The prompt is computed.
pub(super) fn prefill() -> Section {
    let busy = sum(rate(server::FORWARD_BUSY_SECONDS.is(Role::Prefill), NOW));
    let panels = vec![
        time_series("pair-prefill-capacity")
            .title("Prefill capacity")
            .describe(
                "Prompt tokens by *busy* second at prefill workers, and those computed by the \
                 second. Computed near capacity: they are full. Capacity that fell: throttled, \
                 shared, or a cold cache.",
            )
            .unit(Unit::TokensPerSecond)
            .query(recorded::PREFILL_CAPACITY.is(Role::Prefill), "capacity {{instance}}")
            .query(recorded::PROMPT_TOKENS_COMPUTED.is(Role::Prefill), "computed {{instance}}")
            .dashed("/^capacity/")
            .no_value(NO_PAIR)
            .alert("PrefillThroughputCollapsed")
            .detail(common::QUEUE)
            .into(),
        time_series("pair-prefill-busy")
            .title("Prefill workers busy")
            .describe(
                "Share of time in forward passes. Far below 1 while requests queue: something \
                 else holds them up, most often room at decode workers.",
            )
            .unit(Unit::Ratio)
            .query(busy.by((Instance::KEY, Phase::KEY)), "{{phase}} {{instance}}")
            .stacked(Stack::Sum)
            .no_value(NO_PAIR)
            .into(),
        time_series("pair-prefix-hit")
            .title("Reused prompt tokens at prefill workers")
            .describe(
                "Share of prompt tokens that needed no computing. A fall makes every prompt longer \
                 for the device: the router spreads what belongs together, or pools are too small.",
            )
            .unit(Unit::Ratio)
            .query(recorded::PREFIX_HIT.is(Role::Prefill), BY_INSTANCE)
            .max(1.0)
            .no_value("no traffic")
            .detail(common::HICACHE)
            .into(),
    ];
    section("prefill", "Prefill: the prompt is computed", vec![line(8, panels)])
}

/// The KV is on its way.
pub(super) fn transfer() -> Section {
    let wire = |share| {
        quantile(share, pair::KV_TRANSFER_DURATION.is(TransferStage::Wire), NOW)
            .by(TransferSide::KEY)
    };
    let panels = vec![
        time_series("wire-time")
            .title("Time on the wire")
            .describe(
                "From the first byte to the last, over all chunks; pages go out while the prompt \
                 is computed, so it is about as long as the prefill. Much longer: the link.",
            )
            .unit(Unit::Seconds)
            .query(wire(0.5), "{{side}} p50")
            .query(wire(0.95), "{{side}} p95")
            .no_value("no transfers")
            .detail(common::TRANSFER)
            .into(),
        time_series("pair-kv-bytes")
            .title("KV moved")
            .describe("Bytes of KV sent and received by the second. Both sides see the same bytes.")
            .unit(Unit::BytesPerSecond)
            .query(sum(rate(pair::KV_TRANSFER_BYTES, NOW)).by(TransferSide::KEY), "{{side}}")
            .no_value(NO_PAIR)
            .detail(common::TRANSFER)
            .into(),
        time_series("pair-transfer-errors")
            .title("Failed transfers")
            .describe(
                "Share of transfers that failed, by worker; requests that somebody gave up are \
                 left out. Above the line: the transfer board names the link and the reason.",
            )
            .unit(Unit::Ratio)
            .query(recorded::TRANSFER_ERROR_RATIO.get(), BY_INSTANCE)
            .no_value("no transfers")
            .threshold(slo::TRANSFER_ERROR_RATIO, Color::Red)
            .threshold_lines()
            .alert("KVTransferErrors")
            .detail(common::TRANSFER)
            .into(),
    ];
    section("transfer", "Transfer: KV on its way", vec![line(8, panels)])
}

/// The answer is made.
pub(super) fn decode() -> Section {
    let gap = |share| {
        quantile(share, server::INTER_TOKEN_LATENCY.is(Role::Decode), NOW).by(Instance::KEY)
    };
    let running = max(server::RUNNING_REQUESTS.is(Role::Decode)).by(Instance::KEY);
    let limit = max(server::RUNNING_REQUESTS_LIMIT.is(Role::Decode)).by(Instance::KEY);
    let busy = avg(rate(server::FORWARD_BUSY_SECONDS.is(Role::Decode), NOW));
    let panels = vec![
        time_series("decode-running")
            .title("Running at decode workers")
            .describe(
                "The running batch of each decode worker against its limit. At the limit, new \
                 requests wait in `decode_queue`: add decode workers, or raise the limit where the \
                 gap between tokens allows it.",
            )
            .unit(Unit::Requests)
            .query(running, "running {{instance}}")
            .query(limit, "limit {{instance}}")
            .dashed("/^limit/")
            .no_value(NO_PAIR)
            .into(),
        time_series("decode-gap")
            .title("Gap between tokens at decode workers")
            .describe(
                "Grows with the batch. Above the line text no longer flows: the decode workers \
                 carry too much.",
            )
            .unit(Unit::Seconds)
            .query(gap(0.5), "p50 {{instance}}")
            .query(gap(0.99), "p99 {{instance}}")
            .no_value("no tokens")
            .threshold(slo::ITL_P99_SECONDS, Color::Orange)
            .threshold_lines()
            .alert("InterTokenLatencyHigh")
            .into(),
        time_series("decode-busy")
            .title("Decode workers busy")
            .describe(
                "Share of time in forward passes, by phase, mean of the ranks. `prefill` or \
                 `mixed` here are prompts too short to be sent.",
            )
            .unit(Unit::Ratio)
            .query(busy.by((Instance::KEY, Phase::KEY)), "{{phase}} {{instance}}")
            .stacked(Stack::Sum)
            .no_value(NO_PAIR)
            .into(),
    ];
    section("decode", "Decode: the answer is made", vec![line(8, panels)])
}
