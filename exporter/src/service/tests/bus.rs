use std::time::{Duration, Instant, SystemTime};

use metric_catalog::labels::ServiceState;

use super::{Folder, run};
use crate::mocks::bus::{self, Mood};
use crate::service::unit::{Bus, DEADLINE, UnitFacts};
use crate::slot::{CollectError, ErrorKind, Now};

fn asked(names: &[&str]) -> Vec<(String, String)> {
    let unit = |name: &&str| ((*name).to_owned(), format!("{name}@0.service"));
    names.iter().map(unit).collect()
}

fn kind(result: &Result<UnitFacts, CollectError>) -> Option<ErrorKind> {
    match result {
        Err(CollectError::Failed { kind, .. }) => Some(*kind),
        Err(CollectError::Unsupported(_)) | Ok(_) => None,
    }
}

/// A bus with units `a` and `b`.
fn pair() -> (Folder, bus::Bus) {
    let folder = Folder::new();
    let bus = bus::Bus::start(folder.0.join("bus"));
    bus.set("a@0.service", bus::Unit::running(42, "/system.slice/a.service"));
    bus.set("b@0.service", bus::Unit { restarts: Some(2), ..bus::Unit::failed() });
    (folder, bus)
}

#[test]
fn units_are_read_with_all_that_matters() {
    let (_folder, mock) = pair();
    let facts = run(async {
        let mut bus = Bus::at(mock.address());
        let first = bus.collect(&asked(&["a", "b", "c"])).await.expect("units");
        mock.set("b@0.service", bus::Unit { restarts: Some(5), ..bus::Unit::failed() });
        let second = bus.collect(&asked(&["a", "b", "c"])).await.expect("units");
        assert_eq!(mock.connections(), 1, "one connection is enough");
        assert_eq!(first.restarts["b"].recent(Now::read()), 0);
        second
    });
    let a = facts.unit("a").expect("a unit");
    assert_eq!((a.state, a.sub_state.as_str()), (ServiceState::Active, "running"));
    assert_eq!((a.main_pid, a.restarts, a.exit_status), (Some(42), Some(0), Some(0)));
    assert_eq!(a.group.as_deref(), Some("/system.slice/a.service"));
    assert_eq!(a.invocation.as_deref(), Some("ab".repeat(16).as_str()));
    let since = a.started.expect("a time").duration_since(SystemTime::UNIX_EPOCH).expect("later");
    assert_eq!(since, Duration::from_micros(1_700_000_000_250_000));
    let b = facts.unit("b").expect("a unit");
    assert_eq!((b.state, b.result.as_deref()), (ServiceState::Failed, Some("exit-code")));
    assert_eq!((b.main_pid, &b.group, b.exit_status), (None, &None, Some(1)));
    assert_eq!(facts.restarts["b"].recent(Now::read()), 3);
    // One that does not exist: known to be unknown.
    let c = facts.unit("c").expect("an answer");
    assert_eq!((c.state, c.restarts, c.started), (ServiceState::Unknown, None, None));
}

#[test]
fn one_that_is_started_again_began_when_it_was() {
    let (_folder, mock) = pair();
    let running = bus::Unit::running(42, "/system.slice/a.service");
    let again =
        bus::Unit { active: "activating", sub: "start", left: 1_700_000_900_000_000, ..running };
    run(async {
        let mut bus = Bus::at(mock.address());
        let mut started = async |unit: bus::Unit| {
            mock.set("a@0.service", unit);
            let facts = bus.collect(&asked(&["a"])).await.expect("units");
            let started = facts.unit("a").expect("a unit").started.expect("a time");
            started.duration_since(SystemTime::UNIX_EPOCH).expect("later").as_micros()
        };
        assert_eq!(started(again.clone()).await, 1_700_000_900_000_000);
        let ready = bus::Unit { active: "active", entered: 1_700_001_000_000_000, ..again };
        assert_eq!(started(ready).await, 1_700_001_000_000_000);
    });
}

#[test]
fn one_unit_that_hangs_or_is_garbled_costs_itself_only() {
    let (_folder, mock) = pair();
    let hung = bus::Unit { hung: true, ..bus::Unit::failed() };
    mock.set("b@0.service", hung);
    mock.set("c@0.service", bus::Unit { garbled: true, ..bus::Unit::failed() });
    let begun = Instant::now();
    let facts = run(async { Bus::at(mock.address()).collect(&asked(&["a", "b", "c"])).await });
    let facts = facts.expect("one can be read");
    assert!(begun.elapsed() >= DEADLINE, "it was waited for");
    assert_eq!(facts.unit("a").map(|unit| unit.state), Some(ServiceState::Active));
    let error = |name: &str| facts.units[name].as_ref().expect_err("it failed").to_string();
    assert!(error("b").starts_with("timeout: b@0.service"), "{}", error("b"));
    assert!(error("c").starts_with("protocol: c@0.service"), "{}", error("c"));
}

#[test]
fn a_bus_that_hangs_is_given_up_and_asked_again() {
    let (_folder, mock) = pair();
    run(async {
        let mut bus = Bus::at(mock.address());
        let wanted = asked(&["a", "b"]);
        bus.collect(&wanted).await.expect("units");
        mock.mood(Mood::Hung);
        let begun = Instant::now();
        // Many units at once, on the open connection, then on a new one that gets no hello.
        let many = asked(&["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"]);
        assert_eq!(kind(&bus.collect(&many).await), Some(ErrorKind::Timeout));
        assert!(begun.elapsed() < DEADLINE * 5, "{:?}", begun.elapsed());
        assert_eq!(kind(&bus.collect(&wanted).await), Some(ErrorKind::Timeout));
        mock.mood(Mood::Well);
        let facts = bus.collect(&wanted).await.expect("it answers again");
        assert_eq!(facts.unit("a").and_then(|unit| unit.main_pid), Some(42));
        assert_eq!(mock.connections(), 3);
    });
}

#[test]
fn a_bus_that_restarts_is_found_again() {
    let (folder, mock) = pair();
    run(async {
        let mut bus = Bus::at(mock.address());
        let wanted = asked(&["a"]);
        bus.collect(&wanted).await.expect("units");
        mock.mood(Mood::Closes);
        let closed = bus.collect(&wanted).await;
        assert_eq!(kind(&closed), Some(ErrorKind::Gone), "{closed:?}");
        drop(mock);
        let none = bus.collect(&wanted).await;
        assert_eq!(kind(&none), Some(ErrorKind::Gone), "there was one: {none:?}");
        let again = bus::Bus::start(folder.0.join("bus"));
        again.set("a@0.service", bus::Unit::running(43, "/a"));
        let facts = bus.collect(&wanted).await.expect("units");
        assert_eq!(facts.unit("a").and_then(|unit| unit.main_pid), Some(43));
    });
}

#[test]
fn what_the_bus_says_has_a_closed_name() {
    let (_folder, mock) = pair();
    run(async {
        let mut bus = Bus::at(mock.address());
        for (name, expected) in [
            ("org.freedesktop.DBus.Error.ServiceUnknown", ErrorKind::Missing),
            ("org.freedesktop.DBus.Error.NameHasNoOwner", ErrorKind::Missing),
            ("org.freedesktop.DBus.Error.AccessDenied", ErrorKind::Permission),
            ("org.freedesktop.DBus.Error.NoReply", ErrorKind::Timeout),
            ("org.freedesktop.DBus.Error.Disconnected", ErrorKind::Gone),
            ("org.freedesktop.DBus.Error.Failed", ErrorKind::Protocol),
            ("org.example.Unheard", ErrorKind::Protocol),
        ] {
            mock.mood(Mood::Fails(name));
            assert_eq!(kind(&bus.collect(&asked(&["a"])).await), Some(expected), "{name}");
        }
    });
}

#[test]
fn without_units_or_a_bus_there_is_nothing_to_collect() {
    let folder = Folder::new();
    let address = format!("unix:path={}", folder.0.join("none").display());
    run(async {
        for units in [asked(&[]), asked(&["a"])] {
            let result = Bus::at(address.clone()).collect(&units).await;
            assert!(matches!(result, Err(CollectError::Unsupported(_))), "{result:?}");
        }
    });
}
