//! What one of our own servers says about its host tier on its page of metrics.

use std::collections::BTreeMap;

use metric_catalog::def::Label;
use metric_catalog::labels::{Local, ModelName, NumaNode, Pool, Role, Tier};
use metric_catalog::{process, server};

use super::expo::{self, ExpoError, Sample};
use super::{
    Cache, CacheSource, NAME_MAX, NODES_MAX, NodeId, POOLS_MAX, Placed, Pools, is_pool, shown,
};

/// What the page says.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    /// When the process started, in seconds since 1970.
    pub started: Option<f64>,
    /// Its host tier; `None` where the page is not of one of our servers.
    pub cache: Option<Cache>,
}

/// Why a page says nothing usable.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PageError {
    /// It is not of the format.
    #[error(transparent)]
    Format(#[from] ExpoError),
    /// It is of more than one server.
    #[error("the page is of several servers; give each its own URL")]
    Several,
    /// A number of bytes is none.
    #[error("{name} is {value}, which is no number of bytes")]
    Bytes {
        /// The series.
        name: String,
        /// What it says.
        value: f64,
    },
    /// A pool has no name that a label could have.
    #[error("{0:?} is no name of a pool: up to {NAME_MAX} letters, digits, _, - and .")]
    Pool(String),
    /// More pools than any model has.
    #[error("it names more than {POOLS_MAX} pools")]
    Pools,
    /// A node that no machine has.
    #[error("there is no NUMA node {0}: they are numbered below {NODES_MAX}")]
    Node(u32),
}

/// Families that are read.
fn wanted() -> [&'static str; 7] {
    [
        server::KV_POOL_CAPACITY_BYTES.name(),
        server::HICACHE_REQUESTED_BYTES.name(),
        server::HICACHE_TARGET_BYTES.name(),
        server::HICACHE_RATIO.name(),
        server::HOST_POOL_NUMA_BYTES.name(),
        server::KV_HIT_CURVE_REQUIRED_BYTES.name(),
        process::START_TIME.name(),
    ]
}

/// Reads a page.
///
/// # Errors
/// The page is not of the format, of several servers, or has a size that is none.
pub fn read(text: &str) -> Result<Page, PageError> {
    let samples = expo::parse(text, &wanted())?;
    let of = |name: &'static str| samples.iter().filter(move |sample| sample.name == name);
    let started = of(process::START_TIME.name()).next();
    let started = started.map(|sample| sample.value).filter(|time| time.is_finite());
    let mut ratios = of(server::HICACHE_RATIO.name());
    let Some(ratio) = ratios.next() else { return Ok(Page { started, cache: None }) };
    if ratios.next().is_some() || several(&samples) {
        return Err(PageError::Several);
    }
    let cache = Sizes::of(&samples)?.cache(ratio.value);
    Ok(Page { started, cache: Some(cache) })
}

/// Whether engine or model differ between series.
fn several(samples: &[Sample]) -> bool {
    let [role, model] = [Role::INFO.name, ModelName::INFO.name];
    let mut whose = samples
        .iter()
        .filter(|sample| sample.name == server::KV_POOL_CAPACITY_BYTES.name())
        .map(|sample| (sample.label(role), sample.label(model)));
    let first = whose.next();
    whose.any(|other| Some(other) != first)
}

/// The sizes on a page, summed over ranks.
#[derive(Debug, Default)]
struct Sizes {
    /// By pool.
    device: BTreeMap<String, u64>,
    host: BTreeMap<String, u64>,
    /// What a node would need at some ratio: how the ranks are spread over nodes.
    nodes: BTreeMap<NodeId, u64>,
    requested: u64,
    target: u64,
    placed: Placed,
}

impl Sizes {
    fn of(samples: &[Sample]) -> Result<Self, PageError> {
        let mut sizes = Self::default();
        for sample in samples {
            if sample.name == server::HICACHE_RATIO.name()
                || sample.name == process::START_TIME.name()
            {
                continue;
            }
            let beyond = || PageError::Bytes { name: sample.name.clone(), value: sample.value };
            let bytes = bytes(sample)?;
            check(sample)?;
            sizes.add(sample, bytes).ok_or_else(beyond)?;
            if sizes.device.len().max(sizes.host.len()) > POOLS_MAX {
                return Err(PageError::Pools);
            }
        }
        Ok(sizes)
    }

    /// Counts a series in; `None` where the sum is beyond counting.
    fn add(&mut self, sample: &Sample, bytes: u64) -> Option<()> {
        let add = |sum: &mut u64| {
            *sum = sum.checked_add(bytes)?;
            Some(())
        };
        let is = |name: &str| sample.name == name;
        if is(server::HICACHE_REQUESTED_BYTES.name()) {
            self.requested = bytes;
        } else if is(server::HICACHE_TARGET_BYTES.name()) {
            self.target = bytes;
        } else if is(server::KV_POOL_CAPACITY_BYTES.name()) {
            let tier = sample.label(Tier::INFO.name);
            let pool = sample.label(Pool::INFO.name).unwrap_or_default().to_owned();
            if tier == Some(Tier::Device.as_str()) {
                add(self.device.entry(pool).or_default())?;
            } else if tier == Some(Tier::Host.as_str()) {
                add(self.host.entry(pool).or_default())?;
            }
        } else if is(server::HOST_POOL_NUMA_BYTES.name()) {
            let local = sample.label(Local::INFO.name) == Some(Local::True.as_str());
            add(&mut self.placed.total)?;
            if local {
                add(&mut self.placed.local)?;
            }
        } else {
            // All candidates have the same ranks on the same nodes: their sum weighs as each does.
            add(self.nodes.entry(node(sample)).or_default())?;
        }
        Some(())
    }

    /// Pools whose bytes are mirrored on the host, in bytes on the device: host bytes of ratio 1.
    /// Before there is a host pool it is not known which those are.
    fn unit(&self) -> Option<u64> {
        let mirrored = self.host.iter().filter(|(_, bytes)| **bytes > 0);
        let mut device = mirrored.map(|(pool, _)| self.device.get(pool).copied().unwrap_or(0));
        device.try_fold(0_u64, u64::checked_add).filter(|unit| *unit > 0)
    }

    fn cache(self, ratio: f64) -> Cache {
        let unit = self.unit();
        let held = self.host.values().any(|bytes| *bytes > 0);
        let pools = if held || self.requested == 0 {
            // Memory of the tier is taken whole or not at all.
            Pools::spread(
                self.host.iter().map(|(pool, bytes)| (pool.as_str(), Some(*bytes), Some(*bytes))),
                &self.nodes,
            )
        } else {
            Pools::spread([(super::ALL_POOLS, Some(self.requested), Some(0))], &self.nodes)
        };
        Cache {
            source: CacheSource::Metrics,
            pools,
            ratio: Some(ratio).filter(|ratio| ratio.is_finite() && *ratio > 0.0),
            unit_bytes: unit,
            target: Some(self.target).filter(|target| *target > 0),
            placed: Some(self.placed).filter(|placed| placed.total > 0),
        }
    }
}

/// The node that a series is of.
fn node(sample: &Sample) -> NodeId {
    sample.label(NumaNode::INFO.name)?.parse().ok()
}

/// What becomes a label must be one of few, and fit.
fn check(sample: &Sample) -> Result<(), PageError> {
    if let Some(node) = node(sample).filter(|node| *node >= NODES_MAX) {
        return Err(PageError::Node(node));
    }
    let pool = sample.label(Pool::INFO.name).unwrap_or_default();
    if sample.name == server::KV_POOL_CAPACITY_BYTES.name() && !is_pool(pool) {
        return Err(PageError::Pool(shown(pool)));
    }
    Ok(())
}

/// A whole number that a float can say exactly.
fn bytes(sample: &Sample) -> Result<u64, PageError> {
    /// Above it a float no longer counts single bytes.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let value = sample.value;
    let fits = (0.0..=EXACT).contains(&value) && value.fract() == 0.0;
    fits.then_some(value as u64)
        .ok_or_else(|| PageError::Bytes { name: sample.name.clone(), value })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::hostcache::{ALL_POOLS, Sizes as PoolSizes};

    /// A part of what a real server said: DeepSeek-V4 of a tiny size, two ranks, ratio 2.
    const PAGE: &str = include_str!("../../tests/data/server_page.txt");

    fn cache(text: &str) -> Cache {
        read(text).expect("a page").cache.expect("one of ours")
    }

    #[test]
    fn the_sample_is_what_the_catalog_declares() {
        let mut known = BTreeSet::new();
        for line in PAGE.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
            let (name, kind) = line.split_once(' ').expect("a kind");
            let mut all = metric_catalog::all();
            let info = all.find(|info| info.name == name).unwrap_or_else(|| panic!("{name}"));
            assert_eq!(info.kind.as_str(), kind, "{name}");
            known.insert(name);
        }
        for name in wanted() {
            assert!(known.contains(name), "{name} is not in the sample");
        }
        for sample in expo::parse(PAGE, &wanted()).expect("a page") {
            let mut all = metric_catalog::all();
            let info = all.find(|info| info.name == sample.name).expect("declared");
            let own = info.labels.iter().map(|label| label.name);
            let common = info.common_labels().iter().copied();
            let expected: BTreeSet<&str> = own.chain(common).collect();
            let found: BTreeSet<&str> = sample.labels.iter().map(|(name, _)| &**name).collect();
            assert!(found.is_subset(&expected), "{sample:?}: {expected:?}");
            assert!(info.labels.iter().all(|label| found.contains(label.name)), "{sample:?}");
        }
    }

    #[test]
    fn our_own_page_says_what_every_pool_has() {
        let page = read(PAGE).expect("a page");
        assert!(page.started.is_some_and(|time| time > 1.7e9));
        let cache = page.cache.expect("one of ours");
        assert_eq!((cache.source, cache.ratio), (CacheSource::Metrics, Some(2.0)));
        assert_eq!((cache.unit_bytes, cache.target), (Some(6_935_552), None));
        let pool = |name: &str| cache.pools.0[&(name.to_owned(), None)];
        // Two ranks of 8 pages of 196608 bytes, twice.
        let swa = Some(2 * 2 * 8 * 196_608);
        assert_eq!(pool("swa"), PoolSizes { planned: swa, allocated: swa });
        assert_eq!(pool("kv"), PoolSizes { planned: Some(0), allocated: Some(0) });
        let total: u64 = cache.pools.0.values().filter_map(|sizes| sizes.allocated).sum();
        assert_eq!(total, 13_871_104);
        assert_eq!(cache.placed, Some(Placed { local: 13_877_248, total: 13_877_248 }));
    }

    #[test]
    fn ranks_are_on_the_nodes_that_the_page_names() {
        let needed = server::KV_HIT_CURVE_REQUIRED_BYTES.name();
        let (mut text, mut moved) = (String::new(), 0);
        for line in PAGE.lines() {
            if line.starts_with(needed) {
                let (series, bytes) = line.rsplit_once(' ').expect("a value");
                let half: u64 = bytes.parse::<u64>().expect("bytes") / 2;
                for node in ["0", "1"] {
                    let series = series.replace("\"any\"", &format!("\"{node}\""));
                    text.push_str(&format!("{series} {half}\n"));
                }
                moved += 1;
            } else {
                text.push_str(&format!("{line}\n"));
            }
        }
        assert!(moved > 5, "the curve has candidates");
        let cache = cache(&text);
        for node in [0, 1] {
            let swa = cache.pools.0[&("swa".to_owned(), Some(node))];
            assert_eq!(swa.allocated, Some(2 * 8 * 196_608), "node {node}");
        }
    }

    #[test]
    fn before_there_is_memory_only_the_sum_is_known() {
        let capacity = server::KV_POOL_CAPACITY_BYTES.name();
        let host = |line: &&str| line.starts_with(capacity) && line.contains("tier=\"host\"");
        let zero = |line: &str| format!("{} 0", line.rsplit_once(' ').expect("a value").0);
        let lines = PAGE.lines().map(|line| if host(&line) { zero(line) } else { line.to_owned() });
        let cache = cache(&(lines.collect::<Vec<_>>().join("\n") + "\n"));
        let sum = PoolSizes { planned: Some(13_871_104), allocated: Some(0) };
        assert_eq!(cache.pools.0, BTreeMap::from([((ALL_POOLS.to_owned(), None), sum)]));
        assert_eq!(cache.unit_bytes, None);
    }

    #[test]
    fn other_programs_and_several_servers_are_told_apart() {
        assert_eq!(read("up 1\n").expect("a page").cache, None);
        let ratio = server::HICACHE_RATIO.name();
        let twice = format!("{ratio}{{model_name=\"a\"}} 2\n{ratio}{{model_name=\"b\"}} 2\n");
        assert_eq!(read(&twice), Err(PageError::Several));
        let capacity = server::KV_POOL_CAPACITY_BYTES.name();
        let model = |model| format!("{capacity}{{tier=\"host\",model_name=\"{model}\"}} 1\n");
        let mixed = format!("{ratio} 2\n{}{}", model("a"), model("b"));
        assert_eq!(read(&mixed), Err(PageError::Several));
        for value in ["-1", "0.5", "NaN", "+Inf", "1e300"] {
            let bad = read(&format!("{ratio} 2\n{capacity}{{tier=\"host\"}} {value}\n"));
            assert!(matches!(bad, Err(PageError::Bytes { .. })), "{value}: {bad:?}");
        }
        let rank =
            |rank| format!("{capacity}{{tier=\"host\",pool=\"kv\",tp_rank=\"{rank}\"}} 9e15\n");
        let many: String = (0..3_000).map(rank).collect();
        let beyond = read(&format!("{ratio} 2\n{many}"));
        assert!(matches!(beyond, Err(PageError::Bytes { .. })), "{beyond:?}");
        // A ratio of 0 is a server without a tier.
        let none = cache(&format!("{ratio} 0\n"));
        assert_eq!((none.ratio, none.pools.0.len(), none.placed), (None, 0, None));
    }

    #[test]
    fn what_becomes_a_label_is_bounded() {
        let ratio = server::HICACHE_RATIO.name();
        let capacity = server::KV_POOL_CAPACITY_BYTES.name();
        let pool = |name: &str| format!("{capacity}{{tier=\"host\",pool=\"{name}\"}} 1\n");
        let some =
            |pools: usize| -> String { (0..pools).map(|n| pool(&format!("p{n}"))).collect() };
        let of = |text: &str| read(&format!("{ratio} 2\n{text}"));
        assert_eq!(cache(&format!("{ratio} 2\n{}", some(POOLS_MAX))).pools.0.len(), POOLS_MAX);
        assert_eq!(of(&some(POOLS_MAX + 1)), Err(PageError::Pools));
        let long = "p".repeat(NAME_MAX);
        assert!(of(&pool(&long)).is_ok());
        for name in [format!("{long}p"), String::new(), "a b".to_owned(), "ü".to_owned()] {
            let refused = of(&pool(&name));
            assert!(matches!(refused, Err(PageError::Pool(_))), "{name}: {refused:?}");
        }
        let needed = server::KV_HIT_CURVE_REQUIRED_BYTES.name();
        let node = |node: u32| format!("{needed}{{numa_node=\"{node}\"}} 1\n");
        assert!(of(&node(NODES_MAX - 1)).is_ok());
        assert_eq!(of(&node(NODES_MAX)), Err(PageError::Node(NODES_MAX)));
    }
}
