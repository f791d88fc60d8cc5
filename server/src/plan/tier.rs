//! The host tier as a table and as JSON: pools and their parts, ranks, nodes, and what would fit.

use std::fmt::Write;

use kv_cache::{HostTierPlan, Largest, NodeShare};
use serde_json::{Value, json};
use types::Bytes;

use crate::cli::Ratio;

/// The table of `plan`, also what a failed allocation is explained with. Ends with a line break.
#[must_use]
pub(crate) fn text(plan: &HostTierPlan) -> String {
    let mut page = String::new();
    write(plan, &mut page).expect("writing to a string cannot fail");
    page
}

fn write(plan: &HostTierPlan, page: &mut String) -> std::fmt::Result {
    writeln!(
        page,
        "{:<30}{:>9}{:>9}{:>12}{:>11}{:>11}{:>11}",
        "host tier, each rank", "device", "host", "page bytes", "device", "host", "host GB"
    )?;
    let size = |bytes: u64| Bytes(bytes).to_string();
    for pool in &plan.pools {
        let (name, device, host) = (pool.name, pool.device_pages, pool.host_pages);
        writeln!(page, "{name:<30}{device:>9}{host:>9}{:>12}", "pages")?;
        for part in &pool.parts {
            let mirrored = part.host_bytes > 0;
            writeln!(
                page,
                "  {:<46}{:>12}{:>11}{:>11}{:>11}",
                part.name,
                part.page_bytes,
                size(part.device_bytes),
                if mirrored { size(part.host_bytes) } else { "-".to_owned() },
                if mirrored { gigabytes(part.host_bytes) } else { "-".to_owned() },
            )?;
        }
    }
    writeln!(page, "{:<71}{:>11}{:>11}", "sum", size(plan.rank_bytes), gigabytes(plan.rank_bytes))?;
    writeln!(
        page,
        "\n{:<12}{:<18}{:>12}{:>11}{:>14}",
        "numa node", "ranks", "wanted", "GB", "room"
    )?;
    for node in &plan.nodes {
        writeln!(
            page,
            "{:<12}{:<18}{:>12}{:>11}{:>14}",
            node.node.map_or("any".to_owned(), |node| node.to_string()),
            ranks(node),
            size(node.bytes),
            gigabytes(node.bytes),
            node.room.map_or("unknown".to_owned(), size),
        )?;
    }
    let (total, unit) = (plan.total_bytes, plan.unit_bytes);
    writeln!(page, "{:<30}{:>12}{:>11}", "total", size(total), gigabytes(total))?;
    let largest = match plan.largest {
        Largest::Unknown => "unknown".to_owned(),
        Largest::Nothing => "none: not even ratio 1".to_owned(),
        Largest::Ratio(ratio) => Ratio(ratio).to_string(),
    };
    let ratio = Ratio(plan.ratio);
    writeln!(
        page,
        "ratio {ratio}; {} GB per unit of ratio; largest that fits: {largest}",
        gigabytes(unit)
    )
}

fn ranks(node: &NodeShare) -> String {
    let ranks = node.ranks.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
    if ranks.len() > 17 { format!("{} ranks", node.ranks.len()) } else { ranks }
}

/// Decimal gigabytes, the unit of `--hicache-size`, with two digits.
pub(crate) fn gigabytes(bytes: u64) -> String {
    format!("{:.2}", bytes as f64 / 1e9)
}

/// The same as one JSON object.
#[must_use]
pub(crate) fn json(plan: &HostTierPlan) -> Value {
    let pools = plan.pools.iter().map(|pool| {
        let parts = pool.parts.iter().map(|part| {
            json!({
                "name": part.name, "page_bytes": part.page_bytes,
                "device_bytes": part.device_bytes, "host_bytes": part.host_bytes,
            })
        });
        json!({
            "name": pool.name, "page_tokens": pool.page_tokens,
            "device_pages": pool.device_pages, "host_pages": pool.host_pages,
            "parts": parts.collect::<Vec<_>>(),
        })
    });
    let nodes = plan.nodes.iter().map(|node| {
        json!({
            "node": node.node, "ranks": node.ranks, "bytes": node.bytes, "room_bytes": node.room,
        })
    });
    let shortages = plan.shortages.iter().map(|short| {
        json!({
            "limit": short.limit.to_string(), "wanted_bytes": short.wanted,
            "room_bytes": short.room,
        })
    });
    json!({
        "ratio": plan.ratio,
        "pools": pools.collect::<Vec<_>>(),
        "nodes": nodes.collect::<Vec<_>>(),
        "rank_bytes": plan.rank_bytes,
        "total_bytes": plan.total_bytes,
        "unit_bytes": plan.unit_bytes,
        "fits": plan.fits(),
        "shortages": shortages.collect::<Vec<_>>(),
        "largest_ratio": match plan.largest {
            Largest::Unknown | Largest::Nothing => None,
            Largest::Ratio(ratio) => Some(ratio),
        },
    })
}
