mod cards;

use std::time::Duration;

use metric_catalog::labels::ServiceState;
use node_info::{
    Found, Mempolicy, Mode, Node, NodeMemory, Port, PortErrors, PortState, Pressure, Resource,
    Stall, Watermarks,
};

use super::*;
use crate::facts::Slots;
use crate::hostcache;
use crate::node::NumaFacts;
use crate::service::group::{GroupFacts, Usage};
use crate::service::probe::{Probe, ProbeFacts};
use crate::service::restarts::Restarts;
use crate::service::unit::{Unit, UnitFacts};
use crate::slot::{CollectError, ErrorKind};

const GIB: u64 = 1 << 30;
const SECOND: Duration = Duration::from_secs(1);

/// A node whose collectors say what a test tells them.
struct World {
    config: Config,
    slots: Slots,
    judge: Judge,
    now: Now,
}

impl World {
    /// Collectors that no test is about have nothing to say.
    fn new(services: &[&str]) -> Self {
        let services = services.iter().map(|text| text.parse().expect(text)).collect();
        let config = Config { services, ..Config::default() };
        let slots = Slots::new(&config);
        slots.silence_for_test();
        Self { config, slots, judge: Judge::default(), now: Now::read() }
    }

    fn pass(&mut self, seconds: u64) {
        self.now = self.now + SECOND * u32::try_from(seconds).expect("small");
    }

    fn judge(&mut self) -> Verdict {
        let facts = self.slots.view(self.now);
        let states = crate::service::states(&self.config.services, &facts);
        let headroom = facts.numa.facts.as_ref().map(|numa| numa.headroom(self.config.reserve));
        let joined = hostcache::page::of_facts(&states, &facts, &headroom.unwrap_or_default());
        let input = Input { config: &self.config, facts: &facts, states: &states, joined: &joined };
        self.judge.judge(&input)
    }

    /// The verdict, and what the check says of the scope.
    fn ask(&mut self, check: HealthCheck, scope: &str) -> (bool, Judged) {
        let verdict = self.judge();
        let found = verdict.checks.iter().find(|j| j.check == check && j.scope == scope);
        let found = found.unwrap_or_else(|| panic!("no {scope} in {:?}", verdict.checks));
        (verdict.healthy, found.clone())
    }

    fn says(&mut self, check: HealthCheck, scope: &str) -> Outcome {
        self.ask(check, scope).1.outcome
    }

    fn lacks(&mut self, check: HealthCheck) -> bool {
        self.judge().checks.iter().all(|judged| judged.check != check)
    }

    fn unit(&self, unit: Unit) {
        let units = [("a".to_owned(), Ok(unit))].into();
        self.slots.systemd.finish(self.now, Ok(UnitFacts { units, restarts: [].into() }));
    }

    fn probe(&self, failures: u32, since: Now, last_success: Option<Now>) {
        let failure = (failures > 0).then(|| "connection refused".to_owned());
        let status = (failures == 0).then_some(200);
        let probe =
            Probe { status, took: SECOND, failure, at: self.now, failures, last_success, since };
        self.slots.probe.finish(self.now, Ok(ProbeFacts([("a".to_owned(), probe)].into())));
    }

    fn usage(&self, usage: Usage) {
        self.slots.cgroup.finish(self.now, Ok(GroupFacts([("a".to_owned(), usage)].into())));
    }
}

fn unit(state: ServiceState) -> Unit {
    Unit {
        state,
        sub_state: String::new(),
        result: None,
        restarts: Some(0),
        main_pid: None,
        exit_status: None,
        started: None,
        group: None,
        invocation: None,
    }
}

fn fails(outcome: &Outcome, part: &str) -> bool {
    matches!(outcome, Outcome::Fail(why) if why.contains(part))
}

fn unknown(outcome: &Outcome, part: &str) -> bool {
    matches!(outcome, Outcome::Unknown(why) if why.contains(part))
}

#[test]
fn a_node_with_nothing_to_judge_is_fit() {
    let verdict = World::new(&[]).judge();
    assert!(verdict.healthy, "{verdict:?}");
    // No card is expected and none is there: that is known.
    let asked: Vec<_> = verdict.checks.iter().map(|judged| judged.check).collect();
    assert_eq!(asked, [HealthCheck::GpuPresent]);
}

#[test]
fn a_service_is_up_while_its_unit_is_active() {
    let mut world = World::new(&["a,unit=a.service"]);
    let states = [
        (ServiceState::Active, ""),
        (ServiceState::Activating, ""),
        (ServiceState::Deactivating, "stopping"),
        (ServiceState::Inactive, "inactive"),
        (ServiceState::Failed, "failed"),
        (ServiceState::Unknown, "not known"),
    ];
    for (state, why) in states {
        world.unit(unit(state));
        let (healthy, judged) = world.ask(HealthCheck::ServiceUp, "a");
        assert_eq!(healthy, why.is_empty(), "{state:?}");
        assert!(judged.outcome == Outcome::Pass || fails(&judged.outcome, why), "{judged:?}");
    }
    let result = Some("oom-kill".to_owned());
    world.unit(Unit { result, exit_status: Some(9), ..unit(ServiceState::Failed) });
    let outcome = world.says(HealthCheck::ServiceUp, "a");
    assert!(fails(&outcome, "a.service is failed, ended by oom-kill (9)"), "{outcome:?}");
    let waits = Unit { sub_state: "auto-restart".into(), ..unit(ServiceState::Activating) };
    world.unit(waits);
    assert!(fails(&world.says(HealthCheck::ServiceUp, "a"), "between two starts"));
}

#[test]
fn a_probe_counts_after_three_tries_and_not_while_the_service_starts() {
    let mut world = World::new(&["a,url=http://127.0.0.1:1/health,start-up=60s"]);
    let start = world.now;
    world.probe(9, start, None);
    assert_eq!(world.says(HealthCheck::ServiceUp, "a"), Outcome::Pass, "it is starting");
    world.pass(61);
    world.probe(9, start, None);
    assert!(fails(&world.says(HealthCheck::ServiceUp, "a"), "connection refused; 9 times"));
    for (failures, passes) in [(0, true), (1, true), (2, true), (3, false)] {
        world.probe(failures, start, Some(start));
        let (healthy, judged) = world.ask(HealthCheck::ServiceUp, "a");
        assert_eq!((healthy, judged.passes), (passes, passes), "{failures}");
    }
}

#[test]
fn a_start_is_bounded_with_a_probe_and_without() {
    for text in ["a,unit=a.service", "a,unit=a.service,url=http://127.0.0.1:1/health"] {
        let mut world = World::new(&[&format!("{text},start-up=60s")]);
        let began = world.now;
        let starts = Unit { started: Some(began.wall), ..unit(ServiceState::Activating) };
        for (seconds, passes) in [(0, true), (59, true), (2, false), (1_000, false)] {
            world.pass(seconds);
            world.unit(starts.clone());
            // It answered before it was started again.
            world.probe(9, began, Some(began));
            let (healthy, judged) = world.ask(HealthCheck::ServiceUp, "a");
            assert_eq!((healthy, judged.passes), (passes, passes), "{text}: {judged:?}");
            assert!(passes || fails(&judged.outcome, "still starting"), "{judged:?}");
        }
    }
}

#[test]
fn what_is_unknown_keeps_its_verdict_for_the_grace_period_and_then_fails() {
    let mut world = World::new(&["a,unit=a.service"]);
    world.unit(unit(ServiceState::Active));
    assert!(world.judge().healthy);
    let error = CollectError::new(ErrorKind::Timeout, "the bus does not answer");
    world.slots.systemd.finish(world.now, Err(error.clone()));
    let (healthy, judged) = world.ask(HealthCheck::ServiceUp, "a");
    assert!(healthy && judged.passes && !judged.is_known());
    assert!(unknown(&judged.outcome, "the bus does not answer"), "{judged:?}");
    world.pass(60);
    assert!(world.judge().healthy);
    world.pass(1);
    let (healthy, judged) = world.ask(HealthCheck::ServiceUp, "a");
    assert!(!healthy && !judged.passes && !judged.is_known());
    assert_eq!(world.now.since(judged.since), SECOND * 61);
    world.unit(unit(ServiceState::Active));
    assert!(world.judge().healthy, "knowing helps at once");
    // What failed does not pass by being unknown.
    world.unit(unit(ServiceState::Failed));
    assert!(!world.judge().healthy);
    world.slots.systemd.finish(world.now, Err(error));
    let (healthy, judged) = world.ask(HealthCheck::ServiceUp, "a");
    assert!(!healthy && !judged.passes && !judged.is_known());
}

#[test]
fn restarts_within_ten_minutes_make_a_loop() {
    let mut world = World::new(&["a,unit=a.service"]);
    let mut restarts = Restarts::default();
    let mut tell = |world: &World, count| {
        restarts.told(u64::from(count), world.now);
        let unit = Unit { restarts: Some(count), ..unit(ServiceState::Active) };
        let units = [("a".to_owned(), Ok(unit))].into();
        let restarts = [("a".to_owned(), restarts.clone())].into();
        world.slots.systemd.finish(world.now, Ok(UnitFacts { units, restarts }));
    };
    tell(&world, 7);
    assert_eq!(world.says(HealthCheck::ServiceRestarts, "a"), Outcome::Pass);
    world.pass(30);
    tell(&world, 8);
    assert_eq!(world.says(HealthCheck::ServiceRestarts, "a"), Outcome::Pass);
    world.pass(30);
    tell(&world, 9);
    assert!(fails(&world.says(HealthCheck::ServiceRestarts, "a"), "2 restarts within 600s"));
    world.pass(601);
    tell(&world, 9);
    assert_eq!(world.says(HealthCheck::ServiceRestarts, "a"), Outcome::Pass);
}

#[test]
fn a_unit_that_nobody_restarts_is_not_judged_by_its_restarts() {
    let mut world = World::new(&["a,unit=a.socket"]);
    let error = CollectError::new(ErrorKind::Timeout, "the bus does not answer");
    world.slots.systemd.finish(world.now, Err(error));
    assert!(unknown(&world.says(HealthCheck::ServiceRestarts, "a"), "the bus does not answer"));
    world.pass(3_600);
    world.unit(Unit { restarts: None, ..unit(ServiceState::Active) });
    assert!(world.lacks(HealthCheck::ServiceRestarts));
    assert!(world.judge().healthy, "it is well for good");
}

fn cache(sizes: hostcache::Sizes) -> hostcache::CacheFacts {
    let cache = hostcache::Cache {
        source: hostcache::CacheSource::Metrics,
        pools: hostcache::Pools([(("all".to_owned(), None), sizes)].into()),
        ratio: None,
        unit_bytes: None,
        target: None,
        placed: None,
    };
    let found = hostcache::Found { cache: Some(cache), ..hostcache::Found::default() };
    hostcache::CacheFacts([("a".to_owned(), found)].into())
}

fn numa(free: u64) -> NumaFacts {
    let memory = NodeMemory { total: 100 * GIB, free, ..NodeMemory::default() };
    let node = Node {
        id: 1,
        memory: Some(memory),
        huge_pages: None,
        allocations: None,
        cpus: vec![0],
        distances: Vec::new(),
    };
    let marks = Watermarks { node: 1, min: 0, low: 0, high: 0, managed: 100 * GIB };
    NumaFacts { nodes: vec![node], watermarks: vec![marks], problems: Vec::new() }
}

#[test]
fn a_node_needs_room_for_what_its_services_have_yet_to_take() {
    let mut world = World::new(&["a,node=1"]);
    world.config.reserve = Some(0);
    world.slots.numa.finish(world.now, Ok(numa(50 * GIB)));
    assert_eq!(world.says(HealthCheck::NumaHeadroom, "1"), Outcome::Pass);
    for (planned, allocated, fits) in [(60, 20, true), (71, 20, false), (90, 90, true)] {
        let sizes =
            hostcache::Sizes { planned: Some(planned * GIB), allocated: Some(allocated * GIB) };
        world.slots.hostcache.finish(world.now, Ok(cache(sizes)));
        let (healthy, judged) = world.ask(HealthCheck::NumaHeadroom, "1");
        assert_eq!((healthy, judged.passes), (fits, fits), "{planned} {judged:?}");
        assert!(fits || fails(&judged.outcome, "54.8 GB of host cache, there is room for 53.7 GB"));
    }
    // Without anything to take, it is the reserve that must not be eaten.
    world.slots.hostcache.unsupported("none");
    let low = NumaFacts {
        watermarks: vec![Watermarks { node: 1, min: 0, low: 0, high: 3 * GIB, managed: 0 }],
        ..numa(0)
    };
    world.slots.numa.finish(world.now, Ok(low));
    assert!(fails(&world.says(HealthCheck::NumaHeadroom, "1"), "3.2 GB of the reserve of 0.0"));
    // A collector that hangs: the node it knew stays, unknown.
    world.pass(10);
    let (_, judged) = world.ask(HealthCheck::NumaHeadroom, "1");
    assert!(unknown(&judged.outcome, "the last is 10s old") && !judged.passes, "{judged:?}");
}

/// A node of so much memory, in GiB, with CPUs or without.
fn sized(total: u64, free: u64, has_cpus: bool) -> NumaFacts {
    let mut facts = numa(free * GIB);
    let node = &mut facts.nodes[0];
    node.memory =
        Some(NodeMemory { total: total * GIB, free: free * GIB, ..NodeMemory::default() });
    node.cpus = if has_cpus { vec![0] } else { Vec::new() };
    facts
}

#[test]
fn what_of_the_reserve_may_be_gone_is_half_of_the_one_in_force() {
    let mut world = World::new(&[]);
    let fits = |world: &mut World, total, free, reserve: Option<u64>| {
        world.config.reserve = reserve.map(|reserve| reserve * GIB);
        world.slots.numa.finish(world.now, Ok(sized(total, free, true)));
        let (healthy, judged) = world.ask(HealthCheck::NumaHeadroom, "1");
        assert_eq!(healthy, judged.passes);
        healthy
    };
    // Small nodes: an eighth is kept, and half of it may be gone.
    assert!(fits(&mut world, 8, 3, None));
    assert!(fits(&mut world, 16, 2, None));
    assert!(fits(&mut world, 16, 1, None));
    assert!(!fits(&mut world, 16, 0, None));
    // Between: 8 GiB are more than a twentieth, and not gone before half of them are.
    assert!(fits(&mut world, 100, 5, None));
    assert!(!fits(&mut world, 100, 3, None));
    // Large ones: a twentieth, of which 2.5 % of the node are half.
    assert!(fits(&mut world, 400, 11, None));
    assert!(!fits(&mut world, 400, 9, None));
    // What the operator says.
    assert!(fits(&mut world, 100, 3, Some(4)));
    assert!(!fits(&mut world, 100, 9, Some(20)));
}

#[test]
fn nodes_without_cpus_are_not_judged_by_their_memory() {
    let mut world = World::new(&[]);
    world.slots.numa.finish(world.now, Ok(sized(96, 0, false)));
    assert!(world.lacks(HealthCheck::NumaHeadroom));
    // Unless the list could not be read.
    let problem = node_info::Problem {
        path: "/sys/devices/system/node/node1/cpulist".into(),
        kind: node_info::FactKind::Permission,
        reason: "denied".to_owned(),
    };
    let problems = vec![problem];
    world.slots.numa.finish(world.now, Ok(NumaFacts { problems, ..sized(96, 0, false) }));
    assert!(fails(&world.says(HealthCheck::NumaHeadroom, "1"), "are gone"));
}

#[test]
fn a_service_is_bound_to_the_node_it_is_planned_for() {
    let mut world = World::new(&["a,node=1"]);
    let policy =
        |mode, nodes: Option<&[u32]>| Mempolicy { mode, nodes: nodes.map(<[u32]>::to_vec) };
    assert!(unknown(&world.says(HealthCheck::NumaPolicy, "a"), "no process"));
    for (policy, why) in [
        (policy(Mode::Bind, Some(&[1])), ""),
        (policy(Mode::Prefer, Some(&[1])), ""),
        (policy(Mode::Bind, Some(&[0])), "bind [0], it is planned for 1"),
        (policy(Mode::Default, None), "policy is default, it is planned for 1"),
        (policy(Mode::Interleave, Some(&[0, 1])), "interleave [0, 1]"),
    ] {
        world.usage(Usage { policy: Some(policy), ..Usage::default() });
        let (healthy, judged) = world.ask(HealthCheck::NumaPolicy, "a");
        assert!(healthy, "it is a warning");
        assert_eq!(judged.outcome == Outcome::Pass, why.is_empty(), "{judged:?}");
        assert!(why.is_empty() || fails(&judged.outcome, why), "{judged:?}");
    }
    let problems = vec![CollectError::new(ErrorKind::Permission, "numa_maps: denied")];
    world.usage(Usage { problems, ..Usage::default() });
    assert!(unknown(&world.says(HealthCheck::NumaPolicy, "a"), "permission: numa_maps"));
    let hidden_policy = Some("numa_maps of 41: not permitted".to_owned());
    world.usage(Usage { hidden_policy, ..Usage::default() });
    assert!(unknown(&world.says(HealthCheck::NumaPolicy, "a"), "numa_maps of 41: not permitted"));
}

#[test]
fn waiting_for_memory_and_being_killed_for_it_count() {
    let mut world = World::new(&["a,cgroup=x"]);
    let pressure = |world: &World, share| {
        let stall = Stall { total: SECOND, average: [0.0, share, 0.0] };
        let memory = Pressure { resource: Resource::Memory, waiting: None, stalled: Some(stall) };
        let found = Found { entries: vec![memory], problems: Vec::new() };
        world.slots.pressure.finish(world.now, Ok(found));
    };
    pressure(&world, 0.01);
    assert_eq!(world.says(HealthCheck::MemoryPressure, NODE), Outcome::Pass);
    pressure(&world, 0.02);
    assert!(fails(&world.says(HealthCheck::MemoryPressure, NODE), "2.0 % of the last minute"));
    let killed = |world: &World, oom_kill| {
        world.usage(Usage { oom_kills: Some(oom_kill), ..Usage::default() });
    };
    killed(&world, 3);
    assert_eq!(world.says(HealthCheck::MemoryPressure, "a"), Outcome::Pass);
    killed(&world, 4);
    assert!(fails(&world.says(HealthCheck::MemoryPressure, "a"), "killed"));
    world.pass(601);
    killed(&world, 4);
    assert_eq!(world.says(HealthCheck::MemoryPressure, "a"), Outcome::Pass);
}

#[test]
fn links_that_are_needed_are_critical_and_others_are_when_they_were_up() {
    let mut world = World::new(&[]);
    world.config.rdma_required = vec!["mlx5_0:1".parse().expect("a port")];
    let port = |device: &str, state, rate: f64, link_downed| Port {
        device: device.to_owned(),
        port: 1,
        numa_node: None,
        state,
        rate: rate * 1e9 / 8.0,
        transmitted: None,
        received: None,
        errors: PortErrors { link_downed: Some(link_downed), ..PortErrors::default() },
    };
    let tell = |world: &World, entries: Vec<Port>| {
        world.slots.rdma.finish(world.now, Ok(Found { entries, problems: Vec::new() }));
    };
    use PortState::{Active, Down};
    tell(&world, vec![port("mlx5_0", Active, 400.0, 0), port("mlx5_1", Down, 10.0, 0)]);
    let verdict = world.judge();
    assert!(verdict.healthy && verdict.checks.iter().all(|judged| judged.passes));
    let (_, other) = world.ask(HealthCheck::RdmaLink, "mlx5_1/1");
    assert_eq!(other.severity, CheckSeverity::Warning);
    tell(&world, vec![port("mlx5_0", Down, 400.0, 0), port("mlx5_1", Active, 10.0, 0)]);
    let (healthy, judged) = world.ask(HealthCheck::RdmaLink, "mlx5_0/1");
    assert!(!healthy && fails(&judged.outcome, "the port is down"), "{judged:?}");
    tell(&world, vec![port("mlx5_0", Active, 100.0, 0), port("mlx5_1", Down, 10.0, 0)]);
    assert!(fails(&world.says(HealthCheck::RdmaLink, "mlx5_0/1"), "100 Gb/s, it has run at 400"));
    assert!(fails(&world.says(HealthCheck::RdmaLink, "mlx5_1/1"), "down"), "it was up before");
    tell(&world, vec![port("mlx5_0", Active, 400.0, 1)]);
    assert!(fails(&world.says(HealthCheck::RdmaLink, "mlx5_0/1"), "went down within"));
    tell(&world, vec![]);
    assert!(fails(&world.says(HealthCheck::RdmaLink, "mlx5_0/1"), "no such port"));
    world.slots.rdma.unsupported("no such devices");
    assert!(fails(&world.says(HealthCheck::RdmaLink, "mlx5_0/1"), "no such port"));
}

#[test]
fn a_collector_is_fresh_unless_it_fails_hangs_or_is_late() {
    let mut world = World::new(&[]);
    let slot = crate::slot::Slot::clone(&world.slots.numa);
    slot.finish(world.now, Ok(numa(50 * GIB)));
    assert_eq!(world.says(HealthCheck::CollectorFresh, "numa"), Outcome::Pass);
    slot.begin(world.now);
    world.pass(7);
    let outcome = world.says(HealthCheck::CollectorFresh, "numa");
    assert!(fails(&outcome, "the collection has hung for 7s"), "{outcome:?}");
    slot.finish(world.now, Err(CollectError::new(ErrorKind::Permission, "/sys/x")));
    assert!(fails(&world.says(HealthCheck::CollectorFresh, "numa"), "permission: /sys/x"));
    slot.unsupported("no NUMA");
    assert!(world.lacks(HealthCheck::CollectorFresh));
}

#[test]
fn the_report_says_what_does_not_pass_and_the_page_says_all() {
    let mut world = World::new(&["a,unit=a.service", "b,node=0"]);
    world.unit(unit(ServiceState::Failed));
    world.pass(5);
    let verdict = world.judge();
    let report: serde_json::Value =
        serde_json::from_str(&report::json(&verdict, world.now)).expect("JSON");
    assert_eq!(report["healthy"], false);
    let first = &report["checks"][0];
    assert_eq!((&first["check"], &first["scope"]), (&"service_up".into(), &"a".into()));
    assert_eq!((&first["state"], &first["severity"]), (&"fail".into(), &"critical".into()));
    assert_eq!(first["reason"], "a.service is failed");
    let states: Vec<_> = report["checks"].as_array().expect("a list").iter().collect();
    assert!(states.iter().any(|check| check["state"] == "unknown"), "{report}");
    let mut page = metric_catalog::page::Page::new();
    report::page(&verdict, &mut page);
    let text = page.render();
    assert!(text.contains("sightline_node_healthy 0"), "{text}");
    let series = "{check=\"service_up\",scope=\"a\",severity=\"critical\"}";
    assert!(text.contains(&format!("sightline_node_health_check{series} 0")), "{text}");
    assert!(text.contains(&format!("sightline_node_health_check_known{series} 1")), "{text}");
}
