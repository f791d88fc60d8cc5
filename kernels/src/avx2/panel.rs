//! What all packed-panel kernels share: storage, the split over threads, blocking over rows.

use std::marker::PhantomData;
use std::ops::Range;

use crate::buffer::{AlignedBytes, SharedOut};
use crate::linear::{StoredMatrix, check_shapes};
use crate::{Activations, Linear, ThreadPool, WeightFormat};

/// Rows of the largest tile.
pub(super) const TILE_ROWS: usize = 4;
/// Outputs of the widest panel.
pub(super) const MAX_OUTPUTS: usize = 24;
/// Rows that share a pass over a panel at most.
const BLOCK_ROWS: usize = 64;
/// Activations of such rows should stay in the second-level cache.
const BLOCK_BYTES: usize = 192 * 1024;
/// Weight bytes times rows that are worth a turn of a thread.
const MIN_WORK: usize = 32 * 1024;

/// Running sums of one row of a tile.
pub(super) type Sums = [f32; MAX_OUTPUTS];

/// One way to pack and multiply a panel.
///
/// # Safety
/// `tile` may rely on what its documentation states; `panel_bytes`, `pack_panel` and `row_bytes`
/// must agree with what it reads.
pub(super) unsafe trait PanelKernel: Send + Sync + 'static {
    /// Name for logs and metrics.
    const NAME: &'static str;
    /// The stored form it packs.
    const FORMAT: WeightFormat;
    /// Outputs of a panel, at most [`MAX_OUTPUTS`].
    const OUTPUTS: usize;
    /// Input features of one pass; sums are kept between passes.
    const PASS: usize;
    /// Bytes of one activation value as the kernel reads it.
    const VALUE_BYTES: usize;

    /// The activations as the kernel reads them.
    type Input<'a>: Copy + Send + Sync;

    /// Bytes of a panel for `k` input features; a multiple of 16.
    fn panel_bytes(k: usize) -> usize;

    /// Packs the outputs from `first` on; those beyond the last are zeros already.
    fn pack_panel(w: &StoredMatrix<'_>, first: usize, panel: &mut [u8]);

    /// Prepares the activations.
    fn input<'a>(x: &'a Activations, pool: &ThreadPool) -> Self::Input<'a>;

    /// Adds the products of input features `k` to the sums of `sums.len()` rows from `row` on.
    ///
    /// # Safety
    /// The processor has AVX2, FMA and F16C; `panel` was packed by `pack_panel`; the rows exist in
    /// `input`, whose rows have as many features as the panel; `k` lies inside them and starts and
    /// ends at multiples of `PASS` or at the end; `1 <= sums.len() <= TILE_ROWS`.
    unsafe fn tile(
        panel: &[u8],
        input: Self::Input<'_>,
        row: usize,
        k: Range<usize>,
        sums: &mut [Sums],
    );
}

/// A matrix packed for kernel `K`.
pub(super) struct PanelLinear<K> {
    weights: AlignedBytes,
    out_features: usize,
    in_features: usize,
    kernel: PhantomData<K>,
}

impl<K: PanelKernel> PanelLinear<K> {
    pub(super) fn new(w: StoredMatrix<'_>) -> Self {
        let panels = w.out_features.div_ceil(K::OUTPUTS);
        let panel_bytes = K::panel_bytes(w.in_features);
        let mut weights = AlignedBytes::zeroed(panels * panel_bytes);
        if panel_bytes > 0 {
            let chunks = weights.as_mut_slice().chunks_exact_mut(panel_bytes);
            for (panel, bytes) in chunks.enumerate().take(panels) {
                K::pack_panel(&w, panel * K::OUTPUTS, bytes);
            }
        }
        let (out_features, in_features) = (w.out_features, w.in_features);
        Self { weights, out_features, in_features, kernel: PhantomData }
    }

    fn panels(&self) -> usize {
        self.out_features.div_ceil(K::OUTPUTS)
    }

    /// All rows of a few panels.
    fn run(
        &self,
        panels: Range<usize>,
        input: K::Input<'_>,
        rows: usize,
        out: &SharedOut<'_, f32>,
    ) {
        let k = self.in_features;
        let fitting = BLOCK_BYTES / (k * K::VALUE_BYTES).max(1);
        let block = (fitting / TILE_ROWS * TILE_ROWS).clamp(TILE_ROWS, BLOCK_ROWS);
        let mut sums = [[0.0; MAX_OUTPUTS]; BLOCK_ROWS];
        for first in (0..rows).step_by(block) {
            let sums = &mut sums[..block.min(rows - first)];
            for panel in panels.clone() {
                self.panel_rows(panel, input, first, sums);
                let at = panel * K::OUTPUTS;
                let width = K::OUTPUTS.min(self.out_features - at);
                for (i, sums) in sums.iter().enumerate() {
                    let at = (first + i) * self.out_features + at;
                    // SAFETY: this thread alone has this panel, hence these outputs of any row.
                    unsafe { out.slice(at..at + width) }.copy_from_slice(&sums[..width]);
                }
            }
        }
    }

    /// The sums of one panel for the rows from `first` on.
    fn panel_rows(&self, panel: usize, input: K::Input<'_>, first: usize, sums: &mut [Sums]) {
        let k = self.in_features;
        let bytes = K::panel_bytes(k);
        let panel = &self.weights.as_slice()[panel * bytes..(panel + 1) * bytes];
        sums.fill([0.0; MAX_OUTPUTS]);
        for start in (0..k).step_by(K::PASS) {
            let pass = start..k.min(start.saturating_add(K::PASS));
            for (i, sums) in sums.chunks_mut(TILE_ROWS).enumerate() {
                let row = first + i * TILE_ROWS;
                // SAFETY: the registry offers this kernel only where its instructions exist; the
                // panel was packed in `new`; `forward` checked that the activations have
                // `in_features` features, and the rows are some of theirs; passes start at
                // multiples of `PASS`; chunks are not empty and at most `TILE_ROWS` long.
                unsafe { K::tile(panel, input, row, pass.clone(), sums) };
            }
        }
    }
}

impl<K: PanelKernel> Linear for PanelLinear<K> {
    fn in_features(&self) -> usize {
        self.in_features
    }

    fn out_features(&self) -> usize {
        self.out_features
    }

    fn forward(&self, x: &Activations, y: &mut [f32], pool: &ThreadPool) {
        if !check_shapes(self, x, y) {
            return;
        }
        let input = K::input(x, pool);
        let panels = self.panels();
        let work = K::panel_bytes(self.in_features).max(1) * x.rows();
        let even = panels.div_ceil(pool.threads() * 4);
        let grain = even.max(MIN_WORK.div_ceil(work));
        let out = SharedOut::new(y);
        pool.parallel_for(panels, grain, |panels| self.run(panels, input, x.rows(), &out));
    }

    fn kernel(&self) -> &'static str {
        K::NAME
    }

    fn format(&self) -> WeightFormat {
        K::FORMAT
    }

    fn weight_bytes(&self) -> u64 {
        self.weights.as_slice().len() as u64
    }
}
