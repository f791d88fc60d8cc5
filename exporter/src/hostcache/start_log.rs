//! What SGLang says about its host pools when it starts, line by line.
//!
//! Every rank says one line for each pool, and lines of ranks mix. Sizes count once all ranks have
//! said all pools; nothing is known of a start of which lines are missing, and so each must be seen
//! from its first line on, the one with its arguments. That line also forgets the start before it.
//! This module reads no file.

use std::collections::{BTreeMap, BTreeSet};

use super::{ALL_POOLS, Cache, CacheSource, POOLS_MAX, Pools, is_pool};

/// Longest line that is looked at, in bytes; the arguments of a start are said on one line.
pub const LINE_MAX: usize = 64 << 10;
/// Most ranks on a machine, and most lines of a pool.
const RANKS_MAX: usize = 1024;
/// The pool of models that have one and do not name it.
const ONE_POOL: &str = "kv";

const ARGUMENTS: &str = "server_args=ServerArgs(";
const ALLOCATING: &str = "Allocating ";
const ATTACHED: &str = "Attached hybrid pool stack to ";
const READY: &str = "The server is fired up and ready to roll";

/// The arguments of a start, as far as they matter.
#[derive(Debug, Clone, Default, PartialEq)]
struct Arguments {
    /// Whether there is a host tier at all.
    tier: bool,
    ratio: Option<f64>,
    /// Decimal gigabytes of each rank.
    size: Option<f64>,
    /// Ranks on this machine.
    ranks: Option<usize>,
}

/// Bytes of a pool as its ranks said them.
#[derive(Debug, Clone, Default)]
struct Said {
    /// By rank.
    ranked: BTreeMap<String, Vec<u64>>,
    /// Of lines that name no rank.
    unranked: Vec<u64>,
}

impl Said {
    fn lines(&self) -> usize {
        self.unranked.len() + self.ranked.values().map(Vec::len).sum::<usize>()
    }

    fn bytes(&self) -> u64 {
        self.unranked.iter().chain(self.ranked.values().flatten()).sum()
    }
}

/// Follows one log. Lines are given in order.
#[derive(Debug, Clone, Default)]
pub struct StartLog {
    arguments: Option<Arguments>,
    pools: BTreeMap<String, Said>,
    /// Whether the pools are said after they have their memory, as those of DeepSeek-V4 are.
    after: bool,
    /// Times that the end of a rank's pools was said.
    attached: usize,
    ready: bool,
    /// What makes the start unusable, if anything does.
    spoilt: Option<&'static str>,
}

impl StartLog {
    /// Nothing was said yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The next line, without its end. Longer lines than [`LINE_MAX`] are passed over.
    pub fn line(&mut self, line: &str) {
        if line.len() > LINE_MAX {
            return;
        }
        if let Some((_, arguments)) = line.split_once(ARGUMENTS) {
            *self = Self { arguments: Some(Arguments::read(arguments)), ..Self::default() };
        } else if let Some((prefix, rest)) = line.split_once(ALLOCATING) {
            if let Some(pool) = PoolLine::read(rest) {
                self.pool(rank(prefix), &pool);
            }
        } else if line.contains(ATTACHED) {
            self.attached = self.attached.saturating_add(1).min(RANKS_MAX);
        } else if line.contains(READY) {
            self.ready = true;
        }
    }

    fn pool(&mut self, rank: Option<String>, pool: &PoolLine<'_>) {
        let known = self.pools.len();
        let said = self.pools.entry(pool.name.to_owned()).or_default();
        self.spoilt = if self.arguments.is_none() {
            // Which of its lines are lost, nobody knows.
            Some("it does not begin with the arguments of the start")
        } else if self.ready {
            Some("pools were allocated after the start, or by another one without its arguments")
        } else if known == POOLS_MAX && said.lines() == 0 {
            Some("it names more pools than any model has")
        } else if said.lines() == RANKS_MAX {
            Some("it has more lines of a pool than a machine has ranks")
        } else {
            self.spoilt
        };
        if self.spoilt.is_some() {
            self.pools.clear();
            return;
        }
        self.after |= pool.after;
        match rank {
            Some(rank) => said.ranked.entry(rank).or_default().push(pool.bytes),
            None => said.unranked.push(pool.bytes),
        }
    }

    /// Whether every rank has said every pool, and has its memory.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        // Pools of DeepSeek-V4 are said once they have their memory, and after the last pool each
        // rank says that it has them all. Others are said before.
        let held = |ranks| self.ready || (self.after && self.attached >= ranks);
        self.spoilt.is_none() && self.ranks().is_some_and(held)
    }

    /// Ranks that have said the same pools; `None` while that is not so.
    fn ranks(&self) -> Option<usize> {
        let expected = self.arguments.as_ref().and_then(|arguments| arguments.ranks);
        let names: BTreeSet<&String> = self.pools.values().next()?.ranked.keys().collect();
        if names.is_empty() {
            // Without names, only their number tells that all have spoken.
            let ranks = expected.unwrap_or(1);
            let whole = |lines: usize| match expected {
                Some(ranks) => lines.is_multiple_of(ranks),
                None => lines == 1,
            };
            let alike = |said: &Said| said.ranked.is_empty() && whole(said.unranked.len());
            return self.pools.values().all(alike).then_some(ranks);
        }
        let alike = |said: &Said| {
            let first = said.ranked.values().next().map_or(0, Vec::len);
            said.unranked.is_empty()
                && said.ranked.keys().eq(names.iter().copied())
                && said.ranked.values().all(|lines| lines.len() == first)
        };
        let all = expected.map_or_else(|| is_row(&names), |expected| names.len() == expected);
        (all && self.pools.values().all(alike)).then_some(names.len())
    }

    /// Planned and allocated bytes by pool, on no node in particular; `None` where the log does not
    /// say, and then [`Self::why_not`] says why.
    #[must_use]
    pub fn cache(&self) -> Option<Cache> {
        let arguments = self.arguments.clone().unwrap_or_default();
        let pools = if self.is_complete() {
            let pools = self.pools.iter();
            let pools = pools.map(|(name, said)| (name.as_str(), said.bytes()));
            let pools = pools.map(|(name, bytes)| (name, Some(bytes), Some(bytes)));
            Pools::spread(pools, &BTreeMap::new())
        } else if self.arguments.is_some() && !arguments.tier {
            // It has no tier, and says so.
            Pools::default()
        } else if self.spoilt.is_some() {
            return None;
        } else {
            // Each rank asks for the size; what came of it is not known yet.
            let (size, ranks) = (arguments.size?, arguments.ranks?);
            let bytes = (size * 1e9 * ranks as f64) as u64;
            let held = self.pools.is_empty().then_some(0);
            Pools::spread([(ALL_POOLS, Some(bytes), held)], &BTreeMap::new())
        };
        let ratio = arguments.ratio.filter(|_| arguments.size.is_none());
        Some(Cache {
            source: CacheSource::Log,
            pools,
            ratio,
            unit_bytes: None,
            target: None,
            placed: None,
        })
    }

    /// Why there are no sizes, as a clause about the log.
    #[must_use]
    pub fn why_not(&self) -> &'static str {
        match self.spoilt {
            Some(why) => why,
            None if self.pools.is_empty() => "it has no line of a host pool",
            None => "not every rank has said every pool",
        }
    }
}

/// Whether the tensor-parallel ranks among the names follow each other without a gap.
fn is_row(ranks: &BTreeSet<&String>) -> bool {
    let number = |rank: &&String| -> Option<usize> {
        rank.split(' ').find_map(|word| word.strip_prefix("TP"))?.parse().ok()
    };
    let numbers: BTreeSet<usize> = ranks.iter().filter_map(number).collect();
    match (numbers.first(), numbers.last()) {
        (Some(first), Some(last)) => last - first + 1 == numbers.len(),
        _ => true,
    }
}

/// The rank in the bracket at the start of a line: `[... DP0 TP3]`.
fn rank(prefix: &str) -> Option<String> {
    let (_, inner) = prefix.trim_end().strip_suffix(']')?.rsplit_once('[')?;
    let is_rank = |word: &&str| {
        let kind = word.trim_end_matches(|c: char| c.is_ascii_digit());
        matches!(kind, "TP" | "DP" | "PP" | "EP") && kind.len() < word.len() && word.len() < 12
    };
    let words: Vec<&str> = inner.split(' ').filter(is_rank).collect();
    (!words.is_empty()).then(|| words.join(" "))
}

impl Arguments {
    /// From the text behind the opening bracket. What is not said, or is `None`, is not known.
    fn read(text: &str) -> Self {
        let count = |name| field(text, name).and_then(|value| value.parse::<usize>().ok());
        let positive = |name| {
            let number = field(text, name).and_then(|value| value.parse::<f64>().ok());
            number.filter(|number| number.is_finite() && *number > 0.0)
        };
        let is_on = |name| field(text, name) == Some("True");
        let tensor = count("tp_size");
        let apart = if is_on("enable_dp_attention") { 1 } else { count("dp_size").unwrap_or(1) };
        let stages = count("pp_size").unwrap_or(1);
        let machines = count("nnodes").unwrap_or(1).max(1);
        let ranks = tensor.and_then(|tensor| tensor.checked_mul(apart)?.checked_mul(stages));
        let ranks = ranks.map(|ranks| ranks / machines);
        Self {
            tier: is_on("enable_hierarchical_cache") || is_on("enable_hicache"),
            ratio: positive("hicache_ratio"),
            size: positive("hicache_size"),
            ranks: ranks.filter(|ranks| (1..=RANKS_MAX).contains(ranks)),
        }
    }
}

/// The value of `name=` in a list of arguments.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let starts = text.match_indices(name).map(|(at, _)| at);
    let own = starts
        .filter(|at| *at == 0 || text[..*at].ends_with(' '))
        .find_map(|at| text[at + name.len()..].strip_prefix('='))?;
    own.split([',', ')']).next()
}

/// A line about one pool of one rank.
#[derive(Debug, PartialEq)]
struct PoolLine<'a> {
    name: &'a str,
    bytes: u64,
    after: bool,
}

impl<'a> PoolLine<'a> {
    /// From what follows `Allocating `; `None` where it is about something else.
    fn read(rest: &'a str) -> Option<Self> {
        let (gigabytes, what) = rest.split_once(" GB host memory for ")?;
        let gigabytes: f64 = gigabytes.parse().ok()?;
        // A terabyte of memory for one pool of one rank is a garbled line.
        let printed = (0.0..1e4).contains(&gigabytes).then_some(gigabytes * 1e9)?;
        if what.starts_with("hierarchical KV cache") {
            return Some(Self { name: ONE_POOL, bytes: printed.round() as u64, after: false });
        }
        let (kind, named) = what.strip_prefix("V4 ")?.split_once(" pool '")?;
        let (name, details) = named.split_once('\'')?;
        let fits = is_pool(name);
        let item = match kind {
            "paged" => "item_bytes",
            "state" => "state_page_bytes",
            _ => return None,
        };
        let details = details.trim_start().strip_prefix('(').unwrap_or_default();
        let number = |name| field(details, name).and_then(|value| value.parse::<u64>().ok());
        let exact = || {
            let rows = number("layers")?.checked_mul(number("pages")?)?;
            rows.checked_mul(number(item)?)
        };
        // Two decimals are what is printed; the exact size must agree with them.
        let agrees = |exact: &u64| (*exact as f64 - printed).abs() <= 0.006e9;
        let bytes = exact().filter(agrees).unwrap_or(printed.round() as u64);
        fits.then_some(Self { name, bytes, after: true })
    }
}

#[cfg(test)]
mod tests;
