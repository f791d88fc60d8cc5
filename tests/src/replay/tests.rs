use super::*;
use metric_catalog::alerts::routing;
use metric_catalog::install::Registry;
use metric_catalog::labels::{Phase, PromptSource, Queue, Role, TpRank};
use metric_catalog::server;
use std::time::Duration;

fn target() -> Target {
    Target::new("prefill", "h0", "p0:8000")
}

#[test]
fn runs_and_gaps_are_written_as_promtool_reads_them() {
    let written = |values: &[(Option<f64>, usize)]| notation(values.iter().copied());
    assert_eq!(written(&[(Some(1.0), 1), (Some(1.0), 2), (Some(2.5), 1)]), "1x2 2.5");
    let there = (Some(f64::INFINITY), 1);
    let gap = [(None, 2), (Some(4.0), 1), (Some(4.0), 1), (None, 1), (None, 2), there, (None, 1)];
    assert_eq!(written(&gap), "_x2 4x1 stale _x2 Inf stale");
    assert_eq!(written(&[(Some(3.0), 2), (None, 3)]), "3x1 stale _x2");
    assert_eq!(duration("1h12m").unwrap(), 4320);
    assert_eq!(duration("45s").unwrap(), 45);
    assert!(duration("soon").is_err());
}

#[test]
fn only_what_rules_read_is_kept_with_the_labels_of_the_target() {
    let mut recording = Recording::new(5);
    let labels = "engine_role=\"prefill\",queue=\"waiting\"";
    let page = format!(
        "# TYPE a gauge\nsightline_queue_requests{{{labels}}} 3\n\
         sightline_build_info{{engine_role=\"prefill\"}} 1\n"
    );
    recording.record(&target(), &[(5, page.clone()), (15, page.clone())]).unwrap();
    assert!(recording.record(&target(), &[(16, page.clone())]).is_err(), "between scrapes");
    assert!(recording.record(&target(), &[(10, page.clone())]).is_err(), "in the past");
    let target = "cluster=\"c1\",engine_role=\"prefill\",instance=\"p0:8000\",\
                  job=\"sightline-prefill\",node=\"h0\",queue=\"waiting\"";
    let up = "cluster=\"c1\",instance=\"p0:8000\",job=\"sightline-prefill\",node=\"h0\"";
    let line = |series: &str, values: &str| {
        format!("      - {{series: '{series}', values: \"{values}\"}}\n")
    };
    let queue = line(&format!("sightline_queue_requests{{{target}}}"), "_ 3 stale 3");
    let expected = queue + &line(&format!("up{{{up}}}"), "0 1 0 1");
    assert_eq!(recording.input_series(), expected);
    assert_eq!(recording.seconds(), 15);
    recording.again(&self::target());
    assert!(recording.input_series().contains("\"_ 3 stale 3x1\""), "{recording:?}");
}

/// A real page of a prefill worker that computes 3,300 tokens a second, with a queue of 220,000
/// tokens from the third minute on.
fn pile_up() -> Recording {
    let registry = Registry::new(Role::Prefill, "m").unwrap();
    let computed = registry.counter(server::PROMPT_TOKENS, (PromptSource::Computed,));
    let busy = registry.time(server::FORWARD_BUSY_SECONDS, (Phase::Prefill, TpRank::new("0")));
    let mut recording = Recording::new(5);
    for step in 0..72 {
        let queued = if step < 36 { (1, 3_000) } else { (20, 220_000) };
        let waiting = (Queue::Waiting,);
        registry.gauge(server::SCHEDULER_LAST_ITERATION, ()).set_count(step * 5);
        registry.gauge(server::QUEUE_REQUESTS, waiting).set_count(queued.0);
        registry.gauge(server::QUEUE_PENDING_UNCACHED_TOKENS, waiting).set_count(queued.1);
        recording.scrape(&target(), Some(&registry.render())).unwrap();
        registry.gauge(server::ADMISSION_QUEUE_LIMIT_REQUESTS, ()).set(32.0);
        computed.add(16_500);
        busy.add(Duration::from_secs(5));
    }
    recording
}

/// What comes of it in an empty folder; nothing, after saying so, where promtool is not installed.
fn with_promtool<T>(name: &str, see: impl FnOnce(&Path) -> T) -> Option<T> {
    if Command::new("promtool").arg("--version").output().is_err() {
        crate::skip("promtool (Debian's package prometheus) is not installed");
        return None;
    }
    let folder = std::env::temp_dir().join(format!("replay-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let seen = see(&folder);
    std::fs::remove_dir_all(&folder).unwrap();
    Some(seen)
}

#[test]
fn recorded_pages_meet_the_rules() {
    let see = |folder: &Path| pile_up().firing(folder, &[180, 195, 240, 345]).unwrap();
    let Some(firing) = with_promtool("meet", see) else { return };
    let names = |at: u64| -> BTreeSet<&str> {
        firing[&at].iter().map(|labels| &*labels["alertname"]).collect()
    };
    assert!(names(180).is_empty() && names(195).is_empty(), "{firing:?}");
    assert!(names(240).contains("PrefillQueueDrainCritical"), "{firing:?}");
    let pages = routing::pages(&firing[&345]);
    assert_eq!(pages.len(), 1, "{pages:?}");
    assert_eq!(pages[0]["alertname"], "PrefillQueueDrainCritical");
    assert_eq!(pages[0]["instance"], "p0:8000");
}

#[test]
fn an_alert_of_a_moment_is_found_with_the_second_of_its_first_sight() {
    // Two queries, and one, find the same.
    for (every, queries) in [(3, 2), (15, 1)] {
        let recording = pile_up().evaluated_every(every);
        assert_eq!(recording.seconds().div_ceil(every * EVALUATIONS_A_QUERY), queries);
        let Some(fired) = with_promtool(&format!("fired{every}"), |at| recording.fired(at)) else {
            return;
        };
        let fired = fired.unwrap();
        let critical: Vec<_> = fired
            .iter()
            .filter(|(labels, _)| labels["alertname"] == "PrefillQueueDrainCritical")
            .collect();
        let [(labels, first)] = critical[..] else { panic!("{fired:?}") };
        assert_eq!(labels["instance"], "p0:8000");
        // The queue is there from second 180 on, and must be for 30 s.
        assert!((210..=225).contains(first), "{fired:?}");
    }
}

#[test]
fn a_rule_that_cannot_be_evaluated_is_an_error_and_no_silence() {
    // Two hosts claim the same process, and both are down: which of them is it?
    let twins = ["h0", "h1"].map(|node| Target::new("prefill", node, "p0:8000"));
    let page = "sightline_served_model_info{engine_role=\"prefill\",model_name=\"m\"} 1\n";
    let mut recording = Recording::new(5);
    for twin in &twins {
        recording.scrape(twin, Some(page)).unwrap();
        (0..12).for_each(|_| recording.scrape(twin, None).unwrap());
    }
    let see =
        |folder: &Path| [recording.fired(folder).err(), recording.firing(folder, &[60]).err()];
    let Some(errors) = with_promtool("twins", see) else { return };
    for error in errors {
        let error = error.expect("nothing can be said of it").to_string();
        assert!(error.contains("many-to-many"), "{error}");
    }
}

#[test]
fn what_promtool_could_not_evaluate_is_never_read_as_nothing() {
    let rule = "  FAILED:\n    rule: TargetDown, time: 15s, err: found duplicate series\n";
    let query = "  FAILED:\n    expr: \"x\", time: 10m, err: query processing would load too many \
                 samples into memory in query execution\n";
    let vague = "  FAILED:\n    something else\n";
    for told in [rule, query, vague, "", "  FAILED:\nyaml: unmarshal errors\n"] {
        assert!(sampled(told).is_err(), "{told}");
        assert!(reported(told).is_err(), "{told}");
    }
    let found = sampled(&format!("{TOLD}{rule}"));
    assert!(found.is_err(), "one that is found does not stand for all: {found:?}");
}

const TOLD: &str = "  FAILED:\n    expr: \"x\", time: 10m,\n        exp: nil\n        got: \
                    {alertname=\"A\", alertstate=\"firing\", node=\"h0\"} 1.95E+02, \
                    {alertname=\"B\", alertstate=\"firing\"} 6E+01\n";

#[test]
fn what_ever_fired_is_read_back_with_its_time() {
    let later = "expr: \"x\", time: 20m,\n got: {alertname=\"A\", node=\"h0\"} 6.15E+02\n";
    let found = sampled(&format!("{TOLD}{later}")).unwrap();
    let names: Vec<_> = found.iter().map(|(labels, at)| (&*labels["alertname"], *at)).collect();
    assert_eq!(names, [("A", 195), ("B", 60)]);
    assert_eq!(found[0].0.len(), 2, "the name and the host: {found:?}");
    assert!(sampled("  SUCCESS\n").unwrap().is_empty());
}

#[test]
fn moments_count_from_the_first_scrape_and_what_never_happened_stays_at_0() {
    let mut recording = Recording::new(5).counted_from(1_700_000_000.0);
    let name = "sightline_scheduler_last_iteration_timestamp_seconds";
    let page = format!("{name}{{a=\"b\"}} 1700000004.5\n{name}{{a=\"c\"}} 0\n");
    recording.scrape(&target(), Some(&page)).unwrap();
    let series = recording.input_series();
    assert!(series.contains("a=\"b\"") && series.contains("\"4.5\""), "{series}");
    assert!(!series.contains("-1700000000"), "{series}");
}
