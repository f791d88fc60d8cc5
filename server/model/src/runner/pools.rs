//! The KV pools of a model: page ids, and the bytes that share them.

use memory_pool::{LinkPart, PartLayout};
use types::PoolId;

use super::ModelSpec;

/// An index pool: a pool with page ids of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolSpec {
    /// The pool's name, a label value: `kv` for layers that see everything, `swa` for those that
    /// see a sliding window.
    pub name: &'static str,
    /// Tokens of one page, over all its layers.
    pub page_tokens: usize,
    /// Positions that a token's query sees in this pool, its own included; `None`: all of them.
    /// Rows further back are never read again, so their pages may be given to others.
    pub window: Option<usize>,
    /// The byte pools that share the page ids; none where the ids stand for no bytes.
    pub parts: Vec<PartSpec>,
}

/// Bytes that share the page ids of an index pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartSpec {
    /// Its name, a label value; unique within a model.
    pub name: &'static str,
    /// The model's layers whose rows it holds, ascending.
    pub layers: Vec<usize>,
    /// Bytes of one page in one layer, on one rank.
    pub layer_bytes: u64,
    /// Whether the host tier mirrors it.
    pub host: bool,
    /// Whether every rank holds the same bytes, all of them: one rank's pages serve all. So it is
    /// where there is one rank.
    pub replicated: bool,
}

impl PoolSpec {
    /// The first position that the query of `position` sees.
    #[must_use]
    pub const fn first_seen(&self, position: usize) -> usize {
        match self.window {
            Some(window) => (position + 1).saturating_sub(window),
            None => 0,
        }
    }

    /// Bytes of one page, all parts.
    #[must_use]
    pub fn page_bytes(&self) -> u64 {
        self.parts.iter().map(PartSpec::page_bytes).sum()
    }

    /// Bytes of one page in the host tier: of the parts that it mirrors.
    #[must_use]
    pub fn host_page_bytes(&self) -> u64 {
        self.parts.iter().filter(|part| part.host).map(PartSpec::page_bytes).sum()
    }

    /// Layers of the model that have rows in a page.
    #[must_use]
    pub fn layers(&self) -> usize {
        let mut layers: Vec<usize> = self.parts.iter().flat_map(|p| p.layers.clone()).collect();
        layers.sort_unstable();
        layers.dedup();
        layers.len()
    }
}

impl PartSpec {
    /// Bytes of one page, all layers.
    #[must_use]
    pub const fn page_bytes(&self) -> u64 {
        self.layers.len() as u64 * self.layer_bytes
    }

    fn layout(&self, pages: usize) -> PartLayout {
        PartLayout {
            name: self.name,
            layers: self.layers.clone(),
            layer_bytes: usize::try_from(self.layer_bytes).unwrap_or(usize::MAX),
            pages,
            host: self.host,
        }
    }
}

impl ModelSpec {
    /// The parts of all pools and the pool that each belongs to, when the pools have `pages` pages
    /// each, in the order of `PoolId`. With pages of the device this is what a rank allocates; with
    /// pages of the host tier it is what `HostMemory` takes.
    ///
    /// # Panics
    /// Where `pages` has not one number per pool.
    #[must_use]
    pub fn part_layouts(&self, pages: &[usize]) -> Vec<(PartLayout, PoolId)> {
        assert_eq!(pages.len(), self.pools.len(), "a number of pages per pool");
        let pools = (0..).map(PoolId).zip(&self.pools).zip(pages);
        let parts = pools.flat_map(|((id, pool), pages)| {
            pool.parts.iter().map(move |part| (part.layout(*pages), id))
        });
        parts.collect()
    }

    /// The parts of all pools as a link to another process needs them, in the order of
    /// [`part_layouts`](Self::part_layouts).
    #[must_use]
    pub fn link_parts(&self) -> Vec<LinkPart> {
        let part = |pool: PoolId, part: &PartSpec| LinkPart {
            name: part.name,
            pool,
            layers: part.layers.clone(),
            layer_bytes: usize::try_from(part.layer_bytes).unwrap_or(usize::MAX),
            replicated: part.replicated,
        };
        let pools = (0..).map(PoolId).zip(&self.pools);
        pools.flat_map(|(id, pool)| pool.parts.iter().map(move |own| part(id, own))).collect()
    }

    /// Layers of the model, as far as any of them has rows in a page: what a pass that tells its
    /// progress ends with.
    #[must_use]
    pub fn layers(&self) -> usize {
        let parts = self.pools.iter().flat_map(|pool| &pool.parts);
        parts.filter_map(|part| part.layers.last()).max().map_or(0, |last| last + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::ModelRunner;

    #[test]
    fn a_pool_weighs_what_its_parts_weigh() {
        let part = |name, layers: &[usize], layer_bytes, host| PartSpec {
            name,
            layers: layers.to_vec(),
            layer_bytes,
            host,
            replicated: host,
        };
        let parts = vec![
            part("a", &[0, 2, 4], 10, true),
            part("b", &[2], 5, true),
            part("c", &[1, 3], 100, false),
        ];
        let pool = PoolSpec { name: "kv", page_tokens: 16, window: None, parts };
        assert_eq!((pool.page_bytes(), pool.host_page_bytes(), pool.layers()), (235, 35, 5));
        let spec = crate::FakeRunner::new(crate::FakeOptions::default()).spec().clone();
        let spec = ModelSpec { pools: vec![pool.clone()], ..spec };
        assert_eq!(spec.layers(), 5);
        let links = spec.link_parts();
        let links: Vec<_> = links.iter().map(|p| (p.name, p.layer_bytes, p.replicated)).collect();
        assert_eq!(links, [("a", 10, true), ("b", 5, true), ("c", 100, false)]);
        let anchor = PoolSpec { parts: Vec::new(), ..pool };
        assert_eq!((anchor.page_bytes(), anchor.layers()), (0, 0));
    }
}
