//! Matrix products over packed weights: the trait, and the registry that picks a kernel.
//!
//! A kernel repacks the stored bytes once, at load, into whatever layout it likes. Adding one (for
//! other vector widths or tile units) means adding an entry to the registry.

use crate::buffer::SharedOut;
use crate::caps::CpuCaps;
use crate::reference::ReferenceLinear;
use crate::{Activations, KernelError, KernelPath, ThreadPool, WeightFormat};

/// A packed weight matrix W of `out_features` x `in_features`: computes `y = x W^T`, see
/// [`forward`](trait.Linear.html#method.forward) and [`forward_all`].
///
/// The result of a row depends on that row and W alone, bit for bit: not on the other rows, their
/// number, or the number of threads. With quantised weights the activations take part as int8 per
/// 32 values; block sums are exact integers and their f32 scales are applied in one fixed order.
/// Against the product of the decoded weights in f32 each activation is off by at most half a step,
/// 1/254 of the largest of its 32, and so each output by that times the weights' magnitudes.
/// With float weights each output is one chain of multiply-adds over the input features in order.
pub trait Linear: Send + Sync + parts::Parts {
    /// Values of one input row.
    fn in_features(&self) -> usize;

    /// Values of one output row.
    fn out_features(&self) -> usize;

    /// The name of the kernel, for logs and metrics.
    fn kernel(&self) -> &'static str;

    /// The stored form that was packed.
    fn format(&self) -> WeightFormat;

    /// Bytes of memory that the packed weights occupy.
    fn weight_bytes(&self) -> u64;
}

pub(crate) mod parts {
    use std::ops::Range;

    use crate::buffer::SharedOut;
    use crate::{Activations, ThreadPool};

    /// How a kernel's work is shared among threads.
    pub trait Parts {
        /// Number of parts of a product with `rows` rows (at least one of both, and of features),
        /// and how many of them are worth a turn of one of `threads` threads.
        fn parts(&self, rows: usize, threads: usize) -> (usize, usize);

        /// Makes the form of the activations that [`run`](Self::run) reads.
        fn prepare(&self, x: &Activations, pool: &ThreadPool);

        /// Computes a range of parts, all rows of each. The activations are prepared.
        ///
        /// # Safety
        /// `out` is rows x output features, and no other thread has one of these parts.
        unsafe fn run(
            &self,
            parts: Range<usize>,
            x: &Activations,
            out: &SharedOut<'_, f32>,
            pool: &ThreadPool,
        );
    }
}

impl dyn Linear + '_ {
    /// Writes `x.rows()` x `out_features()` values to `y`.
    ///
    /// # Panics
    /// When `x` does not have `in_features()` features or `y` has another length.
    pub fn forward(&self, x: &Activations, y: &mut [f32], pool: &ThreadPool) {
        forward_all([self], x, [y], pool);
    }
}

/// Several linears of the same activations, handed to the threads at once: that saves the waits
/// between them. What each computes is what it computes alone.
///
/// # Panics
/// As [`forward`](trait.Linear.html#method.forward), for each.
pub fn forward_all<const N: usize>(
    linears: [&dyn Linear; N],
    x: &Activations,
    outputs: [&mut [f32]; N],
    pool: &ThreadPool,
) {
    // Parts, parts of a turn, and the first turn of each linear.
    let mut shares = [(0, 1, 0); N];
    let mut turns = 0;
    for ((linear, y), share) in linears.iter().zip(&outputs).zip(&mut shares) {
        if check_shapes(*linear, x, y) {
            linear.prepare(x, pool);
            let (parts, grain) = linear.parts(x.rows(), pool.threads());
            *share = (parts, grain, turns);
            turns += parts.div_ceil(grain);
        } else {
            share.2 = turns;
        }
    }
    let outputs = outputs.map(SharedOut::new);
    pool.parallel_for(turns, 1, |range| {
        for turn in range {
            let at = shares.partition_point(|share| share.2 <= turn) - 1;
            let (parts, grain, first) = shares[at];
            let start = (turn - first) * grain;
            let parts = start..parts.min(start + grain);
            // SAFETY: the shapes were checked, and `parallel_for` hands out each turn once.
            unsafe { linears[at].run(parts, x, &outputs[at], pool) };
        }
    });
}

/// Stored weights whose size has been checked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StoredMatrix<'a> {
    pub(crate) format: WeightFormat,
    pub(crate) bytes: &'a [u8],
    pub(crate) out_features: usize,
    pub(crate) in_features: usize,
}

impl<'a> StoredMatrix<'a> {
    /// The stored bytes of one row.
    pub(crate) fn row(&self, row: usize) -> &'a [u8] {
        let len = self.bytes.len() / self.out_features;
        &self.bytes[row * len..(row + 1) * len]
    }
}

/// One way to multiply with weights of one format.
pub(crate) struct KernelEntry {
    /// The name of the kernel, for logs and metrics; `pack` gets it.
    pub(crate) name: &'static str,
    /// The weights it takes.
    pub(crate) format: WeightFormat,
    /// The family it belongs to.
    pub(crate) path: KernelPath,
    /// Whether it runs on a processor.
    pub(crate) supported: fn(CpuCaps) -> bool,
    pub(crate) pack: fn(StoredMatrix<'_>, &'static str) -> Box<dyn Linear>,
}

const fn reference(name: &'static str, format: WeightFormat) -> KernelEntry {
    KernelEntry {
        name,
        format,
        path: KernelPath::Reference,
        supported: |_| true,
        pack: |w, name| Box::new(ReferenceLinear::new(w, name)),
    }
}

/// The portable kernels, which run everywhere.
static REFERENCE: [KernelEntry; 11] = [
    reference("reference-f32", WeightFormat::F32),
    reference("reference-f16", WeightFormat::F16),
    reference("reference-bf16", WeightFormat::Bf16),
    reference("reference-q8_0", WeightFormat::Q8_0),
    reference("reference-q4_0", WeightFormat::Q4_0),
    reference("reference-q4_1", WeightFormat::Q4_1),
    reference("reference-q5_0", WeightFormat::Q5_0),
    reference("reference-q5_1", WeightFormat::Q5_1),
    reference("reference-q4_k", WeightFormat::Q4K),
    reference("reference-q5_k", WeightFormat::Q5K),
    reference("reference-q6_k", WeightFormat::Q6K),
];

/// The vector kernels of this architecture, the fastest first.
#[cfg(target_arch = "x86_64")]
static VECTOR: &[KernelEntry] = &crate::avx2::KERNELS;
#[cfg(not(target_arch = "x86_64"))]
static VECTOR: &[KernelEntry] = &[];

/// Every kernel of this build, in the order in which they are tried.
pub(crate) fn kernel_registry() -> impl Iterator<Item = &'static KernelEntry> {
    VECTOR.iter().chain(&REFERENCE)
}

/// Packs stored weights (rows of `in_features` values, one per output) for the first kernel of the
/// registry that matches `path` and runs on this processor.
///
/// # Errors
/// [`KernelError`] when the bytes do not match the shape, or no kernel of `path` runs here.
pub fn pack(
    format: WeightFormat,
    bytes: &[u8],
    out_features: usize,
    in_features: usize,
    path: KernelPath,
) -> Result<Box<dyn Linear>, KernelError> {
    format.check_bytes(out_features, in_features, bytes.len())?;
    let caps = CpuCaps::detect();
    let entry = kernel_registry()
        .filter(|e| e.format == format && (e.supported)(caps))
        .find(|e| path == KernelPath::Detect || e.path == path)
        .ok_or_else(|| KernelError::Unsupported { path, format, caps: caps.to_string() })?;
    let matrix = StoredMatrix { format, bytes, out_features, in_features };
    Ok((entry.pack)(matrix, entry.name))
}

/// Checks the shapes of a forward call and says whether there is anything to compute.
fn check_shapes(linear: &dyn Linear, x: &Activations, y: &[f32]) -> bool {
    let (k, n) = (linear.in_features(), linear.out_features());
    assert_eq!(x.features(), k, "activations must have the input features of the weights");
    assert_eq!(Some(y.len()), x.rows().checked_mul(n), "output must be rows x output features");
    !y.is_empty()
}

#[cfg(test)]
mod tests;
