//! Alert and recording rules as data, and the rule files made from them.
//!
//! Expressions come from `promql`, thresholds from `slo`. Every alert names the section of
//! `runbook.md` that explains it and the panel that shows it. The rules are the same for every
//! deployment: what a role does not export costs nothing where the role is not deployed.

mod availability;
pub mod engines;
mod kv;
mod node;
mod pair;
mod recording;
pub mod routing;
mod saturation;
mod slo_rules;
mod yaml;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use crate::engines::Engine;
use crate::promql::{Expr, Recorded};
use crate::target::Target;

pub use node::{GPU_MISSING_HOLD_SECONDS, NODE_JOB};

/// Scrape jobs of serving processes, as a regular expression on `job`.
pub const SERVING_JOBS: &str = "sightline-(prefill|decode|router|unified)";

/// How loud an alert is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// For the record: the alert that proves the path of alerts.
    None,
    /// For whoever tunes: nobody is hurt.
    Info,
    /// A ticket.
    Warning,
    /// A page.
    Critical,
}

impl Severity {
    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }
}

/// Place of an alert in the order of causes; a lower layer's cause mutes higher ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Layer {
    /// A host that does not work.
    Node,
    /// A process that does not work, or is cut off.
    Process,
    /// A role that nobody fills.
    Role,
    /// A queue that holds more than its process can do.
    Queue,
    /// What is seen from outside.
    Symptom,
}

impl Layer {
    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Process => "process",
            Self::Role => "role",
            Self::Queue => "queue",
            Self::Symptom => "symptom",
        }
    }
}

/// A panel: slug of its board and its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Panel {
    /// Board, with the product's prefix as in its address.
    pub board: &'static str,
    /// Panel on it.
    pub panel: &'static str,
}

/// An alert.
#[derive(Debug, Clone, PartialEq)]
pub struct Alert {
    /// Name.
    pub name: &'static str,
    /// Fires for each series that this yields.
    pub expr: Expr,
    /// For how long it must, in seconds; 0 for at once.
    pub hold_seconds: u32,
    /// Severity.
    pub severity: Severity,
    /// Layer; none for what neither mutes nor is muted.
    pub layer: Option<Layer>,
    /// Whether it mutes what follows from it.
    pub root_cause: bool,
    /// One line, with templates of Prometheus.
    pub summary: &'static str,
    /// Section of the runbook.
    pub runbook: &'static str,
    /// Panel that shows what it is about; the watchdog has none.
    pub panel: Option<Panel>,
    /// Limit that the panel draws as a line, in the panel's unit.
    pub threshold: Option<f64>,
}

/// What a cause mutes looks back over up to five minutes (the short window of the burn), and late
/// answers take time to end: it outlives its cause. For as long as that the cause goes on firing,
/// so that one fault makes one page and not a second one for its wake.
const CAUSE_LINGERS_SECONDS: u32 = 420;

impl Alert {
    /// For how long it goes on firing when its expression no longer yields it, in seconds.
    ///
    /// Causes on hosts (`Layer::Node`) are left out: they look back themselves.
    pub fn keep_seconds(&self) -> u32 {
        match self.layer {
            Some(Layer::Process | Layer::Role | Layer::Queue) if self.root_cause => {
                CAUSE_LINGERS_SECONDS
            }
            Some(Layer::Node | Layer::Process | Layer::Role | Layer::Queue | Layer::Symptom)
            | None => 0,
        }
    }
}

/// A rule that records a series.
#[derive(Debug, Clone, PartialEq)]
pub struct Recording {
    /// The series.
    pub series: Recorded,
    /// Its value.
    pub expr: Expr,
}

/// Rules that are evaluated one after the other.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// Name.
    pub name: &'static str,
    /// Seconds between evaluations; the default of Prometheus without.
    pub interval_seconds: Option<u32>,
    /// Recording rules, in an order in which each finds what it needs.
    pub recordings: Vec<Recording>,
    /// Alerts.
    pub alerts: Vec<Alert>,
}

/// All groups; the recording group is first, because all others read what it makes.
pub fn groups() -> Vec<Group> {
    let alerting =
        |name, alerts| Group { name, interval_seconds: None, recordings: Vec::new(), alerts };
    vec![
        Group {
            name: "sightline.recording",
            interval_seconds: Some(15),
            recordings: recording::rules(),
            alerts: Vec::new(),
        },
        alerting("sightline.saturation", saturation::alerts()),
        alerting("sightline.slo", slo_rules::alerts()),
        alerting("sightline.disaggregation", pair::alerts()),
        alerting("sightline.kv", kv::alerts()),
        alerting("sightline.availability", availability::alerts()),
        alerting("sightline.node", node::alerts()),
    ]
}

/// All groups over a target's processes; the recording group is first.
pub fn groups_of(target: Target) -> Vec<Group> {
    match target {
        Target::Sightline => groups(),
        Target::Engine(engine) => engines::groups(engine),
    }
}

/// All alerts over a target's processes.
pub fn alerts_of(target: Target) -> Vec<Alert> {
    groups_of(target).into_iter().flat_map(|group| group.alerts).collect()
}

/// All alerts.
pub fn alerts() -> Vec<Alert> {
    groups().into_iter().flat_map(|group| group.alerts).collect()
}

/// Names of the series that rules read and processes export, as they stand on a page; those of the
/// scraper itself are among them.
pub fn inputs() -> BTreeSet<String> {
    let groups = groups();
    let recordings = groups.iter().flat_map(|group| group.recordings.iter().map(|rule| &rule.expr));
    let alerts = groups.iter().flat_map(|group| group.alerts.iter().map(|alert| &alert.expr));
    let series = recordings.chain(alerts).flat_map(Expr::series);
    series.filter(|name| !name.contains(':')).collect()
}

/// Name of the file with the rules over a target's processes, relative to `prometheus/rules`.
pub const fn file_name(target: Target) -> &'static str {
    match target {
        Target::Sightline => "server.yml",
        Target::Engine(Engine::Sglang) => "sglang.yml",
        Target::Engine(Engine::Vllm) => "vllm.yml",
    }
}

fn files(annotations: yaml::Annotations) -> Vec<(String, String)> {
    let file = |target: &Target| {
        (file_name(*target).to_owned(), yaml::write(&groups_of(*target), annotations))
    };
    Target::ALL.iter().map(file).collect()
}

/// Rule files by name, relative to `prometheus/rules`; byte for byte the same for the same catalog.
pub fn rule_files() -> Vec<(String, String)> {
    files(yaml::Annotations::Keep)
}

/// `rule_files` without annotations, for rule tests: they compare labels and times, and a summary
/// may be reworded without touching a scenario.
pub fn rule_files_for_tests() -> Vec<(String, String)> {
    files(yaml::Annotations::Drop)
}
