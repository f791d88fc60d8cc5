//! Cards: the real worker process, the scripted library, one fault after another.
//!
//! Each test breaks one thing while the program runs and looks at three: what is said of the broken
//! part, that the other cards stay as young as ever, and that all is well again afterwards.

mod program;

use std::path::PathBuf;
use std::time::Duration;

use exporter::config::{Config, Intervals, Nvml, Paths, Timer};
use exporter::facts::{Facts, Slots};
use exporter::gpu::{self, GpuFacts, Handle, Launch, page};
use exporter::slot::{CollectError, CollectorName, ErrorKind, Now, Stop};
use fake_node::Tree;
use fake_nvml::Node;
use metric_catalog::page::Page;

use crate::harness::{Folder, PATIENCE, Page as Shown, eventually, eventually_some};

/// How often cards are read here.
const INTERVAL: Duration = Duration::from_millis(100);
/// More than an age ever is, unless somebody waits for a card that hangs.
const YOUNG: Duration = Duration::from_secs(5);

struct Bench {
    node: Node,
    _tree: Tree,
    folder: Folder,
    config: Config,
    slots: Slots,
    stop: Stop,
    handle: Handle,
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.stop.stop();
    }
}

fn launch() -> Launch {
    let program = PathBuf::from(env!("CARGO_BIN_EXE_sightline-exporter"));
    Launch { program, ..Launch::default() }
}

impl Bench {
    /// Starts the collectors of cards on a node with two sockets and eight cards.
    fn start(node: Node) -> Self {
        let library = node.library();
        Self::start_with(node, Tree::two_socket(), vec![library], launch())
    }

    fn start_with(node: Node, tree: Tree, libraries: Vec<PathBuf>, launch: Launch) -> Self {
        let folder = Folder::new();
        let log = folder.write("kmsg", "6,1,1,-;the machine starts\n");
        let every = |name| (Timer::Collector(name), INTERVAL);
        let config = Config {
            paths: Paths {
                procfs: tree.procfs(),
                sysfs: tree.sysfs(),
                cgroupfs: tree.cgroupfs(),
                rootfs: tree.path().into(),
            },
            nvml: Nvml { libraries, ..Config::default().nvml },
            intervals: Intervals::new([
                every(CollectorName::Gpu),
                every(CollectorName::GpuSlow),
                every(CollectorName::Pci),
                every(CollectorName::Kmsg),
                (Timer::GpuStatic, INTERVAL),
            ]),
            kmsg: Some(log),
            ..Config::default()
        };
        let (slots, stop) = (Slots::new(&config), Stop::new());
        let handle =
            gpu::start_with(&config, &slots, &stop, launch).expect("threads are to be had");
        Self { node, _tree: tree, folder, config, slots, stop, handle }
    }

    /// The same, once all cards answer.
    fn healthy(cards: usize) -> Self {
        let bench = Self::start(Node::with_cards(cards));
        bench.until_all_up(cards);
        bench
    }

    fn facts(&self) -> Facts {
        self.slots.view(Now::read())
    }

    /// What the page says now.
    fn page(&self) -> Shown {
        let mut made = Page::new();
        page::gpu(&self.facts(), &self.config, &mut made);
        Shown::parse(&made.render(), Duration::ZERO)
    }

    fn page_where(&self, what: &str, wanted: impl Fn(&Shown) -> bool) -> Shown {
        let found = eventually_some(|| Some(self.page()).filter(&wanted));
        found.unwrap_or_else(|| panic!("never: {what}\n{}\n{:?}", self.page().text, self.error()))
    }

    fn up(&self) -> Vec<bool> {
        let facts = self.facts();
        let Some(cards) = facts.gpu.last_good.as_deref() else { return Vec::new() };
        cards.cards.iter().map(|card| cards.is_up(card, facts.now)).collect()
    }

    fn until_all_up(&self, cards: usize) {
        let all = eventually(|| self.up() == vec![true; cards]);
        assert!(all, "{:?} {:?}", self.up(), self.error());
    }

    /// Waits until this card alone is down.
    fn until_down(&self, card: usize) {
        let alone = |up: &[bool]| up.iter().enumerate().all(|(at, up)| *up == (at != card));
        assert!(eventually(|| alone(&self.up())), "{:?} {:?}", self.up(), self.error());
    }

    fn error(&self) -> Option<CollectError> {
        self.facts().gpu.status.error
    }

    /// Waits until collecting fails like this. Gives the words.
    fn until_error(&self, wanted: ErrorKind) -> String {
        let found = eventually_some(|| match self.error() {
            Some(CollectError::Failed { kind, detail }) if kind == wanted => Some(detail),
            Some(_) | None => None,
        });
        found.unwrap_or_else(|| panic!("never {wanted:?}, but {:?}", self.error()))
    }

    /// Watches until every other card was read five times more, and fails if one gets old
    /// meanwhile.
    fn others_stay_young(&self, broken: usize) {
        let ages = |facts: &Facts, cards: &GpuFacts| -> Vec<(usize, Now)> {
            let read = |card: &gpu::Card| card.fast.as_ref().map(|fast| fast.at);
            let all = cards.cards.iter().enumerate();
            let others = all.filter(|(at, _)| *at != broken);
            let others: Vec<_> = others.filter_map(|(at, card)| Some((at, read(card)?))).collect();
            for (card, at) in &others {
                let age = facts.now.since(*at);
                assert!(age < YOUNG, "card {card} is {age:?} old while {broken} is broken");
            }
            others
        };
        let mut reads = Vec::new();
        let enough = eventually(|| {
            let facts = self.facts();
            let cards = facts.gpu.last_good.as_deref().expect("cards are known");
            for read in ages(&facts, cards) {
                if !reads.contains(&read) {
                    reads.push(read);
                }
            }
            let count = cards.cards.len();
            let others = (0..count).filter(|card| *card != broken);
            let often = |card: usize| reads.iter().filter(|(of, _)| *of == card).count();
            others.map(often).min().is_none_or(|least| least > 5)
        });
        assert!(enough, "the others are not read: {reads:?}");
    }

    /// Asks for the cards and waits for the answer.
    fn release(&self) -> Result<Duration, gpu::NotReleased> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(self.handle.release())
    }

    fn holders(&self) -> Vec<u32> {
        holders(&self.node)
    }
}

/// Processes that have the node's library open.
pub(crate) fn holders(node: &Node) -> Vec<u32> {
    let library = node.library().display().to_string();
    let folders = std::fs::read_dir("/proc").expect("it is mounted").flatten();
    let pids = folders.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let maps = |pid: &u32| std::fs::read_to_string(format!("/proc/{pid}/maps"));
    pids.filter(|pid| maps(pid).is_ok_and(|maps| maps.contains(&library))).collect()
}

fn of_card(card: usize) -> [(&'static str, &'static str); 1] {
    [("gpu", ["0", "1", "2", "3", "4", "5", "6", "7"][card])]
}

#[test]
fn eight_healthy_cards_are_read_and_placed() {
    let bench = Bench::healthy(8);
    let states = ["expected", "pci", "nvml", "responding"];
    let page = bench.page_where("all of all cards", |page| {
        let count = |state| page.value("sightline_node_gpus", &[("state", state)]);
        page.all("sightline_node_gpu_nvlink_up", &[]).len() == 8 * 18
            && states.iter().all(|state| count(*state) == Some(8.0))
    });
    for (card, node) in [(0, "0"), (3, "0"), (4, "1"), (7, "1")] {
        let info = page.all("sightline_node_gpu_info", &of_card(card));
        assert_eq!(info.len(), 1);
        assert!(info[0].0.contains(&format!("numa_node=\"{node}\"")), "{info:?}");
    }
    let watts = |page: &Shown| page.value("sightline_node_gpu_power_watts", &of_card(5));
    bench.page_where("its power", |page| watts(page) == Some(412.345));
    bench.node.set("5.nvmlDeviceGetPowerUsage", 100_000);
    bench.page_where("the new value", |page| watts(page) == Some(100.0));
    assert!(eventually(|| bench.facts().gpu.status.success), "{:?}", bench.error());
}

#[test]
fn a_call_that_hangs_costs_its_card_only() {
    let bench = Bench::healthy(8);
    bench.node.fail(3, "nvmlDeviceGetPowerUsage", "hang");
    bench.until_down(3);
    bench.others_stay_young(3);
    let page = bench.page();
    assert_eq!(page.value("sightline_node_gpu_up", &of_card(3)), Some(0.0));
    assert_eq!(page.value("sightline_node_gpu_utilization_ratio", &of_card(3)), None);
    assert_eq!(page.value("sightline_node_gpu_throttle_active", &of_card(3)), None);
    let said = eventually(|| {
        let status = bench.facts().gpu.status;
        status.stuck > INTERVAL && !status.success
    });
    assert!(said, "{:?}", bench.facts().gpu.status);
    assert!(bench.until_error(ErrorKind::Timeout).contains("card 3"));
    bench.node.heal(3, "nvmlDeviceGetPowerUsage");
    bench.until_all_up(8);
    assert!(eventually(|| bench.facts().gpu.status.stuck == Duration::ZERO));
}

#[test]
fn an_initialisation_that_hangs_is_said() {
    let node = Node::with_cards(2);
    node.fail("sys", "nvmlInit", "hang");
    let bench = Bench::start(node);
    assert!(bench.until_error(ErrorKind::Timeout).contains("being opened"));
    let page = bench.page();
    assert_eq!(page.value("sightline_node_gpus", &[("state", "pci")]), Some(8.0));
    assert_eq!(page.value("sightline_node_gpus", &[("state", "nvml")]), Some(0.0));
    bench.node.heal("sys", "nvmlInit");
    bench.until_all_up(2);
}

#[test]
fn a_card_that_is_lost_takes_nothing_with_it() {
    let bench = Bench::healthy(2);
    let listening = |facts: &Facts| {
        let cards = facts.gpu.last_good.as_deref().expect("cards are known");
        cards.cards.iter().all(|card| card.listening == Some(Ok(())))
    };
    assert!(eventually(|| listening(&bench.facts())), "events are heard");
    bench.node.xid(0, 79);
    let xid = |card: usize, source, code| {
        let mut labels = of_card(card).to_vec();
        labels.extend([("source", source), ("xid", code)]);
        let page = bench.page();
        page.value("sightline_node_gpu_xid_errors_total", &labels)
    };
    assert!(eventually(|| xid(0, "nvml", "79") == Some(1.0)), "the event is counted");
    bench.node.fail(0, "*", "GPU_IS_LOST");
    bench.until_down(0);
    bench.others_stay_young(0);
    assert!(bench.until_error(ErrorKind::Gone).contains("card 0"));
    let page = bench.page_where("one of two", |page| {
        page.value("sightline_node_gpus", &[("state", "responding")]) == Some(1.0)
    });
    assert!(page.value("sightline_node_gpu_energy_joules_total", &of_card(0)).is_some());
    // The other one's events are still heard, and the count stays.
    bench.node.xid(1, 31);
    assert!(eventually(|| xid(1, "nvml", "31") == Some(1.0)), "the other card is heard");
    assert_eq!((xid(0, "nvml", "79"), xid(1, "nvml", "79")), (Some(1.0), Some(0.0)));
    bench.node.heal(0, "*");
    bench.until_all_up(2);
}

#[test]
fn errors_in_the_kernels_log_are_counted_by_card() {
    let bench = Bench::healthy(2);
    let line = format!("6,9,5,-;NVRM: Xid (PCI:{}): 48, pid=1\n", &Tree::card_address(1)[..10]);
    bench.folder.append("kmsg", &line);
    let labels = [("gpu", "1"), ("source", "kmsg"), ("xid", "48")];
    bench.page_where("the line is counted", |page| {
        page.value("sightline_node_gpu_xid_errors_total", &labels) == Some(1.0)
    });
    let other = [("gpu", "0"), ("source", "kmsg"), ("xid", "48")];
    assert_eq!(bench.page().value("sightline_node_gpu_xid_errors_total", &other), Some(0.0));
}

#[test]
fn a_slow_card_makes_no_other_slow() {
    let bench = Bench::healthy(2);
    bench.node.fail(1, "nvmlDeviceGetUtilizationRates", "sleep 700");
    assert!(eventually(|| bench.up() == [true, false]), "its values get too old");
    bench.others_stay_young(1);
    bench.node.heal(1, "nvmlDeviceGetUtilizationRates");
    bench.until_all_up(2);
}

#[test]
fn an_older_driver_gives_what_it_has() {
    let node = Node::with_cards(1);
    node.hide(&["nvmlInitWithFlags", "nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetFieldValues"]);
    let bench = Bench::start(node);
    let page = bench.page_where("memory", |page| {
        page.value("sightline_node_gpu_memory_used_bytes", &of_card(0)).is_some()
    });
    assert!(page.value("sightline_node_gpu_memory_reserved_bytes", &of_card(0)).is_none());
    assert!(page.all("sightline_node_gpu_throttle_seconds_total", &[]).is_empty());
    assert!(eventually(|| bench.facts().gpu.status.success), "{:?}", bench.error());
}

#[test]
fn a_node_without_cards_is_well_and_one_without_its_library_is_not() {
    let nowhere = vec![PathBuf::from("/nowhere/libnvidia-ml.so.1")];
    let tree = Tree::small();
    let bench = Bench::start_with(Node::empty(), tree, nowhere.clone(), launch());
    let absent = eventually(|| bench.facts().gpu.status.unsupported.is_some());
    assert!(absent, "{:?}", bench.facts().gpu.status);
    let page = bench.page();
    for state in ["expected", "pci", "nvml", "responding"] {
        assert_eq!(page.value("sightline_node_gpus", &[("state", state)]), Some(0.0), "{state}");
    }
    let tree = Tree::two_socket();
    let bench = Bench::start_with(Node::empty(), tree, nowhere, launch());
    assert!(bench.until_error(ErrorKind::Missing).contains("/nowhere"));
}

#[test]
fn a_driver_of_another_version_is_waited_for() {
    let node = Node::with_cards(1);
    node.fail("sys", "nvmlInit", "LIB_RM_VERSION_MISMATCH");
    let bench = Bench::start(node);
    assert!(bench.until_error(ErrorKind::Protocol).contains("version mismatch"));
    bench.node.heal("sys", "nvmlInit");
    bench.until_all_up(1);
}

#[test]
fn a_driver_that_is_reloaded_is_followed() {
    let bench = Bench::healthy(2);
    let before = bench.holders();
    assert_eq!(before.len(), 1, "one worker");
    bench.node.fail("*", "*", "UNINITIALIZED");
    // Cards that are merely read late are down as well.
    bench.until_error(ErrorKind::Gone);
    assert!(eventually(|| bench.up() == [false, false]));
    bench.node.heal("*", "*");
    bench.until_all_up(2);
    assert_ne!(bench.holders(), before, "it takes a new process");
}

#[test]
fn a_card_that_may_not_be_read_says_so() {
    let bench = Bench::healthy(2);
    bench.node.fail(1, "*", "NO_PERMISSION");
    bench.until_down(1);
    bench.others_stay_young(1);
    assert!(bench.until_error(ErrorKind::Permission).contains("card 1"));
    bench.node.heal(1, "*");
    bench.until_all_up(2);
}

#[test]
fn parts_of_a_split_card_are_told_apart() {
    let bench = Bench::healthy(2);
    for (key, value) in [
        ("1.nvmlDeviceGetMaxMigDeviceCount", "7"),
        ("1/0.nvmlDeviceGetUUID", "MIG-a"),
        ("1/0.nvmlDeviceGetGpuInstanceId", "3"),
        ("1/0.nvmlDeviceGetComputeInstanceId", "0"),
        ("1/0.nvmlDeviceGetMemoryInfo", "20000 5000 100"),
        ("1.nvmlDeviceGetMigMode", "1 1"),
    ] {
        bench.node.set(key, value);
    }
    let part = [("uuid", "MIG-a"), ("gpu_instance", "3"), ("compute_instance", "0")];
    bench.page_where("the part, and the card that is whole", |page| {
        let split = |card| page.value("sightline_node_gpu_mig_enabled", &of_card(card));
        page.value("sightline_node_gpu_memory_used_bytes", &part) == Some(5000.0)
            && (split(0), split(1)) == (Some(0.0), Some(1.0))
    });
}

#[test]
fn a_library_that_crashes_takes_only_the_worker() {
    let bench = Bench::healthy(2);
    bench.node.fail(0, "nvmlDeviceGetPowerUsage", "crash");
    assert!(bench.until_error(ErrorKind::Crashed).contains("signal: 6"));
    assert!(eventually(|| bench.up() == [false, false]), "nothing is frozen");
    let crashes = |facts: Facts| facts.gpu.status.errors[ErrorKind::Crashed.index()];
    assert!(crashes(bench.facts()) > 0);
    bench.node.heal(0, "nvmlDeviceGetPowerUsage");
    bench.until_all_up(2);
}

#[test]
fn cards_that_are_released_are_held_by_nobody() {
    let bench = Bench::healthy(2);
    assert_eq!(bench.holders().len(), 1);
    let time = bench.release().expect("there is a worker");
    assert_eq!(time, bench.config.nvml.release);
    assert_eq!(bench.holders(), [0; 0], "nothing has the library open");
    assert!(bench.until_error(ErrorKind::Gone).contains("released on request"));
    assert_eq!(bench.up(), [false, false]);
    // Work on the cards: they come back otherwise than they went.
    bench.node.set("1.nvmlDeviceGetUUID", "GPU-new");
    bench.handle.attach().expect("the exporter runs");
    let new = [("uuid", "GPU-new")];
    bench.page_where("the card with its new name", |page| {
        page.value("sightline_node_gpu_up", &new) == Some(1.0)
    });
}

#[test]
fn a_release_does_not_wait_for_a_card_that_hangs() {
    let bench = Bench::healthy(2);
    bench.node.fail(0, "nvmlDeviceGetPowerUsage", "hang");
    bench.until_down(0);
    bench.release().expect("there is a worker");
    assert_eq!(bench.holders(), [0; 0], "nothing has the library open");
    bench.release().expect("they are free already");
}

#[test]
fn a_worker_that_does_not_end_is_no_release() {
    let folder = Folder::new();
    let mut launch =
        impostor(&folder, &format!("echo yes >{}\nexec sleep 60", folder.arg("started")));
    launch.patience = gpu::supervisor::Patience {
        release: Duration::from_millis(300),
        ..gpu::supervisor::Patience::default()
    };
    let bench = Bench::start_with(Node::with_cards(1), Tree::two_socket(), Vec::new(), launch);
    assert!(eventually(|| folder.read("started") == "yes\n"), "the worker runs");
    let result = bench.release();
    let Err(gpu::NotReleased::Late(why)) = result else { panic!("{result:?}") };
    assert!(why.contains("has not ended in 300ms"), "{why}");
}

/// A program that is no worker.
fn impostor(folder: &Folder, text: &str) -> Launch {
    use std::os::unix::fs::PermissionsExt;
    let program = folder.write("impostor", &format!("#!/bin/sh\n{text}\n"));
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&program, executable).expect("the file is ours");
    let patience = gpu::supervisor::Patience {
        useless: Duration::from_millis(300),
        end: Duration::from_millis(200),
        kill: PATIENCE,
        release: PATIENCE,
        abandoned: PATIENCE,
        again: (Duration::from_millis(50), Duration::from_millis(200)),
    };
    Launch { program, patience }
}

#[test]
fn a_worker_that_never_says_anything_is_killed_and_followed() {
    let folder = Folder::new();
    let list = folder.arg("pids");
    let launch = impostor(&folder, &format!("echo $$ >>{list}\nexec sleep 60 2>/dev/null"));
    let node = Node::with_cards(1);
    let bench = Bench::start_with(node, Tree::two_socket(), Vec::new(), launch);
    let pids = || -> Vec<u32> {
        folder.read("pids").lines().filter_map(|line| line.parse().ok()).collect()
    };
    assert!(eventually(|| pids().len() >= 3), "{:?} {:?}", pids(), bench.error());
    let lives = |pid: &u32| std::fs::exists(format!("/proc/{pid}/exe")).unwrap_or_default();
    assert!(!lives(&pids()[0]), "the first was killed");
    let error = bench.error().map(|error| error.to_string()).unwrap_or_default();
    assert!(error.contains("library"), "{error}");
}

#[test]
fn a_worker_that_talks_nonsense_is_ended() {
    let folder = Folder::new();
    let launch = impostor(&folder, "echo hello\nexec cat");
    let node = Node::with_cards(1);
    let bench = Bench::start_with(node, Tree::two_socket(), Vec::new(), launch);
    assert!(bench.until_error(ErrorKind::Crashed).contains("hello"), "{:?}", bench.error());
}
