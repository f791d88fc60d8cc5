//! Alerts over clusters of vLLM.
//!
//! Its engines are no copies and are summed. It exports no role (the scrape configuration sets
//! `engine_role`), its HTTP server knows no model, and it does not say how much waits: the time in
//! the queue stands in for the drain time.

use super::{Alert, Like, Recording, Severity, burns, objectives};
use crate::def::Label;
use crate::engines::labels::{Handler, HttpStatusClass, RejectionReason};
use crate::engines::vllm as m;
use crate::labels::{Cluster, Instance, Job, Node, Role};
use crate::promql::recorded::{ROLE, vllm as r};
use crate::promql::{
    Expr, INSTANCE, MODEL, Recorded, Selection, Window, clamp_min, count, group, increase,
    last_over_time, max, min, observations, observations_within, quantile, rate, ratio, sum, up,
};
use crate::slo;

/// Scrape jobs of the pages of processes, as a regular expression on `job`.
pub const JOBS: &str = "vllm(-(prefill|decode|unified))?";

/// Where clients send requests to.
const SERVED: &str = "/v1/.*";
/// What tells processes apart where no model is known.
const PROCESS: &[&str] = &["cluster", "instance"];

/// What alerts see less of than ours.
pub(super) const PARTIAL: &[(&str, &str)] = &[
    (
        "SloBudgetBurnFast",
        "of the time to first token only; requests refused or given up are missing",
    ),
    (
        "SloBudgetBurnSlow",
        "of the time to first token only; requests refused or given up are missing",
    ),
    (
        "ErrorRateHigh",
        "by process, not by model; refusals are taken off, as their status is 5xx too",
    ),
    ("KVTransferErrors", "of the NIXL connector"),
    ("RequestsRejected", "not in versions that do not limit their queue"),
    ("MostRequestsRefused", "not in versions that do not limit their queue"),
    ("TargetDown", "planned work is not known: silence it"),
    ("RoleMissing", "replicas are those that were there: none is declared"),
    ("LiveReplicasDropped", "replicas are those that were there: none is declared"),
    ("HostCacheUndersized", "by the node exporter only"),
    ("HostCacheOffNode", "by the node exporter only"),
];

/// Alerts that its pages do not allow.
pub(super) const GAPS: &[(&str, &str)] = &[
    ("PrefillQueueDrainSlow", "how many tokens wait is not exported; see QueueTimeHigh"),
    ("PrefillQueueDrainCritical", "how many tokens wait is not exported; see QueueTimeCritical"),
    ("PrefillThroughputCollapsed", "the time of forward passes is not exported"),
    ("QueueNearLimit", "the limits of the queue are not exported"),
    ("QueueUnbounded", "the limits of the queue are not exported"),
    ("OldestQueuedRequestTooOld", "ages of waiting requests are not exported; see QueueTimeHigh"),
    ("SchedulerStalled", "the scheduler has no heartbeat"),
    ("KVTransferStuck", "bytes are counted when a transfer has ended"),
    ("AbortCascade", "the count of aborted requests stays 0, whatever clients do"),
    ("PeerDown", "links between workers are not exported"),
    ("HostPoolThrashing", "the fill of the host tier is not exported; see HostPoolPinned"),
];

fn rule(series: Recorded, expr: Expr) -> Recording {
    Recording { series, expr }
}

fn by_model<I: crate::promql::Instant>(instant: I) -> Expr {
    sum(instant).group(MODEL.to_vec())
}

fn per_instance<I: crate::promql::Instant>(instant: I) -> Expr {
    sum(instant).group(INSTANCE.to_vec())
}

/// What the HTTP server says of a process, with the labels of its engines.
fn of_processes(by_process: Expr) -> Expr {
    let unit = by_process.unit();
    let processes = group(m::NUM_REQUESTS_RUNNING).group(INSTANCE.to_vec());
    processes.joined_with(PROCESS, &[], by_process).in_unit(unit)
}

/// Requests that ended in an engine, and those that were refused before they got there: `ended` and
/// `refused` have the same labels.
fn offered(ended: Expr, refused: Expr, by: &[&'static str]) -> Expr {
    sum(ended.labelled("end", "served").or(refused.labelled("end", "refused"))).group(by.to_vec())
}

fn refusals() -> Vec<Recording> {
    let refused = |window| rate(m::ADMISSION_REJECTIONS, window);
    let by_reason = [INSTANCE, &[RejectionReason::INFO.name]].concat();
    let by_reason = sum(refused(Window::M5)).group(by_reason);
    let here = offered(
        per_instance(rate(m::REQUEST_SUCCESS, Window::M5)),
        per_instance(refused(Window::M5)),
        INSTANCE,
    );
    let share = |window| {
        let all = offered(
            by_model(rate(m::REQUEST_SUCCESS.without(Role::Prefill), window)),
            by_model(refused(window)),
            MODEL,
        );
        ratio(by_model(refused(window)), all)
    };
    vec![
        rule(r::REFUSED, by_reason),
        rule(r::REFUSED_RATIO, r::REFUSED.get().share_of(INSTANCE, here)),
        rule(r::TURNED_AWAY_M5, share(Window::M5)),
        rule(r::TURNED_AWAY_M30, share(Window::M30)),
    ]
}

pub(super) fn recordings() -> Vec<Recording> {
    let queue_time = quantile(0.99, m::REQUEST_QUEUE_TIME, Window::M5).group(INSTANCE.to_vec());
    let live = group(m::NUM_REQUESTS_RUNNING).group(INSTANCE.to_vec());
    // A prefill process of a pair sees a request of one token that no client sends.
    let ended = rate(m::REQUEST_SUCCESS.without(Role::Prefill), Window::M5);
    let seen = || m::TIME_TO_FIRST_TOKEN.without(Role::Prefill);
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
        rule(r::LIVE_REPLICAS, count(live).group(ROLE.to_vec())),
        rule(r::FINISHED, by_model(ended)),
        rule(r::ITL_P99, m::inter_token_latency(0.99, Window::M5, MODEL)),
    ];
    [vec![rule(r::QUEUE_TIME_P99, queue_time)], refusals(), here, budget].concat()
}

pub(super) fn alerts(like: &Like) -> Vec<Alert> {
    [queues(like), clients(like), pools(like), processes(like)].concat()
}

fn queues(like: &Like) -> Vec<Alert> {
    let enough = r::REFUSED.get().times(300.0).at_least(slo::REFUSED_MIN);
    let most = |series: Recorded| series.get().above(slo::TURNED_AWAY_RATIO);
    let all = offered(
        by_model(rate(m::REQUEST_SUCCESS.without(Role::Prefill), Window::M5)),
        by_model(rate(m::ADMISSION_REJECTIONS, Window::M5)),
        MODEL,
    );
    let all = all.times(300.0).at_least(slo::TURNED_AWAY_MIN_REQUESTS);
    let left = per_instance(observations(m::REQUEST_QUEUE_TIME, Window::M5));
    let mut alerts = like.queue_time(r::QUEUE_TIME_P99, &left, None);
    alerts.extend([
        Alert {
            summary: "{{ $labels.instance }} refuses {{ $value | humanizePercentage }} of offered \
                      requests at its {{ $labels.reason }} (503)",
            ..like.named(
                "RequestsRejected",
                r::REFUSED_RATIO.get().above(slo::REFUSED_RATIO).and(enough),
            )
        },
        like.named(
            "MostRequestsRefused",
            most(r::TURNED_AWAY_M30).and(most(r::TURNED_AWAY_M5)).and(all),
        ),
    ]);
    alerts
}

/// Answers of 5xx that are no refusals, by process: `growth` is `rate` or `increase`.
fn errors(failed: Expr, refused: Expr) -> Expr {
    clamp_min(failed.clone().minus(refused).or(failed), 0.0)
}

fn clients(like: &Like) -> Vec<Alert> {
    let process = |expr: Expr| sum(expr).group(PROCESS.to_vec());
    let served = || m::HTTP_REQUESTS.matching(Handler::KEY, SERVED);
    let failed = || served().is(HttpStatusClass::new("5xx"));
    let share = ratio(
        errors(
            process(rate(failed(), Window::M1).into()),
            process(rate(m::ADMISSION_REJECTIONS, Window::M1).into()),
        ),
        process(rate(served(), Window::M1).into()),
    );
    let number = errors(
        process(increase(failed(), Window::M5).into()),
        process(increase(m::ADMISSION_REJECTIONS, Window::M5).into()),
    );
    let new = observations(m::INTER_TOKEN_LATENCY, Window::M5);
    let old = observations(m::TIME_PER_OUTPUT_TOKEN, Window::M5);
    let tokens = by_model(new.into_expr().or(old));
    let steady = r::FINISHED.avg_over(Window::H1).offset(Window::M10);
    let running: Expr = m::NUM_REQUESTS_RUNNING.into();
    let waiting: Expr = m::NUM_REQUESTS_WAITING.into();
    let busy = by_model(running.labelled("of", "running").or(waiting.labelled("of", "waiting")));
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
        like.named(
            "InterTokenLatencyHigh",
            r::ITL_P99
                .get()
                .above(slo::ITL_P99_SECONDS)
                .and_on(MODEL, tokens.above(slo::ITL_MIN_TOKENS_PER_SECOND)),
        ),
        Alert {
            summary: "{{ $value | humanizePercentage }} of requests to {{ $labels.instance }} end \
                      in 5xx",
            ..like.named(
                "ErrorRateHigh",
                of_processes(share)
                    .above(slo::ERROR_RATIO)
                    .and_on(PROCESS, number.at_least(slo::ERROR_MIN)),
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

/// Transfers that failed at a process, and requests whose KV nobody fetched, by the second.
fn failed(window: Window) -> Expr {
    let kinds = [
        ("transfer", rate(m::NIXL_NUM_FAILED_TRANSFERS, window)),
        ("notification", rate(m::NIXL_NUM_FAILED_NOTIFICATIONS, window)),
        ("expired", rate(m::NIXL_NUM_KV_EXPIRED_REQS, window)),
    ];
    let kinds = kinds.map(|(kind, rate)| rate.into_expr().labelled("kind", kind));
    let all = kinds.into_iter().reduce(Expr::or).expect("there are three");
    per_instance(all)
}

fn pools(like: &Like) -> Vec<Alert> {
    let done = per_instance(observations(m::NIXL_XFER_TIME, Window::M2));
    let ended = failed(Window::M2).labelled("end", "failed").or(done.labelled("end", "done"));
    let share = ratio(failed(Window::M2), per_instance(ended));
    let enough = failed(Window::M5).times(300.0).at_least(slo::TRANSFER_ERROR_MIN);
    let preempted = per_instance(rate(m::NUM_PREEMPTIONS, Window::M5));
    let pinned = max(m::KV_OFFLOAD_CPU_CACHE_USAGE_PERC).group(INSTANCE.to_vec());
    vec![
        Alert {
            summary: "{{ $value | humanizePercentage }} of KV transfers of {{ $labels.instance }} \
                      fail or are not fetched in time",
            ..like.named(
                "KVTransferErrors",
                share.above(slo::TRANSFER_ERROR_RATIO).and_on(INSTANCE, enough),
            )
        },
        Alert {
            summary: "the device pool of engine {{ $labels.engine }} of {{ $labels.instance }} is \
                      {{ $value | humanizePercentage }} pinned by live requests",
            ..like.named("DevicePoolExhausted", m::kv_usage().above(slo::POOL_ACTIVE_RATIO))
        },
        like.named("RetractionStorm", preempted.above(slo::RETRACTIONS_PER_SECOND)),
        Alert {
            name: "HostPoolPinned",
            severity: Severity::Info,
            summary: "{{ $value | humanizePercentage }} of the host tier of {{ $labels.instance }} \
                      is pinned by copies",
            threshold: Some(slo::HOST_POOL_PINNED_RATIO),
            ..like.named("HostPoolThrashing", pinned.above(slo::HOST_POOL_PINNED_RATIO))
        },
    ]
}

fn processes(like: &Like) -> Vec<Alert> {
    let target = ["cluster", "job", "instance"];
    let down = || -> Expr {
        let by = (Cluster::KEY, Node::KEY, Job::KEY, Instance::KEY);
        min(up(JOBS)).by(by).equals(0.0)
    };
    // What it served is known from its last scrapes, so that only that model's symptoms are muted.
    let served = group(last_over_time(m::NUM_REQUESTS_RUNNING, Window::D1)).group(vec![
        "cluster",
        "job",
        "instance",
        "engine_role",
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
            summary: "no process of {{ $labels.model_name }} answers ({{ $labels.engine_role }}); \
                      there were {{ $value }}",
            ..like.named("RoleMissing", was_there.unless_on(ROLE, live().above(0.0)))
        },
        Alert {
            summary: "only {{ $value }} processes of {{ $labels.model_name }} answer \
                      ({{ $labels.engine_role }}), fewer than an hour ago",
            ..like.named("LiveReplicasDropped", fewer)
        },
        like.named("Watchdog", crate::promql::vector(1.0)),
    ]
}
