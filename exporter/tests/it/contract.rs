//! The catalog against live pages, both ways: what is exposed is declared, with its kind, help and
//! labels, and what is declared is exposed where a node has it.

use std::collections::{BTreeMap, BTreeSet};

use fake_node::{Group, Tree};
use fake_nvml::Node as Cards;
use metric_catalog::def::{Info, Kind, Source, Values};

use crate::harness::{Exporter, Folder, eventually_some};
use crate::mock_bus::{Bus, Unit};
use crate::mock_http::Server;
use crate::sglang_log::Start;

/// Families of a page, as its text says.
#[derive(Debug, Default)]
struct Family {
    help: String,
    kind: String,
    /// Labels of each series, in order.
    series: Vec<Vec<(String, String)>>,
}

/// Labels that are left out of a series that is not about a part of something.
const OF_PARTS: [&str; 2] = ["gpu_instance", "compute_instance"];

fn families(text: &str) -> BTreeMap<String, Family> {
    let mut found: BTreeMap<String, Family> = BTreeMap::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# ") {
            let mut words = rest.splitn(3, ' ');
            let mut word = || words.next().unwrap_or_default().to_owned();
            let (what, name, said) = (word(), word(), word());
            let family = found.entry(name).or_default();
            let place = if what == "HELP" { &mut family.help } else { &mut family.kind };
            assert!(place.is_empty(), "twice: {line}");
            *place = said;
        } else {
            let (series, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line:?}"));
            assert!(value.parse::<f64>().is_ok_and(f64::is_finite), "{line}");
            let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
            let family = found.get_mut(name).unwrap_or_else(|| panic!("no kind before {line}"));
            family.series.push(pairs(labels.trim_end_matches('}')));
        }
    }
    found
}

/// `a="b",c="d"`; the values of these pages have no quotes in them.
fn pairs(text: &str) -> Vec<(String, String)> {
    let part = |part: &str| {
        let (name, value) = part.split_once("=\"").unwrap_or_else(|| panic!("{text:?}"));
        (name.to_owned(), value.trim_end_matches('"').to_owned())
    };
    text.split("\",").filter(|text| !text.is_empty()).map(part).collect()
}

/// What is on a page and not as the catalog says.
fn undeclared(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    for (name, family) in families(text) {
        let mut of_exporters = metric_catalog::all().filter(|info| info.source != Source::Server);
        match of_exporters.find(|info| info.name == name) {
            Some(info) => wrong.extend(differences(info, &family)),
            None => wrong.push(format!("{name} is not declared")),
        }
    }
    wrong
}

fn differences(info: &Info, family: &Family) -> Vec<String> {
    let name = info.name;
    let mut wrong = Vec::new();
    if family.kind != info.kind.as_str() || family.help != info.help {
        wrong.push(format!("{name} is told as {} {:?}", family.kind, family.help));
    }
    let mut values: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for series in &family.series {
        let has = |label: &str| series.iter().any(|(name, _)| name == label);
        let declared = info.labels.iter().map(|label| label.name);
        let declared: Vec<_> =
            declared.filter(|label| !OF_PARTS.contains(label) || has(label)).collect();
        let names: Vec<_> = series.iter().map(|(name, _)| name.as_str()).collect();
        if names != declared {
            wrong.push(format!("{name} has labels {names:?}"));
        }
        for (label, value) in series {
            values.entry(label).or_default().insert(value);
        }
    }
    for label in info.labels {
        let seen = values.remove(label.name).unwrap_or_default();
        match label.values {
            Values::Closed(known) => {
                let strange = seen.iter().filter(|value| !known.contains(value));
                wrong.extend(strange.map(|value| format!("{name} has {}={value}", label.name)));
            }
            Values::Open { bound, .. } if seen.len() > bound => {
                wrong.push(format!("{name} has {} values of {}", seen.len(), label.name));
            }
            Values::Open { .. } => {}
        }
    }
    wrong
}

/// Families of node exporters, and values of their closed labels, that no series of the page has.
fn missing(text: &str) -> Vec<String> {
    let found = families(text);
    let mut missing = Vec::new();
    for info in metric_catalog::node::ALL {
        let Some(family) = found.get(info.name) else {
            missing.push(info.name.to_owned());
            continue;
        };
        for label in info.labels {
            let Values::Closed(values) = label.values else { continue };
            for value in values {
                let has = |(name, of): &(String, String)| name == label.name && of == value;
                if !family.series.iter().any(|series| series.iter().any(has)) {
                    missing.push(format!("{}{{{}={value:?}}}", info.name, label.name));
                }
            }
        }
    }
    missing
}

#[test]
fn the_checks_find_what_is_wrong() {
    let line = |text: &str| {
        let info = metric_catalog::node::GPUS;
        let help = metric_catalog::def::Metric::info(&info).help;
        format!("# HELP {0} {help}\n# TYPE {0} gauge\n{0}{text} 1\n", info.name())
    };
    assert_eq!(undeclared(&line("{state=\"pci\"}")), [""; 0]);
    let wrong = |text: &str, part: &str| {
        let found = undeclared(text);
        assert!(found.iter().any(|found| found.contains(part)), "{part}: {found:?}");
    };
    wrong(&line("{state=\"lost\"}"), "has state=lost");
    wrong(&line("{state=\"pci\",gpu=\"0\"}"), "has labels");
    wrong(&line(""), "has labels");
    wrong(&line("{state=\"pci\"}").replace("gauge", "counter"), "is told as counter");
    wrong("# HELP sightline_x X.\n# TYPE sightline_x gauge\nsightline_x 1\n", "not declared");
    let lacks = missing(&line("{state=\"pci\"}"));
    assert!(lacks.iter().any(|lack| lack == "sightline_node_gpus{state=\"nvml\"}"), "{lacks:?}");
    assert!(lacks.iter().any(|lack| lack == "sightline_node_healthy"));
    assert!(!lacks.iter().any(|lack| lack == "sightline_node_gpus{state=\"pci\"}"));
    assert!(metric_catalog::node::ALL.iter().all(|info| info.kind != Kind::Histogram));
}

/// A page of a server of ours with a host tier.
const SERVER_PAGE: &str = include_str!("../data/server_page.txt");

const PLAN: &str = r#"{"valid": true, "resolved": {"host_tier": {"ratio": 2.0,
    "pools": [{"name": "kv", "parts": [{"name": "full", "host_bytes": 1000}]}],
    "nodes": [{"node": 0, "ranks": [0, 1]}], "unit_bytes": 3014, "fits": true}}}"#;

const LOST: &str = "6,1234,5000000,-;NVRM: Xid (PCI:0000:17:00): 79, pid=7, GPU has fallen off\n";

/// A node that has everything: cards that did something, links, and services whose caches are told
/// of in each of the three ways.
struct World {
    exporter: Exporter,
    _tree: Tree,
    cards: Cards,
    _bus: Bus,
    _server: Server,
    _folder: Folder,
}

impl World {
    fn start(more: &[&str]) -> Self {
        let (tree, cards, folder) = (Tree::two_socket(), Cards::with_cards(2), Folder::new());
        cards.set("0.processes", "4242:1000000");
        let (bus, server) = (Bus::start(folder.path("bus")), Server::well(SERVER_PAGE));
        for (name, pid) in [("a", 4242), ("b", 4243), ("c", 4244)] {
            let (unit, group) = (format!("{name}.service"), "/system.slice/a.service");
            bus.set(&unit, Unit::running(pid, group));
            tree.set_process(pid, 1 << 20, 0, "0-1", "bind:0");
        }
        let nodes = vec![(0, 1 << 30, 0), (1, 1 << 20, 0)];
        let (max, processes) = (Some(8 << 30), vec![4242, 4243, 4244]);
        let group = Group { nodes, max, processes, mems: "0-1".into(), ..Group::default() };
        tree.set_group("system.slice/a.service", &group);
        let path = |path: std::path::PathBuf| path.display().to_string();
        let log = path(folder.write("start.log", &Start::incident(2, 1).text()));
        let plan = path(folder.write("plan.json", PLAN));
        let services = [
            format!(
                "a,unit=a.service,url={},metrics={},target=1GB,node=0",
                server.url("/health"),
                server.url("/metrics")
            ),
            format!("b,unit=b.service,log={log},ratio=2.0,node=1"),
            format!("c,unit=c.service,plan={plan}"),
        ];
        let planned = path(folder.write("planned", "all 99999999999\n"));
        let kmsg = path(folder.write("kmsg", LOST));
        let trees = [tree.procfs(), tree.sysfs(), tree.cgroupfs(), cards.library()].map(path);
        let mut args: Vec<&str> = services.iter().flat_map(|one| ["--service", one]).collect();
        args.extend(["--path.procfs", &trees[0], "--path.sysfs", &trees[1]]);
        args.extend(["--path.cgroupfs", &trees[2], "--nvml.library", &trees[3]]);
        args.extend(["--maintenance", &planned, "--path.kmsg", &kmsg]);
        args.extend(["--rdma.require=mlx5_0:1"]);
        args.extend(FAST.iter().flat_map(|interval| ["--interval", interval]));
        args.extend(more);
        let address = bus.address();
        let exporter =
            Exporter::start_with(&args, |command| command.env("DBUS_SYSTEM_BUS_ADDRESS", address));
        Self { exporter, _tree: tree, cards, _bus: bus, _server: server, _folder: folder }
    }
}

const FAST: [&str; 13] = [
    "gpu=200ms",
    "gpu_slow=200ms",
    "pci=200ms",
    "kmsg=200ms",
    "numa=200ms",
    "pressure=200ms",
    "rdma=200ms",
    "systemd=200ms",
    "probe=200ms",
    "cgroup=200ms",
    "hostcache=200ms",
    "maintenance=200ms",
    "page=50ms",
];

/// What no page of one node can have at once, and where it is tested instead.
const ELSEWHERE: &[(&str, &str)] = &[
    ("sightline_node_service_mempolicy_info{policy", "one policy a service: service::group"),
    ("sightline_node_hostcache_target_bytes{source=\"metrics\"", "one at a time: hostcache::join"),
    ("sightline_node_pressure_waiting_seconds_total{resource=\"irq\"", "no kernel tells it"),
    ("sightline_node_hostcache_allocated_bytes{source=\"plan\"", "a plan holds nothing"),
];

#[test]
fn a_node_with_everything_exposes_the_catalog() {
    let world = World::start(&[]);
    world.exporter.page_where("cards that answer", |page| {
        page.all("sightline_node_gpu_up", &[]).iter().filter(|(_, up)| *up == 1.0).count() == 2
    });
    world.cards.xid(1, 31);
    let is_elsewhere = |lack: &str| ELSEWHERE.iter().any(|(listed, _)| lack.starts_with(listed));
    let mut lacks = Vec::new();
    let found = eventually_some(|| {
        let page = world.exporter.page();
        lacks = missing(&page.text);
        lacks.iter().all(|lack| is_elsewhere(lack)).then_some(page)
    });
    lacks.retain(|lack| !is_elsewhere(lack));
    let page = found.unwrap_or_else(|| panic!("never exposed: {lacks:#?}"));
    assert_eq!(undeclared(&page.text), [""; 0]);
    let lacks = missing(&page.text);
    for (listed, _) in ELSEWHERE {
        assert!(lacks.iter().any(|lack| lack.starts_with(listed)), "{listed} is here after all");
    }
}

#[test]
fn a_node_with_nothing_exposes_what_it_has() {
    let tree = Tree::small();
    tree.psi_off();
    let path = |path: std::path::PathBuf| path.display().to_string();
    let trees = [tree.procfs(), tree.sysfs(), tree.cgroupfs()].map(path);
    let mut args = vec!["--no-nvml", "--no-kmsg", "--path.procfs", &trees[0]];
    args.extend(["--path.sysfs", &trees[1], "--path.cgroupfs", &trees[2]]);
    args.extend(FAST.iter().flat_map(|interval| ["--interval", interval]));
    let exporter = Exporter::start(&args);
    let page = exporter.page_where("a verdict and the memory of a node", |page| {
        page.value("sightline_node_healthy", &[]) == Some(1.0)
            && page.value("sightline_node_numa_memory_total_bytes", &[("numa_node", "0")]).is_some()
    });
    assert_eq!(undeclared(&page.text), [""; 0]);
    for absent in ["gpu_up", "service_state", "pressure_waiting_seconds_total"] {
        assert_eq!(page.all(&format!("sightline_node_{absent}"), &[]), [], "{absent}");
    }
}

#[test]
fn the_exporter_tells_what_it_takes() {
    let exporter = Exporter::start(&["--no-nvml", "--no-kmsg", "--interval", "page=50ms"]);
    let page = exporter.page_where("more time than none", |page| {
        page.value("process_cpu_seconds_total", &[]).is_some_and(|busy| busy > 0.0)
    });
    assert_eq!(undeclared(&page.text), [""; 0]);
    let found = families(&page.text);
    for info in metric_catalog::process::ALL {
        assert_eq!(
            found.get(info.name).map(|family| family.series.len()),
            Some(1),
            "{}",
            info.name
        );
    }
    assert!(page.value("process_resident_memory_bytes", &[]) > Some(1e6));
}

#[test]
fn names_of_another_exporter_are_those_of_the_table() {
    let world = World::start(&["--compat.dcgm"]);
    let page = world.exporter.page_where("a temperature under another name", |page| {
        !page.all(metric_catalog::dcgm::GPU_TEMP.name, &[]).is_empty()
    });
    let foreign = families(&page.text);
    let foreign: Vec<_> =
        foreign.iter().filter(|(name, _)| !name.starts_with("sightline_")).collect();
    assert!(foreign.len() > 10, "{foreign:?}");
    for (name, family) in foreign {
        let known = metric_catalog::dcgm::ALL.iter().find(|known| known.name == name);
        let process = metric_catalog::process::ALL.iter().any(|info| info.name == name);
        let told = known.map(|known| (known.help, known.kind.as_str()));
        assert!(process || told == Some((&family.help, &family.kind)), "{name}: {family:?}");
    }
}
