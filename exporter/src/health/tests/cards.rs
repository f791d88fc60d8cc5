use std::sync::Arc;

use nvml_worker::protocol::{Ecc, Fast, Fault, FaultKind, Memory, Problem, Rows, Slow};

use super::*;
use crate::gpu::facts::Stamped;
use crate::gpu::{Card, GpuFacts, Library};

const CARD: &str = "GPU-a";

impl World {
    /// One card, as `change` leaves it; read just now.
    fn card(&self, change: impl FnOnce(&mut Fast, &mut Slow)) {
        let (mut fast, mut slow) = (Fast::default(), Slow::default());
        change(&mut fast, &mut slow);
        let mut card = Card::new(0);
        card.uuid = Some(CARD.to_owned());
        card.fast = Some(Stamped { value: Arc::new(fast), at: self.now });
        card.slow = Some(Stamped { value: Arc::new(slow), at: self.now });
        card.listening = Some(Ok(()));
        self.cards(Library::Open, vec![card]);
    }

    fn cards(&self, library: Library, cards: Vec<Card>) {
        let hello = nvml_worker::protocol::Hello {
            cards: u32::try_from(cards.len()).expect("few"),
            library: String::new(),
            driver_version: None,
            library_version: None,
            cuda_version: None,
        };
        let facts = GpuFacts {
            library,
            hello: Some(hello),
            cards,
            interval: SECOND,
            slow_interval: SECOND * 10,
        };
        self.slots.gpu.finish(self.now, Ok(facts));
    }
}

fn fault(kind: FaultKind, detail: &str) -> Fault {
    Fault { kind, detail: detail.to_owned() }
}

#[test]
fn as_many_cards_as_expected() {
    let mut world = World::new(&[]);
    world.config.expect_gpus = Some(1);
    world.card(|_, _| {});
    assert_eq!(world.says(HealthCheck::GpuPresent, NODE), Outcome::Pass);
    world.config.expect_gpus = Some(2);
    assert!(fails(&world.says(HealthCheck::GpuPresent, NODE), "the driver has 1 of 2"));
    let missing = fault(FaultKind::LibraryMissing, "libnvidia-ml.so.1: not found");
    world.cards(Library::Failed(missing), vec![]);
    assert!(fails(&world.says(HealthCheck::GpuPresent, NODE), "libnvidia-ml.so.1"));
    world.cards(Library::Released(world.now), vec![]);
    assert!(unknown(&world.says(HealthCheck::GpuPresent, NODE), "released on request"));
    world.config.expect_gpus = None;
    assert_eq!(world.says(HealthCheck::GpuPresent, NODE), Outcome::Pass, "none on the bus");
    world.config.nvml.off = true;
    assert!(world.lacks(HealthCheck::GpuPresent) && world.lacks(HealthCheck::GpuResponding));
}

#[test]
fn a_card_answers_or_says_why_not() {
    let mut world = World::new(&[]);
    world.card(|_, _| {});
    assert_eq!(world.says(HealthCheck::GpuResponding, CARD), Outcome::Pass);
    world.pass(4);
    let (healthy, judged) = world.ask(HealthCheck::GpuResponding, CARD);
    assert!(!healthy && fails(&judged.outcome, "4.0 s ago"), "{judged:?}");
    let mut card = Card::new(0);
    card.uuid = Some(CARD.to_owned());
    card.busy_since = Some(world.now);
    world.cards(Library::Open, vec![card.clone()]);
    assert!(unknown(&world.says(HealthCheck::GpuResponding, CARD), "no answer yet"));
    card.fault = Some(fault(FaultKind::GpuLost, "GPU is lost"));
    world.cards(Library::Open, vec![card]);
    assert!(fails(&world.says(HealthCheck::GpuResponding, CARD), "GPU is lost"));
}

#[test]
fn what_the_driver_and_the_memory_of_a_card_say() {
    use HealthCheck::{GpuEcc, GpuRecovery, GpuRowRemap};
    let mut world = World::new(&[]);
    world.card(|_, _| {});
    assert!(world.lacks(GpuRecovery) && world.lacks(GpuEcc) && world.lacks(GpuRowRemap));
    for (action, why) in [(1, "a reset of the card"), (2, "reboot"), (99, "action 99")] {
        world.card(|_, slow| slow.recovery_action = Some(action));
        assert!(fails(&world.says(GpuRecovery, CARD), why), "{action}");
    }
    let errors = |world: &World, uncorrected| {
        world.card(|_, slow| {
            slow.recovery_action = Some(0);
            slow.ecc_volatile = Ecc { corrected: Some(9), uncorrected: Some(uncorrected) };
            slow.rows = Rows { pending: Some(false), failed: Some(false), ..Rows::default() };
        });
    };
    errors(&world, 5);
    assert!(world.judge().healthy, "errors of before are no news");
    errors(&world, 6);
    assert!(fails(&world.says(GpuEcc, CARD), "new uncorrected"));
    world.pass(601);
    errors(&world, 6);
    assert_eq!(world.says(GpuEcc, CARD), Outcome::Pass);
    let rows = |pending, failed| Rows { pending, failed, ..Rows::default() };
    world.card(|_, slow| slow.rows = rows(Some(true), Some(true)));
    assert!(fails(&world.says(GpuRowRemap, CARD), "waits for a reset"));
    assert!(fails(&world.says(GpuEcc, CARD), "could not be remapped"));
    world.card(|_, slow| slow.retire_pending = Some(true));
    assert!(fails(&world.says(GpuRowRemap, CARD), "to be retired"));
}

#[test]
fn what_could_not_be_read_is_unknown_and_fails_in_the_end() {
    use HealthCheck::{GpuEcc, GpuRecovery, GpuRowRemap};
    let mut world = World::new(&[]);
    let problem = |call: &str| {
        let fault = fault(FaultKind::Timeout, &format!("{call}: timed out"));
        Problem { call: call.to_owned(), fault }
    };
    let fields = |world: &World, action| {
        world.card(|_, slow| {
            slow.recovery_action = action;
            slow.ecc_volatile.uncorrected = Some(0);
            slow.problems = match action {
                Some(_) => Vec::new(),
                None => vec![problem("nvmlDeviceGetFieldValues(0)")],
            };
        });
    };
    fields(&world, Some(0));
    assert!(world.judge().healthy);
    assert_eq!(world.says(GpuRecovery, CARD), Outcome::Pass);
    assert!(world.lacks(GpuRowRemap), "the card has no such thing");
    fields(&world, None);
    for check in [GpuRecovery, GpuEcc, GpuRowRemap] {
        assert!(unknown(&world.says(check, CARD), "FieldValues(0): timed out"), "{check:?}");
    }
    world.pass(3600);
    fields(&world, None);
    let (healthy, judged) = world.ask(GpuRecovery, CARD);
    assert!(!healthy && !judged.passes, "{judged:?}");
    // What is there still counts, whatever else is missing.
    world.card(|_, slow| {
        slow.problems = vec![problem("nvmlDeviceGetTotalEccErrors(1)")];
        slow.rows.failed = Some(true);
    });
    assert!(fails(&world.says(GpuEcc, CARD), "could not be remapped"));
    // A problem of something else is none of these checks'.
    world.card(|_, slow| slow.problems = vec![problem("nvmlDeviceGetTotalEccErrors(2)")]);
    assert!(world.lacks(GpuEcc) && world.lacks(GpuRecovery));
}

#[test]
fn errors_count_for_a_while_by_their_severity() {
    let mut world = World::new(&[]);
    let mut card = Card::new(0);
    card.uuid = Some(CARD.to_owned());
    world.cards(Library::Open, vec![card.clone()]);
    assert!(unknown(&world.says(HealthCheck::GpuXid, CARD), "neither the driver nor"));
    card.listening = Some(Ok(()));
    card.xids.count(31, world.now.wall);
    world.cards(Library::Open, vec![card.clone()]);
    let by = |world: &mut World, severity| {
        let verdict = world.judge();
        let mut own = verdict.checks.into_iter().filter(|j| j.check == HealthCheck::GpuXid);
        own.find(|judged| judged.severity == severity).expect("both are asked").outcome
    };
    assert_eq!(by(&mut world, CheckSeverity::Critical), Outcome::Pass);
    assert!(fails(&by(&mut world, CheckSeverity::Warning), "Xid 31, 0 s ago"));
    world.pass(601);
    assert_eq!(by(&mut world, CheckSeverity::Warning), Outcome::Pass);
    card.xids.count(79, world.now.wall);
    world.cards(Library::Open, vec![card]);
    assert!(fails(&by(&mut world, CheckSeverity::Critical), "Xid 79"));
}

#[test]
fn heat_counts_after_a_minute_and_the_power_limit_never() {
    let mut world = World::new(&[]);
    let hot = |world: &World, reason| {
        world.card(|fast, _| {
            fast.throttle_reasons = Some(crate::gpu::page::throttle_bit(reason));
        });
    };
    use metric_catalog::labels::ThrottleReason::{HwThermal, SwPowerCap};
    hot(&world, HwThermal);
    assert_eq!(world.says(HealthCheck::GpuThermal, CARD), Outcome::Pass);
    world.pass(61);
    hot(&world, HwThermal);
    assert!(fails(&world.says(HealthCheck::GpuThermal, CARD), "hw_thermal for 61 s"));
    hot(&world, SwPowerCap);
    assert_eq!(world.says(HealthCheck::GpuThermal, CARD), Outcome::Pass);
}

#[test]
fn lanes_count_while_the_card_works() {
    let mut world = World::new(&[]);
    for (percent, width, passes) in [(0, 8, true), (50, 8, false), (50, 16, true)] {
        world.card(|fast, slow| {
            fast.utilization_percent = Some(percent);
            (slow.pcie_link_width, slow.pcie_link_width_max) = (Some(width), Some(16));
        });
        let outcome = world.says(HealthCheck::GpuPcieLink, CARD);
        assert!(if passes { outcome == Outcome::Pass } else { fails(&outcome, "8 of 16") });
    }
}

#[test]
fn memory_that_nobody_owns_counts() {
    let mut world = World::new(&[]);
    let full = |world: &World, pid: Option<u32>| {
        world.card(|fast, slow| {
            let used = 140 * GIB;
            let free = GIB / 2;
            fast.memory = Some(Memory { total: used + free, used, free, reserved: None });
            slow.processes = pid
                .map(|pid| nvml_worker::protocol::Process { pid, bytes: None })
                .into_iter()
                .collect();
        });
    };
    full(&world, Some(7));
    assert_eq!(world.says(HealthCheck::GpuMemory, CARD), Outcome::Pass);
    full(&world, None);
    assert!(fails(&world.says(HealthCheck::GpuMemory, CARD), "150.3 GB are held by no service"));
}
