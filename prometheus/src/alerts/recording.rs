//! Recording rules: what several alerts and panels look at.

use super::Recording;
use crate::def::{Label, Unit};
use crate::labels::*;
use crate::promql::recorded as r;
use crate::promql::{
    Expr, MODEL, Recorded, Selection, Window, bucket_rate, clamp_min, group, increase,
    last_over_time, max, observed, quantile_of, quotient_of, rate, ratio, sum, time,
};
use crate::server as m;
use crate::{node, pair, router, slo};

/// Queues whose requests still wait for their prefill; a request in one of the others has it.
const BEFORE_PREFILL: &str = "waiting|bootstrap|retracted";
/// Those of them that count against the limits of admission.
const LIMITED: &str = "waiting|bootstrap";

pub(super) fn rules() -> Vec<Recording> {
    let here = [capacity(), queues(), admission(), transfers(), pools()];
    [here.concat(), replicas(), clients(), objectives(), refusals()].concat()
}

fn rule(series: Recorded, expr: Expr) -> Recording {
    Recording { series, expr }
}

fn capacity() -> Vec<Recording> {
    let computed = rate(m::PROMPT_TOKENS.is(PromptSource::Computed), Window::M5);
    let busy = rate(m::FORWARD_BUSY_SECONDS.any_of(&[Phase::Prefill, Phase::Mixed]), Window::M5);
    let per_rank = sum(busy).per_instance_and(TpRank::KEY);
    // By busy second, and only where enough of the window was busy: what the device can do, not
    // what was asked of it.
    let trusted = r::PREFILL_BUSY.get().above(slo::CAPACITY_MIN_BUSY_RATIO);
    vec![
        rule(r::PROMPT_TOKENS_COMPUTED, sum(computed).per_instance()),
        rule(r::PREFILL_BUSY, max(per_rank).per_instance()),
        rule(r::PREFILL_CAPACITY, quotient_of(r::PROMPT_TOKENS_COMPUTED, trusted)),
    ]
}

fn queues() -> Vec<Recording> {
    let queue = Queue::KEY;
    let pending = m::QUEUE_PENDING_UNCACHED_TOKENS.matching(queue, BEFORE_PREFILL);
    let requests = m::QUEUE_REQUESTS.matching(queue, BEFORE_PREFILL);
    let oldest = m::QUEUE_OLDEST_REQUEST_AGE.matching(queue, BEFORE_PREFILL);
    // The last trusted capacity stands in while the server is quiet.
    let rate = || {
        let known = r::PREFILL_CAPACITY.get().or(r::PREFILL_CAPACITY.last_over(Window::H6));
        clamp_min(known, slo::CAPACITY_FLOOR_TOKENS_PER_SECOND)
    };
    let drain = quotient_of(r::PENDING_UNCACHED_TOKENS, rate());
    let limit = max(m::ADMISSION_QUEUE_LIMIT_TOKENS).per_instance().above(0.0);
    let bound = quotient_of(limit, rate());
    let of_requests = ratio(
        sum(m::QUEUE_REQUESTS.matching(queue, LIMITED)).per_instance(),
        max(m::ADMISSION_QUEUE_LIMIT_REQUESTS).per_instance(),
    );
    let of_tokens = ratio(
        sum(m::QUEUE_PENDING_UNCACHED_TOKENS.matching(queue, LIMITED)).per_instance(),
        max(m::ADMISSION_QUEUE_LIMIT_TOKENS).per_instance(),
    );
    let fill = of_requests.labelled("limit", "requests").or(of_tokens.labelled("limit", "tokens"));
    vec![
        rule(r::PENDING_UNCACHED_TOKENS, sum(pending).per_instance()),
        rule(r::QUEUED_REQUESTS, sum(requests).per_instance()),
        rule(r::QUEUE_OLDEST_AGE, max(oldest).per_instance()),
        rule(r::QUEUE_DRAIN, drain),
        rule(r::QUEUE_BOUND, bound),
        rule(r::QUEUE_FILL, fill),
    ]
}

/// Neither a wrong request nor a planned stop is a lack of capacity.
const NOT_OURS: [RejectReason; 2] = [RejectReason::Invalid, RejectReason::Draining];

fn admission() -> Vec<Recording> {
    let refused = rate(m::REQUESTS_REJECTED.none_of(&NOT_OURS), Window::M5);
    let at_once = [&NOT_OURS[..], &RejectReason::AFTER_ADMISSION].concat();
    let turned_away = rate(m::REQUESTS_REJECTED.none_of(&at_once), Window::M5);
    let offered: Expr = rate(m::REQUESTS_ADMITTED, Window::M5).into_expr().or(turned_away);
    vec![
        rule(r::REFUSED, sum(refused).per_instance()),
        rule(r::REFUSED_RATIO, ratio(r::REFUSED, sum(offered).per_instance())),
    ]
}

fn pools() -> Vec<Recording> {
    let pool = (Tier::KEY, Pool::KEY);
    let capacity = || sum(m::KV_POOL_CAPACITY_BYTES).per_instance_and(pool);
    let used = sum(m::KV_POOL_USED_BYTES).per_instance_and(pool);
    let active = sum(m::KV_POOL_USED_BYTES.is(SlotState::Active)).per_instance_and(pool);
    let reused = rate(m::PROMPT_TOKENS.none_of(&[PromptSource::Computed]), Window::M5);
    let prompts = sum(rate(m::PROMPT_TOKENS, Window::M5)).per_instance();
    vec![
        rule(r::POOL_USED, ratio(used, capacity())),
        rule(r::POOL_ACTIVE, ratio(active, capacity())),
        rule(r::PREFIX_HIT, ratio(sum(reused).per_instance(), prompts)),
    ]
}

fn transfers() -> Vec<Recording> {
    // A request that somebody gave up says nothing about the link.
    let counted = [TransferResult::Ok, TransferResult::Error];
    let failed = rate(pair::KV_TRANSFERS.is(TransferResult::Error), Window::M2);
    let ended = rate(pair::KV_TRANSFERS.any_of(&counted), Window::M2);
    let share = ratio(sum(failed).per_instance(), sum(ended).per_instance());
    vec![rule(r::TRANSFER_ERROR_RATIO, share)]
}

fn replicas() -> Vec<Recording> {
    let role = (Cluster::KEY, Role::KEY, ModelName::KEY);
    let live = sum(m::ENGINE_STATE.matching(EngineState::KEY, "ready|draining|sleeping"));
    // Counted by role of the worker, not by that of the router that declares it.
    let declared = Expr::from(router::ROUTER_WORKERS_DECLARED);
    let declared = max(declared.copied("worker_role", "engine_role", "")).by(role);
    let expected = declared.above(0.0).or(r::LIVE_REPLICAS.max_over(Window::H1));
    let until = max(Expr::from(node::MAINTENANCE_UNTIL)).by((Cluster::KEY, Node::KEY, Role::KEY));
    let left = until.minus(time()).above(0.0).at_most(slo::MAINTENANCE_SECONDS_MAX);
    vec![
        rule(r::LIVE_REPLICAS, live.by(role)),
        rule(r::EXPECTED_REPLICAS, expected),
        rule(r::MAINTENANCE, left.in_unit(Unit::Seconds)),
    ]
}

fn clients() -> Vec<Recording> {
    // Each role counts the same request, so exactly one is looked at: the one nearest the client.
    let reports = |role: &str| {
        let seen = m::SLO_REQUESTS.matching(Role::KEY, role);
        let by = (Cluster::KEY, ModelName::KEY, Role::KEY);
        group(last_over_time(seen, Window::M15)).by(by)
    };
    let observer =
        reports("router").or_on(MODEL, reports("unified")).or_on(MODEL, reports("decode"));
    let offered: Expr = rate(m::REQUESTS_ADMITTED, Window::M5)
        .into_expr()
        .or(rate(m::REQUESTS_REJECTED.none_of(&RejectReason::AFTER_ADMISSION), Window::M5));
    let p99 = |buckets: Expr| quantile_of(0.99, observed(buckets)).per_model();
    let served = || m::HTTP_REQUESTS.matching(Route::KEY, "/v1/.*");
    let failed = || served().matching(StatusCode::KEY, "5..");
    let errors = ratio(
        sum(observed(rate(failed(), Window::M1))).per_model(),
        sum(observed(rate(served(), Window::M1))).per_model(),
    );
    let count = sum(observed(increase(failed(), Window::M5))).per_model();
    let routed = || router::ROUTER_REQUESTS;
    let lost = || routed().is(RouterOutcome::NoWorker);
    let unrouted = ratio(
        sum(rate(lost(), Window::M1)).per_model(),
        sum(rate(routed(), Window::M1)).per_model(),
    );
    let unrouted_count = sum(increase(lost(), Window::M5)).per_model();
    let either = |served: Expr, routed: Expr| {
        served.labelled("kind", "http_5xx").or(routed.labelled("kind", "no_worker"))
    };
    vec![
        rule(r::OBSERVER_ROLE, observer),
        rule(r::OFFERED, sum(observed(offered)).per_model()),
        rule(r::TTFT_P99, p99(bucket_rate(m::TIME_TO_FIRST_TOKEN, Window::M5))),
        rule(r::ITL_P99, p99(bucket_rate(m::INTER_TOKEN_LATENCY, Window::M5))),
        rule(r::ERROR_RATIO, either(errors, unrouted)),
        rule(r::ERROR_COUNT, either(count, unrouted_count)),
    ]
}

/// Reasons of refusals at the door: at once, for lack of capacity, with the time to come back.
const AT_THE_DOOR: [RejectReason; 3] =
    [RejectReason::QueueRequestsFull, RejectReason::QueueTokensFull, RejectReason::DrainTime];

/// Requests that could have been served, by model as its clients see it: admitted, or refused in
/// spite of being right.
pub(super) fn servable(window: Window) -> Expr {
    let others = [&NOT_OURS[..], &RejectReason::AFTER_ADMISSION].concat();
    let refused = rate(m::REQUESTS_REJECTED.none_of(&others), window);
    let offered = rate(m::REQUESTS_ADMITTED, window).into_expr().or(refused);
    sum(observed(offered)).per_model()
}

/// The share that the burn of the budget leaves out. Where it is nearly all, there is nobody left
/// to judge the promise by, and burn says nothing: that has an alert of its own.
fn refusals() -> Vec<Recording> {
    let refused =
        |window| sum(observed(rate(m::REQUESTS_REJECTED.any_of(&AT_THE_DOOR), window))).per_model();
    let share = |window| ratio(refused(window), servable(window));
    vec![rule(r::TURNED_AWAY_M5, share(Window::M5)), rule(r::TURNED_AWAY_M30, share(Window::M30))]
}

/// Requests that were let in, judged by the objectives.
///
/// `slo_requests` counts a refusal as a missed time to first token. Whoever is refused at the door
/// is told so at once and comes back: the same client is refused a few times and then served in
/// time, and a queue that is bounded well would burn the budget of a month in an hour of load. So
/// burn judges the promise that was made, `RequestsRejected` tells of the one that was not, and
/// `MostRequestsRefused` pages where hardly any is made for long.
/// Both counters move together, so that their difference is never less than nothing but by what
/// rates extrapolate.
fn objectives() -> Vec<Recording> {
    let bad = || m::SLO_REQUESTS.is(SloResult::Bad);
    let by = Slo::KEY;
    let ttft = |refused: Expr| refused.labelled(Slo::INFO.name, Slo::Ttft.as_str());
    let less = |all: Expr, refused: Expr| clamp_min(all.clone().minus(ttft(refused)).or(all), 0.0);
    let turned_away = || m::REQUESTS_REJECTED.any_of(&AT_THE_DOOR);
    let refused = |window| sum(observed(rate(turned_away(), window))).per_model();
    let share = |window| {
        ratio(
            less(sum(observed(rate(bad(), window))).per_model_and(by), refused(window)),
            less(sum(observed(rate(m::SLO_REQUESTS, window))).per_model_and(by), refused(window)),
        )
    };
    let missed = |window| {
        let refused = sum(observed(increase(turned_away(), window))).per_model();
        less(sum(observed(increase(bad(), window))).per_model_and(by), refused)
    };
    vec![
        rule(r::SLO_BAD_M5, share(Window::M5)),
        rule(r::SLO_BAD_M30, share(Window::M30)),
        rule(r::SLO_BAD_H1, share(Window::H1)),
        rule(r::SLO_BAD_H6, share(Window::H6)),
        rule(r::SLO_BAD_COUNT_H1, missed(Window::H1)),
        rule(r::SLO_BAD_COUNT_H6, missed(Window::H6)),
    ]
}
