//! What each size of the host tier would be worth to the traffic of this server, and whether there
//! is room: the hit-ratio curve, the planner and the machine, joined.
//!
//! Rates are those of the last hour, from snapshots of counters that only grow. The machine is read
//! when somebody asks. Nothing here changes the tier.

mod history;
mod report;
mod room;

#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use engine::{CurveSnapshot, EngineSnapshot};
use kv_cache::{AdviceRatio, AdviseInput, PlanInput, advise};
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use types::{Bytes, Time};

use self::history::{Counts, History, PERIOD, Window};
use crate::config::{Host, Resolved};
use crate::http::Api;
use crate::telemetry::curve::candidates;

/// Hit ratios closer than this are the same.
const EPSILON: f64 = 0.01;

/// The form of the answer; a change that readers notice is another number.
pub(crate) const FORM: u64 = 1;

/// What the advice follows from, besides traffic and machine.
#[derive(Debug)]
pub(crate) struct Advisor {
    /// Pools and ranks; `None` where no tier can be sized.
    tier: Option<PlanInput>,
    /// The ratio in force; 0 without a tier.
    current: f64,
    /// Ratios that the curve is drawn for.
    ratios: Vec<f64>,
    process: room::Process,
    /// Which pool keeps every position, and tokens of its pages.
    full: (usize, u64),
    curve: bool,
    history: Mutex<History>,
    root: node_info::Root,
    /// One reader of the machine at a time; the others wait for their turn.
    pub(crate) turn: Semaphore,
}

/// Why there is no advice, where the reason is not in the numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Silence {
    Loading,
    CurveOff,
    NoTier,
}

impl Silence {
    const fn id(self) -> &'static str {
        match self {
            Self::Loading => "loading",
            Self::CurveOff => "curve_off",
            Self::NoTier => "no_tier",
        }
    }

    const fn text(self) -> &'static str {
        match self {
            Self::Loading => "the model is still being loaded: there was no traffic yet",
            Self::CurveOff => {
                "the hit-ratio curve is off: what a size would find is known with --hit-curve on \
                 and --prefix-cache on"
            }
            Self::NoTier => "no host tier can be sized for this model",
        }
    }
}

impl Advisor {
    /// For a server with these values.
    #[must_use]
    pub(crate) fn new(resolved: &Resolved) -> Self {
        let full = resolved.kv.iter().position(|pool| pool.window.is_none()).unwrap_or(0);
        Self {
            tier: resolved.tier.clone(),
            current: resolved.hierarchy.as_ref().map_or(0.0, |tier| tier.plan.ratio),
            ratios: std::iter::once(0.0).chain(candidates(resolved)).collect(),
            process: room::Process::new(resolved),
            full: (full, resolved.page_tokens as u64),
            curve: resolved.curve.is_some(),
            history: Mutex::new(History::default()),
            root: node_info::Root::default(),
            turn: Semaphore::const_new(1),
        }
    }

    fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests are served from now on.
    pub(crate) fn begin(&self, now: Time) {
        self.history().begin(now);
    }

    /// Remembers the counters of now, at most once a minute.
    fn note(&self, now: Time, curve: &CurveSnapshot, engine: &EngineSnapshot) {
        let counts = self.counts(curve, engine);
        self.history().note(now, counts);
    }

    fn counts(&self, curve: &CurveSnapshot, engine: &EngineSnapshot) -> Counts {
        let (full, page_tokens) = self.full;
        let pool = engine.pools.get(full);
        let pages = pool.map_or(0, |pool| {
            let host = pool.host.as_ref().map_or(0, |host| host.hit_pages);
            pool.device.hit_pages.saturating_add(host)
        });
        Counts {
            requests: curve.requests,
            dropped: curve.dropped,
            lookup_tokens: curve.lookup_tokens,
            queried_tokens: pool.map_or(0, |pool| pool.device.query_tokens),
            found_tokens: pages.saturating_mul(page_tokens),
            candidates: curve
                .candidates
                .iter()
                .map(|candidate| (candidate.hit_tokens, candidate.window_loss_tokens))
                .collect(),
        }
    }

    /// The whole answer. Reads the machine: not for an async thread.
    pub(crate) fn report(&self, api: &Api) -> Value {
        let snapshot = api.snapshot();
        let host = Host::read(&self.root);
        let resident = self.root.process().map_or(0, |process| process.resident_bytes);
        let curve = snapshot.curve.as_ref().zip(snapshot.engine.as_ref());
        let window = curve.map(|(curve, engine)| {
            self.history().window(snapshot.now, &self.counts(curve, engine))
        });
        let server = report::Server { model: &api.model_name, phase: snapshot.phase };
        let curve = snapshot.curve.as_ref();
        self.answer(&server, &host, Bytes(resident), window.as_ref(), curve)
    }

    fn answer(
        &self,
        server: &report::Server<'_>,
        host: &Host,
        resident: Bytes,
        window: Option<&Window>,
        curve: Option<&CurveSnapshot>,
    ) -> Value {
        let silence = match (&self.tier, window) {
            (None, _) => Some(Silence::NoTier),
            (Some(_), None) if self.curve => Some(Silence::Loading),
            (Some(_), None) => Some(Silence::CurveOff),
            (Some(_), Some(_)) => None,
        };
        let room = self.tier.as_ref().map(|tier| self.process.room(host, resident, &tier.ranks));
        let tier = self.tier.clone().zip(room).map(|(tier, room)| PlanInput { room, ..tier });
        let input = tier.map(|tier| self.input(tier, window, curve));
        let advice = input.as_ref().map(advise);
        report::json(server, self.current, &self.process, window, input.zip(advice), silence)
    }

    fn input(
        &self,
        tier: PlanInput,
        window: Option<&Window>,
        curve: Option<&CurveSnapshot>,
    ) -> AdviseInput {
        let nothing = Window::default();
        let window = window.unwrap_or(&nothing);
        let unknown = |ratio: &f64| AdviceRatio {
            ratio: *ratio,
            hit_tokens: 0,
            window_loss_tokens: 0,
            warm: false,
        };
        let ratios = match curve {
            None => self.ratios.iter().map(unknown).collect(),
            Some(curve) => {
                let counts = curve.candidates.iter().zip(&window.counts.candidates);
                let point = counts.map(|(candidate, (hits, loss))| AdviceRatio {
                    ratio: candidate.ratio,
                    hit_tokens: *hits,
                    window_loss_tokens: *loss,
                    warm: candidate.warm,
                });
                point.collect()
            }
        };
        let counts = &window.counts;
        AdviseInput {
            seconds: window.seconds,
            requests: counts.requests,
            dropped_requests: counts.dropped,
            lookup_tokens: counts.lookup_tokens,
            ratios,
            tier,
            current: self.current,
            actual: counts.hit_ratio().unwrap_or(0.0),
            epsilon: EPSILON,
        }
    }
}

/// Keeps the history until `stop`.
pub(crate) async fn keep(api: Arc<Api>, stop: CancellationToken) {
    let mut ticks = tokio::time::interval(PERIOD);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = ticks.tick() => {}
        }
        let snapshot = api.snapshot();
        if let (Some(curve), Some(engine)) = (&snapshot.curve, &snapshot.engine) {
            api.advisor().note(snapshot.now, curve, engine);
        }
    }
}
