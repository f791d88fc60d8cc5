use super::*;
use crate::ids::PanelsLock;
use crate::ir::Kind;
use crate::output::render_all;
use metric_catalog::engines::signal::Signal;
use metric_catalog::engines::signals::{self, Status};
use metric_catalog::target::Target;
use std::collections::BTreeSet;

#[test]
fn signals_that_are_present_have_queries_and_absent_ones_a_gap() {
    for engine in Engine::ALL {
        for signal in Signal::ALL {
            let status = signals::of(*engine).answered(*signal).status;
            match answer(*engine, *signal) {
                Answer::Gap { gap, close } => {
                    assert_eq!(status, Status::Absent, "{engine} {signal}");
                    assert!(gap.ends_with('.') && close.ends_with('.'), "{engine} {signal}");
                }
                Answer::Queries { queries, .. } => {
                    assert_ne!(status, Status::Absent, "{engine} {signal}");
                    assert!(!queries.is_empty(), "{engine} {signal}");
                }
            }
            let unanswered = answers::queries(*engine, *signal).is_empty();
            assert_eq!(unanswered, status == Status::Absent, "{engine} {signal}");
        }
    }
}

/// In each version that answers a signal, a family that its queries read is there.
#[test]
fn versions_that_answer_have_what_is_asked_for() {
    for engine in Engine::ALL {
        let facts = signals::of(*engine);
        for signal in Signal::ALL {
            let Answer::Queries { queries, .. } = answer(*engine, *signal) else { continue };
            for version in &facts.versions {
                let at = facts.answered(*signal).at(&version.version).status;
                let there = |name: &String| {
                    let family = facts.family(name).expect("constants are in the vocabulary");
                    facts.has(family, &version.version)
                };
                let mut first = queries[0].0.series();
                first.retain(|name| name != "up");
                let any = first.iter().any(there);
                assert!(any || at == Status::Absent, "{engine} {} {signal}", version.version);
            }
        }
    }
}

#[test]
fn boards_of_all_engines_have_the_same_panels_in_the_same_order() {
    let shape = |engine: &Engine| -> Vec<(String, String, String)> {
        let boards = boards(*engine).into_iter().flat_map(|board| {
            let uid = board.uid.replace(engine.as_str(), "");
            let panels = board
                .panels()
                .map(|(section, panel)| (uid.clone(), section.slug.clone(), panel.slug.clone()));
            panels.collect::<Vec<_>>()
        });
        boards.collect()
    };
    assert_eq!(shape(&Engine::Sglang), shape(&Engine::Vllm));
}

#[test]
fn every_signal_is_on_a_board_and_gaps_are_texts() {
    for engine in Engine::ALL {
        let boards = boards(*engine);
        let mut gaps = BTreeSet::new();
        let mut queries = BTreeSet::new();
        for panel in boards.iter().flat_map(|board| board.panels().map(|(_, panel)| panel)) {
            if let Kind::Text(text) = &panel.kind {
                gaps.insert(text.clone());
            }
            queries.extend(panel.queries.iter().map(|query| query.expr.clone()));
        }
        let scope = crate::variables::scope(subject::scope(*engine));
        for signal in Signal::ALL {
            let shown = match answer(*engine, *signal) {
                Answer::Gap { gap, close } => {
                    gaps.iter().any(|text| text.contains(gap) && text.contains(close))
                }
                Answer::Queries { queries: wanted, .. } => wanted.iter().any(|(expr, _)| {
                    queries.iter().any(|query| query.contains(&expr.render(&scope)))
                }),
            };
            assert!(shown, "{engine} {signal}");
        }
    }
}

#[test]
fn lints_are_clean() {
    let targets: Vec<Target> = Engine::ALL.iter().map(|engine| Target::Engine(*engine)).collect();
    let sets = Target::ALL.iter().map(|target| (*target, crate::output::source(*target)));
    let boards = render_all(sets.collect(), &mut PanelsLock::default()).expect("places and ids");
    let report = crate::lint::run_for(&boards, &targets);
    assert!(report.findings.is_empty(), "{}", report.to_text());
    assert!(report.queries > 150, "{}", report.queries);
}
