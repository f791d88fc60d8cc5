//! The hit-ratio curve: what each size of the host tier would serve, and what it would cost.

use super::NOW;
use crate::boards::common;
use crate::build::line;
use crate::build::pools::{bar_chart, bar_gauge, stat, table, time_series};
use crate::ir::{Color, Line, Panel, Section};
use crate::lint::Lint;
use crate::variables::{POOLS, scope};
use metric_catalog::def::{Label, Unit};
use metric_catalog::labels::{CurveReset, HostRatio, Instance, NumaNode, PromptSource, Role};
use metric_catalog::promql::{
    Expr, INSTANCE, Selection, Window, max, min, rate, ratio, raw, recorded, sum,
};
use metric_catalog::{server, slo};

/// A shorter window sees too few sessions: one of 200,000 tokens is 781 pages of 256.
const LONG: Window = Window::H1;

/// What the window is waived for.
const BY_HOUR: &str = "the last hour, whatever range is shown: shorter ones see too few sessions";

/// Where a prediction is not what will happen; said on each panel that predicts.
const LIMITS: &str = "Predictions are for the traffic as it came: a faster server draws other \
     traffic, another router or one more replica changes every bar, pages pinned by running \
     requests lower the device's part, and cyclic traffic has a cliff, not a knee.";

pub(super) fn section() -> Section {
    crate::build::section("sizing", "Sizes", vec![curve(), choice(), drift(), trust(), quality()])
}

/// Tokens looked up. A decode worker looks up what its prefill worker has looked up before.
fn looked_up(window: Window) -> Expr {
    sum(rate(server::KV_HIT_CURVE_LOOKUP_TOKENS.without(Role::Decode), window)).total()
}

/// Predicted hit ratio of each candidate.
fn predicted(window: Window) -> Expr {
    let hits = server::KV_HIT_CURVE_HIT_TOKENS.without(Role::Decode);
    sum(rate(hits, window)).by(HostRatio::KEY).share_of(&[], looked_up(window))
}

/// Measured share of prompt tokens that device or host held: what the curve predicts.
fn measured(window: Window) -> Expr {
    let all = server::PROMPT_TOKENS.without(Role::Decode);
    let held = all.clone().any_of(&[PromptSource::Device, PromptSource::Host]);
    ratio(sum(rate(held, window)).total(), sum(rate(all, window)).total())
}

/// Predicted hit ratio of the ratio in force, less what was measured.
fn misjudged(window: Window) -> Expr {
    let given = scope(POOLS);
    let in_force = max(server::HICACHE_RATIO.without(Role::Decode)).by(Instance::KEY);
    let text = format!(
        "max({} and on (ratio) count_values(\"ratio\", {})) - {}",
        predicted(window).render(&given),
        in_force.render(&given),
        measured(window).render(&given),
    );
    raw(&text, &[], Unit::Ratio)
}

fn curve() -> Line {
    let required = sum(server::KV_HIT_CURVE_REQUIRED_BYTES).by((HostRatio::KEY, NumaNode::KEY));
    let headroom = min(server::HICACHE_HEADROOM_BYTES).by(NumaNode::KEY);
    line(
        12,
        vec![
            bar_chart("predicted-by-ratio", "ratio")
                .title("Predicted hit ratio by host ratio")
                .describe(&format!(
                    "Share of prompt tokens that would have been found in the last hour, for each \
                     ratio of host to device pages; 0 is the device alone. Ratios up to 1 only \
                     hold copies. {LIMITS}"
                ))
                .unit(Unit::Ratio)
                .query(predicted(LONG), "hit ratio")
                .numeric()
                .max(1.0)
                .no_value("no look-ups in the last hour")
                .allow(Lint::L05, BY_HOUR)
                .into(),
            bar_chart("required-by-ratio", "ratio")
                .title("Host bytes by ratio and node")
                .describe(
                    "Host memory that all ranks on a node would need at each ratio, all pools. \
                     Compare with the headroom of the node: what does not fit is refused at start.",
                )
                .unit(Unit::Bytes)
                .query(required, "")
                .split_by("numa_node")
                .numeric()
                .into(),
            bar_gauge("headroom-by-node")
                .title("Headroom by node")
                .describe(
                    "Host bytes that a node can still give to KV pools beyond what they hold, less \
                     the reserve; the control group's limit counts, too.",
                )
                .unit(Unit::Bytes)
                .query(headroom, "node {{numa_node}}")
                .base(Color::Green)
                .span(5)
                .into(),
        ],
    )
}

/// By ratio, 1 where it fits on every node of every process.
fn fits() -> Expr {
    let given = scope(POOLS);
    let by = (Instance::KEY, HostRatio::KEY, NumaNode::KEY);
    let text = format!(
        "min by (ratio) ({} <= bool on (instance, numa_node) group_left () {})",
        sum(server::KV_HIT_CURVE_REQUIRED_BYTES).by(by).render(&given),
        min(server::HICACHE_HEADROOM_BYTES).by((Instance::KEY, NumaNode::KEY)).render(&given),
    );
    raw(&text, &["ratio"], Unit::Flag)
}

/// By ratio, the hit ratio that it adds to the device's own.
fn gained() -> Expr {
    let given = scope(POOLS);
    let alone = server::KV_HIT_CURVE_HIT_TOKENS.is(HostRatio::new("0")).without(Role::Decode);
    let alone = ratio(sum(rate(alone, LONG)).total(), looked_up(LONG));
    let (all, alone) = (predicted(LONG).render(&given), alone.render(&given));
    raw(&format!("({all}) - on () group_left () ({alone})"), &["ratio"], Unit::Ratio)
}

/// By ratio, prefill seconds by the second that its hits stand for.
fn saved() -> Expr {
    let hits = server::KV_HIT_CURVE_HIT_TOKENS.without(Role::Decode);
    let saved = sum(rate(hits, LONG)).per_instance_and(HostRatio::KEY);
    // Without prefill there is no rate to measure; the newest one stands in.
    let capacity = recorded::PREFILL_CAPACITY.get();
    let capacity = capacity.or(recorded::PREFILL_CAPACITY.last_over(Window::H6));
    sum(saved.share_of(INSTANCE, capacity).in_unit(Unit::Ratio)).group(vec!["ratio"])
}

/// What to choose by: each ratio with what it is worth and what it costs.
fn choice() -> Line {
    let required = sum(server::KV_HIT_CURVE_REQUIRED_BYTES).by(HostRatio::KEY);
    let warm = min(server::KV_HIT_CURVE_WARM).by(HostRatio::KEY);
    let table: Panel = table("ratio-table", &[("ratio", "Ratio")])
        .title("Which ratio")
        .describe(
            "Each ratio of host to device pages: predicted hit ratio over the last hour, what it \
             adds to the device alone, prefill seconds by the second that its hits stand for, host \
             bytes of all ranks, whether they fit on every node, and whether the prediction has \
             seen enough. Choose the smallest one, warm and fitting, after which *Adds* hardly \
             grows; ratios up to 1 only hold copies. `/internal/plan` says the same with its \
             reason.",
        )
        .unit(Unit::Ratio)
        .query(predicted(LONG), "Predicted")
        .query(gained(), "Adds")
        .query(saved(), "Prefill saved")
        .query(required, "Host bytes")
        .query(fits(), "Fits")
        .query(warm, "Warm")
        .words("Fits", &[(0, "no", Color::Red), (1, "yes", Color::Green)])
        .words("Warm", &[(0, "not yet", Color::Yellow), (1, "yes", Color::Green)])
        .numbers("ratio")
        .sorted_by("Ratio", false)
        .no_value("no look-ups in the last hour")
        .allow(Lint::L05, BY_HOUR)
        .into();
    line(9, vec![table])
}

fn drift() -> Line {
    let hits = rate(server::KV_HIT_CURVE_HIT_TOKENS, NOW);
    let saved = sum(hits).per_instance_and(HostRatio::KEY);
    let capacity = recorded::PREFILL_CAPACITY.get();
    let seconds = saved.share_of(INSTANCE, capacity).in_unit(Unit::Ratio);
    line(
        9,
        vec![
            time_series("predicted-over-time")
                .title("Predicted and measured hit ratio")
                .describe(
                    "Each ratio's prediction over time, and what was measured. Whether the knee \
                     moves with the time of day decides how much reserve a size needs.",
                )
                .unit(Unit::Ratio)
                .query(predicted(NOW), "ratio {{ratio}}")
                .query(measured(NOW), "measured")
                .color("measured", Color::Orange)
                .max(1.0)
                .into(),
            time_series("prefill-saved-by-ratio")
                .title("Prefill that each ratio saves")
                .describe(
                    "Seconds of prefill by the second that the hits of each ratio stand for, by \
                     the measured prefill rate. The distance between two lines is what the \
                     larger one is worth.",
                )
                .unit(Unit::Ratio)
                .query(seconds, "ratio {{ratio}} {{instance}}")
                .into(),
        ],
    )
}

/// Whether the curve can be believed.
fn trust() -> Line {
    let followed = min(server::KV_HIT_CURVE_SAMPLING).total();
    let tracked = sum(server::KV_HIT_CURVE_TRACKED_SLOTS).by(Instance::KEY);
    let resets = sum(rate(server::KV_HIT_CURVE_RESETS, NOW)).by((CurveReset::KEY, Instance::KEY));
    line(
        7,
        vec![
            stat("curve-trust")
                .title("Predicted less measured")
                .describe(
                    "For the ratio in force, over the last hour. Beyond the thresholds do not size \
                     by the curve: it has missed requests, or pages are pinned or lost in a way \
                     that it does not know.",
                )
                .unit(Unit::Ratio)
                .query(misjudged(LONG), "difference")
                .no_value("no look-ups, or several ratios in force")
                .signed()
                .decimals(1)
                .base(Color::Orange)
                .threshold(-slo::CURVE_TRUST_RATIO, Color::Green)
                .threshold(slo::CURVE_TRUST_RATIO, Color::Orange)
                .allow(Lint::L05, BY_HOUR)
                .detail(common::OBSERVABILITY)
                .into(),
            stat("curve-followed")
                .title("Pages followed")
                .describe(
                    "Share of pages that the estimator follows; at 100 % the curve is exact. Below \
                     it samples, because the largest candidate has very many pages.",
                )
                .unit(Unit::Ratio)
                .query(followed, "followed")
                .no_value("no estimator")
                .base(Color::Blue)
                .into(),
            time_series("curve-tracked")
                .title("Pages in the estimator's list")
                .describe(
                    "How much of the traffic it remembers. It grows to the largest candidate and \
                     stays there.",
                )
                .unit(Unit::Slots)
                .query(tracked, "{{instance}}")
                .no_value("no estimator")
                .into(),
            time_series("curve-resets")
                .title("Starts from empty")
                .describe("After each one the curve is cold, whatever it had seen.")
                .unit(Unit::CountPerSecond)
                .query(resets, "{{reason}} {{instance}}")
                .no_value("no estimator")
                .into(),
        ],
    )
}

fn quality() -> Line {
    let cold = server::KV_HIT_CURVE_COLD_TOKENS.without(Role::Decode);
    let cold = sum(rate(cold, LONG)).total();
    let loss = server::KV_HIT_CURVE_WINDOW_LOSS_TOKENS.without(Role::Decode);
    let loss = sum(rate(loss, LONG)).by(HostRatio::KEY);
    let dropped = sum(rate(server::KV_HIT_CURVE_DROPPED_REQUESTS, NOW)).total();
    let warm = min(server::KV_HIT_CURVE_WARM).by(HostRatio::KEY).in_unit(Unit::Flag);
    line(
        7,
        vec![
            stat("beyond-the-horizon")
                .title("Never seen before")
                .describe(
                    "Share of looked-up tokens that no candidate could have served: new text, or \
                     reuse beyond the largest candidate. One minus this is the ceiling of every \
                     host tier.",
                )
                .unit(Unit::Ratio)
                .query(ratio(cold, looked_up(LONG)), "cold")
                .no_value("no look-ups")
                .base(Color::Blue)
                .allow(Lint::L05, BY_HOUR)
                .into(),
            bar_gauge("window-loss")
                .title("Lost by the window pool")
                .describe(
                    "Tokens that the full pools had and the window pool had lost, over those \
                     looked up. Where this is large, change `--swa-retention` or the window's \
                     share, not the ratio.",
                )
                .unit(Unit::Ratio)
                .query(loss.share_of(&[], looked_up(LONG)), "ratio {{ratio}}")
                .max(1.0)
                .threshold(slo::CURVE_TRUST_RATIO, Color::Orange)
                .no_value("no look-ups")
                .allow(Lint::L05, BY_HOUR)
                .alert("HostCacheUndersized")
                .into(),
            bar_gauge("warm-candidates")
                .title("Warm candidates")
                .describe(
                    "1 once a candidate has been full: before that a large ratio looks like a \
                     small one.",
                )
                .unit(Unit::Flag)
                .query(warm, "ratio {{ratio}}")
                .max(1.0)
                .base(Color::Blue)
                .into(),
            time_series("curve-dropped")
                .title("Requests the estimator missed")
                .describe("Its queue was full; the curve stands for the others.")
                .unit(Unit::RequestsPerSecond)
                .query(dropped, "missed")
                .into(),
        ],
    )
}
