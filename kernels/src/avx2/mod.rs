//! Kernels for x86-64 with AVX2, FMA and F16C.
//!
//! Weights are packed in panels: a few outputs side by side, input features in order, so that one
//! pass over a panel is one sequential read. A tile multiplies one panel with up to four rows; the
//! arithmetic of each row is the same whatever the number of rows in the tile.

mod attention;
mod block;
mod float;
mod legacy;
mod panel;
mod quant;
mod super_block;

use crate::KernelPath;
use crate::caps::CpuCaps;
use crate::linear::{KernelEntry, StoredMatrix};

pub(crate) use attention::attend;
use float::{Bf16, F16, F32, Float};
use legacy::{Q4_0, Q4_1, Q5_0, Q5_1, Q8_0};
use panel::{PanelKernel, PanelLinear};
use quant::Quant;
use super_block::{Q4K, Q5K, Q6K};

const fn entry<K: PanelKernel>() -> KernelEntry {
    KernelEntry {
        name: K::NAME,
        format: K::FORMAT,
        path: KernelPath::Avx2,
        supported: CpuCaps::has_avx2_family,
        pack: |w: StoredMatrix<'_>, _| Box::new(PanelLinear::<K>::new(w)),
    }
}

/// The kernels of this family.
pub(crate) static KERNELS: [KernelEntry; 11] = [
    entry::<Float<F32>>(),
    entry::<Float<F16>>(),
    entry::<Float<Bf16>>(),
    entry::<Quant<Q8_0>>(),
    entry::<Quant<Q4_0>>(),
    entry::<Quant<Q4_1>>(),
    entry::<Quant<Q5_0>>(),
    entry::<Quant<Q5_1>>(),
    entry::<Quant<Q4K>>(),
    entry::<Quant<Q5K>>(),
    entry::<Quant<Q6K>>(),
];
