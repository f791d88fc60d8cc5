//! What all packed-panel kernels share: storage and the split over threads.

use std::marker::PhantomData;
use std::ops::Range;

use crate::buffer::{AlignedBytes, SharedOut};
use crate::linear::StoredMatrix;
use crate::linear::parts::Parts;
use crate::{Activations, Linear, ThreadPool, WeightFormat};

/// Weight bytes times rows that are worth a turn of a thread.
const MIN_WORK: usize = 32 * 1024;

/// One way to pack and multiply panels.
///
/// # Safety
/// `run` must write only the outputs of its panels.
pub(super) unsafe trait PanelKernel: Send + Sync + 'static {
    /// Name for logs and metrics.
    const NAME: &'static str;
    /// The stored form it packs.
    const FORMAT: WeightFormat;
    /// Outputs of a panel.
    const OUTPUTS: usize;
    /// Panels that are best computed by the same thread.
    const TOGETHER: usize;

    /// The activations as the kernel reads them.
    type Input<'a>: Copy + Send + Sync;

    /// Bytes of a panel for `k` input features.
    fn panel_bytes(k: usize) -> usize;

    /// Packs the outputs from `first` on; those beyond the last are zeros already.
    fn pack_panel(w: &StoredMatrix<'_>, first: usize, panel: &mut [u8]);

    /// Prepares the activations.
    fn input<'a>(x: &'a Activations, pool: &ThreadPool) -> Self::Input<'a>;

    /// All rows of `input` times a range of panels.
    ///
    /// # Safety
    /// The processor has AVX2, FMA and F16C; `input` has as many features as the matrix; no other
    /// thread writes the outputs of these panels.
    unsafe fn run(w: Panels<'_>, range: Range<usize>, input: Self::Input<'_>, out: &Outputs<'_>);
}

/// The packed panels of a matrix.
#[derive(Clone, Copy)]
pub(super) struct Panels<'a> {
    bytes: &'a [u8],
    panel_bytes: usize,
    /// Input features.
    pub(super) k: usize,
}

impl<'a> Panels<'a> {
    /// One panel and all that follow it.
    pub(super) fn from(&self, panel: usize) -> &'a [u8] {
        &self.bytes[panel * self.panel_bytes..]
    }

    /// Distance of neighbouring panels.
    pub(super) fn stride(&self) -> usize {
        self.panel_bytes
    }
}

/// The output matrix.
pub(super) struct Outputs<'a> {
    values: &'a SharedOut<'a, f32>,
    pub(super) rows: usize,
    out_features: usize,
}

impl Outputs<'_> {
    /// Where outputs `first..first + N` of a row are, unless some lie beyond the last.
    ///
    /// # Safety
    /// No other thread accesses these outputs while the result lives.
    #[inline]
    #[expect(clippy::mut_from_ref, reason = "disjointness is the caller's promise")]
    pub(super) unsafe fn whole<const N: usize>(
        &self,
        row: usize,
        first: usize,
    ) -> Option<&mut [f32; N]> {
        if first + N > self.out_features {
            return None;
        }
        let at = row * self.out_features + first;
        // SAFETY: the caller's promise.
        unsafe { self.values.slice(at..at + N) }.first_chunk_mut()
    }

    /// Stores outputs `first..first + values.len()` of a row, leaving out those beyond the last.
    ///
    /// # Safety
    /// No other thread accesses these outputs.
    pub(super) unsafe fn store(&self, row: usize, first: usize, values: &[f32]) {
        let width = values.len().min(self.out_features - first);
        let at = row * self.out_features + first;
        // SAFETY: the caller's promise; the reference ends with the copy.
        unsafe { self.values.slice(at..at + width) }.copy_from_slice(&values[..width]);
    }
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
}

impl<K: PanelKernel> Parts for PanelLinear<K> {
    fn parts(&self, rows: usize, threads: usize) -> (usize, usize) {
        let panels = self.out_features.div_ceil(K::OUTPUTS);
        let even = panels.div_ceil(threads * 4);
        let panel_bytes = K::panel_bytes(self.in_features).max(1);
        let grain = even.max(MIN_WORK.div_ceil(panel_bytes * rows));
        (panels, grain.next_multiple_of(K::TOGETHER))
    }

    fn prepare(&self, x: &Activations, pool: &ThreadPool) {
        K::input(x, pool);
    }

    unsafe fn run(
        &self,
        panels: Range<usize>,
        x: &Activations,
        out: &SharedOut<'_, f32>,
        pool: &ThreadPool,
    ) {
        let (k, bytes) = (self.in_features, self.weights.as_slice());
        let w = Panels { bytes, panel_bytes: K::panel_bytes(k), k };
        let out = Outputs { values: out, rows: x.rows(), out_features: self.out_features };
        // SAFETY: the registry offers this kernel only where its instructions exist; the features
        // were checked; the caller's promise about the panels.
        unsafe { K::run(w, panels, K::input(x, pool), &out) };
    }
}

impl<K: PanelKernel> Linear for PanelLinear<K> {
    fn in_features(&self) -> usize {
        self.in_features
    }

    fn out_features(&self) -> usize {
        self.out_features
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
