//! Series that the recording rules make, so that boards and alerts name them by a const.
//!
//! The expressions behind them are in `alerts`.

use super::aggregate::{INSTANCE, MODEL};
use super::ast::Node;
use super::expr::Expr;
use super::select::{Matcher, Window};
use crate::def::{Label, Unit};
use crate::engines::Engine;
use crate::target::Target;

/// A series that a recording rule makes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Recorded {
    /// Name, `level:metric:operation`.
    pub name: &'static str,
    /// Labels, in order.
    pub labels: &'static [&'static str],
    /// Unit.
    pub unit: Unit,
}

impl Recorded {
    fn select(&self, matchers: Vec<Matcher>, window: Option<Window>) -> Expr {
        let node = Node::Select {
            series: self.name.to_owned(),
            labels: self.labels.to_vec(),
            matchers,
            window,
            offset: None,
        };
        Expr::new(node, self.labels.to_vec(), self.unit)
    }

    /// The series.
    pub fn get(&self) -> Expr {
        self.select(Vec::new(), None)
    }

    /// The series with this value of a label.
    ///
    /// # Panics
    ///
    /// When the series has no such label.
    pub fn is<L: Label>(&self, value: L) -> Expr {
        self.named(L::INFO.name, &value.value())
    }

    /// The series with this value of a label that the rule made up.
    ///
    /// # Panics
    ///
    /// When the series has no such label.
    pub fn named(&self, label: &'static str, value: &str) -> Expr {
        assert!(self.labels.contains(&label), "{} has no label {label}", self.name);
        self.select(vec![Matcher::new(label, "=", value.to_owned())], None)
    }

    /// The newest value within the window.
    pub fn last_over(&self, window: Window) -> Expr {
        self.select(Vec::new(), Some(window)).call("last_over_time")
    }

    /// The largest value within the window.
    pub fn max_over(&self, window: Window) -> Expr {
        self.select(Vec::new(), Some(window)).call("max_over_time")
    }

    /// The smallest value within the window.
    pub fn min_over(&self, window: Window) -> Expr {
        self.select(Vec::new(), Some(window)).call("min_over_time")
    }

    /// The mean over the window.
    pub fn avg_over(&self, window: Window) -> Expr {
        self.select(Vec::new(), Some(window)).call("avg_over_time")
    }
}

impl From<Recorded> for Expr {
    fn from(recorded: Recorded) -> Self {
        recorded.get()
    }
}

const POOL: &[&str] =
    &["cluster", "node", "job", "instance", "engine_role", "model_name", "tier", "pool"];
const FILL: &[&str] = &["cluster", "node", "job", "instance", "engine_role", "model_name", "limit"];
/// Labels of one role of a model.
pub const ROLE: &[&str] = &["cluster", "engine_role", "model_name"];
const NODE_ROLE: &[&str] = &["cluster", "node", "engine_role"];
const OBSERVER: &[&str] = &["cluster", "model_name", "engine_role"];
const KIND: &[&str] = &["cluster", "model_name", "kind"];
const SLO: &[&str] = &["cluster", "model_name", "slo"];

macro_rules! recorded {
    ($($(#[$doc:meta])+ $id:ident = $name:literal, $labels:expr, $unit:ident;)+) => {
        $(
            $(#[$doc])+
            pub const $id: Recorded =
                Recorded { name: $name, labels: $labels, unit: Unit::$unit };
        )+

        /// All of them.
        pub const ALL: &[Recorded] = &[$($id),+];
    };
}

recorded! {
    /// Prompt tokens computed, by the second of elapsed time.
    PROMPT_TOKENS_COMPUTED =
        "instance:sightline_prompt_tokens_computed:rate5m", INSTANCE, TokensPerSecond;
    /// Share of time in passes that compute prompt tokens.
    PREFILL_BUSY = "instance:sightline_prefill_busy_seconds:rate5m", INSTANCE, Ratio;
    /// Prompt tokens by busy second: what the device can do. Absent while it does next to nothing.
    PREFILL_CAPACITY =
        "instance:sightline_prefill_capacity_tokens:rate5m", INSTANCE, TokensPerSecond;
    /// Tokens that wait for their prefill.
    PENDING_UNCACHED_TOKENS =
        "instance:sightline_queue_pending_uncached_tokens:sum", INSTANCE, Tokens;
    /// Requests that wait for their prefill.
    QUEUED_REQUESTS = "instance:sightline_queue_requests:sum", INSTANCE, Requests;
    /// Age of the oldest of them.
    QUEUE_OLDEST_AGE = "instance:sightline_queue_oldest_age_seconds:max", INSTANCE, Seconds;
    /// Time to prefill all that waits: a forecast of the next request's time to first token.
    QUEUE_DRAIN = "instance:sightline_queue_drain_seconds:estimate", INSTANCE, Seconds;
    /// Time to prefill as much as the queue may hold: drain never gets longer. Absent where the
    /// queue has no limit in tokens.
    QUEUE_BOUND = "instance:sightline_queue_bound_seconds:estimate", INSTANCE, Seconds;
    /// Fill of the queue against each of its limits (label `limit`: requests, tokens).
    QUEUE_FILL = "instance:sightline_queue_fill:ratio", FILL, Ratio;
    /// Requests refused for lack of capacity.
    REFUSED = "instance:sightline_requests_refused:rate5m", INSTANCE, RequestsPerSecond;
    /// Their share of all that were offered.
    REFUSED_RATIO = "instance:sightline_requests_refused:ratio_rate5m", INSTANCE, Ratio;
    /// Share of KV transfers that failed, those that somebody gave up left out.
    TRANSFER_ERROR_RATIO =
        "instance:sightline_kv_transfer_errors:ratio_rate2m", INSTANCE, Ratio;
    /// Used share of a pool.
    POOL_USED = "instance_pool:sightline_kv_pool_used:ratio", POOL, Ratio;
    /// Share of a pool that live requests pin.
    POOL_ACTIVE = "instance_pool:sightline_kv_pool_active:ratio", POOL, Ratio;
    /// Share of prompt tokens whose KV was there already.
    PREFIX_HIT = "instance:sightline_prompt_tokens_reused:ratio_rate5m", INSTANCE, Ratio;
    /// Processes of a role that serve.
    LIVE_REPLICAS = "role:sightline_live_replicas:sum", ROLE, Count;
    /// How many there should be: as many as a router declares, else as there were in an hour.
    EXPECTED_REPLICAS = "role:sightline_expected_replicas:max", ROLE, Count;
    /// Seconds left of planned work on a role of a host; none where nothing is planned.
    MAINTENANCE = "node_role:sightline_maintenance_remaining_seconds:max", NODE_ROLE, Seconds;
    /// 1 for the role that sees what the client of a model sees.
    OBSERVER_ROLE = "model:sightline_observer:role", OBSERVER, Flag;
    /// Requests offered, refused ones included.
    OFFERED = "model:sightline_requests_offered:rate5m", MODEL, RequestsPerSecond;
    /// 99th percentile of the time to first token.
    TTFT_P99 = "model:sightline_ttft_seconds:p99_rate5m", MODEL, Seconds;
    /// 99th percentile of the gap between tokens.
    ITL_P99 = "model:sightline_inter_token_latency_seconds:p99_rate5m", MODEL, Seconds;
    /// Share of requests that end in an error of ours (label `kind`: http_5xx,
    /// no_worker).
    ERROR_RATIO = "model_kind:sightline_request_errors:ratio_rate1m", KIND, Ratio;
    /// Their number.
    ERROR_COUNT = "model_kind:sightline_request_errors:increase5m", KIND, Requests;
    /// Share of requests that miss an objective, over five minutes.
    SLO_BAD_M5 = "model:sightline_slo_bad:ratio_rate5m", SLO, Ratio;
    /// The same over half an hour.
    SLO_BAD_M30 = "model:sightline_slo_bad:ratio_rate30m", SLO, Ratio;
    /// The same over an hour.
    SLO_BAD_H1 = "model:sightline_slo_bad:ratio_rate1h", SLO, Ratio;
    /// The same over six hours.
    SLO_BAD_H6 = "model:sightline_slo_bad:ratio_rate6h", SLO, Ratio;
    /// Requests that missed an objective in an hour.
    SLO_BAD_COUNT_H1 = "model:sightline_slo_bad:increase1h", SLO, Requests;
    /// The same in six hours.
    SLO_BAD_COUNT_H6 = "model:sightline_slo_bad:increase6h", SLO, Requests;
    /// Share of the requests for a model that are refused at the door, as its clients see it.
    TURNED_AWAY_M5 = "model:sightline_requests_refused:ratio_rate5m", MODEL, Ratio;
    /// The same over half an hour.
    TURNED_AWAY_M30 = "model:sightline_requests_refused:ratio_rate30m", MODEL, Ratio;
}

pub mod sglang;
pub mod vllm;

/// The series that the rules of a target make.
pub const fn of(target: Target) -> &'static [Recorded] {
    match target {
        Target::Sightline => ALL,
        Target::Engine(Engine::Sglang) => sglang::ALL,
        Target::Engine(Engine::Vllm) => vllm::ALL,
    }
}

/// Keeps the series of the one role that sees what the client of a model sees: each role counts the
/// same request, so they are never added up.
pub fn observed(expr: impl Into<Expr>) -> Expr {
    let on = ["cluster", "model_name", "engine_role"];
    expr.into().joined(&on, OBSERVER_ROLE)
}
