//! The rules as data, and the committed files made from them.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::*;
use crate::promql::recorded;
use crate::target::Target;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// With `SIGHTLINE_UPDATE=1` the files are written instead of compared.
#[test]
fn committed_rules_are_what_the_catalog_says() {
    #[expect(clippy::disallowed_methods, reason = "a switch of this test only")]
    let update = std::env::var("SIGHTLINE_UPDATE").is_ok_and(|value| value == "1");
    for (name, text) in rule_files() {
        let path = root().join("rules").join(&name);
        if update {
            std::fs::write(&path, &text).expect("the folder is in the repository");
        }
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(committed, text, "{name} is stale: set SIGHTLINE_UPDATE=1 and test again");
    }
}

#[test]
fn every_series_is_recorded_once_before_it_is_used() {
    Target::ALL.iter().for_each(|target| recorded_once_before_it_is_used(*target));
}

/// `level:metric:operation`; other engines have names with one colon.
fn is_recorded(series: &str) -> bool {
    series.matches(':').count() == 2
}

fn recorded_once_before_it_is_used(target: Target) {
    let mut made = Vec::new();
    for recording in groups_of(target).into_iter().flat_map(|group| group.recordings) {
        for series in recording.expr.series() {
            let recorded = is_recorded(&series);
            // A rule may look back at itself only over time; none does.
            assert!(!recorded || made.contains(&series), "{series} is used before it is made");
        }
        made.push(recording.series.name.to_owned());
    }
    let declared: Vec<_> =
        recorded::of(target).iter().map(|series| series.name.to_owned()).collect();
    assert_eq!(made, declared);
    for alert in alerts_of(target) {
        for series in alert.expr.series().iter().filter(|series| is_recorded(series)) {
            assert!(made.contains(series), "{} reads {series}", alert.name);
        }
    }
}

#[test]
fn recorded_series_have_the_labels_and_units_they_declare() {
    let groups = Target::ALL.iter().flat_map(|target| groups_of(*target));
    for Recording { series, expr } in groups.flat_map(|group| group.recordings) {
        let set = |labels: &[&'static str]| labels.iter().copied().collect::<BTreeSet<_>>();
        assert_eq!(set(expr.labels()), set(series.labels), "{}", series.name);
        assert_eq!(expr.unit(), series.unit, "{}", series.name);
        assert!(series.labels.contains(&"cluster"), "{}", series.name);
    }
}

#[test]
fn alerts_are_complete() {
    Target::ALL.iter().for_each(|target| complete(*target));
}

fn complete(target: Target) {
    let mut names = BTreeSet::new();
    for alert in alerts_of(target) {
        assert!(names.insert(alert.name), "{} twice", alert.name);
        assert!(alert.summary.len() > 20 && !alert.summary.ends_with('.'), "{}", alert.name);
        assert!(!alert.summary.contains("  "), "{}", alert.name);
        // Only pages are causes, so that a warning never mutes a page.
        assert!(!alert.root_cause || alert.severity == Severity::Critical, "{}", alert.name);
        assert!(alert.root_cause || alert.layer != Some(Layer::Process), "{}", alert.name);
        assert!(alert.severity != Severity::Critical || alert.layer.is_some(), "{}", alert.name);
        assert_eq!(alert.panel.is_none(), alert.name == "Watchdog", "{}", alert.name);
        let shown = alert.expr.labels();
        for template in alert.summary.split("$labels.").skip(1) {
            let label: String =
                template.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            assert!(shown.contains(&label.as_str()), "{} shows {label} of {shown:?}", alert.name);
        }
        assert!(alert.name == "Watchdog" || shown.contains(&"cluster"), "{}", alert.name);
    }
}

#[test]
fn runbook_has_one_section_for_each_anchor_and_no_other() {
    let text = std::fs::read_to_string(root().join("runbook.md")).expect("the runbook is there");
    let sections: Vec<_> =
        text.lines().filter_map(|line| line.strip_prefix("## ")).map(str::to_owned).collect();
    let anchors: BTreeSet<_> = sections.iter().cloned().collect();
    assert_eq!(anchors.len(), sections.len(), "a section is there twice");
    let alerts: Vec<_> = Target::ALL.iter().flat_map(|target| alerts_of(*target)).collect();
    let named: BTreeSet<_> = alerts.iter().map(|alert| alert.runbook.to_owned()).collect();
    assert_eq!(anchors, named);
    for section in text.split("\n## ").skip(1) {
        let (anchor, body) = section.split_once('\n').expect("a section has a body");
        for part in ["Meaning.", "First look.", "Causes.", "What to do.", "What not to do."] {
            assert!(body.contains(&format!("**{part}**")), "{anchor} lacks {part}");
        }
        for alert in alerts.iter().filter(|alert| alert.runbook == anchor) {
            assert!(body.contains(alert.name), "{anchor} does not name {}", alert.name);
        }
    }
}

#[cfg(feature = "lint")]
#[test]
fn expressions_fit_the_catalog() {
    use crate::promql::{Scope, lint};
    for (target, group) in Target::ALL
        .iter()
        .flat_map(|target| groups_of(*target).into_iter().map(|group| (*target, group)))
    {
        let recordings = group.recordings.iter().map(|rule| (rule.series.name, &rule.expr));
        let alerts = group.alerts.iter().map(|alert| (alert.name, &alert.expr));
        for (name, expr) in recordings.chain(alerts) {
            for text in [expr.to_string(), expr.pretty(&Scope::NONE)] {
                assert_eq!(lint::check_for(target, &text), Vec::new(), "{name}: {text}");
            }
        }
    }
}
