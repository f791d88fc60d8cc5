use std::collections::BTreeMap;
use std::time::Duration;

use fake_node::{Group, Tree};
use node_info::{Mode, Root};

use super::service;
use crate::mocks::bus as mock;
use crate::service::group::{GroupFacts, Groups, Usage};
use crate::service::unit::{Bus, UnitFacts};
use crate::slot::{CollectError, CollectorName, Now, Slot};

const GIB: u64 = 1 << 30;

/// A node with the group of `a`: a script, and a server that it started bound to node 0.
fn node() -> Tree {
    let tree = Tree::two_socket();
    let group = Group {
        nodes: vec![(0, 20 * GIB, 3 * GIB), (1, GIB, 0)],
        max: Some(64 * GIB),
        oom_kills: 2,
        processes: vec![40, 41, 42],
        ..Group::default()
    };
    tree.set_group("/system.slice/a.service", &group);
    tree.set_process(40, 0, 0, "0-1", "default");
    tree.set_process(41, 5 * GIB, 0, "0-1", "bind:0");
    tree.set_process(42, 6 * GIB, 0, "0-1", "bind:0");
    tree
}

fn groups(tree: &Tree, services: &[&str], units: Option<UnitFacts>) -> Groups {
    let slot = Slot::new(CollectorName::Systemd, Duration::from_secs(5));
    if let Some(units) = units {
        slot.begin(Now::read());
        slot.finish(Now::read(), Ok(units));
    }
    let services = services.iter().map(|text| service(text)).collect();
    Groups { root: Root::at(tree.path()), services, units: slot, kills: BTreeMap::new() }
}

fn collect(groups: &mut Groups) -> Result<GroupFacts, CollectError> {
    groups.collect(Now::read())
}

/// Units as a bus would show them.
fn units(pid: u32, group: &'static str) -> UnitFacts {
    let folder = super::Folder::new();
    let bus = mock::Bus::start(folder.0.join("bus"));
    bus.set("a.service", mock::Unit::running(pid, group));
    let asked = [("a".to_owned(), "a.service".to_owned())];
    super::run(async { Bus::at(bus.address()).collect(&asked).await }).expect("units")
}

#[test]
fn a_unit_leads_to_its_group_and_its_processes() {
    let tree = node();
    let units = units(40, "/system.slice/a.service");
    let facts = collect(&mut groups(&tree, &["a,unit=a.service"], Some(units))).expect("facts");
    let usage = &facts.0["a"];
    let group = usage.group.as_ref().expect("a group");
    assert_eq!(group.current, Some(24 * GIB));
    assert_eq!(group.events.expect("events").oom_kill, 2);
    assert_eq!(usage.locked, Some(11 * GIB));
    // The main process is a script without a policy; the server has one.
    assert_eq!(usage.policy.as_ref().map(|policy| policy.mode), Some(Mode::Bind));
    assert_eq!(usage.bound_to(), Some(0));
    assert_eq!(usage.problems, []);
}

#[test]
fn a_group_may_be_named_without_a_unit() {
    let tree = node();
    let named = ["a,cgroup=system.slice/a.service", "b,url=http://127.0.0.1:1/"];
    let facts = collect(&mut groups(&tree, &named, None)).expect("facts");
    assert_eq!(facts.0.keys().collect::<Vec<_>>(), ["a"]);
    assert_eq!(facts.0["a"].bound_to(), Some(0));
    // One that does not run has no memory, and is no failure.
    tree.remove("sys/fs/cgroup/system.slice/a.service");
    assert_eq!(collect(&mut groups(&tree, &named, None)).expect("facts").0.len(), 0);
}

#[test]
fn a_unit_that_does_not_run_or_is_not_known_has_no_memory() {
    let tree = node();
    let facts = collect(&mut groups(&tree, &["a,unit=a.service"], None)).expect("facts");
    assert!(facts.0.is_empty());
    let facts = collect(&mut groups(&tree, &["a,unit=a.service"], Some(units(0, ""))));
    let nothing = Usage { oom_kills: Some(0), ..Usage::default() };
    assert_eq!(facts.expect("facts").0, BTreeMap::from([("a".to_owned(), nothing)]));
}

#[test]
fn a_bad_file_costs_its_value_and_is_told() {
    let tree = node();
    tree.write("sys/fs/cgroup/system.slice/a.service/memory.max", "lots\n");
    tree.write("proc/41/status", "nonsense\n");
    tree.remove("proc/42/status");
    let named = ["a,cgroup=system.slice/a.service"];
    let facts = collect(&mut groups(&tree, &named, None)).expect("facts");
    let usage = &facts.0["a"];
    assert_eq!(usage.group.as_ref().expect("a group").max, None);
    assert_eq!(usage.group.as_ref().expect("a group").current, Some(24 * GIB));
    assert_eq!(usage.locked, Some(0));
    let told: Vec<_> = facts.problems().map(ToString::to_string).collect();
    let told = told.join("\n");
    assert!(told.contains("memory.max") && told.contains("proc/41/status"), "{told}");
}

#[test]
fn a_group_that_cannot_be_read_is_told_though_others_can() {
    let tree = node();
    let named = ["a,cgroup=system.slice/a.service", "b,cgroup=bad"];
    let bad = tree.path().join("sys/fs/cgroup/bad");
    std::os::unix::fs::symlink("bad", bad).expect("a link to itself");
    let facts = collect(&mut groups(&tree, &named, None)).expect("facts of the other");
    assert_eq!(facts.0["a"].problems, []);
    let told: Vec<_> = facts.problems().map(ToString::to_string).collect();
    assert!(!told.is_empty() && told.iter().all(|told| told.contains("bad")), "{told:?}");
}

#[test]
fn policies_bind_to_one_node_or_to_none() {
    let tree = node();
    let named = ["a,cgroup=system.slice/a.service"];
    for (policy, bound) in [("bind:1", Some(1)), ("bind:0-1", None), ("prefer:0", None)] {
        for pid in 40..43 {
            tree.set_process(pid, 0, 0, "0-1", policy);
        }
        let facts = collect(&mut groups(&tree, &named, None)).expect("facts");
        assert_eq!(facts.0["a"].bound_to(), bound, "{policy}");
    }
}

#[test]
fn nodes_without_such_groups_are_not_supported() {
    let tree = fake_node::Shape { cgroup_v1: true, ..fake_node::Shape::small() }.build();
    let old = collect(&mut groups(&tree, &["a,cgroup=x"], None));
    assert!(matches!(old, Err(CollectError::Unsupported(_))), "{old:?}");
    let bare = collect(&mut groups(&node(), &["a,url=http://127.0.0.1:1/"], None));
    assert!(matches!(bare, Err(CollectError::Unsupported(_))), "{bare:?}");
}

#[test]
fn a_main_process_that_is_killed_is_counted_though_its_group_is_gone() {
    let tree = node();
    let folder = super::Folder::new();
    let bus = mock::Bus::start(folder.0.join("bus"));
    let running = mock::Unit::running(40, "/system.slice/a.service");
    let mut groups = groups(&tree, &["a,unit=a.service"], None);
    let slot = groups.units.clone();
    let mut kills = |unit: mock::Unit| {
        bus.set("a.service", unit);
        let asked = [("a".to_owned(), "a.service".to_owned())];
        let units = super::run(async { Bus::at(bus.address()).collect(&asked).await });
        slot.finish(Now::read(), units);
        let facts = collect(&mut groups).expect("facts");
        facts.0.get("a").and_then(|usage| usage.oom_kills)
    };
    assert_eq!(kills(running.clone()), Some(2));
    // The manager removes the group, and says why the start ended.
    let group = tree.read("sys/fs/cgroup/system.slice/a.service/memory.events");
    tree.remove("sys/fs/cgroup/system.slice/a.service");
    let killed = mock::Unit { result: "oom-kill", status: 9, ..mock::Unit::failed() };
    assert_eq!(kills(killed.clone()), Some(3));
    assert_eq!(kills(killed), Some(3));
    // The next one starts at 0.
    assert!(group.contains("oom_kill 2"), "{group}");
    tree.set_group("/system.slice/a.service", &Group::default());
    assert_eq!(kills(mock::Unit { invocation: 0xcd, ..running }), Some(3));
}
