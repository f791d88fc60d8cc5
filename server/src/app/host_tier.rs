//! The memory of the host tier: taken before a weight is loaded, all of it or none.

use std::time::Duration;

use engine::HostTier;
use memory_pool::{HostError, HostLayout, HostMemory, HostOptions, HugePages, Progress, SlabStep};
use rustix::process::{Resource, getrlimit};
use types::{Bytes, Clock, Time};

use super::Checked;
use super::startup::StartError;
use crate::cli::{HugePageSize, MemLayout, NumaChoice, Settings, WritePolicy, spelled};
use crate::config::hierarchy::{SLAB_BYTES, of_ratio, wanted};
use crate::config::{Class, Finding, Findings, HierarchyPlan, Resolved};
use crate::host_tier::Facts;

/// So often the log hears how far a long allocation is.
const NEWS: Duration = Duration::from_secs(5);

/// The tier as the engine takes it.
pub(super) fn engine_tier(tier: &HierarchyPlan) -> HostTier {
    HostTier {
        pages: tier.host_pages(),
        policy: match tier.policy {
            WritePolicy::WriteThrough => engine::WritePolicy::WriteThrough,
            WritePolicy::WriteThroughSelective => engine::WritePolicy::WriteThroughSelective,
            WritePolicy::WriteBack => engine::WritePolicy::WriteBack,
        },
        load_back_threshold: tier.load_back_threshold,
        storage: false,
    }
}

fn options(tier: &HierarchyPlan) -> HostOptions {
    HostOptions {
        ranks: tier.nodes.len(),
        nodes: tier.nodes.clone(),
        layout: match tier.layout {
            MemLayout::LayerFirst => HostLayout::LayerFirst,
            MemLayout::PageFirst => HostLayout::PageFirst,
            MemLayout::PageFirstDirect => HostLayout::PageFirstDirect,
        },
        slab_bytes: Bytes(SLAB_BYTES),
        huge_pages: match tier.huge_pages {
            HugePageSize::Off => HugePages::Off,
            HugePageSize::TwoMiB => HugePages::TwoMiB,
            HugePageSize::OneGiB => HugePages::OneGiB,
        },
        lock: tier.lock,
    }
}

/// Takes the memory of the tier from the system, where there is a tier and a model with bytes, and
/// says what came of it. Blocks as long as that takes.
///
/// # Errors
/// The system refused a part of it: nothing stays allocated, and the findings hold the plan.
pub(super) fn allocate(
    checked: &Checked,
    clock: Clock,
) -> Result<(Option<HostMemory>, Option<Facts>), StartError> {
    let resolved = &checked.resolved;
    let Some(tier) = &resolved.hierarchy else { return Ok((None, None)) };
    let since = clock.now();
    let mut news = News { clock, told: since, done: Bytes(0) };
    let memory = if checked.source.keeps_bytes() {
        let parts = checked.spec.part_layouts(&tier.host_pages());
        let bytes = tier.plan.total_bytes;
        tracing::info!(bytes, ranks = tier.nodes.len(), "Taking the memory of the host tier.");
        let memory = HostMemory::allocate(&parts, options(tier), &mut |now| news.hear(now));
        Some(memory.map_err(|error| refused(resolved, tier, &error, news.done))?)
    } else {
        None
    };
    let facts = Facts::new(resolved, memory.as_ref(), clock.now().since(since));
    if let Some(facts) = &facts {
        if memory.is_some() && unbound(resolved) {
            tracing::info!("There is one NUMA node, so the host tier is bound to none.");
        }
        tell(facts);
    }
    Ok((memory, facts))
}

/// Whether somebody may have expected nodes where there are none to choose from.
fn unbound(resolved: &Resolved) -> bool {
    let off = resolved.settings.cache.hicache_numa == Some(NumaChoice::Off);
    let tier = resolved.hierarchy.as_ref();
    !off && tier.is_some_and(|tier| tier.nodes.iter().all(Option::is_none))
}

/// The log's part of it.
fn tell(facts: &Facts) {
    for note in &facts.notes {
        tracing::warn!(%note, "The host tier is not quite as it was asked for.");
    }
    tracing::info!(
        allocated_bytes = facts.allocated.0,
        mapped_bytes = facts.mapped().0,
        planned_bytes = facts.planned.0,
        requested_bytes = facts.requested.0,
        target_bytes = facts.target.map(|target| target.0),
        ratio = facts.ratio,
        policy = spelled(facts.policy),
        layout = spelled(facts.layout),
        parts = facts.parts_line(),
        rank_nodes = facts.nodes_line(),
        placement = facts.placement_line(),
        seconds = facts.time.as_secs_f64(),
        "The host tier has its memory."
    );
}

/// Tells the log from time to time.
struct News {
    clock: Clock,
    told: Time,
    /// Bytes taken so far.
    done: Bytes,
}

impl News {
    fn hear(&mut self, progress: Progress) {
        let Progress { part, rank, done, total } = progress;
        self.done = done;
        let now = self.clock.now();
        if now.since(self.told) >= NEWS {
            self.told = now;
            let (done, total) = (done.0, total.0);
            tracing::info!(part, rank, done_bytes = done, total_bytes = total, "Still taking it.");
        }
    }
}

/// What is said of a tier that the system did not give, after `done` bytes of it.
fn refused(
    resolved: &Resolved,
    tier: &HierarchyPlan,
    error: &HostError,
    done: Bytes,
) -> StartError {
    let step = match error {
        HostError::Slab { step, .. } => *step,
        HostError::TooLarge { .. } => SlabStep::Map,
        HostError::Ranks { .. } => return StartError::Engine(error.to_string()),
    };
    let (flag, value, fix) = blame(resolved, tier, step, done);
    let mut reason = format!(
        "{error}; {done} of {} were there and are given back",
        Bytes(tier.plan.total_bytes)
    );
    if let (SlabStep::Map, Some(limit)) = (step, getrlimit(Resource::As).current) {
        reason.push_str(&format!("; this process may map {} (ulimit -v)", Bytes(limit)));
    }
    let class = Class::Temporary;
    let mut findings = Findings::from(Finding { id: "HIC010", class, flag, value, reason, fix });
    findings.refuse_tier(tier.plan.clone());
    StartError::Refused(findings)
}

/// The flag that asked for what was refused, its value, and what may work.
fn blame(
    resolved: &Resolved,
    tier: &HierarchyPlan,
    step: SlabStep,
    done: Bytes,
) -> (&'static str, String, String) {
    let Settings { cache, .. } = &resolved.settings;
    match step {
        SlabStep::Map | SlabStep::Touch => {
            let (flag, value) = wanted(cache);
            let had = resolved.tier.as_ref().and_then(|input| input.ratio_within(done.0));
            // What the system gave is there again, if nobody else takes it.
            let smaller = had.unwrap_or_else(|| (tier.plan.ratio / 2.0).max(1.0));
            let fix = if smaller < tier.plan.ratio {
                format!("{}, or later again", of_ratio(flag, &tier.plan, smaller))
            } else {
                "smaller pools of the device (--kv-pool-bytes), or later again".to_owned()
            };
            (flag, value, fix)
        }
        SlabStep::Bind => {
            let numa = cache.hicache_numa.map_or("auto".to_owned(), |numa| numa.to_string());
            ("--hicache-numa", numa, "--hicache-numa off".to_owned())
        }
        SlabStep::Lock => {
            let least = tier.plan.total_bytes.div_ceil(1024);
            let fix = format!(
                "--hicache-lock-memory=off, or a limit of locked memory (ulimit -l) of {least} KiB"
            );
            ("--hicache-lock-memory", "on".to_owned(), fix)
        }
    }
}
