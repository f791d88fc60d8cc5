//! The whole program on a whole node: cards, memory, services, links; and with several things
//! hanging at once. It is confined here, as it is when it is installed.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use fake_node::{Group, Tree};
use fake_nvml::Node as Cards;

use crate::gpu::holders;
use crate::harness::{Answer, Exporter, Folder, Page, eventually, signal};
use crate::mock_bus::{Bus, Mood, Unit};
use crate::mock_http::{Behaviour, Server};

/// How long a scrape may take, whatever hangs: far more than it does, on busy machines. What hangs
/// here does so until it is healed: a scrape that waited for it would not answer at all.
const FAST: Duration = Duration::from_secs(5);

const CARDS: usize = 8;

struct World {
    tree: Tree,
    cards: Cards,
    bus: Bus,
    health: Server,
    exporter: Exporter,
    _folder: Folder,
}

impl World {
    /// A node of two sockets and eight cards with one service; everything is well.
    fn start(more: &[&str]) -> Self {
        let (tree, cards, folder) = (Tree::two_socket(), Cards::with_cards(CARDS), Folder::new());
        let (bus, health) = (Bus::start(folder.path("bus")), Server::well("ok"));
        bus.set("prefill.service", Unit::running(4242, "/system.slice/prefill.service"));
        let nodes = vec![(0, 1 << 30, 0), (1, 0, 0)];
        let group = Group { nodes, processes: vec![4242], ..Group::default() };
        tree.set_group("system.slice/prefill.service", &group);
        tree.set_process(4242, 0, 0, "0-1", "bind:0");
        let path = |path: std::path::PathBuf| path.display().to_string();
        let service = format!("prefill,unit=prefill.service,url={},node=0", health.url("/health"));
        let (procfs, sysfs) = (path(tree.procfs()), path(tree.sysfs()));
        let (groups, library) = (path(tree.cgroupfs()), path(cards.library()));
        let planned = path(folder.write("planned", "# nothing\n"));
        let mut args = vec!["--service", &service, "--nvml.library", &library, "--no-kmsg"];
        args.extend(["--path.procfs", &procfs, "--path.sysfs", &sysfs]);
        args.extend(["--path.cgroupfs", &groups, "--maintenance", &planned]);
        args.extend(["--rdma.require=mlx5_0:1", "--grace=1s"]);
        for interval in ["gpu", "gpu_slow", "numa", "pressure", "rdma", "systemd", "probe"] {
            args.extend(["--interval", Self::fast(interval)]);
        }
        for interval in ["cgroup=500ms", "maintenance=500ms", "page=50ms"] {
            args.extend(["--interval", interval]);
        }
        args.extend(more);
        let address = bus.address();
        let exporter =
            Exporter::start_with(&args, |command| command.env("DBUS_SYSTEM_BUS_ADDRESS", address));
        Self { tree, cards, bus, health, exporter, _folder: folder }
    }

    fn fast(name: &str) -> &'static str {
        match name {
            "gpu" => "gpu=500ms",
            "gpu_slow" => "gpu_slow=500ms",
            "numa" => "numa=500ms",
            "pressure" => "pressure=500ms",
            "rdma" => "rdma=500ms",
            "systemd" => "systemd=500ms",
            _ => "probe=500ms",
        }
    }

    /// The first page that says that the node is fit and all of its cards answer.
    fn settled(&self) -> Page {
        self.exporter.page_where("a node that is fit, with all of its cards", |page| {
            page.value("sightline_node_healthy", &[]) == Some(1.0)
                && answering(page) == CARDS
                && page.value("sightline_node_health_check_known", &check("service_up", "prefill"))
                    == Some(1.0)
                && page.all("sightline_node_gpu_ecc_errors_total", &[]).len() == CARDS * 2
        })
    }

    fn health(&self) -> (u16, serde_json::Value) {
        let answer: Answer = self.exporter.get("/health");
        (answer.status, answer.json())
    }
}

fn answering(page: &Page) -> usize {
    page.all("sightline_node_gpu_up", &[]).iter().filter(|(_, up)| *up == 1.0).count()
}

fn check<'a>(name: &'a str, scope: &'a str) -> [(&'static str, &'a str); 2] {
    [("check", name), ("scope", scope)]
}

fn uuid(card: usize) -> String {
    format!("GPU-{card:08x}-5167-4717-8000-{card:012x}")
}

#[test]
fn every_collector_works_and_the_node_is_fit() {
    let world = World::start(&[]);
    world.settled();
    let page = world.exporter.page_where("every collector and every card", |page| {
        let wrong = unfinished(page);
        // What is still missing after all is in the log of the test.
        wrong.iter().for_each(|what| println!("not yet: {what}"));
        wrong.is_empty()
    });
    assert!(eventually(|| world.health().0 == 200), "{}", world.health().1);
    // Every family is of the catalog, and says what it is.
    let known: Vec<&str> = metric_catalog::all().map(|info| info.name).collect();
    let mut families = 0;
    for line in page.text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let name = line.split(' ').next().unwrap_or_default();
        assert!(known.contains(&name), "{name}");
        families += 1;
    }
    assert!(families > 60, "{families}");
    assert!(!page.text.contains("DCGM"), "only when asked for");
    lint(&page);
}

/// What a page of the whole node lacks.
fn unfinished(page: &Page) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut expect = |what: &str, found: Option<f64>, expected: f64| {
        if found != Some(expected) {
            wrong.push(format!("{what} is {found:?} instead of {expected}"));
        }
    };
    for collector in metric_catalog::labels::Collector::ALL {
        let name = collector.as_str();
        let off = ["hostcache", "kmsg", "web_config"].contains(&name);
        for family in ["supported", "success"] {
            let family = format!("sightline_node_collector_{family}");
            let found = page.value(&family, &[("collector", name)]);
            expect(&format!("{family} of {name}"), found, f64::from(!off));
        }
    }
    let count = |series: Vec<(&str, f64)>| Some(series.len() as f64);
    let counted = page.all("sightline_node_gpus", &[]).iter().map(|(_, n)| n).sum::<f64>();
    expect("cards, counted in four ways,", Some(counted), (4 * CARDS) as f64);
    let on_node = page.all("sightline_node_gpu_info", &[("numa_node", "1")]);
    expect("cards of node 1", count(on_node), (CARDS / 2) as f64);
    let required = page.value("sightline_node_rdma_port_required", &[("device", "mlx5_0")]);
    expect("the required port", required, 1.0);
    // Each card is asked everything.
    let mut of_cards = page.all("sightline_node_health_check", &[]);
    of_cards.retain(|(series, _)| series.contains("GPU-"));
    expect("checks of cards", count(of_cards), (CARDS * 9) as f64);
    wrong
}

/// What Prometheus' own tool has to say of the page: nothing.
#[expect(clippy::print_stdout, reason = "a skipped check must say so where tests are read")]
fn lint(page: &Page) {
    let tool = Command::new("promtool").args(["check", "metrics"]).stdin(Stdio::piped()).spawn();
    let Ok(mut tool) = tool else {
        println!("SKIP promtool is not installed");
        return;
    };
    let mut input = tool.stdin.take().expect("it is a pipe");
    input.write_all(page.text.as_bytes()).expect("it reads");
    drop(input);
    assert!(tool.wait().expect("it ends").success(), "{}", page.text);
}

#[test]
fn with_a_card_the_bus_a_file_and_a_health_url_hung_everything_else_goes_on() {
    let world = World::start(&[]);
    let before = world.settled();
    let healthy: Vec<Duration> = (0..20).map(|_| world.exporter.page().took).collect();
    world.cards.fail(3, "nvmlDeviceGetUtilizationRates", "hang");
    world.bus.mood(Mood::Hung);
    world.health.set(Behaviour::Hang);
    world.tree.fifo("proc/pressure/memory");
    let hung = uuid(3);
    let lost = [("uuid", hung.as_str())];
    let page = world.exporter.page_where("a card that does not answer", |page| {
        page.value("sightline_node_gpu_up", &lost) == Some(0.0)
            && page.value("sightline_node_collector_stuck_seconds", &[("collector", "pressure")])
                > Some(0.0)
            && page.value("sightline_node_healthy", &[]) == Some(0.0)
            && page.value("sightline_node_health_check", &check("service_up", "prefill"))
                == Some(0.0)
            && page.value("sightline_node_collector_success", &[("collector", "numa")]) == Some(1.0)
            && answering(page) == CARDS - 1
    });
    assert!(before.value("sightline_node_gpu_utilization_ratio", &lost).is_some());
    assert_eq!(page.value("sightline_node_gpu_utilization_ratio", &lost), None, "not frozen");

    // The others are read on, at their pace.
    for round in 1..4 {
        for card in [0, 7] {
            let percent = 10 * round + card;
            world
                .cards
                .set(&format!("{card}.nvmlDeviceGetUtilizationRates"), format!("{percent} 1"));
        }
        world.exporter.page_where("new values of the other cards", |page| {
            [0, 7].iter().all(|card| {
                let own = uuid(*card);
                let ratio = (10 * round + card) as f64 / 100.0;
                page.value("sightline_node_gpu_utilization_ratio", &[("uuid", &own)]) == Some(ratio)
            })
        });
    }

    // Scrapes take what they took.
    let mut took: Vec<Duration> = (0..100).map(|_| world.exporter.page().took).collect();
    took.sort_unstable();
    let usual = healthy.iter().max().copied().unwrap_or_default();
    assert!(took[98] < FAST.max(usual * 2), "p99 {:?}, before: {usual:?}", took[98]);

    let told = || {
        let (status, health) = world.health();
        let named = |name: &str, scope: &str| {
            health["checks"].as_array().into_iter().flatten().any(|open| {
                open["check"] == name && open["scope"] == scope && open["counts_as"] == "fail"
            })
        };
        (status, &health["healthy"]) == (503, &false.into())
            && named("gpu_responding", &hung)
            && named("service_up", "prefill")
            && named("collector_fresh", "pressure")
            && !named("gpu_responding", &uuid(0))
    };
    assert!(eventually(told), "{}", world.health().1);
    assert_eq!(world.exporter.get("/livez").status, 200);
    world.tree.end_fifo("proc/pressure/memory", "");
}

#[test]
fn it_ends_in_order_while_things_hang() {
    let mut world = World::start(&[]);
    world.settled();
    world.cards.fail(3, "nvmlDeviceGetUtilizationRates", "hang");
    world.bus.mood(Mood::Hung);
    world.health.set(Behaviour::Hang);
    let hung = uuid(3);
    world.exporter.page_where("a card that does not answer", |page| {
        page.value("sightline_node_gpu_up", &[("uuid", &hung)]) == Some(0.0)
    });
    assert_eq!(world.exporter.stop(), Some(0), "{}", world.exporter.log());
}

#[test]
fn cards_are_let_go_on_request_and_taken_back() {
    let world = World::start(&["--nvml.release-time=600s"]);
    world.settled();
    assert_eq!(holders(&world.cards).len(), 1);
    let answer = world.exporter.request("POST", "/-/release", &[]);
    // The answer says that the cards are free, and then they are.
    assert_eq!(holders(&world.cards), [0; 0], "{}", world.exporter.log());
    assert_eq!((answer.status, &answer.json()["released"]), (200, &true.into()));
    assert_eq!(answer.json()["seconds"], 600.0);
    world.exporter.page_where("no card held", |page| {
        page.value("sightline_node_gpus", &[("state", "nvml")]) == Some(0.0)
    });
    signal(world.exporter.pid(), "USR2");
    world.settled();
}

#[test]
fn a_card_that_is_lost_makes_the_node_unfit_until_it_is_back() {
    let world = World::start(&[]);
    world.settled();
    world.cards.fail(2, "*", "GPU_IS_LOST");
    let lost = uuid(2);
    assert!(eventually(|| world.health().0 == 503), "{}", world.exporter.log());
    world.exporter.page_where("the reason", |page| {
        page.value("sightline_node_health_check", &check("gpu_responding", &lost)) == Some(0.0)
            && page.value("sightline_node_gpus", &[("state", "responding")]) == Some(7.0)
    });
    world.cards.heal(2, "*");
    world.settled();
    world.cards.xid(5, 79);
    let own = uuid(5);
    let xid = [("check", "gpu_xid"), ("scope", own.as_str()), ("severity", "critical")];
    world.exporter.page_where("an error of a card", |page| {
        page.value("sightline_node_health_check", &xid) == Some(0.0)
    });
    assert!(eventually(|| world.health().1.to_string().contains("Xid 79")));
}

#[test]
fn names_of_the_other_exporter_are_there_when_asked_for() {
    let world = World::start(&["--compat.dcgm"]);
    world.settled();
    let own = uuid(0);
    let labels = [("UUID", own.as_str()), ("pci_bus_id", "00000000:17:00.0")];
    world.exporter.page_where("every family of every card", |page| {
        metric_catalog::dcgm::ALL.iter().all(|family| {
            // What the driver is not asked for is absent.
            let absent = ["DCGM_FI_DEV_ENC_UTIL", "DCGM_FI_DEV_DEC_UTIL"].contains(&family.name);
            let count = if absent { 0 } else { CARDS };
            page.all(family.name, &[]).len() == count || family.name.contains("MEMORY_TEMP")
        }) && page.value("DCGM_FI_DEV_GPU_UTIL", &labels) == Some(50.0)
            && page.value("DCGM_FI_DEV_FB_USED", &labels) == Some(71_525.0)
    });
}
