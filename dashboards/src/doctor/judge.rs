//! Says of each panel and each alert whether the series that it reads exist, and what is in the
//! way of those that do not.
//!
//! A series that a rule records counts as what the rule reads: the rules can be imported. A query
//! works when all of its series exist; with `or` in it also when something comes. A panel works
//! when all of its queries do, is degraded when some do, and impossible when none does. An alert
//! that joins its series needs all of them; one with `or` or `unless` is degraded without some.

use std::collections::BTreeSet;

use metric_catalog::engines::signals::{self, Facts};
use metric_catalog::target::Target;
use serde::Serialize;

use super::look::{Cluster, Found, role_label};
use super::{Rules, Settings};
use crate::client::{ClientError, Prometheus, duration};
use crate::ir::Kind;
use crate::live::board::{Board, Source, Target as Query};
use crate::live::presence::{Presence, Presences};
use crate::live::rate_interval;
use crate::live::waivers::is_old_name;
use crate::output::Output;
use crate::selectors::{Selector, selectors};
use crate::variables;

/// Rules that read rules that read rules.
const DEPTH_MAX: usize = 8;

/// How well something works.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Degree {
    /// All of it.
    Works,
    /// A part of it.
    Degraded,
    /// Nothing of it.
    Impossible,
}

/// What stands in the way: a step that would change it, and why.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Cause {
    /// What to do; the same text for everything that the same step brings. Empty where nothing can
    /// be done.
    pub step: String,
    /// What is missing.
    pub missing: String,
}

/// The judgement of one panel or alert.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verdict {
    /// Whose.
    pub target: &'static str,
    /// Uid of the dashboard; empty for alerts.
    pub dashboard: String,
    /// Panel, or name of the alert.
    pub name: String,
    /// How well.
    pub degree: Degree,
    /// What is in the way; empty where it works.
    pub causes: Vec<Cause>,
}

pub(super) struct Judge<'a, 'b> {
    pub(super) prometheus: &'a Prometheus,
    pub(super) presences: &'b mut Presences<'a>,
    pub(super) cluster: &'b Cluster,
    pub(super) target: Target,
    pub(super) settings: Settings,
    pub(super) rules: &'b Rules,
}

impl Judge<'_, '_> {
    pub(super) async fn boards(&mut self, boards: &[Board]) -> Result<Vec<Verdict>, ClientError> {
        let mut verdicts = Vec::new();
        for board in boards {
            for panel in &board.panels {
                let (mut working, mut causes) = (0, Vec::new());
                for query in &panel.targets {
                    let missing = self.query(board, query).await?;
                    working += usize::from(missing.is_empty());
                    causes.extend(missing);
                }
                let degree = match working {
                    all if all == panel.targets.len() => Degree::Works,
                    0 => Degree::Impossible,
                    _ => Degree::Degraded,
                };
                verdicts.push(self.verdict(&board.uid, &panel.name, degree, causes));
            }
        }
        Ok(verdicts)
    }

    /// The texts that stand where the engine has no answer.
    pub(super) fn gaps(&self, output: &Output) -> Vec<Verdict> {
        let Target::Engine(engine) = self.target else { return Vec::new() };
        let boards = output.boards.iter().filter(|board| board.target == self.target);
        let mut verdicts = Vec::new();
        for board in boards {
            for (_, panel) in board.ir.panels() {
                let Kind::Text(text) = &panel.kind else { continue };
                let missing = text.split_whitespace().collect::<Vec<_>>().join(" ");
                let missing = format!("{} does not expose it: {missing}", engine.title());
                let cause = Cause { step: String::new(), missing };
                verdicts.push(self.verdict(
                    &board.ir.uid,
                    &panel.slug,
                    Degree::Impossible,
                    vec![cause],
                ));
            }
        }
        verdicts
    }

    pub(super) async fn alerts(&mut self) -> Result<Vec<Verdict>, ClientError> {
        let mut verdicts = Vec::new();
        for alert in &self.rules.alerts {
            let leaves = self.leaves(&alert.expr);
            let mut causes = Vec::new();
            for leaf in &leaves {
                causes.extend(self.cause(leaf).await?);
            }
            let choices = self.expanded(&alert.expr);
            let choices = choices.iter().any(|expr| has_choices(expr));
            let degree = match causes.len() {
                0 => Degree::Works,
                some if choices && some < leaves.len() => Degree::Degraded,
                _ => Degree::Impossible,
            };
            verdicts.push(self.verdict("", &alert.name, degree, causes));
        }
        Ok(verdicts)
    }

    fn verdict(
        &self,
        dashboard: &str,
        name: &str,
        degree: Degree,
        mut causes: Vec<Cause>,
    ) -> Verdict {
        let mut seen = BTreeSet::new();
        causes.retain(|cause| seen.insert(cause.clone()));
        Verdict {
            target: self.target.as_str(),
            dashboard: dashboard.to_owned(),
            name: name.to_owned(),
            degree,
            causes,
        }
    }

    /// What a query of a panel lacks.
    async fn query(&mut self, board: &Board, query: &Query) -> Result<Vec<Cause>, ClientError> {
        let expr = self.filled(board, &query.expr);
        let mut causes = Vec::new();
        for leaf in self.leaves(&expr) {
            causes.extend(self.cause(&leaf).await?);
        }
        // One of several ways is enough, and what comes is the proof.
        let direct = self.expanded(&expr).len() == 1;
        if !causes.is_empty() && direct && has_choices(&expr) {
            let came = self.prometheus.query(&expr, Some(self.settings.at)).await?;
            if !came.is_empty() {
                causes.clear();
            }
        }
        Ok(causes)
    }

    fn filled(&self, board: &Board, expr: &str) -> String {
        let interval = self.cluster.jobs.iter().flatten().filter_map(|job| job.interval_seconds);
        let interval = interval.fold(15.0, f64::max);
        let window = duration::write(rate_interval(interval, interval));
        variables::interpolate(expr, &mut |name| {
            if variables::is_built_in(name) {
                return window.clone();
            }
            let variable = board.variables.iter().find(|variable| variable.name == name);
            match variable.map(|variable| &variable.value) {
                Some(Source::Fixed(text)) => text.clone(),
                Some(Source::Values { .. }) | None => ".*".to_owned(),
            }
        })
    }

    /// The expression, and those of the rules behind it.
    fn expanded(&self, expr: &str) -> Vec<String> {
        let mut all = vec![expr.to_owned()];
        let mut from = 0;
        for _ in 0..DEPTH_MAX {
            let named: Vec<_> = all[from..].iter().flat_map(|expr| selectors(expr)).collect();
            from = all.len();
            for selector in named {
                if let Some(rule) = self.rules.recorded.get(&selector.name)
                    && !all.contains(rule)
                {
                    all.push(rule.clone());
                }
            }
        }
        all
    }

    /// The selectors of an expression that name what is scraped, those behind rules among them.
    fn leaves(&self, expr: &str) -> Vec<Selector> {
        let mut leaves: Vec<Selector> = Vec::new();
        for selector in self.expanded(expr).iter().flat_map(|expr| selectors(expr)) {
            let recorded = self.rules.recorded.contains_key(&selector.name);
            if !recorded && !leaves.contains(&selector) {
                leaves.push(selector);
            }
        }
        leaves
    }

    /// What is in the way of a selector; none where its series exist, or need not.
    async fn cause(&mut self, selector: &Selector) -> Result<Option<Cause>, ClientError> {
        // Prometheus writes these itself, while there is something to write.
        if matches!(selector.name.as_str(), "ALERTS" | "ALERTS_FOR_STATE")
            || is_old_name(&selector.name)
        {
            return Ok(None);
        }
        let presence = self.presences.of(selector, self.settings.window).await?;
        let Some(missing) = presence.missing(selector) else { return Ok(None) };
        let found = self.cluster.engine(self.target);
        let step = match (&presence, self.target, found) {
            (Presence::NoMatch(excluding), _, _) => {
                let labels: Vec<&str> =
                    excluding.iter().map(|one| one.matcher.label.as_str()).collect();
                step_for_labels(self.target, &labels)
            }
            (_, Target::Engine(engine), Some(found)) => {
                step_for_name(signals::of(engine), found, self.cluster, &selector.name)
            }
            (_, Target::Sightline, _) | (_, _, None) => step_for_ours(self.cluster, &selector.name),
        };
        Ok(Some(Cause { step, missing }))
    }
}

/// Whether a part may be missing without the whole being empty.
fn has_choices(expr: &str) -> bool {
    let words: Vec<&str> = expr.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect();
    words.iter().any(|word| matches!(*word, "or" | "unless" | "absent" | "absent_over_time"))
}

fn step_for_labels(target: Target, labels: &[&str]) -> String {
    let role = role_label(target);
    if labels.contains(&role) && target == Target::Engine(metric_catalog::engines::Engine::Vllm) {
        return format!(
            "set the target label {role} (prefill, decode or unified) in the scrape job"
        );
    }
    if labels.contains(&role) {
        return format!("scrape a process of that {role}, and let no relabelling drop {role}");
    }
    match labels {
        [] => String::new(),
        _ => format!("see that its series keep {}", labels.join(", ")),
    }
}

/// Of a series of ours: of the exporter beside any engine, or of a role that is not there.
fn step_for_ours(cluster: &Cluster, name: &str) -> String {
    let of_exporter = metric_catalog::node::ALL.iter().any(|info| info.name == name);
    match (of_exporter, cluster.has_exporter) {
        (true, false) => EXPORTER.to_owned(),
        (true, true) => {
            "this host has no such part, or the exporter cannot read it: see its log".to_owned()
        }
        (false, _) => {
            "scrape every role of the deployment: prefill, decode, router, unified".to_owned()
        }
    }
}

/// The step that brings everything of the exporter.
pub(super) const EXPORTER: &str =
    "run sightline-exporter on each host and scrape it (scrape/node.yml)";

/// The step that brings the second page of SGLang.
fn job_step(facts: &Facts, job: &str) -> String {
    let Some(known) = facts.jobs.get(job) else { return String::new() };
    let params: Vec<String> = known
        .params
        .iter()
        .flat_map(|(key, values)| values.iter().map(move |value| format!("{key}={value}")))
        .collect();
    let query = if params.is_empty() { String::new() } else { format!("?{}", params.join("&")) };
    let flag = known.flag.as_ref().map(|flag| format!(" (needs {flag})")).unwrap_or_default();
    format!("add the scrape job for {}{query}{flag}: scrape/ has it", known.path)
}

fn step_for_name(facts: &Facts, found: &Found, cluster: &Cluster, name: &str) -> String {
    let Some(family) = facts.family(name) else { return step_for_ours(cluster, name) };
    let version = facts.nearest(found.version.as_deref().unwrap_or(facts.newest()));
    if !facts.has(family, version) {
        let since = family.since.as_ref().map(|since| format!("it is there from {since} on"));
        let until = family.until.as_ref().map(|until| format!("it is there up to {until}"));
        let when = since.or(until).unwrap_or_default();
        return format!("use another version than {version}: {when}");
    }
    let job = facts.pages.get(&family.page).map_or("", |page| page.job.as_str());
    let scraped = found
        .names
        .iter()
        .filter_map(|name| facts.family(name))
        .any(|other| facts.pages.get(&other.page).is_some_and(|page| page.job == job));
    if !scraped {
        return job_step(facts, job);
    }
    let role = found.roles.keys().any(|role| family.is_of(role));
    if !role && !found.roles.contains_key("") {
        let roles = family.roles.join(" or ");
        return format!("scrape a process of role {roles}, if there is one");
    }
    if let Some(flag) = &family.flag {
        return format!("start the engine with {flag}, if you use what it is about");
    }
    "let the engine do what it counts: some series come with their first event".to_owned()
}
