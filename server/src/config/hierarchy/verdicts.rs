//! What is said of a tier that cannot be, does not fit, or is less than somebody wants.

use kv_cache::{HostTierPlan, Largest, PlanError, PlanInput};

use super::{SLAB_BYTES, decimal, wanted};
use crate::cli::{ByteSize, CacheSettings, HugePageSize, Ratio, Settings, spelled};
use crate::config::findings::{Class, Finding, Findings};
use crate::source::Facts;

/// A size per rank for a model whose pools have pages of different kinds.
pub(super) fn refused_size(
    settings: &Settings,
    facts: &Facts,
    input: &PlanInput,
) -> Option<Finding> {
    let size = settings.cache.hicache_size.filter(|size| size.0 > 0)?;
    let parts: usize =
        input.pools.iter().map(|pool| pool.parts.iter().filter(|p| p.host).count()).sum();
    if !facts.by_ratio_only {
        return None;
    }
    let ranks = input.ranks.len() as u64;
    let total = size.0.saturating_mul(ranks);
    let unit = decimal(input.unit_bytes());
    let most = match input.largest() {
        Largest::Ratio(most) => Some(most),
        Largest::Nothing | Largest::Unknown => None,
    };
    let fix = match input.ratio_within(total) {
        Some(ratio) if most.is_some_and(|most| most < ratio) => format!(
            "--hicache-ratio {}, the largest that fits; {ranks} ranks x {size} GB = {} would be \
             ratio {}",
            Ratio(most.unwrap_or(ratio)),
            decimal(total),
            Ratio(ratio),
        ),
        Some(ratio) => format!(
            "--hicache-ratio {} ({ranks} ranks x {size} GB = {} at {unit} per unit of ratio), or \
             --hicache-budget {}",
            Ratio(ratio),
            decimal(total),
            ByteSize(total),
        ),
        None => format!(
            "--hicache-ratio 2, which takes {}: {} would hold less than the device",
            decimal(input.total_bytes(2.0)),
            decimal(total)
        ),
    };
    Some(Finding {
        id: "HIC001",
        class: Class::Configuration,
        flag: "--hicache-size",
        value: size.to_string(),
        reason: format!(
            "{} keeps its KV in {parts} pools whose pages differ in size and number, and a size \
             per rank says nothing about each; nothing was loaded",
            facts.spec.architecture
        ),
        fix,
    })
}

/// Findings of a planner that cannot plan.
pub(super) fn impossible(cache: &CacheSettings, input: &PlanInput, error: &PlanError) -> Finding {
    let (flag, value) = wanted(cache);
    let least = |bytes: u64| {
        // Not less than needed, in a unit that can be read.
        let megabytes = bytes.div_ceil(1_000_000);
        match flag {
            "--hicache-size" => {
                let ranks = input.ranks.len() as u64;
                format!("{flag} {}", megabytes.div_ceil(ranks) as f64 / 1000.0)
            }
            "--hicache-budget" => format!("{flag} {megabytes}MB"),
            _ => "--hicache-ratio 2".to_owned(),
        }
    };
    let (reason, fix) = match error {
        PlanError::BelowOne { least_bytes, .. } => (
            format!(
                "every page of the device has a copy on the host, and one of each takes {}",
                decimal(*least_bytes)
            ),
            format!("{} (as much as the device has), better twice that", least(*least_bytes)),
        ),
        PlanError::TooManyPages { most: 0, .. } => {
            (error.to_string(), "a smaller pool of the device, or larger pages".to_owned())
        }
        PlanError::TooManyPages { most, .. } => {
            let fits = match input.largest() {
                Largest::Ratio(fits) if fits < *most as f64 => Ratio(fits).to_string(),
                Largest::Ratio(_) | Largest::Nothing | Largest::Unknown => most.to_string(),
            };
            (error.to_string(), format!("--hicache-ratio {fits}"))
        }
        PlanError::NoRanks | PlanError::NoDevicePages { .. } | PlanError::NothingMirrored => {
            (error.to_string(), "no --enable-hierarchical-cache".to_owned())
        }
    };
    Finding { id: "HIC005", class: Class::Configuration, flag, value, reason, fix }
}

/// Whether there is room, and whether it is of use.
pub(super) fn judge(
    cache: &CacheSettings,
    input: &PlanInput,
    plan: &HostTierPlan,
    findings: &mut Findings,
) {
    let (flag, value) = wanted(cache);
    if plan.pools.iter().all(|pool| pool.host_pages <= pool.device_pages) {
        findings.add(Finding {
            id: "HIC006",
            class: Class::Advice,
            flag,
            value: value.clone(),
            reason:
                "the tier holds copies of the device's pages and nothing else: no request hits \
                     more than without it"
                    .to_owned(),
            fix: "a ratio of 2 or more".to_owned(),
        });
    }
    if plan.fits() {
        return;
    }
    findings.refuse_tier(plan.clone());
    findings.planned_from(input.clone());
    let short: Vec<String> = plan
        .shortages
        .iter()
        .map(|short| {
            let (wanted, room) = (decimal(short.wanted), decimal(short.room));
            let have = if short.limit == kv_cache::Limit::Nodes { "have" } else { "has" };
            format!("{} {have} room for {room} of the {wanted} wanted there", short.limit)
        })
        .collect();
    findings.add(Finding {
        id: "HIC008",
        class: Class::Host,
        flag,
        value,
        reason: format!(
            "the host tier takes {} ({} on each of {} ranks); {}",
            decimal(plan.total_bytes),
            decimal(plan.rank_bytes),
            plan.nodes.iter().map(|node| node.ranks.len()).sum::<usize>(),
            short.join("; ")
        ),
        fix: what_fits(flag, plan),
    });
}

/// Maps are whole pages of the system, which is much where both are large.
pub(super) fn rounded_up(cache: &CacheSettings, plan: &HostTierPlan) -> Option<Finding> {
    /// One part in this many is worth a word.
    const WORTH: u64 = 10;
    let (page, smaller) = match cache.hicache_huge_pages? {
        HugePageSize::Off => return None,
        HugePageSize::TwoMiB => (2 << 20, "off"),
        HugePageSize::OneGiB => (1_u64 << 30, "2MiB"),
    };
    let ranks: u64 = plan.nodes.iter().map(|node| node.ranks.len() as u64).sum();
    let (mut taken, mut maps) = (0_u64, 0);
    for (pool, part) in plan.pools.iter().flat_map(|pool| pool.parts.iter().map(move |p| (pool, p)))
    {
        let pages = pool.host_pages as u64;
        if part.host_bytes == 0 || pages == 0 {
            continue;
        }
        // A map holds whole pages of the tier, at least one.
        let per_map = (SLAB_BYTES / part.page_bytes.max(1)).max(1);
        let (full, rest) = (pages / per_map, pages % per_map);
        let rounded = |pages: u64| pages.saturating_mul(part.page_bytes).div_ceil(page) * page;
        taken = taken.saturating_add(full * rounded(per_map)).saturating_add(rounded(rest));
        maps += full + u64::from(rest > 0);
    }
    let (taken, maps) = (taken.saturating_mul(ranks), maps * ranks);
    if taken.saturating_sub(plan.total_bytes) <= plan.total_bytes / WORTH {
        return None;
    }
    let size = cache.hicache_huge_pages.map(spelled).unwrap_or_default();
    Some(Finding {
        id: "HIC013",
        class: Class::Advice,
        flag: "--hicache-huge-pages",
        reason: format!(
            "each of {maps} maps is rounded up to whole pages of {size}: {} for a tier of {}",
            decimal(taken),
            decimal(plan.total_bytes)
        ),
        value: size,
        fix: format!("--hicache-huge-pages {smaller}"),
    })
}

fn what_fits(flag: &str, plan: &HostTierPlan) -> String {
    let locked = plan.shortages.iter().find(|short| short.limit == kv_cache::Limit::Locked);
    let limit = locked.map_or_else(String::new, |short| {
        format!(", or a limit of locked memory (ulimit -l) of {} KiB", short.wanted.div_ceil(1024))
    });
    let ratio = match plan.largest {
        Largest::Ratio(ratio) => ratio,
        Largest::Nothing | Largest::Unknown => {
            return format!(
                "smaller pools of the device (--kv-pool-bytes), of which the tier is a multiple\
                 {limit}"
            );
        }
    };
    let total = decimal((plan.unit_bytes as f64 * ratio) as u64);
    format!("{}, the largest that fits ({total}){limit}", of_ratio(flag, plan, ratio))
}

/// What to give `flag`, one of those that say how large the tier is, for a tier of `ratio`.
pub(crate) fn of_ratio(flag: &str, plan: &HostTierPlan, ratio: f64) -> String {
    let total = (plan.unit_bytes as f64 * ratio) as u64;
    match flag {
        "--hicache-budget" => format!("--hicache-budget {}MB", total / 1_000_000),
        "--hicache-size" => {
            let ranks: usize = plan.nodes.iter().map(|node| node.ranks.len()).sum();
            format!("--hicache-size {}", (total / ranks.max(1) as u64 / 1_000_000) as f64 / 1000.0)
        }
        _ => format!("--hicache-ratio {}", Ratio(ratio)),
    }
}

/// Whether what is wanted in the end can be had.
pub(super) fn target(
    cache: &CacheSettings,
    input: &PlanInput,
    plan: &HostTierPlan,
    findings: &mut Findings,
) {
    let Some(target) = cache.hicache_target else { return };
    // What is less than a unit of the last decimal apart is the same.
    let short = target.0.saturating_sub(plan.total_bytes) > plan.unit_bytes / 100;
    let (reason, fix) = match input.ratio_within(target.0) {
        None => (
            format!("a tier takes {} at least, at ratio 1", decimal(input.total_bytes(1.0))),
            format!("--hicache-target {}", ByteSize(input.total_bytes(2.0))),
        ),
        Some(ratio) if short => {
            let (flag, value) = wanted(cache);
            let fix = match plan.largest {
                Largest::Ratio(most) if most < ratio => format!(
                    "--hicache-ratio {}, the largest that fits; the target would be ratio {}",
                    Ratio(most),
                    Ratio(ratio)
                ),
                Largest::Ratio(_) | Largest::Unknown => {
                    format!("--hicache-ratio {} instead of {flag} {value}", Ratio(ratio))
                }
                Largest::Nothing => "a larger host".to_owned(),
            };
            (format!("{flag} {value} gives {}", decimal(plan.total_bytes)), fix)
        }
        Some(_) => return,
    };
    findings.add(Finding {
        id: "HIC009",
        class: Class::Advice,
        flag: "--hicache-target",
        value: target.to_string(),
        reason,
        fix,
    });
}
