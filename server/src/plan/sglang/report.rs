//! The report as text and as JSON, with three ways to a larger cache side by side.

use kv_cache::PlanPool;
use serde_json::{Value, json};

use super::Report;
use super::rules::device_bytes_per_token;
use crate::plan::shape::Attention;
use crate::plan::ways::{self, Way, Words};
use crate::plan::{finding_json, tier, verdict};

pub(super) fn text(report: &Report) -> String {
    let mut page = String::new();
    let [major, minor, patch] = report.rules.version;
    let head = format!(
        "sglang rules {major}.{minor}.{patch}; {}; {} ranks on this machine\n\n",
        report.shape.name, report.ranks
    );
    page.push_str(&head);
    if let Some((_, plan)) = &report.tier {
        page.push_str(&tier::text(plan));
        page.push('\n');
        page.push_str(&ways::text(&side_by_side(report)));
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
    json!({
        "engine": "sglang",
        "rules": format!("{major}.{minor}.{patch}"),
        "model": report.shape.name,
        "ranks": report.ranks,
        "valid": !report.findings.has_errors(),
        "host_tier": report.tier.as_ref().map(|(_, plan)| tier::json(plan)),
        "ways": ways::json(&side_by_side(report)),
        "findings": report.findings.iter().map(finding_json).collect::<Vec<_>>(),
    })
}

/// Bytes of the device's pools, of one rank: for DeepSeek-V4 as the engine books them, which is
/// more than it can reach.
fn device_bytes(report: &Report, pools: &[PlanPool]) -> u64 {
    match (&report.shape.attention, pools) {
        (Attention::Compressed(v4), [full, windows]) => {
            let layers = [v4.ratios.len(), v4.layers(4).len(), v4.layers(128).len()];
            let share = windows.device_pages as f64 / full.device_pages as f64;
            let drafts = report.flags.get("speculative-algorithm").is_some();
            let token = device_bytes_per_token(share, layers.map(|count| count as u64), drafts);
            (token * (full.device_pages * full.page_tokens) as f64) as u64
        }
        (Attention::Compressed(_) | Attention::Heads { .. } | Attention::Latent { .. }, _) => {
            ways::pool_bytes(pools)
        }
    }
}

/// Three ways to a larger cache, side by side.
fn side_by_side(report: &Report) -> Vec<Way> {
    let Some((input, plan)) = &report.tier else { return Vec::new() };
    let device_bytes = |pools: &[PlanPool]| device_bytes(report, pools);
    let words = Words {
        pool: "--mem-fraction-static",
        nodes: "numactl without --membind, --numa-node",
        shared: false,
        device_bytes: &device_bytes,
    };
    ways::ways(input, plan, &words)
}
