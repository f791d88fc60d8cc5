//! Slabs of one part of one rank: where a page lies.

use types::{Bytes, PageId};

use super::HostLayout;
use super::system::Mapping;

/// What a page looks like.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) layers: usize,
    pub(crate) layer_bytes: usize,
    pub(crate) layout: HostLayout,
}

impl Shape {
    pub(crate) const fn page_bytes(self) -> usize {
        self.layers * self.layer_bytes
    }
}

/// Consecutive pages in one map.
#[derive(Debug)]
pub(crate) struct Slab {
    first: usize,
    pages: usize,
    shape: Shape,
    map: Mapping,
}

impl Slab {
    /// `map` has room for the pages.
    pub(super) fn new(first: usize, pages: usize, shape: Shape, map: Mapping) -> Self {
        assert!(pages * shape.page_bytes() <= map.bytes(), "a slab holds its pages");
        Self { first, pages, shape, map }
    }

    pub(super) const fn map(&self) -> &Mapping {
        &self.map
    }
}

/// The slabs, ascending by page.
#[derive(Debug, Default)]
pub(crate) struct Slabs {
    slabs: Vec<Slab>,
    /// Pages that count; the last slab may hold more.
    pages: usize,
}

impl Slabs {
    pub(crate) const fn pages(&self) -> usize {
        self.pages
    }

    /// Pages that the slabs hold.
    pub(super) fn held(&self) -> usize {
        self.slabs.last().map_or(0, |slab| slab.first + slab.pages)
    }

    pub(super) const fn len(&self) -> usize {
        self.slabs.len()
    }

    pub(super) fn mapped(&self) -> usize {
        self.slabs.iter().map(|slab| slab.map.bytes()).sum()
    }

    /// Adds slabs behind those there are.
    pub(super) fn add(&mut self, slabs: Vec<Slab>, pages: usize) {
        self.slabs.extend(slabs);
        self.pages = self.pages.max(pages).min(self.held());
    }

    /// Frees the slabs that hold no page below `pages`.
    pub(super) fn keep(&mut self, pages: usize) {
        self.slabs.retain(|slab| slab.first < pages);
        self.pages = pages.min(self.held());
    }

    /// Where the bytes of the `layer`-th layer of a page start. In page-first layouts the layers
    /// behind it follow.
    ///
    /// # Panics
    /// Where there is no such page or layer.
    pub(crate) fn address(&self, page: PageId, layer: usize) -> *mut u8 {
        let index = page.index();
        assert!(index < self.pages, "page {page} of {} in host memory", self.pages);
        let slab = &self.slabs[self.slabs.partition_point(|slab| slab.first <= index) - 1];
        let Shape { layers, layer_bytes, layout } = slab.shape;
        assert!(layer < layers, "layer {layer} of {layers} in host memory");
        let index = index - slab.first;
        let block = match layout {
            HostLayout::LayerFirst => layer * slab.pages + index,
            HostLayout::PageFirst | HostLayout::PageFirstDirect => index * layers + layer,
        };
        slab.map.at(block * layer_bytes)
    }

    /// The nodes on which the slabs lie and the bytes on each, as sampled.
    pub(super) fn placement(&self, samples: usize) -> Vec<(u32, Bytes)> {
        let mut found = Vec::new();
        for slab in &self.slabs {
            let nodes = slab.map.nodes(samples).unwrap_or_default();
            let each = (slab.map.bytes() / nodes.len().max(1)) as u64;
            found.extend(nodes.into_iter().map(|node| (node, Bytes(each))));
        }
        found
    }
}
