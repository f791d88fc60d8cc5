//! What the collectors' facts say together, and how it looks on the page.

use std::collections::BTreeMap;
use std::time::Duration;

use fake_node::{Group, Tree};
use metric_catalog::labels::ServiceState;
use metric_catalog::page::Page;
use node_info::Root;

use super::service;
use crate::config::{Config, Service};
use crate::facts::{Facts, Slots};
use crate::hostcache::{Cache, CacheFacts, Found, page as cache_page, start_log::StartLog};
use crate::mocks::sglang_log::Start;
use crate::service::group::GroupFacts;
use crate::service::probe::{Probe, ProbeFacts};
use crate::service::unit::{Unit, UnitFacts};
use crate::service::{State, page as service_page, states};
use crate::slot::{CollectError, ErrorKind, Now, Slot};

const SECOND: Duration = Duration::from_secs(1);
const GB: u64 = 1_000_000_000;

struct Rig {
    services: Vec<Service>,
    slots: Slots,
    now: Now,
}

impl Rig {
    fn new(services: &[&str]) -> Self {
        let slots = Slots::new(&Config::default());
        let services = services.iter().map(|text| service(text)).collect();
        Self { services, slots, now: Now::read() }
    }

    fn put<T>(&self, slot: &Slot<T>, facts: T) {
        slot.begin(self.now);
        slot.finish(self.now, Ok(facts));
    }

    fn unit(&self, name: &str, unit: Unit) {
        let units = BTreeMap::from([(name.to_owned(), Ok(unit))]);
        self.put(&self.slots.systemd, UnitFacts { units, restarts: BTreeMap::new() });
    }

    fn probe(&self, name: &str, probe: Probe) {
        self.put(&self.slots.probe, ProbeFacts(BTreeMap::from([(name.to_owned(), probe)])));
    }

    fn cache(&self, name: &str, cache: Option<Cache>) {
        let found = Found { cache, started: Some(1.7e9), ..Found::default() };
        self.put(&self.slots.hostcache, CacheFacts(BTreeMap::from([(name.to_owned(), found)])));
    }

    fn facts(&self) -> Facts {
        self.slots.view(self.now)
    }

    fn state<T>(&self, read: impl FnOnce(&State<'_>) -> T) -> T {
        read(&states(&self.services, &self.facts())[0])
    }

    /// The page with a headroom of so many GB on each node.
    fn page(&self, headroom: &[(u32, i64)]) -> String {
        let facts = self.facts();
        let states = states(&self.services, &facts);
        let headroom = headroom.iter().map(|(node, room)| (*node, room * GB as i64)).collect();
        let joined = cache_page::of_facts(&states, &facts, &headroom);
        let mut page = Page::new();
        service_page::service(&states, &facts, &mut page);
        cache_page::hostcache(&states, &joined, &mut page);
        page.render()
    }

    fn probed(&self, failure: Option<&str>, failures: u32, last_success: Option<Now>) -> Probe {
        Probe {
            status: failure.is_none().then_some(200),
            took: SECOND / 4,
            failure: failure.map(str::to_owned),
            at: self.now,
            failures,
            last_success,
            since: self.now,
        }
    }
}

fn running() -> Unit {
    Unit {
        state: ServiceState::Active,
        sub_state: "running".to_owned(),
        result: Some("success".to_owned()),
        restarts: Some(3),
        main_pid: Some(41),
        exit_status: Some(0),
        started: Some(std::time::SystemTime::UNIX_EPOCH + SECOND * 1_700_000_000),
        group: Some("/system.slice/a.service".to_owned()),
        invocation: None,
    }
}

fn value(page: &str, series: &str) -> Option<f64> {
    let line =
        page.lines().find_map(|line| line.strip_prefix("sightline_node_")?.strip_prefix(series))?;
    line.trim().parse().ok()
}

#[test]
fn a_unit_rules_and_all_states_are_there() {
    let rig = Rig::new(&["a,unit=a.service,url=http://127.0.0.1:1/"]);
    assert_eq!(rig.state(|state| state.state), ServiceState::Unknown);
    assert_eq!(value(&rig.page(&[]), r#"service_state{service="a",state="unknown"}"#), Some(1.0));
    rig.unit("a", running());
    rig.probe("a", rig.probed(Some("no whole answer"), 9, None));
    let page = rig.page(&[]);
    for state in ServiceState::ALL {
        let series = format!(r#"service_state{{service="a",state="{}"}}"#, state.as_str());
        let expected = f64::from(u8::from(*state == ServiceState::Active));
        assert_eq!(value(&page, &series), Some(expected), "{series}");
    }
    let of = |name: &str| value(&page, &format!(r#"{name}{{service="a"}}"#));
    assert_eq!(of("service_restarts_total"), Some(3.0));
    assert_eq!(of("service_start_timestamp_seconds"), Some(1.7e9));
    assert_eq!(of("service_probe_success"), Some(0.0));
    assert_eq!(of("service_probe_status_code"), Some(0.0));
    assert_eq!(of("service_probe_duration_seconds"), Some(0.25));
}

#[test]
fn gauges_go_with_their_facts_and_counters_stay() {
    let rig = Rig::new(&["a,unit=a.service"]);
    rig.unit("a", running());
    rig.slots.systemd.begin(rig.now);
    rig.slots.systemd.finish(rig.now, Err(CollectError::new(ErrorKind::Timeout, "x")));
    let page = rig.page(&[]);
    assert_eq!(value(&page, r#"service_state{service="a",state="unknown"}"#), Some(1.0));
    assert_eq!(value(&page, r#"service_restarts_total{service="a"}"#), Some(3.0));
    assert_eq!(value(&page, r#"service_start_timestamp_seconds{service="a"}"#), None);
}

#[test]
fn without_a_unit_the_health_url_tells() {
    let rig = Rig::new(&["a,url=http://127.0.0.1:1/,start-up=60s"]);
    let of = |probe| {
        rig.probe("a", probe);
        rig.state(|state| (state.state, state.is_running()))
    };
    assert_eq!(of(rig.probed(None, 0, Some(rig.now))), (ServiceState::Active, Some(true)));
    // It has never answered: it may be starting.
    assert_eq!(of(rig.probed(Some("x"), 9, None)), (ServiceState::Activating, None));
    let late =
        Rig { now: rig.now + SECOND * 61, ..Rig::new(&["a,url=http://127.0.0.1:1/,start-up=60s"]) };
    let old = Probe { since: rig.now, ..late.probed(Some("x"), 9, None) };
    late.probe("a", old.clone());
    assert_eq!(late.state(|state| state.state), ServiceState::Failed);
    // One that did answer is given a few tries.
    for (failures, expected) in [(1, ServiceState::Active), (3, ServiceState::Failed)] {
        late.probe("a", Probe { failures, last_success: Some(rig.now + SECOND), ..old.clone() });
        assert_eq!(late.state(|state| state.state), expected, "{failures}");
    }
}

#[test]
fn a_start_is_counted_from_when_the_unit_or_the_page_says() {
    // The unit became active a minute ago; probing began long before.
    let rig = Rig::new(&["a,unit=a.service,url=http://127.0.0.1:1/,start-up=90s"]);
    let rig = Rig { now: rig.now + SECOND * 1_000, ..rig };
    let began = rig.now.wall - SECOND * 60;
    rig.unit("a", Unit { started: Some(began), ..running() });
    let long_ago = Now::read();
    rig.probe("a", Probe { since: long_ago, ..rig.probed(Some("x"), 9, Some(long_ago)) });
    assert!(rig.state(|state| state.starting));
    rig.unit("a", Unit { started: Some(rig.now.wall - SECOND * 100), ..running() });
    assert!(!rig.state(|state| state.starting));
    // Without a unit, its page says when it began.
    let bare = Rig::new(&["a,metrics=http://127.0.0.1:1/metrics"]);
    bare.cache("a", None);
    let page = bare.page(&[]);
    assert_eq!(value(&page, r#"service_start_timestamp_seconds{service="a"}"#), Some(1.7e9));
}

/// The incident's node: prefill on node 0, its log, its group.
fn incident() -> (Rig, Start) {
    let rig = Rig::new(&["prefill,unit=a.service,target=150GB,node=0,log=/x.log"]);
    let start = Start::incident(4, 7);
    let mut log = StartLog::new();
    start.lines().iter().for_each(|line| log.line(line));
    rig.unit("prefill", running());
    rig.cache("prefill", log.cache());
    (rig, start)
}

#[test]
fn the_incident_on_the_page() {
    let (rig, start) = incident();
    assert_eq!(start.total(), 61_176_829_440);
    let page = rig.page(&[(0, 140), (1, 200)]);
    let of = |series: &str| value(&page, series).unwrap_or_else(|| panic!("{series}\n{page}"));
    let target = of(r#"hostcache_target_bytes{service="prefill",source="config"}"#);
    assert_eq!(target, 150e9);
    let swa = r#"{service="prefill",pool="swa",numa_node="0",source="log"}"#;
    assert_eq!(of(&format!("hostcache_planned_bytes{swa}")), 43.0 * 1670.0 * 149_760.0 * 4.0);
    assert_eq!(of(&format!("hostcache_allocated_bytes{swa}")), 43_017_062_400.0);
    let unit = of(r#"hicache_bytes_per_ratio{service="prefill"}"#);
    assert_eq!(unit, 30_588_414_720.0);
    // 2 x (61,176,829,440 + 140,000,000,000) / 61,176,829,440 = 6.5769...
    let largest = of(r#"hicache_ratio_max{service="prefill"}"#);
    assert!((largest - 6.576_896).abs() < 1e-6, "{largest}");
    // What was wanted is ratio 4.9, and fits.
    assert!((target / unit - 4.903_817).abs() < 1e-6);
    assert!(target / unit < largest);
}

#[test]
fn a_service_that_is_down_holds_nothing() {
    let (rig, start) = incident();
    rig.unit("prefill", Unit { state: ServiceState::Failed, ..running() });
    let page = rig.page(&[(0, 200)]);
    let pool = r#"{service="prefill",pool="swa",numa_node="0",source="log"}"#;
    assert_eq!(value(&page, &format!("hostcache_allocated_bytes{pool}")), Some(0.0));
    let planned = start.bytes("swa") as f64;
    assert_eq!(value(&page, &format!("hostcache_planned_bytes{pool}")), Some(planned));
    let facts = rig.facts();
    let states = states(&rig.services, &facts);
    let joined = cache_page::of_facts(&states, &facts, &BTreeMap::from([(0, 200 * GB as i64)]));
    assert_eq!(joined.nodes[&0].outstanding, start.total());
}

#[test]
fn a_log_of_a_service_that_nobody_sees_tells_nothing_of_what_is_held() {
    // No unit, and nobody answers: the log may be of one that ended long ago.
    let rig = Rig::new(&["a,url=http://127.0.0.1:1/,log=/x.log,node=0"]);
    let mut log = StartLog::new();
    Start::incident(4, 7).lines().iter().for_each(|line| log.line(line));
    let found = Found { cache: log.cache(), ..Found::default() };
    rig.put(&rig.slots.hostcache, CacheFacts(BTreeMap::from([("a".to_owned(), found.clone())])));
    rig.probe("a", rig.probed(Some("connection refused"), 9, None));
    let held = |page: &str| {
        assert!(page.contains("sightline_node_hostcache_planned_bytes"), "{page}");
        ["hostcache_allocated", "hicache_ratio_max"].map(|family| page.contains(family))
    };
    assert_eq!(held(&rig.page(&[(0, 140)])), [false, false]);
    // It answers, its page says when it started, or its group has processes.
    rig.probe("a", rig.probed(None, 0, Some(rig.now)));
    assert_eq!(held(&rig.page(&[(0, 140)])), [true, true]);
    rig.probe("a", rig.probed(Some("connection refused"), 9, None));
    let started = Found { started: Some(1.7e9), ..found.clone() };
    rig.put(&rig.slots.hostcache, CacheFacts(BTreeMap::from([("a".to_owned(), started)])));
    assert_eq!(held(&rig.page(&[(0, 140)])), [true, true]);
    rig.put(&rig.slots.hostcache, CacheFacts(BTreeMap::from([("a".to_owned(), found)])));
    assert_eq!(held(&rig.page(&[(0, 140)])), [false, false]);
    let group = node_info::Cgroup { processes: Some(vec![41]), ..node_info::Cgroup::default() };
    let usage = crate::service::group::Usage { group: Some(group), ..Default::default() };
    rig.put(&rig.slots.cgroup, GroupFacts(BTreeMap::from([("a".to_owned(), usage)])));
    assert_eq!(held(&rig.page(&[(0, 140)])), [true, true]);
}

#[test]
fn what_is_not_known_is_not_on_the_page() {
    let rig = Rig::new(&["a,unit=a.service,target=150GB"]);
    let page = rig.page(&[(0, 200)]);
    assert!(page.contains("hostcache_target_bytes"));
    for family in ["planned", "allocated", "resident", "ratio", "probe", "memory", "restarts"] {
        assert!(!page.contains(family), "{family} is on {page}");
    }
}

#[test]
fn memory_of_a_service_is_shown_by_node() {
    let (rig, start) = incident();
    let tree = Tree::two_socket();
    let group = Group {
        nodes: vec![(0, 2 * GB, 62 * GB), (1, GB, 0)],
        max: Some(200 * GB),
        oom_kills: 2,
        processes: vec![41],
        ..Group::default()
    };
    tree.set_group("/system.slice/a.service", &group);
    tree.set_process(41, 4096, 0, "0-1", "bind:0");
    let stat = "sys/fs/cgroup/system.slice/a.service/memory.numa_stat";
    let shared = format!("shmem N0={} N1={}", 60 * GB, 20 * GB);
    tree.write(stat, tree.read(stat).replace("shmem N0=0 N1=0", &shared));
    let mut groups = crate::service::group::Groups {
        root: Root::at(tree.path()),
        services: rig.services.clone(),
        units: rig.slots.systemd.clone(),
        kills: BTreeMap::new(),
    };
    let facts: GroupFacts = groups.collect(rig.now).expect("facts");
    rig.put(&rig.slots.cgroup, facts);
    let page = rig.page(&[(0, 140)]);
    let of = |series: &str| value(&page, series).unwrap_or_else(|| panic!("{series}\n{page}"));
    assert_eq!(of(r#"service_memory_current_bytes{service="prefill"}"#), 65e9);
    assert_eq!(of(r#"service_memory_max_bytes{service="prefill"}"#), 200e9);
    assert_eq!(of(r#"service_numa_resident_bytes{service="prefill",numa_node="0"}"#), 64e9);
    assert_eq!(of(r#"service_oom_kills_total{service="prefill"}"#), 2.0);
    assert_eq!(of(r#"service_locked_bytes{service="prefill"}"#), 4096.0);
    let policy = r#"service_mempolicy_info{service="prefill",policy="bind",nodes="0"}"#;
    assert_eq!(of(policy), 1.0);
    assert_eq!(of(r#"hostcache_resident_bytes{service="prefill",numa_node="0"}"#), 62e9);
    assert_eq!(of(r#"hostcache_resident_bytes{service="prefill",numa_node="1"}"#), 21e9);
    // 60 of the 80 GB of shared memory lie on node 0.
    assert_eq!(of(r#"hostcache_local_ratio{service="prefill"}"#), 0.75);
    assert!(start.total() < 80 * GB);
}

#[test]
fn the_node_of_a_service_is_configured_or_its_policy() {
    let tree = Tree::two_socket();
    let group = Group { processes: vec![41], ..Group::default() };
    tree.set_group("/a", &group);
    tree.set_process(41, 0, 0, "0-1", "bind:1");
    let node = |text: &str| {
        let rig = Rig::new(&[text]);
        let mut groups = crate::service::group::Groups {
            root: Root::at(tree.path()),
            services: rig.services.clone(),
            units: rig.slots.systemd.clone(),
            kills: BTreeMap::new(),
        };
        rig.put(&rig.slots.cgroup, groups.collect(rig.now).expect("facts"));
        rig.state(|state| state.node())
    };
    assert_eq!(node("a,cgroup=/a"), Some(1));
    assert_eq!(node("a,cgroup=/a,node=0"), Some(0));
}
