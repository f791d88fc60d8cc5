//! The verdict: is this node fit to serve, and if not, why not.
//!
//! A table of checks (`checks`) looks at facts and at what [`History`] remembers of earlier ones. A
//! [`Judge`] adds time: what is unknown keeps its last verdict for a while, then a critical check
//! counts as failed, so that not knowing never passes silently. Nothing here reads a clock or a
//! file.

mod gpus;
mod history;
mod node;
pub mod report;
mod services;

use std::collections::BTreeMap;

use metric_catalog::labels::{CheckSeverity, HealthCheck};

pub use history::History;

use crate::config::Config;
use crate::facts::Facts;
use crate::hostcache::join::Join;
use crate::service::State;
use crate::slot::Now;

/// The scope of checks about the whole node.
pub const NODE: &str = "node";

/// What checks look at.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    /// What the operator wants.
    pub config: &'a Config,
    /// What is known.
    pub facts: &'a Facts,
    /// What is known of services.
    pub states: &'a [State<'a>],
    /// What host caches and NUMA nodes say together.
    pub joined: &'a Join,
}

/// What a check says of one scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// All is well.
    Pass,
    /// It is not, and why.
    Fail(String),
    /// Nobody knows, and why.
    Unknown(String),
}

/// What a check says of all its scopes.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Findings {
    /// Of each of them; scopes that are not named do not exist (any more).
    Of(Vec<(String, Outcome)>),
    /// Nobody knows which there are: what was known of each stands for a while.
    Unknown(String),
}

/// One row of the table.
struct Check {
    check: HealthCheck,
    severity: CheckSeverity,
    judge: fn(&Input<'_>, &mut History) -> Findings,
}

/// The table. A check may have rows of both severities, for scopes that differ.
const CHECKS: &[Check] = {
    use CheckSeverity::{Critical, Warning};
    use HealthCheck as Is;
    &[
        Check { check: Is::GpuPresent, severity: Critical, judge: gpus::present },
        Check { check: Is::GpuResponding, severity: Critical, judge: gpus::responding },
        Check { check: Is::GpuRecovery, severity: Critical, judge: gpus::recovery },
        Check { check: Is::GpuXid, severity: Critical, judge: gpus::critical_xids },
        Check { check: Is::GpuXid, severity: Warning, judge: gpus::noted_xids },
        Check { check: Is::GpuEcc, severity: Critical, judge: gpus::ecc },
        Check { check: Is::GpuRowRemap, severity: Warning, judge: gpus::row_remap },
        Check { check: Is::GpuThermal, severity: Warning, judge: gpus::thermal },
        Check { check: Is::GpuPcieLink, severity: Warning, judge: gpus::pcie_link },
        Check { check: Is::GpuMemory, severity: Warning, judge: gpus::memory },
        Check { check: Is::ServiceUp, severity: Critical, judge: services::up },
        Check { check: Is::ServiceRestarts, severity: Critical, judge: services::restarts },
        Check { check: Is::NumaHeadroom, severity: Critical, judge: node::headroom },
        Check { check: Is::HostcacheLocal, severity: Warning, judge: services::cache_is_local },
        Check { check: Is::NumaPolicy, severity: Warning, judge: services::policy },
        Check { check: Is::MemoryPressure, severity: Critical, judge: node::memory_pressure },
        Check { check: Is::RdmaLink, severity: Critical, judge: node::required_links },
        Check { check: Is::RdmaLink, severity: Warning, judge: node::other_links },
        Check { check: Is::CollectorFresh, severity: Warning, judge: node::collectors },
    ]
};

/// What one check says of one scope, with time added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judged {
    /// The question.
    pub check: HealthCheck,
    /// What it is about.
    pub scope: String,
    /// What a failure means.
    pub severity: CheckSeverity,
    /// The answer.
    pub outcome: Outcome,
    /// Whether it counts as passed: while nobody knows, what was known last; of a critical check
    /// only for the grace period.
    pub passes: bool,
    /// Since when the answer is this one.
    pub since: Now,
}

impl Judged {
    /// Whether the answer is not [`Outcome::Unknown`].
    #[must_use]
    pub const fn is_known(&self) -> bool {
        match self.outcome {
            Outcome::Pass | Outcome::Fail(_) => true,
            Outcome::Unknown(_) => false,
        }
    }
}

/// The verdict, and everything it rests on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Whether no critical check fails.
    pub healthy: bool,
    /// Every check of every scope, in the order of the table.
    pub checks: Vec<Judged>,
}

type Key = (HealthCheck, CheckSeverity, String);

#[derive(Debug, Clone, Copy)]
struct Past {
    /// What it counted as when it was known last.
    passed: bool,
    kind: Kind,
    since: Now,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Pass,
    Fail,
    Unknown,
}

/// Judges again and again, and remembers.
#[derive(Debug, Default)]
pub struct Judge {
    past: BTreeMap<Key, Past>,
    history: History,
}

impl Judge {
    /// The verdict at the moment of the facts.
    #[must_use]
    pub fn judge(&mut self, input: &Input<'_>) -> Verdict {
        let mut checks = Vec::new();
        let mut past = BTreeMap::new();
        self.history.at(input.facts.now);
        for row in CHECKS {
            for (scope, outcome) in self.findings(row, input) {
                let judged = self.add_time(row, scope, outcome, input);
                let kind = kind(&judged.outcome);
                let known = Past { passed: judged.passes, kind, since: judged.since };
                let key = (row.check, row.severity, judged.scope.clone());
                let before = self.past.get(&key).map(|before| before.passed);
                let passed =
                    if kind == Kind::Unknown { before.unwrap_or(true) } else { known.passed };
                past.insert(key, Past { passed, ..known });
                checks.push(judged);
            }
        }
        // What is gone is forgotten: no more is kept than there are scopes.
        self.past = past;
        self.history.forget();
        let critical = |judged: &&Judged| judged.severity == CheckSeverity::Critical;
        let healthy = checks.iter().filter(critical).all(|judged| judged.passes);
        Verdict { healthy, checks }
    }

    /// What a row says, with the scopes that it knew where it does not know them now.
    fn findings(&mut self, row: &Check, input: &Input<'_>) -> Vec<(String, Outcome)> {
        match (row.judge)(input, &mut self.history) {
            Findings::Of(outcomes) => outcomes,
            Findings::Unknown(why) => {
                let own = |key: &&Key| key.0 == row.check && key.1 == row.severity;
                let known = self.past.keys().filter(own).map(|key| key.2.clone());
                let mut scopes: Vec<String> = known.collect();
                if scopes.is_empty() {
                    scopes.push(NODE.to_owned());
                }
                scopes.into_iter().map(|scope| (scope, Outcome::Unknown(why.clone()))).collect()
            }
        }
    }

    fn add_time(&self, row: &Check, scope: String, outcome: Outcome, input: &Input<'_>) -> Judged {
        let now = input.facts.now;
        let before = self.past.get(&(row.check, row.severity, scope.clone()));
        let same = before.filter(|before| before.kind == kind(&outcome));
        let since = same.map_or(now, |before| before.since);
        let passes = match outcome {
            Outcome::Pass => true,
            Outcome::Fail(_) => false,
            Outcome::Unknown(_) => {
                let over = now.since(since) > input.config.grace;
                let fails = over && row.severity == CheckSeverity::Critical;
                !fails && before.is_none_or(|before| before.passed)
            }
        };
        Judged { check: row.check, scope, severity: row.severity, outcome, passes, since }
    }
}

const fn kind(outcome: &Outcome) -> Kind {
    match outcome {
        Outcome::Pass => Kind::Pass,
        Outcome::Fail(_) => Kind::Fail,
        Outcome::Unknown(_) => Kind::Unknown,
    }
}

/// Why facts of a collector are not to be had.
fn missing(status: &crate::slot::Status) -> String {
    let name = status.name.as_str();
    match (&status.unsupported, &status.error, status.last_success) {
        (Some(why), _, _) => format!("{name}: {why}"),
        (None, Some(error), _) => format!("{name}: {error}"),
        (None, None, _) if !status.stuck.is_zero() => {
            format!("{name}: the collection has hung for {:.0?}", status.stuck)
        }
        (None, None, None) => format!("{name}: nothing was collected yet"),
        (None, None, Some(_)) => {
            format!("{name}: the last is {:.0?} old", status.age.unwrap_or_default())
        }
    }
}

#[cfg(test)]
mod tests;
