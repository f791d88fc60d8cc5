//! Alerts over clusters of other engines: those of ours that their pages allow, under the same
//! names, with the same limits, labels and sections of the runbook.
//!
//! What an engine does not tell is no alert that guesses: it is a gap with a reason: `standing`.
//! Alerts about hosts are the node exporter's and hold beside any engine: `server.yml` has them.

mod sglang;
mod vllm;

use super::{Alert, Group, Layer, Panel, Recording, Severity};
use crate::engines::Engine;
use crate::promql::{Expr, Recorded, Window};
use crate::slo;

pub use sglang::{LOADS_JOB as SGLANG_LOADS_JOB, PAGE_JOBS as SGLANG_JOBS};
pub use vllm::JOBS as VLLM_JOBS;

/// What becomes of one of our alerts over a cluster of another engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Its rules have it.
    Portable,
    /// Its rules have it, and it sees less than ours: what it cannot see.
    Partial(&'static str),
    /// It is about the host: it holds where our node exporter runs, with the rules of `server.yml`.
    OfTheHost,
    /// There is none: what the engine does not tell.
    Gap(&'static str),
}

/// How one of our alerts stands with an engine; none for a name that is not one of ours.
pub fn standing(engine: Engine, alert: &str) -> Option<Standing> {
    let ours = super::alerts().into_iter().find(|known| known.name == alert)?;
    let (partial, gaps) = match engine {
        Engine::Sglang => (sglang::PARTIAL, sglang::GAPS),
        Engine::Vllm => (vllm::PARTIAL, vllm::GAPS),
    };
    let among = |list: &[(&str, &'static str)]| {
        list.iter().find(|(name, _)| *name == alert).map(|(_, why)| *why)
    };
    // What is shown on the board of hosts is about them.
    let of_the_host = ours.panel.is_some_and(|panel| panel.board == "sightline-node");
    Some(if let Some(why) = among(gaps) {
        Standing::Gap(why)
    } else if let Some(what) = among(partial) {
        Standing::Partial(what)
    } else if of_the_host {
        Standing::OfTheHost
    } else {
        Standing::Portable
    })
}

/// The groups of rules over clusters of an engine; the recording group is first.
pub(super) fn groups(engine: Engine) -> Vec<Group> {
    let like = Like { engine, ours: super::alerts() };
    let (recording, alerting, recordings, alerts) = match engine {
        Engine::Sglang => {
            ("sglang.recording", "sglang.alerts", sglang::recordings(), sglang::alerts(&like))
        }
        Engine::Vllm => ("vllm.recording", "vllm.alerts", vllm::recordings(), vllm::alerts(&like)),
    };
    vec![
        Group { name: recording, interval_seconds: Some(15), recordings, alerts: Vec::new() },
        Group { name: alerting, interval_seconds: None, recordings: Vec::new(), alerts },
    ]
}

/// Makes alerts like ours: all that is not the expression is taken over.
struct Like {
    engine: Engine,
    ours: Vec<Alert>,
}

impl Like {
    /// The alert of ours with that name over another expression, shown on the engine's board.
    fn named(&self, name: &str, expr: Expr) -> Alert {
        let ours = self.ours.iter().find(|alert| alert.name == name);
        let ours = ours.expect("named after one of ours").clone();
        let panel = ours.panel.map(|Panel { board, panel }| self.panel(board, panel));
        Alert { expr, panel, ..ours }
    }

    /// The panel of the same name on the engine's board of the same name.
    fn panel(&self, board: &str, panel: &'static str) -> Panel {
        let board = match (self.engine, board) {
            (Engine::Sglang, "sightline-overview") => "sglang-overview",
            (Engine::Sglang, "sightline-queue") => "sglang-queue",
            (Engine::Sglang, "sightline-pd-flow") => "sglang-pd-flow",
            (Engine::Sglang, "sightline-transfer") => "sglang-transfer",
            (Engine::Sglang, "sightline-kv-pools") => "sglang-kv-pools",
            (Engine::Sglang, "sightline-hicache") => "sglang-hicache",
            (Engine::Vllm, "sightline-overview") => "vllm-overview",
            (Engine::Vllm, "sightline-queue") => "vllm-queue",
            (Engine::Vllm, "sightline-pd-flow") => "vllm-pd-flow",
            (Engine::Vllm, "sightline-transfer") => "vllm-transfer",
            (Engine::Vllm, "sightline-kv-pools") => "vllm-kv-pools",
            (Engine::Vllm, "sightline-hicache") => "vllm-hicache",
            (_, board) => panic!("no engine has a board like {board}"),
        };
        Panel { board, panel }
    }

    /// The two that stand in for the age of the oldest request and, where that is not known, for
    /// the drain time. `counted` are the requests that left the queue, by the second.
    fn queue_time(&self, p99: Recorded, counted: &Expr, drain_unknown: Option<Expr>) -> Vec<Alert> {
        let on = self.engine.instance();
        let enough = || counted.clone().times(300.0).at_least(slo::QUEUE_TIME_MIN_REQUESTS);
        let slower = |seconds: f64| p99.get().above(seconds).and_on(on, enough());
        let critical = slower(slo::QUEUE_TIME_CRITICAL_SECONDS);
        let critical = match drain_unknown {
            Some(known) => critical.unless_on(on, known),
            None => critical,
        };
        let warning = Alert {
            name: "QueueTimeHigh",
            summary: "one request in a hundred has waited {{ $value | humanizeDuration }} in the \
                      queue of {{ $labels.instance }}",
            runbook: "queue-time",
            panel: Some(self.panel("sightline-queue", "queue-time")),
            threshold: Some(slo::QUEUE_TIME_WARNING_SECONDS),
            ..self.named("PrefillQueueDrainSlow", slower(slo::QUEUE_TIME_WARNING_SECONDS))
        };
        let page = Alert {
            name: "QueueTimeCritical",
            severity: Severity::Critical,
            layer: Some(Layer::Queue),
            root_cause: true,
            expr: critical,
            threshold: Some(slo::QUEUE_TIME_CRITICAL_SECONDS),
            ..warning.clone()
        };
        vec![warning, page]
    }
}

/// Both windows agree, and enough requests are bad.
fn burns(long: Recorded, short: Recorded, limit: f64, count: Recorded, least: f64) -> Expr {
    let above = |series: Recorded| series.get().above(limit);
    above(long).and(above(short)).and(count.get().at_least(least))
}

/// Names, windows and the seconds of those whose bad requests are counted.
type Burn = (Recorded, Window);

/// The series of the budget: shares over four windows, numbers over two.
fn objectives(
    shares: [Burn; 4],
    numbers: [(Recorded, Window, f64); 2],
    all: impl Fn(Window) -> Expr,
    in_time: impl Fn(Window) -> Expr,
) -> Vec<Recording> {
    let late = |window| all(window).minus(in_time(window));
    let ttft = |expr: Expr| expr.labelled("slo", "ttft");
    let share = |(series, window)| Recording {
        series,
        expr: ttft(crate::promql::ratio(late(window), all(window))),
    };
    let number = |(series, window, seconds): (Recorded, Window, f64)| Recording {
        series,
        expr: ttft(late(window).times(seconds).in_unit(series.unit)),
    };
    shares.into_iter().map(share).chain(numbers.into_iter().map(number)).collect()
}

#[cfg(test)]
mod tests;
