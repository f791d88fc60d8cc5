//! Cost of a scrape, beside Debian's node exporter: `scripts/bench.sh exporter`.
//!
//! Both read the same generated node (2 sockets, 192 CPUs, 8 cards, 2 RDMA ports) and answer the
//! same client over one connection each, in turns. Processor time is that of all threads as the
//! kernel counts it; latency is the client's. Then the same with a card that hangs in the driver, a
//! system bus and a health URL that accept and never answer.
//!
//! Without `prometheus-node-exporter` there is nothing to compare with: it says so, and still
//! judges what needs no comparison. Ends with 1 where a bar does not hold.
#![expect(clippy::print_stdout, reason = "it prints what it measures")]
#![expect(clippy::disallowed_methods, reason = "it measures and waits in real time")]

mod client;
mod started;

use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use client::Client;
use fake_node::{Group, Tree};
use metric_catalog::node as catalog;
use started::{Started, free_port};

const ROUNDS: usize = 5;
/// Scrapes of one exporter in a round, after some that do not count.
const SCRAPES: usize = 200;
const WARM: usize = 20;
/// How long the exporters are left alone, to see what they do by themselves.
const IDLE: Duration = Duration::from_secs(10);
/// Debian's name of the other exporter.
const OTHER: &str = "prometheus-node-exporter";
/// What of it reads what ours reads.
const COLLECTORS: [&str; 6] =
    ["meminfo", "meminfo_numa", "pressure", "vmstat", "zoneinfo", "infiniband"];
/// Numbers that both show, by its names and by ours: they must be the same.
const SAME: [(&str, &str, &str); 8] = [
    ("numa_MemTotal{node=\"0\"}", catalog::NUMA_MEMORY_TOTAL.name(), "{numa_node=\"0\"}"),
    ("numa_MemFree{node=\"1\"}", catalog::NUMA_MEMORY_FREE.name(), "{numa_node=\"1\"}"),
    ("numa_FilePages{node=\"1\"}", catalog::NUMA_MEMORY_FILE.name(), "{numa_node=\"1\"}"),
    ("numa_AnonPages{node=\"0\"}", catalog::NUMA_MEMORY_ANON.name(), "{numa_node=\"0\"}"),
    (
        "numa_numa_miss_total{node=\"0\"}",
        catalog::NUMA_PAGE_ALLOCATIONS.name(),
        "{numa_node=\"0\",outcome=\"miss\"}",
    ),
    (
        "node_pressure_memory_stalled_seconds_total",
        catalog::PRESSURE_STALLED.name(),
        "{resource=\"memory\"}",
    ),
    (
        "port_data_transmitted_bytes_total{device=\"mlx5_1\",port=\"1\"}",
        catalog::RDMA_TRANSMIT.name(),
        "{device=\"mlx5_1\",port=\"1\",numa_node=\"1\"}",
    ),
    (
        "infiniband_rate_bytes_per_second{device=\"mlx5_0\",port=\"1\"}",
        catalog::RDMA_PORT_RATE.name(),
        "{device=\"mlx5_0\",port=\"1\",numa_node=\"0\"}",
    ),
];
const CARDS: usize = 8;
/// The card that hangs.
const HUNG: usize = 3;
const GROUP: &str = "/system.slice/server.service";

fn main() -> ExitCode {
    let tree = Tree::two_socket();
    let nodes = vec![(0, 150 << 30, 1 << 30), (1, 0, 0)];
    tree.set_group(GROUP, &Group { nodes, mems: "0-1".into(), ..Group::default() });
    let cards = fake_nvml::Node::with_cards(CARDS);
    let mut judged = Judged::default();
    quiet(&tree, &cards, &mut judged);
    hung(&tree, &cards, &mut judged);
    judged.end()
}

/// Ours and the other one, side by side.
fn quiet(tree: &Tree, cards: &fake_nvml::Node, judged: &mut Judged) {
    let mut ours = ours("sightline-exporter", tree, cards, &[], None);
    wait(&ours, "all cards", |page| (0..CARDS).all(|card| up(page, card) == Some(true)));
    let mut other = node_exporter("node exporter", tree, &[]);
    // Its largest collector by far; ours has nothing like it.
    let mut with_cpu = node_exporter("node exporter, and cpu", tree, &["cpu"]);
    if let Some(other) = &other {
        agree(&Client::new(ours.address).scrape(), &Client::new(other.address).scrape());
    }
    let others = other.iter_mut().chain(with_cpu.as_mut());
    let mut all: Vec<&mut Started> = std::iter::once(&mut ours).chain(others).collect();
    for _ in 0..ROUNDS {
        for exporter in &mut all {
            exporter.round(WARM, SCRAPES);
        }
    }
    println!("One client, {SCRAPES} scrapes a round, {ROUNDS} rounds, in turns:");
    for exporter in &all {
        println!("  {}", exporter.line());
    }
    println!("\nLeft alone for {} s, processor time a second:", IDLE.as_secs());
    let before: Vec<_> = all.iter().map(|exporter| exporter.spent()).collect();
    std::thread::park_timeout(IDLE);
    let mut waits = 0.0;
    for (exporter, before) in all.iter().zip(before) {
        let spent = exporter.spent() - before;
        let [own, child, waiting] = spent.0.map(|seconds| seconds / IDLE.as_secs_f64() * 1e3);
        waits += waiting;
        println!("  {:<26} {own:6.2} ms, children {child:6.2} ms", exporter.name);
    }
    println!(
        "  Not counted: {waits:.0} ms of waiting for Xids, where a driver blocks and the stand-in \
         looks at its script again and again.\n"
    );
    judged.bar("RSS with 8 cards and the child, MiB", ours.resident(), 20.0);
    let Some(other) = &other else {
        println!("SKIP ratios: {OTHER} is not installed (apt-get install {OTHER})");
        return;
    };
    let ratio = |of: fn(&Started) -> f64| of(&ours) / of(other);
    judged.bar("processor time of a scrape, of theirs", ratio(Started::cpu), 0.1);
    judged.bar("p50 of a scrape, of theirs", ratio(|one| one.quantile(0.5)), 0.1);
    println!("{:<6} p99 of a scrape, of theirs: {:.3}", "", ratio(|one| one.quantile(0.99)));
    println!("{:<6} resident memory, of theirs: {:.3}", "", ratio(Started::resident));
}

/// Ours alone, with everything hung that can hang.
fn hung(tree: &Tree, cards: &fake_nvml::Node, judged: &mut Judged) {
    let folder = tree.path().join("dev");
    let bus = UnixListener::bind(folder.join("bus")).expect("a socket in the tree");
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}/health", silent.local_addr().expect("it listens"));
    // Whoever asks is accepted and left waiting, until this program ends.
    std::thread::spawn(move || hold(bus.incoming()));
    std::thread::spawn(move || hold(silent.incoming()));
    let service = format!("server,unit=server.service,url={url}");
    let bus = format!("unix:path={}", folder.join("bus").display());
    let service =
        ["--service", service.as_str(), "--interval", "probe=1s", "--interval", "systemd=1s"];
    let mut ours = ours("with all that hung", tree, cards, &service, Some(&bus));
    cards.fail(HUNG, "*", "hang");
    let failed = format!("{}{{collector=\"systemd\"}} 0", catalog::COLLECTOR_SUCCESS.name());
    let silent = format!("{}{{service=\"server\"}} 0", catalog::SERVICE_PROBE_SUCCESS.name());
    wait(&ours, "the hung card is down, the bus has timed out, and so has the probe", |page| {
        let says = |series: &String| page.lines().any(|line| line == series);
        up(page, HUNG) == Some(false) && says(&failed) && says(&silent)
    });
    for _ in 0..ROUNDS {
        ours.round(WARM, SCRAPES);
    }
    println!("\nOne card hung, system bus and health URL silent:\n  {}", ours.line());
    judged.bar("p99 of a scrape while all that hangs, ms", ours.quantile(0.99) * 1e3, 10.0);
    cards.heal(HUNG, "*");
}

/// Accepts, and keeps what it accepted.
fn hold<T>(incoming: impl Iterator<Item = T>) {
    let mut held = Vec::new();
    for one in incoming {
        held.push(one);
    }
}

fn ours(
    name: &'static str,
    tree: &Tree,
    cards: &fake_nvml::Node,
    more: &[&str],
    bus: Option<&str>,
) -> Started {
    let path = |flag: &str, path: std::path::PathBuf| [flag.to_owned(), path.display().to_string()];
    let mut command = Command::new(env!("CARGO_BIN_EXE_sightline-exporter"));
    command
        .args(["--listen", "127.0.0.1:0", "--log-level", "error"])
        .args(path("--path.procfs", tree.procfs()))
        .args(path("--path.sysfs", tree.sysfs()))
        .args(path("--path.cgroupfs", tree.cgroupfs()))
        .args(path("--path.kmsg", tree.path().join("dev/kmsg")))
        .args(path("--nvml.library", cards.library()))
        .args(more)
        .env_clear();
    if let Some(bus) = bus {
        command.env("DBUS_SYSTEM_BUS_ADDRESS", bus);
    } else {
        command.args(["--service", &format!("server,cgroup={GROUP}")]);
    }
    Started::told(name, command)
}

/// `None` where it is not installed.
fn node_exporter(name: &'static str, tree: &Tree, more: &[&str]) -> Option<Started> {
    let port = free_port();
    let mut command = Command::new(OTHER);
    command
        .arg("--collector.disable-defaults")
        .args(COLLECTORS.iter().chain(more).map(|name| format!("--collector.{name}")))
        .arg(format!("--path.procfs={}", tree.procfs().display()))
        .arg(format!("--path.sysfs={}", tree.sysfs().display()))
        .arg(format!("--web.listen-address=127.0.0.1:{port}"))
        .stderr(Stdio::null());
    Started::at(name, command, ([127, 0, 0, 1], port).into())
}

/// Whether both read the same from the same files.
fn agree(ours: &str, theirs: &str) {
    // Whole lines of ours; of theirs, names begin differently from collector to collector.
    let value = |page: &str, series: &str| {
        let mut lines = page.lines().filter(|line| !line.starts_with('#'));
        let value =
            lines.find_map(|line| line.rsplit_once(' ').filter(|(s, _)| s.ends_with(series)));
        let value = value.and_then(|(_, value)| value.parse::<f64>().ok());
        value.unwrap_or_else(|| panic!("no {series}\n{page}"))
    };
    for (there, name, labels) in SAME {
        let (there, here) = (value(theirs, there), value(ours, &format!("{name}{labels}")));
        assert!((there - here).abs() <= there.abs() * 1e-12, "{name}: {there} is not {here}");
    }
    println!("{} numbers that both show are the same.", SAME.len());
}

/// Whether a card answers; `None` where it is not on the page.
fn up(page: &str, card: usize) -> Option<bool> {
    let series = format!("{}{{gpu=\"{card}\",", catalog::GPU_UP.name());
    let line = page.lines().find(|line| line.starts_with(&series))?;
    Some(line.ends_with(" 1"))
}

/// Waits until a page says what is wanted.
fn wait(exporter: &Started, what: &str, wanted: impl Fn(&str) -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    let mut client = Client::new(exporter.address);
    loop {
        let page = client.scrape();
        if wanted(&page) {
            return;
        }
        assert!(Instant::now() < end, "never: {what}\n{page}");
        std::thread::park_timeout(Duration::from_millis(50));
    }
}

/// What was promised, and what came of it.
#[derive(Default)]
struct Judged {
    broken: usize,
}

impl Judged {
    fn bar(&mut self, what: &str, value: f64, most: f64) {
        let holds = value <= most;
        self.broken += usize::from(!holds);
        let word = if holds { "holds" } else { "BROKEN" };
        println!("{word:<6} {what}: {value:.3} (at most {most})");
    }

    fn end(&self) -> ExitCode {
        if self.broken == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}
