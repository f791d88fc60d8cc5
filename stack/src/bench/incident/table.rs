//! The runs side by side for people, and as JSON for programs.

use std::fmt::Write;
use std::time::Duration;

use metric_catalog::labels::TransferResult;
use serde_json::{Value, json};

use super::args::{Limits, Script};
use super::result::{CAUSE, Report, Times};
use super::watch::Sightings;

/// Changes when a field changes its meaning or goes; new fields leave it as it is.
const VERSION: u32 = 1;
/// Width of the names of rows, and of a column.
const NAME: usize = 34;
const COLUMN: usize = 14;

/// What is asked of whom.
pub(super) fn header(script: &Script) -> String {
    let seconds = |time: Duration| format!("{:.0} s", script.told(time).as_secs_f64());
    let mut out = format!(
        "Sightline bench incident: {} clients, prompts of {:.0} tokens, {:.0} tokens/s of prefill\n\
         for {} after a calm of {}; patience {}, objective {}; seed {}\n",
        script.clients,
        script.prompt_tokens as f64 * script.scale,
        script.rate,
        seconds(script.duration),
        seconds(script.calm),
        seconds(script.patience),
        seconds(script.objective),
        script.seed,
    );
    if script.scale != 1.0 {
        writeln!(
            out,
            "Scaled by {}: prompts have {} tokens, and patience, objective, duration and the time \
             of the rules\nare divided as well. Times below are told as the whole incident would \
             have had them, but for\nhow long refusals took. Retry-After has whole seconds, which \
             weigh more here.",
            script.scale, script.prompt_tokens
        )
        .expect("writing to a String cannot fail");
    }
    out
}

/// A row: its name, its value in a run, and what it means.
type Row = (&'static str, fn(&Report) -> String, &'static str);

const ROWS: &[Row] = &[
    ("requests", |r| r.asked.to_string(), "each with all its attempts"),
    ("  answered", |r| r.answered.to_string(), "whole"),
    ("  given up", |r| r.gave_up.to_string(), "no first token while patience lasted"),
    ("  failed", |r| r.failed.to_string(), "any error but a refusal"),
    ("  unfinished", |r| r.unfinished.to_string(), "never got in, or cut off by the end"),
    ("first token, p50", |r| time(r.ttft.quantile(0.5)), "from the attempt that was admitted"),
    ("first token, p99", |r| time(r.ttft.quantile(0.99)), "the objective is about this"),
    ("first token, worst", |r| time(r.ttft.max()), ""),
    (
        "wait in all, p50",
        |r| time(r.wait.quantile(0.5)),
        "from the first attempt, refusals included",
    ),
    ("wait in all, worst", |r| time(r.wait.max()), ""),
    ("attempts refused", |r| r.refusals.to_string(), "429 at the door, before any work"),
    ("refusal, p50", |r| time(r.refusal.quantile(0.5)), "as measured, until its body is read"),
    ("refusal, slowest", |r| time(r.refusal.max()), "promised: less than 50 ms"),
    ("got in after a refusal", got_in, "of those that were sent away"),
    ("attempts, most", |r| r.attempts_max.to_string(), "of one request"),
    ("queue, most requests", |r| count(r.counted.queued_max), "waiting for their prefill"),
    ("queue, most work", |r| seconds(r.counted.drain_max), "time to drain, as the alert sees it"),
    ("prefill rate, tokens/s", |r| count(r.capacity), "by busy second, as recorded"),
    ("prefill for nobody", |r| percent(r.waste()), "computed tokens that are in no answer"),
    ("transfers, ok", |r| count(r.transfers(TransferResult::Ok)), "as the prefill worker counts"),
    ("transfers, peer_abort", |r| count(r.peer_aborts()), "the decode worker's client had left"),
    ("transfers, errors", |r| count(r.counted.errors()), "of both ends, given up ones left out"),
    ("left behind", |r| count(r.counted.left), "requests, transfers, held bytes at the end"),
    ("first client gives up", |r| at(r.first_gave_up), "since the crowd came"),
    ("drain alert fires", |r| at(r.fired(CAUSE)), "PrefillQueueDrainCritical"),
    ("alerts", |r| r.alerts.names().len().to_string(), "that fired, by name; listed below"),
    ("pages", |r| r.pages().0.len().to_string(), "while clients ask, with the inhibition rules"),
    ("pages afterwards", |r| r.pages().1.len().to_string(), "while it recovers"),
];

fn got_in(report: &Report) -> String {
    if report.sent_away == 0 {
        return "-".to_owned();
    }
    format!("{} of {}", report.got_in, report.sent_away)
}

fn time(time: Option<Duration>) -> String {
    time.map_or("-".to_owned(), crate::bench::report::time)
}

fn seconds(value: f64) -> String {
    format!("{value:.0} s")
}

fn at(value: Option<f64>) -> String {
    value.map_or("-".to_owned(), seconds)
}

fn count(value: f64) -> String {
    format!("{value:.0}")
}

fn percent(share: f64) -> String {
    format!("{:.0}%", share * 100.0)
}

/// Everything about the runs, with what was promised of them.
pub(super) fn table(reports: &[Report]) -> String {
    let mut out = String::new();
    let mut line = |text: String| {
        out.push_str(text.trim_end());
        out.push('\n');
    };
    let title = |report: &Report| match report.limits {
        Limits::Off => "A: no limits",
        Limits::Default => "B: defaults",
    };
    let columns = |of: &dyn Fn(&Report) -> String| {
        reports.iter().map(|report| format!("{:>COLUMN$}", of(report))).collect::<String>()
    };
    line(format!("\n{:NAME$}{}", "", columns(&|report| title(report).to_owned())));
    for (name, value, meaning) in ROWS {
        line(format!("{name:NAME$}{}   {meaning}", columns(&|report| value(report))));
    }
    for report in reports {
        let letter = report.limits.letter();
        let alerts = report.alerts.names().into_iter();
        let alerts = alerts.map(|(name, at)| format!("{name} ({:.0} s)", at - report.crowd));
        let alerts: Vec<String> = alerts.collect();
        line(format!("\nalerts of {letter}: {}", listed(&alerts)));
        let (during, after) = report.pages();
        line(format!("pages of {letter}: {}; afterwards: {}", listed(&during), listed(&after)));
        if let Some(failure) = &report.failure {
            line(format!("a failure of {letter}: {failure}"));
        }
    }
    for report in reports {
        line(String::new());
        for promise in report.promises() {
            let holds = if promise.holds { "holds" } else { "BROKEN" };
            let letter = report.limits.letter();
            line(format!("{letter} {holds:6} {} ({})", promise.what, promise.found));
        }
    }
    out
}

fn listed(names: &[impl AsRef<str>]) -> String {
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// Everything about the runs. Times are in seconds of the incident's time, those of refusals as
/// measured.
pub(super) fn json(script: &Script, reports: &[Report]) -> Value {
    json!({
        "format": "sightline-bench-incident",
        "version": VERSION,
        "bench_version": env!("CARGO_PKG_VERSION"),
        "scale": script.scale,
        "seed": script.seed,
        "clients": script.clients,
        "prompt_tokens": script.prompt_tokens as f64 * script.scale,
        "prompt_tokens_sent": script.prompt_tokens,
        "prefill_tokens_per_second": script.rate,
        "patience_seconds": script.told(script.patience).as_secs_f64(),
        "objective_seconds": script.told(script.objective).as_secs_f64(),
        "duration_seconds": script.told(script.duration).as_secs_f64(),
        "calm_seconds": script.told(script.calm).as_secs_f64(),
        "runs": reports.iter().map(run).collect::<Vec<_>>(),
    })
}

fn run(report: &Report) -> Value {
    let seconds = |time: Option<Duration>| time.map(|time| time.as_secs_f64());
    let quantiles = |times: &Times| {
        json!({
            "p50": seconds(times.quantile(0.5)),
            "p99": seconds(times.quantile(0.99)),
            "max": seconds(times.max()),
        })
    };
    let counted = &report.counted;
    let alerts = |found: &Sightings| {
        let one = |((name, labels), at): (&(String, String), &f64)| {
            let at = at - report.crowd;
            json!({"alert": name, "labels": labels, "at_seconds": at})
        };
        found.iter().map(one).collect::<Value>()
    };
    let failures = counted
        .failures
        .iter()
        .filter(|(_, count)| **count > 0.0)
        .map(|((side, reason), count)| json!({"side": side, "reason": reason, "count": count}));
    let promises = report.promises().into_iter().map(
        |promise| json!({"what": promise.what, "holds": promise.holds, "found": promise.found}),
    );
    json!({
        "run": report.limits.letter(),
        "requests": {
            "asked": report.asked,
            "answered": report.answered,
            "gave_up": report.gave_up,
            "failed": report.failed,
            "unfinished": report.unfinished,
            "sent_away": report.sent_away,
            "got_in_after_refusal": report.got_in,
            "attempts_max": report.attempts_max,
        },
        "failure": report.failure,
        "ttft_seconds": quantiles(&report.ttft),
        "wait_seconds": quantiles(&report.wait),
        "refusals": {
            "count": report.refusals,
            "without_retry_after": report.refusals_without_retry_after,
            "not_429": report.refusals_not_429,
            "measured_seconds": quantiles(&report.refusal),
        },
        "queue": {"requests_max": counted.queued_max, "drain_seconds_max": counted.drain_max},
        "prefill": {
            "tokens_per_busy_second": report.capacity,
            "computed_tokens": counted.computed,
            "unused_tokens": report.wasted,
            "unused_share": report.waste(),
        },
        "transfers": counted.transfers,
        "transfer_failures": failures.collect::<Value>(),
        "requests_aborted": counted.aborted,
        "left_behind": counted.left,
        "first_gave_up_at_seconds": report.first_gave_up,
        "alerts": alerts(&report.alerts.fired),
        "pages": alerts(&report.alerts.pages),
        "promises": promises.collect::<Value>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::incident::result::tests::{contained, piled_up, script};

    #[test]
    fn both_runs_stand_side_by_side_with_what_was_promised() {
        let table = table(&[piled_up(), contained()]);
        let row = |name: &str| {
            let found = table.lines().find(|line| line.starts_with(name));
            found.unwrap_or_else(|| panic!("no {name:?} in\n{table}"))
        };
        let values = |name: &str| {
            let rest = &row(name)[NAME..];
            let (a, rest) = rest.split_at(COLUMN);
            (a.trim().to_owned(), rest[..COLUMN].trim().to_owned())
        };
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(values("  given up"), pair("1", "0"));
        assert_eq!(values("first token, worst"), pair("5.00 s", "25.0 s"));
        assert_eq!(values("refusal, slowest"), pair("-", "12.0 ms"));
        assert_eq!(values("got in after a refusal"), pair("-", "1 of 1"));
        assert_eq!(values("drain alert fires"), pair("42 s", "-"));
        assert_eq!(values("pages"), pair("1", "0"));
        assert!(
            row("alerts of A").ends_with("PrefillQueueDrainCritical (42 s), AbortCascade (85 s)")
        );
        assert_eq!(row("pages of B"), "pages of B: none; afterwards: none");
        assert!(row("A holds  clients give up (1)").len() < 100);
        assert!(!table.contains("BROKEN"), "{table}");
        let widest = table.lines().map(str::len).max().unwrap_or(0);
        assert!(widest <= 120, "{widest} columns\n{table}");
    }

    #[test]
    fn a_scaled_run_says_so() {
        let text = header(&script());
        assert!(text.contains("prompts of 15000 tokens, 3300 tokens/s"), "{text}");
        assert!(text.contains("patience 60 s, objective 30 s"), "{text}");
        assert!(text.contains("Scaled by 10: prompts have 1500 tokens"), "{text}");
        let whole = Script { scale: 1.0, ..script() };
        assert!(!header(&whole).contains("Scaled"));
    }

    #[test]
    fn the_results_hold_what_the_table_tells() {
        let mut broken = contained();
        broken.failed = 1;
        let results = json(&script(), &[piled_up(), broken]);
        assert_eq!(results["prompt_tokens"], 15_000.0);
        let (a, b) = (&results["runs"][0], &results["runs"][1]);
        assert_eq!((&a["run"], &a["requests"]["gave_up"]), (&json!("A"), &json!(1)));
        assert_eq!(
            a["pages"],
            json!([
                {"alert": CAUSE, "labels": "", "at_seconds": 42.0}
            ])
        );
        assert_eq!(a["transfer_failures"][0]["reason"], "peer_abort");
        assert_eq!(b["refusals"]["measured_seconds"]["max"], 0.012);
        let holds = b["promises"].as_array().expect("promises").iter();
        assert_eq!(holds.filter(|promise| promise["holds"] == false).count(), 1);
    }
}
