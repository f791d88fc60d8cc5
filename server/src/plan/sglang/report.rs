//! The report as text and as JSON, with three ways to a larger cache side by side.

use std::fmt::Write;

use kv_cache::{HostTierPlan, Largest, PlanInput, plan_host_tier};
use serde_json::{Value, json};

use super::Report;
use super::rules::device_bytes_per_token;
use crate::cli::Ratio;
use crate::config::decimal;
use crate::plan::shape::Attention;
use crate::plan::tier;
use crate::plan::{finding_json, verdict};

/// A way to hold more tokens.
struct Way {
    name: &'static str,
    /// What to do.
    change: String,
    /// Tokens of history that both tiers hold then, on a rank.
    tokens: usize,
    /// Bytes of the host then, all ranks.
    host_bytes: u64,
    /// What it costs besides.
    cost: String,
}

pub(super) fn text(report: &Report) -> String {
    let mut page = String::new();
    let [major, minor, patch] = report.rules.version;
    let head = format!(
        "sglang rules {major}.{minor}.{patch}; {}; {} ranks on this machine\n\n",
        report.shape.name, report.ranks
    );
    page.push_str(&head);
    if let Some((input, plan)) = &report.tier {
        page.push_str(&tier::text(plan));
        page.push_str("\nways to hold more\n");
        for way in ways(report, input, plan) {
            writeln!(
                page,
                "  {:<20}{}: {} tokens of history, host {}; {}",
                way.name,
                way.change,
                way.tokens,
                decimal(way.host_bytes),
                way.cost
            )
            .expect("writing to a string cannot fail");
        }
        page.push('\n');
    }
    for finding in report.findings.iter() {
        page.push_str(&finding.to_string());
        page.push('\n');
    }
    page.push_str(&verdict(&report.findings));
    page
}

pub(super) fn json(report: &Report) -> Value {
    let [major, minor, patch] = report.rules.version;
    let ways = report.tier.iter().flat_map(|(input, plan)| ways(report, input, plan));
    let ways = ways.map(|way| {
        json!({
            "way": way.name, "change": way.change, "history_tokens": way.tokens,
            "host_bytes": way.host_bytes, "cost": way.cost,
        })
    });
    json!({
        "engine": "sglang",
        "rules": format!("{major}.{minor}.{patch}"),
        "model": report.shape.name,
        "ranks": report.ranks,
        "valid": !report.findings.has_errors(),
        "host_tier": report.tier.as_ref().map(|(_, plan)| tier::json(plan)),
        "ways": ways.collect::<Vec<_>>(),
        "findings": report.findings.iter().map(finding_json).collect::<Vec<_>>(),
    })
}

/// Bytes of the device's pools, of one rank: for DeepSeek-V4 as the engine books them, which is
/// more than it can reach.
fn device_bytes(report: &Report, plan: &HostTierPlan) -> u64 {
    let pools: u64 = plan.pools.iter().flat_map(|pool| &pool.parts).map(|p| p.device_bytes).sum();
    match (&report.shape.attention, &plan.pools[..]) {
        (Attention::Compressed(v4), [full, windows]) => {
            let layers = [v4.ratios.len(), v4.layers(4).len(), v4.layers(128).len()];
            let share = windows.device_pages as f64 / full.device_pages as f64;
            let drafts = report.flags.get("speculative-algorithm").is_some();
            let token = device_bytes_per_token(share, layers.map(|count| count as u64), drafts);
            (token * (full.device_pages * full.page_tokens) as f64) as u64
        }
        (Attention::Compressed(_) | Attention::Heads { .. } | Attention::Latent { .. }, _) => pools,
    }
}

/// A larger ratio, a larger device pool, memory of more nodes.
fn ways(report: &Report, input: &PlanInput, plan: &HostTierPlan) -> Vec<Way> {
    let history = |pages: usize| pages.saturating_mul(input.pools[0].page_tokens);
    let at = |ratio: f64| {
        let pool = &input.pools[0];
        history(pool.sizing.pages(pool.device_pages, ratio).max(pool.device_pages))
    };
    let device = device_bytes(report, plan);
    let mut ways = vec![Way {
        name: "as it is",
        change: format!("ratio {}", Ratio(plan.ratio)),
        tokens: at(plan.ratio),
        host_bytes: plan.total_bytes,
        cost: "nothing".to_owned(),
    }];
    if let Largest::Ratio(ratio) = plan.largest {
        ways.push(Way {
            name: "larger ratio",
            change: format!("--hicache-ratio {}", Ratio(ratio)),
            tokens: at(ratio),
            host_bytes: input.total_bytes(ratio),
            cost: "host memory only; hits come back over the bus".to_owned(),
        });
    }
    let mut larger = input.clone();
    for pool in &mut larger.pools {
        pool.device_pages = pool.device_pages.saturating_add(pool.device_pages.div_ceil(4));
    }
    let (ratio, pool) = (plan.ratio, &larger.pools[0]);
    ways.push(Way {
        name: "larger device pool",
        change: "a quarter more tokens (--mem-fraction-static)".to_owned(),
        tokens: history(pool.sizing.pages(pool.device_pages, ratio).max(pool.device_pages)),
        host_bytes: larger.total_bytes(ratio),
        cost: format!("{} more on each device; the tier grows with it", decimal(device / 4)),
    });
    // Spread over every node there is, instead of those it is bound to.
    let nodes: Vec<u32> = report.host.nodes.iter().map(|room| room.node).collect();
    if nodes.len() > plan.nodes.len() || plan.nodes.iter().any(|node| node.node.is_none()) {
        let mut relaxed = input.clone();
        let spread = |rank: usize| nodes.get(rank * nodes.len() / input.ranks.len()).copied();
        relaxed.ranks = (0..input.ranks.len()).map(spread).collect();
        if let Ok(HostTierPlan { largest: Largest::Ratio(ratio), .. }) = plan_host_tier(&relaxed) {
            ways.push(Way {
                name: "relaxed membind",
                change: format!(
                    "ranks over {} nodes, --hicache-ratio {}",
                    nodes.len(),
                    Ratio(ratio)
                ),
                tokens: at(ratio),
                host_bytes: relaxed.total_bytes(ratio),
                cost: "copies of the ranks that are far from their memory are slower, and what \
                       else runs on the other nodes has less"
                    .to_owned(),
            });
        }
    }
    ways
}
