//! What all boards over an engine share: uids, variables, annotations.

use crate::ir::{Annotation, Color, Dashboard, Section, Variable, VariableSource};
use crate::provision::DATASOURCE_UID;
use metric_catalog::def::Unit;
use metric_catalog::engines::{Engine, sglang, vllm};
use metric_catalog::promql::{Expr, raw};

/// Seconds between two refreshes.
const REFRESH_SECONDS: u32 = 15;

/// Boards, by what follows the prefix of the engine, in the order in which links show them.
pub(super) const BOARDS: &[&str] =
    &["overview", "queue", "pd-flow", "kv-pools", "hicache", "transfer", "instances"];

/// Labels to choose by, each restricted by those before it.
pub(super) const fn scope(engine: Engine) -> &'static [&'static str] {
    match engine {
        Engine::Sglang => &["cluster", "job", "engine_type", "model_name", "instance"],
        Engine::Vllm => &["cluster", "job", "engine_role", "model_name", "instance"],
    }
}

/// A series that all processes have.
const fn source(engine: Engine) -> &'static str {
    match engine {
        Engine::Sglang => sglang::NUM_RUNNING_REQS.name(),
        Engine::Vllm => vllm::NUM_REQUESTS_RUNNING.name(),
    }
}

/// `label=~"$label"` for each of the labels.
fn conditions(labels: &[&str]) -> String {
    labels.iter().map(|label| format!("{label}=~\"${label}\"")).collect::<Vec<_>>().join(",")
}

/// A board with the variables, annotations and links of all boards of an engine.
pub(super) fn board(
    engine: Engine,
    slug: &str,
    title: &str,
    description: &str,
    sections: Vec<Section>,
) -> Dashboard {
    let others = BOARDS.iter().filter(|other| **other != slug);
    Dashboard {
        uid: format!("{engine}-{slug}"),
        title: format!("{} / {title}", engine.title()),
        description: description.to_owned(),
        from: "now-30m".to_owned(),
        refresh_seconds: REFRESH_SECONDS,
        variables: variables(engine),
        annotations: annotations(engine),
        related: others.map(|other| format!("{engine}-{other}")).collect(),
        split_from: Vec::new(),
        sections,
    }
}

fn variables(engine: Engine) -> Vec<Variable> {
    let scope = scope(engine);
    let datasource = Variable {
        name: "datasource".to_owned(),
        label: "Data source".to_owned(),
        description: "Prometheus that scrapes the cluster.".to_owned(),
        source: VariableSource::Datasource(DATASOURCE_UID.to_owned()),
    };
    let of_label = |(index, label): (usize, &&'static str)| {
        let (title, description) = match *label {
            "cluster" => ("Cluster", "Cluster, a target label of the scrape configuration."),
            "job" => ("Job", "Scrape job of the pages."),
            "model_name" => ("Model", "Name of the served model."),
            "instance" => ("Instance", "Process, by the address that is scraped."),
            "engine_type" => ("Role", "What a process does: unified, prefill or decode."),
            _ => ("Role", "What a process does, a target label of the scrape configuration."),
        };
        let before = conditions(&scope[..index]);
        let selector = match before.as_str() {
            "" => source(engine).to_owned(),
            before => format!("{}{{{before}}}", source(engine)),
        };
        Variable {
            name: (*label).to_owned(),
            label: title.to_owned(),
            description: description.to_owned(),
            source: VariableSource::Label { selector, label: (*label).to_owned() },
        }
    };
    std::iter::once(datasource).chain(scope.iter().enumerate().map(of_label)).collect()
}

/// The alerts in a state; not the watchdog, which always fires.
fn alerts(engine: Engine, state: &str) -> String {
    let mut conditions = format!(r#"alertstate="{state}",severity!="none""#);
    for label in scope(engine) {
        // An alert about a whole model has no instance: it is about the chosen one, too.
        let lacks = if *label == "cluster" { "" } else { "|" };
        conditions.push_str(&format!(r#",{label}=~"${label}{lacks}""#));
    }
    format!("ALERTS{{{conditions}}}")
}

/// Alerts that fire now, as a number; 0 when there is none.
pub(super) fn firing(engine: Engine) -> Expr {
    raw(&format!("count({}) or vector(0)", alerts(engine, "firing")), &[], Unit::Count)
}

/// Targets of the chosen jobs that answer; only of jobs that showed pages of the engine within the
/// last hour, so that those of other programs are not counted.
pub(super) fn targets_up(engine: Engine) -> Expr {
    let source = source(engine);
    let chosen = r#"cluster=~"$cluster",job=~"$job",instance=~"$instance""#;
    let scope = conditions(scope(engine));
    let text = format!(
        "sum by (job) (up{{{chosen}}} and on (cluster, job) group by (cluster, job) \
         (last_over_time({source}{{{scope}}}[1h])))"
    );
    raw(&text, &["job"], Unit::Count)
}

fn annotations(engine: Engine) -> Vec<Annotation> {
    let told_apart = "alertname, severity, instance, model_name";
    let chosen = conditions(&["cluster", "job", "instance"]);
    let mark = |name: &str, color, expr: String, title: &str, text: &str| Annotation {
        name: name.to_owned(),
        enabled: true,
        color,
        expr,
        title: title.to_owned(),
        text: text.to_owned(),
    };
    let firing = format!("max by ({told_apart}) ({})", alerts(engine, "firing"));
    let came = format!("changes(up{{{chosen}}}[1m]) > 0");
    vec![
        mark(
            "Firing alerts",
            Color::Red,
            firing,
            "{{alertname}}",
            "{{severity}} {{instance}} {{model_name}}",
        ),
        // Neither engine exports when it started.
        mark("Came or went", Color::Blue, came, "A target came or went", "{{job}} {{instance}}"),
    ]
}
