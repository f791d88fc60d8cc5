use super::*;
use crate::alerts::{alerts, alerts_of};
use crate::target::Target;

const ENGINES: [Engine; 2] = [Engine::Sglang, Engine::Vllm];

fn names(engine: Engine) -> Vec<&'static str> {
    alerts_of(Target::Engine(engine)).iter().map(|alert| alert.name).collect()
}

/// Each of our alerts is in the rules of an engine, is about the host, or is a gap with a reason.
#[test]
fn each_of_our_alerts_is_portable_or_a_gap_with_a_reason() {
    for engine in ENGINES {
        let there = names(engine);
        for ours in alerts() {
            let standing = standing(engine, ours.name).expect("it is one of ours");
            let what = format!("{} of {engine}: {standing:?}", ours.name);
            let is_there = there.contains(&ours.name);
            match standing {
                Standing::Portable => assert!(is_there, "{what}"),
                // Some are the node exporter's half of an alert of ours.
                Standing::Partial(sees) => {
                    let by_host = sees.starts_with("by the node exporter");
                    assert!(is_there != by_host && sees.len() > 10, "{what}");
                }
                Standing::OfTheHost => assert!(!is_there, "{what}"),
                Standing::Gap(why) => assert!(!is_there && why.len() > 10, "{what}"),
            }
        }
        assert_eq!(standing(engine, "NoSuchAlert"), None);
        let (partial, gaps) = match engine {
            Engine::Sglang => (sglang::PARTIAL, sglang::GAPS),
            Engine::Vllm => (vllm::PARTIAL, vllm::GAPS),
        };
        for (name, _) in partial.iter().chain(gaps) {
            let is_ours = alerts().iter().any(|alert| alert.name == *name);
            assert!(is_ours, "{name} is none of ours");
        }
    }
}

/// What has the name of one of ours is as loud and as deep in the order of causes.
#[test]
fn what_has_our_name_is_as_loud() {
    for engine in ENGINES {
        for alert in alerts_of(Target::Engine(engine)) {
            let Some(ours) = alerts().into_iter().find(|ours| ours.name == alert.name) else {
                assert!(alert.name.starts_with("QueueTime") || alert.name == "HostPoolPinned");
                continue;
            };
            assert_eq!(
                (alert.severity, alert.layer, alert.root_cause, alert.runbook),
                (ours.severity, ours.layer, ours.root_cause, ours.runbook),
                "{}",
                alert.name
            );
        }
    }
}

/// Every expression keeps the cluster and the process, or the model where it is about that.
#[test]
fn expressions_keep_cluster_and_instance_or_model() {
    for engine in ENGINES {
        for alert in alerts_of(Target::Engine(engine)) {
            let labels = alert.expr.labels();
            let of_something = ["instance", "model_name"].iter().any(|of| labels.contains(of));
            let tells = labels.contains(&"cluster") && of_something;
            assert!(tells || alert.name == "Watchdog", "{} has {labels:?}", alert.name);
            // What could not be muted by any cause would page beside it.
            let mutable = labels.contains(&"model_name") || labels.contains(&"node");
            assert!(mutable || alert.layer.is_none(), "{}", alert.name);
        }
    }
}

#[test]
fn panels_are_on_the_boards_of_the_engine() {
    for engine in ENGINES {
        for alert in alerts_of(Target::Engine(engine)) {
            let Some(Panel { board, .. }) = alert.panel else { continue };
            assert_eq!(Target::of_uid(board), Some(Target::Engine(engine)), "{}", alert.name);
        }
    }
}

/// Transfers that fail are counted on both sides.
#[test]
fn failures_of_sglang_are_never_added_up_over_roles() {
    let alerts = alerts_of(Target::Engine(Engine::Sglang));
    let alert = alerts.iter().find(|alert| alert.name == "KVTransferErrors");
    let alert = alert.expect("it is portable");
    assert!(alert.expr.labels().contains(&"engine_type"));
    let text = alert.expr.to_string();
    for by in text.split("sum by (").skip(1) {
        let (by, _) = by.split_once(')').expect("a list ends");
        assert!(by.contains("engine_type"), "{text}");
    }
}
