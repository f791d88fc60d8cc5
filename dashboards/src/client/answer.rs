//! Answers of the Prometheus API.

use std::collections::BTreeMap;

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};

/// Labels of a series, `__name__` among them where the series has a name.
pub type Labels = BTreeMap<String, String>;

/// A range to look at: Unix seconds, and seconds between two points.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Range {
    /// First point.
    pub start: f64,
    /// No point after it.
    pub end: f64,
    /// Seconds between points; more than 0.
    pub step: f64,
}

/// One value of one series.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Its labels.
    pub labels: Labels,
    /// Unix seconds.
    pub at: f64,
    /// Value; NaN and infinities are values.
    pub value: f64,
}

/// A series with its values.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Its labels.
    pub labels: Labels,
    /// Unix seconds and values, in order.
    pub points: Vec<(f64, f64)>,
    /// Points that are native histograms; those are not read.
    pub histograms: usize,
}

/// Which server answers.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct BuildInfo {
    /// Version, as `2.42.0`.
    #[serde(default)]
    pub version: String,
    /// The program, where it is not Prometheus itself and says so.
    #[serde(default)]
    pub application: Option<String>,
}

/// What a page says of a metric.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Metadata {
    /// Kind, as `counter`.
    #[serde(rename = "type", default)]
    pub kind: String,
    /// Text.
    #[serde(default)]
    pub help: String,
}

/// What is scraped.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Targets {
    /// Those that are scraped now.
    #[serde(rename = "activeTargets", default)]
    pub active: Vec<Target>,
}

/// A target of a scrape.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Target {
    /// Labels that its series get.
    #[serde(default)]
    pub labels: Labels,
    /// Labels before relabelling.
    #[serde(rename = "discoveredLabels", default)]
    pub discovered: Labels,
    /// Job of the scrape configuration.
    #[serde(rename = "scrapePool", default)]
    pub pool: String,
    /// Address of the page.
    #[serde(rename = "scrapeUrl", default)]
    pub url: String,
    /// `up`, `down` or `unknown`.
    #[serde(default)]
    pub health: String,
    /// Why the last scrape failed; empty when it did not.
    #[serde(rename = "lastError", default)]
    pub error: String,
    /// Duration between scrapes, as `15s`; empty from old servers.
    #[serde(rename = "scrapeInterval", default)]
    pub interval: String,
}

/// Rules that are evaluated one after the other.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct RuleGroup {
    /// Name.
    #[serde(default)]
    pub name: String,
    /// Rules.
    #[serde(default)]
    pub rules: Vec<RuleInfo>,
}

/// A rule.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct RuleInfo {
    /// Name of the alert or of the recorded series.
    #[serde(default)]
    pub name: String,
    /// `alerting` or `recording`.
    #[serde(rename = "type", default)]
    pub kind: String,
    /// `ok`, `err` or `unknown`.
    #[serde(default)]
    pub health: String,
    /// Why the last evaluation failed.
    #[serde(rename = "lastError", default)]
    pub error: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct Groups {
    #[serde(default)]
    pub(super) groups: Vec<RuleGroup>,
}

/// What every answer comes in.
#[derive(Debug, Deserialize)]
pub(super) struct Envelope<T> {
    pub(super) data: Option<T>,
    #[serde(default)]
    pub(super) error: Option<String>,
    #[serde(rename = "errorType", default)]
    pub(super) error_type: Option<String>,
}

/// Data of a query.
#[derive(Debug, Deserialize)]
#[serde(tag = "resultType", content = "result", rename_all = "lowercase")]
pub(super) enum Data {
    Matrix(Vec<RawSeries>),
    Vector(Vec<RawSample>),
    Scalar(Point),
    String(IgnoredAny),
}

#[derive(Debug, Deserialize)]
pub(super) struct RawSeries {
    #[serde(default)]
    metric: Labels,
    #[serde(default)]
    values: Vec<Point>,
    #[serde(default)]
    histograms: Vec<IgnoredAny>,
}

#[derive(Debug, Deserialize)]
pub(super) struct RawSample {
    #[serde(default)]
    metric: Labels,
    value: Option<Point>,
}

/// A time and a text.
#[derive(Debug, Deserialize)]
pub(super) struct Point(f64, #[serde(deserialize_with = "value")] f64);

fn value<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
    text.parse().map_err(|_| serde::de::Error::custom(format!("{text:?} is no number")))
}

impl Data {
    pub(super) fn samples(self) -> Result<Vec<Sample>, String> {
        let of = |labels, Point(at, value)| Sample { labels, at, value };
        match self {
            Self::Vector(samples) => {
                let whole = |raw: RawSample| Some(of(raw.metric, raw.value?));
                Ok(samples.into_iter().filter_map(whole).collect())
            }
            Self::Scalar(point) => Ok(vec![of(Labels::new(), point)]),
            Self::Matrix(_) | Self::String(_) => Err("the result is no vector".to_owned()),
        }
    }

    pub(super) fn series(self) -> Result<Vec<Series>, String> {
        let Self::Matrix(series) = self else { return Err("the result is no matrix".to_owned()) };
        let of = |raw: RawSeries| Series {
            labels: raw.metric,
            points: raw.values.into_iter().map(|Point(at, value)| (at, value)).collect(),
            histograms: raw.histograms.len(),
        };
        Ok(series.into_iter().map(of).collect())
    }
}
