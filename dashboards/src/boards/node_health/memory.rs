//! Memory of a host by NUMA node, and the host cache that lies on it.

use super::NOW;
use crate::build::{Blank, bar_gauge, folded, line, time_series};
use crate::ir::{Color, Line, Section, Stack};
use metric_catalog::def::{Key, Label, Unit};
use metric_catalog::labels::{Node, NumaNode, PageAllocation, PressureResource, Service, ToNode};
use metric_catalog::promql::{Expr, Selection, max, min, rate, ratio, sum};
use metric_catalog::{node, slo};

/// Legend of a series for each NUMA node.
const NUMA: &str = "{{node}} NUMA {{numa_node}}";
const NO_CACHE: &str = "no service has a host cache";
const BY: (Key<Node>, Key<NumaNode>) = (Node::KEY, NumaNode::KEY);
const BY_SERVICE: (Key<Node>, Key<Service>) = (Node::KEY, Service::KEY);

pub(super) fn section() -> Section {
    crate::build::section("numa", "NUMA nodes and host cache", vec![room(), cache(), ratios()])
}

/// Lines of NUMA nodes over time.
fn lines(slug: &str) -> Blank {
    time_series(slug).of_hosts()
}

fn room() -> Line {
    let of = |gauge| -> Expr { max(gauge).by(BY) };
    // What the kernel gives back when asked: shared memory it cannot.
    let cached = || of(node::NUMA_MEMORY_FILE).minus(of(node::NUMA_MEMORY_SHMEM));
    let used = of(node::NUMA_MEMORY_TOTAL).minus(of(node::NUMA_MEMORY_FREE)).minus(cached());
    let outstanding =
        sum(node::HOSTCACHE_PLANNED).by(BY).minus(sum(node::HOSTCACHE_ALLOCATED).by(BY));
    let share = ratio(min(node::NUMA_HEADROOM).by(BY), max(node::NUMA_RESERVE).by(BY));
    line(
        9,
        vec![
            lines("numa-memory")
                .title("Memory by NUMA node")
                .describe(
                    "Used, page cache that the kernel gives back (shared memory left out), and \
                     free. They add up to what the node has.",
                )
                .unit(Unit::Bytes)
                .query(used, "used {{node}} NUMA {{numa_node}}")
                .query(cached(), "reclaimable {{node}} NUMA {{numa_node}}")
                .query(of(node::NUMA_MEMORY_FREE), "free {{node}} NUMA {{numa_node}}")
                .stacked(Stack::Sum)
                .into(),
            lines("numa-headroom")
                .title("Headroom, and host cache still to come")
                .describe(
                    "What can still be taken on a NUMA node without touching its reserve, and what \
                     services planned there have not taken yet (dashed). Where the dashed line is \
                     above, the next start will not fit: lower the ratio to *Largest ratio that \
                     fits*, or bind the service elsewhere.",
                )
                .unit(Unit::Bytes)
                .query(min(node::NUMA_HEADROOM).by(BY), NUMA)
                .query(outstanding, "to come {{node}} NUMA {{numa_node}}")
                .dashed("/^to come/")
                .signed()
                .into(),
            lines("numa-headroom-share")
                .title("Headroom, share of the reserve")
                .describe(
                    "Below 0 the reserve is touched. Below the line half of it is gone, and the \
                     kernel will soon kill what is bound to this node: stop something there. Nodes \
                     without CPUs have no reserve and are not shown.",
                )
                .unit(Unit::Ratio)
                .query(share, NUMA)
                .base(Color::Red)
                .threshold(slo::NUMA_HEADROOM_RATIO, Color::Green)
                .threshold_lines()
                .signed()
                .into(),
        ],
    )
}

fn cache() -> Line {
    let by = BY_SERVICE;
    line(
        9,
        vec![
            lines("hostcache-bytes")
                .title("Host cache by service: wanted, planned, held")
                .describe(
                    "What the operator wanted, what the flags in force ask for, and what the \
                     service holds. Planned far below wanted: the flags say something else than \
                     was meant (a ratio scales the device pools). Held below planned: it did not \
                     fit.",
                )
                .unit(Unit::Bytes)
                .query(max(node::HOSTCACHE_TARGET).by(by), "wanted {{node}} {{service}}")
                .query(sum(node::HOSTCACHE_PLANNED).by(by), "planned {{node}} {{service}}")
                .query(sum(node::HOSTCACHE_ALLOCATED).by(by), "held {{node}} {{service}}")
                .dashed("/^wanted/")
                .no_value(NO_CACHE)
                .alert("HostCacheUndersized")
                .into(),
            lines("hostcache-resident")
                .title("Resident by NUMA node")
                .describe(
                    "Where the kernel finds memory of the services. Memory that a driver pinned is \
                     not in it: see *Memory nobody accounts for*.",
                )
                .unit(Unit::Bytes)
                .query(
                    max(node::HOSTCACHE_RESIDENT).by((Node::KEY, Service::KEY, NumaNode::KEY)),
                    "{{node}} {{service}} NUMA {{numa_node}}",
                )
                .stacked(Stack::Sum)
                .no_value(NO_CACHE)
                .into(),
            lines("hostcache-local")
                .title("Host cache on its node")
                .describe(
                    "Share of the host cache on the NUMA node that was planned. Below the line \
                     copies cross between sockets: restart the service with its binding.",
                )
                .unit(Unit::Ratio)
                .query(min(node::HOSTCACHE_LOCAL).by(by), "{{node}} {{service}}")
                .max(1.0)
                .base(Color::Orange)
                .threshold(1.0 - slo::HOST_OFF_NODE_RATIO, Color::Green)
                .threshold_lines()
                .no_value(NO_CACHE)
                .alert("HostCacheOffNode")
                .into(),
        ],
    )
}

fn ratios() -> Line {
    let largest = min(node::HICACHE_RATIO_MAX).by(BY_SERVICE).in_unit(Unit::Count);
    line(
        6,
        vec![
            bar_gauge("hicache-ratio-max")
                .of_hosts()
                .title("Largest ratio that fits")
                .describe(
                    "The largest `--hicache-ratio` with which a service still fits on its NUMA \
                     node. Below the one in its flags, the next start fails or spills over.",
                )
                .unit(Unit::Count)
                .query(largest, "{{node}} {{service}}")
                .decimals(2)
                .base(Color::Blue)
                .no_value(NO_CACHE)
                .into(),
            bar_gauge("hicache-bytes-per-ratio")
                .of_hosts()
                .title("Bytes for each unit of ratio")
                .describe(
                    "Host memory that one more unit of `--hicache-ratio` takes. Wanted bytes over \
                     this is the ratio to set; where that is above *Largest ratio that fits*, no \
                     ratio reaches it on this node.",
                )
                .unit(Unit::Bytes)
                .query(max(node::HICACHE_BYTES_PER_RATIO).by(BY_SERVICE), "{{node}} {{service}}")
                .base(Color::Blue)
                .no_value(NO_CACHE)
                .into(),
        ],
    )
}

/// Time that tasks wait for resources.
pub(super) fn pressure() -> Section {
    let by = (Node::KEY, PressureResource::KEY);
    let legend = "{{node}} {{resource}}";
    let lines = line(
        8,
        vec![
            lines("pressure-waiting")
                .title("Some task waits")
                .describe(
                    "Share of time that at least one task waited for a resource. Processors: \
                     normal under load. Memory: the kernel reclaims while somebody wants it.",
                )
                .unit(Unit::Ratio)
                .query(max(rate(node::PRESSURE_WAITING, NOW)).by(by), legend)
                .no_value("the kernel keeps no such counts")
                .into(),
            lines("pressure-stalled")
                .title("Every task waits")
                .describe(
                    "Share of time that nobody could go on. Memory above the line: the host \
                     thrashes, and a server on it stalls; find who grew (*Memory of services*).",
                )
                .unit(Unit::Ratio)
                .query(max(rate(node::PRESSURE_STALLED, NOW)).by(by), legend)
                .threshold(slo::MEMORY_STALLED_RATIO, Color::Orange)
                .threshold_lines()
                .alert("NodeUnhealthy")
                .no_value("the kernel keeps no such counts")
                .into(),
        ],
    );
    crate::build::section("pressure", "Pressure", vec![lines])
}

/// What is seldom needed.
pub(super) fn more() -> Section {
    folded("numa-more", "NUMA nodes: kinds of memory, allocations", vec![kinds(), allocations()])
}

fn kinds() -> Line {
    let kind = |slug: &str, title: &str, describe: &str, gauge| {
        lines(slug)
            .title(title)
            .describe(describe)
            .unit(Unit::Bytes)
            .query(max(gauge).by(BY), NUMA)
            .into()
    };
    line(
        7,
        vec![
            kind(
                "numa-anon",
                "Anonymous memory",
                "Memory of processes, host caches included where their server took them itself.",
                node::NUMA_MEMORY_ANON,
            ),
            kind(
                "numa-mlocked",
                "Locked memory",
                "Memory that cannot be moved or given back.",
                node::NUMA_MEMORY_MLOCKED,
            ),
            kind(
                "numa-hugetlb",
                "Huge page pool",
                "Set aside for huge pages, used or not: nobody else can have it.",
                node::NUMA_MEMORY_HUGETLB,
            ),
            kind(
                "numa-slab",
                "Kernel slab",
                "The kernel's own. Growing without end: a leak of the kernel or of a driver.",
                node::NUMA_MEMORY_SLAB,
            ),
            kind(
                "numa-unaccounted",
                "Memory nobody accounts for",
                "Memory that no count of the kernel explains: pinned by drivers, as host caches \
                 are that the GPU driver took. It stays when no process holds it: reload the \
                 driver.",
                node::NUMA_MEMORY_UNACCOUNTED,
            ),
        ],
    )
}

fn allocations() -> Line {
    let elsewhere = [PageAllocation::Miss, PageAllocation::Foreign, PageAllocation::OtherNode];
    let pages = rate(node::NUMA_PAGE_ALLOCATIONS.any_of(&elsewhere), NOW);
    line(
        7,
        vec![
            lines("numa-allocations")
                .title("Pages from another node")
                .describe(
                    "`foreign`: wanted on this node, got elsewhere, because it was full. `miss`: \
                     the other side of that. `other_node`: taken here by a task that runs on \
                     another node.",
                )
                .unit(Unit::CountPerSecond)
                .query(
                    max(pages).by((Node::KEY, NumaNode::KEY, PageAllocation::KEY)),
                    "{{node}} NUMA {{numa_node}} {{outcome}}",
                )
                .into(),
            lines("service-numa-resident")
                .title("Services by NUMA node")
                .describe("Memory charged to each service, by the node it lies on.")
                .unit(Unit::Bytes)
                .query(
                    max(node::SERVICE_NUMA_RESIDENT).by((Node::KEY, Service::KEY, NumaNode::KEY)),
                    "{{node}} {{service}} NUMA {{numa_node}}",
                )
                .no_value(super::services::NO_GROUP)
                .into(),
            lines("service-locked")
                .title("Locked memory of services")
                .describe("Memory that a service locked; host caches that are pinned are in it.")
                .unit(Unit::Bytes)
                .query(max(node::SERVICE_LOCKED).by(BY_SERVICE), "{{node}} {{service}}")
                .no_value(super::services::NO_GROUP)
                .into(),
            bar_gauge("numa-distance")
                .of_hosts()
                .title("Distances")
                .describe("As firmware gives them: 10 is local, 21 costs about twice as much.")
                .unit(Unit::Count)
                .query(
                    max(node::NUMA_DISTANCE).by((Node::KEY, NumaNode::KEY, ToNode::KEY)),
                    "{{node}} {{numa_node}} to {{to}}",
                )
                .base(Color::Blue)
                .into(),
        ],
    )
}
