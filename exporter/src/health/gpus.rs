//! Checks of cards.

use std::collections::BTreeSet;
use std::time::Duration;

use metric_catalog::labels::ThrottleReason;
use nvml_worker::Wanted;
use nvml_worker::protocol::{Fast, Slow};

use super::{Findings, History, Input, NODE, Outcome, missing};
use crate::gpu::page::{pids, throttle_bit};
use crate::gpu::pci::on_bus;
use crate::gpu::{Card, GpuFacts, Library};

/// How long a card may be slowed down before that counts.
const SLOWED: Duration = Duration::from_secs(60);

const GB: f64 = 1e9;

/// As many cards as are expected: by the configuration, else by what the bus shows.
pub(super) fn present(input: &Input<'_>, _: &mut History) -> Findings {
    if input.config.nvml.off {
        return Findings::Of(Vec::new());
    }
    let pci = &input.facts.pci;
    let Some(expected) = input.config.expect_gpus.or_else(|| on_bus(pci)) else {
        return Findings::Of(vec![(NODE.to_owned(), Outcome::Unknown(missing(&pci.status)))]);
    };
    let outcome = match &input.facts.gpu.last_good {
        _ if expected == 0 => Outcome::Pass,
        None => Outcome::Unknown(missing(&input.facts.gpu.status)),
        Some(cards) => match library(cards) {
            Outcome::Pass if cards.driver_cards() < expected => {
                Outcome::Fail(format!("the driver has {} of {expected}", cards.driver_cards()))
            }
            other @ (Outcome::Pass | Outcome::Fail(_) | Outcome::Unknown(_)) => other,
        },
    };
    Findings::Of(vec![(NODE.to_owned(), outcome)])
}

/// Whether the driver can be asked.
fn library(cards: &GpuFacts) -> Outcome {
    match &cards.library {
        Library::Open => Outcome::Pass,
        Library::Failed(fault) => Outcome::Fail(fault.detail.clone()),
        Library::Off => Outcome::Unknown("the driver is not asked".to_owned()),
        Library::Opening(_) => Outcome::Unknown("the driver has not answered yet".to_owned()),
        Library::Released(_) => Outcome::Unknown("the cards are released on request".to_owned()),
        Library::Ended(why) => Outcome::Unknown(why.clone()),
    }
}

/// Each card for which `judge` has something to say; cards that are up first, so that one that got
/// another number is judged as it is now.
fn each(
    input: &Input<'_>,
    mut judge: impl FnMut(&GpuFacts, &Card, &str) -> Option<Outcome>,
) -> Findings {
    let view = &input.facts.gpu;
    if input.config.nvml.off || !view.status.is_supported() {
        return Findings::Of(Vec::new());
    }
    // The facts carry their own times, whatever became of the collection.
    let Some(facts) = view.last_good.as_deref() else {
        let any = input.facts.pci.last_good.as_ref().is_none_or(|found| !found.entries.is_empty());
        return if any { Findings::Unknown(missing(&view.status)) } else { Findings::Of(vec![]) };
    };
    let mut cards: Vec<&Card> = facts.cards.iter().collect();
    cards.sort_by_key(|card| !facts.is_up(card, input.facts.now));
    let mut seen = BTreeSet::new();
    let mut outcomes = Vec::new();
    for card in cards {
        let scope = card.uuid.clone().unwrap_or_else(|| format!("gpu {}", card.index));
        if seen.insert(scope.clone())
            && let Some(outcome) = judge(facts, card, &scope)
        {
            outcomes.push((scope, outcome));
        }
    }
    Findings::Of(outcomes)
}

/// The same for what is judged by values: unknown while there are none.
fn by_slow(
    input: &Input<'_>,
    mut judge: impl FnMut(&Slow, &Card, &str) -> Option<Outcome>,
) -> Findings {
    each(input, |facts, card, scope| match facts.slow(card, input.facts.now) {
        Some(slow) => judge(slow, card, scope),
        None => Some(Outcome::Unknown(unread(input, card))),
    })
}

fn by_fast(
    input: &Input<'_>,
    mut judge: impl FnMut(&Fast, &GpuFacts, &Card, &str) -> Option<Outcome>,
) -> Findings {
    each(input, |facts, card, scope| match facts.fast(card, input.facts.now) {
        Some(fast) => judge(fast, facts, card, scope),
        None => Some(Outcome::Unknown(unread(input, card))),
    })
}

fn unread(input: &Input<'_>, card: &Card) -> String {
    match (&card.fault, &card.slow_fault) {
        (None, Some(fault)) => fault.detail.clone(),
        (Some(_), _) | (None, None) => card.reason(input.facts.now),
    }
}

/// The card answers.
pub(super) fn responding(input: &Input<'_>, _: &mut History) -> Findings {
    let now = input.facts.now;
    each(input, |facts, card, _| {
        if facts.is_up(card, now) {
            return Some(Outcome::Pass);
        }
        let reason = card.reason(now);
        Some(match library(facts) {
            Outcome::Pass if card.fault.is_some() || card.fast.is_some() => Outcome::Fail(reason),
            Outcome::Pass => Outcome::Unknown(reason),
            other @ (Outcome::Fail(_) | Outcome::Unknown(_)) => other,
        })
    })
}

/// The driver asks for nothing.
pub(super) fn recovery(input: &Input<'_>, _: &mut History) -> Findings {
    by_slow(input, |slow, _, _| {
        let Some(action) = slow.recovery_action else {
            return failed(slow, &[Wanted::RecoveryAction]);
        };
        let wants = match action {
            0 => return Some(Outcome::Pass),
            1 => "a reset of the card",
            2 => "a reboot of the node",
            3 => "to drain peer-to-peer traffic",
            4 => "to drain and reset the card",
            5 => "to recover the IMEX domain",
            6 => "a reset of the bus",
            7 => "a reboot of the system",
            other => return Some(Outcome::Fail(format!("the driver asks for action {other}"))),
        };
        Some(Outcome::Fail(format!("the driver asks for {wants}")))
    })
}

/// No recent error of a card that needs a hand.
pub(super) fn critical_xids(input: &Input<'_>, _: &mut History) -> Findings {
    xids(input, &input.config.xids.critical)
}

/// No recent error of a card that is worth a look.
pub(super) fn noted_xids(input: &Input<'_>, _: &mut History) -> Findings {
    xids(input, &input.config.xids.warn)
}

fn xids(input: &Input<'_>, codes: &BTreeSet<u32>) -> Findings {
    let log = input.facts.kmsg.last_good.as_deref();
    let window = input.config.xids.window;
    each(input, |_, card, _| {
        let logged = log.zip(card.address()).and_then(|(log, address)| log.of(address));
        let all = card.xids.codes().chain(logged.into_iter().flat_map(|xids| xids.codes()));
        let known = |code: u64| u32::try_from(code).is_ok_and(|code| codes.contains(&code));
        let ages = all.filter(|(code, _)| known(*code)).map(|(code, seen)| {
            (input.facts.now.wall.duration_since(seen.last).unwrap_or_default(), code)
        });
        let told = matches!(card.listening, Some(Ok(()))) || input.facts.kmsg.facts.is_some();
        Some(match ages.min() {
            Some((age, code)) if age <= window => {
                Outcome::Fail(format!("Xid {code}, {} s ago", age.as_secs()))
            }
            Some(_) | None if told => Outcome::Pass,
            Some(_) | None => {
                let why = "neither the driver nor the kernel's log tells of errors";
                Outcome::Unknown(why.to_owned())
            }
        })
    })
}

/// No new uncorrected memory error, and every row that had to be was remapped.
pub(super) fn ecc(input: &Input<'_>, history: &mut History) -> Findings {
    let window = input.config.xids.window;
    by_slow(input, |slow, _, scope| {
        let errors = slow.ecc_volatile.uncorrected;
        let grew = errors.map(|errors| history.grew("ecc", scope, errors, window));
        match (grew, slow.rows.failed) {
            (_, Some(true)) => Some(Outcome::Fail("a row could not be remapped".to_owned())),
            (Some(true), _) => Some(Outcome::Fail("new uncorrected memory errors".to_owned())),
            (grew @ (Some(false) | None), row @ (Some(false) | None)) => {
                let wanted = [Wanted::UncorrectedErrors, Wanted::RowFailed];
                failed(slow, &wanted).or_else(|| grew.or(row).map(|_| Outcome::Pass))
            }
        }
    })
}

/// Nothing waits for a reset to be repaired.
pub(super) fn row_remap(input: &Input<'_>, _: &mut History) -> Findings {
    by_slow(input, |slow, _, _| match (slow.rows.pending, slow.retire_pending) {
        (Some(true), _) => Some(Outcome::Fail("a row waits for a reset to be remapped".into())),
        (_, Some(true)) => Some(Outcome::Fail("a page waits for a reset to be retired".into())),
        (row @ (Some(false) | None), page @ (Some(false) | None)) => {
            let wanted = [Wanted::RowPending, Wanted::RetirePending];
            failed(slow, &wanted).or_else(|| row.or(page).map(|_| Outcome::Pass))
        }
    })
}

/// What is missing because it could not be read is unknown; `None` where nothing is, and where the
/// card does not have it.
fn failed(slow: &Slow, wanted: &[Wanted]) -> Option<Outcome> {
    let problem = wanted.iter().find_map(|value| slow.problem(*value))?;
    Some(Outcome::Unknown(problem.fault.detail.clone()))
}

/// Not slowed down by the hardware. The power limit is part of the job, not a fault.
pub(super) fn thermal(input: &Input<'_>, history: &mut History) -> Findings {
    use ThrottleReason::{HwPowerBrake, HwSlowdown, HwThermal};
    by_fast(input, |fast, _, _, scope| {
        let bits = fast.throttle_reasons?;
        let active = |reason: &&ThrottleReason| bits & throttle_bit(**reason) != 0;
        let reasons = [HwThermal, HwSlowdown, HwPowerBrake];
        let names: Vec<_> = reasons.iter().filter(active).map(|reason| reason.as_str()).collect();
        let lasts = history.lasts("slowed", scope, !names.is_empty());
        Some(match lasts.filter(|time| *time > SLOWED) {
            Some(time) => Outcome::Fail(format!("{} for {} s", names.join(", "), time.as_secs())),
            None => Outcome::Pass,
        })
    })
}

/// All lanes are in use while the card works; idle cards may save power.
pub(super) fn pcie_link(input: &Input<'_>, _: &mut History) -> Findings {
    let now = input.facts.now;
    each(input, |facts, card, _| {
        let Some((slow, fast)) = facts.slow(card, now).zip(facts.fast(card, now)) else {
            return Some(Outcome::Unknown(unread(input, card)));
        };
        let (width, most) = slow.pcie_link_width.zip(slow.pcie_link_width_max)?;
        let works = fast.utilization_percent.is_some_and(|percent| percent > 0);
        Some(if works && width < most {
            Outcome::Fail(format!("{width} of {most} lanes"))
        } else {
            Outcome::Pass
        })
    })
}

/// Device memory is free where nobody who is known owns the card.
pub(super) fn memory(input: &Input<'_>, _: &mut History) -> Findings {
    let now = input.facts.now;
    let services = input.config.services.iter();
    let known: BTreeSet<u32> =
        services.filter_map(|service| pids(input.facts, &service.name)).flatten().collect();
    by_fast(input, |fast, facts, card, _| {
        let memory = fast.memory.as_ref()?;
        let Some(slow) = facts.slow(card, now) else {
            return Some(Outcome::Unknown(unread(input, card)));
        };
        let owned = if known.is_empty() {
            !slow.processes.is_empty()
        } else {
            slow.processes.iter().any(|process| known.contains(&process.pid))
        };
        Some(if !owned && memory.free < input.config.gpu_reserve {
            let used = memory.used as f64 / GB;
            Outcome::Fail(format!("{used:.1} GB are held by no service of this node"))
        } else {
            Outcome::Pass
        })
    })
}
