//! Instances: which replica differs from its peers, in what, and by how much.

mod builds;
mod signals;

use super::common;
use crate::build::{line, section, stat, table, time_series};
use crate::ir::{Color, Dashboard, Panel, Section};
use metric_catalog::def::Unit;
use metric_catalog::promql::{Expr, raw};
use signals::Signal;

/// The board.
pub(super) fn board() -> Dashboard {
    let signals = signals::all();
    let mut sections = vec![differ(&signals)];
    sections.push(section("signals", "Each signal: value, median of the peers, deviation", {
        signals.iter().map(Signal::line).collect()
    }));
    sections.extend([builds::section(), builds::settings()]);
    common::board(
        common::INSTANCES,
        "Instances",
        "Which replica differs from its peers: processes of the same role, model and cluster. One \
         that is slower than the others under the same load is ill; all of them together are not \
         an outlier but a load, and belong to the other boards.",
        sections,
    )
}

/// Deviations of all signals, in multiples of what is tolerated, from 1 on.
fn outliers(signals: &[Signal]) -> Expr {
    let scores: Vec<String> = signals.iter().map(Signal::score).collect();
    let text = format!("({}) >= 1", scores.join(" or "));
    raw(&text, &["engine_role", "model_name", "instance", "signal"], Unit::Count)
}

fn differ(signals: &[Signal]) -> Section {
    let columns = [
        ("engine_role", "Role"),
        ("model_name", "Model"),
        ("instance", "Instance"),
        ("signal", "Signal"),
    ];
    let tolerated: Vec<String> = signals.iter().map(Signal::tolerance_in_words).collect();
    let tolerated = tolerated.join("; ");
    let all = outliers(signals);
    let number = raw(&format!("count(count by (instance) ({all})) or vector(0)"), &[], Unit::Count);
    let now: Panel = stat("outliers-now")
        .title("Replicas that differ")
        .describe(
            "Processes that differ from their peers in at least one signal by more than is \
             tolerated. Take one out of the rotation before you look inside: the router's admin \
             API drains a worker.",
        )
        .unit(Unit::Count)
        .query(number, "differ")
        .threshold(1.0, Color::Orange)
        .detail(common::NODE)
        .span(5)
        .into();
    let table: Panel = table("outliers", &columns)
        .title("Who differs, and in what")
        .describe(&format!(
            "A line for each replica and signal that deviates from the median of its peers by more \
             than is tolerated: {tolerated}. The value says how many times. Look at its host on \
             the board of node health first: heat, memory and links explain most of them."
        ))
        .unit(Unit::Count)
        .query(all.clone(), "Times the tolerance")
        .judge("Times the tolerance", Color::Orange, &[(2.0, Color::Red)])
        .sorted_by("Times the tolerance", true)
        .no_value("no replica differs from its peers")
        .detail(common::NODE)
        .into();
    let over_time: Panel = time_series("outliers-over-time")
        .title("Since when")
        .describe(
            "The same over time. One that differs since its start has another build, \
             configuration or host; one that began later, look at what is marked there.",
        )
        .unit(Unit::Count)
        .query(all, "{{signal}} {{instance}}")
        .threshold(1.0, Color::Orange)
        .threshold_lines()
        .no_value("no replica differed from its peers")
        .detail(common::NODE)
        .into();
    section("differ", "Who differs", vec![line(9, vec![now, table, over_time])])
}
