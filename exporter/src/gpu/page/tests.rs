//! What the page says of cards.

use super::*;
use crate::facts::Slots;
use crate::gpu::facts::{Library, Stamped};
use crate::gpu::kmsg::KmsgFacts;
use crate::service::group::{GroupFacts, Usage};
use crate::slot::Now;
use node_info::{Cgroup, Found};
use nvml_worker::protocol::{
    Ecc, Fault, FaultKind, Fixed, Hello, Instance, Link, LinkErrors, Process, Rows, ThrottleTimes,
};
use std::sync::Arc;
use std::time::Duration;

fn stamped<T>(value: T, at: Now) -> Option<Stamped<T>> {
    Some(Stamped { value: Arc::new(value), at })
}

fn card(index: u32, at: Now) -> Card {
    let memory = Memory { total: 1000, used: 600, free: 300, reserved: Some(100) };
    let fast = Fast {
        utilization_percent: Some(50),
        memory_utilization_percent: Some(25),
        memory: Some(memory),
        temperature_celsius: Some(55),
        power_milliwatts: Some(412_345),
        energy_millijoules: Some(1500),
        sm_clock_megahertz: Some(1980),
        throttle_reasons: Some(0b100_0100),
        throttle_times: ThrottleTimes { hw_thermal: Some(250_000_000), ..ThrottleTimes::default() },
        pcie_transmit_bytes: Some(7),
        ..Fast::default()
    };
    let slow = Slow {
        ecc_volatile: Ecc { corrected: Some(7), uncorrected: Some(0) },
        ecc_lifetime: Ecc { corrected: Some(12), uncorrected: None },
        rows: Rows { pending: Some(true), ..Rows::default() },
        recovery_action: Some(1),
        pcie_link_width: Some(8),
        links: vec![Link {
            link: 3,
            up: false,
            errors: LinkErrors { replay: Some(4), ..LinkErrors::default() },
        }],
        mig_enabled: Some(true),
        instances: vec![Instance {
            uuid: "MIG-1".to_owned(),
            gpu_instance: 5,
            compute_instance: 0,
            memory: Some(Memory { total: 400, used: 1, free: 399, reserved: None }),
        }],
        processes: vec![
            Process { pid: 42, bytes: Some(100) },
            Process { pid: 43, bytes: None },
            Process { pid: 44, bytes: Some(30) },
            Process { pid: 99, bytes: Some(1) },
        ],
        ..Slow::default()
    };
    let fixed = Fixed {
        uuid: format!("GPU-{index}"),
        name: Some("NVIDIA H200".to_owned()),
        pci_bus_id: Some(format!("0000:{}7:00.0", index + 1)),
        minor: Some(u64::from(index)),
        sm_clock_max_megahertz: Some(1980),
        ..Fixed::default()
    };
    Card {
        uuid: Some(fixed.uuid.clone()),
        fast: stamped(fast, at),
        slow: stamped(slow, at),
        fixed: stamped(fixed, at),
        ..Card::new(index)
    }
}

struct Scene {
    slots: Slots,
    config: Config,
    now: Now,
}

impl Scene {
    fn new() -> Self {
        let services = ["prefill", "decode", "stopped"]
            .map(|name| format!("{name},unit={name}.service").parse().expect("a service"));
        let config = Config { services: services.into(), ..Config::default() };
        Self { slots: Slots::new(&config), config, now: Now::read() }
    }

    fn cards(&self, cards: Vec<Card>) {
        let hello = Hello {
            library: String::new(),
            driver_version: Some("580.95.05".to_owned()),
            library_version: None,
            cuda_version: None,
            cards: cards.len() as u32,
        };
        self.slots.gpu.amend(GpuFacts {
            library: Library::Open,
            hello: Some(hello),
            cards,
            interval: Duration::from_secs(1),
            slow_interval: Duration::from_secs(10),
        });
    }

    fn bus(&self, nodes: &[Option<u32>]) {
        let entry = |(index, numa_node): (usize, &Option<u32>)| node_info::Card {
            address: format!("0000:{}7:00.0", index + 1),
            device: None,
            numa_node: *numa_node,
            link: node_info::Link::default(),
            link_max: node_info::Link::default(),
            aer: None,
        };
        let entries = nodes.iter().enumerate().map(entry).collect();
        self.slots.pci.begin(self.now);
        self.slots.pci.finish(self.now, Ok(Found { entries, problems: Vec::new() }));
    }

    fn page(&self, now: Now) -> String {
        let mut page = Page::new();
        gpu(&self.slots.view(now), &self.config, &mut page);
        page.render()
    }
}

/// The value of a series, whose labels are written as on the page.
fn value(page: &str, series: &str) -> Option<f64> {
    let lines = page.lines().filter_map(|line| line.strip_prefix("sightline_node_"));
    let mut found = lines.filter_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    found.next().map(|value| value.parse().expect("a number"))
}

#[test]
fn values_have_their_units() {
    let scene = Scene::new();
    scene.cards(vec![card(0, scene.now)]);
    let page = scene.page(scene.now);
    let of_card = "gpu=\"0\",uuid=\"GPU-0\"";
    for (family, labels, expected) in [
        ("up", "", 1.0),
        ("utilization_ratio", "", 0.5),
        ("memory_copy_utilization_ratio", "", 0.25),
        ("memory_used_bytes", "", 600.0),
        ("memory_reserved_bytes", "", 100.0),
        ("temperature_celsius", ",sensor=\"gpu\"", 55.0),
        ("power_watts", "", 412.345),
        ("energy_joules_total", "", 1.5),
        ("clock_hertz", ",domain=\"sm\"", 1.98e9),
        ("clock_max_hertz", ",domain=\"sm\"", 1.98e9),
        ("throttle_active", ",reason=\"sw_power_cap\"", 1.0),
        ("throttle_active", ",reason=\"hw_thermal\"", 1.0),
        ("throttle_active", ",reason=\"hw_slowdown\"", 0.0),
        ("throttle_seconds_total", ",reason=\"hw_thermal\"", 0.25),
        ("pcie_transmit_bytes_total", "", 7.0),
        ("pcie_link_width", "", 8.0),
        ("nvlink_up", ",link=\"3\"", 0.0),
        ("nvlink_errors_total", ",link=\"3\",kind=\"replay\"", 4.0),
        ("ecc_errors_total", ",kind=\"corrected\"", 7.0),
        ("ecc_lifetime_errors", ",kind=\"corrected\"", 12.0),
        ("row_remap_pending", "", 1.0),
        ("recovery_action", "", 1.0),
        ("mig_enabled", "", 1.0),
    ] {
        let series = format!("gpu_{family}{{{of_card}{labels}}}");
        assert_eq!(value(&page, &series), Some(expected), "{series}\n{page}");
    }
    let part = "gpu_memory_total_bytes{gpu=\"0\",uuid=\"MIG-1\",gpu_instance=\"5\",\
                compute_instance=\"0\"}";
    assert_eq!(value(&page, part), Some(400.0), "{page}");
    for absent in ["pcie_receive", "power_limit", "row_remaps", "sensor=\"memory\"", "NaN"] {
        assert!(!page.contains(absent), "{absent}: nobody said it\n{page}");
    }
}

#[test]
fn a_card_says_where_it_sits() {
    let scene = Scene::new();
    scene.cards(vec![card(0, scene.now), card(1, scene.now)]);
    scene.bus(&[Some(1), None]);
    let page = scene.page(scene.now);
    let info = |index, node| {
        format!(
            "gpu_info{{gpu=\"{index}\",uuid=\"GPU-{index}\",name=\"NVIDIA H200\",\
             pci_bus_id=\"0000:{}7:00.0\",numa_node=\"{node}\",driver_version=\"580.95.05\",\
             vbios_version=\"unknown\",minor=\"{index}\"}}",
            index + 1
        )
    };
    assert_eq!(value(&page, &info(0, "1")), Some(1.0), "{page}");
    assert_eq!(value(&page, &info(1, "unknown")), Some(1.0), "{page}");
}

#[test]
fn gauges_of_a_card_that_is_lost_or_stale_are_gone_and_counters_stay() {
    let scene = Scene::new();
    let mut lost = card(0, scene.now);
    lost.fault = Some(Fault { kind: FaultKind::GpuLost, detail: "gone".to_owned() });
    lost.xids.count(79, scene.now.wall);
    scene.cards(vec![lost, card(1, scene.now)]);
    let page = scene.page(scene.now);
    assert_eq!(value(&page, "gpu_up{gpu=\"0\",uuid=\"GPU-0\"}"), Some(0.0));
    assert_eq!(value(&page, "gpu_up{gpu=\"1\",uuid=\"GPU-1\"}"), Some(1.0));
    let gauges = |page: &str, card: u32| {
        ["utilization_ratio", "power_watts", "throttle_active", "recovery_action", "nvlink_up"]
            .map(|family| page.contains(&format!("node_gpu_{family}{{gpu=\"{card}\"")))
    };
    assert_eq!((gauges(&page, 0), gauges(&page, 1)), ([false; 5], [true; 5]));
    assert_eq!(value(&page, "gpu_energy_joules_total{gpu=\"0\",uuid=\"GPU-0\"}"), Some(1.5));
    let later = scene.page(scene.now + Duration::from_secs(4));
    assert_eq!(value(&later, "gpu_up{gpu=\"1\",uuid=\"GPU-1\"}"), Some(0.0));
    assert_eq!(gauges(&later, 1), [false; 5]);
    assert_eq!(value(&later, "gpus{state=\"responding\"}"), Some(0.0));
    assert!(later.contains("node_gpu_info{gpu=\"1\""), "a constant stays");
}

#[test]
fn cards_are_counted_in_four_ways() {
    let mut scene = Scene::new();
    let counts = |scene: &Scene| {
        let page = scene.page(scene.now);
        ["expected", "pci", "nvml", "responding"]
            .map(|state| value(&page, &format!("gpus{{state=\"{state}\"}}")))
    };
    // Before the bus was read, nobody knows how many there should be.
    assert_eq!(counts(&scene), [None, None, Some(0.0), Some(0.0)]);
    scene.slots.pci.unsupported("no bus");
    assert_eq!(counts(&scene), [Some(0.0), Some(0.0), Some(0.0), Some(0.0)]);
    scene.bus(&[None; 8]);
    let mut mute = card(1, scene.now);
    mute.fast = None;
    scene.cards(vec![card(0, scene.now), mute]);
    assert_eq!(counts(&scene), [Some(8.0), Some(8.0), Some(2.0), Some(1.0)]);
    scene.config.expect_gpus = Some(4);
    assert_eq!(counts(&scene)[0], Some(4.0));
}

#[test]
fn errors_count_from_nothing_by_source() {
    let scene = Scene::new();
    let mut one = card(0, scene.now);
    let at = |seconds| std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    one.xids.count(79, at(500));
    one.xids.count(8, at(600));
    scene.cards(vec![one]);
    let series = |xid: &str, source: &str| {
        format!(
            "gpu_xid_errors_total{{gpu=\"0\",uuid=\"GPU-0\",xid=\"{xid}\",source=\"{source}\"}}"
        )
    };
    let page = scene.page(scene.now);
    assert_eq!(value(&page, &series("79", "nvml")), Some(1.0), "{page}");
    assert_eq!(value(&page, &series("48", "nvml")), Some(0.0));
    assert_eq!(value(&page, &series("8", "nvml")), Some(1.0));
    assert!(!page.contains("source=\"kmsg\""), "nobody could read the log");
    let mut log = KmsgFacts::default();
    let logged = log.cards.entry("0000:17:00".to_owned()).or_default();
    logged.count(79, at(400));
    logged.count(79, at(900));
    for code in 1000..1100 {
        logged.count(code, at(950));
    }
    scene.slots.kmsg.begin(scene.now);
    scene.slots.kmsg.finish(scene.now, Ok(log));
    let page = scene.page(scene.now);
    assert_eq!(value(&page, &series("79", "kmsg")), Some(2.0));
    assert_eq!(value(&page, &series("79", "nvml")), Some(1.0));
    assert_eq!(value(&page, &series("48", "kmsg")), Some(0.0));
    let last = "gpu_xid_last_timestamp_seconds{gpu=\"0\",uuid=\"GPU-0\",xid=\"79\"}";
    assert_eq!(value(&page, last), Some(900.0));
    assert!(value(&page, &series("other", "kmsg")).expect("a bound") > 30.0);
    let codes = page.lines().filter(|line| line.contains("xid_errors_total{")).count();
    assert!(codes <= 2 * 64, "{codes}");
}

#[test]
fn device_memory_of_services_is_that_of_their_processes() {
    let scene = Scene::new();
    scene.cards(vec![card(0, scene.now)]);
    let group = |pids: &[u32]| Usage {
        group: Some(Cgroup { processes: Some(pids.to_vec()), ..Cgroup::default() }),
        ..Usage::default()
    };
    let groups = [("prefill", group(&[42, 43, 44])), ("decode", group(&[7]))];
    let groups = groups.map(|(name, usage)| (name.to_owned(), usage));
    scene.slots.cgroup.begin(scene.now);
    scene.slots.cgroup.finish(scene.now, Ok(GroupFacts(groups.into())));
    let page = scene.page(scene.now);
    let bytes = |service| {
        let labels = format!("{{gpu=\"0\",uuid=\"GPU-0\",service=\"{service}\"}}");
        value(&page, &format!("gpu_process_memory_bytes{labels}"))
    };
    assert_eq!(bytes("prefill"), Some(130.0));
    assert_eq!(bytes("decode"), Some(0.0));
    assert_eq!(bytes("stopped"), None);
}

#[test]
fn a_card_that_never_said_its_name_is_there_and_down() {
    let scene = Scene::new();
    scene.cards(vec![Card::new(0), Card::new(1)]);
    let page = scene.page(scene.now);
    assert_eq!(value(&page, "gpu_up{gpu=\"0\",uuid=\"unknown\"}"), Some(0.0), "{page}");
    assert_eq!(value(&page, "gpu_up{gpu=\"1\",uuid=\"unknown\"}"), Some(0.0));
}
