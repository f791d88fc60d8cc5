//! The report: what was found, what works, what to do next.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde::Serialize;

use super::check::Finding;
use super::judge::{Degree, EXPORTER, Verdict};
use super::look::{Cluster, HostCache};
use crate::write::canonical_json;

/// Next steps that are told.
const STEPS: usize = 3;

/// Everything that was found out.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// What is there.
    pub cluster: Cluster,
    /// How well each panel and alert works.
    pub verdicts: Vec<Verdict>,
    /// What makes right queries wrong.
    pub findings: Vec<Finding>,
    /// Bytes of host cache by NUMA node, where our exporter knows them.
    pub host_caches: Vec<HostCache>,
    /// The most valuable steps, best first: what to do, and what it brings.
    pub next: Vec<Step>,
}

/// Something to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Step {
    /// What.
    pub step: String,
    /// What for.
    pub because: String,
}

impl Report {
    pub(super) fn new(
        cluster: Cluster,
        verdicts: Vec<Verdict>,
        findings: Vec<Finding>,
        host_caches: Vec<HostCache>,
    ) -> Self {
        let next = next(&cluster, &verdicts, &findings);
        Self { cluster, verdicts, findings, host_caches, next }
    }

    /// Verdicts of a degree, over dashboards or over alerts.
    #[must_use]
    pub fn count(&self, target: &str, of_alerts: bool, degree: Degree) -> usize {
        let of = |verdict: &&Verdict| {
            verdict.target == target
                && verdict.dashboard.is_empty() == of_alerts
                && verdict.degree == degree
        };
        self.verdicts.iter().filter(of).count()
    }

    /// All of it as JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        canonical_json(self)
    }

    /// For people.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        self.found(&mut text);
        self.findings(&mut text);
        for engine in &self.cluster.engines {
            self.works(engine.target.as_str(), &mut text);
        }
        self.caches(&mut text);
        line(&mut text, "next steps");
        if self.next.is_empty() {
            line(&mut text, "  none: import the bundle (--out DIR), or look at the boards");
        }
        for (number, next) in self.next.iter().enumerate() {
            line(&mut text, &format!("  {}. {}", number + 1, next.step));
            line(&mut text, &format!("     {}", next.because));
        }
        text.trim_end().to_owned()
    }

    fn found(&self, text: &mut String) {
        let cluster = &self.cluster;
        let version = match cluster.prometheus_version.as_str() {
            "" => "does not tell its version",
            version => version,
        };
        line(text, &format!("Prometheus {} ({version})", cluster.prometheus));
        for engine in &cluster.engines {
            let version = engine.version.as_deref().unwrap_or("of unknown version");
            line(text, &format!("{} {version} ({})", engine.target, engine.version_from));
            let role = |(role, count): (&String, &usize)| {
                format!("{count} {}", if role.is_empty() { "of unknown role" } else { role })
            };
            let roles: Vec<String> = engine.roles.iter().map(role).collect();
            let join = |set: &BTreeSet<String>| set.iter().cloned().collect::<Vec<_>>().join(", ");
            line(text, &format!("  processes: {}", roles.join(", ")));
            line(
                text,
                &format!("  models: {}; jobs: {}", join(&engine.models), join(&engine.jobs)),
            );
        }
        let exporter = if cluster.has_exporter { "scraped" } else { "not scraped" };
        line(text, &format!("sightline-exporter: {exporter}"));
        for job in cluster.jobs.iter().flatten() {
            let interval =
                job.interval_seconds.map(|s| format!(", every {s} s")).unwrap_or_default();
            line(text, &format!("job {}: {} up, {} down{interval}", job.name, job.up, job.down));
        }
    }

    fn findings(&self, text: &mut String) {
        for finding in &self.findings {
            let mark = if finding.is_fault { "!" } else { "-" };
            line(text, &format!("{mark} {}", finding.what));
            line(text, &format!("  {}", finding.step));
        }
    }

    fn works(&self, target: &str, text: &mut String) {
        for (of_alerts, what) in [(false, "panels"), (true, "alerts")] {
            let count = |degree| self.count(target, of_alerts, degree);
            let (works, degraded) = (count(Degree::Works), count(Degree::Degraded));
            let impossible = count(Degree::Impossible);
            if works + degraded + impossible == 0 {
                line(text, &format!("{target} {what}: this program has none"));
                continue;
            }
            line(
                text,
                &format!(
                    "{target} {what}: {works} work, {degraded} degraded, {impossible} impossible"
                ),
            );
            // What one step brings stands together.
            let mut by_step: BTreeMap<&str, Vec<(&Verdict, &str)>> = BTreeMap::new();
            for verdict in &self.verdicts {
                let of = verdict.target == target && verdict.dashboard.is_empty() == of_alerts;
                for cause in verdict.causes.iter().filter(|_| of) {
                    by_step.entry(&cause.step).or_default().push((verdict, &cause.missing));
                }
            }
            for (step, all) in by_step {
                let step = if step.is_empty() { "nothing can be done from here" } else { step };
                line(text, &format!("  {step}"));
                for (verdict, missing) in all {
                    let degree = match verdict.degree {
                        Degree::Works => "works",
                        Degree::Degraded => "degraded",
                        Degree::Impossible => "impossible",
                    };
                    let place = match verdict.dashboard.as_str() {
                        "" => verdict.name.clone(),
                        board => format!("{board}/{}", verdict.name),
                    };
                    line(text, &format!("    {degree:<10} {place}: {missing}"));
                }
            }
        }
    }

    fn caches(&self, text: &mut String) {
        if self.host_caches.is_empty() {
            line(text, "host cache per NUMA node: not known; no engine exports it");
            line(text, &format!("  {EXPORTER}"));
        }
        for cache in &self.host_caches {
            let gib = cache.bytes / f64::from(1 << 30);
            let HostCache { node, service, numa_node, .. } = cache;
            let host = if node.is_empty() { "(no label node)" } else { node };
            line(
                text,
                &format!("host cache of {service} on {host}, NUMA node {numa_node}: {gib:.2} GiB"),
            );
        }
    }
}

fn line(text: &mut String, line: &str) {
    let _infallible = writeln!(text, "{line}");
}

/// Steps by what they bring: faults of the whole come first, then what unlocks most.
fn next(cluster: &Cluster, verdicts: &[Verdict], findings: &[Finding]) -> Vec<Step> {
    let mut brings: BTreeMap<&str, BTreeSet<(&str, &str)>> = BTreeMap::new();
    for verdict in verdicts {
        for cause in verdict.causes.iter().filter(|cause| !cause.step.is_empty()) {
            brings.entry(&cause.step).or_default().insert((&verdict.dashboard, &verdict.name));
        }
    }
    let weight = |step: &str| brings.get(step).map_or(0, BTreeSet::len);
    let mut steps: Vec<(usize, Step)> = Vec::new();
    for (step, of) in &brings {
        let alerts = of.iter().filter(|(board, _)| board.is_empty()).count();
        let because = format!("brings {} panels and {alerts} alerts", of.len() - alerts);
        steps.push((weight(step), Step { step: (*step).to_owned(), because }));
    }
    // What is wrong with all series outweighs what is missing of some.
    let all = verdicts.len().max(1);
    let faults = findings.iter().filter(|finding| finding.is_fault);
    for (place, finding) in faults.enumerate() {
        let value = (all + 1).saturating_sub(place);
        let step = Step { step: finding.step.clone(), because: finding.what.clone() };
        steps.push((value, step));
    }
    if !cluster.has_exporter {
        let because = "brings host caches per NUMA node, cards, services and their alerts";
        let step = Step { step: EXPORTER.to_owned(), because: because.to_owned() };
        steps.push((all / 4, step));
    }
    steps.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.step.cmp(&b.1.step)));
    let mut seen = BTreeSet::new();
    let mut next: Vec<Step> = steps.into_iter().map(|(_, step)| step).collect();
    next.retain(|step| seen.insert(step.step.clone()));
    next.truncate(STEPS);
    next
}
