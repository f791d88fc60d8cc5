use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn slot() -> Slot<u32> {
    Slot::new(CollectorName::Numa, SECOND)
}

fn failed() -> CollectError {
    CollectError::new(ErrorKind::Missing, "/sys: gone")
}

#[test]
fn an_empty_slot_is_supported_and_knows_nothing() {
    let view = slot().view(Now::read());
    assert_eq!((view.facts, view.status.last_success, view.status.age), (None, None, None));
    assert!(view.status.is_supported() && !view.status.success && !view.status.is_fresh());
    assert_eq!(view.status.stuck, Duration::ZERO);
}

#[test]
fn facts_are_shown_for_three_intervals_and_kept_for_counters() {
    let (slot, start) = (slot(), Now::read());
    slot.begin(start);
    slot.finish(start + SECOND / 4, Ok(7));
    let got = start + SECOND / 4;
    let view = slot.view(got + SECOND * 3);
    assert_eq!(view.facts.as_deref(), Some(&7));
    assert_eq!(view.status.last_duration, SECOND / 4);
    assert_eq!(view.status.last_success, Some(got.wall));
    let view = slot.view(got + SECOND * 3 + SECOND / 100);
    assert_eq!((view.facts.as_deref(), view.last_good.as_deref()), (None, Some(&7)));
    assert!(view.status.success, "the last collection that ended did work");
}

#[test]
fn a_failure_hides_facts_at_once_and_is_counted_by_name() {
    let (slot, start) = (slot(), Now::read());
    slot.finish(start, Ok(7));
    slot.finish(start, Err(failed()));
    slot.finish(start, Err(failed()));
    let view = slot.view(start);
    assert_eq!((view.facts.as_deref(), view.last_good.as_deref()), (None, Some(&7)));
    assert_eq!(view.status.errors[ErrorKind::Missing.index()], 2);
    assert_eq!(view.status.errors.iter().sum::<u64>(), 2);
    assert_eq!(view.status.error, Some(failed()));
    slot.finish(start, Ok(8));
    let view = slot.view(start);
    assert_eq!((view.facts.as_deref(), view.status.error), (Some(&8), None));
}

#[test]
fn facts_of_a_part_are_shown_and_the_rest_counts_as_failed() {
    let (slot, start) = (slot(), Now::read());
    slot.begin(start);
    slot.incomplete(failed());
    slot.incomplete(CollectError::new(ErrorKind::Malformed, "another"));
    slot.finish(start, Ok(7));
    let view = slot.view(start);
    assert_eq!((view.facts.as_deref(), view.status.success), (Some(&7), false));
    assert_eq!(view.status.error, Some(failed()));
    assert_eq!(view.status.errors.iter().sum::<u64>(), 2);
    slot.finish(start, Ok(8));
    let view = slot.view(start);
    assert_eq!((view.facts.as_deref(), view.status.success), (Some(&8), true));
    assert_eq!(view.status.error, None);
}

#[test]
fn what_a_node_lacks_is_no_failure_and_may_appear() {
    let (slot, start) = (slot(), Now::read());
    slot.finish(start, Err(CollectError::unsupported("no PSI")));
    let status = slot.view(start).status;
    assert_eq!(status.unsupported.as_deref(), Some("no PSI"));
    assert_eq!((status.error, status.errors.iter().sum::<u64>()), (None, 0));
    slot.finish(start, Ok(1));
    assert!(slot.view(start).status.is_supported());
    slot.unsupported("switched off");
    assert!(!slot.view(start).status.is_supported());
}

#[test]
fn stuck_grows_while_a_collection_runs_longer_than_an_interval() {
    let (slot, start) = (slot(), Now::read());
    slot.begin(start);
    assert_eq!(slot.view(start + SECOND).status.stuck, Duration::ZERO);
    assert_eq!(slot.view(start + SECOND * 9).status.stuck, SECOND * 9);
    slot.finish(start + SECOND * 9, Ok(1));
    assert_eq!(slot.view(start + SECOND * 9).status.stuck, Duration::ZERO);
}

#[test]
fn a_part_that_hangs_hides_nothing() {
    let (slot, start) = (slot(), Now::read());
    slot.hung_since(Some(start));
    slot.count_error(ErrorKind::Gone);
    slot.finish(start + SECOND * 9, Ok(1));
    let view = slot.view(start + SECOND * 9);
    assert_eq!((view.facts.as_deref(), view.status.stuck), (Some(&1), SECOND * 9));
    assert_eq!(view.status.errors[ErrorKind::Gone.index()], 1);
    slot.hung_since(None);
    assert_eq!(slot.view(start + SECOND * 9).status.stuck, Duration::ZERO);
}

#[test]
fn errors_of_the_system_get_their_closed_name() {
    use std::io::{Error, ErrorKind as Io};
    for (io, kind) in [
        (Io::NotFound, ErrorKind::Missing),
        (Io::PermissionDenied, ErrorKind::Permission),
        (Io::TimedOut, ErrorKind::Timeout),
        (Io::InvalidData, ErrorKind::Malformed),
        (Io::BrokenPipe, ErrorKind::Gone),
    ] {
        let error = CollectError::io("/x", &Error::from(io));
        assert!(matches!(&error, CollectError::Failed { kind: k, .. } if *k == kind), "{error}");
        assert!(error.to_string().contains("/x"), "{error}");
    }
}
