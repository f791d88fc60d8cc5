//! CPU kernels behind one run-time dispatch: matrix products over packed weights, attention over
//! paged keys and values, and the small element-wise operations of a transformer.
//!
//! One rule shapes every kernel: **a row's result never depends on what runs beside it**, neither
//! on the number of rows, nor on its neighbours, nor on the number of threads, nor on how a
//! sequence was cut into chunks. Tests demand this bit for bit.
//!
//! This crate does not know models, requests, or page ownership; it never allocates pages, opens
//! files, logs, or reads a clock. Shapes are checked by assertions before any pointer is formed.

mod activations;
mod attention;
#[cfg(target_arch = "x86_64")]
mod avx2;
mod buffer;
mod caps;
mod error;
mod format;
mod latent;
mod linear;
mod math;
mod ops;
mod pool;
mod reference;
mod rope;

pub use activations::Activations;
pub use attention::{
    AttentionSequence, AttentionShape, KvGeometry, PagedKv, attention_kernel, paged_attention,
};
pub use caps::KernelPath;
pub use error::KernelError;
pub use format::{WeightFormat, dequantize_row};
pub use latent::{add_scaled, attend_rows, dot, mix_rows, rms_scale, silu_mul_clamped};
pub use linear::{Linear, forward_all, pack};
pub use ops::{
    add, all_finite, argmax, gelu_tanh_mul, log_sum_exp, rms_norm, rms_norm_in_place, scale,
    silu_mul, softmax,
};
pub use pool::ThreadPool;
pub use rope::{RopeStyle, RopeTable, rope};
