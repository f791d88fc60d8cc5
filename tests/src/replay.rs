//! Recorded scrapes under our rules: which alerts fire when, and who is told.
//!
//! A [`Recording`] takes pages as a Prometheus would scrape them, in real or in virtual time, and
//! becomes the input series of `promtool test rules`. So what is evaluated is the generated rule
//! file, by Prometheus' own engine. The first scrape is at second 0, also for pages that hold Unix
//! times: a process that is replayed begins its clock there, or the recording [counts from
//! where](Recording::counted_from) it did.

use crate::scrape::{Labels, Page};
use anyhow::{Context, Result, ensure};
use metric_catalog::alerts;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

/// Seconds between two evaluations of the rules, as in the configuration.
const EVALUATION_SECONDS: u64 = 15;

/// Evaluations that one query looks back over. A query of promtool may hold 10,000 samples: at this
/// many, a hundred alerts may fire all the time, and beyond that it is an error.
const EVALUATIONS_A_QUERY: u64 = 100;

/// A process that is scraped: its target labels.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// Scrape job, `sightline-` and the role.
    pub job: String,
    /// Host.
    pub node: String,
    /// Address, as peers and routers call it.
    pub instance: String,
}

impl Target {
    /// A process of a role.
    #[must_use]
    pub fn new(role: &str, node: &str, instance: &str) -> Self {
        let [node, instance] = [node, instance].map(str::to_owned);
        Self { job: format!("sightline-{role}"), node, instance }
    }

    fn labels(&self) -> Labels {
        let own = [("cluster", "c1"), ("node", &self.node), ("job", &self.job)];
        let own = own.into_iter().chain([("instance", &*self.instance)]);
        own.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }
}

type Series = (String, Labels);

/// Scrapes of one target, one after the other, that found the same.
#[derive(Debug)]
struct Run {
    scrapes: usize,
    /// What is kept of the page, by the number of the series; `None` where there was no answer.
    page: Option<Vec<(usize, f64)>>,
}

/// Scrapes of several targets, all at the same times.
#[derive(Debug)]
pub struct Recording {
    step_seconds: u64,
    runs: BTreeMap<Target, Vec<Run>>,
    /// Numbers of the series.
    series: BTreeMap<Series, usize>,
    /// Names of the series that are kept.
    kept: BTreeSet<String>,
    /// Unix time of the first scrape, as the pages have it.
    zero: f64,
    /// Seconds between two evaluations of the rules.
    evaluation_seconds: u64,
}

impl Recording {
    /// Nothing yet; targets are scraped every `step_seconds`, from 0 on. Only what the rules read
    /// is kept.
    #[must_use]
    pub fn new(step_seconds: u64) -> Self {
        let (runs, series, kept) = (BTreeMap::new(), BTreeMap::new(), alerts::inputs());
        let evaluation_seconds = EVALUATION_SECONDS;
        Self { step_seconds, runs, series, kept, zero: 0.0, evaluation_seconds }
    }

    /// The same with rules that are evaluated less often than the configuration says.
    #[must_use]
    pub fn evaluated_every(self, seconds: u64) -> Self {
        Self { evaluation_seconds: seconds, ..self }
    }

    /// The same for processes whose pages say `unix_seconds` at the first scrape.
    #[must_use]
    pub fn counted_from(self, unix_seconds: f64) -> Self {
        Self { zero: unix_seconds, ..self }
    }

    /// The next scrape of a target: its page, or nothing where it does not answer.
    ///
    /// # Errors
    /// When the page is none.
    pub fn scrape(&mut self, target: &Target, page: Option<&str>) -> Result<()> {
        let page = page.map(|page| self.read(target, page)).transpose()?;
        self.runs.entry(target.clone()).or_default().push(Run { scrapes: 1, page });
        Ok(())
    }

    /// The next scrape of a target finds what the last one found.
    ///
    /// # Panics
    /// When there was none.
    pub fn again(&mut self, target: &Target) {
        let last = self.runs.get_mut(target).and_then(|runs| runs.last_mut());
        last.expect("there was a scrape before").scrapes += 1;
    }

    /// What is kept of a page.
    fn read(&mut self, target: &Target, page: &str) -> Result<Vec<(usize, f64)>> {
        // Most of a page is not read by any rule.
        let is_kept = |line: &&str| {
            line.split(['{', ' ']).next().is_some_and(|name| self.kept.contains(name))
        };
        let kept: String = page.lines().filter(is_kept).flat_map(|line| [line, "\n"]).collect();
        let mut values = Vec::new();
        for ((name, mut labels), value) in Page::parse(&kept)?.samples {
            labels.extend(target.labels());
            // What has not happened yet is at 0.
            let stamp = name.ends_with("_timestamp_seconds") && value != 0.0;
            let value = if stamp { value - self.zero } else { value };
            let next = self.series.len();
            values.push((*self.series.entry((name, labels)).or_insert(next), value));
        }
        Ok(values)
    }

    /// Scrapes of a target so far.
    fn scrapes(&self, target: &Target) -> usize {
        self.runs.get(target).into_iter().flatten().map(|run| run.scrapes).sum()
    }

    /// Several scrapes of one target, each with its time in seconds: what is missing in between did
    /// not answer.
    ///
    /// # Errors
    /// When a page is none, or a time is not a later multiple of the step.
    pub fn record(&mut self, target: &Target, samples: &[(u64, String)]) -> Result<()> {
        for (seconds, page) in samples {
            let place = usize::try_from(seconds / self.step_seconds)?;
            let next = self.scrapes(target);
            let fits = seconds % self.step_seconds == 0 && place >= next;
            ensure!(fits, "{seconds} s is no later multiple of {} s", self.step_seconds);
            for _ in next..place {
                self.scrape(target, None)?;
            }
            self.scrape(target, Some(page))?;
        }
        Ok(())
    }

    /// Seconds from the first scrape to the last one.
    #[must_use]
    pub fn seconds(&self) -> u64 {
        let most = self.runs.keys().map(|target| self.scrapes(target)).max().unwrap_or_default();
        (most.max(1) as u64 - 1) * self.step_seconds
    }

    /// The lines below `input_series:` of a test of promtool.
    #[must_use]
    pub fn input_series(&self) -> String {
        let mut texts = vec![String::new(); self.series.len()];
        let mut lines = Vec::new();
        for (target, runs) in &self.runs {
            let up =
                runs.iter().map(|run| (Some(f64::from(u8::from(run.page.is_some()))), run.scrapes));
            lines.push((("up".to_owned(), target.labels()), notation(up)));
            // A series belongs to one target, whose labels it has.
            let mut values: BTreeMap<usize, Vec<(Option<f64>, usize)>> = BTreeMap::new();
            for (place, run) in runs.iter().enumerate() {
                for &(series, value) in run.page.iter().flatten() {
                    let of = values.entry(series).or_default();
                    // Runs in which it was missing.
                    of.extend(runs[of.len()..place].iter().map(|run| (None, run.scrapes)));
                    of.push((Some(value), run.scrapes));
                }
            }
            for (series, mut of) in values {
                of.extend(runs[of.len()..].iter().map(|run| (None, run.scrapes)));
                texts[series] = notation(of.into_iter());
            }
        }
        let named = self
            .series
            .iter()
            .map(|(series, at)| (series.clone(), std::mem::take(&mut texts[*at])));
        lines.extend(named);
        lines.sort_by(|one, other| one.0.cmp(&other.0));
        let mut out = String::new();
        for ((name, labels), values) in lines {
            let quoted = labels.iter().map(|(name, value)| format!("{name}={value:?}"));
            let labels = quoted.collect::<Vec<_>>().join(",").replace('\'', "''");
            writeln!(out, "      - {{series: '{name}{{{labels}}}', values: \"{values}\"}}")
                .expect("writing to a String cannot fail");
        }
        out
    }

    /// The head of a test of promtool: the rules and the series.
    fn test(&self) -> String {
        let groups: Vec<_> = alerts::groups().iter().map(|group| group.name).collect();
        format!(
            "rule_files: [server.yml]\nevaluation_interval: {}s\n\
             group_eval_order: [{}]\ntests:\n  - interval: {}s\n    input_series:\n{}",
            self.evaluation_seconds,
            groups.join(", "),
            self.step_seconds,
            self.input_series(),
        )
    }

    /// Evaluates the rules over all of it, by promtool in an empty folder: every alert that fired
    /// at any time, by its name and labels, with the second of its first sight.
    ///
    /// # Errors
    /// As [`firing`](Self::firing).
    pub fn fired(&self, folder: &Path) -> Result<Vec<(Labels, u64)>> {
        let (all, every) = (self.seconds(), self.evaluation_seconds);
        let alerts = "ALERTS{alertstate=\"firing\",alertname!=\"Watchdog\"}";
        let span = every * EVALUATIONS_A_QUERY;
        let first = format!("min_over_time(timestamp({alerts})[{span}s:{every}s])");
        let mut test = self.test() + "    promql_expr_test:\n";
        // What is expected is nothing, so that promtool tells everything that there is.
        for part in 1..=all.div_ceil(span).max(1) {
            let at = (part * span).min(all);
            let check = format!("{{expr: '{first}', eval_time: {at}s, exp_samples: []}}");
            writeln!(test, "      - {check}")?;
        }
        sampled(&promtool(folder, &test)?)
    }

    /// Evaluates the rules over all of it, by promtool in an empty folder: the alerts that fire at
    /// each of these seconds, with their labels, `alertname` included.
    ///
    /// # Errors
    /// When promtool is not there, cannot read what it is given, or cannot evaluate a rule or a
    /// query: silence then says nothing.
    pub fn firing(&self, folder: &Path, at: &[u64]) -> Result<BTreeMap<u64, Vec<Labels>>> {
        let mut test = self.test() + "    alert_rule_test:\n";
        // What is expected is nothing, so that promtool tells everything that there is.
        for seconds in at {
            for alert in alerts::alerts().iter().filter(|alert| alert.name != "Watchdog") {
                let check = format!("{{eval_time: {seconds}s, alertname: {}", alert.name);
                writeln!(test, "      - {check}, exp_alerts: []}}")?;
            }
        }
        let told = promtool(folder, &test)?;
        let mut found: BTreeMap<u64, Vec<Labels>> = at.iter().map(|at| (*at, vec![])).collect();
        for (seconds, labels) in reported(&told)? {
            found.get_mut(&seconds).context("a time that nobody asked for")?.push(labels);
        }
        Ok(found)
    }
}

/// What promtool says of a test of the rules.
fn promtool(folder: &Path, test: &str) -> Result<String> {
    for (name, text) in alerts::rule_files_for_tests() {
        std::fs::write(folder.join(name), text)?;
    }
    std::fs::write(folder.join("replay.yml"), test)?;
    let run = Command::new("promtool")
        .args(["test", "rules", "replay.yml"])
        .current_dir(folder)
        .output()
        .context("promtool (Debian's package prometheus) is needed")?;
    let told = String::from_utf8_lossy(&run.stdout) + String::from_utf8_lossy(&run.stderr);
    answers(&told)?;
    Ok(told.into_owned())
}

/// Whether promtool has evaluated everything: what fails must do so by what was found.
fn answers(told: &str) -> Result<()> {
    let answer = told.contains("SUCCESS") || told.contains("FAILED:");
    let broken = told.contains("err: ") || told.contains("unmarshal");
    ensure!(answer && !broken, "promtool says: {told}");
    Ok(())
}

/// Values, each as often as it was found, as promtool writes them: a series that ends is stale
/// once.
fn notation(values: impl Iterator<Item = (Option<f64>, usize)>) -> String {
    let mut words: Vec<(String, usize)> = Vec::new();
    let mut there = false;
    let mut add = |word: String, count: usize| match words.last_mut() {
        Some((last, known)) if *last == word => *known += count,
        Some(_) | None => words.push((word, count)),
    };
    for (value, count) in values {
        match value {
            Some(value) if value.is_infinite() => {
                add(if value > 0.0 { "Inf" } else { "-Inf" }.to_owned(), count);
            }
            Some(value) => add(value.to_string(), count),
            None if there => {
                add("stale".to_owned(), 1);
                if count > 1 {
                    add("_".to_owned(), count - 1);
                }
            }
            None => add("_".to_owned(), count),
        }
        there = value.is_some();
    }
    let written = words.into_iter().map(|(word, count)| match (&*word, count) {
        (_, 1) => word,
        // A value is itself and so many more; what is missing is so many.
        ("_", count) => format!("_x{count}"),
        (_, count) => format!("{word}x{}", count - 1),
    });
    written.collect::<Vec<_>>().join(" ")
}

/// The alerts that promtool found where none was expected.
fn reported(told: &str) -> Result<Vec<(u64, Labels)>> {
    answers(told)?;
    let (mut found, mut seconds) = (Vec::new(), None);
    for line in told.lines().map(str::trim) {
        if let Some(rest) = line.strip_prefix("alertname: ") {
            let (_, time) = rest.split_once("time: ").context("a check without a time")?;
            seconds = Some(duration(time.trim_end_matches([',', ' ']))?);
        } else if let Some(labels) = line.strip_prefix("Labels:") {
            let page = format!("alert{labels} 1\n");
            let ((_, labels), _) =
                Page::parse(&page.replace(", ", ","))?.samples.pop_first().context("no labels")?;
            found.push((seconds.context("labels before any check")?, labels));
        }
    }
    ensure!(told.contains("SUCCESS") || !found.is_empty(), "a failure without alerts: {told}");
    Ok(found)
}

/// The samples that promtool found where none was expected, the smallest of each.
fn sampled(told: &str) -> Result<Vec<(Labels, u64)>> {
    answers(told)?;
    let mut samples = BTreeMap::new();
    for mut rest in told.lines().filter_map(|line| line.trim().strip_prefix("got: ")) {
        while let Some(start) = rest.find('{') {
            // No label of an alert has a brace in it.
            let end = start + rest[start..].find('}').context("labels without an end")? + 1;
            let labels = rest[start..end].replace(", ", ",");
            let (value, after) = rest[end..].split_once(", ").unwrap_or((&rest[end..], ""));
            let page = format!("alert{labels} {}\n", value.trim());
            let ((_, mut labels), seconds) =
                Page::parse(&page)?.samples.pop_first().context("no labels")?;
            labels.remove("alertstate");
            let seconds = seconds as u64;
            let known = samples.entry(labels).or_insert(seconds);
            *known = seconds.min(*known);
            rest = after;
        }
    }
    ensure!(told.contains("SUCCESS") || !samples.is_empty(), "a failure without samples: {told}");
    Ok(samples.into_iter().collect())
}

/// `1h2m3s` in seconds.
fn duration(text: &str) -> Result<u64> {
    let mut rest = text;
    let mut seconds = 0;
    for (unit, size) in [("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)] {
        if let Some((number, after)) = rest.split_once(unit) {
            seconds +=
                number.parse::<u64>().with_context(|| format!("no duration: {text}"))? * size;
            rest = after;
        }
    }
    ensure!(rest.is_empty(), "no duration: {text}");
    Ok(seconds)
}

#[cfg(test)]
mod tests;
