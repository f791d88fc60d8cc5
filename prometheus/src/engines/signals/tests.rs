use std::collections::BTreeSet;

use super::*;
use crate::def::{Source, Values};
use crate::engines::Page;

/// The part of the exposition that a page of the catalog stands for.
const fn part(page: Page) -> &'static str {
    match page {
        Page::SglangScheduler => "scheduler",
        Page::SglangTokenizer => "tokenizer",
        Page::SglangCache => "cache",
        Page::SglangHttp | Page::VllmHttp => "http",
        Page::SglangLoads => "loads",
        Page::Vllm => "engine",
        Page::VllmFront => "front",
    }
}

/// Labels that the scraper sets; the role of vLLM is one.
const OF_TARGET: &[&str] = &["cluster", "node", "job", "instance", "engine_role"];

#[test]
fn names_are_those_of_the_code() {
    let names: Vec<_> = document().signals.keys().map(String::as_str).collect();
    let mut known: Vec<_> = Signal::ALL.iter().map(|signal| signal.as_str()).collect();
    known.sort_unstable();
    assert_eq!(names, known);
    for engine in Engine::ALL {
        let facts = of(*engine);
        assert!(facts.versions.len() >= 2, "{engine}");
        let answered: Vec<_> = facts.signals.keys().map(String::as_str).collect();
        assert_eq!(answered, names, "{engine}");
        let mut families = BTreeSet::new();
        for family in &facts.vocabulary {
            assert!(families.insert(&family.name), "{} is there twice", family.name);
            let page = facts.pages.get(&family.page);
            let page = page.unwrap_or_else(|| panic!("{}: page {}", family.name, family.page));
            assert!(facts.jobs.contains_key(&page.job), "{}", family.page);
            assert_eq!(family.kind == Kind::Histogram, !family.buckets.is_empty(), "{family:?}");
            assert!(family.buckets.is_sorted_by(|a, b| a < b), "{}", family.name);
            let versions = family.since.iter().chain(&family.until);
            let labels = family.labels.iter().flat_map(|label| label.since.iter());
            for version in versions.chain(labels) {
                assert!(facts.versions.iter().any(|known| &known.version == version), "{version}");
            }
            assert!(family.labels.iter().all(|label| !label.values.is_empty()), "{family:?}");
        }
    }
    assert_eq!(Engine::ALL.len(), document().engines.len());
}

/// In each version that has the family: its kind, its labels, its buckets.
#[test]
fn constants_are_in_the_vocabulary() {
    for engine in Engine::ALL {
        let facts = of(*engine);
        for info in engine.families() {
            let name = info.name;
            let family = facts.family(name).unwrap_or_else(|| panic!("{name} is in no version"));
            assert_eq!(family.query_kind(), Some(info.kind), "{name}");
            let Source::Engine(page) = info.source else { panic!("{name}") };
            assert_eq!(family.page, part(page), "{name}");
            if info.kind == OurKind::Histogram {
                let pairs = || family.buckets.iter().zip(info.buckets);
                let near = pairs().all(|(a, b)| (a - b).abs() <= 1e-12 * b.abs());
                assert!(near && family.buckets.len() == info.buckets.len(), "{name}");
            }
            let mut versions = 0;
            let labels = |version: &str| -> BTreeSet<String> {
                facts.labels_of(family, version).map(|label| label.name.clone()).collect()
            };
            for version in &facts.versions {
                if !facts.has(family, &version.version) {
                    continue;
                }
                versions += 1;
                let there = labels(&version.version);
                let own: Vec<_> = info.labels.iter().map(|label| label.name).collect();
                let newer = family.labels.iter().filter(|label| label.since.is_some());
                let newer: Vec<_> = newer.map(|label| label.name.as_str()).collect();
                for label in own.iter().filter(|label| !newer.contains(label)) {
                    assert!(there.contains(*label), "{name} of {}: {label}", version.version);
                }
            }
            assert!(versions > 0, "{name}");
            let newest = family.until.as_deref().unwrap_or(facts.newest());
            for label in info.common_labels().iter().filter(|label| !OF_TARGET.contains(label)) {
                assert!(labels(newest).contains(*label), "{name} lacks {label}");
            }
            closed_values_are_told(info, family);
        }
    }
}

/// Values of a closed label are those of the vocabulary, so that no query names another.
fn closed_values_are_told(info: &crate::def::Info, family: &Family) {
    for label in info.labels {
        let Values::Closed(values) = label.values else { continue };
        let facts = family.labels.iter().find(|known| known.name == label.name);
        let facts = facts.unwrap_or_else(|| panic!("{} lacks {}", info.name, label.name));
        assert_eq!(facts.values, values, "{} {}", info.name, label.name);
    }
}

#[test]
fn gaps_say_what_is_missing_and_what_would_close_them() {
    for engine in Engine::ALL {
        let facts = of(*engine);
        for (name, signal) in &facts.signals {
            for answered in std::iter::once(signal).chain(signal.versions.values()) {
                let absent = answered.status == Status::Absent;
                let gap = answered.gap.is_some() && answered.close.is_some();
                assert_eq!(absent, gap, "{engine} {name}");
                if answered.status == Status::Partial {
                    assert!(answered.note.is_some(), "{engine} {name}");
                }
            }
            for version in signal.versions.keys() {
                assert!(facts.versions.iter().any(|known| known.version == *version), "{name}");
                assert_ne!(version, facts.newest(), "{engine} {name}: the newest is the rule");
            }
        }
    }
}

#[test]
fn versions_in_the_wild_count_as_the_nearest_older_one() {
    let sglang = of(Engine::Sglang);
    for (found, counts_as) in [
        ("0.5.13", "0.5.13"),
        ("0.5.13.post1", "0.5.13"),
        ("0.5.22", "0.5.13"),
        ("0.5.23", "0.5.23"),
        ("v0.6.0rc1", "0.5.23"),
        ("0.4.9", "0.5.13"),
    ] {
        assert_eq!(sglang.nearest(found), counts_as, "{found}");
    }
    let bytes = sglang.family("sglang:load_back_bytes_total").expect("it is in the vocabulary");
    assert!(!sglang.has(bytes, "0.5.20") && sglang.has(bytes, "0.5.24"));
    let series = sglang.family("sglang:queue_time_seconds_bucket").expect("of a histogram");
    assert_eq!(series.name, "sglang:queue_time_seconds");
    assert!(sglang.family("sglang:num_running_reqs_sum").is_none());
    let answered = sglang.answered(Signal::HicacheLoadBytesRate);
    assert_eq!(answered.at("0.5.13").status, Status::Absent);
    assert_eq!(answered.at("0.5.23").status, Status::Present);
}
