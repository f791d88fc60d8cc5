//! Three ways to hold more, side by side: a larger ratio, a larger device pool, memory of more
//! NUMA nodes.

use kv_cache::{HostTierPlan, Largest, NodeRoom, PlanInput, PlanPool, Room, plan_host_tier};
use serde_json::{Value, json};

use super::table::{self, Side};
use crate::cli::Ratio;
use crate::config::decimal;

/// The device's pools grow by one part in so many.
const GROWTH: usize = 4;

/// What the ways are called where they are taken.
pub(super) struct Words<'a> {
    /// The flag by which the device's pools grow.
    pub(super) pool: &'a str,
    /// The flag by which ranks spread over nodes.
    pub(super) nodes: &'a str,
    /// Whether the device's pools lie in the memory that the tier is in.
    pub(super) shared: bool,
    /// Bytes that these pools have on the device of one rank.
    pub(super) device_bytes: &'a dyn Fn(&[PlanPool]) -> u64,
}

/// Bytes of all parts of these pools on the device, of one rank.
pub(super) fn pool_bytes(pools: &[PlanPool]) -> u64 {
    let bytes = pools.iter().map(|pool| {
        let page = pool.parts.iter().fold(0, |sum: u64, part| sum.saturating_add(part.page_bytes));
        page.saturating_mul(pool.device_pages as u64)
    });
    bytes.fold(0, u64::saturating_add)
}

/// A way to hold more tokens.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Way {
    name: &'static str,
    /// What to do.
    change: String,
    /// Tokens of history that both tiers hold then, on a rank.
    tokens: usize,
    /// Bytes of the host tier then, all ranks.
    host_bytes: u64,
    /// Whether there is room for it.
    fits: bool,
    /// What it costs besides.
    cost: String,
}

/// What `input`, of which `plan` was made, is now, and the ways that change something.
pub(super) fn ways(input: &PlanInput, plan: &HostTierPlan, words: &Words<'_>) -> Vec<Way> {
    let now = Way {
        name: "as it is",
        change: format!("ratio {}", Ratio(plan.ratio)),
        tokens: tokens(input, plan.ratio),
        host_bytes: plan.total_bytes,
        fits: plan.fits(),
        cost: "nothing".to_owned(),
    };
    let mut ways = vec![now];
    if let Largest::Ratio(ratio) = plan.largest {
        ways.push(Way {
            name: if ratio > plan.ratio { "larger ratio" } else { "largest ratio" },
            change: format!("--hicache-ratio {}", Ratio(ratio)),
            tokens: tokens(input, ratio),
            host_bytes: input.total_bytes(ratio),
            fits: true,
            cost: "host memory only; hits come back over the bus".to_owned(),
        });
    }
    ways.push(larger_pool(input, plan.ratio, words));
    ways.extend(relaxed(input, words));
    ways
}

/// Tokens of history on a rank: what is on the device is on the host too.
fn tokens(input: &PlanInput, ratio: f64) -> usize {
    let pool = &input.pools[0];
    let pages = pool.sizing.pages(pool.device_pages, ratio).max(pool.device_pages);
    pages.saturating_mul(pool.page_tokens)
}

/// The same ratio of more pages on the device.
fn larger_pool(input: &PlanInput, ratio: f64, words: &Words<'_>) -> Way {
    let mut larger = input.clone();
    for pool in &mut larger.pools {
        pool.device_pages = pool.device_pages.saturating_add(pool.device_pages.div_ceil(GROWTH));
    }
    let bytes = |pools: &[PlanPool]| (words.device_bytes)(pools);
    let more = bytes(&larger.pools).saturating_sub(bytes(&input.pools));
    if words.shared {
        larger.room = without(&input.room, &input.ranks, more);
    }
    let fits = larger.shortages(ratio).is_empty();
    let place = if words.shared { "for each rank, of the same memory" } else { "on each device" };
    let room = match larger.largest() {
        _ if fits => "the tier grows with it".to_owned(),
        Largest::Ratio(most) => format!("ratio {} is the largest that fits then", Ratio(most)),
        Largest::Nothing | Largest::Unknown => "no tier fits then".to_owned(),
    };
    Way {
        name: "larger device pool",
        change: format!("a quarter more tokens ({})", words.pool),
        tokens: tokens(&larger, ratio),
        host_bytes: larger.total_bytes(ratio),
        fits,
        cost: format!("{} more {place}; {room}", decimal(more)),
    }
}

/// How many ranks are bound to `node`.
fn count(ranks: &[Option<u32>], node: Option<u32>) -> u64 {
    ranks.iter().filter(|at| **at == node).count() as u64
}

/// What there is once each rank, all of which are bound, has given `bytes` of its node back.
fn given_back(room: &Room, ranks: &[Option<u32>], bytes: u64) -> Room {
    let all = bytes.saturating_mul(ranks.len() as u64);
    let more = |node: &NodeRoom| {
        let here = count(ranks, Some(node.node)).saturating_mul(bytes);
        NodeRoom { node: node.node, bytes: node.bytes.saturating_add(here) }
    };
    Room {
        nodes: room.nodes.iter().map(more).collect(),
        host: room.host.map(|host| host.saturating_add(all)),
        group: room.group.map(|group| group.saturating_add(all)),
        locked: room.locked,
    }
}

/// What is left when each rank takes `bytes` more of its node.
fn without(room: &Room, ranks: &[Option<u32>], bytes: u64) -> Room {
    let unbound = count(ranks, None).saturating_mul(bytes) / room.nodes.len().max(1) as u64;
    let all = bytes.saturating_mul(ranks.len() as u64);
    let less = |node: &NodeRoom| {
        let here = count(ranks, Some(node.node)).saturating_mul(bytes).saturating_add(unbound);
        NodeRoom { node: node.node, bytes: node.bytes.saturating_sub(here) }
    };
    Room {
        nodes: room.nodes.iter().map(less).collect(),
        host: room.host.map(|host| host.saturating_sub(all)),
        group: room.group.map(|group| group.saturating_sub(all)),
        locked: room.locked,
    }
}

/// Ranks spread over every node there is, where they are bound to fewer.
fn relaxed(input: &PlanInput, words: &Words<'_>) -> Option<Way> {
    let nodes: Vec<u32> = input.room.nodes.iter().map(|room| room.node).collect();
    let mut bound: Vec<u32> = input.ranks.iter().copied().collect::<Option<_>>()?;
    bound.sort_unstable();
    bound.dedup();
    if bound.len() >= nodes.len().min(input.ranks.len()) {
        return None;
    }
    let count = input.ranks.len();
    let spread = |rank: usize| nodes.get(rank * nodes.len() / count).copied();
    let ranks: Vec<Option<u32>> = (0..count).map(spread).collect();
    let room = if words.shared {
        let each = (words.device_bytes)(&input.pools);
        // The ranks' pools move along: they are taken off where they will be, not where they are.
        without(&given_back(&input.room, &input.ranks, each), &ranks, each)
    } else {
        input.room.clone()
    };
    let relaxed = PlanInput { ranks, room, ..input.clone() };
    let Ok(HostTierPlan { largest: Largest::Ratio(ratio), .. }) = plan_host_tier(&relaxed) else {
        return None;
    };
    Some(Way {
        name: "relaxed membind",
        change: format!(
            "ranks over {} nodes ({}), --hicache-ratio {}",
            nodes.len(),
            words.nodes,
            Ratio(ratio)
        ),
        tokens: tokens(&relaxed, ratio),
        host_bytes: relaxed.total_bytes(ratio),
        fits: true,
        cost: "copies of ranks that are far from their memory are slower, and what else runs on \
               the other nodes has less"
            .to_owned(),
    })
}

/// A table with its heading.
#[must_use]
pub(super) fn text(ways: &[Way]) -> String {
    let head = ["way", "history tokens", "host tier", "", "what to do", "cost"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(ways.iter().map(|way| {
        vec![
            format!("  {}", way.name),
            way.tokens.to_string(),
            decimal(way.host_bytes),
            if way.fits { String::new() } else { "does not fit".to_owned() },
            way.change.clone(),
            way.cost.clone(),
        ]
    }));
    let sides = [Side::Left, Side::Right, Side::Right, Side::Left, Side::Left, Side::Left];
    format!(
        "ways to hold more, history of each rank, tiers of all\n{}",
        table::lines(&sides, &rows)
    )
}

#[must_use]
pub(super) fn json(ways: &[Way]) -> Value {
    let ways = ways.iter().map(|way| {
        json!({
            "way": way.name, "change": way.change, "history_tokens": way.tokens,
            "host_bytes": way.host_bytes, "fits": way.fits, "cost": way.cost,
        })
    });
    ways.collect()
}

#[cfg(test)]
mod tests {
    use kv_cache::{PlanPart, Sizing, Want};

    use super::*;

    /// Two ranks on the first of two nodes, 100 pages of 1000 bytes each, at ratio 1.5, which just
    /// fits there.
    fn input(ranks: [Option<u32>; 2]) -> PlanInput {
        let part = PlanPart { name: "kv", page_bytes: 1_000, host: true };
        let pool = PlanPool {
            name: "kv",
            page_tokens: 16,
            device_pages: 100,
            sizing: Sizing::OWN,
            parts: vec![part],
        };
        let nodes = [(0, 300_000), (1, 500_000)].map(|(node, bytes)| NodeRoom { node, bytes });
        PlanInput {
            pools: vec![pool],
            ranks: ranks.to_vec(),
            want: Want::Ratio(1.5),
            room: Room { nodes: nodes.to_vec(), ..Room::default() },
        }
    }

    fn of(input: &PlanInput, shared: bool) -> Vec<Way> {
        let plan = plan_host_tier(input).expect("a tier");
        let words = Words { pool: "--pool", nodes: "--nodes", shared, device_bytes: &pool_bytes };
        ways(input, &plan, &words)
    }

    #[test]
    fn memory_that_device_and_tier_share_is_counted_where_it_goes() {
        let bound = input([Some(0); 2]);
        let check = |shared, place: &str, most: &str, relaxed: (&str, usize, u64)| {
            let [now, _, larger, spread] = &of(&bound, shared)[..] else { panic!("four lines") };
            assert_eq!((now.tokens, now.host_bytes, now.fits), (150 * 16, 300_000, true));
            let (tokens, bytes) = (187 * 16, 2 * 187 * 1_000);
            assert_eq!((larger.tokens, larger.host_bytes, larger.fits), (tokens, bytes, false));
            assert_eq!(larger.cost, format!("25.00 kB more {place}; {most}"));
            let (ratio, tokens, bytes) = relaxed;
            let change = format!("ranks over 2 nodes (--nodes), --hicache-ratio {ratio}");
            assert_eq!((&spread.change, spread.tokens), (&change, tokens));
            assert_eq!((spread.host_bytes, spread.fits), (bytes, true));
        };
        let most = |ratio: &str| format!("ratio {ratio} is the largest that fits then");
        check(false, "on each device", &most("1.2"), ("3", 300 * 16, 600_000));
        // A rank that moves takes its 100 kB of the other node, and leaves as much behind.
        check(true, "for each rank, of the same memory", &most("1"), ("4", 400 * 16, 800_000));
    }

    #[test]
    fn what_is_bound_to_nothing_has_nothing_to_relax() {
        for ranks in [[None, None], [Some(0), Some(1)]] {
            let names: Vec<&str> = of(&input(ranks), true).iter().map(|way| way.name).collect();
            assert_eq!(names, ["as it is", "larger ratio", "larger device pool"], "{ranks:?}");
        }
        let mut one = input([Some(0); 2]);
        one.room.nodes.truncate(1);
        assert_eq!(of(&one, false).len(), 3);
    }
}
