use super::*;
use crate::build::{line, section, time_series};
use crate::ids::PanelsLock;
use crate::output;
use metric_catalog::def::Unit;
use metric_catalog::promql::raw;

fn ours() -> Vec<Board> {
    let sets = Target::ALL.iter().map(|&target| (target, output::source(target))).collect();
    output::render_all(sets, &mut PanelsLock::default()).expect("sound")
}

#[test]
fn every_metric_is_read_or_has_a_reason() {
    let report = of(&ours(), &[Target::Sightline]);
    assert!(report.is_complete(), "{}", report.to_text());
    assert!(report.declared > 100 && report.read > 80, "{}", report.to_text());
    let names: BTreeSet<&str> = ad_hoc::METRICS.iter().map(|entry| entry.name).collect();
    assert_eq!(names.len(), ad_hoc::METRICS.len(), "an entry twice");
    for ByHand { name, reason } in ad_hoc::METRICS {
        assert!(reason.len() > 20 && !reason.ends_with('.'), "{name}: {reason}");
        assert!(
            Target::ALL.iter().flat_map(|&target| declared(target)).any(|info| info.name == *name),
            "{name} is not declared"
        );
    }
}

#[test]
fn an_unread_metric_without_a_reason_is_told() {
    // Without boards only the rules read anything.
    let report = with(&[], &[Target::Sightline], &[]);
    assert!(!report.is_complete());
    assert!(report.unread.contains(&"sightline_kernel_info"), "{}", report.to_text());
    let reason = ByHand { name: "sightline_kernel_info", reason: "a reason of more than a word" };
    let report = with(&[], &[Target::Sightline], &[reason]);
    assert_eq!(report.by_hand, [reason]);
    assert!(!report.unread.contains(&"sightline_kernel_info"));
    // One that a rule reads needs no reason.
    let read = ByHand { name: "sightline_queue_requests", reason: "a reason of more than a word" };
    let report = with(&[], &[Target::Sightline], &[read]);
    assert_eq!(report.read_after_all, ["sightline_queue_requests"]);
    assert!(report.to_text().contains("note        sightline_queue_requests"));
}

#[cfg(feature = "lint")]
#[test]
fn a_series_that_nobody_declares_is_told() {
    let panel = time_series("bad").title("Bad").describe("Bad.").unit(Unit::Count);
    let panel = panel.query(raw("sum(sightline_nope) + up", &[], Unit::Count), "x");
    let mut boards = output::source(Target::Sightline);
    boards[0].sections = vec![section("bad", "Bad", vec![line(8, vec![panel.into()])])];
    let uid = boards[0].uid.clone();
    let boards = output::render(boards, &mut PanelsLock::default()).expect("sound");
    let report = of(&boards, &[Target::Sightline]);
    let undeclared =
        Undeclared { name: "sightline_nope".to_owned(), place: format!("panel {uid}/bad") };
    assert_eq!(report.undeclared, [undeclared]);
    assert!(!report.is_complete());
    assert!(report.to_json().contains("sightline_nope"));
}
