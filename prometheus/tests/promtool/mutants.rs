//! Whether the scenarios bite: rules with one limit, guard, list of labels or wait changed must
//! fail one of them.
//!
//! A mutant is the alert under another name, with copies of the recorded series between it and what
//! was changed. All mutants of an alert are judged by one run over the scenarios that check it,
//! each check once for each mutant; what fails no check survives, and that fails the test.
//!
//! One mutant in `SHARE` of those of the alerts themselves is tried by default: half a minute.
//! With `SIGHTLINE_MUTANTS=alerts` all of those are tried, with `all` those of recorded series too;
//! with the name of an alert all that feed it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use metric_catalog::alerts::{self, Alert};
use metric_catalog::promql::duration;
use metric_catalog::target::Target;

use crate::change::variants;
use crate::{promtool, scenarios, scratch};

/// Of so many mutants one is tried by default.
const SHARE: usize = 24;
/// Fewer than so many in all would say little.
const LEAST: usize = 60;

/// Mutants that no scenario catches, one a line: a change that means the same, or one whose
/// scenario is still to be written. The test says which lines can go.
const SURVIVORS: &str = include_str!("survivors.txt");

/// A rule as text.
#[derive(Debug, Clone)]
struct Rule {
    name: String,
    expr: String,
    /// Labels and waits; none for a recorded series.
    alert: Option<Alert>,
    hold: u32,
    keep: u32,
}

impl Rule {
    fn write(&self, out: &mut String) {
        let kind = if self.alert.is_some() { "alert" } else { "record" };
        let mut line = |text: std::fmt::Arguments<'_>| {
            writeln!(out, "{text}").expect("writing to a String cannot fail");
        };
        line(format_args!("      - {kind}: {}", self.name));
        line(format_args!("        expr: |-\n          {}", self.expr));
        let Some(alert) = &self.alert else { return };
        line(format_args!("        for: {}", duration(self.hold)));
        line(format_args!("        keep_firing_for: {}", duration(self.keep)));
        line(format_args!("        labels:\n          severity: {}", alert.severity.as_str()));
        if alert.root_cause {
            line(format_args!("          root_cause: \"true\""));
        }
        if let Some(layer) = alert.layer {
            line(format_args!("          layer: {}", layer.as_str()));
        }
    }

    fn reads(&self, series: &str) -> bool {
        self.expr.contains(series)
    }
}

/// One change.
#[derive(Debug, Clone)]
struct Mutant {
    /// Place among all, which is its name in the runs.
    index: usize,
    /// Place of the rule that is changed.
    rule: usize,
    changed: Rule,
    what: String,
}

fn rules(target: Target) -> Vec<Rule> {
    let groups = alerts::groups_of(target);
    let mut rules = Vec::new();
    for group in groups {
        for recording in group.recordings {
            let (name, expr) = (recording.series.name.to_owned(), recording.expr.to_string());
            rules.push(Rule { name, expr, alert: None, hold: 0, keep: 0 });
        }
        for alert in group.alerts {
            let (hold, keep) = (alert.hold_seconds, alert.keep_seconds());
            let (name, expr) = (alert.name.to_owned(), alert.expr.to_string());
            rules.push(Rule { name, expr, alert: Some(alert), hold, keep });
        }
    }
    rules
}

fn mutants(rules: &[Rule]) -> Vec<Mutant> {
    let mut found = Vec::new();
    for (place, rule) in rules.iter().enumerate() {
        let mut add = |changed: Rule, what: &str| {
            let what = format!("{}: {what}", rule.name);
            found.push(Mutant { index: found.len(), rule: place, changed, what });
        };
        for (what, expr) in variants(&rule.expr) {
            add(Rule { expr, ..rule.clone() }, &what);
        }
        if rule.hold > 0 {
            add(Rule { hold: 0, ..rule.clone() }, "for at once");
            add(Rule { hold: rule.hold * 4, ..rule.clone() }, "for four times as long");
        }
        if rule.keep > 0 {
            add(Rule { keep: 0, ..rule.clone() }, "does not linger");
        }
    }
    found
}

/// Places of the rules that an alert reads, itself last.
fn needed(rules: &[Rule], alert: usize) -> Vec<usize> {
    let mut needed = vec![alert];
    for place in (0..alert).rev() {
        let rule = &rules[place];
        if rule.alert.is_none() && needed.iter().any(|later| rules[*later].reads(&rule.name)) {
            needed.push(place);
        }
    }
    needed.reverse();
    needed
}

fn renamed(name: &str, mutant: &Mutant) -> String {
    format!("{name}_mutant{}", mutant.index)
}

/// The mutant, and all between it and the alert, under other names.
fn chain(rules: &[Rule], needed: &[usize], mutant: &Mutant) -> Vec<Rule> {
    let mut chain: Vec<Rule> = Vec::new();
    let mut others: Vec<&str> = Vec::new();
    for place in needed {
        let mut rule = rules[*place].clone();
        if *place == mutant.rule {
            rule = mutant.changed.clone();
        } else if !others.iter().any(|name| rule.reads(name)) {
            continue;
        }
        for name in &others {
            rule.expr = rule.expr.replace(name, &renamed(name, mutant));
        }
        others.push(&rules[*place].name);
        rule.name = renamed(&rule.name, mutant);
        chain.push(rule);
    }
    chain
}

/// One run: an alert, the mutants that feed it, the rules and the scenarios that check it.
struct Job {
    target: Target,
    alert: String,
    rules: String,
    scenarios: Vec<String>,
}

fn job(target: Target, rules: &[Rule], alert: usize, chosen: &[Mutant]) -> Option<Job> {
    let needed = needed(rules, alert);
    let feeding: Vec<_> = chosen.iter().filter(|mutant| needed.contains(&mutant.rule)).collect();
    if feeding.is_empty() {
        return None;
    }
    let name = &rules[alert].name;
    let mut text = "groups:\n  - name: all\n    rules:\n".to_owned();
    for place in &needed[..needed.len() - 1] {
        rules[*place].write(&mut text);
    }
    for mutant in &feeding {
        chain(rules, &needed, mutant).iter().for_each(|rule| rule.write(&mut text));
    }
    let files = scenarios::of(target).into_iter().filter_map(|file| {
        let checks = format!("alertname: {name}");
        let scenarios = for_mutants(&file.text, &checks, name, &feeding);
        // The stories check everything and take the longest; each alert has shorter ones.
        (!scenarios.is_empty() && file.name != "stories.yml").then_some(scenarios)
    });
    Some(Job { target, alert: name.clone(), rules: text, scenarios: files.collect() })
}

/// The scenarios of a file that check an alert, with each of those checks once for each mutant;
/// none where none does.
fn for_mutants(text: &str, checks: &str, alert: &str, mutants: &[&Mutant]) -> String {
    let mut parts = text.split("\n  - interval:");
    let head = parts.next().expect("a split has a first part");
    let interval = head.lines().find(|line| line.starts_with("evaluation_interval:"));
    let interval = interval.expect("a file says how often rules are evaluated");
    let mut out = format!("rule_files: [rules.yml]\n{interval}\ntests:");
    let mut found = false;
    for part in parts {
        // Some check recorded series only, or as well.
        let part = part.split("    promql_expr_test:").next().unwrap_or_default();
        let Some((series, all)) = part.split_once("    alert_rule_test:\n") else { continue };
        let is_it = |check: &&str| {
            let rest = check.split_once(checks).map(|(_, rest)| rest);
            rest.is_some_and(|rest| rest.starts_with([',', '\n', '}']))
        };
        let all: Vec<_> = all.split("      - eval_time:").flat_map(split_short).collect();
        let all: Vec<_> = all.iter().map(String::as_str).filter(is_it).collect();
        if all.is_empty() {
            continue;
        }
        found = true;
        write!(out, "\n  - interval:{series}    alert_rule_test:\n").expect("a String");
        for mutant in mutants {
            for check in &all {
                let renamed = format!("alertname: {}", renamed(alert, mutant));
                writeln!(out, "{}", check.replacen(checks, &renamed, 1).trim_end())
                    .expect("a String");
            }
        }
    }
    if found { out } else { String::new() }
}

/// A check over several lines, whose first is cut off, and the checks of one line that follow it.
fn split_short(text: &str) -> Vec<String> {
    let mut parts = text.split("      - {eval_time:");
    let long = parts.next().map(|long| format!("      - eval_time:{long}"));
    let short = parts.map(|short| format!("      - {{eval_time:{short}"));
    long.into_iter().chain(short).collect()
}

/// Places of the mutants that failed a check in this run.
fn killed(job: &Job) -> BTreeSet<usize> {
    let scratch = scratch(&format!("mutants/{}-{}", job.target, job.alert));
    std::fs::write(scratch.join("rules.yml"), &job.rules).expect("the folder can be written");
    let mut killed = BTreeSet::new();
    for (index, text) in job.scenarios.iter().enumerate() {
        let path = scratch.join(format!("scenarios{index}.yml"));
        std::fs::write(&path, text).expect("the folder can be written");
        let output = Command::new("promtool").args(["test", "rules"]).arg(&path).output();
        let output = output.expect("promtool runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
        // It must have judged: a file that does not load would kill everything.
        let judged = said.contains("SUCCESS") || said.contains("alertname: ");
        assert!(judged, "{}:\n{said}", path.display());
        for part in said.split("_mutant").skip(1) {
            let digits: String = part.chars().take_while(char::is_ascii_digit).collect();
            killed.insert(digits.parse().expect("a name has a number"));
        }
    }
    killed
}

/// Runs all jobs, two at a time.
fn run(jobs: &[Job]) -> BTreeMap<Target, BTreeSet<usize>> {
    let next = AtomicUsize::new(0);
    let all: Mutex<BTreeMap<Target, BTreeSet<usize>>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let killed = killed(job);
                    println!("{} {}: {} caught", job.target, job.alert, killed.len());
                    let mut all = all.lock().expect("no other thread panicked");
                    all.entry(job.target).or_default().extend(killed);
                }
            });
        }
    });
    all.into_inner().expect("no thread panicked")
}

#[expect(clippy::disallowed_methods, reason = "a switch of this test only")]
fn wanted() -> String {
    std::env::var("SIGHTLINE_MUTANTS").unwrap_or_default()
}

/// Those to try of a target's, and the runs that judge them.
fn plan(target: Target, wanted: &str) -> (usize, Vec<Mutant>, Vec<Job>) {
    let rules = rules(target);
    let mutants = mutants(&rules);
    let places: Vec<_> = (0..rules.len()).filter(|at| rules[*at].alert.is_some()).collect();
    let named = places.iter().find(|at| rules[**at].name == wanted);
    let feeds = named.map(|at| needed(&rules, *at)).unwrap_or_default();
    let is_chosen = |mutant: &&Mutant| {
        let own = rules[mutant.rule].alert.is_some();
        match wanted {
            "all" => true,
            "alerts" => own,
            "" => own && mutant.index.is_multiple_of(SHARE),
            _ => feeds.contains(&mutant.rule),
        }
    };
    let chosen: Vec<Mutant> = mutants.iter().filter(is_chosen).cloned().collect();
    let judged = |alert: &usize| named.is_none_or(|named| named == alert);
    let alerts = places.iter().filter(|alert| judged(alert));
    let jobs = alerts.filter_map(|alert| job(target, &rules, *alert, &chosen)).collect();
    (mutants.len(), chosen, jobs)
}

#[test]
fn scenarios_catch_every_change() {
    if promtool().is_none() {
        return;
    }
    let wanted = wanted();
    let (mut total, mut tried, mut jobs) = (0, Vec::new(), Vec::new());
    for target in Target::ALL {
        let (all, chosen, of_target) = plan(*target, &wanted);
        total += all;
        tried.extend(chosen.into_iter().map(|mutant| (*target, mutant)));
        jobs.extend(of_target);
    }
    assert!(total >= LEAST, "{total} mutants");
    let killed = run(&jobs);
    let survives = |target: Target, mutant: &Mutant| {
        !killed.get(&target).is_some_and(|killed| killed.contains(&mutant.index))
    };
    let known: BTreeSet<&str> = SURVIVORS.lines().filter(|line| !line.starts_with('#')).collect();
    // Two may be told in the same words.
    let text = |(target, mutant): &(Target, Mutant)| format!("{target}: {}", mutant.what);
    let alive: BTreeSet<String> =
        tried.iter().filter(|(target, mutant)| survives(*target, mutant)).map(text).collect();
    let all: BTreeSet<String> = tried.iter().map(text).collect();
    println!("{} of {total} mutants tried, {} are known to survive", tried.len(), known.len());
    for line in known.iter().filter(|line| all.contains(**line) && !alive.contains(**line)) {
        println!("caught by now, its line can go: {line}");
    }
    let news: Vec<_> = alive.into_iter().filter(|line| !known.contains(line.as_str())).collect();
    assert!(news.is_empty(), "these survive:\n{}", news.join("\n"));
}
