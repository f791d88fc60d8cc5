//! What is to be imported into the cluster that was found: scrape jobs, rules, dashboards, and how.

use std::fmt::Write as _;

use metric_catalog::engines::signals;
use metric_catalog::target::Target;

use super::look::{Found, Job};
use super::report::Report;
use crate::backend::Flavor;
use crate::output::{Artifact, Output};

/// Where the exporter listens.
const EXPORTER_PORT: u16 = 9840;

/// The files, below the folder that the caller chooses. Where no engine was found, those of all.
#[must_use]
pub fn artifacts(report: &Report, output: &Output) -> Vec<Artifact> {
    let found: Vec<Target> = report.cluster.engines.iter().map(|engine| engine.target).collect();
    let targets = if found.is_empty() { Target::ALL.to_vec() } else { found };
    let flavors = [Flavor::Classic, Flavor::Shared];
    let mut files = crate::bundle::artifacts(output, &targets, &flavors, false);
    for &target in &targets {
        let engine = report.cluster.engine(target);
        let jobs = report.cluster.jobs.as_deref().unwrap_or_default();
        let text = match target {
            Target::Sightline => ours(engine, jobs),
            Target::Engine(of) => scrape(target, signals::of(of), engine, jobs),
        };
        files.push(Artifact::of(target, format!("scrape/{target}.yml"), text));
    }
    files.push(Artifact::common("scrape/node.yml", node(report)));
    files.push(Artifact::common("README.md", readme(&targets, report)));
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files
}

/// `host:port` of what the jobs of an engine scrape, or a place holder.
fn addresses(engine: Option<&Found>, jobs: &[Job]) -> Vec<String> {
    let of = |job: &&Job| engine.is_some_and(|engine| engine.jobs.contains(&job.name));
    let urls = jobs.iter().filter(of).flat_map(|job| &job.addresses);
    let mut places: Vec<String> = urls
        .filter_map(|url| Some(url.split_once("://")?.1.split('/').next()?.to_owned()))
        .collect();
    places.sort();
    places.dedup();
    if places.is_empty() {
        places.push("REPLACE-ME:30000".to_owned());
    }
    places
}

fn cluster_of(engine: Option<&Found>) -> String {
    let mut named = engine.into_iter().flat_map(|engine| &engine.processes);
    let found = named.find(|process| !process.cluster.is_empty());
    found.map_or_else(|| "REPLACE-ME".to_owned(), |process| process.cluster.clone())
}

const HEAD: &str = "# Jobs for scrape_configs in prometheus.yml, or one of scrape_config_files.\n\
# `cluster` and `node` are target labels that boards, rules and Alertmanager keep apart. Say the\n\
# host of each process in `node`; split a job where hosts or roles differ.\n\
scrape_configs:\n";

fn scrape(target: Target, facts: &signals::Facts, engine: Option<&Found>, jobs: &[Job]) -> String {
    let mut text = HEAD.to_owned();
    let of_vllm = target == Target::Engine(metric_catalog::engines::Engine::Vllm);
    for (name, job) in &facts.jobs {
        let job_name =
            if name == "metrics" { target.to_string() } else { format!("{target}-{name}") };
        if let Some(flag) = &job.flag {
            let _infallible = writeln!(text, "  # The processes need {flag}.");
        }
        let _infallible = write!(
            text,
            "  - job_name: {job_name}\n    scrape_interval: 5s\n    metrics_path: {}\n",
            job.path,
        );
        if !job.params.is_empty() {
            text.push_str("    params:\n");
        }
        for (key, values) in &job.params {
            let _infallible = writeln!(text, "      {key}: [{}]", values.join(", "));
        }
        let places: Vec<String> =
            addresses(engine, jobs).iter().map(|place| format!("{place:?}")).collect();
        let _infallible = write!(
            text,
            "    static_configs:\n      - targets: [{}]\n        labels:\n          \
             cluster: {}\n          \
             node: REPLACE-ME\n",
            places.join(", "),
            cluster_of(engine),
        );
        if of_vllm {
            text.push_str(
                "          # vLLM exports no role: prefill, decode or unified.\n          \
                 engine_role: unified\n",
            );
        }
    }
    text
}

/// Our own processes, one job for each role.
fn ours(engine: Option<&Found>, jobs: &[Job]) -> String {
    let mut text = HEAD.to_owned();
    let cluster = cluster_of(engine);
    for role in ["unified", "prefill", "decode", "router"] {
        let name = format!("sightline-{role}");
        let own: Vec<Job> = jobs.iter().filter(|job| job.name == name).cloned().collect();
        if own.is_empty() && engine.is_some_and(|engine| !engine.roles.contains_key(role)) {
            continue;
        }
        let places: Vec<String> =
            addresses(engine, &own).iter().map(|place| format!("{place:?}")).collect();
        let _infallible = write!(
            text,
            "  - job_name: {name}\n    scrape_interval: 5s\n    static_configs:\n      \
             - targets: [{}]\n        labels: {{cluster: {cluster}, node: REPLACE-ME}}\n",
            places.join(", "),
        );
    }
    text
}

/// The exporter of each host.
fn node(report: &Report) -> String {
    let cluster = report.cluster.engines.iter().map(|engine| cluster_of(Some(engine))).next();
    let cluster = cluster.unwrap_or_else(|| "REPLACE-ME".to_owned());
    format!(
        "# sightline-exporter on each host: GPUs, NUMA memory, services, host caches.\n\
         scrape_configs:\n  - job_name: sightline-node\n    scrape_interval: 5s\n    \
         static_configs:\n      - targets: [\"REPLACE-ME:{EXPORTER_PORT}\"]\n        \
         labels: {{cluster: {cluster}, node: REPLACE-ME}}\n"
    )
}

/// How to import.
fn readme(targets: &[Target], report: &Report) -> String {
    let mut text = "# Import\n\nWritten by `sightline doctor`. Replace every REPLACE-ME first.\n\n\
        1. Scrape: add the jobs of `scrape/*.yml` to `prometheus.yml`.\n\
        2. Rules: copy `rules/` beside it and name them in `rule_files`, then\n   \
           `promtool check config prometheus.yml` and \
           `curl -X POST http://PROMETHEUS:9090/-/reload` (or send SIGHUP).\n\
        3. Dashboards, one of:\n"
        .to_owned();
    for target in targets {
        let _infallible = write!(
            text,
            "   - `sightline dashboards push --grafana http://GRAFANA:3000 --token-file F \
             --target {target}`\n   \
             - by hand: Dashboards > New > Import, each file of `shared/{target}/`\n   \
             - by files: copy `classic/{target}/` to the folder of your file provisioning\n"
        );
    }
    let _infallible = writeln!(
        text,
        "4. See that it works: `sightline dashboards live --prometheus {} --target {}`",
        report.cluster.prometheus,
        targets.first().map_or("sightline", |target| target.as_str()),
    );
    text.push_str(
        "\nIn Grafana set the data source's scrape interval to that of the jobs (5s): it makes \
         the windows of rates.\n",
    );
    if !report.next.is_empty() {
        text.push_str("\n## Next steps\n\n");
    }
    for (number, next) in report.next.iter().enumerate() {
        let _infallible = writeln!(text, "{}. {} ({})", number + 1, next.step, next.because);
    }
    text
}
