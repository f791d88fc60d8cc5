//! Recorded scrapes under our rules: which alerts fire when, and who is told.
//!
//! A [`Recording`] takes pages as a Prometheus would scrape them, in real or in virtual time, and
//! becomes the input series of `promtool test rules`. So what is evaluated is the generated rule
//! file, by Prometheus' own engine. The first scrape is at second 0, also for pages that hold Unix
//! times: a process that is replayed begins its clock there.

use crate::scrape::{Labels, Page};
use anyhow::{Context, Result, ensure};
use metric_catalog::alerts;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

/// Seconds between two evaluations of the rules, as in the configuration.
const EVALUATION_SECONDS: u64 = 15;

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

/// Scrapes of several targets, all at the same times.
#[derive(Debug)]
pub struct Recording {
    step_seconds: u64,
    /// Scrapes of each target so far.
    scrapes: BTreeMap<Target, usize>,
    /// Values by scrape; those that a series had no sample in are missing.
    series: BTreeMap<Series, BTreeMap<usize, f64>>,
    /// Names of the series that are kept.
    kept: BTreeSet<String>,
}

impl Recording {
    /// Nothing yet; targets are scraped every `step_seconds`, from 0 on. Only what the rules read
    /// is kept.
    #[must_use]
    pub fn new(step_seconds: u64) -> Self {
        let (scrapes, series) = (BTreeMap::new(), BTreeMap::new());
        Self { step_seconds, scrapes, series, kept: alerts::inputs() }
    }

    /// The next scrape of a target: its page, or nothing where it does not answer.
    ///
    /// # Errors
    /// When the page is none.
    pub fn scrape(&mut self, target: &Target, page: Option<&str>) -> Result<()> {
        let count = self.scrapes.entry(target.clone()).or_default();
        let at = *count;
        *count += 1;
        let up = ("up".to_owned(), target.labels());
        self.series.entry(up).or_default().insert(at, f64::from(u8::from(page.is_some())));
        let page = page.map(Page::parse).transpose()?.unwrap_or_default();
        for ((name, mut labels), value) in page.samples {
            if self.kept.contains(&name) {
                labels.extend(target.labels());
                self.series.entry((name, labels)).or_default().insert(at, value);
            }
        }
        Ok(())
    }

    /// Several scrapes of one target, each with its time in seconds: what is missing in between did
    /// not answer.
    ///
    /// # Errors
    /// When a page is none, or a time is not a later multiple of the step.
    pub fn record(&mut self, target: &Target, samples: &[(u64, String)]) -> Result<()> {
        for (seconds, page) in samples {
            let place = usize::try_from(seconds / self.step_seconds)?;
            let next = self.scrapes.get(target).copied().unwrap_or_default();
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
        let most = self.scrapes.values().copied().max().unwrap_or_default();
        (most.max(1) as u64 - 1) * self.step_seconds
    }

    /// The lines below `input_series:` of a test of promtool.
    #[must_use]
    pub fn input_series(&self) -> String {
        let mut out = String::new();
        let last = self.scrapes.values().copied().max().unwrap_or_default();
        for ((name, labels), values) in &self.series {
            let quoted = labels.iter().map(|(name, value)| format!("{name}={value:?}"));
            let labels = quoted.collect::<Vec<_>>().join(",").replace('\'', "''");
            let values = notation(values, last);
            writeln!(out, "      - {{series: '{name}{{{labels}}}', values: \"{values}\"}}")
                .expect("writing to a String cannot fail");
        }
        out
    }

    /// Evaluates the rules over all of it, by promtool in an empty folder: the alerts that fire at
    /// each of these seconds, with their labels, `alertname` included.
    ///
    /// # Errors
    /// When promtool is not there, or cannot read what it is given.
    pub fn firing(&self, folder: &Path, at: &[u64]) -> Result<BTreeMap<u64, Vec<Labels>>> {
        let groups: Vec<_> = alerts::groups().iter().map(|group| group.name).collect();
        let mut test = format!(
            "rule_files: [server.yml]\nevaluation_interval: {EVALUATION_SECONDS}s\n\
             group_eval_order: [{}]\ntests:\n  - interval: {}s\n    input_series:\n{}    \
             alert_rule_test:\n",
            groups.join(", "),
            self.step_seconds,
            self.input_series(),
        );
        // What is expected is nothing, so that promtool tells everything that there is.
        for seconds in at {
            for alert in alerts::alerts().iter().filter(|alert| alert.name != "Watchdog") {
                let check = format!("{{eval_time: {seconds}s, alertname: {}", alert.name);
                writeln!(test, "      - {check}, exp_alerts: []}}")?;
            }
        }
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
        let mut found: BTreeMap<u64, Vec<Labels>> = at.iter().map(|at| (*at, vec![])).collect();
        let answer = told.contains("SUCCESS") || told.contains("FAILED:");
        ensure!(answer && !told.contains("unmarshal"), "promtool says: {told}");
        for (seconds, labels) in reported(&told)? {
            found.get_mut(&seconds).context("a time that nobody asked for")?.push(labels);
        }
        Ok(found)
    }
}

/// Values as promtool writes them: runs are counted, a series that ends is stale once.
fn notation(values: &BTreeMap<usize, f64>, scrapes: usize) -> String {
    let mut words: Vec<(String, usize)> = Vec::new();
    let mut there = false;
    for at in 0..scrapes {
        let word = match values.get(&at) {
            Some(value) if value.is_infinite() => {
                if *value > 0.0 {
                    "Inf".to_owned()
                } else {
                    "-Inf".to_owned()
                }
            }
            Some(value) => value.to_string(),
            None if there => "stale".to_owned(),
            None => "_".to_owned(),
        };
        there = values.contains_key(&at);
        match words.last_mut() {
            Some((last, count)) if *last == word => *count += 1,
            Some(_) | None => words.push((word, 1)),
        }
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
    Ok(found)
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
