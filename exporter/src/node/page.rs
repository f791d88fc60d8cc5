//! The families of NUMA nodes, pressure and RDMA ports.
//!
//! Gauges are of facts that are fresh; counters stay as they were last.

use metric_catalog::labels::{
    self, NumaNode, PageAllocation, PressureResource, RdmaCongestion, RdmaDevice, RdmaError, ToNode,
};
use metric_catalog::node as catalog;
use metric_catalog::page::Page;
use node_info::{Node, Port, PortState, Resource};

use super::{NumaFacts, PressureFacts, RdmaFacts};
use crate::config;
use crate::slot::View;

/// Puts memory of NUMA nodes on the page. `reserve` is what the operator keeps free of each.
pub fn numa(view: &View<NumaFacts>, reserve: Option<u64>, page: &mut Page) {
    for node in view.last_good.iter().flat_map(|facts| &facts.nodes) {
        let Some(pages) = node.allocations else { continue };
        for outcome in PageAllocation::ALL {
            let count = match outcome {
                PageAllocation::Hit => pages.hit,
                PageAllocation::Miss => pages.miss,
                PageAllocation::Foreign => pages.foreign,
                PageAllocation::InterleaveHit => pages.interleave_hit,
                PageAllocation::LocalNode => pages.local_node,
                PageAllocation::OtherNode => pages.other_node,
            };
            page.counter(catalog::NUMA_PAGE_ALLOCATIONS, (id(node.id), *outcome), count);
        }
    }
    let Some(facts) = &view.facts else { return };
    for node in &facts.nodes {
        memory(node, page);
        for far in &node.distances {
            let to = ToNode::new(far.to.to_string());
            page.gauge(catalog::NUMA_DISTANCE, (id(node.id), to), f64::from(far.distance));
        }
    }
    for (node, bytes) in facts.headroom(reserve) {
        page.gauge(catalog::NUMA_HEADROOM, (id(node),), bytes as f64);
    }
    for (node, bytes) in facts.reserves(reserve) {
        page.gauge(catalog::NUMA_RESERVE, (id(node),), bytes as f64);
    }
}

fn memory(node: &Node, page: &mut Page) {
    let Some(memory) = node.memory else { return };
    for (gauge, bytes) in [
        (catalog::NUMA_MEMORY_TOTAL, Some(memory.total)),
        (catalog::NUMA_MEMORY_FREE, Some(memory.free)),
        (catalog::NUMA_MEMORY_FILE, memory.file),
        (catalog::NUMA_MEMORY_ANON, memory.anon),
        (catalog::NUMA_MEMORY_SHMEM, memory.shmem),
        (catalog::NUMA_MEMORY_SLAB, memory.slab),
        (catalog::NUMA_MEMORY_HUGETLB, node.huge_bytes()),
        (catalog::NUMA_MEMORY_MLOCKED, memory.mlocked),
        (catalog::NUMA_MEMORY_UNACCOUNTED, node.unaccounted()),
    ] {
        if let Some(bytes) = bytes {
            page.gauge(gauge, (id(node.id),), bytes as f64);
        }
    }
}

fn id(node: u32) -> NumaNode {
    NumaNode::new(node.to_string())
}

/// Puts pressure on the page.
pub fn pressure(view: &View<PressureFacts>, page: &mut Page) {
    for entry in view.last_good.iter().flat_map(|facts| &facts.entries) {
        let resource = match entry.resource {
            Resource::Cpu => PressureResource::Cpu,
            Resource::Memory => PressureResource::Memory,
            Resource::Io => PressureResource::Io,
            Resource::Irq => PressureResource::Irq,
        };
        if let Some(stall) = entry.waiting {
            page.time(catalog::PRESSURE_WAITING, (resource,), stall.total);
        }
        if let Some(stall) = entry.stalled {
            page.time(catalog::PRESSURE_STALLED, (resource,), stall.total);
        }
    }
}

type PortLabels = (RdmaDevice, labels::RdmaPort, NumaNode);

/// Puts RDMA ports on the page. Of `required` ones, those that the node turns out not to have are
/// down.
pub fn rdma(view: &View<RdmaFacts>, required: &[config::RdmaPort], page: &mut Page) {
    for port in view.last_good.iter().flat_map(|facts| &facts.entries) {
        counters(port, page);
    }
    let known = view.facts.as_ref().map(|facts| facts.entries.as_slice());
    for port in known.unwrap_or_default() {
        let named = required.iter().any(|wanted| is(wanted, port));
        let up = port.state == PortState::Active;
        page.flag(catalog::RDMA_PORT_UP, port_labels(port), up);
        page.flag(catalog::RDMA_PORT_REQUIRED, port_labels(port), named);
        page.gauge(catalog::RDMA_PORT_RATE, port_labels(port), port.rate);
    }
    // What a failing collector does not see may well be there.
    let complete = view.facts.as_ref().is_some_and(|facts| facts.problems.is_empty());
    if complete || !view.status.is_supported() {
        let there = |wanted: &&config::RdmaPort| {
            known.unwrap_or_default().iter().any(|port| is(wanted, port))
        };
        for lost in required.iter().filter(|wanted| !there(wanted)) {
            let labels = || {
                let port = labels::RdmaPort::new(lost.port.to_string());
                (RdmaDevice::new(lost.device.clone()), port, NumaNode::new("none"))
            };
            page.flag(catalog::RDMA_PORT_UP, labels(), false);
            page.flag(catalog::RDMA_PORT_REQUIRED, labels(), true);
        }
    }
}

fn is(wanted: &config::RdmaPort, port: &Port) -> bool {
    wanted.device == port.device && wanted.port == port.port
}

fn port_labels(port: &Port) -> PortLabels {
    let node = port.numa_node.map_or_else(|| NumaNode::new("none"), id);
    (RdmaDevice::new(port.device.clone()), labels::RdmaPort::new(port.port.to_string()), node)
}

fn counters(port: &Port, page: &mut Page) {
    if let Some(bytes) = port.transmitted {
        page.counter(catalog::RDMA_TRANSMIT, port_labels(port), bytes);
    }
    if let Some(bytes) = port.received {
        page.counter(catalog::RDMA_RECEIVE, port_labels(port), bytes);
    }
    let errors = port.errors;
    for kind in RdmaError::ALL {
        let count = match kind {
            RdmaError::SymbolError => errors.symbol_error,
            RdmaError::LinkDowned => errors.link_downed,
            RdmaError::OutOfSequence => errors.out_of_sequence,
            RdmaError::PacketSeqErr => errors.packet_seq_err,
            RdmaError::LocalAckTimeout => errors.local_ack_timeout,
            RdmaError::RnrNakRetry => errors.rnr_nak_retry,
        };
        if let Some(count) = count {
            let (device, number, node) = port_labels(port);
            page.counter(catalog::RDMA_ERRORS, (device, number, node, *kind), count);
        }
    }
    for kind in RdmaCongestion::ALL {
        let count = match kind {
            RdmaCongestion::CnpSent => errors.cnp_sent,
            RdmaCongestion::CnpHandled => errors.cnp_handled,
        };
        if let Some(count) = count {
            let (device, number, node) = port_labels(port);
            page.counter(catalog::RDMA_CONGESTION, (device, number, node, *kind), count);
        }
    }
}
