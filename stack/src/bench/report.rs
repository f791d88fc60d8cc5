//! The table for people.

use std::time::Duration;

use super::compare::Row;
use super::tally::{Tally, Times};

/// What was asked of whom.
#[derive(Debug, Clone)]
pub(crate) struct Header {
    pub(crate) url: String,
    pub(crate) model: String,
    pub(crate) endpoint: &'static str,
    pub(crate) streaming: bool,
    pub(crate) seed: u64,
    /// What requests are like, in words.
    pub(crate) requests: String,
    /// Where the lengths of prompts were learnt.
    pub(crate) calibration: &'static str,
}

/// One load and what came of it.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) name: String,
    pub(crate) tally: Tally,
    /// The comparison with the server; else why there is none.
    pub(crate) counters: Result<Vec<Row>, String>,
    /// Conditions that do not hold.
    pub(crate) unmet: Vec<String>,
    /// Stopped before its end.
    pub(crate) interrupted: bool,
}

impl Run {
    /// Counters that do not agree; `None` where there are none.
    pub(crate) fn differences(&self) -> Option<usize> {
        let rows = self.counters.as_ref().ok()?;
        Some(rows.iter().filter(|row| !row.agrees()).count())
    }
}

/// A time in three significant digits.
pub(crate) fn time(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    let digits = |value: f64| if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    if seconds >= 1.0 {
        format!("{seconds:.*} s", digits(seconds))
    } else if seconds >= 1e-3 {
        format!("{:.*} ms", digits(seconds * 1e3), seconds * 1e3)
    } else {
        format!("{:.0} us", seconds * 1e6)
    }
}

/// A share as a percentage.
fn percent(share: f64) -> String {
    format!("{:.1}%", share * 100.0)
}

/// The first lines.
pub(crate) fn header(header: &Header) -> String {
    let streaming = if header.streaming { "streamed" } else { "whole answers" };
    format!(
        "Sightline bench of {}, model {}\n\
         {}, {streaming}; {}; lengths by {}; seed {}\n",
        header.url, header.model, header.endpoint, header.requests, header.calibration, header.seed
    )
}

/// Everything about one run.
pub(crate) fn run(run: &Run) -> String {
    let mut out = String::new();
    let tally = &run.tally;
    line(
        &mut out,
        &format!("\n{}{}", run.name, if run.interrupted { ", interrupted" } else { "" }),
    );
    counts(&mut out, tally);
    if tally.objectives.is_empty() {
        line(&mut out, "  goodput     no objectives; set them with --slo");
    } else {
        let [ttft, itl, e2e] = tally.missed;
        line(
            &mut out,
            &format!(
                "  goodput     {} of {}, {:.2} requests/s, for {}",
                percent(tally.goodput()),
                tally.judged(),
                tally.per_second(tally.good),
                tally.objectives
            ),
        );
        if tally.missed != [0; 3] {
            let text = format!("ttft {ttft}, itl {itl}, e2e {e2e}");
            line(&mut out, &format!("  missed      {text}"));
        }
    }
    throughput(&mut out, tally);
    times(&mut out, tally);
    reasons(&mut out, tally);
    notes(&mut out, tally);
    counters(&mut out, &run.counters);
    for unmet in &run.unmet {
        line(&mut out, &format!("  NOT MET     {unmet}"));
    }
    out
}

fn line(out: &mut String, text: &str) {
    out.push_str(text);
    out.push('\n');
}

fn counts(out: &mut String, tally: &Tally) {
    let mut text = format!(
        "  offered     {} in {}: {} complete, {} refused, {} failed",
        tally.offered,
        time(tally.measured()),
        tally.completed,
        tally.refused,
        tally.failed
    );
    for (count, what) in [
        (tally.left, "left"),
        (tally.gave_up, "gave up"),
        (tally.unfinished, "unfinished"),
        (tally.retries, "retried"),
        (tally.warmed, "warm-up before"),
    ] {
        if count > 0 {
            text += &format!(", {count} {what}");
        }
    }
    line(out, &text);
}

fn throughput(out: &mut String, tally: &Tally) {
    let total = tally.prompt_tokens + tally.output_tokens;
    line(
        out,
        &format!(
            "  throughput  {:.2} requests/s, {:.1} output tokens/s, {:.1} tokens/s in all",
            tally.per_second(tally.completed),
            tally.per_second(tally.output_tokens),
            tally.per_second(total)
        ),
    );
    let mean = |sum: u64, count: u64| sum as f64 / count.max(1) as f64;
    if tally.with_usage == 0 {
        line(out, "  tokens      the server tells no usage: answers are counted by their events");
        return;
    }
    let mut text = format!(
        "  tokens      {:.1} a prompt, {:.1} an answer",
        mean(tally.prompt_tokens, tally.with_usage),
        mean(tally.output_tokens, tally.completed)
    );
    let (count, meant, told) = tally.lengths;
    if count > 0 {
        let (meant, told) = (mean(meant, count), mean(told, count));
        text += &format!("; meant {meant:.1}, sent {told:.1}");
    }
    if tally.with_cached > 0 {
        let cached = tally.cached_tokens as f64 / tally.prompt_tokens.max(1) as f64;
        text += &format!("; {} cached", percent(cached));
    }
    line(out, &text);
}

fn times(out: &mut String, tally: &Tally) {
    let columns = ["p50", "p90", "p95", "p99", "max"];
    let head: String = columns.iter().map(|name| format!("{name:>10}")).collect();
    line(out, &format!("  {:<12}{head}{:>10}", "", "count"));
    let rows: [(&str, &Times); 6] = [
        ("TTFT", &tally.ttft),
        ("ITL", &tally.itl),
        ("TPOT", &tally.tpot),
        ("E2E", &tally.e2e),
        ("refusal", &tally.refusal),
        ("lag", &tally.lag),
    ];
    for (name, times) in rows.into_iter().filter(|(_, times)| times.count() > 0) {
        let cells: String = [0.5, 0.9, 0.95, 0.99, 1.0]
            .iter()
            .map(|quantile| format!("{:>10}", time(times.quantile(*quantile))))
            .collect();
        line(out, &format!("  {name:<12}{cells}{:>10}", times.count()));
    }
}

fn reasons(out: &mut String, tally: &Tally) {
    for ((status, reason), refused) in &tally.refusals {
        let after = match refused.retry_after {
            None => "no Retry-After".to_owned(),
            Some((low, high)) if low == high => format!("Retry-After {low} s"),
            Some((low, high)) => format!("Retry-After {low} to {high} s"),
        };
        let reason = if reason.is_empty() { "without a reason" } else { reason };
        line(out, &format!("  refused     {} x {status} {reason}, {after}", refused.count));
    }
    for (kind, errors) in &tally.errors {
        let example = if errors.example.is_empty() { "" } else { ": " };
        line(out, &format!("  failed      {} x {kind}{example}{}", errors.count, errors.example));
    }
}

/// Above this the generator, not the server, makes latencies.
const LAG_MAX: Duration = Duration::from_millis(20);

fn notes(out: &mut String, tally: &Tally) {
    let lag = tally.lag.quantile(0.99);
    if lag > LAG_MAX {
        let text = "the generator was late: latencies count from the plan and contain its lag";
        line(out, &format!("  note        {text} (p99 {})", time(lag)));
    }
    if tally.events > 0 && tally.with_usage > 0 && tally.output_tokens > tally.events * 5 / 4 {
        let text = "several tokens came in one event: ITL is the gap between events, TPOT the mean";
        line(out, &format!("  note        {text}"));
    }
}

fn counters(out: &mut String, counters: &Result<Vec<Row>, String>) {
    let rows = match counters {
        Ok(rows) => rows,
        Err(reason) => {
            line(out, &format!("  counters    not compared: {reason}"));
            return;
        }
    };
    let differing: Vec<&Row> = rows.iter().filter(|row| !row.agrees()).collect();
    if differing.is_empty() {
        let exact = rows.iter().filter(|row| row.high == Some(row.low)).count();
        let text = format!("all {} agree with the server's, {exact} of them exactly", rows.len());
        line(out, &format!("  counters    {text}"));
        return;
    }
    line(out, &format!("  counters    {} of {} DIFFER:", differing.len(), rows.len()));
    for row in differing {
        let ours = match row.high {
            Some(high) if high == row.low => format!("{high}"),
            Some(high) => format!("{} to {high}", row.low),
            None => format!("at least {}", row.low),
        };
        line(
            out,
            &format!(
                "              {}: bench {ours}, server {}\n                {}",
                row.name,
                row.server,
                row.explanation()
            ),
        );
    }
}

/// One line for each of several runs.
pub(crate) fn summary(runs: &[Run]) -> String {
    let widest = runs.iter().map(|run| run.name.len()).max().unwrap_or_default().max(8);
    let mut out = String::new();
    let names = ["offered", "goodput", "refused", "TTFT p50", "TTFT p99", "ITL p99", "E2E p99"];
    let head: String = names.iter().map(|name| format!("{name:>10}")).collect();
    line(&mut out, &format!("\n  {:<widest$}{head}{:>12}", "load", "tokens/s"));
    for run in runs {
        let tally = &run.tally;
        let quantile = |times: &Times, quantile| match times.count() {
            0 => "-".to_owned(),
            _ => time(times.quantile(quantile)),
        };
        let goodput =
            if tally.objectives.is_empty() { "-".into() } else { percent(tally.goodput()) };
        let cells = [
            tally.offered.to_string(),
            goodput,
            percent(tally.refused_share()),
            quantile(&tally.ttft, 0.5),
            quantile(&tally.ttft, 0.99),
            quantile(&tally.itl, 0.99),
            quantile(&tally.e2e, 0.99),
        ];
        let cells: String = cells.iter().map(|cell| format!("{cell:>10}")).collect();
        let tokens = tally.per_second(tally.output_tokens);
        line(&mut out, &format!("  {:<widest$}{cells}{tokens:>12.1}", run.name));
    }
    out
}

#[cfg(test)]
pub(crate) mod tests;
