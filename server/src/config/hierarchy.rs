//! The host tier: which flags fit together, how large it gets, and whether there is room.

mod verdicts;

use kv_cache::{
    HostTierPlan, NodeRoom, PlanInput, PlanPart, PlanPool, Room, Sizing, Want, plan_host_tier,
};
use types::Bytes;

use super::findings::{Class, Finding, Findings};
use super::ledger::Memory;
use super::{Host, reserve};
use crate::cli::{
    CacheSettings, HugePageSize, MemLayout, NumaChoice, PrefixCache, Ratio, Settings, Switch,
    WritePolicy,
};
use crate::source::Facts;

pub(crate) use self::verdicts::of_ratio;
use self::verdicts::{impossible, judge, refused_size, rounded_up, target};

/// The ratio where nothing says how large the tier is.
pub(super) const DEFAULT_RATIO: Ratio = Ratio(2.0);
/// A map of host memory holds at most so many bytes; that of a smaller part holds no more than it.
pub(crate) const SLAB_BYTES: u64 = 1 << 30;
/// Fewer tokens are computed faster than a load is arranged.
const LOAD_BACK_THRESHOLD: usize = 10;

/// The host tier as it will be allocated.
#[derive(Debug, Clone, PartialEq)]
pub struct HierarchyPlan {
    /// Pages and bytes per pool, rank and node.
    pub plan: HostTierPlan,
    /// Bytes that were asked for, all ranks; `None` where a ratio was.
    pub requested: Option<Bytes>,
    /// Bytes that somebody wants it to have.
    pub target: Option<Bytes>,
    /// NUMA node of each rank's part; `None` where the system may choose.
    pub nodes: Vec<Option<u32>>,
    /// How rows lie.
    pub layout: MemLayout,
    /// When pages are copied.
    pub policy: WritePolicy,
    /// Fewer tokens are computed again instead of loaded.
    pub load_back_threshold: usize,
    /// Size of the system's pages.
    pub huge_pages: HugePageSize,
    /// Whether it is locked in memory.
    pub lock: bool,
}

impl HierarchyPlan {
    /// Host pages per index pool, in the order of `PoolId`.
    #[must_use]
    pub fn host_pages(&self) -> Vec<usize> {
        self.plan.host_pages()
    }
}

/// The one flag that says how large the tier is, as the user gave it.
pub(crate) fn wanted(cache: &CacheSettings) -> (&'static str, String) {
    let size = cache.hicache_size.filter(|size| size.0 > 0);
    match (cache.hicache_budget, size, cache.hicache_ratio) {
        (Some(budget), _, _) => ("--hicache-budget", budget.to_string()),
        (None, Some(size), _) => ("--hicache-size", size.to_string()),
        (None, None, ratio) => ("--hicache-ratio", ratio.unwrap_or(DEFAULT_RATIO).to_string()),
    }
}

/// Whether there is a tier at all.
pub(super) fn enabled(settings: &Settings) -> bool {
    settings.cache.enable_hierarchical_cache == Switch::On
}

fn want(cache: &CacheSettings) -> Want {
    let size = cache.hicache_size.filter(|size| size.0 > 0);
    match (cache.hicache_budget, size, cache.hicache_ratio) {
        (Some(budget), _, _) => Want::TotalBytes(budget.0),
        (None, Some(size), _) => Want::RankBytes(size.0),
        (None, None, ratio) => Want::Ratio(ratio.unwrap_or(DEFAULT_RATIO).0),
    }
}

/// Bytes that the tier may take of `left`, which it shares with the pools of the device.
pub(super) fn share(settings: &Settings, left: u64) -> u64 {
    if !enabled(settings) {
        return 0;
    }
    match want(&settings.cache) {
        Want::TotalBytes(bytes) => bytes,
        Want::RankBytes(bytes) => bytes.saturating_mul(settings.machine.tp_size as u64),
        // A part for the device, and `ratio` such parts for the tier.
        Want::Ratio(ratio) => (left as f64 * (ratio / (1.0 + ratio))) as u64,
    }
}

/// Flags that contradict each other.
pub(super) fn rules(settings: &Settings, facts: &Facts, findings: &mut Findings) {
    let cache = &settings.cache;
    let given = given(cache);
    let mut add = |id, flag, value: String, reason: &str, fix: String| {
        let reason = reason.to_owned();
        findings.add(Finding { id, class: Class::Configuration, flag, value, reason, fix });
    };
    if !enabled(settings) {
        if let Some((flag, value)) = given.first() {
            let reason = "there is no host tier without --enable-hierarchical-cache";
            let fix = format!("--enable-hierarchical-cache {flag} {value}");
            add("HIC003", flag, value.clone(), reason, fix);
        }
        return;
    }
    if settings.load.prefix_cache == PrefixCache::Off {
        let reason = "the host tier holds pages of the prefix cache, which is off";
        let fix = "--prefix-cache on".to_owned();
        add("HIC004", "--enable-hierarchical-cache", "on".to_owned(), reason, fix);
    }
    let sizes = ["--hicache-ratio", "--hicache-size", "--hicache-budget"];
    let sizes: Vec<_> = given.iter().filter(|(flag, _)| sizes.contains(flag)).collect();
    if let [.., (last, value)] = sizes[..]
        && sizes.len() > 1
    {
        let all: Vec<&str> = sizes.iter().map(|(flag, _)| *flag).collect();
        let reason = format!("{} each say how large the tier is", all.join(" and "));
        add("HIC002", last, value.clone(), &reason, format!("{last} {value} alone"));
    }
    if let Some(ratio) = cache.hicache_ratio
        && ratio.0 < 1.0
    {
        let reason = "the host would hold fewer pages than the device, and every page of the \
                      device has a copy on the host";
        add("HIC005", "--hicache-ratio", ratio.to_string(), reason, "--hicache-ratio 2".to_owned());
    }
    let most = longest_load(settings, facts);
    if let Some(tokens) = cache.hicache_load_back_threshold.filter(|tokens| *tokens > most) {
        let reason =
            format!("no request ever finds more than {most} tokens there, so none would be loaded");
        let flag = "--hicache-load-back-threshold";
        let fix = format!("{flag} {}", LOAD_BACK_THRESHOLD.min(most));
        add("HIC012", flag, tokens.to_string(), &reason, fix);
    }
}

/// Tokens that a load can save at most: whole pages of the longest prompt, but for its last token.
fn longest_load(settings: &Settings, facts: &Facts) -> usize {
    let context = settings.load.max_context.unwrap_or(facts.spec.max_context);
    let page = facts.spec.pools.first().map_or(1, |pool| pool.page_tokens).max(1);
    // One token of the context is the answer's, one is always computed.
    context.saturating_sub(2) / page * page
}

/// The flags about the tier that were given, with their values.
fn given(cache: &CacheSettings) -> Vec<(&'static str, String)> {
    use clap::ValueEnum;
    fn name(value: &impl ValueEnum) -> String {
        value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
    let size = cache.hicache_size.filter(|size| size.0 > 0);
    let flags = [
        ("--hicache-ratio", cache.hicache_ratio.map(|v| v.to_string())),
        ("--hicache-size", size.map(|v| v.to_string())),
        ("--hicache-budget", cache.hicache_budget.map(|v| v.to_string())),
        ("--hicache-target", cache.hicache_target.map(|v| v.to_string())),
        ("--hicache-write-policy", cache.hicache_write_policy.as_ref().map(name)),
        ("--hicache-mem-layout", cache.hicache_mem_layout.as_ref().map(name)),
        ("--hicache-load-back-threshold", cache.hicache_load_back_threshold.map(|v| v.to_string())),
        ("--hicache-numa", cache.hicache_numa.map(|v| v.to_string())),
        ("--hicache-huge-pages", cache.hicache_huge_pages.as_ref().map(name)),
        ("--hicache-lock-memory", cache.hicache_lock_memory.as_ref().map(name)),
    ];
    flags.into_iter().filter_map(|(flag, value)| Some((flag, value?))).collect()
}

/// What a tier would be made of, whether there is one or not.
pub(super) fn input(
    settings: &Settings,
    facts: &Facts,
    host: &Host,
    memory: &Memory,
    findings: &mut Findings,
) -> Option<PlanInput> {
    if memory.pools.iter().any(|pool| pool.pages == 0) {
        return None;
    }
    let nodes = placement(settings, host, findings)?;
    let lock = settings.cache.hicache_lock_memory == Some(Switch::On);
    Some(PlanInput {
        pools: pools(facts, memory),
        room: room(host, memory, &nodes, lock),
        ranks: nodes,
        want: want(&settings.cache),
    })
}

/// Sizes the tier where there is one, and finds what is impossible about it.
pub(super) fn plan(
    settings: &Settings,
    facts: &Facts,
    host: &Host,
    memory: &Memory,
    findings: &mut Findings,
) -> Option<HierarchyPlan> {
    let cache = &settings.cache;
    if !enabled(settings) {
        return None;
    }
    let lock = cache.hicache_lock_memory == Some(Switch::On);
    let input = input(settings, facts, host, memory, findings)?;
    if let Some(finding) = refused_size(settings, facts, &input) {
        findings.add(finding);
        return None;
    }
    let plan = match plan_host_tier(&input) {
        Ok(plan) => plan,
        Err(error) => {
            findings.add(impossible(cache, &input, &error));
            return None;
        }
    };
    judge(cache, &input, &plan, findings);
    if let Some(finding) = rounded_up(cache, &plan) {
        findings.add(finding);
    }
    target(cache, &input, &plan, findings);
    Some(HierarchyPlan {
        requested: match input.want {
            Want::Ratio(_) => None,
            Want::RankBytes(bytes) => Some(Bytes(bytes.saturating_mul(input.ranks.len() as u64))),
            Want::TotalBytes(bytes) => Some(Bytes(bytes)),
        },
        target: cache.hicache_target.map(|target| Bytes(target.0)),
        nodes: input.ranks,
        layout: cache.hicache_mem_layout.unwrap_or(MemLayout::PageFirst),
        policy: cache.hicache_write_policy.unwrap_or(WritePolicy::WriteThrough),
        load_back_threshold: cache.hicache_load_back_threshold.unwrap_or(LOAD_BACK_THRESHOLD),
        huge_pages: cache.hicache_huge_pages.unwrap_or(HugePageSize::Off),
        lock,
        plan,
    })
}

/// The pools as the planner takes them.
fn pools(facts: &Facts, memory: &Memory) -> Vec<PlanPool> {
    let pools = facts.spec.pools.iter().zip(&memory.pools).map(|(pool, plan)| PlanPool {
        name: pool.name,
        page_tokens: pool.page_tokens,
        device_pages: plan.pages,
        sizing: Sizing::OWN,
        parts: plan_parts(pool),
    });
    pools.collect()
}

/// The parts of a pool as the planner takes them.
pub(crate) fn plan_parts(pool: &model::PoolSpec) -> Vec<PlanPart> {
    let parts = pool.parts.iter().map(|part| PlanPart {
        name: part.name,
        page_bytes: part.page_bytes(),
        host: part.host,
    });
    parts.collect()
}

/// The node of each rank; `None` where the wanted one cannot be had, which is then a finding.
fn placement(
    settings: &Settings,
    host: &Host,
    findings: &mut Findings,
) -> Option<Vec<Option<u32>>> {
    let ranks = settings.machine.tp_size;
    let choice = settings.cache.hicache_numa.unwrap_or(NumaChoice::Auto);
    let ids: Vec<u32> = host.nodes.iter().map(|room| room.node).collect();
    match choice {
        NumaChoice::Off => Some(vec![None; ranks]),
        // With a single node there is nothing to choose, and some sandboxes forbid to ask.
        NumaChoice::Auto if host.numa_nodes <= 1 || ids.is_empty() => Some(vec![None; ranks]),
        NumaChoice::Auto => {
            let spread = (0..ranks).map(|rank| ids.get(rank * ids.len() / ranks).copied());
            Some(spread.collect())
        }
        NumaChoice::Node(node) if ids.contains(&node) => Some(vec![Some(node); ranks]),
        NumaChoice::Node(node) => {
            let known = ids.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
            let (reason, fix) = if ids.is_empty() {
                ("this system names no NUMA nodes".to_owned(), "--hicache-numa off".to_owned())
            } else {
                (
                    format!("this process may use the nodes {known}"),
                    format!("--hicache-numa {}, or auto", ids[0]),
                )
            };
            findings.add(Finding {
                id: "HIC007",
                class: Class::Configuration,
                flag: "--hicache-numa",
                value: node.to_string(),
                reason,
                fix,
            });
            None
        }
    }
}

/// What is left for the tier once everything else in `memory` is there.
fn room(host: &Host, memory: &Memory, ranks: &[Option<u32>], lock: bool) -> Room {
    let taken = memory.ledger.total().0;
    let rank_pools = match host.assumed {
        Some(_) => 0,
        None => memory.pools.iter().fold(0, |sum: u64, pool| sum.saturating_add(pool.bytes())),
    };
    let pools = rank_pools.saturating_mul(ranks.len() as u64);
    let reserved = host.usable.map_or(0, reserve);
    let rest = taken.saturating_sub(pools).saturating_sub(reserved);
    let spread = rest / host.nodes.len().max(1) as u64;
    let left = |node: &NodeRoom| {
        let here = ranks.iter().filter(|at| **at == Some(node.node)).count() as u64;
        // Pools of ranks that are bound to no node can be anywhere.
        let free = ranks.iter().filter(|at| at.is_none()).count() as u64;
        let elsewhere = rank_pools.saturating_mul(free) / host.nodes.len().max(1) as u64;
        let device = rank_pools.saturating_mul(here).saturating_add(elsewhere);
        let kept = reserve(Bytes(node.bytes)).saturating_add(spread).saturating_add(device);
        NodeRoom { node: node.node, bytes: node.bytes.saturating_sub(kept) }
    };
    Room {
        nodes: host.nodes.iter().map(left).collect(),
        host: host.available.map(|bytes| bytes.0.saturating_sub(taken)),
        group: host.group.map(|bytes| bytes.0.saturating_sub(taken)),
        locked: if lock { host.lockable } else { None },
    }
}

/// Decimal bytes, the unit of the flags.
pub(crate) fn decimal(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{:.2} kB", bytes as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} MB", bytes as f64 / 1e6),
        _ => format!("{:.2} GB", bytes as f64 / 1e9),
    }
}
