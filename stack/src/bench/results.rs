//! The results for programs: one JSON object with a version.

use serde_json::{Map, Value, json};

use super::compare::Row;
use super::report::{Header, Run};
use super::tally::{Tally, Times};

/// Changes when a field changes its meaning or goes; new fields leave it as it is.
const VERSION: u32 = 1;

/// Everything about all runs. Times are in seconds.
pub(crate) fn json(header: &Header, runs: &[Run]) -> Value {
    json!({
        "format": "sightline-bench",
        "version": VERSION,
        "bench_version": env!("CARGO_PKG_VERSION"),
        "base_url": header.url,
        "model": header.model,
        "endpoint": header.endpoint,
        "streaming": header.streaming,
        "seed": header.seed,
        "requests": header.requests,
        "lengths_by": header.calibration,
        "runs": runs.iter().map(run).collect::<Vec<_>>(),
    })
}

fn run(run: &Run) -> Value {
    let tally = &run.tally;
    json!({
        "load": run.name,
        "interrupted": run.interrupted,
        "measured_seconds": tally.measured().as_secs_f64(),
        "requests": {
            "warmup": tally.warmed,
            "offered": tally.offered,
            "completed": tally.completed,
            "refused": tally.refused,
            "failed": tally.failed,
            "left": tally.left,
            "gave_up": tally.gave_up,
            "unfinished": tally.unfinished,
            "retries": tally.retries,
        },
        "objectives": {
            "ttft_seconds": tally.objectives.ttft.map(|limit| limit.as_secs_f64()),
            "itl_seconds": tally.objectives.itl.map(|limit| limit.as_secs_f64()),
            "e2e_seconds": tally.objectives.e2e.map(|limit| limit.as_secs_f64()),
        },
        "goodput": {
            "judged": tally.judged(),
            "good": tally.good,
            "share": tally.goodput(),
            "requests_per_second": tally.per_second(tally.good),
            "missed": {"ttft": tally.missed[0], "itl": tally.missed[1], "e2e": tally.missed[2]},
        },
        "throughput": {
            "requests_per_second": tally.per_second(tally.completed),
            "output_tokens_per_second": tally.per_second(tally.output_tokens),
            "total_tokens_per_second": tally.per_second(tally.output_tokens + tally.prompt_tokens),
        },
        "tokens": tokens(tally),
        "ttft": times(&tally.ttft),
        "itl": times(&tally.itl),
        "tpot": times(&tally.tpot),
        "e2e": times(&tally.e2e),
        "refusal": times(&tally.refusal),
        "generator_lag": times(&tally.lag),
        "refusals": refusals(tally),
        "errors": errors(tally),
        "counters": counters(run),
        "unmet": run.unmet,
    })
}

fn tokens(tally: &Tally) -> Value {
    let (count, meant, sent) = tally.lengths;
    json!({
        "prompt": tally.prompt_tokens,
        "output": tally.output_tokens,
        "cached": (tally.with_cached > 0).then_some(tally.cached_tokens),
        "with_usage": tally.with_usage,
        "events": tally.events,
        "prompts_planned": {"count": count, "meant": meant, "sent": sent},
    })
}

/// Nothing was measured: null, so that no zero is taken for a time.
fn times(times: &Times) -> Value {
    if times.count() == 0 {
        return Value::Null;
    }
    let mut values = Map::new();
    values.insert("count".to_owned(), Value::from(times.count()));
    values.insert("mean".to_owned(), Value::from(times.mean().as_secs_f64()));
    for (name, quantile) in [("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99)] {
        values.insert(name.to_owned(), Value::from(times.quantile(quantile).as_secs_f64()));
    }
    values.insert("max".to_owned(), Value::from(times.max().as_secs_f64()));
    Value::Object(values)
}

fn refusals(tally: &Tally) -> Value {
    let entry = |((status, reason), refused): (&(u16, String), &super::tally::Refused)| {
        json!({
            "status": status,
            "reason": reason,
            "count": refused.count,
            "retry_after_min": refused.retry_after.map(|(low, _)| low),
            "retry_after_max": refused.retry_after.map(|(_, high)| high),
        })
    };
    tally.refusals.iter().map(entry).collect()
}

fn errors(tally: &Tally) -> Value {
    let mut list = Vec::new();
    for (kind, errors) in &tally.errors {
        list.push(json!({"kind": kind, "count": errors.count, "example": errors.example}));
    }
    Value::Array(list)
}

fn counters(run: &Run) -> Value {
    let row = |row: &Row| {
        json!({
            "name": row.name,
            "bench_min": row.low,
            "bench_max": row.high,
            "server": row.server,
            "agrees": row.agrees(),
            "explanation": row.explanation(),
        })
    };
    match &run.counters {
        Ok(rows) => json!({
            "compared": true,
            "differences": run.differences(),
            "rows": rows.iter().map(row).collect::<Vec<_>>(),
        }),
        Err(reason) => json!({"compared": false, "reason": reason}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::report::tests::everything;

    #[test]
    fn the_results_hold_what_the_table_tells() {
        let header = Header {
            url: "http://h:1".to_owned(),
            model: "m".to_owned(),
            endpoint: "/v1/completions",
            streaming: true,
            seed: 9,
            requests: "prompts of 30".to_owned(),
            calibration: "usage",
        };
        let results = json(&header, &[everything()]);
        assert_eq!((&results["version"], &results["seed"]), (&json!(1), &json!(9)));
        let run = &results["runs"][0];
        assert_eq!(run["requests"]["offered"], 15);
        assert_eq!(run["goodput"]["good"], 10);
        let median = run["ttft"]["p50"].as_f64().expect("a number");
        assert!((median - 0.1).abs() < 1e-4, "{median}");
        assert_eq!(run["refusals"][0]["retry_after_max"], 4);
        assert_eq!(run["counters"]["differences"], 1);
        assert_eq!(run["counters"]["rows"][2]["agrees"], false);
        let mut silent = everything();
        silent.tally = Tally::default();
        silent.counters = Err("none".to_owned());
        let silent = json(&header, &[silent]);
        assert_eq!(silent["runs"][0]["itl"], Value::Null);
        assert_eq!(silent["runs"][0]["counters"]["compared"], false);
    }
}
