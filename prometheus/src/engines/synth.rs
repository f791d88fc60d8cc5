//! Pages of other engines made from the vocabulary alone, for tests: every family that a process of
//! a version and role would expose, with plausible labels and values that move with a given clock.
//!
//! Counters only grow, buckets of a histogram hold no more than the next, what is used of a pool is
//! no more than the pool. Copies of ranks are equal, as they are in the real thing. Equal processes
//! and equal times give equal bytes. What the values mean together is not imitated: nothing queues
//! because something else is slow.

mod value;

use std::fmt::Write as _;

use super::Engine;
use super::signals::{Facts, Family, Kind, LabelFacts, of};
use value::{Place, distribution, gauge, rate, whole};

/// Something that a process of the wild lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hole {
    /// A flag is not set: families that need it are missing. Matched against the whole of what the
    /// vocabulary says.
    Flag(String),
    /// Nothing is served for a scrape job.
    Job(String),
    /// A family is missing.
    Family(String),
}

/// A process of another engine.
#[derive(Debug, Clone)]
pub struct Process {
    /// Engine.
    pub engine: Engine,
    /// Version; one that was not read counts as the nearest.
    pub version: String,
    /// `prefill`, `decode` or `unified`.
    pub role: String,
    /// Model served.
    pub model: String,
    /// Ranks that each expose the scheduler's families.
    pub ranks: u32,
    /// Data-parallel schedulers.
    pub schedulers: u32,
    /// Makes processes differ.
    pub seed: u64,
    /// What it lacks.
    pub holes: Vec<Hole>,
}

impl Process {
    /// A complete process with one rank and one scheduler.
    pub fn new(engine: Engine, version: &str, role: &str) -> Self {
        Self {
            engine,
            version: version.to_owned(),
            role: role.to_owned(),
            model: "some/model".to_owned(),
            ranks: 1,
            schedulers: 1,
            seed: 1,
            holes: Vec::new(),
        }
    }

    /// The same with one thing less.
    #[must_use]
    pub fn without(mut self, hole: Hole) -> Self {
        self.holes.push(hole);
        self
    }

    /// What it answers to the scrape of a job, `seconds` after its start; none where it serves
    /// nothing for that job.
    ///
    /// The text format 0.0.4. `/v1/loads` has no help texts, as the real one.
    pub fn page(&self, job: &str, seconds: f64) -> Option<String> {
        let facts = of(self.engine);
        let known = facts.jobs.contains_key(job);
        if !known || self.holes.contains(&Hole::Job(job.to_owned())) {
            return None;
        }
        let version = facts.nearest(&self.version);
        let mut page = String::new();
        for family in facts.families(version) {
            let of_job = facts.pages.get(&family.page).is_some_and(|page| page.job == job);
            if of_job && family.is_of(&self.role) && !self.lacks(family) {
                self.family(facts, version, family, seconds.max(0.0), &mut page);
            }
        }
        Some(page)
    }

    fn lacks(&self, family: &Family) -> bool {
        self.holes.iter().any(|hole| match hole {
            Hole::Flag(flag) => family.flag.as_ref() == Some(flag),
            Hole::Family(name) => *name == family.name,
            Hole::Job(_) => false,
        })
    }

    fn family(
        &self,
        facts: &Facts,
        version: &str,
        family: &Family,
        seconds: f64,
        page: &mut String,
    ) {
        let name = &family.name;
        if family.page != "loads" {
            line(page, format_args!("# HELP {name} {} of {}.", family.name, self.engine.title()));
        }
        let kind = match family.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram | Kind::GaugeHistogram => "histogram",
            Kind::Summary => "summary",
        };
        line(page, format_args!("# TYPE {name} {kind}"));
        for labels in self.combinations(facts, version, family) {
            let place = Place { seed: self.seed, family, labels: &labels };
            match family.kind {
                Kind::Counter => {
                    let value = whole(name, rate(&place) * seconds);
                    sample(page, name, &labels, "", value);
                }
                Kind::Gauge => {
                    let value = gauge(&place, seconds);
                    sample(page, name, &labels, "", value);
                }
                Kind::Histogram | Kind::GaugeHistogram => {
                    self.histogram(&place, seconds, page);
                }
                Kind::Summary => {
                    let count = (rate(&place) * seconds).floor();
                    sample(page, &format!("{name}_sum"), &labels, "", count * 0.5);
                    sample(page, &format!("{name}_count"), &labels, "", count);
                }
            }
        }
    }

    fn histogram(&self, place: &Place<'_>, seconds: f64, page: &mut String) {
        const OF_GAUGES: &[f64] = &[1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0];
        let Place { family, labels, .. } = *place;
        let edges = if family.buckets.is_empty() { OF_GAUGES } else { &family.buckets };
        let gauges = family.kind == Kind::GaugeHistogram;
        let elapsed = if gauges { 10.0 } else { seconds };
        let count = (rate(place) * elapsed).floor();
        let (shares, mean) = distribution(place, edges);
        let bucket = format!("{}_bucket", family.name);
        for (edge, share) in edges.iter().zip(shares) {
            sample(page, &bucket, labels, &python_float(*edge), (count * share).floor());
        }
        sample(page, &bucket, labels, "+Inf", count);
        if !gauges {
            sample(page, &format!("{}_count", family.name), labels, "", count);
            sample(page, &format!("{}_sum", family.name), labels, "", count * mean);
        }
    }

    /// Names and values of the labels of every series of a family.
    fn combinations(
        &self,
        facts: &Facts,
        version: &str,
        family: &Family,
    ) -> Vec<Vec<(String, String)>> {
        let mut sets: Vec<Vec<(String, String)>> = vec![Vec::new()];
        for label in facts.labels_of(family, version) {
            let values = self.values(label, family);
            let with = |set: &Vec<(String, String)>, value: &String| {
                let mut set = set.clone();
                set.push((label.name.clone(), value.clone()));
                set
            };
            if !values.is_empty() {
                let longer = |set| values.iter().map(move |value| with(set, value));
                sets = sets.iter().flat_map(longer).collect();
            }
        }
        sets
    }

    /// Values of a label; none where it is not there.
    fn values(&self, label: &LabelFacts, family: &Family) -> Vec<String> {
        let numbers = |count: u32| (0..count).map(|number| number.to_string()).collect();
        match label.name.as_str() {
            "model_name" => vec![self.model.clone()],
            "engine_type" => vec![self.role.clone()],
            "tp_rank" => numbers(self.ranks.max(1)),
            "dp_rank" if family.page == "scheduler" && self.schedulers < 2 => Vec::new(),
            "dp_rank" | "engine" => numbers(self.schedulers.max(1)),
            _ if label.values.is_empty() => vec!["0".to_owned()],
            _ => label.values.clone(),
        }
    }
}

fn line(page: &mut String, text: std::fmt::Arguments<'_>) {
    page.write_fmt(text).expect("writing to a String cannot fail");
    page.push('\n');
}

/// Adds a sample; `le` is the edge of a bucket, or empty.
fn sample(page: &mut String, name: &str, labels: &[(String, String)], le: &str, value: f64) {
    page.push_str(name);
    let edge = (!le.is_empty()).then_some(("le", le));
    let all = labels.iter().map(|(label, value)| (label.as_str(), value.as_str())).chain(edge);
    let mut separator = '{';
    for (label, value) in all {
        page.push(separator);
        line_free(page, format_args!("{label}={value:?}"));
        separator = ',';
    }
    if separator == ',' {
        page.push('}');
    }
    line(page, format_args!(" {value:?}"));
}

fn line_free(page: &mut String, text: std::fmt::Arguments<'_>) {
    page.write_fmt(text).expect("writing to a String cannot fail");
}

/// A number as the client library of these engines writes the edge of a bucket: with a fraction,
/// and with an exponent from a million on.
fn python_float(value: f64) -> String {
    if value < 1e6 {
        return format!("{value:?}");
    }
    let text = format!("{value:e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    format!("{mantissa}e+{exponent:0>2}")
}

#[cfg(test)]
mod tests;
