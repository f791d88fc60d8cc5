//! The worker in this process, against the scripted library, request by request.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "a test names the report it wants and shows any other"
)]

mod missing;

use fake_nvml::Node;
use nvml_worker::protocol::{self, Fault, FaultKind, Group, Open, Report, Request, Values};
use nvml_worker::{Ending, run};
use std::io::{BufReader, PipeReader, PipeWriter, Write, pipe};
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::Duration;

struct Worker {
    requests: PipeWriter,
    reports: BufReader<PipeReader>,
    thread: JoinHandle<Ending>,
}

impl Worker {
    fn start() -> Self {
        let (input, requests) = pipe().expect("pipes are to be had");
        let (reports, output) = pipe().expect("pipes are to be had");
        let thread = std::thread::spawn(move || run(input, output));
        Self { requests, reports: BufReader::new(reports), thread }
    }

    /// A worker that has opened the node's library.
    fn open(node: &Node) -> (Self, protocol::Hello) {
        Self::open_with(node, Duration::from_secs(600))
    }

    fn open_with(node: &Node, probe_again: Duration) -> (Self, protocol::Hello) {
        let mut worker = Self::start();
        worker.ask(&open(vec![node.library()], probe_again));
        let Report::Hello(hello) = worker.next() else { panic!("it did not open") };
        (worker, hello)
    }

    fn ask(&mut self, request: &Request) {
        self.requests.write_all(&protocol::to_line(request)).expect("the worker reads");
    }

    /// The next report of any kind.
    fn next(&mut self) -> Report {
        let report = protocol::read(&mut self.reports).expect("a line of the protocol");
        report.expect("the worker runs")
    }

    /// The next report that is not about listening.
    fn answer(&mut self) -> Report {
        loop {
            let report = self.next();
            if !matches!(report, Report::Listening { .. }) {
                return report;
            }
        }
    }

    fn poll(&mut self, card: u32, group: Group) -> Report {
        self.ask(&Request::Poll { card, group });
        self.answer()
    }

    fn fast(&mut self, card: u32) -> protocol::Fast {
        match self.poll(card, Group::Fast) {
            Report::Sample { values: Values::Fast(values), .. } => *values,
            other => panic!("{other:?}"),
        }
    }

    fn slow(&mut self, card: u32) -> protocol::Slow {
        match self.poll(card, Group::Slow) {
            Report::Sample { values: Values::Slow(values), .. } => *values,
            other => panic!("{other:?}"),
        }
    }

    fn fixed(&mut self, card: u32) -> protocol::Fixed {
        match self.poll(card, Group::Fixed) {
            Report::Sample { values: Values::Fixed(values), .. } => *values,
            other => panic!("{other:?}"),
        }
    }

    fn fault(&mut self, card: u32, group: Group) -> Fault {
        match self.poll(card, group) {
            Report::Error { fault, .. } | Report::Failed(fault) => fault,
            other => panic!("{other:?}"),
        }
    }

    /// Ends the input, and says how the worker ended and what its last word was. The output itself
    /// ends only with the process, where a thread hangs.
    fn end(mut self) -> (Ending, Report) {
        drop(self.requests);
        loop {
            let report = protocol::read(&mut self.reports).expect("a line of the protocol");
            if let Some(bye @ Report::Bye { .. }) = report {
                return (self.thread.join().expect("it does not panic"), bye);
            }
            assert!(report.is_some(), "it says goodbye");
        }
    }
}

fn open(libraries: Vec<PathBuf>, probe_again: Duration) -> Request {
    let probe_again_millis = probe_again.as_millis() as u64;
    Request::Open(Open { libraries, probe_again_millis })
}

#[test]
fn a_healthy_card_says_its_names_and_how_it_does() {
    let node = Node::with_cards(8);
    let (mut worker, hello) = Worker::open(&node);
    assert_eq!((hello.cards, hello.driver_version.as_deref()), (8, Some("580.95.05")));
    let fixed = worker.fixed(7);
    assert_eq!(fixed.uuid, "GPU-00000007-5167-4717-8000-000000000007");
    assert_eq!(fixed.pci_bus_id.as_deref(), Some("0000:87:00.0"));
    assert_eq!((fixed.minor, fixed.sm_clock_max_megahertz), (Some(7), Some(1980)));
    let fast = worker.fast(7);
    let memory = fast.memory.expect("it has memory");
    assert_eq!(memory.total, memory.used + memory.free + memory.reserved.expect("known"));
    let times = protocol::ThrottleTimes {
        sw_power_cap: Some(1_500_000_000),
        hw_thermal: Some(250_000_000),
        ..fast.throttle_times.clone()
    };
    let expected = protocol::Fast {
        utilization_percent: Some(50),
        memory_utilization_percent: Some(25),
        memory: Some(memory),
        temperature_celsius: Some(55),
        memory_temperature_celsius: Some(64),
        power_milliwatts: Some(412_345),
        power_limit_milliwatts: Some(700_000),
        energy_millijoules: Some(123_456_007),
        sm_clock_megahertz: Some(1980),
        memory_clock_megahertz: Some(3201),
        throttle_reasons: Some(4),
        throttle_times: times,
        pcie_transmit_bytes: Some(7_000_000_000),
        pcie_receive_bytes: Some(9_000_000_000),
        problems: Vec::new(),
    };
    assert_eq!(fast, expected);
    let (ending, last) = worker.end();
    assert!(matches!(ending, Ending::Clean), "{ending:?}");
    assert_eq!(last, Report::Bye { clean: true });
}

#[test]
fn a_healthy_card_says_what_went_wrong_in_its_life() {
    let node = Node::with_cards(2);
    node.set("1.processes", "42:1000 43:-");
    let (mut worker, _) = Worker::open(&node);
    let slow = worker.slow(1);
    let processes: Vec<_> = slow.processes.iter().map(|p| (p.pid, p.bytes)).collect();
    assert_eq!(processes, [(42, Some(1000)), (43, None)]);
    assert_eq!(slow.links.len(), 18);
    let none = Some(0);
    let errors = protocol::LinkErrors {
        crc_flit: none,
        crc_data: none,
        replay: none,
        recovery: none,
        ecc_data: none,
    };
    assert_eq!(slow.links[17], protocol::Link { link: 17, up: true, errors });
    let ecc = |corrected, uncorrected| protocol::Ecc { corrected, uncorrected };
    let expected = protocol::Slow {
        ecc_volatile: ecc(Some(7), Some(0)),
        ecc_lifetime: ecc(Some(12), Some(1)),
        rows: protocol::Rows {
            corrected: Some(2),
            uncorrected: Some(1),
            pending: Some(false),
            failed: Some(false),
        },
        retired_single_bit: Some(0),
        retired_double_bit: Some(0),
        retire_pending: Some(false),
        recovery_action: Some(0),
        pcie_replays: Some(3),
        pcie_link_width: Some(16),
        pcie_link_width_max: Some(16),
        pcie_link_generation: Some(5),
        links: slow.links.clone(),
        mig_enabled: Some(false),
        instances: Vec::new(),
        processes: slow.processes.clone(),
        problems: Vec::new(),
    };
    assert_eq!(slow, expected);
}

#[test]
fn an_older_driver_is_asked_the_older_way() {
    let node = Node::with_cards(1);
    node.set("driver", "470.10");
    node.set("0.processes", "42:1000");
    node.hide(&[
        "nvmlInitWithFlags",
        "nvmlDeviceGetMemoryInfo_v2",
        "nvmlDeviceGetComputeRunningProcesses_v3",
        "nvmlDeviceGetComputeRunningProcesses_v2",
        "nvmlDeviceGetFieldValues",
    ]);
    let (mut worker, _) = Worker::open(&node);
    let memory = worker.fast(0).memory.expect("the first version of the call");
    assert_eq!((memory.reserved, memory.total), (None, memory.used + memory.free));
    let slow = worker.slow(0);
    assert_eq!(slow.processes.len(), 1);
    assert_eq!(slow.processes[0].bytes, Some(1000));
    assert_eq!(slow.rows, protocol::Rows::default());
    assert!(slow.problems.is_empty());
}

#[test]
fn the_driver_says_which_numbers_its_fields_have() {
    let node = Node::with_cards(1);
    node.set("driver", "570.10");
    node.set("0.field.252", 42);
    let (mut worker, _) = Worker::open(&node);
    assert_eq!(worker.fast(0).throttle_times.hw_thermal, Some(42));
}

#[test]
fn a_lost_card_is_lost_alone_and_comes_back() {
    let node = Node::with_cards(2);
    let (mut worker, _) = Worker::open(&node);
    worker.fast(0);
    node.fail(0, "*", "GPU_IS_LOST");
    assert_eq!(worker.fault(0, Group::Fast).kind, FaultKind::GpuLost);
    assert_eq!(worker.fault(0, Group::Slow).kind, FaultKind::GpuLost);
    worker.fast(1);
    node.heal(0, "*");
    worker.fast(0);
}

#[test]
fn a_card_that_hangs_holds_up_no_other() {
    let node = Node::with_cards(2);
    let (mut worker, _) = Worker::open(&node);
    node.fail(0, "nvmlDeviceGetPowerUsage", "hang");
    worker.ask(&Request::Poll { card: 0, group: Group::Fast });
    for _ in 0..10 {
        worker.fast(1);
    }
    // One more request waits in the card's own queue, the next is refused.
    worker.ask(&Request::Poll { card: 0, group: Group::Fast });
    node.heal(0, "nvmlDeviceGetPowerUsage");
    for _ in 0..2 {
        let answer = worker.answer();
        assert!(matches!(answer, Report::Sample { card: 0, .. }), "{answer:?}");
    }
}

#[test]
fn a_worker_with_a_hung_card_says_so_and_ends() {
    let node = Node::with_cards(1);
    let (mut worker, _) = Worker::open(&node);
    node.fail(0, "nvmlDeviceGetPowerUsage", "hang");
    worker.ask(&Request::Poll { card: 0, group: Group::Fast });
    worker.ask(&Request::Release);
    let (ending, last) = worker.end();
    assert!(matches!(ending, Ending::Hung), "{ending:?}");
    assert_eq!(last, Report::Bye { clean: false });
}

#[test]
fn initialisation_that_hangs_does_not_keep_the_worker_from_ending() {
    let node = Node::with_cards(1);
    node.fail("sys", "nvmlInit", "hang");
    let mut worker = Worker::start();
    worker.ask(&open(vec![node.library()], Duration::ZERO));
    let (ending, _) = worker.end();
    assert!(matches!(ending, Ending::Hung), "{ending:?}");
}

#[test]
fn what_is_refused_says_why() {
    let node = Node::with_cards(1);
    let mut worker = Worker::start();
    assert_eq!(worker.fault(0, Group::Fast).kind, FaultKind::BadRequest);
    worker.ask(&open(vec![node.library()], Duration::ZERO));
    assert!(matches!(worker.answer(), Report::Hello(_)));
    let fault = worker.fault(1, Group::Fast);
    assert_eq!(
        (fault.kind, fault.detail.as_str()),
        (FaultKind::BadRequest, "there is no such card")
    );
    worker.ask(&open(vec![node.library()], Duration::ZERO));
    assert!(matches!(worker.answer(), Report::Failed(Fault { kind: FaultKind::BadRequest, .. })));
    worker.requests.write_all(b"poll card 0\n").expect("the worker reads");
    let (ending, last) = worker.end();
    assert!(matches!(ending, Ending::Garbage(_)), "{ending:?}");
    assert_eq!(last, Report::Bye { clean: true });
}

#[test]
fn failures_to_open_are_told_apart() {
    let node = Node::with_cards(1);
    let missing = node.folder().join("no-such-library.so.1");
    let broken = node.folder().join("nvml.script");
    for (library, how, kind) in [
        (missing.clone(), None, FaultKind::LibraryMissing),
        (broken, None, FaultKind::LibraryMissing),
        (node.library(), Some("DRIVER_NOT_LOADED"), FaultKind::DriverNotLoaded),
        (node.library(), Some("LIB_RM_VERSION_MISMATCH"), FaultKind::VersionMismatch),
        (node.library(), Some("NO_PERMISSION"), FaultKind::NoPermission),
        (node.library(), Some("UNKNOWN"), FaultKind::Driver),
    ] {
        if let Some(how) = how {
            node.fail("sys", "nvmlInit", how);
        }
        let mut worker = Worker::start();
        // A library that is not there is stepped over; what is found speaks for the driver.
        worker.ask(&open(vec![missing.clone(), library], Duration::ZERO));
        let answer = worker.answer();
        let Report::Failed(fault) = answer else { panic!("{answer:?}") };
        assert_eq!(fault.kind, kind, "{fault:?}");
        assert!(
            fault.kind != FaultKind::LibraryMissing || fault.detail.contains("no-such-library")
        );
        worker.end();
    }
}

#[test]
fn cards_that_show_only_when_attached_are_found() {
    let node = Node::empty();
    let (_worker, hello) = Worker::open(&node);
    assert_eq!(hello.cards, 0);
}

#[test]
fn one_call_that_fails_costs_one_value() {
    let node = Node::with_cards(1);
    node.fail(0, "nvmlDeviceGetPowerUsage", "UNKNOWN");
    node.set("0.field.186", "NO_PERMISSION");
    node.set("0.nvmlDeviceGetEnforcedPowerLimit", "NOT_SUPPORTED");
    let (mut worker, _) = Worker::open(&node);
    let fast = worker.fast(0);
    assert_eq!((fast.power_milliwatts, fast.power_limit_milliwatts), (None, None));
    assert_eq!(fast.utilization_percent, Some(50));
    let calls: Vec<_> = fast.problems.iter().map(|p| (p.call.as_str(), p.fault.kind)).collect();
    let expected = [
        ("nvmlDeviceGetFieldValues(186)", FaultKind::NoPermission),
        ("nvmlDeviceGetPowerUsage(0)", FaultKind::Driver),
    ];
    assert_eq!(calls, expected);
}

#[test]
fn a_card_that_allows_nothing_is_an_error() {
    let node = Node::with_cards(1);
    let (mut worker, _) = Worker::open(&node);
    worker.fast(0);
    node.fail(0, "*", "NO_PERMISSION");
    assert_eq!(worker.fault(0, Group::Fast).kind, FaultKind::NoPermission);
    node.heal(0, "*");
    worker.fast(0);
}

#[test]
fn what_a_card_does_not_support_is_not_asked_again_for_a_while() {
    let node = Node::with_cards(1);
    node.set("0.nvmlDeviceGetPowerUsage", "NOT_SUPPORTED");
    node.unset("*.field.186");
    let (mut patient, _) = Worker::open(&node);
    assert_eq!(patient.fast(0).power_milliwatts, None);
    // If it were asked, the answer would be a value, or the field's.
    node.set("0.nvmlDeviceGetPowerUsage", 5);
    node.set("0.field.186", 6);
    assert_eq!(patient.fast(0).power_milliwatts, None);
    let other = Node::with_cards(1);
    other.set("0.nvmlDeviceGetPowerUsage", "NOT_SUPPORTED");
    let (mut eager, _) = Worker::open_with(&other, Duration::ZERO);
    assert_eq!(eager.fast(0).power_milliwatts, Some(420_000));
    other.set("0.nvmlDeviceGetPowerUsage", 5);
    assert_eq!(eager.fast(0).power_milliwatts, Some(5));
}

#[test]
fn a_driver_that_goes_away_fails_the_library() {
    let node = Node::with_cards(1);
    let (mut worker, _) = Worker::open(&node);
    for code in ["UNINITIALIZED", "LIB_RM_VERSION_MISMATCH", "DRIVER_NOT_LOADED"] {
        node.fail(0, "nvmlDeviceGetUtilizationRates", code);
        let report = worker.poll(0, Group::Fast);
        let failed = matches!(&report, Report::Failed(fault) if fault.kind.is_of_library());
        assert!(failed, "{code}: {report:?}");
    }
}

#[test]
fn an_index_that_means_another_card_fails_the_library() {
    let node = Node::with_cards(1);
    let (mut worker, _) = Worker::open(&node);
    worker.fast(0);
    node.fail(0, "*", "GPU_IS_LOST");
    worker.fault(0, Group::Fast);
    node.set("0.nvmlDeviceGetUUID", "GPU-other");
    node.heal(0, "*");
    assert_eq!(worker.fault(0, Group::Fast).kind, FaultKind::CardChanged);
}

#[test]
fn errors_of_each_card_are_told_while_another_is_lost() {
    let node = Node::with_cards(2);
    let (mut worker, _) = Worker::open(&node);
    let mut listening = Vec::new();
    while listening.len() < 2 {
        if let Report::Listening { card, fault: None } = worker.next() {
            listening.push(card);
        }
    }
    node.xid(0, 79);
    assert_eq!(worker.next(), Report::Xid { card: 0, code: 79 });
    node.fail(0, "*", "GPU_IS_LOST");
    let deaf = worker.next();
    let lost = matches!(&deaf, Report::Listening { card: 0, fault: Some(fault) }
        if fault.kind == FaultKind::GpuLost);
    assert!(lost, "{deaf:?}");
    node.xid(1, 31);
    assert_eq!(worker.next(), Report::Xid { card: 1, code: 31 });
    // After a pause, the card that came back is heard again.
    node.heal(0, "*");
    assert_eq!(worker.next(), Report::Listening { card: 0, fault: None });
    node.xid(0, 48);
    assert_eq!(worker.next(), Report::Xid { card: 0, code: 48 });
}

#[test]
fn a_driver_without_events_says_so() {
    let node = Node::with_cards(1);
    node.set("0.nvmlDeviceGetSupportedEventTypes", 2);
    let (mut worker, _) = Worker::open(&node);
    let report = worker.next();
    let unsupported = matches!(&report, Report::Listening { card: 0, fault: Some(fault) }
        if fault.kind == FaultKind::NotSupported);
    assert!(unsupported, "{report:?}");
}

#[test]
fn parts_of_a_split_card_are_read() {
    let node = Node::with_cards(1);
    node.set("0.nvmlDeviceGetMigMode", "1 1");
    node.set("0.nvmlDeviceGetMaxMigDeviceCount", 7);
    node.set("0/2.nvmlDeviceGetUUID", "MIG-a");
    node.set("0/2.nvmlDeviceGetGpuInstanceId", 5);
    node.set("0/2.nvmlDeviceGetComputeInstanceId", 0);
    node.set("0/2.nvmlDeviceGetMemoryInfo", "20000 5000 100");
    let (mut worker, _) = Worker::open(&node);
    let slow = worker.slow(0);
    assert_eq!(slow.mig_enabled, Some(true));
    assert!(slow.problems.is_empty(), "{:?}", slow.problems);
    let [part] = &slow.instances[..] else { panic!("{:?}", slow.instances) };
    assert_eq!((part.uuid.as_str(), part.gpu_instance, part.compute_instance), ("MIG-a", 5, 0));
    assert_eq!(part.memory.map(|memory| memory.free), Some(14_900));
}

#[test]
fn links_count_by_field_where_the_older_call_is_gone() {
    let node = Node::with_cards(1);
    node.hide(&["nvmlDeviceGetNvLinkErrorCounter"]);
    node.set("0.field.161@3", 11);
    node.set("0.field.215@3", 12);
    node.set("0.nvmlDeviceGetNvLinkState.3", 0);
    node.set("0.nvmlDeviceGetNvLinkState.17", "INVALID_ARGUMENT");
    let (mut worker, _) = Worker::open(&node);
    let slow = worker.slow(0);
    assert_eq!(slow.links.len(), 17);
    let link = &slow.links[3];
    assert_eq!((link.up, link.errors.replay, link.errors.recovery), (false, Some(11), Some(12)));
    assert_eq!(slow.links[4].errors, protocol::LinkErrors::default());
    assert!(slow.problems.is_empty(), "{:?}", slow.problems);
}
