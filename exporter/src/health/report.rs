//! The verdict as series and as JSON.

use metric_catalog::labels::{CheckScope, CheckSeverity};
use metric_catalog::node as catalog;
use metric_catalog::page::Page;
use serde_json::{Value, json};

use super::{Judged, Outcome, Verdict};
use crate::slot::Now;

/// Puts the verdict on the page.
pub fn page(verdict: &Verdict, page: &mut Page) {
    page.flag(catalog::HEALTHY, (), verdict.healthy);
    for judged in &verdict.checks {
        let labels = || (judged.check, CheckScope::new(judged.scope.clone()), judged.severity);
        page.flag(catalog::HEALTH_CHECK, labels(), judged.passes);
        page.flag(catalog::HEALTH_CHECK_KNOWN, labels(), judged.is_known());
    }
}

/// What `/health` answers: the verdict, and each check that does not pass or is not known, critical
/// ones first.
#[must_use]
pub fn json(verdict: &Verdict, now: Now) -> String {
    let mut open: Vec<&Judged> =
        verdict.checks.iter().filter(|judged| judged.outcome != Outcome::Pass).collect();
    open.sort_by_key(|judged| {
        (judged.severity != CheckSeverity::Critical, judged.passes, !judged.is_known())
    });
    let open: Vec<Value> = open.into_iter().map(|judged| check(judged, now)).collect();
    let passed = verdict.checks.len() - open.len();
    json!({"healthy": verdict.healthy, "passed": passed, "checks": open}).to_string()
}

fn check(judged: &Judged, now: Now) -> Value {
    let (state, reason) = match &judged.outcome {
        Outcome::Pass => ("pass", ""),
        Outcome::Fail(reason) => ("fail", reason.as_str()),
        Outcome::Unknown(reason) => ("unknown", reason.as_str()),
    };
    json!({
        "check": judged.check.as_str(),
        "scope": judged.scope,
        "severity": judged.severity.as_str(),
        "state": state,
        "counts_as": if judged.passes { "pass" } else { "fail" },
        "reason": reason,
        "seconds": now.since(judged.since).as_secs(),
    })
}
