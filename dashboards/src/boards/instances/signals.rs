//! The signals that replicas are compared by.

use crate::boards::common::{self, FAULTS, INFERENCE};
use crate::build::{line, table, time_series};
use crate::ir::{Color, Line};
use crate::variables::{SCOPE, scope};
use metric_catalog::def::Unit;
use metric_catalog::labels::{Role, Tier};
use metric_catalog::promql::{
    Expr, Selection, Window, changes, max, quantile, rate, ratio, raw, recorded, sum,
};
use metric_catalog::{process, server, slo};

const NOW: Window = Window::Interval;

/// Labels that make processes peers.
const PEERS: &str = "cluster, model_name, engine_role";
/// Labels of a line.
const LINE: &[&str] = &["engine_role", "model_name", "instance"];

/// How far a value is from the median of the peers.
#[derive(Debug, Clone, Copy)]
enum Measure {
    /// As a share of the median, or of this where the median is smaller: below it nobody cares.
    Relative(f64),
    /// As a difference.
    Difference,
}

/// Something that replicas are compared by.
#[derive(Debug, Clone)]
pub(super) struct Signal {
    slug: &'static str,
    /// Name on the list of outliers.
    name: &'static str,
    title: &'static str,
    description: &'static str,
    unit: Unit,
    /// By process.
    value: Expr,
    measure: Measure,
    /// What is tolerated, as measured.
    tolerance: f64,
    /// Board that says more.
    detail: &'static str,
}

impl Signal {
    fn value(&self) -> String {
        self.value.render(&scope(SCOPE))
    }

    fn median(&self) -> String {
        format!("quantile by ({PEERS}) (0.5, {})", self.value())
    }

    /// By process, how far from the median.
    fn deviation(&self) -> String {
        let (value, median) = (self.value(), self.median());
        let difference = format!("({value}) - on ({PEERS}) group_left () ({median})");
        match self.measure {
            Measure::Difference => difference,
            Measure::Relative(floor) => {
                format!("({difference}) / on ({PEERS}) group_left () clamp_min({median}, {floor})")
            }
        }
    }

    /// By process, how often the tolerance goes into the deviation, up or down.
    pub(super) fn score(&self) -> String {
        let by_line = self.by_line(&format!("abs({}) / {}", self.deviation(), self.tolerance));
        format!("label_replace({by_line}, \"signal\", \"{}\", \"\", \"\")", self.name)
    }

    pub(super) fn tolerance_in_words(&self) -> String {
        let percent = self.tolerance * 100.0;
        match self.measure {
            Measure::Relative(_) => format!("{} {percent:.0} % of the median", self.name),
            Measure::Difference if self.unit == Unit::Ratio => {
                format!("{} {percent:.0} points", self.name)
            }
            Measure::Difference => format!("{} {}", self.name, self.tolerance),
        }
    }

    fn by_line(&self, text: &str) -> String {
        format!("max by ({}) ({text})", LINE.join(", "))
    }

    /// A table of all processes, and the value over time.
    pub(super) fn line(&self) -> Line {
        let columns = [("engine_role", "Role"), ("instance", "Instance")];
        let deviating = match self.measure {
            Measure::Relative(_) => Unit::Ratio,
            Measure::Difference => self.unit,
        };
        let of_line = |text: &str, unit| raw(&self.by_line(text), LINE, unit);
        let median =
            format!("({}) * 0 + on ({PEERS}) group_left () ({})", self.value(), self.median());
        let limits =
            [(-2.0, Color::Orange), (-1.0, Color::Text), (1.0, Color::Orange), (2.0, Color::Red)]
                .map(|(times, color)| (times * self.tolerance, color));
        let table = table(&format!("{}-table", self.slug), &columns)
            .title(self.title)
            .describe(self.description)
            .unit(self.unit)
            .query(of_line(&self.value(), self.unit), "Value")
            .query(of_line(&median, self.unit), "Median")
            .query(of_line(&self.deviation(), deviating), "Deviation")
            .judge("Deviation", Color::Red, &limits)
            .sorted_by("Deviation", true)
            .no_value("no value now")
            .detail(self.detail)
            .span(10);
        let median = raw(&self.median(), &["cluster", "model_name", "engine_role"], self.unit);
        let series = time_series(self.slug)
            .title(&format!("{}, over time", self.title))
            .describe(&format!(
                "Each replica, and the median of each role (dashed). {}",
                self.description
            ))
            .unit(self.unit)
            .query(of_line(&self.value(), self.unit), "{{engine_role}} {{instance}}")
            .query(median, "median {{engine_role}} {{model_name}}")
            .dashed("/^median/")
            .no_value("no value in this range")
            .detail(self.detail);
        line(8, vec![table.into(), series.into()])
    }
}

/// All of them, what hurts most first.
pub(super) fn all() -> Vec<Signal> {
    [latency(), cache(), faults()].concat()
}

fn latency() -> Vec<Signal> {
    let ttft = server::TIME_TO_FIRST_TOKEN.without(Role::Router);
    let gap = server::INTER_TOKEN_LATENCY.without(Role::Router);
    vec![
        Signal {
            slug: "queue-drain",
            name: "queue",
            title: "Queue drain",
            description: "Seconds that the prefill of everything queued takes. One far above its \
                          peers gets more than its share, or computes more slowly: compare its \
                          prefill capacity.",
            unit: Unit::Seconds,
            value: recorded::QUEUE_DRAIN.get(),
            measure: Measure::Relative(1.0),
            tolerance: 1.0,
            detail: common::QUEUE,
        },
        Signal {
            slug: "ttft",
            name: "time to first token",
            title: "Time to first token, p95",
            description: "With an ordinary queue, the device or the link of this one is slow.",
            unit: Unit::Seconds,
            value: quantile(0.95, ttft, NOW).per_instance(),
            measure: Measure::Relative(0.1),
            tolerance: 1.0,
            detail: common::PD_FLOW,
        },
        Signal {
            slug: "gap",
            name: "gap between tokens",
            title: "Inter-token latency, p99",
            description: "With an ordinary batch, this one is throttled, or shares its device.",
            unit: Unit::Seconds,
            value: quantile(0.99, gap, NOW).per_instance(),
            measure: Measure::Relative(0.01),
            tolerance: 1.0,
            detail: common::QUEUE,
        },
    ]
}

fn cache() -> Vec<Signal> {
    vec![
        Signal {
            slug: "hit-ratio",
            name: "hit ratio",
            title: "Reused prompt tokens",
            description: "Lower than its peers: it was restarted, its pools are smaller, or the \
                          router sends it what nobody has cached.",
            unit: Unit::Ratio,
            value: recorded::PREFIX_HIT.get(),
            measure: Measure::Difference,
            tolerance: 0.2,
            detail: common::HICACHE,
        },
        Signal {
            slug: "kv-usage",
            name: "KV usage",
            title: "Fullest device pool",
            description: "Share that live requests pin of the fullest pool. Higher than its peers \
                          with as many requests: its requests are longer, or pages leak.",
            unit: Unit::Ratio,
            value: max(recorded::POOL_ACTIVE.is(Tier::Device)).per_instance(),
            measure: Measure::Difference,
            tolerance: 0.2,
            detail: common::KV_POOLS,
        },
    ]
}

fn faults() -> Vec<Signal> {
    let answers = server::HTTP_REQUESTS.any_of(INFERENCE);
    let errors = ratio(
        sum(rate(answers.clone().any_of(FAULTS), NOW)).per_instance(),
        sum(rate(answers, NOW)).per_instance(),
    );
    vec![
        Signal {
            slug: "error-rate",
            name: "error rate",
            title: "Errors",
            description: "Share of inference requests that ended in a 5xx. One replica with \
                          errors among healthy ones: drain it, then read its log.",
            unit: Unit::Ratio,
            value: errors,
            measure: Measure::Difference,
            tolerance: slo::ERROR_RATIO,
            detail: common::OVERVIEW,
        },
        Signal {
            slug: "restarts",
            name: "restarts",
            title: "Restarts in the last hour",
            description: "One that restarts while its peers do not: the last lines of its log, \
                          and out-of-memory kills on the board of node health.",
            unit: Unit::Count,
            value: max(changes(process::START_TIME, Window::H1)).per_instance(),
            measure: Measure::Difference,
            tolerance: 1.0,
            detail: common::NODE,
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_by_process_and_told_apart() {
        let all = all();
        for signal in &all {
            assert_eq!(signal.value.labels(), metric_catalog::promql::INSTANCE, "{}", signal.name);
            assert_eq!(signal.value.unit(), signal.unit, "{}", signal.name);
            assert!(signal.tolerance > 0.0);
        }
        let names: std::collections::BTreeSet<&str> = all.iter().map(|one| one.name).collect();
        assert_eq!(names.len(), all.len());
    }

    #[test]
    fn a_deviation_never_divides_by_nothing() {
        let signal = &latency()[0];
        assert!(signal.deviation().contains("clamp_min(quantile by (cluster, model_name"));
        assert_eq!(signal.tolerance_in_words(), "queue 100 % of the median");
        assert_eq!(cache()[0].tolerance_in_words(), "hit ratio 20 points");
        assert_eq!(faults()[1].tolerance_in_words(), "restarts 1");
    }
}
