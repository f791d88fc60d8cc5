//! What works on a cluster that exists, and what is missing for the rest.
//!
//! Looks only: at the names, labels and targets that a Prometheus knows, and at a few addresses of
//! engines where they are given. `look` finds engines, versions, roles and jobs; `judge` says of
//! each panel and alert whether the series that it reads exist, and if not, which flag, job, label
//! or version is in the way (the record of decision 034 says how); `check` finds what makes right
//! queries wrong; `report` says it and `bundle` writes what is to be imported.

pub mod bundle;
mod check;
pub mod cli;
mod engine;
mod judge;
mod look;
pub mod report;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use metric_catalog::alerts::groups_of;
use metric_catalog::target::Target;

use crate::client::{ClientError, Http, Prometheus};
use crate::live::board::Board;
use crate::live::presence::Presences;
use crate::output::Output;
use report::Report;

/// Where is looked, and how far back.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Unix seconds.
    pub at: f64,
    /// Seconds; series without a sample in it do not exist.
    pub window: f64,
}

/// A rule, as far as it is judged.
#[derive(Debug, Clone)]
struct Rule {
    name: String,
    expr: String,
}

/// The rules of a target: what they record, and the alerts.
#[derive(Debug, Clone, Default)]
struct Rules {
    /// Expressions by the name of the series that they make.
    recorded: BTreeMap<String, String>,
    alerts: Vec<Rule>,
}

impl Rules {
    fn of(target: Target) -> Self {
        let mut rules = Self::default();
        for group in groups_of(target) {
            for recording in group.recordings {
                let (name, expr) = (recording.series.name.to_owned(), recording.expr.to_string());
                rules.recorded.insert(name, expr);
            }
            for alert in group.alerts {
                let (name, expr) = (alert.name.to_owned(), alert.expr.to_string());
                rules.alerts.push(Rule { name, expr });
            }
        }
        rules
    }
}

/// Looks at a cluster.
///
/// # Errors
/// The Prometheus does not answer, or refuses what every Prometheus answers. An engine that does
/// not answer at its address is a finding, no error.
pub async fn examine(
    prometheus: &Prometheus,
    engines: &[Http],
    output: &Output,
    settings: Settings,
) -> Result<Report, ClientError> {
    let mut cluster = look::cluster(prometheus, settings).await?;
    for http in engines {
        let seen = engine::ask(http).await;
        cluster.take(seen);
    }
    let mut presences = Presences::new(prometheus, settings.at);
    let mut verdicts = Vec::new();
    let found: Vec<Target> = cluster.engines.iter().map(|engine| engine.target).collect();
    for target in found {
        let rules = Rules::of(target);
        let boards = boards(output, target);
        let mut judge = judge::Judge {
            prometheus,
            presences: &mut presences,
            cluster: &cluster,
            target,
            settings,
            rules: &rules,
        };
        verdicts.extend(judge.boards(&boards).await?);
        verdicts.extend(judge.gaps(output));
        verdicts.extend(judge.alerts().await?);
    }
    let findings = check::all(prometheus, &cluster, settings).await?;
    let host_caches = look::host_caches(prometheus, settings).await?;
    Ok(Report::new(cluster, verdicts, findings, host_caches))
}

fn boards(output: &Output, target: Target) -> Vec<Board> {
    crate::live::cli::of_output(output, &[target]).expect("our own boards can be read back")
}
