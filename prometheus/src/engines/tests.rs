use std::collections::BTreeSet;

use super::*;
use crate::def::{Kind, Label, Unit};
use crate::labels::{Cluster, Instance};
use crate::promql::{Selection, Window, observations_within, quantile, rate, sum};

#[test]
fn families_are_told_apart_and_not_ours() {
    let mut names = BTreeSet::new();
    for info in all() {
        let crate::def::Source::Engine(page) = info.source else { panic!("{}", info.name) };
        assert!(info.name.starts_with(page.prefix()), "{}", info.name);
        assert!(names.insert(info.name), "{} is declared twice", info.name);
        assert!(info.help.ends_with('.'), "{}", info.help);
        assert!(crate::all().all(|ours| ours.name != info.name), "{}", info.name);
        assert_eq!(info.kind == Kind::Histogram, !info.buckets.is_empty(), "{}", info.name);
        assert!(info.buckets.is_sorted_by(|a, b| a < b), "{}", info.name);
        let own: Vec<_> = info.labels.iter().map(|label| label.name).collect();
        assert!(own.iter().all(|label| !page.common().contains(label)), "{}", info.name);
    }
    for engine in Engine::ALL {
        for info in engine.families() {
            let crate::def::Source::Engine(page) = info.source else { panic!("{}", info.name) };
            assert_eq!(page.engine(), *engine, "{}", info.name);
        }
        assert!(engine.instance().contains(&engine.role_label()));
    }
}

#[test]
fn units_that_are_not_base_units_are_converted() {
    let p99 = quantile(0.99, sglang::KV_TRANSFER_LATENCY_MS, Window::M5).total();
    assert_eq!(p99.unit(), Unit::Milliseconds);
    let seconds = p99.in_base_unit();
    assert_eq!(seconds.unit(), Unit::Seconds);
    assert!(seconds.to_string().ends_with("[5m]))) * 0.001"), "{seconds}");
    let same = seconds.clone().in_base_unit();
    assert_eq!(same, seconds);
}

#[test]
fn edges_are_written_as_programs_in_python_write_them() {
    let text = observations_within(vllm::TIME_TO_FIRST_TOKEN, 20.0, Window::M5).to_string();
    assert_eq!(text, "rate(vllm:time_to_first_token_seconds_bucket{le=\"20.0\"}[5m])");
}

#[test]
fn copies_of_ranks_are_taken_together_before_they_are_summed() {
    let queued = sum(sglang::deduped(sglang::NUM_QUEUE_REQS)).by((Cluster::KEY, Instance::KEY));
    let text = "sum by (cluster, instance) (max by (cluster, node, job, instance, engine_type, \
                model_name, dp_rank) (sglang:num_queue_reqs))";
    assert_eq!(queued.to_string(), text);
    let tokens = sglang::computed_tokens(Window::M5);
    let text = "sum by (cluster, node, job, instance, engine_type, model_name) (max by (cluster, \
                node, job, instance, engine_type, model_name, dp_rank, mode) \
                (rate(sglang:realtime_tokens_total{mode=\"prefill_compute\"}[5m])))";
    assert_eq!((tokens.to_string().as_str(), tokens.unit()), (text, Unit::TokensPerSecond));
}

#[test]
fn pending_tokens_take_role_and_model_from_the_page() {
    let pending = sglang::pending_tokens();
    let text = "group by (cluster, node, job, instance, engine_type, model_name) \
                (sglang:num_running_reqs) * on (cluster, instance) group_left () \
                sum by (cluster, instance) (max by (cluster, instance, dp_rank) \
                (sglang_num_waiting_uncached_tokens))";
    assert_eq!((pending.to_string().as_str(), pending.unit()), (text, Unit::Tokens));
    assert_eq!(pending.labels(), sglang::INSTANCE);
    assert_eq!(sglang::drain(Window::M5).unit(), Unit::Seconds);
    assert_eq!(sglang::prefill_capacity(Window::M5).unit(), Unit::TokensPerSecond);
}

#[cfg(feature = "lint")]
#[test]
fn helpers_are_sound_over_the_families_of_their_engine_only() {
    use crate::promql::lint::{Problem, check_for};
    use crate::target::Target;

    let sglang = Target::Engine(Engine::Sglang);
    let vllm = Target::Engine(Engine::Vllm);
    let of_sglang = [
        sglang::pending_tokens(),
        sglang::drain(Window::M5),
        sglang::prefill_capacity(Window::M5),
        sum(rate(sglang::HTTP_RESPONSES, Window::M5)).by(labels::HttpStatusCode::KEY),
    ];
    for expr in of_sglang {
        assert_eq!(check_for(sglang, &expr.to_string()), [], "{expr}");
        assert_ne!(check_for(vllm, &expr.to_string()), [], "{expr}");
        assert_ne!(check_for(Target::Sightline, &expr.to_string()), [], "{expr}");
    }
    for expr in [vllm::inter_token_latency(0.99, Window::M5, vllm::INSTANCE), vllm::kv_usage()] {
        assert_eq!(check_for(vllm, &expr.to_string()), [], "{expr}");
    }
    let wrong = [
        ("sglang:num_queue_reqs{engine_role=\"decode\"}", "engine_role"),
        ("sum by (engine_role) (sglang:num_queue_reqs)", "engine_role"),
        ("sglang_num_waiting_uncached_tokens{model_name=\"m\"}", "model_name"),
        ("sglang:evicted_tokens_total", "is a counter"),
        ("rate(sglang:num_queue_reqs[5m])", "rate does not fit"),
        ("sglang:num_queue_reqs{engine_type=\"router\"}", "never \"router\""),
    ];
    for (text, message) in wrong {
        let problems = check_for(sglang, text);
        let told: Vec<String> = problems.iter().map(Problem::to_string).collect();
        assert!(told.iter().any(|told| told.contains(message)), "{text}: {told:?}");
    }
    let _ = sglang::NUM_QUEUE_REQS.is(labels::EngineType::Prefill);
}
