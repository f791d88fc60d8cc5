//! The hit-ratio curve: what each size of the host tier would serve, and what it would cost.

use super::NOW;
use crate::build::line;
use crate::build::pools::{bar_gauge, stat, time_series};
use crate::ir::{Color, Line, Section};
use crate::lint::Lint;
use metric_catalog::def::{Label, Unit};
use metric_catalog::labels::{HostRatio, NumaNode, PromptSource};
use metric_catalog::promql::{Expr, INSTANCE, Selection, Window, min, rate, ratio, recorded, sum};
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
    crate::build::section("sizing", "Sizes", vec![curve(), drift(), quality()])
}

fn looked_up(window: Window) -> Expr {
    sum(rate(server::KV_HIT_CURVE_LOOKUP_TOKENS, window)).total()
}

/// Predicted hit ratio of each candidate.
fn predicted(window: Window) -> Expr {
    let hits = sum(rate(server::KV_HIT_CURVE_HIT_TOKENS, window)).by(HostRatio::KEY);
    hits.share_of(&[], looked_up(window))
}

/// Measured share of prompt tokens that needed no computing.
fn measured(window: Window) -> Expr {
    let reused = server::PROMPT_TOKENS.none_of(&[PromptSource::Computed]);
    ratio(sum(rate(reused, window)).total(), sum(rate(server::PROMPT_TOKENS, window)).total())
}

fn curve() -> Line {
    let required = sum(server::KV_HIT_CURVE_REQUIRED_BYTES).by((HostRatio::KEY, NumaNode::KEY));
    let headroom = min(server::HICACHE_HEADROOM_BYTES).by(NumaNode::KEY);
    line(
        12,
        vec![
            bar_gauge("predicted-by-ratio")
                .title("Predicted hit ratio by host ratio")
                .describe(&format!(
                    "Share of prompt tokens that would have been found in the last hour, for each \
                     ratio of host to device pages; 0 is the device alone. Ratios up to 1 only \
                     hold copies. {LIMITS}"
                ))
                .unit(Unit::Ratio)
                .query(predicted(LONG), "ratio {{ratio}}")
                .max(1.0)
                .base(Color::Blue)
                .no_value("no look-ups in the last hour")
                .allow(Lint::L05, BY_HOUR)
                .into(),
            bar_gauge("required-by-ratio")
                .title("Host bytes by ratio and node")
                .describe(
                    "Host memory that all ranks on a node would need at each ratio, all pools. \
                     Compare with the headroom of the node: what does not fit is refused at start.",
                )
                .unit(Unit::Bytes)
                .query(required, "ratio {{ratio}} node {{numa_node}}")
                .base(Color::Blue)
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

fn quality() -> Line {
    let cold = sum(rate(server::KV_HIT_CURVE_COLD_TOKENS, LONG)).total();
    let loss = sum(rate(server::KV_HIT_CURVE_WINDOW_LOSS_TOKENS, LONG)).by(HostRatio::KEY);
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
