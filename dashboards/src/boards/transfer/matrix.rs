//! Every link from one worker to another, as a line of a table and over time.

use super::NOW;
use crate::build::pools::{state_timeline, table};
use crate::build::{line, section as titled};
use crate::ir::{Color, Section};
use metric_catalog::def::{Key, Label, Unit};
use metric_catalog::labels::{Instance, Peer, Role, TransferResult};
use metric_catalog::promql::{Expr, Selection, avg, max, min, rate, ratio, sum};
use metric_catalog::{pair, slo};

/// What a link is told by.
const LINK: (Key<Role>, Key<Instance>, Key<Peer>) = (Role::KEY, Instance::KEY, Peer::KEY);

/// Share of the transfers of a link that failed.
fn failed() -> Expr {
    let errors = pair::KV_TRANSFERS.is(TransferResult::Error);
    let ended = pair::KV_TRANSFERS.without(TransferResult::Aborted);
    ratio(sum(rate(errors, NOW)).by(LINK), sum(rate(ended, NOW)).by(LINK))
}

/// Bytes by the second in which at least one transfer was on the wire.
fn bandwidth() -> Expr {
    ratio(
        sum(rate(pair::KV_TRANSFER_BYTES, NOW)).by(LINK),
        avg(rate(pair::KV_TRANSFER_BUSY_SECONDS, NOW)).by(LINK),
    )
}

pub(super) fn section() -> Section {
    titled(
        "matrix",
        "Every link",
        vec![line(9, vec![links().into()]), line(8, vec![states().into()])],
    )
}

type Ready = crate::build::Draft<crate::build::Set, crate::build::Set, crate::build::Set>;

fn links() -> Ready {
    let columns = [("engine_role", "Role"), ("instance", "Worker"), ("peer", "Peer")];
    let up = min(pair::PD_PEER_UP).by(LINK);
    let ended = sum(rate(pair::KV_TRANSFERS, NOW)).by(LINK);
    let busy = avg(rate(pair::KV_TRANSFER_BUSY_SECONDS, NOW)).by(LINK);
    table("peer-matrix", &columns)
        .title("Links")
        .describe(
            "A line for each worker and each of its peers, seen from that worker; `other`: peers \
             that it does not know by address. Red in *Failed* \
             on one line alone: that link; on all lines of a worker: that worker. *While moving* \
             is what the link gives; far below its neighbours with *Busy* near 100 %, it is slow. \
             *Held* that stays: restart the decode worker once it is drained.",
        )
        .unit(Unit::Count)
        .query(up, "Up")
        .query(ended, "Transfers")
        .query(failed(), "Failed")
        .query(sum(rate(pair::KV_TRANSFER_BYTES, NOW)).by(LINK), "KV moved")
        .query(bandwidth(), "While moving")
        .query(busy, "Busy")
        .query(sum(pair::KV_TRANSFERS_ACTIVE).by(LINK), "Open")
        .query(max(pair::KV_TRANSFER_HELD_BYTES).by(LINK), "Held")
        .words("Up", &[(0, "down", Color::Red), (1, "up", Color::Green)])
        .judge("Failed", Color::Text, &[(slo::TRANSFER_ERROR_RATIO, Color::Red)])
        .judge("Held", Color::Text, &[(1.0, Color::Orange)])
        .sorted_by("Failed", true)
        .no_value("no pair")
        .alert("KVTransferErrors")
        .alert("PeerDown")
}

fn states() -> Ready {
    let failing = failed().above(slo::TRANSFER_ERROR_RATIO).times(0.0).plus(2.0);
    let state = failing.in_unit(Unit::Flag).or(min(pair::PD_PEER_UP).by(LINK));
    state_timeline("link-states")
        .title("State of links")
        .describe(
            "Each link over time: `down`, the peer does not answer on the control connection; \
             `failing`, more of its transfers fail than the alert allows. A link that is down from \
             one side only: the other side refuses it; its log says why.",
        )
        .unit(Unit::Flag)
        .query(state, "{{instance}} {{peer}}")
        .map(0, "down", Color::Red)
        .map(1, "up", Color::Green)
        .map(2, "failing", Color::Orange)
        .no_value("no pair")
        .alert("PeerDown")
}
