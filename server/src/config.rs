//! From flags, a model and a host to numbers that work, or to findings that say what would.
//!
//! [`resolve`] feeds `serve` and `plan` alike, so that what `plan` prints is what `serve` does.
//! It loads no weight and allocates nothing.

pub mod file;
pub mod files;
mod findings;
pub mod hierarchy;
mod ledger;
mod pools;
pub mod ports;
pub mod roles;
pub mod router;
mod rules;
pub mod store;

use std::net::SocketAddr;
use std::time::Duration;

use admission::Limits;
use kv_cache::{NodeRoom, PlanInput};
use model::ModelSpec;
use types::Bytes;

pub use findings::{Class, Finding, Findings};
pub use hierarchy::HierarchyPlan;
pub(crate) use hierarchy::{decimal, plan_parts};
pub use ledger::{Ledger, LedgerRow};
pub use pools::PoolPlan;
pub use roles::{RolePlan, Secret};
pub use store::StorePlan;

use crate::cli::{ByteSize, PrefixCache, Settings, SwaRetention, Switch};
use crate::source::Facts;

/// What is known of the machine.
#[derive(Debug, Clone)]
pub struct Host {
    /// Cores that this process may use.
    pub cores: usize,
    /// Bytes it can still take; `None` where the system does not say.
    pub usable: Option<Bytes>,
    /// Bytes that the host can still give, whatever the control group allows.
    pub available: Option<Bytes>,
    /// Bytes that the control group still allows; `None` where it sets no limit.
    pub group: Option<Bytes>,
    /// Files that it may have open at most.
    pub files: u64,
    /// NUMA nodes of the machine.
    pub numa_nodes: usize,
    /// Those of them that this process may use, with what they can still give.
    pub nodes: Vec<NodeRoom>,
    /// Bytes that may be locked; `None` where there is no limit.
    pub lockable: Option<u64>,
    /// Where the KV pools are those of a device with memory of its own: their size.
    pub assumed: Option<AssumedPools>,
}

/// The KV pools of a rank of a device that is not here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AssumedPools {
    /// Tokens of the pools that keep every position.
    pub tokens: usize,
    /// Tokens of those that keep a window.
    pub window_tokens: usize,
}

impl Host {
    /// Reads the facts below `root`.
    #[must_use]
    pub fn read(root: &node_info::Root) -> Self {
        let memory = root.memory().ok();
        let (nodes, policy) = (root.nodes(), root.policy());
        let room = |node: &node_info::Node| NodeRoom { node: node.id, bytes: node.available() };
        Self {
            cores: root.cores(),
            usable: memory.map(|memory| Bytes(memory.usable())),
            available: memory.map(|memory| Bytes(memory.available)),
            group: memory.and_then(|memory| {
                let limit = memory.group_limit?;
                Some(Bytes(limit.saturating_sub(memory.group_used)))
            }),
            files: files::most(),
            numa_nodes: nodes.len(),
            nodes: nodes.iter().filter(|node| policy.permits(node.id)).map(room).collect(),
            lockable: root.lockable(),
            assumed: None,
        }
    }
}

/// Kept free of `usable` bytes whatever happens: stacks, sockets, allocator slack, the page cache's
/// bare minimum. A twentieth, at least 128 MiB, at most 10 GiB.
pub(crate) fn reserve(usable: Bytes) -> u64 {
    const LEAST: u64 = 128 << 20;
    const MOST: u64 = 10 << 30;
    const SHARE: u64 = 20;
    (usable.0 / SHARE).clamp(LEAST, MOST)
}

/// The estimate of hit ratios at other sizes of the host tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CurvePlan {
    /// Pages that it remembers exactly; beyond, it samples.
    pub max_pages: usize,
}

/// Every value a server runs with. Made by [`resolve`] only.
#[derive(Debug, Clone)]
pub struct Resolved {
    /// The flags it was made from.
    pub settings: Settings,
    /// Name that clients use.
    pub model_name: String,
    /// Connections open at a time: those asked for, as far as the limit of open files allows.
    pub connections: usize,
    /// Longest prompt and answer together.
    pub max_context: usize,
    /// Threads that compute.
    pub threads: usize,
    /// Tokens of one prompt in one step.
    pub prefill_chunk: usize,
    /// Bounds of the waiting queue.
    pub limits: Limits,
    /// Where the API listens; port 0 chooses.
    pub api: SocketAddr,
    /// Where the probes listen; port 0 chooses.
    pub probes: SocketAddr,
    /// What pages of each pool are made of, on one rank.
    pub kv: Vec<model::PoolSpec>,
    /// The KV pools, one per pool of the model.
    pub pools: Vec<PoolPlan>,
    /// What takes memory, the host tier included.
    pub ledger: Ledger,
    /// Tokens of a page of every pool.
    pub page_tokens: usize,
    /// Ranks that compute a step together; the pools above are those of one.
    pub tp_size: usize,
    /// What a host tier of any ratio would take; `None` where it cannot be said.
    pub tier: Option<PlanInput>,
    /// The host tier, where there is one.
    pub hierarchy: Option<HierarchyPlan>,
    /// The store behind it, where there is one.
    pub store: Option<StorePlan>,
    /// Of which pages the part of a sliding window is kept.
    pub retention: SwaRetention,
    /// The estimate of hit ratios, where it is made.
    pub curve: Option<CurvePlan>,
    /// Prefill and decode apart.
    pub roles: RolePlan,
    /// What works, but perhaps not as somebody thinks.
    pub advice: Findings,
}

impl Resolved {
    /// Pages of the first pool, which keeps every position.
    #[must_use]
    pub fn pages(&self) -> usize {
        self.pools.first().map_or(0, |pool| pool.pages)
    }

    /// Objectives, in the order time to first token, gap between tokens, whole request.
    #[must_use]
    pub const fn objectives(&self) -> [Duration; 3] {
        let load = &self.settings.load;
        [load.ttft_objective.0, load.itl_objective.0, load.e2e_objective.0]
    }
}

/// Settles every value, or finds what is impossible: all of it, not just the first.
///
/// # Errors
/// One finding for each setting that cannot work, with a value that does.
pub fn resolve(settings: &Settings, facts: &Facts, host: &Host) -> Result<Resolved, Findings> {
    let spec = &facts.spec;
    let mut findings = Findings::default();
    rules::check(settings, facts, &mut findings);
    // What follows divides by these numbers.
    if findings.has_errors() {
        return Err(findings);
    }
    let mut memory = ledger::plan(settings, facts, host, &mut findings);
    let tier = hierarchy::input(settings, facts, host, &memory, &mut Findings::default());
    let hierarchy = hierarchy::plan(settings, facts, host, &memory, &mut findings);
    let store = store::plan(settings, facts, &mut findings);
    if let Some(tier) = &hierarchy {
        let bytes = Bytes(tier.plan.total_bytes);
        memory.ledger.rows.push(LedgerRow { what: "host tier", bytes });
    }
    let page_tokens = spec.pools.first().map_or(1, |pool| pool.page_tokens);
    let roles = roles::plan(settings, page_tokens, &mut findings);
    let max_context = context(settings, spec, &memory.pools, &mut findings);
    let connections = files::connections(settings.max_connections, host.files, &mut findings);
    let api = SocketAddr::new(settings.host, settings.port);
    let probes = SocketAddr::new(
        settings.host,
        probe_port(settings.port, settings.probe_port, &mut findings),
    );
    if findings.has_errors() {
        return Err(findings);
    }
    let load = &settings.load;
    Ok(Resolved {
        settings: settings.clone(),
        model_name: served_name(settings, spec),
        connections,
        max_context,
        threads: settings.machine.threads.unwrap_or(host.cores),
        prefill_chunk: pools::chunk(settings),
        limits: Limits {
            max_queued_requests: load.max_queued_requests,
            max_queued_tokens: load.max_queued_tokens,
            ttft_objective: load.ttft_objective.0,
        },
        api,
        probes,
        kv: spec.pools.clone(),
        pools: memory.pools,
        ledger: memory.ledger,
        page_tokens,
        tp_size: settings.machine.tp_size,
        tier,
        hierarchy,
        store,
        retention: settings.cache.swa_retention,
        curve: curve(settings),
        roles,
        advice: findings,
    })
}

/// The estimate follows the prefix cache, so there is none without it.
fn curve(settings: &Settings) -> Option<CurvePlan> {
    let (cache, wanted) = (&settings.cache, settings.load.prefix_cache == PrefixCache::On);
    let on = wanted && cache.hit_curve == Switch::On;
    on.then_some(CurvePlan { max_pages: cache.hit_curve_max_pages })
}

/// The name under which the model is served.
fn served_name(settings: &Settings, spec: &ModelSpec) -> String {
    settings.served_model_name.clone().unwrap_or_else(|| spec.name.clone())
}

/// Positions a request may take: what was asked for, else what model and pool can hold.
fn context(
    settings: &Settings,
    spec: &ModelSpec,
    plans: &[PoolPlan],
    findings: &mut Findings,
) -> usize {
    let chunk = pools::chunk(settings);
    let bounded = plans.iter().filter_map(|pool| Some((pool.longest(chunk)?, pool)));
    let Some((held, pool)) = bounded.min_by_key(|(held, _)| *held) else {
        return spec.max_context;
    };
    let wanted = settings.load.max_context;
    let context = wanted.unwrap_or(spec.max_context).min(held);
    if let Some(wanted) = wanted
        && wanted > held
    {
        let needed = plans
            .iter()
            .map(|pool| pool.page_bytes.saturating_mul(pool.pages_for(wanted, chunk) as u64));
        let needed = needed.fold(0, u64::saturating_add);
        findings.add(Finding {
            id: "KV001",
            class: Class::Configuration,
            flag: "--max-context",
            value: wanted.to_string(),
            reason: format!(
                "the KV pool of {} holds {held} tokens, and one request must fit",
                Bytes(pool.bytes())
            ),
            fix: format!("--max-context {held}, or --kv-pool-bytes {}", ByteSize(needed)),
        });
    }
    context
}

/// The port of the probes beside an API at `port`.
fn probe_port(port: u16, given: Option<u16>, findings: &mut Findings) -> u16 {
    /// So far above the API's port are the probes.
    const DISTANCE: u16 = 100;
    let probe = match (given, port) {
        (Some(given), _) => given,
        (None, 0) => 0,
        (None, port) => port.checked_add(DISTANCE).unwrap_or_else(|| {
            findings.add(Finding {
                id: "NET001",
                class: Class::Configuration,
                flag: "--port",
                value: port.to_string(),
                reason: "the probes' port, 100 above, would be beyond 65535".to_owned(),
                fix: format!("--probe-port {}", port - DISTANCE),
            });
            0
        }),
    };
    if probe != 0 && probe == port {
        findings.add(Finding {
            id: "NET002",
            class: Class::Configuration,
            flag: "--probe-port",
            value: probe.to_string(),
            reason: "the API listens on this port; probes have a listener of their own".to_owned(),
            fix: format!("--probe-port {}", probe.checked_add(DISTANCE).unwrap_or(1024)),
        });
    }
    probe
}

#[cfg(test)]
mod tests;
