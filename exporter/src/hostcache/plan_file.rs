//! What a planner wrote: the JSON of `sightline-server plan --format json`, of our own server or of
//! another engine's command line.
//!
//! A plan says what will be asked for, never what is held.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{
    Cache, CacheSource, NAME_MAX, NODES_MAX, NodeId, POOLS_MAX, Pools, Sizes, is_pool, shown,
};

/// Longest file, in bytes.
pub const FILE_MAX: usize = 4 << 20;

/// Why a file says nothing usable.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// It is not such a file.
    #[error("this is no output of `sightline-server plan --format json`: {0}")]
    Format(#[from] serde_json::Error),
    /// It is longer than any plan.
    #[error("the file is longer than {FILE_MAX} bytes")]
    TooLong,
    /// The plan has an error before its host tier.
    #[error("the plan has no host tier, and errors; run it again and see its findings")]
    Invalid,
    /// Sizes do not add up in 64 bits.
    #[error("sizes of pool {0:?} are beyond what can be counted")]
    Sizes(String),
    /// What a plan of ours cannot say.
    #[error("{what} is {value}")]
    Value {
        /// Name of the field.
        what: &'static str,
        /// Its value.
        value: String,
    },
    /// A pool has no name that a label could have.
    #[error("{0:?} is no name of a pool: up to {NAME_MAX} letters, digits, _, - and .")]
    Pool(String),
    /// More pools than any model has.
    #[error("it names more than {POOLS_MAX} pools")]
    Pools,
    /// More nodes than any machine has.
    #[error("it lists {0} nodes; a machine has at most {NODES_MAX}")]
    Nodes(usize),
    /// A node that no machine has.
    #[error("there is no NUMA node {0}: they are numbered below {NODES_MAX}")]
    Node(u32),
}

#[derive(Debug, Deserialize)]
struct File {
    valid: bool,
    /// Our own server's.
    resolved: Option<Resolved>,
    refused_host_tier: Option<Tier>,
    /// Another engine's.
    host_tier: Option<Tier>,
}

#[derive(Debug, Deserialize)]
struct Resolved {
    host_tier: Option<Tier>,
}

#[derive(Debug, Deserialize)]
struct Tier {
    ratio: f64,
    pools: Vec<Pool>,
    nodes: Vec<Node>,
    unit_bytes: u64,
}

#[derive(Debug, Deserialize)]
struct Pool {
    parts: Vec<Part>,
}

#[derive(Debug, Deserialize)]
struct Part {
    name: String,
    /// Of one rank.
    host_bytes: u64,
}

#[derive(Debug, Deserialize)]
struct Node {
    node: NodeId,
    ranks: Vec<u32>,
}

/// Reads a file.
///
/// # Errors
/// It is too long, no plan, or a plan that ended before it came to a host tier.
pub fn read(text: &[u8]) -> Result<Cache, PlanError> {
    if text.len() > FILE_MAX {
        return Err(PlanError::TooLong);
    }
    let file: File = serde_json::from_slice(text)?;
    let settled = file.resolved.is_some();
    let own = file.resolved.and_then(|resolved| resolved.host_tier);
    let tier = own.or(file.refused_host_tier).or(file.host_tier);
    let nothing = Cache {
        source: CacheSource::Plan,
        pools: Pools::default(),
        ratio: None,
        unit_bytes: None,
        target: None,
        placed: None,
    };
    match tier {
        Some(tier) => tier.cache(nothing),
        None if settled || file.valid => Ok(nothing),
        None => Err(PlanError::Invalid),
    }
}

impl Tier {
    fn cache(self, nothing: Cache) -> Result<Cache, PlanError> {
        if !(self.ratio.is_finite() && self.ratio > 0.0) {
            return Err(PlanError::Value { what: "ratio", value: self.ratio.to_string() });
        }
        let mut pools: BTreeMap<(String, NodeId), Sizes> = BTreeMap::new();
        // One entry more than nodes: of ranks that are bound to none.
        if self.nodes.len() > NODES_MAX as usize + 1 {
            return Err(PlanError::Nodes(self.nodes.len()));
        }
        let beyond_all = |node: &u32| *node >= NODES_MAX;
        if let Some(node) = self.nodes.iter().filter_map(|node| node.node).find(beyond_all) {
            return Err(PlanError::Node(node));
        }
        for (name, of_rank) in self.of_rank()? {
            for node in &self.nodes {
                let beyond = || PlanError::Sizes(name.to_owned());
                let bytes = of_rank.checked_mul(node.ranks.len() as u64);
                let bytes = bytes.ok_or_else(beyond)?;
                let sizes = pools.entry((name.to_owned(), node.node)).or_default();
                let sum = sizes.planned.unwrap_or_default().checked_add(bytes);
                sizes.planned = Some(sum.ok_or_else(beyond)?);
            }
        }
        Ok(Cache {
            pools: Pools(pools),
            ratio: Some(self.ratio),
            unit_bytes: Some(self.unit_bytes).filter(|unit| *unit > 0),
            ..nothing
        })
    }

    /// Host bytes of one rank by pool.
    fn of_rank(&self) -> Result<BTreeMap<&str, u64>, PlanError> {
        let mut pools: BTreeMap<&str, u64> = BTreeMap::new();
        for part in self.pools.iter().flat_map(|pool| &pool.parts) {
            if !is_pool(&part.name) {
                return Err(PlanError::Pool(shown(&part.name)));
            }
            let sum = pools.entry(&part.name).or_default();
            let more = sum.checked_add(part.host_bytes);
            *sum = more.ok_or_else(|| PlanError::Sizes(part.name.clone()))?;
            if pools.len() > POOLS_MAX {
                return Err(PlanError::Pools);
            }
        }
        Ok(pools)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tier(nodes: &str) -> String {
        format!(
            r#"{{"ratio": 2.0, "pools": [
                {{"name": "kv", "parts": [{{"name": "c4", "host_bytes": 1000}}]}},
                {{"name": "swa", "parts": [{{"name": "swa", "host_bytes": 500}},
                                           {{"name": "c4", "host_bytes": 7}}]}}],
              "nodes": {nodes}, "unit_bytes": 3014, "fits": true}}"#
        )
    }

    fn planned(cache: &Cache) -> Vec<(&str, NodeId, Option<u64>)> {
        let pools = cache.pools.0.iter();
        pools.map(|((pool, node), sizes)| (&**pool, *node, sizes.planned)).collect()
    }

    #[test]
    fn pools_lie_where_their_ranks_do() {
        let nodes = r#"[{"node": 0, "ranks": [0, 1, 2]}, {"node": null, "ranks": [3]}]"#;
        let [own, refused, foreign] = [
            format!(r#"{{"valid": true, "resolved": {{"host_tier": {}}}}}"#, tier(nodes)),
            format!(
                r#"{{"valid": false, "resolved": null, "refused_host_tier": {}}}"#,
                tier(nodes)
            ),
            format!(r#"{{"valid": true, "engine": "sglang", "host_tier": {}}}"#, tier(nodes)),
        ];
        for text in [own, refused, foreign] {
            let cache = read(text.as_bytes()).expect("a plan");
            let expected = [
                ("c4", None, Some(1_007)),
                ("c4", Some(0), Some(3_021)),
                ("swa", None, Some(500)),
                ("swa", Some(0), Some(1_500)),
            ];
            assert_eq!(planned(&cache), expected, "{text}");
            assert_eq!((cache.ratio, cache.unit_bytes), (Some(2.0), Some(3_014)));
            assert!(cache.pools.0.values().all(|sizes| sizes.allocated.is_none()));
        }
    }

    #[test]
    fn a_plan_without_a_tier_is_one_and_a_failed_one_is_none() {
        let none = read(br#"{"valid": true, "resolved": {"host_tier": null}}"#).expect("a plan");
        assert_eq!((none.pools, none.ratio), (Pools::default(), None));
        let failed = read(br#"{"valid": false, "resolved": null, "findings": []}"#);
        assert!(matches!(failed, Err(PlanError::Invalid)), "{failed:?}");
    }

    #[test]
    fn other_files_are_refused_with_a_reason() {
        let reason = |text: &[u8]| read(text).expect_err("no plan").to_string();
        assert!(reason(b"{").contains("sightline-server plan --format json"));
        assert!(reason(b"{\"valid\": 1}").contains("sightline-server plan"));
        assert!(reason(&vec![b' '; FILE_MAX + 1]).contains("longer"));
        let with = |tier: String| format!(r#"{{"valid": true, "host_tier": {tier}}}"#);
        let nodes = r#"[{"node": 0, "ranks": [0, 1]}]"#;
        let zero = with(tier(nodes).replace("2.0", "0.0"));
        assert!(reason(zero.as_bytes()).contains("ratio is 0"));
        let huge = with(tier(nodes).replace("1000", "18446744073709551615"));
        assert!(reason(huge.as_bytes()).contains("\"c4\""));
    }

    #[test]
    fn what_becomes_a_label_is_bounded() {
        let of = |pools: &[String], nodes: &[u32]| {
            let part = |name: &String| format!(r#"{{"name": "{name}", "host_bytes": 1}}"#);
            let parts: Vec<String> = pools.iter().map(part).collect();
            let node = |node: &u32| format!(r#"{{"node": {node}, "ranks": [0]}}"#);
            let nodes: Vec<String> = nodes.iter().map(node).collect();
            let (parts, nodes) = (parts.join(","), nodes.join(","));
            let text = format!(
                r#"{{"valid": true, "host_tier": {{"ratio": 2.0, "unit_bytes": 1,
                    "pools": [{{"parts": [{parts}]}}], "nodes": [{nodes}]}}}}"#
            );
            read(text.as_bytes()).map(|cache| cache.pools.0.len())
        };
        let some = |pools: usize| -> Vec<String> { (0..pools).map(|n| format!("p{n}")).collect() };
        let all: Vec<u32> = (0..NODES_MAX).collect();
        assert_eq!(of(&some(POOLS_MAX), &all).expect("it fits"), POOLS_MAX * all.len());
        assert!(matches!(of(&some(POOLS_MAX + 1), &[0]), Err(PlanError::Pools)));
        for name in ["p".repeat(NAME_MAX + 1), String::new(), "a b".to_owned()] {
            let refused = of(&[name], &[0]);
            assert!(matches!(refused, Err(PlanError::Pool(_))), "{refused:?}");
        }
        assert!(matches!(of(&some(1), &[NODES_MAX]), Err(PlanError::Node(NODES_MAX))));
        let many = [0; NODES_MAX as usize + 2];
        assert!(matches!(of(&some(1), &many), Err(PlanError::Nodes(1026))));
    }
}
