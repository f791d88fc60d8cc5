//! Alerts about prefill and decode workers and the links between them.

use super::{Alert, Layer, Panel, Severity};
use crate::def::Label;
use crate::labels::*;
use crate::pair as m;
use crate::promql::recorded as r;
use crate::promql::{Expr, INSTANCE, MODEL, Selection, Window, increase, max, min, rate, sum, up};
use crate::{server, slo};

/// Scrape jobs of the two workers of a pair, as a regular expression on `job`.
const PAIR_JOBS: &str = "sightline-(prefill|decode)";

const fn flow(panel: &'static str) -> Option<Panel> {
    Some(Panel { board: "sightline-pd-flow", panel })
}

const fn transfer(panel: &'static str) -> Option<Panel> {
    Some(Panel { board: "sightline-transfer", panel })
}

pub(super) fn alerts() -> Vec<Alert> {
    vec![errors(), stuck(), cascade(), peer_down()]
}

fn errors() -> Alert {
    let failed = increase(m::KV_TRANSFERS.is(TransferResult::Error), Window::M5);
    let enough = sum(failed).per_instance().at_least(slo::TRANSFER_ERROR_MIN);
    Alert {
        name: "KVTransferErrors",
        expr: r::TRANSFER_ERROR_RATIO
            .get()
            .above(slo::TRANSFER_ERROR_RATIO)
            .and_on(INSTANCE, enough),
        hold_seconds: 180,
        severity: Severity::Critical,
        layer: Some(Layer::Symptom),
        root_cause: false,
        summary: "{{ $value | humanizePercentage }} of KV transfers on {{ $labels.instance }} \
                  fail, client aborts not counted",
        runbook: "kv-transfer",
        panel: transfer("transfer-error-ratio"),
        threshold: Some(slo::TRANSFER_ERROR_RATIO),
    }
}

fn stuck() -> Alert {
    let link = [INSTANCE, &["side", "peer"]].concat();
    let by = (TransferSide::KEY, Peer::KEY);
    let sent = sum(rate(m::KV_TRANSFER_BYTES, Window::M1)).per_instance_and(by);
    let open = sum(m::KV_TRANSFERS_ACTIVE.is(TransferState::Wire)).per_instance_and(by);
    Alert {
        name: "KVTransferStuck",
        expr: open.above(0.0).and_on(&link, sent.equals(0.0)),
        hold_seconds: 180,
        severity: Severity::Critical,
        layer: Some(Layer::Symptom),
        root_cause: false,
        summary: "{{ $value }} KV transfers between {{ $labels.instance }} and \
                  {{ $labels.peer }} are on the wire and no bytes move",
        runbook: "kv-transfer",
        panel: transfer("transfers-open"),
        threshold: None,
    }
}

fn cascade() -> Alert {
    let given_up = rate(server::REQUESTS_ABORTED.is(AbortInitiator::Client), Window::M2);
    // Each role counts the same client, so they are not added up.
    let by_role = sum(given_up).by((Cluster::KEY, Role::KEY, ModelName::KEY));
    let broken = rate(m::KV_TRANSFER_ERRORS.is(TransferFailure::PeerAbort), Window::M2);
    Alert {
        name: "AbortCascade",
        expr: max(by_role)
            .per_model()
            .above(slo::CLIENT_ABORTS_PER_SECOND)
            .and_on(MODEL, sum(broken).per_model().above(0.0)),
        hold_seconds: 30,
        severity: Severity::Critical,
        layer: Some(Layer::Symptom),
        root_cause: false,
        summary: "clients of {{ $labels.model_name }} give up and their aborts break transfers in \
                  flight",
        runbook: "abort-cascade",
        panel: flow("client-aborts"),
        threshold: Some(slo::CLIENT_ABORTS_PER_SECOND),
    }
}

fn peer_down() -> Alert {
    // Both ends of a link see that it is cut; the decode worker, which connects, tells.
    let links = m::PD_PEER_UP.is(PeerRole::Prefill);
    let unreachable: Expr = min(links).per_instance_and((Peer::KEY, PeerRole::KEY));
    let known = up(PAIR_JOBS).equals(0.0).copied("instance", "peer", "");
    // A worker answers its scrapes while it reads its weights, which takes longer than this waits;
    // neither it nor whoever waits for it has a link then.
    let phases = "loading|warming";
    let starting = || {
        let says = max(server::ENGINE_STATE.matching(EngineState::KEY, phases)).per_instance();
        says.equals(1.0)
    };
    let peer_starts = starting().copied("instance", "peer", "");
    Alert {
        name: "PeerDown",
        // A peer that does not answer its scrapes either is down itself, and one that starts says
        // so; this is about the link.
        expr: unreachable
            .equals(0.0)
            .unless_on(&["cluster", "peer"], known)
            .unless_on(&["cluster", "peer"], peer_starts)
            .unless_on(INSTANCE, starting()),
        hold_seconds: 60,
        severity: Severity::Critical,
        layer: Some(Layer::Process),
        root_cause: true,
        summary: "{{ $labels.instance }} cannot reach {{ $labels.peer_role }} {{ $labels.peer }}, \
                  which is not known to be down: look at the link",
        runbook: "peer-down",
        panel: transfer("peers-up"),
        threshold: None,
    }
}
