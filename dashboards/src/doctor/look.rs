//! What is there: engines, versions, roles, jobs, rules, host caches.

use std::collections::{BTreeMap, BTreeSet};

use metric_catalog::engines::{self, Engine, signals};
use metric_catalog::target::Target;
use metric_catalog::{node, server};
use serde::Serialize;

use super::Settings;
use super::engine::Seen;
use crate::client::{ClientError, Prometheus, Targets, duration};

/// A cluster as it is found.
#[derive(Debug, Clone, Serialize)]
pub struct Cluster {
    /// Address of the Prometheus.
    pub prometheus: String,
    /// Its version; empty where it does not say.
    pub prometheus_version: String,
    /// Scrape jobs, by name; none where the server does not tell what it scrapes.
    pub jobs: Option<Vec<Job>>,
    /// Names of the rules that are loaded; none where the server does not tell.
    #[serde(skip)]
    pub rules: Option<BTreeSet<String>>,
    /// Engines, ours first.
    pub engines: Vec<Found>,
    /// Whether our exporter is scraped.
    pub has_exporter: bool,
    /// What engines said at their own addresses.
    pub asked: Vec<Seen>,
}

/// A scrape job.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Job {
    /// Name.
    pub name: String,
    /// Targets whose last scrape worked.
    pub up: usize,
    /// Targets whose last scrape failed.
    pub down: usize,
    /// Seconds between scrapes, where the server says.
    pub interval_seconds: Option<f64>,
    /// Why a scrape failed: of the first target.
    pub error: String,
    /// Addresses that are scraped.
    pub addresses: Vec<String>,
}

/// An engine that is scraped.
#[derive(Debug, Clone, Serialize)]
pub struct Found {
    /// Which.
    #[serde(serialize_with = "word")]
    pub target: Target,
    /// Version; none where nothing tells it.
    pub version: Option<String>,
    /// How that is known.
    pub version_from: String,
    /// Jobs that scrape it.
    pub jobs: BTreeSet<String>,
    /// Processes by role; the role is empty where no label says it.
    pub roles: BTreeMap<String, usize>,
    /// Models.
    pub models: BTreeSet<String>,
    /// Processes: cluster, instance, and the roles and models that each shows.
    pub processes: Vec<Process>,
    /// Names of its series.
    #[serde(skip)]
    pub names: BTreeSet<String>,
}

/// A scraped process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Process {
    /// Job and instance.
    pub instance: String,
    /// Value of the label `cluster`; empty without.
    pub cluster: String,
    /// Roles that its series name.
    pub roles: BTreeSet<String>,
    /// Models that its series name.
    pub models: BTreeSet<String>,
}

/// Bytes of host cache on a NUMA node of a host.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HostCache {
    /// Host.
    pub node: String,
    /// Service.
    pub service: String,
    /// NUMA node.
    pub numa_node: String,
    /// Bytes that are allocated there.
    pub bytes: f64,
}

fn word<S: serde::Serializer>(target: &Target, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(target.as_str())
}

impl Cluster {
    /// The engine, if it is scraped.
    pub(super) fn engine(&self, target: Target) -> Option<&Found> {
        self.engines.iter().find(|engine| engine.target == target)
    }

    /// What an engine said for itself: its version wins over what names tell.
    pub(super) fn take(&mut self, seen: Seen) {
        if let (Some(target), Some(version)) = (seen.target, &seen.version)
            && let Some(found) = self.engines.iter_mut().find(|found| found.target == target)
        {
            found.version = Some(version.clone());
            found.version_from = format!("{} says so", seen.url);
        }
        self.asked.push(seen);
    }
}

/// A series that every process of the engine has.
pub(super) const fn witness(target: Target) -> &'static str {
    match target {
        Target::Sightline => server::SERVED_MODEL_INFO.name(),
        Target::Engine(Engine::Sglang) => engines::sglang::NUM_RUNNING_REQS.name(),
        Target::Engine(Engine::Vllm) => engines::vllm::NUM_REQUESTS_RUNNING.name(),
    }
}

/// The label that says the role.
pub(super) const fn role_label(target: Target) -> &'static str {
    match target {
        Target::Sightline => "engine_role",
        Target::Engine(engine) => engine.role_label(),
    }
}

pub(super) async fn cluster(
    prometheus: &Prometheus,
    settings: Settings,
) -> Result<Cluster, ClientError> {
    // Whatever answers as Prometheus does, but for what only the real one has.
    let version = prometheus.build_info().await.map(|info| info.version);
    let version = match version {
        Ok(version) => version,
        Err(error) if error.is_missing() => {
            // Is it one at all?
            prometheus.query("vector(1)", Some(settings.at)).await?;
            String::new()
        }
        Err(error) => return Err(error),
    };
    let targets = prometheus.targets().await.ok();
    let rules = prometheus.rules().await.ok().map(|groups| {
        let rules = groups.into_iter().flat_map(|group| group.rules);
        rules.map(|rule| rule.name).collect()
    });
    let mut engines = Vec::new();
    for &target in Target::ALL {
        engines.extend(found(prometheus, target, settings).await?);
    }
    let exporter = recent("count", node::HEALTHY.name(), settings);
    let has_exporter = !prometheus.query(&exporter, Some(settings.at)).await?.is_empty();
    Ok(Cluster {
        prometheus: prometheus.address().to_string(),
        prometheus_version: version,
        jobs: targets.map(jobs),
        rules,
        engines,
        has_exporter,
        asked: Vec::new(),
    })
}

fn recent(aggregation: &str, selector: &str, settings: Settings) -> String {
    format!("{aggregation}(last_over_time({selector}[{}]))", duration::write(settings.window))
}

fn jobs(targets: Targets) -> Vec<Job> {
    let mut jobs: BTreeMap<String, Job> = BTreeMap::new();
    for target in targets.active {
        let name = target.labels.get("job").unwrap_or(&target.pool).clone();
        let job = jobs.entry(name.clone()).or_insert_with(|| Job {
            name,
            up: 0,
            down: 0,
            interval_seconds: None,
            error: String::new(),
            addresses: Vec::new(),
        });
        if target.health == "down" {
            job.down += 1;
        } else {
            job.up += 1;
        }
        if job.error.is_empty() {
            job.error = target.error;
        }
        let interval = duration::parse(&target.interval).ok().map(|time| time.as_secs_f64());
        let longest = [job.interval_seconds, interval].into_iter().flatten().reduce(f64::max);
        job.interval_seconds = longest;
        job.addresses.push(target.url);
    }
    jobs.into_values().collect()
}

async fn found(
    prometheus: &Prometheus,
    target: Target,
    settings: Settings,
) -> Result<Option<Found>, ClientError> {
    let start = settings.at - settings.window;
    let all = format!("{{__name__=~\"{target}[:_].+\"}}");
    let names = prometheus.label_values("__name__", &[&all], start, settings.at).await?;
    let names: BTreeSet<String> = names.into_iter().collect();
    // Our exporter has our prefix, and serves beside any engine.
    let own = |name: &&String| target != Target::Sightline || name.as_str() == witness(target);
    if names.iter().find(own).is_none() {
        return Ok(None);
    }
    let role = role_label(target);
    let by = format!("count by (cluster, job, instance, model_name, {role}) ");
    let samples =
        prometheus.query(&recent(&by, witness(target), settings), Some(settings.at)).await?;
    let mut found = Found {
        target,
        version: None,
        version_from: String::new(),
        jobs: BTreeSet::new(),
        roles: BTreeMap::new(),
        models: BTreeSet::new(),
        processes: Vec::new(),
        names,
    };
    for sample in samples {
        let label = |name: &str| sample.labels.get(name).cloned().unwrap_or_default();
        found.jobs.insert(label("job"));
        found.models.insert(label("model_name"));
        let instance = format!("{}/{}", label("job"), label("instance"));
        let at = found.processes.iter().position(|process| process.instance == instance);
        let at = at.unwrap_or_else(|| {
            let (roles, models) = (BTreeSet::new(), BTreeSet::new());
            found.processes.push(Process { instance, cluster: label("cluster"), roles, models });
            found.processes.len() - 1
        });
        found.processes[at].roles.insert(label(role));
        found.processes[at].models.insert(label("model_name"));
    }
    for process in &found.processes {
        for role in &process.roles {
            *found.roles.entry(role.clone()).or_default() += 1;
        }
    }
    (found.version, found.version_from) = version(prometheus, &found, settings).await?;
    Ok(Some(found))
}

/// The version, and how it is known.
async fn version(
    prometheus: &Prometheus,
    found: &Found,
    settings: Settings,
) -> Result<(Option<String>, String), ClientError> {
    match found.target {
        Target::Sightline => {
            let info = server::BUILD_INFO.name();
            let versions = recent("group by (version) ", info, settings);
            let samples = prometheus.query(&versions, Some(settings.at)).await?;
            let version = samples.iter().find_map(|one| one.labels.get("version").cloned());
            Ok((version, format!("{info} says so")))
        }
        Target::Engine(engine) => Ok(by_names(engine, &found.names)),
    }
}

/// The version that explains the names best: the one that lacks the fewest of those that are there,
/// and the newest of equals. Flags hide families, so that what is not there tells little.
pub(super) fn by_names(engine: Engine, names: &BTreeSet<String>) -> (Option<String>, String) {
    let facts = signals::of(engine);
    let known: Vec<_> = names.iter().filter_map(|name| facts.family(name)).collect();
    let lacks = |version: &str| known.iter().filter(|family| !facts.has(family, version)).count();
    let versions = facts.versions.iter().map(|version| version.version.as_str()).rev();
    let best = versions.min_by_key(|version| lacks(version));
    match best {
        Some(version) if !known.is_empty() => {
            let why = format!(
                "by {} names that are known, {} of which it lacks; --engine-url tells for sure",
                known.len(),
                lacks(version),
            );
            (Some(version.to_owned()), why)
        }
        Some(_) | None => (None, "no name is known; --engine-url would tell".to_owned()),
    }
}

/// Bytes of host caches by NUMA node, as our exporter knows them.
pub(super) async fn host_caches(
    prometheus: &Prometheus,
    settings: Settings,
) -> Result<Vec<HostCache>, ClientError> {
    let of =
        recent("sum by (node, service, numa_node) ", node::HOSTCACHE_ALLOCATED.name(), settings);
    let samples = prometheus.query(&of, Some(settings.at)).await?;
    let one = |sample: crate::client::Sample| {
        let label = |name: &str| sample.labels.get(name).cloned().unwrap_or_default();
        HostCache {
            node: label("node"),
            service: label("service"),
            numa_node: label("numa_node"),
            bytes: sample.value,
        }
    };
    Ok(samples.into_iter().map(one).collect())
}
