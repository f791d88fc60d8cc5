//! What one fault pages: the alerts that the stories expect, under the inhibition rules.

use std::path::PathBuf;

use super::*;
use crate::alerts::{Layer, alerts};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The alerts that a story expects at one moment: its first line, the moment, the labels.
struct Moment {
    story: String,
    at: String,
    firing: Vec<Labels>,
}

/// `{name: "value", ..}`, as the scenarios write labels.
fn labels(text: &str) -> Labels {
    let inner = text.trim().trim_start_matches('{').trim_end_matches('}');
    let pair = |part: &str| {
        let (name, value) = part.split_once(": ").expect("a label has a value");
        (name.trim().to_owned(), value.trim().trim_matches('"').to_owned())
    };
    inner.split(", ").map(pair).collect()
}

fn moments() -> Vec<Moment> {
    let path = folder().join("rules/tests/stories.yml");
    let text = std::fs::read_to_string(path).expect("the stories are there");
    let mut found: Vec<Moment> = Vec::new();
    let (mut story, mut at, mut alert) = (String::new(), String::new(), String::new());
    for line in text.lines() {
        let line = line.trim();
        if let Some(first) = line.strip_prefix("# STORY ") {
            first.clone_into(&mut story);
        } else if let Some(time) = line.strip_prefix("- eval_time: ") {
            time.clone_into(&mut at);
        } else if let Some(name) = line.strip_prefix("alertname: ") {
            name.clone_into(&mut alert);
        } else if let Some(set) = line.strip_prefix("- exp_labels: ") {
            let mut set = labels(set);
            set.insert("alertname".to_owned(), alert.clone());
            match found.iter_mut().find(|moment| moment.story == story && moment.at == at) {
                Some(moment) => moment.firing.push(set),
                None => {
                    let firing = vec![set];
                    found.push(Moment { story: story.clone(), at: at.clone(), firing });
                }
            }
        }
    }
    found
}

/// Words that a story starts with, the moment, how many critical alerts fire, and what is paged:
/// the alert, and the instance or the model that tells it from others.
type Paged = (&'static str, &'static str, usize, &'static [(&'static str, &'static str)]);

const PAGED: &[Paged] = &[
    ("one dead prefill of one", "75m", 4, &[("TargetDown", "p0")]),
    ("one dead prefill of two", "74m", 3, &[("TargetDown", "p0")]),
    ("the incident, whole", "51m15s", 1, &[("PrefillQueueDrainCritical", "p0")]),
    ("the incident, whole", "70m", 5, &[("PrefillQueueDrainCritical", "p0")]),
    ("the incident is over", "63m", 2, &[("PrefillQueueDrainCritical", "p0")]),
    ("the dead prefill of one is back", "63m", 3, &[("TargetDown", "p0")]),
    ("link cut between live peers", "74m", 4, &[("PeerDown", "d0")]),
    ("decode hangs", "74m", 3, &[("SchedulerStalled", "d0")]),
    ("p0 down and p2 stalled", "74m", 2, &[("TargetDown", "p0"), ("SchedulerStalled", "p2")]),
    (
        "the prefill of model m1 is dead",
        "74m",
        5,
        &[("TargetDown", "p0"), ("SloBudgetBurnFast", "m2")],
    ),
    ("the same prefill, its unit in state failed", "75m", 6, &[("ServiceFailed", "h0:9840")]),
    ("Xid 79 takes a card", "68m", 6, &[("GpuXidCritical", "h0:9840")]),
    // The event is over after ten minutes, its consequence is not.
    ("Xid 79 takes a card", "74m", 5, &[("GpuMissing", "h0:9840")]),
];

#[test]
fn one_fault_makes_one_page() {
    let moments = moments();
    let mut told = Vec::new();
    for moment in &moments {
        let is_this =
            |(story, at, ..): &&Paged| moment.story.starts_with(story) && moment.at == *at;
        let expected = PAGED.iter().find(is_this);
        let what = format!("{} at {}", moment.story, moment.at);
        let (story, at, critical, paged) =
            expected.unwrap_or_else(|| panic!("who is paged: {what}"));
        told.push((*story, *at));
        let is_critical = |set: &&Labels| set["severity"] == "critical";
        assert_eq!(moment.firing.iter().filter(is_critical).count(), *critical, "{what}");
        let pages = pages(&moment.firing);
        let name = |set: &Labels| {
            let of = set.get("instance").or(set.get("model_name")).cloned().unwrap_or_default();
            (set["alertname"].clone(), of)
        };
        let mut pages: Vec<_> = pages.into_iter().map(name).collect();
        let mut paged: Vec<_> =
            paged.iter().map(|(alert, of)| ((*alert).to_owned(), (*of).to_owned())).collect();
        pages.sort();
        paged.sort();
        assert_eq!(pages, paged, "{what}");
    }
    let all: Vec<_> = PAGED.iter().map(|(story, at, ..)| (*story, *at)).collect();
    told.sort_unstable();
    let mut sorted = all;
    sorted.sort_unstable();
    assert_eq!(told, sorted, "each is told once");
}

fn alert(name: &str, layer: &str, cause: bool, more: &[(&str, &str)]) -> Labels {
    let common = [("alertname", name), ("severity", "critical"), ("layer", layer)];
    let cause = cause.then_some(("root_cause", "true"));
    let pairs = common.iter().copied().chain(cause).chain(more.iter().copied());
    pairs.map(|(label, value)| (label.to_owned(), value.to_owned())).collect()
}

#[test]
fn a_cause_mutes_what_is_about_the_same_thing_and_nothing_else() {
    let here = [("cluster", "c1"), ("node", "h0"), ("model_name", "m")];
    let names = |firing: &[Labels]| -> Vec<String> {
        pages(firing).into_iter().map(|set| set["alertname"].clone()).collect()
    };
    // A muted cause still mutes: the host explains the process, the process the symptom.
    let chain = [
        alert("GpuXidCritical", "node", true, &here[..2]),
        alert("TargetDown", "process", true, &here),
        alert("SloBudgetBurnFast", "symptom", false, &[here[0], here[2]]),
        alert("NodeUnhealthy", "symptom", false, &here[..2]),
    ];
    assert_eq!(names(&chain), ["GpuXidCritical"]);
    assert_eq!(names(&chain[1..]), ["TargetDown"], "and the verdict about its host");
    assert_eq!(names(&chain[2..]), ["SloBudgetBurnFast", "NodeUnhealthy"]);
    // A card that told why it went is not told of twice; one that went silently is.
    let gone = alert("GpuMissing", "node", true, &here[..2]);
    assert_eq!(names(&[chain[0].clone(), gone.clone()]), ["GpuXidCritical"]);
    let beyond = [("cluster", "c1"), ("node", "h1")];
    let other_host = alert("GpuXidCritical", "node", true, &beyond);
    assert_eq!(names(&[other_host, gone]), ["GpuXidCritical", "GpuMissing"]);
    // Another cluster, another model, a cause without a model.
    let elsewhere = [("cluster", "c2"), ("node", "h0"), ("model_name", "m")];
    let other = [("cluster", "c1"), ("node", "h0"), ("model_name", "m2")];
    let down = alert("TargetDown", "process", true, &here[..2]);
    let burns =
        [&here, &elsewhere, &other].map(|of| alert("SloBudgetBurnFast", "symptom", false, of));
    assert_eq!(names(&[chain[1].clone(), burns[1].clone(), burns[2].clone()]).len(), 3);
    assert_eq!(names(&[down, burns[0].clone()]).len(), 2);
    // Causes of one layer do not mute each other, and a warning is no page.
    let two = [chain[1].clone(), alert("SchedulerStalled", "process", true, &here)];
    assert_eq!(names(&two).len(), 2);
    let mut warning = chain[2].clone();
    warning.insert("severity".to_owned(), "warning".to_owned());
    assert!(names(&[warning]).is_empty());
}

/// With `SIGHTLINE_UPDATE=1` the file is written instead of compared.
#[test]
fn committed_configuration_is_what_the_catalog_says() {
    #[expect(clippy::disallowed_methods, reason = "a switch of this test only")]
    let update = std::env::var("SIGHTLINE_UPDATE").is_ok_and(|value| value == "1");
    let path = folder().join("alertmanager.yml");
    if update {
        std::fs::write(&path, alertmanager()).expect("the folder is in the repository");
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(committed, alertmanager(), "set SIGHTLINE_UPDATE=1 and test again");
}

#[test]
fn matchers_name_labels_and_layers_that_alerts_have() {
    let layers = [Layer::Node, Layer::Process, Layer::Role, Layer::Queue, Layer::Symptom];
    let layers = layers.map(Layer::as_str);
    for rule in INHIBITIONS {
        for condition in rule.source.iter().chain(rule.target) {
            match *condition {
                Is("layer", layer) => assert!(layers.contains(&layer), "{layer}"),
                AnyOf("layer", all) => {
                    assert!(all.iter().all(|layer| layers.contains(layer)), "{all:?}");
                    // The host itself is the node exporter's, and mutes all above it.
                    assert!(!all.contains(&"node"));
                }
                Is(..) | AnyOf(..) | Present(_) => {}
            }
        }
    }
    for alert in alerts().iter().filter(|alert| alert.layer == Some(Layer::Symptom)) {
        // What has neither a model nor a host cannot be muted by any cause.
        let labels = alert.expr.labels();
        assert!(labels.contains(&"model_name") || labels.contains(&"node"), "{}", alert.name);
    }
}
