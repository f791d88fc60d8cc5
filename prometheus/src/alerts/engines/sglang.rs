//! Alerts over clusters of SGLang.
//!
//! Ranks of a process expose copies, a failed transfer is counted on both sides, the HTTP server
//! and the prefix cache know no model, and how much waits is on `/v1/loads` only, which is a scrape
//! job of its own: without it the drain time is absent, and so are the alerts on it.

use super::{Alert, Like, Recording, burns, objectives};
use crate::def::Label;
use crate::engines::labels::{CachePool, DpRank, DropReason, Endpoint, EngineType, HttpStatusCode};
use crate::engines::sglang::{self as m, INSTANCE, PROCESS};
use crate::labels::{Cluster, Instance, Job, Node};
use crate::promql::recorded::sglang as r;
use crate::promql::{
    Expr, MODEL, Recorded, Selection, Window, clamp_min, count, group, increase, last_over_time,
    max, min, observations, observations_within, quantile, quotient_of, rate, ratio, sum, up,
};
use crate::slo;

/// Scrape jobs of the pages of processes, as a regular expression on `job`.
pub const PAGE_JOBS: &str = "sglang(-(prefill|decode|unified))?";
/// Scrape job of their `/v1/loads`, whose targets have the instance of the page.
pub const LOADS_JOB: &str = "sglang-loads";

/// Where clients send requests to.
const SERVED: &str = "/v1/.*|/generate";

/// What alerts see less of than ours.
pub(super) const PARTIAL: &[(&str, &str)] = &[
    (
        "PrefillQueueDrainSlow",
        "needs the scrape of /v1/loads; a lone request that is old is not seen",
    ),
    (
        "PrefillQueueDrainCritical",
        "needs the scrape of /v1/loads; a lone request that is old is not seen",
    ),
    (
        "RequestsRejected",
        "refusals are answers with 503; one that a stream had begun before is not seen",
    ),
    (
        "SloBudgetBurnFast",
        "of the time to first token only; requests refused or given up are missing",
    ),
    (
        "SloBudgetBurnSlow",
        "of the time to first token only; requests refused or given up are missing",
    ),
    ("ErrorRateHigh", "by process, not by model; the first answer with a status is not counted"),
    ("KVTransferErrors", "no reasons: transfers that clients gave up count as failed"),
    ("AbortCascade", "aborts by the front process only"),
    ("HostPoolThrashing", "the anchor pool only; needs the counter of dropped tokens"),
    ("PrefillThroughputCollapsed", "needs the scrape of /v1/loads"),
    ("TargetDown", "planned work is not known: silence it"),
    ("RoleMissing", "replicas are those that were there: none is declared"),
    ("LiveReplicasDropped", "replicas are those that were there: none is declared"),
    ("HostCacheUndersized", "by the node exporter only, which reads the start log"),
    ("HostCacheOffNode", "by the node exporter only"),
];

/// Alerts that its pages do not allow.
pub(super) const GAPS: &[(&str, &str)] = &[
    ("QueueNearLimit", "the limit of the queue is not exported"),
    ("QueueUnbounded", "the limit of the queue is not exported"),
    ("MostRequestsRefused", "refusals are not counted, and no page knows how many were offered"),
    ("OldestQueuedRequestTooOld", "ages of waiting requests are not exported; see QueueTimeHigh"),
    ("SchedulerStalled", "the scheduler has no heartbeat"),
    ("KVTransferStuck", "bytes are counted when a transfer has ended"),
    ("PeerDown", "links between workers are not exported"),
];

fn rule(series: Recorded, expr: Expr) -> Recording {
    Recording { series, expr }
}

/// Requests that wait: for their prefill, or for the peer that takes its result.
fn queued() -> Expr {
    let waiting = m::deduped(m::NUM_QUEUE_REQS).labelled("queue", "waiting");
    let bootstrap = m::deduped(m::NUM_PREFILL_BOOTSTRAP_QUEUE_REQS).labelled("queue", "bootstrap");
    m::per_process(waiting.or(bootstrap))
}

/// Processes that compute prompts: what waits on a decode process is computed already.
fn prefills() -> Expr {
    group(m::NUM_RUNNING_REQS.without(EngineType::Decode)).group(INSTANCE.to_vec())
}

/// By model, of processes that clients talk to: a prefill process of a pair sees a request of one
/// token that no client sends.
fn by_model<I: crate::promql::Instant>(instant: I) -> Expr {
    sum(instant).group(MODEL.to_vec())
}

/// Requests that left the queue, by the second.
fn left_the_queue() -> Expr {
    let by_scheduler = [INSTANCE, &["dp_rank"]].concat();
    m::per_process(max(observations(m::QUEUE_TIME, Window::M5)).group(by_scheduler))
}

fn finished(window: Window) -> Expr {
    sum(rate(m::NUM_REQUESTS, window)).group(INSTANCE.to_vec())
}

/// Transfers that failed at a process, by the second.
fn failed(window: Window) -> Expr {
    let sent = m::deduped_rate(m::NUM_TRANSFER_FAILED_REQS, window).labelled("stage", "transfer");
    let met = m::deduped_rate(m::NUM_BOOTSTRAP_FAILED_REQS, window).labelled("stage", "bootstrap");
    m::per_process(sent.or(met))
}

pub(super) fn recordings() -> Vec<Recording> {
    // What is computed in five minutes with a queue throughout is what the process can do; without
    // one it is what was asked of it.
    let throughout = r::QUEUED_REQUESTS.min_over(Window::M5).above(0.0);
    let computed = m::computed_tokens(Window::M5).above(0.0).and_on(INSTANCE, throughout);
    let capacity = m::prefill_capacity(Window::M5).or(computed);
    // The last trusted capacity stands in while the process is quiet.
    let known = r::PREFILL_CAPACITY.get().or(r::PREFILL_CAPACITY.last_over(Window::H6));
    let known = clamp_min(known, slo::CAPACITY_FLOOR_TOKENS_PER_SECOND);
    let queue_time = quantile(0.99, m::QUEUE_TIME, Window::M5).group(INSTANCE.to_vec());
    let gaps = m::INTER_TOKEN_LATENCY.without(EngineType::Prefill);
    let live = group(m::NUM_RUNNING_REQS).group(INSTANCE.to_vec());
    let ended = rate(m::NUM_REQUESTS.without(EngineType::Prefill), Window::M5);
    let itl = quantile(0.99, gaps, Window::M5).group(MODEL.to_vec());
    let seen = || m::TIME_TO_FIRST_TOKEN.without(EngineType::Prefill);
    let edge = slo::ENGINE_TTFT_EDGE_SECONDS;
    let budget = objectives(
        [
            (r::SLO_BAD_M5, Window::M5),
            (r::SLO_BAD_M30, Window::M30),
            (r::SLO_BAD_H1, Window::H1),
            (r::SLO_BAD_H6, Window::H6),
        ],
        [(r::SLO_BAD_COUNT_H1, Window::H1, 3600.0), (r::SLO_BAD_COUNT_H6, Window::H6, 21_600.0)],
        |window| by_model(observations_within(seen(), f64::INFINITY, window)),
        |window| by_model(observations_within(seen(), edge, window)),
    );
    let here = vec![
        rule(r::QUEUED_REQUESTS, queued()),
        rule(r::PENDING_UNCACHED_TOKENS, m::pending_tokens().and_on(INSTANCE, prefills())),
        rule(r::PREFILL_CAPACITY, capacity),
        rule(r::QUEUE_DRAIN, quotient_of(r::PENDING_UNCACHED_TOKENS, known)),
        rule(r::QUEUE_TIME_P99, queue_time),
        rule(r::LIVE_REPLICAS, count(live).group(r::ROLE.to_vec())),
        rule(r::FINISHED, by_model(ended)),
        rule(r::ITL_P99, itl),
    ];
    [here, budget].concat()
}

pub(super) fn alerts(like: &Like) -> Vec<Alert> {
    [queues(like), clients(like), pairs(like), pools(like), processes(like)].concat()
}

fn queues(like: &Like) -> Vec<Alert> {
    let slower = |seconds: f64| {
        let waits = r::QUEUED_REQUESTS.get().at_least(slo::DRAIN_MIN_REQUESTS);
        r::QUEUE_DRAIN.get().above(seconds).and_on(INSTANCE, waits)
    };
    let usual = r::PREFILL_CAPACITY.avg_over(Window::H2).offset(Window::M10);
    let waits = r::PENDING_UNCACHED_TOKENS.get().above(slo::CAPACITY_COLLAPSED_MIN_TOKENS);
    let collapsed = r::PREFILL_CAPACITY.get().below(usual.times(slo::CAPACITY_COLLAPSED_RATIO));
    // By process and status: the page knows no model for them.
    let served = || m::HTTP_RESPONSES.matching(Endpoint::KEY, SERVED);
    let refused = |window| {
        let refused = rate(served().is(HttpStatusCode::new("503")), window);
        sum(refused).group(PROCESS.to_vec())
    };
    let offered = sum(rate(served(), Window::M5)).group(PROCESS.to_vec());
    let share = m::of_processes(ratio(refused(Window::M5), offered));
    let enough = refused(Window::M5).times(300.0).at_least(slo::REFUSED_MIN);
    let mut alerts = vec![
        like.named("PrefillQueueDrainSlow", slower(slo::DRAIN_WARNING_SECONDS)),
        like.named("PrefillQueueDrainCritical", slower(slo::DRAIN_CRITICAL_SECONDS)),
        Alert {
            summary: "{{ $labels.instance }} refuses {{ $value | humanizePercentage }} of requests \
                      (503)",
            ..like
                .named("RequestsRejected", share.above(slo::REFUSED_RATIO).and_on(PROCESS, enough))
        },
        like.named("PrefillThroughputCollapsed", collapsed.and_on(INSTANCE, waits)),
    ];
    // Where the drain time is known it says the same earlier.
    let known = r::QUEUE_DRAIN.get();
    alerts.extend(like.queue_time(r::QUEUE_TIME_P99, &left_the_queue(), Some(known)));
    alerts
}

fn clients(like: &Like) -> Vec<Alert> {
    let tokens = observations_within(
        m::INTER_TOKEN_LATENCY.without(EngineType::Prefill),
        f64::INFINITY,
        Window::M5,
    );
    let itl = r::ITL_P99
        .get()
        .above(slo::ITL_P99_SECONDS)
        .and_on(MODEL, by_model(tokens).above(slo::ITL_MIN_TOKENS_PER_SECOND));
    let served = || m::HTTP_RESPONSES.matching(Endpoint::KEY, SERVED);
    // 503 is how it refuses, see `RequestsRejected`.
    let errors =
        || served().matching(HttpStatusCode::KEY, "5..").without(HttpStatusCode::new("503"));
    let by_process = |of| sum(rate(of, Window::M1)).group(PROCESS.to_vec());
    let share = m::of_processes(ratio(by_process(errors()), by_process(served())));
    let number = sum(increase(errors(), Window::M5)).group(PROCESS.to_vec());
    let steady = r::FINISHED.avg_over(Window::H1).offset(Window::M10);
    let waiting = m::deduped(m::NUM_QUEUE_REQS).labelled("queue", "waiting");
    let busy = sum(m::deduped(m::NUM_RUNNING_REQS).or(waiting)).group(MODEL.to_vec());
    let fast = burns(
        r::SLO_BAD_H1,
        r::SLO_BAD_M5,
        slo::SLO_BAD_FAST_RATIO,
        r::SLO_BAD_COUNT_H1,
        slo::SLO_BAD_FAST_MIN,
    );
    let slow = burns(
        r::SLO_BAD_H6,
        r::SLO_BAD_M30,
        slo::SLO_BAD_SLOW_RATIO,
        r::SLO_BAD_COUNT_H6,
        slo::SLO_BAD_SLOW_MIN,
    );
    vec![
        like.named("SloBudgetBurnFast", fast),
        like.named("SloBudgetBurnSlow", slow),
        like.named("InterTokenLatencyHigh", itl),
        Alert {
            summary: "{{ $value | humanizePercentage }} of requests to {{ $labels.instance }} end \
                      in 5xx",
            ..like.named(
                "ErrorRateHigh",
                share.above(slo::ERROR_RATIO).and_on(PROCESS, number.at_least(slo::ERROR_MIN)),
            )
        },
        // Nothing that ends is no silence while something runs or waits.
        like.named(
            "TrafficVanished",
            r::FINISHED
                .get()
                .equals(0.0)
                .and(steady.above(slo::STEADY_REQUESTS_PER_SECOND))
                .unless_on(MODEL, busy.above(0.0)),
        ),
    ]
}

fn pairs(like: &Like) -> Vec<Alert> {
    let ended = failed(Window::M2)
        .labelled("end", "failed")
        .or(finished(Window::M2).labelled("end", "finished"));
    let share = ratio(failed(Window::M2), m::per_process(ended));
    let enough = failed(Window::M5).times(300.0).at_least(slo::TRANSFER_ERROR_MIN);
    // Each role counts the same client and the same transfer, so they are not added up.
    let given_up = sum(rate(m::NUM_ABORTED_REQUESTS, Window::M2)).group(r::ROLE.to_vec());
    let broken = max(failed(Window::M2)).group(MODEL.to_vec());
    vec![
        Alert {
            summary: "{{ $value | humanizePercentage }} of KV transfers of the \
                      {{ $labels.engine_type }} {{ $labels.instance }} fail",
            ..like.named(
                "KVTransferErrors",
                share.above(slo::TRANSFER_ERROR_RATIO).and_on(INSTANCE, enough),
            )
        },
        like.named(
            "AbortCascade",
            max(given_up)
                .group(MODEL.to_vec())
                .above(slo::CLIENT_ABORTS_PER_SECOND)
                .and_on(MODEL, broken.above(0.0)),
        ),
    ]
}

fn pools(like: &Like) -> Vec<Alert> {
    let active = max(m::TOKEN_USAGE).group(INSTANCE.to_vec()).above(slo::POOL_ACTIVE_RATIO);
    let retracted = m::per_process(m::deduped_rate(m::NUM_RETRACTED_REQUESTS, Window::M5));
    let used = m::per_process(m::deduped(m::HICACHE_HOST_USED_TOKENS));
    let fill = ratio(used, m::per_process(m::deduped(m::HICACHE_HOST_TOTAL_TOKENS)));
    // Each rank counts all of the tokens.
    let ranks = (Cluster::KEY, Instance::KEY, DpRank::KEY);
    let loaded = sum(max(rate(m::LOAD_BACK_TOKENS, Window::M10)).by(ranks)).group(PROCESS.to_vec());
    let ranks = (Cluster::KEY, Instance::KEY, DpRank::KEY, DropReason::KEY, CachePool::KEY);
    let dropped = max(rate(m::HICACHE_DROPPED_TOKENS, Window::M10)).by(ranks);
    let dropped = sum(dropped).group(PROCESS.to_vec());
    let churn = dropped.above(loaded.times(slo::HOST_EVICTIONS_PER_HIT));
    vec![
        Alert {
            summary: "the worst device pool of {{ $labels.instance }} is \
                      {{ $value | humanizePercentage }} pinned by live requests",
            ..like.named("DevicePoolExhausted", active)
        },
        like.named("RetractionStorm", retracted.above(slo::RETRACTIONS_PER_SECOND)),
        Alert {
            summary: "the host tier of {{ $labels.instance }} is full and drops far more than it \
                      serves",
            ..like.named(
                "HostPoolThrashing",
                fill.above(slo::HOST_POOL_FULL_RATIO).and_on(PROCESS, churn),
            )
        },
    ]
}

fn processes(like: &Like) -> Vec<Alert> {
    let target = ["cluster", "job", "instance"];
    let down = || -> Expr {
        let by = (Cluster::KEY, Node::KEY, Job::KEY, Instance::KEY);
        min(up(PAGE_JOBS)).by(by).equals(0.0)
    };
    // What it served is known from its last scrapes, so that only that model's symptoms are muted.
    let served = group(last_over_time(m::NUM_RUNNING_REQS, Window::D1)).group(vec![
        "cluster",
        "job",
        "instance",
        "engine_type",
        "model_name",
    ]);
    let live = || r::LIVE_REPLICAS.get();
    let was_there = r::LIVE_REPLICAS.max_over(Window::H6).above(0.0);
    let fewer = live().below(r::LIVE_REPLICAS.max_over(Window::H1));
    vec![
        like.named(
            "TargetDown",
            served.joined_with(&target, &["node"], down()).or_on(&target, down()),
        ),
        Alert {
            summary: "no {{ $labels.engine_type }} process of {{ $labels.model_name }} answers; \
                      there were {{ $value }}",
            ..like.named("RoleMissing", was_there.unless_on(r::ROLE, live().above(0.0)))
        },
        Alert {
            summary: "only {{ $value }} {{ $labels.engine_type }} processes of \
                      {{ $labels.model_name }} answer, fewer than an hour ago",
            ..like.named("LiveReplicasDropped", fewer)
        },
        like.named("Watchdog", crate::promql::vector(1.0)),
    ]
}
