//! RDMA ports of a host.

use super::NOW;
use crate::build::{Blank, line, section as titled, state_timeline, time_series};
use crate::ir::{Color, Line, Section};
use metric_catalog::def::{Key, Label, Unit};
use metric_catalog::labels::{Node, RdmaCongestion, RdmaDevice, RdmaError, RdmaPort};
use metric_catalog::node;
use metric_catalog::promql::{min, rate, ratio, sum};

/// Legend of a series for each port.
const PORT: &str = "{{node}} {{device}}/{{port}}";
const NO_PORT: &str = "no RDMA port";
const BY: (Key<Node>, Key<RdmaDevice>, Key<RdmaPort>) = (Node::KEY, RdmaDevice::KEY, RdmaPort::KEY);

fn lines(slug: &str) -> Blank {
    time_series(slug).of_hosts().no_value(NO_PORT)
}

pub(super) fn section() -> Section {
    titled("rdma", "RDMA ports", vec![ports(), faults()])
}

fn ports() -> Line {
    let received = sum(rate(node::RDMA_RECEIVE, NOW));
    let use_of_port = ratio(received.by(BY), min(node::RDMA_PORT_RATE).by(BY)).in_unit(Unit::Ratio);
    line(
        8,
        vec![
            state_timeline("rdma-ports")
                .of_hosts()
                .title("Ports")
                .describe(
                    "Whether a port is active. One that was up and is down, or that the \
                     configuration needs: cable, switch, or the other end. KV of every pair over \
                     it stops.",
                )
                .unit(Unit::Count)
                .query(min(node::RDMA_PORT_UP).by(BY), PORT)
                .map(0, "down", Color::Red)
                .map(1, "up", Color::Green)
                .no_value(NO_PORT)
                .into(),
            lines("rdma-bytes")
                .title("Traffic")
                .describe("Bytes by port, out and in.")
                .unit(Unit::BytesPerSecond)
                .query(
                    sum(rate(node::RDMA_TRANSMIT, NOW)).by(BY),
                    "out {{node}} {{device}}/{{port}}",
                )
                .query(sum(rate(node::RDMA_RECEIVE, NOW)).by(BY), "in {{node}} {{device}}/{{port}}")
                .into(),
            lines("rdma-use")
                .title("Share of the rate received")
                .describe("Received bytes over the rate of the port. Near 1 the link is full.")
                .unit(Unit::Ratio)
                .query(use_of_port, PORT)
                .max(1.0)
                .into(),
        ],
    )
}

fn faults() -> Line {
    line(
        7,
        vec![
            lines("rdma-errors")
                .title("Errors by kind")
                .describe(
                    "`symbol_error`, `link_downed`: cable or connector. `out_of_sequence`, \
                     `packet_seq_err`, `local_ack_timeout`: packets are lost on the way. \
                     `rnr_nak_retry`: the receiver is too slow.",
                )
                .unit(Unit::CountPerSecond)
                .query(
                    sum(rate(node::RDMA_ERRORS, NOW))
                        .by((Node::KEY, RdmaDevice::KEY, RdmaPort::KEY, RdmaError::KEY))
                        .above(0.0),
                    "{{node}} {{device}}/{{port}} {{kind}}",
                )
                .no_value("none")
                .into(),
            lines("rdma-congestion")
                .title("Congestion notifications")
                .describe(
                    "Sent: this host asks others to slow down. Handled: it was asked to. Steady \
                     ones mean the fabric is short of bandwidth.",
                )
                .unit(Unit::CountPerSecond)
                .query(
                    sum(rate(node::RDMA_CONGESTION, NOW))
                        .by((Node::KEY, RdmaDevice::KEY, RdmaPort::KEY, RdmaCongestion::KEY))
                        .above(0.0),
                    "{{node}} {{device}}/{{port}} {{kind}}",
                )
                .no_value("none")
                .into(),
        ],
    )
}
