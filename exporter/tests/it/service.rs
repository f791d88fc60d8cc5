//! Services: a bus, health URLs, pages, logs and plans that work, fail, hang and change while the
//! program runs.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use fake_node::{Group, Tree};

use crate::harness::{Exporter, Folder, Page};
use crate::mock_bus::{Bus, Mood, Unit};
use crate::mock_http::{Behaviour, Server};
use crate::sglang_log::Start;

const PAGE: &str = include_str!("../data/server_page.txt");
const GIB: u64 = 1 << 30;
const UNIT: &str = "prefill.service";
const GROUP: &str = "/system.slice/prefill.service";

/// How long a scrape may take on a machine that does much else.
const SCRAPE_MAX: Duration = Duration::from_secs(1);

/// A node with a bus and one unit that runs, bound to node 0.
struct Node {
    tree: Tree,
    bus: Bus,
    _folder: Folder,
}

impl Node {
    fn new() -> Self {
        let folder = Folder::new();
        let bus = Bus::start(folder.path("bus"));
        bus.set(UNIT, Unit::running(41, GROUP));
        let tree = Tree::two_socket();
        let group = Group {
            nodes: vec![(0, 20 * GIB, 3 * GIB), (1, GIB, 0)],
            max: Some(512 * GIB),
            oom_kills: 2,
            processes: vec![41],
            ..Group::default()
        };
        tree.set_group(GROUP, &group);
        tree.set_process(41, 5 * GIB, 0, "0-1", "bind:0");
        Self { tree, bus, _folder: folder }
    }

    fn start(&self, services: &[String]) -> Exporter {
        self.start_with(services, &[], |command| command)
    }

    fn start_with(
        &self,
        services: &[String],
        more: &[&str],
        change: impl FnOnce(&mut Command) -> &mut Command,
    ) -> Exporter {
        let path = |path: &Path| path.display().to_string();
        let mut args = vec!["--no-nvml".to_owned(), "--no-kmsg".to_owned()];
        for (flag, folder) in [
            ("--path.procfs", self.tree.procfs()),
            ("--path.sysfs", self.tree.sysfs()),
            ("--path.cgroupfs", self.tree.cgroupfs()),
            ("--path.rootfs", self.tree.path().to_owned()),
        ] {
            args.extend([flag.to_owned(), path(&folder)]);
        }
        for timer in ["systemd", "probe", "cgroup", "hostcache", "numa", "page"] {
            args.extend(["--interval".to_owned(), format!("{timer}=100ms")]);
        }
        for service in services {
            args.extend(["--service".to_owned(), service.clone()]);
        }
        let args: Vec<&str> = args.iter().map(String::as_str).chain(more.iter().copied()).collect();
        let address = self.bus.address();
        Exporter::start_with(&args, |command| {
            change(command.env("DBUS_SYSTEM_BUS_ADDRESS", address))
        })
    }

    /// Writes a file of the host.
    fn file(&self, path: &str, text: &str) {
        self.tree.write(path.trim_start_matches('/'), text);
    }
}

fn value(page: &Page, family: &str, labels: &[(&str, &str)]) -> Option<f64> {
    page.value(&format!("sightline_node_{family}"), labels)
}

fn is_state(page: &Page, service: &str, state: &str) -> bool {
    value(page, "service_state", &[("service", service), ("state", state)]) == Some(1.0)
}

const PREFILL: (&str, &str) = ("service", "prefill");

#[test]
fn a_service_from_every_side() {
    let (node, health, start) = (Node::new(), Server::well("ok"), Start::incident(4, 31));
    node.file("/var/log/prefill.log", &start.text());
    let url = health.url("/health");
    let service = format!(
        "prefill,unit={UNIT},url={url},log=/var/log/prefill.log,target=150GB,node=0,start-up=5s"
    );
    let exporter = node.start(&[service]);
    let page = exporter.page_where("all of it is there", |page| {
        let has = |family: &str| value(page, family, &[PREFILL]).is_some();
        is_state(page, "prefill", "active")
            && has("hicache_ratio_max")
            && has("service_memory_current_bytes")
            && value(page, "service_probe_success", &[PREFILL]) == Some(1.0)
    });
    let of = |family: &str, labels: &[(&str, &str)]| {
        let labels = [&[PREFILL], labels].concat();
        value(&page, family, &labels).unwrap_or_else(|| panic!("{family}\n{}", page.text))
    };
    assert_eq!(of("service_start_timestamp_seconds", &[]), 1_700_000_000.25);
    assert_eq!(of("service_restarts_total", &[]), 0.0);
    assert_eq!(of("service_probe_status_code", &[]), 200.0);
    assert_eq!(of("service_memory_max_bytes", &[]), 512.0 * GIB as f64);
    assert_eq!(of("service_oom_kills_total", &[]), 2.0);
    assert_eq!(of("service_locked_bytes", &[]), 5.0 * GIB as f64);
    assert_eq!(of("service_numa_resident_bytes", &[("numa_node", "0")]), 23.0 * GIB as f64);
    assert_eq!(of("service_mempolicy_info", &[("policy", "bind"), ("nodes", "0")]), 1.0);
    assert_eq!(of("hostcache_target_bytes", &[("source", "config")]), 150e9);
    let pools = page.all("sightline_node_hostcache_allocated_bytes", &[PREFILL, ("source", "log")]);
    let held: f64 = pools.iter().map(|(_, bytes)| bytes).sum();
    assert_eq!((pools.len(), held), (7, 61_176_829_440.0));
    let unit = of("hicache_bytes_per_ratio", &[]);
    assert_eq!(unit, 30_588_414_720.0);
    // ratio x (allocated + headroom) / allocated, with the headroom of the same page.
    let headroom = value(&page, "numa_headroom_bytes", &[("numa_node", "0")]).expect("headroom");
    let largest = of("hicache_ratio_max", &[]);
    assert!((largest - 2.0 * (held + headroom) / held).abs() < 1e-9, "{largest}");
}

#[test]
fn what_a_unit_does_is_followed() {
    let node = Node::new();
    let exporter = node.start(&[format!("prefill,unit={UNIT}"), "gone,unit=gone.service".into()]);
    exporter.page_where("it runs", |page| is_state(page, "prefill", "active"));
    for (active, state) in
        [("deactivating", "deactivating"), ("failed", "failed"), ("activating", "activating")]
    {
        node.bus.set(UNIT, Unit { active, ..Unit::failed() });
        exporter.page_where(state, |page| is_state(page, "prefill", state));
    }
    node.bus.set(UNIT, Unit { restarts: Some(9), ..Unit::running(41, GROUP) });
    let page = exporter.page_where("it restarted", |page| {
        value(page, "service_restarts_total", &[PREFILL]) == Some(9.0)
    });
    assert!(is_state(&page, "gone", "unknown"));
    let states = page.all("sightline_node_service_state", &[("service", "gone")]);
    assert_eq!(states.len(), 6, "{states:?}");
    let looping = [("check", "service_restarts"), ("scope", "prefill")];
    let is_loop = |page: &Page| value(page, "health_check", &looping) == Some(0.0);
    exporter.page_where("that is a loop", is_loop);
}

#[test]
fn a_bus_that_hangs_delays_nothing_and_is_found_again() {
    let (node, health) = (Node::new(), Server::well("ok"));
    let exporter = node.start(&[format!("prefill,unit={UNIT},url={}", health.url("/"))]);
    let collector = [("collector", "systemd")];
    exporter.page_where("it runs", |page| is_state(page, "prefill", "active"));
    node.bus.mood(Mood::Hung);
    let late = [("collector", "systemd"), ("error", "timeout")];
    let page = exporter.page_where("nobody knows", |page| {
        let errors = value(page, "collector_errors_total", &late);
        is_state(page, "prefill", "unknown") && errors.is_some_and(|errors| errors >= 1.0)
    });
    assert!(page.took < SCRAPE_MAX, "{:?}", page.took);
    assert_eq!(value(&page, "collector_success", &collector), Some(0.0));
    // Counters stay, gauges go, and others go on.
    assert_eq!(value(&page, "service_restarts_total", &[PREFILL]), Some(0.0));
    assert_eq!(value(&page, "service_start_timestamp_seconds", &[PREFILL]), None);
    let asked = health.requests().len();
    exporter.page_where("probes go on", |page| {
        assert!(page.took < SCRAPE_MAX, "{:?}", page.took);
        health.requests().len() > asked + 3
            && value(page, "service_probe_success", &[PREFILL]) == Some(1.0)
    });
    node.bus.mood(Mood::Well);
    exporter.page_where("it is back", |page| {
        is_state(page, "prefill", "active")
            && value(page, "collector_success", &collector) == Some(1.0)
    });
    node.bus.mood(Mood::Closes);
    exporter.page_where("the bus is gone", |page| is_state(page, "prefill", "unknown"));
    node.bus.mood(Mood::Well);
    exporter.page_where("it is back", |page| is_state(page, "prefill", "active"));
}

#[test]
fn health_urls_fail_in_every_way_and_cost_nobody_else_anything() {
    let (node, well, other) = (Node::new(), Server::well("ok"), Server::well("ok"));
    let elsewhere = Server::well("ok");
    let exporter = node.start(&[
        format!("a,url={},start-up=0s", well.url("/health")),
        format!("b,url={}", other.url("/")),
    ]);
    let a = ("service", "a");
    let probe = |page: &Page| {
        let code = value(page, "service_probe_status_code", &[a]);
        (value(page, "service_probe_success", &[a]), code)
    };
    exporter.page_where("it is well", |page| {
        probe(page) == (Some(1.0), Some(200.0)) && is_state(page, "a", "active")
    });
    for (behaviour, code) in [
        (Behaviour::Answer(500, "no".to_owned()), 500.0),
        (Behaviour::Redirect(elsewhere.url("/")), 302.0),
        (Behaviour::Close, 0.0),
        (Behaviour::Raw(b"SSH-2.0\r\n".to_vec()), 0.0),
    ] {
        well.set(behaviour);
        let page = exporter.page_where("it fails", |page| {
            probe(page) == (Some(0.0), Some(code)) && is_state(page, "a", "failed")
        });
        assert!(page.took < SCRAPE_MAX, "{:?}", page.took);
        assert_eq!(value(&page, "service_probe_success", &[("service", "b")]), Some(1.0));
        well.set(Behaviour::Answer(200, String::new()));
        exporter.page_where("it is well", |page| probe(page) == (Some(1.0), Some(200.0)));
    }
    assert!(elsewhere.requests().is_empty(), "a redirect was followed");
    // One that never answers is given up after its deadline; the other is asked all the time.
    well.set(Behaviour::Hang);
    let before = other.requests().len();
    let page = exporter.page_where("it hangs", |page| {
        assert!(page.took < SCRAPE_MAX, "{:?}", page.took);
        probe(page) == (Some(0.0), Some(0.0))
    });
    let took = value(&page, "service_probe_duration_seconds", &[a]).expect("a duration");
    assert!((3.0..20.0).contains(&took), "{took}");
    assert!(other.requests().len() > before + 5);
    assert_eq!(value(&page, "service_probe_success", &[("service", "b")]), Some(1.0));
}

#[test]
fn sizes_come_from_the_best_source_that_has_them() {
    let (node, server, start) = (Node::new(), Server::well(PAGE), Start::incident(4, 32));
    let plan = r#"{"valid": true, "host_tier": {"ratio": 4.0, "unit_bytes": 5000000000, "pools":
        [{"parts": [{"name": "swa", "host_bytes": 5000000000}]}],
        "nodes": [{"node": 0, "ranks": [0, 1, 2, 3]}]}}"#;
    node.file("/etc/plan.json", plan);
    node.file("/var/log/prefill.log", &start.text());
    let service = format!(
        "prefill,unit={UNIT},metrics={},log=/var/log/prefill.log,plan=/etc/plan.json,node=0",
        server.url("/metrics")
    );
    let exporter = node.start(&[service]);
    // Only one source at a time.
    let from = |page: &Page, source: &str| {
        let planned = "sightline_node_hostcache_planned_bytes";
        let all = page.all(planned, &[PREFILL]).len();
        all > 0 && page.all(planned, &[PREFILL, ("source", source)]).len() == all
    };
    let sum = |page: &Page, family: &str| {
        let pools = page.all(&format!("sightline_node_hostcache_{family}_bytes"), &[PREFILL]);
        (!pools.is_empty()).then(|| pools.iter().map(|(_, bytes)| bytes).sum::<f64>())
    };
    let page = exporter.page_where("its page", |page| from(page, "metrics"));
    assert_eq!(sum(&page, "allocated"), Some(13_871_104.0));
    assert_eq!(value(&page, "hicache_bytes_per_ratio", &[PREFILL]), Some(6_935_552.0));
    assert_eq!(value(&page, "hostcache_local_ratio", &[PREFILL]), Some(1.0));
    // A page that is cut off is no page.
    server.set(Behaviour::Answer(200, PAGE[..PAGE.len() / 2].trim_end().to_owned()));
    let page = exporter.page_where("its log", |page| from(page, "log"));
    assert_eq!(sum(&page, "allocated"), Some(start.total() as f64));
    // The log begins in the middle of a start.
    let cut = start.text();
    let log = node.tree.path().join("var/log/prefill.log");
    fs::remove_file(&log).expect("it is there");
    node.file("/var/log/prefill.log", &format!("{}\n{}", start.arguments(), &cut[cut.len() / 2..]));
    let page = exporter.page_where("its plan", |page| from(page, "plan"));
    assert_eq!(sum(&page, "planned"), Some(20e9));
    // It runs; what it holds, a plan cannot know.
    assert_eq!(sum(&page, "allocated"), None);
    assert_eq!(value(&page, "hicache_ratio_max", &[PREFILL]), None);
    // It does not run: it holds nothing, and the plan is still to be paid for.
    node.bus.set(UNIT, Unit::failed());
    exporter.page_where("nothing is held", |page| {
        let ratio = value(page, "hicache_ratio_max", &[PREFILL]);
        sum(page, "allocated") == Some(0.0) && ratio.is_some_and(|ratio| ratio > 4.0)
    });
    server.set(Behaviour::Answer(200, PAGE.to_owned()));
    exporter.page_where("its page again", |page| from(page, "metrics"));
}

#[test]
fn the_journal_of_a_unit_is_read_start_by_start() {
    let (node, folder) = (Node::new(), Folder::new());
    // A stand-in for `journalctl` that shows the file named as the start it is asked for.
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/journalctl");
    std::os::unix::fs::symlink(program, folder.path("journalctl")).expect("the folder is writable");
    folder.write("script", "for last; do :; done; cat \"$folder/${last#*=}\" 2>/dev/null");
    let (first, second) =
        (Start::incident(4, 33), Start { ratio: "3.0", ..Start::incident(2, 34) });
    folder.write(&"ab".repeat(16), &first.text());
    folder.write(&"cd".repeat(16), &second.text());
    let path = format!("{}:/usr/bin:/bin", folder.arg(""));
    let service = format!("prefill,unit={UNIT},log=journal");
    // Confined, it runs programs of the system only.
    let exporter =
        node.start_with(&[service], &["--no-sandbox"], |command| command.env("PATH", path));
    let held = |page: &Page| {
        let all = page.all("sightline_node_hostcache_allocated_bytes", &[("source", "log")]);
        all.iter().map(|(_, bytes)| bytes).sum::<f64>()
    };
    let of = |start: &Start| start.total() as f64;
    exporter.page_where("its first start", |page| held(page) == of(&first));
    // Its policy says where it lies.
    let swa = [PREFILL, ("pool", "swa"), ("numa_node", "0")];
    exporter.page_where("it lies on its node", |page| {
        value(page, "hostcache_planned_bytes", &swa) == Some(first.bytes("swa") as f64)
    });
    node.bus.set(UNIT, Unit { invocation: 0xcd, ..Unit::running(41, GROUP) });
    let page = exporter.page_where("its second start", |page| held(page) == of(&second));
    let unit = value(&page, "hicache_bytes_per_ratio", &[PREFILL]).expect("a unit");
    assert!((unit - of(&second) / 3.0).abs() < 1.0, "{unit}");
}

#[test]
fn a_log_that_is_no_file_or_does_not_end_hangs_nothing() {
    let node = Node::new();
    node.file("/var/log/prefill.log", "");
    node.tree.fifo("var/log/prefill.log");
    let exporter = node.start(&[format!("prefill,unit={UNIT},log=/var/log/prefill.log")]);
    let malformed = [("collector", "hostcache"), ("error", "malformed")];
    let page = exporter.page_where("it is told", |page| {
        value(page, "collector_errors_total", &malformed).is_some_and(|errors| errors >= 2.0)
    });
    assert!(page.took < SCRAPE_MAX, "{:?}", page.took);
    assert!(page.all("sightline_node_hostcache_planned_bytes", &[PREFILL]).is_empty());
}

#[test]
fn a_node_without_a_bus_says_so_once() {
    let node = Node::new();
    node.bus.remove();
    let health = Server::well("ok");
    let url = health.url("/");
    let exporter = node.start(&[format!("prefill,unit={UNIT}"), format!("b,url={url}")]);
    let systemd = [("collector", "systemd")];
    let page = exporter.page_where("it is known", |page| {
        value(page, "collector_supported", &systemd) == Some(0.0) && is_state(page, "b", "active")
    });
    assert!(is_state(&page, "prefill", "unknown"));
    let said = || exporter.log().matches("no system bus").count();
    let asked = health.requests().len();
    exporter.page_where("time passes", |_| health.requests().len() > asked + 10);
    assert_eq!(said(), 1, "{}", exporter.log());
}
