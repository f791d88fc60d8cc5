//! The device pool: every KV page of this process, in one allocation.

use memmap2::MmapMut;
use types::{Bytes, PageId};

use crate::layout::KvLayout;

/// Why a pool could not be made.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// The number of bytes does not fit into this machine's address space.
    #[error("{pages} pages of {page} are more than this machine can address")]
    TooLarge {
        /// What was asked for.
        pages: usize,
        /// Bytes of one page.
        page: Bytes,
    },
    /// The system refused.
    #[error("cannot allocate {bytes} of KV pages: {source}")]
    Refused {
        /// What was asked for.
        bytes: Bytes,
        /// The system's reason.
        source: std::io::Error,
    },
}

/// `pages` pages of f32 K/V rows. Memory is zero and is taken from the system as it is touched.
#[derive(Debug)]
pub struct DevicePool {
    layout: KvLayout,
    pages: usize,
    /// `None` where the pool has no bytes, which the system would refuse to map.
    map: Option<MmapMut>,
}

impl DevicePool {
    /// Allocates the pool.
    ///
    /// # Errors
    /// [`PoolError`] where the system has no room for it.
    pub fn new(layout: KvLayout, pages: usize) -> Result<Self, PoolError> {
        let page = Bytes(layout.page_bytes());
        let bytes = (page.0 as usize).checked_mul(pages).filter(|n| isize::try_from(*n).is_ok());
        let bytes = bytes.ok_or(PoolError::TooLarge { pages, page })?;
        let map = if bytes == 0 {
            None
        } else {
            let refused = |source| PoolError::Refused { bytes: Bytes(bytes as u64), source };
            Some(MmapMut::map_anon(bytes).map_err(refused)?)
        };
        Ok(Self { layout, pages, map })
    }

    /// How a page is laid out.
    #[must_use]
    pub const fn layout(&self) -> &KvLayout {
        &self.layout
    }

    /// Number of pages.
    #[must_use]
    pub const fn pages(&self) -> usize {
        self.pages
    }

    /// Bytes of all pages.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        Bytes(self.layout.page_bytes() * self.pages as u64)
    }

    /// All pages, one after the other, as attention reads them: page `p` starts at
    /// `p * layout.page_len()`.
    #[must_use]
    pub fn values(&self) -> &[f32] {
        // A map starts at a system page, so it is aligned for f32.
        self.map.as_deref().map_or(&[], bytemuck::cast_slice)
    }

    /// One page.
    ///
    /// # Panics
    /// Where `page` is not in the pool.
    #[must_use]
    pub fn page(&self, page: PageId) -> &[f32] {
        let len = self.layout.page_len();
        &self.values()[page.index() * len..][..len]
    }

    fn page_mut(&mut self, page: PageId) -> &mut [f32] {
        let len = self.layout.page_len();
        let values = self.map.as_deref_mut().map_or(&mut [][..], bytemuck::cast_slice_mut);
        &mut values[page.index() * len..][..len]
    }

    /// Stores the K and V rows of one token: `kv_heads * head_dim` numbers each, head after head.
    ///
    /// # Panics
    /// Where `page`, `layer` or `slot` is out of range, or a row has another length.
    pub fn write(&mut self, page: PageId, layer: usize, slot: usize, k: &[f32], v: &[f32]) {
        let layout = self.layout;
        assert!(layer < layout.layers && slot < layout.page_tokens, "layer {layer}, slot {slot}");
        assert_eq!(k.len(), layout.kv_heads * layout.head_dim, "a K row of all heads");
        assert_eq!(v.len(), k.len(), "a V row of all heads");
        let page = self.page_mut(page);
        for (part, rows) in [(layout.k_part(layer), k), (layout.v_part(layer), v)] {
            for (head, row) in rows.chunks_exact(layout.head_dim).enumerate() {
                let at = part + layout.row(head, slot);
                page[at..at + layout.head_dim].copy_from_slice(row);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: KvLayout = KvLayout { layers: 2, kv_heads: 3, head_dim: 4, page_tokens: 5 };

    #[test]
    fn rows_are_found_where_the_layout_says() {
        let mut pool = DevicePool::new(LAYOUT, 3).unwrap();
        assert_eq!(pool.bytes(), Bytes(3 * 2 * 2 * 3 * 5 * 4 * 4));
        let k: Vec<f32> = (0..12).map(|i| i as f32).collect();
        let v: Vec<f32> = (100..112).map(|i| i as f32).collect();
        pool.write(PageId(2), 1, 4, &k, &v);
        let page = pool.page(PageId(2));
        let at = LAYOUT.k_part(1) + LAYOUT.row(2, 4);
        assert_eq!(page[at..at + 4], k[8..]);
        let at = LAYOUT.v_part(1) + LAYOUT.row(0, 4);
        assert_eq!(page[at..at + 4], v[..4]);
        assert_eq!(page.iter().filter(|x| **x != 0.0).count(), 23);
        assert!(pool.page(PageId(1)).iter().all(|x| *x == 0.0));
        assert_eq!(pool.values().len(), 3 * LAYOUT.page_len());
    }

    #[test]
    fn impossible_sizes_are_errors() {
        assert!(matches!(
            DevicePool::new(LAYOUT, usize::MAX),
            Err(PoolError::TooLarge { pages: usize::MAX, .. })
        ));
        let error = DevicePool::new(LAYOUT, 1 << 50).unwrap_err().to_string();
        assert!(error.contains("cannot allocate"), "{error}");
        assert_eq!(DevicePool::new(LAYOUT, 0).unwrap().values().len(), 0);
    }
}
