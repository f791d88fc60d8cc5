//! Values that are missing: of a card that does not have them, or because a call failed.

use fake_nvml::Node;
use nvml_worker::Wanted::{
    RecoveryAction, RetirePending, RowFailed, RowPending, UncorrectedErrors,
};
use nvml_worker::protocol::{self, FaultKind};

use super::Worker;

#[test]
fn a_value_that_is_missed_says_whether_its_call_failed() {
    let wanted = [UncorrectedErrors, RowFailed, RowPending, RetirePending, RecoveryAction];
    let node = Node::with_cards(3);
    // Everything fails at once, so that no problem of a wanted value may be cut off.
    for field in [142, 143, 144, 145, 29, 30, 31, 230] {
        node.set(&format!("0.field.{field}"), "UNKNOWN");
        // What a driver says of what is younger than it: it has no such value.
        node.set(&format!("1.field.{field}"), "INVALID_ARGUMENT");
    }
    for call in ["nvmlDeviceGetTotalEccErrors", "nvmlDeviceGetMigMode"] {
        node.fail(0, call, "TIMEOUT");
    }
    node.fail(1, "nvmlDeviceGetTotalEccErrors", "NOT_SUPPORTED");
    node.fail(2, "nvmlDeviceGetFieldValues", "NO_PERMISSION");
    let (mut worker, _) = Worker::open(&node);
    let why = |slow: &protocol::Slow| {
        wanted.map(|value| slow.problem(value).map(|problem| problem.fault.kind))
    };
    let slow = worker.slow(0);
    let driver = Some(FaultKind::Driver);
    let told = [Some(FaultKind::Timeout), driver, driver, driver, driver];
    assert_eq!(why(&slow), told, "{:?}", slow.problems);
    assert_eq!((slow.recovery_action, slow.ecc_volatile.uncorrected), (None, None));
    let slow = worker.slow(1);
    assert_eq!((slow.recovery_action, slow.problems.as_slice()), (None, &[][..]));
    let slow = worker.slow(2);
    let denied = Some(FaultKind::NoPermission);
    assert_eq!(why(&slow), [None, denied, denied, denied, denied], "{:?}", slow.problems);
}
