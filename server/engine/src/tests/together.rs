//! The choices of one response come in together or not at all.

use super::*;

#[test]
fn choices_come_in_together_or_not_at_all() {
    let limits =
        Limits { max_queued_requests: 0, max_queued_tokens: Some(0), ttft_objective: PATIENCE };
    let admission = AdmissionController::new(limits, 1.0);
    let runner = Box::new(FakeRunner::new(FakeOptions::default()));
    let prepared = prepare(bounds(), runner, None).expect("good bounds");
    let (sender, _steps) = channel();
    let time = Box::new(Modelled(Time::ZERO));
    let (mut core, handle) =
        prepared.into_core(Arc::clone(&admission), Box::new(Steps(sender)), time);
    let family = |ids: &[u64]| -> (Vec<Submission>, Vec<Ears>) {
        ids.iter().map(|id| submission(&admission, Time::ZERO, *id, &[1, 2], 3)).unzip()
    };
    let waiting = || admission.snapshot(Time::ZERO).requests;
    let refused = |ids: &[u64]| {
        let (submissions, ears) = family(ids);
        let refused = handle.submit_all(submissions).expect_err("refused");
        assert_eq!(refused.submissions.len(), ids.len(), "all are given back");
        drop(refused.submissions);
        assert!(ears.iter().all(|ears| ears.end.try_recv().is_err()), "no sink hears of it");
        refused.error
    };

    assert_eq!(refused(&[0, 1, 2, 3, 4, 5, 6, 7, 8]), SubmitError::Busy { limit: 8 });
    assert_eq!(refused(&[0, 1, 0]), SubmitError::Duplicate);
    assert_eq!(waiting(), 0);
    let (submissions, ears) = family(&[0, 1, 2, 3, 4]);
    handle.submit_all(submissions).expect("the names are free again");
    // Three would still fit: four do not, and none of them comes in.
    assert_eq!(refused(&[5, 6, 7, 8]), SubmitError::Busy { limit: 8 });
    assert_eq!(refused(&[5, 4]), SubmitError::Duplicate);
    assert_eq!(waiting(), 5);
    while core.turn() == crate::step::Turn::Worked {}
    assert!(ears.iter().all(|ears| ears.end().1.outcome == Outcome::Length));
    let (submissions, ears) = family(&[5, 6, 7, 8]);
    handle.submit_all(submissions).expect("a step has made room");
    while core.turn() == crate::step::Turn::Worked {}
    assert!(ears.iter().all(|ears| ears.end().1.outcome == Outcome::Length));
}
