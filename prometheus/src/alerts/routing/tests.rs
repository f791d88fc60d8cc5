//! Which alerts mute which; what the stories page is tested beside their scenarios.

use std::path::PathBuf;

use super::*;
use crate::alerts::{Layer, alerts};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
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
    // A card that told why it went is left out of `GpuMissing`, so that another one of the same
    // host is not hidden by it.
    let gone = alert("GpuMissing", "node", true, &here[..2]);
    assert_eq!(names(&[chain[0].clone(), gone]), ["GpuXidCritical", "GpuMissing"]);
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
