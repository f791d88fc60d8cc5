//! What all boards share: variables, annotations, frequent expressions.

use crate::ir::{Annotation, Color, Dashboard, Section, Variable, VariableSource};
use crate::provision::DATASOURCE_UID;
use crate::variables::SCOPE;
use metric_catalog::def::{Cumulative, Histogram, LabelSet, Metric, Unit};
use metric_catalog::promql::{
    Expr, Grouping, Known, Selection, Window, bucket_rate, observed, quantile_of, rate, raw, sum,
};
use metric_catalog::server;

/// Seconds between two refreshes.
const REFRESH_SECONDS: u32 = 10;

/// Uids of all boards, in the order in which links show them.
pub(super) const OVERVIEW: &str = "sightline-overview";
pub(super) const QUEUE: &str = "sightline-queue";
pub(super) const KV_POOLS: &str = "sightline-kv-pools";
pub(super) const HICACHE: &str = "sightline-hicache";
pub(super) const PAIRS: &str = "sightline-pd";
const ALL: &[&str] = &[OVERVIEW, QUEUE, KV_POOLS, HICACHE, PAIRS];

/// `ALERTS` has the labels of the alert, and not every alert has a model.
const ALERT_SCOPE: &str = r#"cluster=~"$cluster",model_name=~"$model_name|""#;

/// A board with the variables, annotations and links of all boards.
pub(super) fn board(
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
        variables: variables(),
        annotations: annotations(),
        related: ALL.iter().filter(|other| **other != uid).map(ToString::to_string).collect(),
        sections,
    }
}

/// The data source, then each label of the scope, restricted by those before it.
///
/// Their values come from a series that every process has, so that no choice leads to nothing.
fn variables() -> Vec<Variable> {
    let mut variables = vec![Variable {
        name: "datasource".to_owned(),
        label: "Data source".to_owned(),
        description: "Prometheus that holds the metrics.".to_owned(),
        source: VariableSource::Datasource(DATASOURCE_UID.to_owned()),
    }];
    let source = server::SERVED_MODEL_INFO.info().name;
    for (index, label) in SCOPE.iter().enumerate() {
        let before: Vec<String> =
            SCOPE[..index].iter().map(|label| format!("{label}=~\"${label}\"")).collect();
        let selector = if before.is_empty() {
            source.to_owned()
        } else {
            format!("{source}{{{}}}", before.join(","))
        };
        let (title, description) = match *label {
            "cluster" => ("Cluster", "Cluster, a target label of the scrape configuration."),
            "job" => ("Job", "Scrape job; one for each role."),
            "instance" => ("Instance", "Process, by the address that is scraped."),
            "model_name" => ("Model", "Name of the served model."),
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

fn annotations() -> Vec<Annotation> {
    let ready = server::READY_TIMESTAMP.info().name;
    let scope = SCOPE.iter().map(|l| format!("{l}=~\"${l}\"")).collect::<Vec<_>>().join(",");
    vec![
        Annotation {
            name: "Firing alerts".to_owned(),
            enabled: true,
            color: Color::Red,
            expr: format!(
                "max by (alertname, severity, instance, model_name) ({})",
                alerts("firing")
            ),
            title: "{{alertname}}".to_owned(),
            text: "{{severity}} {{instance}} {{model_name}}".to_owned(),
        },
        Annotation {
            name: "Starts".to_owned(),
            enabled: true,
            color: Color::Blue,
            expr: format!("changes({ready}{{{scope}}}[1m]) > 0"),
            title: "Ready".to_owned(),
            text: "{{instance}} became ready".to_owned(),
        },
    ]
}

/// The alerts in a state; not the watchdog, which always fires.
fn alerts(state: &str) -> String {
    format!(r#"ALERTS{{alertstate="{state}",severity!="none",{ALERT_SCOPE}}}"#)
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
    let text = format!("count({}) or vector(0)", alerts("firing"));
    raw(&text, &[], Unit::Count)
}

/// One series for each alert, 1 while pending and 2 while firing; one at 0 when there is none.
pub(super) fn alert_states() -> Expr {
    let quiet = r#"label_replace(vector(0), "alertname", "no alert", "", "")"#;
    let text = format!(
        "max by (alertname) ({} or {} * 2) or on () {quiet}",
        alerts("pending"),
        alerts("firing"),
    );
    raw(&text, &["alertname"], Unit::Flag)
}

/// Processes of the choice that answer a scrape; 0 when none does.
pub(super) fn targets_up() -> Expr {
    let text = r#"sum(up{cluster=~"$cluster",job=~"$job",instance=~"$instance"}) or vector(0)"#;
    raw(text, &[], Unit::Count)
}

/// The legend of a series for each process.
pub(super) const INSTANCE: &str = "{{instance}}";
