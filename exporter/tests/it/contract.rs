//! The catalog against live pages, both ways: what is exposed is declared, with its kind, help and
//! labels, and what is declared is exposed where a node has it.

use std::collections::{BTreeMap, BTreeSet};

use metric_catalog::def::{Info, Kind, Source, Values};

/// Families of a page, as its text says.
#[derive(Debug, Default)]
struct Family {
    help: String,
    kind: String,
    /// Labels of each series, in order.
    series: Vec<Vec<(String, String)>>,
}

/// Labels that are left out of a series that is not about a part of something.
const OF_PARTS: [&str; 2] = ["gpu_instance", "compute_instance"];

fn families(text: &str) -> BTreeMap<String, Family> {
    let mut found: BTreeMap<String, Family> = BTreeMap::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# ") {
            let mut words = rest.splitn(3, ' ');
            let mut word = || words.next().unwrap_or_default().to_owned();
            let (what, name, said) = (word(), word(), word());
            let family = found.entry(name).or_default();
            let place = if what == "HELP" { &mut family.help } else { &mut family.kind };
            assert!(place.is_empty(), "twice: {line}");
            *place = said;
        } else {
            let (series, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line:?}"));
            assert!(value.parse::<f64>().is_ok_and(f64::is_finite), "{line}");
            let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
            let family = found.get_mut(name).unwrap_or_else(|| panic!("no kind before {line}"));
            family.series.push(pairs(labels.trim_end_matches('}')));
        }
    }
    found
}

/// `a="b",c="d"`; the values of these pages have no quotes in them.
fn pairs(text: &str) -> Vec<(String, String)> {
    let part = |part: &str| {
        let (name, value) = part.split_once("=\"").unwrap_or_else(|| panic!("{text:?}"));
        (name.to_owned(), value.trim_end_matches('"').to_owned())
    };
    text.split("\",").filter(|text| !text.is_empty()).map(part).collect()
}

/// What is on a page and not as the catalog says.
fn undeclared(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    for (name, family) in families(text) {
        let mut of_exporters = metric_catalog::all().filter(|info| info.source != Source::Server);
        match of_exporters.find(|info| info.name == name) {
            Some(info) => wrong.extend(differences(info, &family)),
            None => wrong.push(format!("{name} is not declared")),
        }
    }
    wrong
}

fn differences(info: &Info, family: &Family) -> Vec<String> {
    let name = info.name;
    let mut wrong = Vec::new();
    if family.kind != info.kind.as_str() || family.help != info.help {
        wrong.push(format!("{name} is told as {} {:?}", family.kind, family.help));
    }
    let mut values: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for series in &family.series {
        let has = |label: &str| series.iter().any(|(name, _)| name == label);
        let declared = info.labels.iter().map(|label| label.name);
        let declared: Vec<_> =
            declared.filter(|label| !OF_PARTS.contains(label) || has(label)).collect();
        let names: Vec<_> = series.iter().map(|(name, _)| name.as_str()).collect();
        if names != declared {
            wrong.push(format!("{name} has labels {names:?}"));
        }
        for (label, value) in series {
            values.entry(label).or_default().insert(value);
        }
    }
    for label in info.labels {
        let seen = values.remove(label.name).unwrap_or_default();
        match label.values {
            Values::Closed(known) => {
                let strange = seen.iter().filter(|value| !known.contains(value));
                wrong.extend(strange.map(|value| format!("{name} has {}={value}", label.name)));
            }
            Values::Open { bound, .. } if seen.len() > bound => {
                wrong.push(format!("{name} has {} values of {}", seen.len(), label.name));
            }
            Values::Open { .. } => {}
        }
    }
    wrong
}

/// Families of node exporters, and values of their closed labels, that no series of the page has.
fn missing(text: &str) -> Vec<String> {
    let found = families(text);
    let mut missing = Vec::new();
    for info in metric_catalog::node::ALL {
        let Some(family) = found.get(info.name) else {
            missing.push(info.name.to_owned());
            continue;
        };
        for label in info.labels {
            let Values::Closed(values) = label.values else { continue };
            for value in values {
                let has = |(name, of): &(String, String)| name == label.name && of == value;
                if !family.series.iter().any(|series| series.iter().any(has)) {
                    missing.push(format!("{}{{{}={value:?}}}", info.name, label.name));
                }
            }
        }
    }
    missing
}

#[test]
fn the_checks_find_what_is_wrong() {
    let line = |text: &str| {
        let info = metric_catalog::node::GPUS;
        let help = metric_catalog::def::Metric::info(&info).help;
        format!("# HELP {0} {help}\n# TYPE {0} gauge\n{0}{text} 1\n", info.name())
    };
    assert_eq!(undeclared(&line("{state=\"pci\"}")), [""; 0]);
    let wrong = |text: &str, part: &str| {
        let found = undeclared(text);
        assert!(found.iter().any(|found| found.contains(part)), "{part}: {found:?}");
    };
    wrong(&line("{state=\"lost\"}"), "has state=lost");
    wrong(&line("{state=\"pci\",gpu=\"0\"}"), "has labels");
    wrong(&line(""), "has labels");
    wrong(&line("{state=\"pci\"}").replace("gauge", "counter"), "is told as counter");
    wrong("# HELP sightline_x X.\n# TYPE sightline_x gauge\nsightline_x 1\n", "not declared");
    let lacks = missing(&line("{state=\"pci\"}"));
    assert!(lacks.iter().any(|lack| lack == "sightline_node_gpus{state=\"nvml\"}"), "{lacks:?}");
    assert!(lacks.iter().any(|lack| lack == "sightline_node_healthy"));
    assert!(!lacks.iter().any(|lack| lack == "sightline_node_gpus{state=\"pci\"}"));
    assert!(metric_catalog::node::ALL.iter().all(|info| info.kind != Kind::Histogram));
}
