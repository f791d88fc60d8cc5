//! The families of cards.
//!
//! Gauges are of cards that are up; counters and constants stay as they were last. An error of a
//! card that is watched for counts from 0.

mod counts;

use metric_catalog::labels::{
    ClockDomain, ComputeInstance, DriverVersion, Gpu, GpuCount, GpuInstance, GpuName, Minor,
    NumaNode, Nvlink, PciBusId, Sensor, Service, ThrottleReason, Uuid, VbiosVersion,
};
use metric_catalog::node as catalog;
use metric_catalog::page::Page;
use nvml_worker::protocol::{Fast, Memory, Slow};

use super::facts::{Card, GpuFacts};
use super::{PciFacts, pci};
use crate::config::Config;
use crate::facts::Facts;

/// What stands where a driver says nothing: a label is never empty.
const UNKNOWN: &str = "unknown";

/// Puts what is known of cards on the page.
pub fn gpu(facts: &Facts, config: &Config, page: &mut Page) {
    let cards = facts.gpu.last_good.as_deref();
    count(facts, cards, config, page);
    let Some(cards) = cards else { return };
    for card in &cards.cards {
        page.flag(catalog::GPU_UP, labels(card), cards.is_up(card, facts.now));
        info(card, cards, facts.pci.last_good.as_deref(), page);
        counts::of_card(card, facts.kmsg.last_good.as_deref(), config, page);
        if let Some(fast) = cards.fast(card, facts.now) {
            by_the_second(card, fast, page);
        }
        if let Some(slow) = cards.slow(card, facts.now) {
            by_the_minute(card, slow, page);
            processes(card, slow, facts, config, page);
        }
    }
}

fn labels(card: &Card) -> (Gpu, Uuid) {
    (Gpu::new(card.index.to_string()), Uuid::new(card.id().to_owned()))
}

fn count(facts: &Facts, cards: Option<&GpuFacts>, config: &Config, page: &mut Page) {
    let on_bus = pci::on_bus(&facts.pci);
    for state in GpuCount::ALL {
        let count = match state {
            GpuCount::Expected => config.expect_gpus.or(on_bus),
            GpuCount::Pci => on_bus,
            GpuCount::Nvml => Some(cards.map_or(0, GpuFacts::driver_cards)),
            GpuCount::Responding => {
                Some(cards.map_or(0, |cards| cards.responding(facts.now) as u32))
            }
        };
        if let Some(count) = count {
            page.gauge(catalog::GPUS, (*state,), f64::from(count));
        }
    }
}

fn info(card: &Card, cards: &GpuFacts, bus: Option<&PciFacts>, page: &mut Page) {
    let Some(fixed) = &card.fixed else { return };
    let fixed = &fixed.value;
    let text = |text: &Option<String>| match text {
        Some(text) if !text.is_empty() => text.clone(),
        Some(_) | None => UNKNOWN.to_owned(),
    };
    let near = fixed.pci_bus_id.as_deref().zip(bus);
    let near = near.and_then(|(address, bus)| pci::numa_node(bus, address));
    let driver = cards.hello.as_ref().and_then(|hello| hello.driver_version.clone());
    let (gpu, uuid) = labels(card);
    page.gauge(
        catalog::GPU_INFO,
        (
            gpu,
            uuid,
            GpuName::new(text(&fixed.name)),
            PciBusId::new(text(&fixed.pci_bus_id)),
            NumaNode::new(near.map_or_else(|| UNKNOWN.to_owned(), |node| node.to_string())),
            DriverVersion::new(text(&driver)),
            VbiosVersion::new(text(&fixed.vbios_version)),
            Minor::new(fixed.minor.map_or_else(|| UNKNOWN.to_owned(), |minor| minor.to_string())),
        ),
        1.0,
    );
}

const MEGAHERTZ: f64 = 1e6;

fn by_the_second(card: &Card, fast: &Fast, page: &mut Page) {
    let percent = |value: Option<u32>| value.map(|value| f64::from(value) / 100.0);
    let milli = |value: Option<u64>| value.map(|value| value as f64 / 1000.0);
    for (gauge, value) in [
        (catalog::GPU_UTILIZATION, percent(fast.utilization_percent)),
        (catalog::GPU_MEMORY_COPY_UTILIZATION, percent(fast.memory_utilization_percent)),
        (catalog::GPU_POWER, milli(fast.power_milliwatts)),
        (catalog::GPU_POWER_LIMIT, milli(fast.power_limit_milliwatts)),
    ] {
        if let Some(value) = value {
            page.gauge(gauge, labels(card), value);
        }
    }
    if let Some(of_card) = &fast.memory {
        memory(card, (GpuInstance::WHOLE, ComputeInstance::WHOLE), None, of_card, page);
    }
    for (sensor, value) in
        [(Sensor::Gpu, fast.temperature_celsius), (Sensor::Memory, fast.memory_temperature_celsius)]
    {
        if let Some(value) = value {
            let (gpu, uuid) = labels(card);
            page.gauge(catalog::GPU_TEMPERATURE, (gpu, uuid, sensor), value as f64);
        }
    }
    let highest = card.fixed.as_ref().map(|fixed| &fixed.value);
    let highest = |clock: fn(&nvml_worker::protocol::Fixed) -> Option<u64>| {
        highest.and_then(|fixed| clock(fixed))
    };
    for (gauge, domain, value) in [
        (catalog::GPU_CLOCK, ClockDomain::Sm, fast.sm_clock_megahertz),
        (catalog::GPU_CLOCK, ClockDomain::Memory, fast.memory_clock_megahertz),
        (catalog::GPU_CLOCK_MAX, ClockDomain::Sm, highest(|fixed| fixed.sm_clock_max_megahertz)),
        (
            catalog::GPU_CLOCK_MAX,
            ClockDomain::Memory,
            highest(|fixed| fixed.memory_clock_max_megahertz),
        ),
    ] {
        if let Some(value) = value {
            let (gpu, uuid) = labels(card);
            page.gauge(gauge, (gpu, uuid, domain), value as f64 * MEGAHERTZ);
        }
    }
    if let Some(bits) = fast.throttle_reasons {
        for reason in ThrottleReason::ALL {
            let (gpu, uuid) = labels(card);
            let active = bits & throttle_bit(*reason) != 0;
            page.flag(catalog::GPU_THROTTLE_ACTIVE, (gpu, uuid, *reason), active);
        }
    }
}

/// NVML's bit of a reason.
pub(crate) const fn throttle_bit(reason: ThrottleReason) -> u64 {
    match reason {
        ThrottleReason::GpuIdle => 1,
        ThrottleReason::ClocksSetting => 1 << 1,
        ThrottleReason::SwPowerCap => 1 << 2,
        ThrottleReason::HwSlowdown => 1 << 3,
        ThrottleReason::SyncBoost => 1 << 4,
        ThrottleReason::SwThermal => 1 << 5,
        ThrottleReason::HwThermal => 1 << 6,
        ThrottleReason::HwPowerBrake => 1 << 7,
        ThrottleReason::DisplayClocks => 1 << 8,
    }
}

/// Memory of a card, or of a part that has a name of its own.
fn memory(
    card: &Card,
    part: (GpuInstance, ComputeInstance),
    uuid: Option<&str>,
    memory: &Memory,
    page: &mut Page,
) {
    let (gpu, whole) = labels(card);
    let uuid = uuid.map_or(whole, |uuid| Uuid::new(uuid.to_owned()));
    for (gauge, bytes) in [
        (catalog::GPU_MEMORY_TOTAL, Some(memory.total)),
        (catalog::GPU_MEMORY_USED, Some(memory.used)),
        (catalog::GPU_MEMORY_FREE, Some(memory.free)),
        (catalog::GPU_MEMORY_RESERVED, memory.reserved),
    ] {
        if let Some(bytes) = bytes {
            let labels = (gpu.clone(), uuid.clone(), part.0.clone(), part.1.clone());
            page.gauge(gauge, labels, bytes as f64);
        }
    }
}

fn by_the_minute(card: &Card, slow: &Slow, page: &mut Page) {
    let yes = |value: Option<bool>| value.map(|value| f64::from(u8::from(value)));
    let number = |value: Option<u64>| value.map(|value| value as f64);
    for (gauge, value) in [
        (catalog::GPU_PCIE_LINK_WIDTH, number(slow.pcie_link_width)),
        (catalog::GPU_PCIE_LINK_WIDTH_MAX, number(slow.pcie_link_width_max)),
        (catalog::GPU_PCIE_LINK_GENERATION, number(slow.pcie_link_generation)),
        (catalog::GPU_ROW_REMAP_PENDING, yes(slow.rows.pending)),
        (catalog::GPU_ROW_REMAP_FAILED, yes(slow.rows.failed)),
        (catalog::GPU_RECOVERY_ACTION, number(slow.recovery_action)),
        (catalog::GPU_MIG_ENABLED, yes(slow.mig_enabled)),
    ] {
        if let Some(value) = value {
            page.gauge(gauge, labels(card), value);
        }
    }
    counts::of_memory(card, slow, page);
    for link in &slow.links {
        let (gpu, uuid) = labels(card);
        let name = Nvlink::new(link.link.to_string());
        page.flag(catalog::GPU_NVLINK_UP, (gpu, uuid, name), link.up);
    }
    for part in &slow.instances {
        let Some(of_part) = &part.memory else { continue };
        let name = (
            GpuInstance::new(part.gpu_instance.to_string()),
            ComputeInstance::new(part.compute_instance.to_string()),
        );
        memory(card, name, Some(&part.uuid), of_part, page);
    }
}

/// Device memory of each service whose processes are known, 0 where none of them is on the card.
fn processes(card: &Card, slow: &Slow, facts: &Facts, config: &Config, page: &mut Page) {
    for service in &config.services {
        let Some(pids) = pids(facts, &service.name) else { continue };
        let own = slow.processes.iter().filter(|process| pids.contains(&process.pid));
        let bytes: u64 = own.filter_map(|process| process.bytes).sum();
        let (gpu, uuid) = labels(card);
        let name = Service::new(service.name.clone());
        page.gauge(catalog::GPU_PROCESS_MEMORY, (gpu, uuid, name), bytes as f64);
    }
}

/// Processes of a service: of its control group, and its unit's main one.
pub(crate) fn pids(facts: &Facts, service: &str) -> Option<Vec<u32>> {
    let usage = facts.cgroup.facts.as_ref().and_then(|groups| groups.0.get(service));
    let group = usage.and_then(|usage| usage.group.as_ref());
    let unit = facts.systemd.facts.as_ref().and_then(|units| units.unit(service));
    let mut pids = group.and_then(|group| group.processes.clone()).unwrap_or_default();
    pids.extend(unit.and_then(|unit| unit.main_pid));
    (!pids.is_empty()).then_some(pids)
}

#[cfg(test)]
mod tests;
