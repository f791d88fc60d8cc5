//! Which queries answer a signal, by engine.

mod sglang;
mod vllm;

use metric_catalog::engines::Engine;
use metric_catalog::engines::signal::Signal;
use metric_catalog::engines::signals::{self, Status};
use metric_catalog::promql::{Expr, Window};

/// Windows of rates follow the step of the panel.
const NOW: Window = Window::Interval;

/// Legend of a series for each process.
const BY_PROCESS: &str = "{{instance}}";
/// Legend of a 99th percentile of each process.
const P99: &str = "p99 {{instance}}";

/// Expressions, each with its legend.
pub(super) type Queries = Vec<(Expr, &'static str)>;

fn one(expr: Expr, legend: &'static str) -> Queries {
    vec![(expr, legend)]
}

/// How an engine answers a signal.
#[derive(Debug, Clone)]
pub enum Answer {
    /// By these queries, each with its legend.
    Queries {
        /// Expressions and legends.
        queries: Vec<(Expr, &'static str)>,
        /// What to know of them; sentences.
        note: String,
    },
    /// Not at all.
    Gap {
        /// What is missing.
        gap: &'static str,
        /// What would close it.
        close: &'static str,
    },
}

/// How an engine answers a signal, in the newest version that is known. Versions that answer less
/// are in the note.
#[must_use]
pub fn answer(engine: Engine, signal: Signal) -> Answer {
    let answered = signals::of(engine).answered(signal);
    if answered.status == Status::Absent {
        let gap = answered.gap.as_deref().unwrap_or_default();
        return Answer::Gap { gap, close: answered.close.as_deref().unwrap_or_default() };
    }
    let older = answered.versions.values().filter_map(|older| older.gap.as_deref());
    let notes: Vec<&str> = answered.note.as_deref().into_iter().chain(older).collect();
    Answer::Queries { queries: queries(engine, signal), note: notes.join(" ") }
}

pub(super) fn queries(engine: Engine, signal: Signal) -> Queries {
    match engine {
        Engine::Sglang => sglang::queries(signal),
        Engine::Vllm => vllm::queries(signal),
    }
}

/// What is put together of several signals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Composed {
    /// Requests that ended, by the second and model.
    Offered,
    /// Share of HTTP answers that are a fault of the server.
    ErrorRatio,
    /// Share of requests that were refused.
    RefusedRatio,
    /// Processes by role.
    Replicas,
    /// Share of transfers that failed.
    TransferErrorRatio,
    /// Prompt tokens that a process can compute by the second.
    PrefillCapacity,
    /// Used share of a pool, by pool.
    PoolUsage,
    /// What the device pool is used for, in tokens.
    PoolSize,
    /// Requests that are waited for, by what they wait for.
    WaitingFor,
    /// Durations of copies between host and device.
    CopySeconds,
    /// Tokens or blocks that the host tier lost.
    HostDropped,
}

/// The queries of something composed; empty where the engine has none.
pub(super) fn composed(engine: Engine, what: Composed) -> Queries {
    match engine {
        Engine::Sglang => sglang::composed(what),
        Engine::Vllm => vllm::composed(what),
    }
}
