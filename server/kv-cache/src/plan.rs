//! How large the host tier gets: pools, ranks and NUMA nodes to pages and bytes, before anything is
//! allocated.
//!
//! Every pool of the device has `ratio` times as many pages on the host, of the parts that are
//! mirrored there; each rank holds all of it. The sum is checked once, against the room of every
//! NUMA node and against what holds for the process as a whole, and not pool by pool.
//!
//! Nothing here reads the machine or a model: both come as numbers.

mod fit;

#[cfg(test)]
mod tests;

pub use fit::{Largest, Limit, NodeRoom, Room, Shortage};

/// Page ids have 32 bits, and the last one stands for none.
const PAGES_MAX: usize = u32::MAX as usize - 1;

/// Bytes that share the page ids of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanPart {
    /// Its name, a label value.
    pub name: &'static str,
    /// Bytes of one page, all layers, on one rank.
    pub page_bytes: u64,
    /// Whether the host tier mirrors it.
    pub host: bool,
}

/// How the pages of a pool on the host follow from those on the device and the ratio.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizing {
    /// At least so many pages more than the device has; `None`: there may be fewer.
    pub least_above: Option<usize>,
    /// Pages added in the end.
    pub more: usize,
}

impl Sizing {
    /// As this engine does: the product rounded down, never less than the device has.
    pub const OWN: Self = Self { least_above: Some(0), more: 0 };

    /// Host pages of a pool that has `device` pages on the device.
    #[must_use]
    pub fn pages(self, device: usize, ratio: f64) -> usize {
        let product = (device as f64 * ratio) as usize;
        let least = self.least_above.map_or(0, |above| device.saturating_add(above));
        product.max(least).saturating_add(self.more)
    }
}

/// An index pool: page ids, and the parts that share them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanPool {
    /// Its name.
    pub name: &'static str,
    /// Tokens of a page.
    pub page_tokens: usize,
    /// Pages on the device, of one rank; at least 1.
    pub device_pages: usize,
    /// The rule that gives the pages on the host.
    pub sizing: Sizing,
    /// What the ids stand for; empty for a pool without bytes of its own.
    pub parts: Vec<PlanPart>,
}

impl PlanPool {
    /// Bytes of a page on the host, of one rank.
    #[must_use]
    pub fn host_page_bytes(&self) -> u64 {
        let mirrored = self.parts.iter().filter(|part| part.host);
        mirrored.fold(0, |sum: u64, part| sum.saturating_add(part.page_bytes))
    }
}

/// What the tier is wanted to be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Want {
    /// So many times the device's pages; at least 1.
    Ratio(f64),
    /// So many bytes on each rank.
    RankBytes(u64),
    /// So many bytes, all ranks together.
    TotalBytes(u64),
}

/// All that a plan follows from.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanInput {
    /// The pools of the model, in the order of `PoolId`.
    pub pools: Vec<PlanPool>,
    /// One per rank of this process: the NUMA node that holds its part, or `None` for wherever the
    /// system puts it. At least one.
    pub ranks: Vec<Option<u32>>,
    /// What is wanted.
    pub want: Want,
    /// What there is.
    pub room: Room,
}

/// A part of a pool, sized.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartShare {
    /// Its name.
    pub name: &'static str,
    /// Bytes of one page, all layers, on one rank.
    pub page_bytes: u64,
    /// Bytes on the device, of one rank.
    pub device_bytes: u64,
    /// Bytes on the host, of one rank; 0 where it is not mirrored.
    pub host_bytes: u64,
}

/// A pool, sized.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolShare {
    /// Its name.
    pub name: &'static str,
    /// Tokens of a page.
    pub page_tokens: usize,
    /// Pages on the device, of one rank.
    pub device_pages: usize,
    /// Pages on the host, of one rank.
    pub host_pages: usize,
    /// Its parts, in the order of the input.
    pub parts: Vec<PartShare>,
}

/// What one NUMA node holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeShare {
    /// The node; `None` for ranks that are bound to none.
    pub node: Option<u32>,
    /// The ranks whose part it holds.
    pub ranks: Vec<usize>,
    /// Bytes of those.
    pub bytes: u64,
    /// What it has room for; `None` where that is not known.
    pub room: Option<u64>,
}

/// The host tier, sized.
#[derive(Debug, Clone, PartialEq)]
pub struct HostTierPlan {
    /// The ratio that was given, or that follows from the bytes.
    pub ratio: f64,
    /// The pools.
    pub pools: Vec<PoolShare>,
    /// Bytes of each rank: all hold the same.
    pub rank_bytes: u64,
    /// Bytes per node, ascending, ranks that are bound to none last.
    pub nodes: Vec<NodeShare>,
    /// Bytes of all ranks.
    pub total_bytes: u64,
    /// Bytes that one more unit of ratio costs, all ranks together.
    pub unit_bytes: u64,
    /// Where it does not fit; empty where it does.
    pub shortages: Vec<Shortage>,
    /// The largest ratio that fits.
    pub largest: Largest,
}

impl HostTierPlan {
    /// Whether every node and the process as a whole have room for it.
    #[must_use]
    pub fn fits(&self) -> bool {
        self.shortages.is_empty()
    }

    /// Host pages per pool, in the order of `PoolId`.
    #[must_use]
    pub fn host_pages(&self) -> Vec<usize> {
        self.pools.iter().map(|pool| pool.host_pages).collect()
    }
}

/// No tier can be planned from the input.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// There is no rank.
    #[error("there are no ranks; at least one holds the tier")]
    NoRanks,
    /// A pool has no pages on the device, so that no multiple of them means anything.
    #[error("pool {pool} has no pages on the device, and the tier is a multiple of them")]
    NoDevicePages {
        /// The pool.
        pool: &'static str,
    },
    /// No part of any pool is mirrored on the host.
    #[error("no pool has bytes that the host could hold")]
    NothingMirrored,
    /// The tier would hold less than the device.
    #[error(
        "ratio {ratio:.4} gives the host fewer pages than the device has, and every page of the \
         device has a copy on the host; ratio 1 takes {least_bytes} bytes over all ranks"
    )]
    BelowOne {
        /// The ratio, given or computed.
        ratio: f64,
        /// Bytes of ratio 1, all ranks.
        least_bytes: u64,
    },
    /// A pool would have more pages than page ids.
    #[error(
        "ratio {ratio:.4} gives pool {pool} more than {PAGES_MAX} pages; ratio {most} does not"
    )]
    TooManyPages {
        /// The ratio, given or computed.
        ratio: f64,
        /// The pool.
        pool: &'static str,
        /// The largest whole ratio that can be counted.
        most: usize,
    },
}

/// Sizes the host tier.
///
/// A tier that does not fit is a plan all the same, with [`HostTierPlan::shortages`]. The bytes of
/// `want` are never exceeded, except by pools whose [`Sizing`] has a floor.
///
/// # Errors
/// [`PlanError`]: the input describes no tier.
pub fn plan_host_tier(input: &PlanInput) -> Result<HostTierPlan, PlanError> {
    let ratio = input.ratio()?;
    let pools: Vec<PoolShare> = input.pools.iter().map(|pool| share(pool, ratio)).collect();
    let nodes = input.nodes(ratio);
    Ok(HostTierPlan {
        ratio,
        pools,
        rank_bytes: input.rank_bytes(ratio),
        total_bytes: input.total_bytes(ratio),
        unit_bytes: input.unit_bytes(),
        shortages: fit::shortages(input, ratio),
        largest: fit::largest(input),
        nodes,
    })
}

fn share(pool: &PlanPool, ratio: f64) -> PoolShare {
    let host_pages = pool.sizing.pages(pool.device_pages, ratio);
    let times = |bytes: u64, pages: usize| bytes.saturating_mul(pages as u64);
    let parts = pool.parts.iter().map(|part| PartShare {
        name: part.name,
        page_bytes: part.page_bytes,
        device_bytes: times(part.page_bytes, pool.device_pages),
        host_bytes: if part.host { times(part.page_bytes, host_pages) } else { 0 },
    });
    PoolShare {
        name: pool.name,
        page_tokens: pool.page_tokens,
        device_pages: pool.device_pages,
        host_pages,
        parts: parts.collect(),
    }
}

impl PlanInput {
    /// Bytes of one rank at `ratio`.
    #[must_use]
    pub fn rank_bytes(&self, ratio: f64) -> u64 {
        let bytes = self.pools.iter().map(|pool| {
            let pages = pool.sizing.pages(pool.device_pages, ratio) as u64;
            pool.host_page_bytes().saturating_mul(pages)
        });
        bytes.fold(0, u64::saturating_add)
    }

    /// Bytes of all ranks at `ratio`.
    #[must_use]
    pub fn total_bytes(&self, ratio: f64) -> u64 {
        self.rank_bytes(ratio).saturating_mul(self.ranks.len() as u64)
    }

    /// Bytes that one more unit of ratio costs, all ranks together.
    #[must_use]
    pub fn unit_bytes(&self) -> u64 {
        self.rank_unit().saturating_mul(self.ranks.len() as u64)
    }

    /// The largest ratio of at most two decimals at which all ranks together take no more than
    /// `bytes`; `None` where not even 1 does.
    #[must_use]
    pub fn ratio_within(&self, bytes: u64) -> Option<f64> {
        fit::largest_where(self, |ratio| self.total_bytes(ratio) <= bytes)
    }

    /// The largest ratio that fits everywhere.
    #[must_use]
    pub fn largest(&self) -> Largest {
        fit::largest(self)
    }

    /// Every limit that the tier exceeds at `ratio`.
    #[must_use]
    pub fn shortages(&self, ratio: f64) -> Vec<Shortage> {
        fit::shortages(self, ratio)
    }

    /// What each node holds at `ratio`.
    #[must_use]
    pub fn nodes(&self, ratio: f64) -> Vec<NodeShare> {
        let each = self.rank_bytes(ratio);
        let mut named: Vec<Option<u32>> = self.ranks.clone();
        // Ranks that are bound to none come last.
        named.sort_unstable_by_key(|node| (node.is_none(), *node));
        named.dedup();
        let nodes = named.into_iter().map(|node| {
            let of = |(rank, at): (usize, &Option<u32>)| (*at == node).then_some(rank);
            let ranks: Vec<usize> = self.ranks.iter().enumerate().filter_map(of).collect();
            let bytes = each.saturating_mul(ranks.len() as u64);
            NodeShare { node, bytes, room: self.room.of(node), ranks }
        });
        nodes.collect()
    }

    fn rank_unit(&self) -> u64 {
        let bytes = self
            .pools
            .iter()
            .map(|pool| pool.host_page_bytes().saturating_mul(pool.device_pages as u64));
        bytes.fold(0, u64::saturating_add)
    }

    fn ratio(&self) -> Result<f64, PlanError> {
        if self.ranks.is_empty() {
            return Err(PlanError::NoRanks);
        }
        if let Some(pool) = self.pools.iter().find(|pool| pool.device_pages == 0) {
            return Err(PlanError::NoDevicePages { pool: pool.name });
        }
        if self.rank_unit() == 0 {
            return Err(PlanError::NothingMirrored);
        }
        let ratio = match self.want {
            Want::Ratio(ratio) => ratio,
            Want::RankBytes(bytes) => bytes as f64 / self.rank_unit() as f64,
            Want::TotalBytes(bytes) => bytes as f64 / self.unit_bytes() as f64,
        };
        if ratio.is_nan() || ratio < 1.0 {
            return Err(PlanError::BelowOne { ratio, least_bytes: self.total_bytes(1.0) });
        }
        let over = |pool: &&PlanPool| pool.sizing.pages(pool.device_pages, ratio) > PAGES_MAX;
        match self.pools.iter().filter(over).max_by_key(|pool| pool.device_pages) {
            Some(pool) => {
                let most = (PAGES_MAX - pool.sizing.more) / pool.device_pages;
                Err(PlanError::TooManyPages { ratio, pool: pool.name, most })
            }
            None => Ok(ratio),
        }
    }
}
