//! The host tier as a table and as JSON: pools and their parts, ranks, nodes, and what would fit.

use std::fmt::Write;

use kv_cache::{HostTierPlan, Largest, NodeShare};
use serde_json::{Value, json};
use types::Bytes;

use super::table::{self, Side};
use crate::cli::Ratio;
use crate::config::decimal;

/// The table of `plan`, also what a failed allocation is explained with. Ends with a line break.
#[must_use]
pub(crate) fn text(plan: &HostTierPlan) -> String {
    let mut page = String::new();
    write(plan, &mut page).expect("writing to a string cannot fail");
    page
}

fn write(plan: &HostTierPlan, page: &mut String) -> std::fmt::Result {
    page.push_str(&parts(plan));
    writeln!(page, "\n{}", nodes(plan).trim_end())?;
    let largest = match plan.largest {
        Largest::Unknown => "unknown".to_owned(),
        Largest::Nothing => "none: not even ratio 1".to_owned(),
        Largest::Ratio(ratio) => Ratio(ratio).to_string(),
    };
    let (ratio, unit) = (Ratio(plan.ratio), decimal(plan.unit_bytes));
    writeln!(page, "ratio {ratio}; {unit} per unit of ratio; largest that fits: {largest}")
}

/// Pools and parts of one rank. Sizes in the last column are decimal, as flags take them.
fn parts(plan: &HostTierPlan) -> String {
    const SIDES: [Side; 7] =
        [Side::Left, Side::Right, Side::Right, Side::Right, Side::Right, Side::Right, Side::Right];
    let head = [
        "host tier, each rank",
        "device pages",
        "host pages",
        "page bytes",
        "device",
        "host",
        "host decimal",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    let none = String::new;
    for pool in &plan.pools {
        rows.push(vec![
            pool.name.to_owned(),
            pool.device_pages.to_string(),
            pool.host_pages.to_string(),
        ]);
        for part in &pool.parts {
            let mirrored = |text: String| if part.host_bytes > 0 { text } else { "-".to_owned() };
            rows.push(vec![
                format!("  {}", part.name),
                none(),
                none(),
                part.page_bytes.to_string(),
                Bytes(part.device_bytes).to_string(),
                mirrored(Bytes(part.host_bytes).to_string()),
                mirrored(decimal(part.host_bytes)),
            ]);
        }
    }
    let (sum, bytes) = (Bytes(plan.rank_bytes).to_string(), decimal(plan.rank_bytes));
    rows.push(vec!["sum".to_owned(), none(), none(), none(), none(), sum, bytes]);
    table::lines(&SIDES, &rows)
}

/// What each NUMA node would hold.
fn nodes(plan: &HostTierPlan) -> String {
    const SIDES: [Side; 5] = [Side::Left, Side::Left, Side::Right, Side::Right, Side::Right];
    let head = ["numa node", "ranks", "wanted", "decimal", "room"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    let size = |bytes: u64| Bytes(bytes).to_string();
    rows.extend(plan.nodes.iter().map(|node| {
        vec![
            node.node.map_or("any".to_owned(), |node| node.to_string()),
            ranks(node),
            size(node.bytes),
            decimal(node.bytes),
            node.room.map_or("unknown".to_owned(), size),
        ]
    }));
    let total = plan.total_bytes;
    rows.push(vec!["total".to_owned(), String::new(), size(total), decimal(total)]);
    table::lines(&SIDES, &rows)
}

fn ranks(node: &NodeShare) -> String {
    let ranks = node.ranks.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
    if ranks.len() > 17 { format!("{} ranks", node.ranks.len()) } else { ranks }
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

#[cfg(test)]
mod tests {
    use kv_cache::{PlanInput, PlanPart, PlanPool, Room, Sizing, Want, plan_host_tier};

    use super::*;

    /// The table of a pool of one part, and one without bytes of its own.
    fn table(name: &'static str, page_bytes: u64, device_pages: usize, ranks: usize) -> String {
        let part = |host| PlanPart { name, page_bytes, host };
        let pool =
            |parts| PlanPool { name, page_tokens: 16, device_pages, sizing: Sizing::OWN, parts };
        let input = PlanInput {
            pools: vec![pool(vec![part(true), part(false)]), pool(Vec::new())],
            ranks: vec![None; ranks],
            want: Want::Ratio(2.0),
            room: Room::default(),
        };
        text(&plan_host_tier(&input).expect("a tier"))
    }

    #[test]
    fn long_values_do_not_run_together() {
        let name = "a_part_whose_name_is_longer_than_any_column_was_wide_before_its_contents";
        let page = table(name, 123_456_789_012_345, 12_345, 200);
        let part = page.lines().find(|line| line.contains("123456789012345")).expect("a part");
        let words: Vec<&str> = part.split_whitespace().collect();
        assert_eq!(words[..2], [name, "123456789012345"], "{page}");
        let pool = page.lines().find(|line| line.starts_with(name)).expect("a pool");
        let words: Vec<&str> = pool.split_whitespace().collect();
        assert_eq!(words, [name, "12345", "24690"]);
        // Each column ends where its name does.
        let (head, bytes) = (page.lines().next().expect("names"), "123456789012345");
        let end = |line: &str, what: &str| line.find(what).map(|at| at + what.len());
        assert_eq!(end(head, "page bytes"), end(part, bytes), "{page}");
        assert!(page.contains("200 ranks"), "{page}");
    }

    #[test]
    fn a_small_tier_has_units_that_show_it() {
        let page = table("kv", 1_024, 4, 1);
        for part in ["8.19 kB", "4.10 kB per unit of ratio", "8.00 KiB"] {
            assert!(page.contains(part), "{part:?} is not in {page}");
        }
        assert!(table("kv", 16_384, 64, 1).contains("2.10 MB"));
        assert!(table("kv", 1, 64, 1).contains("128 B"));
        assert!(!page.contains("0.00"), "{page}");
    }
}
