//! What all boards share: variables, annotations, frequent expressions.

mod marks;

use crate::ir::{Annotation, Color, Dashboard, Section, Variable, VariableSource};
use crate::provision::DATASOURCE_UID;
use crate::variables::{HOSTS, POOLS, SCOPE, TARGETS};
use metric_catalog::def::{Cumulative, Histogram, Label, LabelSet, Unit};
use metric_catalog::labels::{Pool, Route, StatusCode};
use metric_catalog::promql::{
    Expr, Grouping, Known, Selection, Window, bucket_rate, observed, quantile_of, rate, raw, sum,
};
use metric_catalog::{node, server};

/// Seconds between two refreshes.
const REFRESH_SECONDS: u32 = 10;

/// Uids of all boards, in the order in which links show them.
pub(super) const OVERVIEW: &str = "sightline-overview";
pub(super) const QUEUE: &str = "sightline-queue";
pub(super) const KV_POOLS: &str = "sightline-kv-pools";
pub(super) const HICACHE: &str = "sightline-hicache";
pub(super) const PD_FLOW: &str = "sightline-pd-flow";
pub(super) const TRANSFER: &str = "sightline-transfer";
pub(super) const ROUTER: &str = "sightline-router";
pub(super) const INSTANCES: &str = "sightline-instances";
pub(super) const NODE: &str = "sightline-node";
pub(super) const OBSERVABILITY: &str = "sightline-observability";
const ALL: &[&str] = &[
    OVERVIEW,
    QUEUE,
    PD_FLOW,
    KV_POOLS,
    HICACHE,
    TRANSFER,
    ROUTER,
    INSTANCES,
    NODE,
    OBSERVABILITY,
];

/// Uid of the board that those of pairs, transfers and routers were split from.
pub(super) const PAIRS: &str = "sightline-pd";

/// What can be chosen at the top of a board, and what is marked on it.
struct Subject {
    /// Labels to choose by, each restricted by those before it.
    scope: &'static [&'static str],
    /// A series that all of the subject have, so that no choice leads to nothing.
    source: &'static str,
    /// Labels that an alert about the subject has for certain. Others of the scope it may lack.
    of_alerts: &'static [&'static str],
    /// Labels that tell alerts apart.
    told_apart: &'static str,
    /// What is marked, beside alerts, given the conditions of the scope.
    marks: fn(&str) -> Vec<Annotation>,
}

/// Serving processes.
const SERVING: Subject = Subject {
    scope: SCOPE,
    source: server::SERVED_MODEL_INFO.name(),
    of_alerts: &["cluster"],
    told_apart: "alertname, severity, instance, model_name",
    marks: marks::of_processes,
};

/// Serving processes, by KV pool.
const POOLED: Subject = Subject { scope: POOLS, ..SERVING };

/// Everything that is scraped.
const SCRAPED: Subject = Subject {
    scope: TARGETS,
    source: "up",
    of_alerts: &["cluster"],
    told_apart: "alertname, severity, instance",
    marks: marks::of_targets,
};

/// Hosts, as their exporters see them.
const OF_HOSTS: Subject = Subject {
    scope: HOSTS,
    source: node::HEALTHY.name(),
    of_alerts: HOSTS,
    told_apart: "alertname, severity, node",
    marks: marks::of_hosts,
};

/// A board of serving processes with the variables, annotations and links of all boards.
pub(super) fn board(
    uid: &str,
    title: &str,
    description: &str,
    sections: Vec<Section>,
) -> Dashboard {
    board_of(&SERVING, uid, title, description, sections)
}

/// The same where KV pools can be chosen, too.
pub(super) fn board_of_pools(
    uid: &str,
    title: &str,
    description: &str,
    sections: Vec<Section>,
) -> Dashboard {
    board_of(&POOLED, uid, title, description, sections)
}

/// A board of everything that is scraped.
pub(super) fn board_of_targets(
    uid: &str,
    title: &str,
    description: &str,
    sections: Vec<Section>,
) -> Dashboard {
    board_of(&SCRAPED, uid, title, description, sections)
}

/// A board of hosts.
pub(super) fn board_of_hosts(
    uid: &str,
    title: &str,
    description: &str,
    sections: Vec<Section>,
) -> Dashboard {
    board_of(&OF_HOSTS, uid, title, description, sections)
}

fn board_of(
    subject: &Subject,
    uid: &str,
    title: &str,
    description: &str,
    sections: Vec<Section>,
) -> Dashboard {
    Dashboard {
        uid: uid.to_owned(),
        title: format!("Sightline / {title}"),
        description: description.to_owned(),
        from: "now-30m".to_owned(),
        refresh_seconds: REFRESH_SECONDS,
        variables: variables(subject),
        annotations: annotations(subject),
        related: ALL.iter().filter(|other| **other != uid).map(ToString::to_string).collect(),
        split_from: Vec::new(),
        sections,
    }
}

/// `label=~"$label"` for each of the labels.
fn conditions(labels: &[&str]) -> String {
    labels.iter().map(|label| format!("{label}=~\"${label}\"")).collect::<Vec<_>>().join(",")
}

/// The data source, then each label of the scope, restricted by those before it.
fn variables(subject: &Subject) -> Vec<Variable> {
    let mut variables = vec![Variable {
        name: "datasource".to_owned(),
        label: "Data source".to_owned(),
        description: "Prometheus that holds the metrics.".to_owned(),
        source: VariableSource::Datasource(DATASOURCE_UID.to_owned()),
    }];
    for (index, label) in subject.scope.iter().enumerate() {
        let before = conditions(&subject.scope[..index]);
        let pool = *label == Pool::INFO.name;
        let source = if pool { server::KV_POOL_INFO.name() } else { subject.source };
        let selector = match before.as_str() {
            "" => source.to_owned(),
            before => format!("{source}{{{before}}}"),
        };
        let (title, description) = match *label {
            "cluster" => ("Cluster", "Cluster, a target label of the scrape configuration."),
            "node" => ("Node", "Host, a target label of the scrape configuration."),
            "job" => ("Job", "Scrape job; one for each role."),
            "engine_role" => ("Role", "What a process does: unified, prefill, decode or router."),
            "instance" => ("Instance", "Process, by the address that is scraped."),
            "model_name" => ("Model", "Name of the served model."),
            "pool" => ("Pool", "KV pool: kind of layers whose KV it holds."),
            other => (other, "Label."),
        };
        variables.push(Variable {
            name: (*label).to_owned(),
            label: title.to_owned(),
            description: description.to_owned(),
            source: VariableSource::Label { selector, label: (*label).to_owned() },
        });
    }
    variables
}

fn annotations(subject: &Subject) -> Vec<Annotation> {
    let (told_apart, firing) = (subject.told_apart, alerts(subject, "firing"));
    let told = told_apart.split(", ").skip(1).map(|label| format!("{{{{{label}}}}}"));
    let firing = Annotation {
        name: "Firing alerts".to_owned(),
        enabled: true,
        color: Color::Red,
        expr: format!("max by ({told_apart}) ({firing})"),
        title: "{{alertname}}".to_owned(),
        text: told.collect::<Vec<_>>().join(" "),
    };
    let of_series: Vec<&str> =
        subject.scope.iter().copied().filter(|label| *label != Pool::INFO.name).collect();
    std::iter::once(firing).chain((subject.marks)(&conditions(&of_series))).collect()
}

/// The alerts in a state; not the watchdog, which always fires.
fn alerts(subject: &Subject, state: &str) -> String {
    let mut conditions = format!(r#"alertstate="{state}",severity!="none""#);
    for label in subject.scope.iter().filter(|label| **label != Pool::INFO.name) {
        // An alert about a whole model has no instance: it is about the chosen one, too.
        let lacks = if subject.of_alerts.contains(label) { "" } else { "|" };
        conditions.push_str(&format!(r#",{label}=~"${label}{lacks}""#));
    }
    format!("ALERTS{{{conditions}}}")
}

/// What clients see of a counter, by the second: the sum over the one role that they talk to.
pub(super) fn seen<S: Selection>(counter: S, window: Window) -> Grouping<Known>
where
    S::Metric: Cumulative,
{
    sum(observed(rate(counter, window)))
}

/// A quantile of what clients see.
pub(super) fn seen_quantile<L: LabelSet>(
    quantile: f64,
    histogram: Histogram<L>,
    window: Window,
) -> Grouping<Known> {
    quantile_of(quantile, observed(bucket_rate(histogram, window)))
}

/// Alerts that fire now, as a number; 0 when there is none.
pub(super) fn firing_alerts() -> Expr {
    firing(&SERVING)
}

/// Alerts about hosts that fire now, as a number; 0 when there is none.
pub(super) fn firing_alerts_of_hosts() -> Expr {
    firing(&OF_HOSTS)
}

fn firing(subject: &Subject) -> Expr {
    let text = format!("count({}) or vector(0)", alerts(subject, "firing"));
    raw(&text, &[], Unit::Count)
}

/// One series for each alert, 1 while pending and 2 while firing; one at 0 when there is none.
pub(super) fn alert_states() -> Expr {
    let quiet = r#"label_replace(vector(0), "alertname", "no alert", "", "")"#;
    let text = format!(
        "max by (alertname) ({} or {} * 2) or on () {quiet}",
        alerts(&SERVING, "pending"),
        alerts(&SERVING, "firing"),
    );
    raw(&text, &["alertname"], Unit::Flag)
}

/// Processes of the choice that answer a scrape; 0 when none does.
pub(super) fn targets_up() -> Expr {
    let text = r#"sum(up{cluster=~"$cluster",job=~"$job",instance=~"$instance"}) or vector(0)"#;
    raw(text, &[], Unit::Count)
}

/// Conditions of a series that only the scraper writes, as `up`.
pub(super) const OF_TARGETS: &str = r#"cluster=~"$cluster",job=~"$job",instance=~"$instance""#;

/// What panels about hosts on a board of processes are waived for.
pub(super) const OTHER_JOB: &str = "exporters are scraped under another job and address";

/// Routes that ask for an answer of a model.
pub(super) const INFERENCE: &[Route] = &[Route::Completions, Route::ChatCompletions];

/// Statuses that are a fault of ours.
pub(super) const FAULTS: &[StatusCode] =
    &[StatusCode::S500, StatusCode::S502, StatusCode::S503, StatusCode::S504];

/// The legend of a series for each process.
pub(super) const INSTANCE: &str = "{{instance}}";
