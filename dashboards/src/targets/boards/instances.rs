//! Instances: which replica differs from its peers, in what, and by how much.

use crate::build::{line, section, stat, table};
use crate::ir::{Color, Dashboard, Panel, Section};
use crate::targets::answers::{Answer, answer};
use crate::targets::panels::{over_time, words};
use crate::targets::subject::{self, scope};
use crate::variables;
use metric_catalog::def::Unit;
use metric_catalog::engines::Engine;
use metric_catalog::engines::signal::Signal;
use metric_catalog::promql::{Expr, raw};

/// The board.
pub(super) fn board(engine: Engine) -> Dashboard {
    let sections = vec![differ(engine), each(engine), values(engine)];
    subject::board(
        engine,
        "instances",
        "Instances",
        "Which replica differs from its peers: processes of the same role, model and cluster. One \
         that is slower than the others under the same load is ill; all of them together are not \
         an outlier but a load, and belong to the other boards.",
        sections,
    )
}

/// How far from the median of the peers a replica may be.
#[derive(Debug, Clone, Copy)]
enum Tolerated {
    /// As a share of the median, or of `floor` where that is larger.
    Share { of: f64, floor: f64 },
    /// As a difference.
    Difference(f64),
}

/// A signal that replicas are compared by.
struct Compared {
    signal: Signal,
    name: &'static str,
    tolerated: Tolerated,
}

const COMPARED: &[Compared] = &[
    Compared {
        signal: Signal::QueuedRequests,
        name: "queue",
        tolerated: Tolerated::Share { of: 1.0, floor: 4.0 },
    },
    Compared {
        signal: Signal::TtftSeconds,
        name: "time to first token",
        tolerated: Tolerated::Share { of: 1.0, floor: 0.5 },
    },
    Compared {
        signal: Signal::ItlSeconds,
        name: "gap between tokens",
        tolerated: Tolerated::Share { of: 1.0, floor: 0.01 },
    },
    Compared {
        signal: Signal::PrefixHitRatio,
        name: "hit ratio",
        tolerated: Tolerated::Difference(0.2),
    },
    Compared {
        signal: Signal::KvDeviceUsageRatio,
        name: "KV usage",
        tolerated: Tolerated::Difference(0.25),
    },
];

/// The first query of a signal, which is by process.
fn value(engine: Engine, signal: Signal) -> Expr {
    match answer(engine, signal) {
        Answer::Queries { queries, .. } => {
            let first = queries.into_iter().next().map(|(expr, _)| expr);
            first.expect("a signal that is answered has a query: tests look")
        }
        Answer::Gap { gap, .. } => panic!("{engine} cannot be compared by {signal}: {gap}"),
    }
}

fn line_labels(engine: Engine) -> [&'static str; 3] {
    [engine.role_label(), "model_name", "instance"]
}

/// How often what is tolerated goes into the distance from the median, up or down; by process.
fn score(engine: Engine, compared: &Compared) -> String {
    let value = value(engine, compared.signal).render(&variables::scope(scope(engine)));
    let peers = format!("cluster, {}, model_name", engine.role_label());
    let median = format!("quantile by ({peers}) (0.5, {value})");
    let distance = format!("({value}) - on ({peers}) group_left () ({median})");
    let times = match compared.tolerated {
        Tolerated::Difference(limit) => format!("abs({distance}) / {limit}"),
        Tolerated::Share { of, floor } => {
            let limit = format!("clamp_min({median}, {floor})");
            format!("abs({distance}) / on ({peers}) group_left () {limit} / {of}")
        }
    };
    let by = line_labels(engine).join(", ");
    format!("label_replace(max by ({by}) ({times}), \"signal\", \"{}\", \"\", \"\")", compared.name)
}

fn outliers(engine: Engine) -> Expr {
    let scores: Vec<String> = COMPARED.iter().map(|one| score(engine, one)).collect();
    let text = format!("({}) >= 1", scores.join(" or "));
    raw(&text, &[engine.role_label(), "model_name", "instance", "signal"], Unit::Count)
}

fn in_words(compared: &Compared) -> String {
    match compared.tolerated {
        Tolerated::Share { of, .. } => {
            format!("{} {:.0} % of the median", compared.name, of * 100.0)
        }
        Tolerated::Difference(limit) => format!("{} {:.0} points", compared.name, limit * 100.0),
    }
}

fn differ(engine: Engine) -> Section {
    let columns = [
        (engine.role_label(), "Role"),
        ("model_name", "Model"),
        ("instance", "Instance"),
        ("signal", "Signal"),
    ];
    let tolerated: Vec<String> = COMPARED.iter().map(in_words).collect();
    let all = outliers(engine);
    let count = format!(
        "count(count by (instance) ({})) or vector(0)",
        all.render(&variables::scope(scope(engine)))
    );
    let now: Panel = stat("outliers-now")
        .title("Replicas that differ")
        .describe(
            "Processes that differ from their peers in at least one signal by more than is \
             tolerated. Take one out of the rotation before you look inside.",
        )
        .unit(Unit::Count)
        .within(scope(engine))
        .query(raw(&count, &[], Unit::Count), "differ")
        .threshold(1.0, Color::Orange)
        .span(5)
        .into();
    let who: Panel = table("outliers", &columns)
        .title("Who differs, and in what")
        .describe(&format!(
            "A line for each replica and signal that is further from the median of its peers than \
             tolerated: {}. The value says how many times. Look at the host of one that stands \
             out first: heat, memory and links explain most of them.",
            tolerated.join("; ")
        ))
        .unit(Unit::Count)
        .within(scope(engine))
        .query(all, "Times the tolerance")
        .judge("Times the tolerance", Color::Orange, &[(2.0, Color::Red)])
        .sorted_by("Times the tolerance", true)
        .no_value("no replica differs from its peers")
        .into();
    section("differ", "Who differs", vec![line(9, vec![now, who])])
}

/// The columns of the table of all replicas: heading and signal.
const COLUMNS: &[(&str, Signal)] = &[
    ("Running", Signal::RunningRequests),
    ("Queued", Signal::QueuedRequests),
    ("TTFT p99", Signal::TtftSeconds),
    ("ITL p99", Signal::ItlSeconds),
    ("Tokens out", Signal::GenerationTokensRate),
    ("Hit ratio", Signal::PrefixHitRatio),
    ("KV usage", Signal::KvDeviceUsageRatio),
];

fn each(engine: Engine) -> Section {
    let [role, model, instance] = line_labels(engine);
    let columns = [(role, "Role"), (model, "Model"), (instance, "Instance")];
    let by = || line_labels(engine).to_vec();
    let draft = table("replicas", &columns)
        .title("All replicas")
        .describe(
            "A line for each process. Compare within a role; a process without a value had no \
             traffic, or does not export it.",
        )
        .unit(Unit::Count)
        .within(scope(engine));
    let all = COLUMNS.iter().fold(draft, |draft, (title, signal)| {
        let value = metric_catalog::promql::max(value(engine, *signal)).group(by());
        draft.query(value, title)
    });
    section("replicas", "All replicas", vec![line(9, vec![all.sorted_by("Queued", true).into()])])
}

fn values(engine: Engine) -> Section {
    let panel = |signal, slug, title, describe| {
        over_time(engine, signal, words(slug, title, describe), |draft| {
            draft.no_value("no traffic")
        })
    };
    let lines = vec![
        line(
            8,
            vec![
                panel(Signal::TtftSeconds, "ttft", "Time to first token", "By process."),
                panel(Signal::ItlSeconds, "gap", "Inter-token latency", "By process."),
            ],
        ),
        line(
            8,
            vec![
                panel(Signal::PrefixHitRatio, "hit-ratio", "Prompt tokens reused", "By process."),
                panel(Signal::KvDeviceUsageRatio, "kv-usage", "KV usage", "By process."),
            ],
        ),
        line(
            8,
            vec![
                panel(
                    Signal::TpotSeconds,
                    "tpot",
                    "Time by output token",
                    "Mean gap of a request, by process.",
                ),
                panel(Signal::PromptTokensRate, "prompts", "Prompt tokens", "By process."),
            ],
        ),
    ];
    section("values", "Over time", lines)
}
