//! Observability: what being watched costs, and whether what is shown can be believed.

mod cost;

use super::common::{self, OF_TARGETS};
use crate::build::{Blank, line, section, stat, state_timeline, time_series};
use crate::ir::{Color, Dashboard, Line, Panel, Section};
use crate::variables::TARGETS;
use metric_catalog::def::Unit;
use metric_catalog::promql::{Expr, raw, recorded};
use metric_catalog::slo;

/// The board.
pub(super) fn board() -> Dashboard {
    common::board_of_targets(
        common::OBSERVABILITY,
        "Observability",
        "Can the other boards be believed, and what do they cost: scrapes, rules, metrics pages \
         and those who write them, exporters, and the processes themselves.",
        vec![now(), scrapes(), rules(), cost::pages(), cost::exporters(), cost::processes()],
    )
}

fn lines(slug: &str) -> Blank {
    time_series(slug).within(TARGETS)
}

fn number(slug: &str) -> Blank {
    stat(slug).within(TARGETS)
}

/// Age of the newest sample of each target: a scrape that fails writes one, too.
fn sample_age(by: &str) -> String {
    format!("max by ({by}) (time() - timestamp(up{{{OF_TARGETS}}}))")
}

/// Seconds since the recording rules were last evaluated.
fn rules_age() -> Expr {
    let newest = recorded::QUEUED_REQUESTS.name;
    let text = format!("max(time() - timestamp({newest}{{{OF_TARGETS}}}))");
    raw(&text, &[], Unit::Seconds)
}

/// 1 while the alert that always fires does, else 0.
fn watchdog() -> Expr {
    let firing = r#"ALERTS{alertname="Watchdog",alertstate="firing",cluster=~"$cluster|"}"#;
    let text = format!("clamp_max(count({firing}), 1) or vector(0)");
    raw(&text, &[], Unit::Flag)
}

fn now() -> Section {
    let up = raw(&format!("sum(up{{{OF_TARGETS}}}) or vector(0)"), &[], Unit::Count);
    let down = raw(&format!("count(up{{{OF_TARGETS}}} == 0) or vector(0)"), &[], Unit::Count);
    let panels = [
        number("down-now")
            .title("Targets down")
            .describe(
                "Processes and exporters that do not answer a scrape. Their series end, so other \
                 boards show nothing of them: *Targets* names them.",
            )
            .unit(Unit::Count)
            .query(down, "down")
            .threshold(1.0, Color::Red)
            .alert("TargetDown"),
        number("up-now")
            .title("Targets up")
            .describe(
                "Processes and exporters that answer a scrape. Red at none: is it Prometheus?",
            )
            .unit(Unit::Count)
            .query(up, "up")
            .base(Color::Red)
            .threshold(1.0, Color::Green)
            .alert("TargetDown"),
        number("sample-age-now")
            .title("Oldest newest sample")
            .describe(
                "Time since the last scrape of the target that was scraped longest ago. Red: \
                 Prometheus does not keep up, or has dropped a target a moment ago.",
            )
            .unit(Unit::Seconds)
            .query(raw(&format!("max({})", sample_age("instance")), &[], Unit::Seconds), "age")
            .threshold(slo::COLLECTOR_STALE_SECONDS, Color::Red)
            .alert("TargetDown"),
        number("rules-age-now")
            .title("Age of recorded series")
            .describe(
                "Time since the recording rules were evaluated, which alerts and many panels read. \
                 Red: the rules are not loaded, fail, or take too long.",
            )
            .unit(Unit::Seconds)
            .query(rules_age(), "age")
            .no_value("no rule was evaluated")
            .threshold(slo::COLLECTOR_STALE_SECONDS, Color::Red)
            .alert("Watchdog"),
        number("watchdog-now")
            .title("Path of alerts")
            .describe(
                "Whether the alert that always fires does. If it does not, no other alert can: are \
                 the rule files loaded?",
            )
            .unit(Unit::Flag)
            .query(watchdog(), "watchdog")
            .map(0, "broken", Color::Red)
            .map(1, "works", Color::Green)
            .background()
            .alert("Watchdog"),
    ];
    let panels = panels.into_iter().chain(cost_of_scrapes()).map(Panel::from).collect();
    section("now", "Can it be believed", vec![line(4, panels)])
}

type Ready = crate::build::Draft<crate::build::Set, crate::build::Set, crate::build::Set>;

fn cost_of_scrapes() -> [Ready; 2] {
    let slowest = format!("max(scrape_duration_seconds{{{OF_TARGETS}}})");
    let samples = format!("sum(scrape_samples_scraped{{{OF_TARGETS}}})");
    [
        number("slowest-scrape-now")
            .title("Slowest scrape")
            .describe("Time of the slowest scrape. Near the scrape interval, samples are lost.")
            .unit(Unit::Seconds)
            .query(raw(&slowest, &[], Unit::Seconds), "slowest")
            .base(Color::Blue),
        number("samples-now")
            .title("Samples of a scrape")
            .describe("Samples that one round over all targets brings: what Prometheus must store.")
            .unit(Unit::Count)
            .query(raw(&samples, &[], Unit::Count), "samples")
            .base(Color::Blue),
    ]
}

fn scrapes() -> Section {
    let by_target = ["job", "instance"];
    let up = raw(&format!("max by (job, instance) (up{{{OF_TARGETS}}})"), &by_target, Unit::Flag);
    let targets = state_timeline("targets")
        .within(TARGETS)
        .title("Targets")
        .describe(
            "Whether each target answered its scrape. One that is down: does the process run, and \
             does its address in the scrape configuration still hold?",
        )
        .unit(Unit::Flag)
        .query(up, "{{job}} {{instance}}")
        .map(0, "down", Color::Red)
        .map(1, "up", Color::Green)
        .alert("TargetDown");
    let of = |series: &str, unit| {
        let text = format!("max by (job, instance) ({series}{{{OF_TARGETS}}})");
        raw(&text, &by_target, unit)
    };
    let age = raw(&sample_age("job, instance"), &by_target, Unit::Seconds);
    let panels = vec![
        lines("scrape-duration")
            .title("Duration of scrapes")
            .describe(
                "How long each target takes to answer. A page is made in milliseconds; seconds are \
                 a process short of cores, or the network.",
            )
            .unit(Unit::Seconds)
            .query(of("scrape_duration_seconds", Unit::Seconds), "{{job}} {{instance}}")
            .into(),
        lines("scrape-samples")
            .title("Samples of each target")
            .describe(
                "Size of each page in samples. It must not grow with traffic: steps are models, \
                 peers or workers that came and went.",
            )
            .unit(Unit::Count)
            .query(of("scrape_samples_scraped", Unit::Count), "{{job}} {{instance}}")
            .into(),
        lines("sample-age")
            .title("Age of the newest sample")
            .describe(
                "A saw as high as the scrape interval is right. Above the line nobody scrapes the \
                 target any more; after five minutes its series are gone.",
            )
            .unit(Unit::Seconds)
            .query(age, "{{job}} {{instance}}")
            .threshold(slo::COLLECTOR_STALE_SECONDS, Color::Red)
            .threshold_lines()
            .alert("TargetDown")
            .into(),
    ];
    section("scrapes", "Scrapes", vec![line(8, vec![targets.into()]), line(8, panels)])
}

fn rules() -> Section {
    section("rules", "Rules", vec![evaluation()])
}

fn evaluation() -> Line {
    let count_by = |label: &'static str, more: &str| {
        let scope = r#"cluster=~"$cluster|",job=~"$job|",instance=~"$instance|""#;
        let text = format!(r#"count by ({label}) (ALERTS{{{more}severity!="none",{scope}}})"#);
        raw(&text, &[label], Unit::Count)
    };
    let states = count_by("alertstate", "");
    let names = count_by("alertname", r#"alertstate="firing","#);
    let recorded: Vec<String> =
        [recorded::QUEUED_REQUESTS, recorded::POOL_USED, recorded::QUEUE_DRAIN]
            .iter()
            .map(|series| format!("count({}{{{OF_TARGETS}}})", series.name))
            .collect();
    line(
        8,
        vec![
            lines("rules-age")
                .title("Age of recorded series")
                .describe(
                    "A saw as high as the interval of the rules is right. Above the line alerts \
                     look at the past: the group takes longer than its interval, or fails.",
                )
                .unit(Unit::Seconds)
                .query(rules_age(), "recording rules")
                .threshold(slo::COLLECTOR_STALE_SECONDS, Color::Red)
                .threshold_lines()
                .no_value("no rule was evaluated")
                .alert("Watchdog")
                .into(),
            lines("recorded-series")
                .title("Recorded series")
                .describe(
                    "How many series rules make of a few inputs. A drop to nothing while processes \
                     are up is a rule that fails.",
                )
                .unit(Unit::Count)
                .query(raw(&recorded[0], &[], Unit::Count), "queued requests")
                .query(raw(&recorded[1], &[], Unit::Count), "fill of pools")
                .query(raw(&recorded[2], &[], Unit::Count), "queue drain")
                .no_value("no rule was evaluated")
                .into(),
            lines("alerts-by-state")
                .title("Alerts by state")
                .describe(
                    "Alerts that are pending and firing. Many that are pending and never fire have \
                     a threshold near the usual.",
                )
                .unit(Unit::Count)
                .query(states, "{{alertstate}}")
                .no_value("all quiet")
                .steps()
                .into(),
            lines("alerts-by-name")
                .title("Firing alerts by name")
                .describe("How many series each alert fires for. One cause fires for many.")
                .unit(Unit::Count)
                .query(names, "{{alertname}}")
                .no_value("all quiet")
                .steps()
                .into(),
        ],
    )
}
