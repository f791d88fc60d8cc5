//! The cards of a host.

use super::NOW;
use crate::build::{Blank, bar_gauge, folded, line, state_timeline, table, time_series};
use crate::ir::{Color, Line, Section};
use metric_catalog::def::{Key, Label, Unit};
use metric_catalog::labels::{
    ClockDomain, DriverVersion, EccKind, Gpu, GpuCount, GpuInstance, GpuName, Node, NumaNode,
    NvlinkError, PciBusId, RetireCause, Sensor, Service, ThrottleReason, ThrottleTime, Uuid, Xid,
};
use metric_catalog::node;
use metric_catalog::promql::{Selection, increase, max, min, rate, ratio, sum, time};

/// Legend of a series for each card.
const CARD: &str = "{{node}} GPU {{gpu}}";
const NO_CARD: &str = "no GPU";
const BY: (Key<Node>, Key<Gpu>) = (Node::KEY, Gpu::KEY);

pub(super) fn section() -> Section {
    crate::build::section("gpus", "GPUs", vec![presence(), load(), limits(), errors()])
}

/// Lines of cards over time.
fn lines(slug: &str) -> Blank {
    time_series(slug).of_hosts().no_value(NO_CARD)
}

fn presence() -> Line {
    line(
        8,
        vec![
            lines("gpus-counted")
                .title("Cards by count")
                .describe(
                    "Cards that are expected, that the bus has, that the driver has, and that \
                     answer. Where the last is lower, the step that loses one is where to look: \
                     the bus (reseat, power), the driver (`dmesg`), or a call that hangs.",
                )
                .unit(Unit::Count)
                .query(max(node::GPUS).by((Node::KEY, GpuCount::KEY)), "{{node}} {{state}}")
                .steps()
                .into(),
            state_timeline("gpu-up")
                .of_hosts()
                .title("Cards that answer")
                .describe(
                    "Whether the last poll of a card worked and is fresh. Silent alone: this card \
                     is lost or hangs. All at once: the driver hangs.",
                )
                .unit(Unit::Count)
                .query(min(node::GPU_UP).by(BY), CARD)
                .map(0, "silent", Color::Red)
                .map(1, "answers", Color::Green)
                .no_value(NO_CARD)
                .into(),
        ],
    )
}

fn load() -> Line {
    let whole = GpuInstance::WHOLE;
    let used = max(node::GPU_MEMORY_USED.is(whole.clone())).by(BY);
    let total = max(node::GPU_MEMORY_TOTAL.is(whole)).by(BY);
    line(
        8,
        vec![
            lines("gpu-utilisation")
                .title("Utilisation")
                .describe(
                    "Share of time that a kernel ran, whatever it did: 100 % is busy, not full. \
                     One card far below its neighbours holds a group of ranks back.",
                )
                .unit(Unit::Ratio)
                .query(max(node::GPU_UTILIZATION).by(BY), CARD)
                .max(1.0)
                .into(),
            lines("gpu-memory")
                .title("Device memory used")
                .describe(
                    "Share of device memory in use. High is normal for a server, which takes its \
                     pools at start; high without a service, somebody else is there.",
                )
                .unit(Unit::Ratio)
                .query(ratio(used, total), CARD)
                .max(1.0)
                .into(),
            lines("gpu-temperature")
                .title("Temperature")
                .describe(
                    "Of the chip and of its memory. What matters is whether it slows down: \
                     *Throttling*.",
                )
                .unit(Unit::Celsius)
                .query(
                    max(node::GPU_TEMPERATURE).by((Node::KEY, Gpu::KEY, Sensor::KEY)),
                    "{{node}} GPU {{gpu}} {{sensor}}",
                )
                .into(),
        ],
    )
}

fn limits() -> Line {
    let reason = (Node::KEY, Gpu::KEY, ThrottleReason::KEY);
    let active = node::GPU_THROTTLE_ACTIVE.none_of(&[ThrottleReason::GpuIdle]);
    let slowed = rate(node::GPU_THROTTLE_SECONDS.without(ThrottleTime::LowUtilization), NOW);
    line(
        8,
        vec![
            lines("gpu-power")
                .title("Power")
                .describe("Draw, and the limit in force (dashed). At the limit clocks fall.")
                .unit(Unit::Watts)
                .query(max(node::GPU_POWER).by(BY), CARD)
                .query(min(node::GPU_POWER_LIMIT).by(BY), "limit {{node}} GPU {{gpu}}")
                .dashed("/^limit/")
                .into(),
            state_timeline("gpu-throttle")
                .of_hosts()
                .title("Throttling")
                .describe(
                    "Reasons that hold a card below its clocks, while they do. `hw_thermal`, \
                     `hw_slowdown`, `hw_power_brake`: cooling or power, call whoever owns the \
                     machine. `sw_power_cap` alone is normal under load.",
                )
                .unit(Unit::Count)
                .query(max(active).by(reason).above(0.0), "{{node}} GPU {{gpu}} {{reason}}")
                .map(1, "active", Color::Orange)
                .no_value("nothing")
                .into(),
            lines("gpu-throttle-time")
                .title("Time throttled")
                .describe("Share of time below the clocks, by reason, as the driver counts it.")
                .unit(Unit::Ratio)
                .query(
                    max(slowed).by((Node::KEY, Gpu::KEY, ThrottleTime::KEY)).above(0.0),
                    "{{node}} GPU {{gpu}} {{reason}}",
                )
                .no_value("nothing")
                .into(),
        ],
    )
}

fn errors() -> Line {
    let xid = (Node::KEY, Gpu::KEY, Xid::KEY);
    let age = time().minus(max(node::GPU_XID_LAST).by(xid).above(0.0));
    line(
        8,
        vec![
            lines("gpu-xids")
                .title("Xid errors")
                .describe(
                    "Errors that the driver reports of a card, by code. 13, 31, 43, 45: mostly the \
                     application's. 48, 63, 64, 74, 79, 92, 94, 95, 119, 120: memory, link, bus or \
                     firmware; the runbook says what each needs.",
                )
                .unit(Unit::Count)
                .query(
                    max(increase(node::GPU_XID_ERRORS, NOW)).by(xid).above(0.0),
                    "{{node}} GPU {{gpu}} Xid {{xid}}",
                )
                .no_value("none")
                .steps()
                .into(),
            bar_gauge("gpu-xid-age")
                .of_hosts()
                .title("Time since the last Xid")
                .describe("For each card and code that ever came. Short: it is happening now.")
                .unit(Unit::Seconds)
                .query(age, "{{node}} GPU {{gpu}} Xid {{xid}}")
                .base(Color::Blue)
                .no_value("none")
                .into(),
            lines("gpu-ecc")
                .title("ECC errors")
                .describe(
                    "New errors of device memory. Corrected ones cost nothing until they are \
                     many; an uncorrected one killed what used it, and the card should be reset.",
                )
                .unit(Unit::Count)
                .query(
                    max(increase(node::GPU_ECC_ERRORS, NOW)).by((
                        Node::KEY,
                        Gpu::KEY,
                        EccKind::KEY,
                    )),
                    "{{node}} GPU {{gpu}} {{kind}}",
                )
                .steps()
                .into(),
            state_timeline("gpu-recovery")
                .of_hosts()
                .title("Action asked for")
                .describe(
                    "What the driver asks for. Anything but none: take the host out of service \
                     and do it.",
                )
                .unit(Unit::Count)
                .query(max(node::GPU_RECOVERY_ACTION).by(BY), CARD)
                .map(0, "none", Color::Green)
                .map(1, "GPU reset", Color::Red)
                .map(2, "reboot", Color::Red)
                .map(3, "drain P2P", Color::Orange)
                .map(4, "drain and reset", Color::Red)
                .map(5, "recover IMEX", Color::Orange)
                .map(6, "bus reset", Color::Red)
                .map(7, "system reboot", Color::Red)
                .no_value(NO_CARD)
                .into(),
        ],
    )
}

/// What is seldom needed.
pub(super) fn more() -> Section {
    folded("gpus-more", "GPUs: clocks, bus, links, repairs", vec![bus(), repairs(), identities()])
}

fn bus() -> Line {
    let width =
        ratio(min(node::GPU_PCIE_LINK_WIDTH).by(BY), max(node::GPU_PCIE_LINK_WIDTH_MAX).by(BY));
    let link = sum(rate(node::GPU_NVLINK_ERRORS, NOW));
    line(
        8,
        vec![
            lines("gpu-clock")
                .title("Clocks")
                .describe(
                    "Of the multiprocessors and the memory. Falling under load: *Throttling*.",
                )
                .unit(Unit::Hertz)
                .query(
                    max(node::GPU_CLOCK).by((Node::KEY, Gpu::KEY, ClockDomain::KEY)),
                    "{{node}} GPU {{gpu}} {{domain}}",
                )
                .into(),
            lines("gpu-pcie")
                .title("PCIe traffic")
                .describe(
                    "Bytes that a card sends and receives. Copies of the host cache go here; flat \
                     at the rate of the bus, they are what waits.",
                )
                .unit(Unit::BytesPerSecond)
                .query(max(rate(node::GPU_PCIE_RECEIVE, NOW)).by(BY), "to {{node}} GPU {{gpu}}")
                .query(max(rate(node::GPU_PCIE_TRANSMIT, NOW)).by(BY), "from {{node}} GPU {{gpu}}")
                .into(),
            lines("gpu-pcie-width")
                .title("PCIe lanes in use")
                .describe(
                    "Below 1 under load: the slot, the riser or the card has lost lanes, and \
                     copies are slower by as much. Idle cards may lower it.",
                )
                .unit(Unit::Ratio)
                .query(width, CARD)
                .max(1.0)
                .into(),
            lines("gpu-nvlink-errors")
                .title("NVLink errors")
                .describe("By kind. Growing: a link that will go; see Xid 74.")
                .unit(Unit::CountPerSecond)
                .query(
                    link.by((Node::KEY, Gpu::KEY, NvlinkError::KEY)).above(0.0),
                    "{{node}} GPU {{gpu}} {{kind}}",
                )
                .no_value("none")
                .into(),
        ],
    )
}

fn repairs() -> Line {
    let kind = (Node::KEY, Gpu::KEY, EccKind::KEY);
    line(
        8,
        vec![
            lines("gpu-row-remaps")
                .title("Rows remapped")
                .describe(
                    "Rows of device memory replaced by spare ones. `pending`: waits for a reset of \
                     the card. `failed`: no spare row is left, the card must go.",
                )
                .unit(Unit::Count)
                .query(max(node::GPU_ROW_REMAPS).by(kind), "{{node}} GPU {{gpu}} {{kind}}")
                .query(max(node::GPU_ROW_REMAP_PENDING).by(BY), "pending {{node}} GPU {{gpu}}")
                .query(max(node::GPU_ROW_REMAP_FAILED).by(BY), "failed {{node}} GPU {{gpu}}")
                .into(),
            lines("gpu-retired-pages")
                .title("Pages retired")
                .describe("On cards that do not remap rows. Above about 60 the card must go.")
                .unit(Unit::Count)
                .query(
                    max(node::GPU_RETIRED_PAGES).by((Node::KEY, Gpu::KEY, RetireCause::KEY)),
                    "{{node}} GPU {{gpu}} {{cause}}",
                )
                .into(),
            lines("gpu-ecc-lifetime")
                .title("ECC errors over the life")
                .describe("As the card remembers them. Compare cards of one age.")
                .unit(Unit::Count)
                .query(max(node::GPU_ECC_LIFETIME_ERRORS).by(kind), "{{node}} GPU {{gpu}} {{kind}}")
                .into(),
            lines("gpu-service-memory")
                .title("Device memory of services")
                .describe("Memory of a card that each configured service holds.")
                .unit(Unit::Bytes)
                .query(
                    max(node::GPU_PROCESS_MEMORY).by((Node::KEY, Gpu::KEY, Service::KEY)),
                    "{{node}} GPU {{gpu}} {{service}}",
                )
                .into(),
        ],
    )
}

fn identities() -> Line {
    let info = max(node::GPU_INFO).by((
        Node::KEY,
        Gpu::KEY,
        Uuid::KEY,
        GpuName::KEY,
        PciBusId::KEY,
        NumaNode::KEY,
        DriverVersion::KEY,
    ));
    let columns = [
        ("node", "Node"),
        ("gpu", "GPU"),
        ("name", "Name"),
        ("uuid", "Uuid"),
        ("pci_bus_id", "Bus"),
        ("numa_node", "NUMA node"),
        ("driver_version", "Driver"),
    ];
    let cards = table("gpu-cards", &columns)
        .of_hosts()
        .title("Cards")
        .describe("Which card is which. The number of a card may change after one is lost.")
        .unit(Unit::Flag)
        .query(info, "")
        .no_value(NO_CARD);
    line(8, vec![cards.into()])
}
