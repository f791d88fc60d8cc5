//! `prometheus/signals.json`: what other engines expose, in which version, and which signals that
//! answers.
//!
//! Read once, from the copy that the program is built with. Facts of engines that are not in the
//! catalog of constants are here too, so that a page of an engine can be told, or made, completely.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

use super::Engine;
use super::signal::Signal;
use crate::def::Kind as OurKind;

/// The format that this reads.
const FORMAT: u32 = 2;

/// The whole document.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Document {
    format: u32,
    /// What it is.
    pub about: String,
    /// Unit and description of each signal, by name.
    pub signals: BTreeMap<String, About>,
    engines: BTreeMap<String, Facts>,
}

/// What a signal is.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct About {
    /// In what it is measured.
    pub unit: String,
    /// What it says.
    pub description: String,
}

/// What is known of one engine.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Facts {
    /// Versions that were read, oldest first.
    pub versions: Vec<Version>,
    /// Scrape jobs by name.
    pub jobs: BTreeMap<String, Job>,
    /// Parts of the exposition whose series have the same labels in common, by name.
    pub pages: BTreeMap<String, PageFacts>,
    /// How it answers each signal, by name.
    pub signals: BTreeMap<String, Answered>,
    /// Every family.
    pub vocabulary: Vec<Family>,
}

/// A version that was read.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Version {
    /// As the package names it.
    pub version: String,
    /// What was read.
    pub read: String,
}

/// How an exposition is scraped.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// Path.
    pub path: String,
    /// Parameters of the query.
    #[serde(default)]
    pub params: BTreeMap<String, Vec<String>>,
    /// What must be set for it to be served.
    pub flag: Option<String>,
}

/// What the series of a part of the exposition have in common.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PageFacts {
    /// Name of the scrape job.
    pub job: String,
    /// Labels.
    pub labels: Vec<LabelFacts>,
}

/// A label of a family or of a part.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LabelFacts {
    /// Name.
    pub name: String,
    /// Some or all of its values.
    #[serde(default)]
    pub values: Vec<String>,
    /// First version that has it.
    pub since: Option<String>,
    /// Last version that has it.
    pub until: Option<String>,
    /// When it is there, where it is not always.
    pub when: Option<String>,
}

/// Kind of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Classic histogram.
    Histogram,
    /// Quantiles made by the process.
    Summary,
    /// A histogram whose buckets are gauges.
    GaugeHistogram,
}

/// A family.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Family {
    /// Name as it is in queries, without the suffixes of a histogram.
    pub name: String,
    /// Kind as the exposition types it.
    pub kind: Kind,
    /// Part of the exposition that it is in.
    pub page: String,
    /// Labels of its own.
    #[serde(default)]
    pub labels: Vec<LabelFacts>,
    /// Edges of a histogram without `+Inf`.
    #[serde(default)]
    pub buckets: Vec<f64>,
    /// First version that has it.
    pub since: Option<String>,
    /// Last version that has it.
    pub until: Option<String>,
    /// What must be set for it to appear.
    pub flag: Option<String>,
    /// Roles that record it; all without.
    #[serde(default)]
    pub roles: Vec<String>,
    /// Whether it only grows although it is typed as a gauge.
    #[serde(default)]
    pub cumulative: bool,
}

/// Whether an engine answers a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// As it is meant.
    Present,
    /// In part: the note says what is missing.
    Partial,
    /// Not at all: the gap says what is missing, `close` what would close it.
    Absent,
}

/// How an engine answers a signal.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Answered {
    /// Whether, in the newest version.
    pub status: Status,
    /// What to know of the answer.
    pub note: Option<String>,
    /// What is missing.
    pub gap: Option<String>,
    /// What would close the gap.
    pub close: Option<String>,
    /// Versions that answer otherwise.
    #[serde(default)]
    pub versions: BTreeMap<String, Answered>,
}

impl Answered {
    /// How a version answers.
    pub fn at(&self, version: &str) -> &Self {
        self.versions.get(version).unwrap_or(self)
    }
}

static DOCUMENT: LazyLock<Document> = LazyLock::new(|| {
    let text = include_str!("../../signals.json");
    let document: Document = serde_json::from_str(text).expect("tests read this very file");
    assert_eq!(document.format, FORMAT, "tests read this very file");
    document
});

/// The document that the program was built with.
pub fn document() -> &'static Document {
    &DOCUMENT
}

/// What is known of an engine.
pub fn of(engine: Engine) -> &'static Facts {
    DOCUMENT.engines.get(engine.as_str()).expect("tests look every engine up")
}

impl Facts {
    /// The family of that name; a series of a histogram or summary finds its family.
    pub fn family(&self, name: &str) -> Option<&Family> {
        let of_name = |name: &str| self.vocabulary.iter().find(|family| family.name == name);
        of_name(name).or_else(|| {
            let stem = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
            of_name(stem?).filter(|family| !matches!(family.kind, Kind::Counter | Kind::Gauge))
        })
    }

    /// Families of a version.
    pub fn families<'a>(&'a self, version: &'a str) -> impl Iterator<Item = &'a Family> {
        self.vocabulary.iter().filter(|family| self.has(family, version))
    }

    /// Whether a version has a family.
    pub fn has(&self, family: &Family, version: &str) -> bool {
        self.is_between(version, family.since.as_deref(), family.until.as_deref())
    }

    /// Whether a version has a label.
    pub fn has_label(&self, label: &LabelFacts, version: &str) -> bool {
        self.is_between(version, label.since.as_deref(), label.until.as_deref())
    }

    /// Labels of a family's series in a version: those of its part of the exposition, then its own.
    pub fn labels_of<'a>(
        &'a self,
        family: &'a Family,
        version: &'a str,
    ) -> impl Iterator<Item = &'a LabelFacts> {
        let common = self.pages.get(&family.page).into_iter().flat_map(|page| &page.labels);
        common.chain(&family.labels).filter(|label| self.has_label(label, version))
    }

    /// How the engine answers a signal.
    pub fn answered(&self, signal: Signal) -> &Answered {
        self.signals.get(signal.as_str()).expect("tests look every signal up")
    }

    /// The newest version that was read.
    pub fn newest(&self) -> &str {
        &self.versions.last().expect("tests look for two versions").version
    }

    /// The version that was read and is nearest to one found in the wild: the newest that is not
    /// newer, else the oldest. Numbers are compared by their dots; what follows them is ignored.
    pub fn nearest(&self, version: &str) -> &str {
        let numbers = numbers(version);
        let mut known = self.versions.iter().map(|known| known.version.as_str());
        let oldest = self.versions.first().expect("tests look for two versions").version.as_str();
        known.rfind(|known| self::numbers(known) <= numbers).unwrap_or(oldest)
    }

    /// Place in the list of versions; one that was not read counts as the nearest.
    fn place(&self, version: &str) -> usize {
        let of = |wanted: &str| self.versions.iter().position(|known| known.version == wanted);
        of(version).or_else(|| of(self.nearest(version))).expect("the nearest is in the list")
    }

    fn is_between(&self, version: &str, since: Option<&str>, until: Option<&str>) -> bool {
        let at = self.place(version);
        since.is_none_or(|since| self.place(since) <= at)
            && until.is_none_or(|until| at <= self.place(until))
    }
}

/// The leading numbers of a version.
fn numbers(version: &str) -> Vec<u32> {
    let parts = version.trim_start_matches('v').split(['.', '+', '-']);
    parts.map_while(|part| part.parse().ok()).collect()
}

impl Family {
    /// Kind as queries must take it; none for what the catalog does not declare.
    pub const fn query_kind(&self) -> Option<OurKind> {
        match self.kind {
            Kind::Counter => Some(OurKind::Counter),
            Kind::Gauge if self.cumulative => Some(OurKind::Counter),
            Kind::Gauge => Some(OurKind::Gauge),
            Kind::Histogram => Some(OurKind::Histogram),
            Kind::Summary | Kind::GaugeHistogram => None,
        }
    }

    /// Whether a process of a role records it.
    pub fn is_of(&self, role: &str) -> bool {
        self.roles.is_empty() || self.roles.iter().any(|known| known == role)
    }
}

#[cfg(test)]
mod tests;
