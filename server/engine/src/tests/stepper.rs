//! The engine that somebody else turns.

use super::*;
use crate::Turn;

struct Nobody;

impl Observer for Nobody {
    fn on_step(&mut self, _: &StepStats<'_>) {}
    fn on_request_end(&mut self, _: &RequestEnd) {}
}

#[test]
fn it_turns_when_it_is_told_to_and_ends_once() {
    let clock = Clock::start();
    let limits = Limits {
        max_queued_requests: 8,
        max_queued_tokens: None,
        ttft_objective: Duration::from_secs(30),
    };
    let admission = AdmissionController::new(limits, 1000.0);
    let runner = Box::new(FakeRunner::new(FakeOptions::default()));
    let prepared = prepare(bounds(), runner, None).expect("good bounds");
    assert!(prepared.page_bytes().is_some(), "also a fake one's pages can be sent");
    let (mut stepper, handle) =
        prepared.into_stepper(Arc::clone(&admission), Box::new(Nobody), Box::new(clock));
    let (asked, ears) = submission(&admission, clock.now(), 1, &[1, 2, 3], 4);
    handle.submit(asked).expect("accepted");
    let mut worked = 0;
    while stepper.turn() == Turn::Worked {
        worked += 1;
        assert!(!stepper.is_idle());
    }
    assert!(stepper.is_idle() && worked == 4, "{worked}");
    let (tokens, end) = ears.end();
    assert_eq!((tokens.len(), end.outcome), (4, Outcome::Length));
    handle.shutdown();
    assert_eq!([stepper.turn(), stepper.turn()], [Turn::Ended; 2]);
    assert_eq!(handle.snapshot().state, EngineState::Stopped);
}
