use std::collections::BTreeSet;

use metric_catalog::engines::Engine;
use metric_catalog::engines::signals;
use metric_catalog::engines::synth::Process;

use super::look::by_names;
use super::*;

/// Names of the series on a page.
fn names(page: &str) -> BTreeSet<String> {
    let samples = page.lines().filter(|line| !line.starts_with('#'));
    let name = |line: &str| line.split(['{', ' ']).next().unwrap_or_default().to_owned();
    samples.map(name).collect()
}

#[test]
fn versions_are_told_apart_by_their_names() {
    for engine in Engine::ALL.iter().copied() {
        for version in &signals::of(engine).versions {
            let process = Process::new(engine, &version.version, "prefill");
            let page = process.page("metrics", 60.0).expect("a page");
            let (found, why) = by_names(engine, &names(&page));
            assert_eq!(found.as_deref(), Some(&*version.version), "{engine}: {why}");
            assert!(why.contains("--engine-url"), "{why}");
        }
        let (found, why) = by_names(engine, &BTreeSet::from(["up".to_owned()]));
        assert!(found.is_none() && why.contains("--engine-url"), "{why}");
    }
}

#[test]
fn rules_are_looked_through() {
    let rules = Rules::of(Target::Sightline);
    let makes_from_made = rules.recorded.values().any(|expr| {
        crate::selectors::selectors(expr).iter().any(|one| rules.recorded.contains_key(&one.name))
    });
    assert!(makes_from_made && rules.alerts.len() > 20);
}
