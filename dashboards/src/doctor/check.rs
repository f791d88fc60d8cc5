//! What makes right queries wrong: labels that are missing, copies that are added up, scrapes that
//! are too rare, pages that several processes share.

use metric_catalog::alerts::groups_of;
use metric_catalog::engines::{Engine, signals};
use metric_catalog::target::Target;
use serde::Serialize;

use super::Settings;
use super::look::{Cluster, Found, role_label};
use crate::client::{ClientError, Prometheus, duration};
use crate::manifest::MIN_PROMETHEUS;

/// Samples that a window must hold for rates to be trusted.
const SAMPLES: f64 = 4.0;

/// Something to change, or to know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What is.
    pub what: String,
    /// What to do.
    pub step: String,
    /// Whether numbers are wrong or missing because of it; otherwise it is to be known.
    pub is_fault: bool,
}

fn fault(what: impl Into<String>, step: impl Into<String>) -> Finding {
    Finding { what: what.into(), step: step.into(), is_fault: true }
}

pub(super) async fn all(
    prometheus: &Prometheus,
    cluster: &Cluster,
    settings: Settings,
) -> Result<Vec<Finding>, ClientError> {
    let mut findings = Vec::new();
    findings.extend(engines(cluster));
    findings.extend(server(cluster));
    for found in &cluster.engines {
        findings.extend(labels(found));
        findings.extend(shared_pages(prometheus, found, settings).await?);
        findings.extend(copies(prometheus, found, settings).await?);
        findings.extend(rules(cluster, found.target));
    }
    findings.extend(asked(cluster));
    Ok(findings)
}

/// Nothing is scraped, or something that was asked is not.
fn engines(cluster: &Cluster) -> Vec<Finding> {
    let mut findings = Vec::new();
    if cluster.engines.is_empty() {
        findings.push(fault(
            "no series of Sightline, SGLang or vLLM",
            "start SGLang with --enable-metrics (vLLM needs no flag) and scrape its port with the \
             jobs in scrape/",
        ));
    }
    for job in cluster.jobs.iter().flatten().filter(|job| job.down > 0) {
        let all = job.up + job.down;
        findings.push(fault(
            format!("{} of {all} targets of job {} fail: {}", job.down, job.name, job.error),
            "see that each process runs, with its metrics switched on, where the job looks",
        ));
    }
    findings
}

/// The Prometheus itself: its age and how often it scrapes.
fn server(cluster: &Cluster) -> Vec<Finding> {
    let mut findings = Vec::new();
    let numbers = |text: &str| -> Vec<u32> {
        text.trim_start_matches('v').split('.').map_while(|part| part.parse().ok()).collect()
    };
    let version = &cluster.prometheus_version;
    if !version.is_empty() && numbers(version) < numbers(MIN_PROMETHEUS) {
        findings.push(fault(
            format!("Prometheus is {version}"),
            format!(
                "use Prometheus {MIN_PROMETHEUS} or newer: boards and rules are checked with it"
            ),
        ));
    }
    let Some(jobs) = &cluster.jobs else {
        findings.push(Finding {
            what: "this server does not tell what it scrapes (/api/v1/targets)".to_owned(),
            step: "give the Prometheus that scrapes, for scrape intervals and failing targets"
                .to_owned(),
            is_fault: false,
        });
        return findings;
    };
    for found in &cluster.engines {
        let Some(window) = shortest_window(found.target) else { continue };
        for job in jobs.iter().filter(|job| found.jobs.contains(&job.name)) {
            let Some(interval) = job.interval_seconds.filter(|i| i * SAMPLES > window) else {
                continue;
            };
            let what = if interval * 2.0 > window { "yield nothing" } else { "miss short events" };
            findings.push(fault(
                format!(
                    "job {} is scraped every {interval} s: rules that look back {window} s {what}",
                    job.name,
                ),
                format!(
                    "set scrape_interval of {} to {} s or less",
                    job.name,
                    (window / SAMPLES).floor()
                ),
            ));
        }
    }
    findings
}

/// The shortest fixed window in the rules of a target, in seconds.
fn shortest_window(target: Target) -> Option<f64> {
    let groups = groups_of(target);
    let alerts = groups.iter().flat_map(|group| group.alerts.iter().map(|a| a.expr.to_string()));
    let made = groups.iter().flat_map(|group| group.recordings.iter().map(|r| r.expr.to_string()));
    let mut shortest: Option<f64> = None;
    for expr in alerts.chain(made) {
        for part in expr.split('[').skip(1) {
            let text = part.split([']', ':']).next().unwrap_or_default();
            if let Ok(window) = duration::parse(text) {
                let seconds = window.as_secs_f64();
                shortest = Some(shortest.map_or(seconds, |other| other.min(seconds)));
            }
        }
    }
    shortest
}

/// Target labels that boards and rules keep.
fn labels(found: &Found) -> Vec<Finding> {
    let mut findings = Vec::new();
    let without = found.processes.iter().filter(|process| process.cluster.is_empty()).count();
    if without > 0 {
        findings.push(fault(
            format!("{without} of {} processes have no label cluster", found.processes.len()),
            "set the target label cluster in the scrape job: boards choose by it, rules and \
             Alertmanager's inhibition keep it apart",
        ));
    }
    if found.roles.contains_key("") {
        let label = role_label(found.target);
        let step = match found.target {
            Target::Engine(Engine::Vllm) => format!(
                "set the target label {label} (prefill, decode or unified) in the scrape job: vLLM \
                 exports none"
            ),
            Target::Engine(Engine::Sglang) | Target::Sightline => {
                format!("let no metric_relabel_configs drop {label}: the processes export it")
            }
        };
        findings.push(fault(format!("series without {label}"), step));
    }
    findings
}

/// Several engines on one page: roles or models that one process cannot have, or process ids.
async fn shared_pages(
    prometheus: &Prometheus,
    found: &Found,
    settings: Settings,
) -> Result<Vec<Finding>, ClientError> {
    let Target::Engine(engine) = found.target else { return Ok(Vec::new()) };
    let mut findings = Vec::new();
    for process in found.processes.iter().filter(|p| p.roles.len() > 1 || p.models.len() > 1) {
        let several = if process.roles.len() > 1 { &process.roles } else { &process.models };
        let several: Vec<&str> = several.iter().map(String::as_str).collect();
        findings.push(fault(
            format!("{} shows {} at once", process.instance, several.join(" and ")),
            format!(
                "give each {} process on a host its own PROMETHEUS_MULTIPROC_DIR, empty at its \
                 start: with a shared one every page shows the sum of all",
                engine.title(),
            ),
        ));
    }
    let pid = format!(
        "count by (job) (last_over_time({{__name__=~\"{}:.+\",pid!=\"\"}}[{}]))",
        engine,
        duration::write(settings.window),
    );
    let with_pid = prometheus.query(&pid, Some(settings.at)).await?;
    if !with_pid.is_empty() {
        findings.push(fault(
            "gauges have a label pid: each worker process shows its own, and dead ones stay",
            "start one process for each page, or drop pid and take the maximum: what boards sum \
             over processes is too high by the number of pids",
        ));
    }
    Ok(findings)
}

/// Ranks that each show the same number.
async fn copies(
    prometheus: &Prometheus,
    found: &Found,
    settings: Settings,
) -> Result<Vec<Finding>, ClientError> {
    if found.target != Target::Engine(Engine::Sglang) {
        return Ok(Vec::new());
    }
    let ranks = format!(
        "max(count by (instance, dp_rank) (last_over_time({}[{}])))",
        super::look::witness(found.target),
        duration::write(settings.window),
    );
    let ranks = prometheus.query(&ranks, Some(settings.at)).await?;
    let most = ranks.first().map_or(0.0, |sample| sample.value);
    if most < 2.0 {
        return Ok(Vec::new());
    }
    Ok(vec![Finding {
        what: format!("{most} ranks of one scheduler show the same numbers"),
        step:
            "nothing for our boards and rules, which take the maximum over ranks; sums in your own \
               are too high by that factor (--enable-metrics-for-all-schedulers)"
                .to_owned(),
        is_fault: false,
    }])
}

/// Whether the rules of a target are loaded.
fn rules(cluster: &Cluster, target: Target) -> Option<Finding> {
    let loaded = cluster.rules.as_ref()?;
    let groups = groups_of(target);
    let made: Vec<&str> = groups
        .iter()
        .flat_map(|group| {
            let alerts = group.alerts.iter().map(|alert| alert.name);
            alerts.chain(group.recordings.iter().map(|recording| recording.series.name))
        })
        .collect();
    let missing = made.iter().filter(|name| !loaded.contains(**name)).count();
    (missing > 0).then(|| {
        fault(
            format!("{missing} of {} rules for {target} are not loaded", made.len()),
            "load the files in rules/ (rule_files in prometheus.yml)",
        )
    })
}

/// What engines said at their own addresses.
fn asked(cluster: &Cluster) -> Vec<Finding> {
    let mut findings = Vec::new();
    for seen in &cluster.asked {
        if !seen.error.is_empty() {
            let step = "see that this host reaches it, or leave its --engine-url out";
            findings.push(fault(seen.error.clone(), step));
            continue;
        }
        let Some(Target::Engine(engine)) = seen.target else { continue };
        for (name, served) in seen.jobs.iter().filter(|(_, served)| !served) {
            let Some(job) = signals::of(engine).jobs.get(name) else { continue };
            let flag = job.flag.as_ref().map_or_else(
                || format!("use a version of {} that serves it", engine.title()),
                |flag| format!("start it with {flag}"),
            );
            debug_assert!(!served);
            findings.push(fault(format!("{} serves no metrics at {}", seen.url, job.path), flag));
        }
        if cluster.engine(Target::Engine(engine)).is_none() {
            findings.push(fault(
                format!(
                    "{} is {}, and the Prometheus does not scrape it",
                    seen.url,
                    engine.title()
                ),
                "add its scrape jobs: scrape/ has them",
            ));
        }
    }
    findings
}
