//! Texts of expressions, their labels and units.

use super::*;
use crate::def::{Label, Unit};
use crate::labels::*;
use crate::{process, server};

#[test]
fn texts() {
    let cases = [
        (sum(server::QUEUE_REQUESTS).total(), "sum (sightline_queue_requests)"),
        (
            max(server::QUEUE_REQUESTS.is(Queue::Waiting).is(Role::Unified)).by(Instance::KEY),
            "max by (instance) (sightline_queue_requests{queue=\"waiting\",\
             engine_role=\"unified\"})",
        ),
        (
            sum(rate(
                server::REQUESTS_REJECTED.none_of(&[RejectReason::Invalid, RejectReason::Draining]),
                Window::M5,
            ))
            .per_model(),
            "sum by (cluster, model_name) \
             (rate(sightline_requests_rejected_total{reason!~\"invalid|draining\"}[5m]))",
        ),
        (
            quantile(0.99, server::TTFT_PHASE, Window::Interval).by((Cluster::KEY, TtftPhase::KEY)),
            "histogram_quantile(0.99, sum by (cluster, phase, le) \
             (rate(sightline_ttft_phase_seconds_bucket[$__rate_interval])))",
        ),
        (
            mean(server::BATCH_TOKENS.is(Phase::Decode), Window::M1).total(),
            "sum (rate(sightline_batch_tokens_sum{phase=\"decode\"}[1m])) / \
             (sum (rate(sightline_batch_tokens_count{phase=\"decode\"}[1m])) > 0)",
        ),
        (
            buckets(server::INTER_TOKEN_LATENCY, Window::Interval).total(),
            "sum by (le) (rate(sightline_inter_token_latency_seconds_bucket[$__rate_interval]))",
        ),
        (
            sum(observations(server::REQUEST_DURATION, Window::M5)).by(Outcome::KEY),
            "sum by (outcome) (rate(sightline_request_duration_seconds_count[5m]))",
        ),
        (
            sum(observations_within(server::TIME_TO_FIRST_TOKEN, 30.0, Window::M5)).total(),
            "sum (rate(sightline_time_to_first_token_seconds_bucket{le=\"30\"}[5m]))",
        ),
        (
            topk(3, sum(server::KV_POOL_USED_BYTES).by((Pool::KEY, Tier::KEY))),
            "topk(3, sum by (pool, tier) (sightline_kv_pool_used_bytes))",
        ),
        (
            clamp_min(recorded::PREFILL_CAPACITY.last_over(Window::H6).offset(Window::M10), 100.0),
            "clamp_min(last_over_time(instance:sightline_prefill_capacity_tokens:rate5m[6h] \
             offset 10m), 100)",
        ),
        (
            changes(process::START_TIME, Window::M15).vector().into(),
            "changes(process_start_time_seconds[15m])",
        ),
        (up("sightline-unified").equals(0.0), "up{job=~\"sightline-unified\"} == 0"),
    ];
    for (expr, text) in cases {
        assert_eq!(expr.to_string(), text);
        #[cfg(feature = "lint")]
        assert_eq!(lint::check(text), Vec::new(), "{text}");
    }
}

#[test]
fn operators_are_enclosed_where_they_must() {
    let queued = || Expr::from(server::RUNNING_REQUESTS);
    let limit = || Expr::from(server::RUNNING_REQUESTS_LIMIT);
    let (a, b) = ("sightline_running_requests", "sightline_running_requests_limit");
    let text = |expr: Expr| expr.to_string();
    assert_eq!(text(queued().minus(queued().minus(limit()))), format!("{a} - ({a} - {b})"));
    assert_eq!(text(queued().minus(queued()).minus(limit())), format!("{a} - {a} - {b}"));
    assert_eq!(text(queued().plus(limit()).times(2.0)), format!("({a} + {b}) * 2"));
    assert_eq!(text(ratio(queued(), limit())), format!("{a} / ({b} > 0)"));
    assert_eq!(text(queued().or(limit()).and(limit())), format!("({a} or {b}) and {b}"));
    assert_eq!(text(queued().or(limit().and(limit()))), format!("{a} or {b} and {b}"));
    assert_eq!(text(queued().above(0.5).and(limit())), format!("{a} > 0.5 and {b}"));
    assert_eq!(
        text(queued().joined(&["cluster"], limit()).above(1.0)),
        format!("{a} * on (cluster) group_left () {b} > 1")
    );
    assert_eq!(text(raw("x or y", &[], Unit::Count).times(2.0)), "(x or y) * 2");
}

#[test]
fn scope_goes_where_the_label_is() {
    let scope = Scope::variables(&["cluster", "instance", "pool"]);
    let render = |expr: Expr| expr.render(&scope);
    assert_eq!(
        render(sum(server::QUEUE_REQUESTS.is(Queue::Waiting)).total()),
        "sum (sightline_queue_requests{cluster=~\"$cluster\",instance=~\"$instance\",\
         queue=\"waiting\"})"
    );
    assert_eq!(
        render(recorded::POOL_ACTIVE.get()),
        "instance_pool:sightline_kv_pool_active:ratio{cluster=~\"$cluster\",\
         instance=~\"$instance\",pool=~\"$pool\"}"
    );
    assert_eq!(
        render(recorded::OFFERED.get()),
        "model:sightline_requests_offered:rate5m{cluster=~\"$cluster\"}"
    );
    assert_eq!(
        render(raw("sum(x{$selector})", &[], Unit::Count)),
        "sum(x{cluster=~\"$cluster\",instance=~\"$instance\",pool=~\"$pool\"})"
    );
}

#[test]
fn labels_and_units_of_results() {
    let sums = sum(server::KV_POOL_USED_BYTES).per_instance_and(Pool::KEY);
    let labels: Vec<_> = COMMON.into_iter().chain(["pool"]).collect();
    assert_eq!((sums.labels(), sums.unit()), (labels.as_slice(), Unit::Bytes));
    let tokens = rate(server::GENERATION_TOKENS, Window::M1);
    assert_eq!((tokens.labels(), tokens.unit()), (&COMMON[..], Unit::TokensPerSecond));
    let busy = rate(server::FORWARD_BUSY_SECONDS, Window::M1);
    assert_eq!(busy.unit(), Unit::Ratio);
    let grown = increase(server::REQUESTS_ADMITTED, Window::H1);
    assert_eq!(grown.unit(), Unit::Requests);
    let late = quantile(0.5, server::TIME_TO_FIRST_TOKEN, Window::M5).by(Streaming::KEY);
    assert_eq!((late.labels(), late.unit()), (&["streaming"][..], Unit::Seconds));
    let share =
        ratio(sum(server::KV_POOL_USED_SLOTS).total(), sum(server::KV_POOL_CAPACITY_SLOTS).total());
    assert_eq!(share.unit(), Unit::Ratio);
    let average = mean(server::REQUEST_PROMPT_TOKENS, Window::M5).total();
    assert_eq!(average.unit(), Unit::Tokens);
    let drain = quotient_of(server::QUEUE_PENDING_TOKENS, recorded::PREFILL_CAPACITY);
    assert_eq!(drain.unit(), Unit::Seconds);
    let told = recorded::ERROR_RATIO.get().labelled("source", "x");
    assert_eq!(told.labels(), ["cluster", "model_name", "kind", "source"]);
    let joined = up(".*").joined_with(&["cluster"], &["version"], up(".*"));
    assert_eq!(joined.labels(), ["cluster", "node", "job", "instance", "version"]);
}

/// What a mistake of a programmer is called.
fn complaint(mistake: impl FnOnce() -> Expr + std::panic::UnwindSafe) -> String {
    let panic = std::panic::catch_unwind(mistake).expect_err("it must not pass");
    panic.downcast_ref::<String>().cloned().unwrap_or_default()
}

#[test]
fn mistakes_are_called_by_name() {
    let unknown = complaint(|| sum(recorded::OFFERED.get()).by(Instance::KEY));
    assert!(unknown.contains("has no label [\"instance\"]"), "{unknown}");
    let unknown = complaint(|| recorded::OFFERED.named("pool", "kv"));
    assert!(unknown.contains("has no label pool"), "{unknown}");
    // Between two edges of a histogram nothing is known.
    let between = complaint(|| {
        observations_within(server::TIME_TO_FIRST_TOKEN, 31.0, Window::M5).into_expr()
    });
    assert!(between.contains("has no bucket edge 31"), "{between}");
}

#[test]
fn durations() {
    let text = [0, 15, 60, 90, 3600, 5400, 86_400].map(duration);
    assert_eq!(text, ["0s", "15s", "1m", "1m30s", "1h", "1h30m", "1d"]);
}

#[test]
fn long_expressions_are_broken_over_lines() {
    let expr = sum(rate(server::HTTP_REQUESTS.matching(Route::KEY, "/v1/.*"), Window::M5))
        .per_instance()
        .above(0.0);
    assert_eq!(
        expr.pretty(&Scope::NONE),
        "sum by (cluster, node, job, instance, engine_role, model_name) (\n  \
         rate(sightline_http_requests_total{route=~\"/v1/.*\"}[5m])\n)\n> 0"
    );
}

#[cfg(feature = "lint")]
mod linting {
    use super::lint::{Problem, check, metrics};

    #[test]
    fn finds_what_is_wrong() {
        let cases = [
            ("sum(", "does not parse"),
            ("sightline_no_such_metric", "no metric and no recording rule"),
            ("sightline_http_request_duration_seconds", "no metric and no recording rule"),
            ("{queue=\"waiting\"}", "no metric name"),
            ("sightline_queue_requests{pool=\"kv\"}", "has no label pool"),
            ("sightline_queue_requests{le=\"1\"}", "has no label le"),
            ("sightline_queue_requests{queue=\"wating\"}", "is never \"wating\""),
            ("sightline_queue_requests{queue!~\"waiting|lost\"}", "is never \"lost\""),
            ("sightline_queue_requests{queue=~\"x.*\"}", "is never \"x.*\""),
            ("sightline_queue_requests{engine_role=\"worker\"}", "is never \"worker\""),
            ("sum by (colour) (sightline_queue_requests)", "grouped by colour"),
            ("up and on (colour) up", "grouped by colour"),
            ("rate(sightline_queue_requests[5m])", "rate does not fit"),
            ("sum(sightline_requests_admitted_total)", "is a counter"),
            ("max_over_time(sightline_request_prompt_tokens_count[5m])", "is a counter"),
            ("instance:sightline_queue_fill:ratio{pool=\"kv\"}", "has no label pool"),
            ("up{engine_role=\"unified\"}", "has no label engine_role"),
        ];
        for (text, expected) in cases {
            let problems = check(text);
            let shown = problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
            assert_eq!(problems.len(), 1, "{text}: {shown}");
            assert!(shown.contains(expected), "{text}: {shown}");
        }
    }

    #[test]
    fn lets_right_ones_pass() {
        let fine = [
            "sum by (le) (rate(sightline_http_request_duration_seconds_bucket[$__rate_interval]))",
            "sightline_queue_requests{queue=~\"waiting|bootstrap\",cluster=~\"$cluster\"}",
            "sightline_queue_requests{queue=~\"$queue\"}",
            "ALERTS{alertstate=\"firing\",severity=\"critical\"}",
            "increase(sightline_forward_busy_seconds_total{tp_rank=\"0\"}[1h]) > 5",
        ];
        for text in fine {
            assert_eq!(check(text), Vec::<Problem>::new(), "{text}");
        }
    }

    #[test]
    fn names_the_metrics() {
        let text = "rate(sightline_request_prompt_tokens_sum[5m]) / up * up";
        assert_eq!(metrics(text), ["sightline_request_prompt_tokens", "up"]);
    }
}
