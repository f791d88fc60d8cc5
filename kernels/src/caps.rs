//! What the processor offers, and which family of kernels to use.
//!
//! Detection happens at run time; nothing here depends on how the binary was compiled.

use std::fmt;

/// Which family of kernels to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum KernelPath {
    /// The fastest family that this processor runs.
    #[default]
    Detect,
    /// Portable code, the oracle of the tests. Slow.
    Reference,
    /// x86-64 with AVX2, FMA and F16C.
    Avx2,
}

impl KernelPath {
    /// The name used in options, logs and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Detect => "detect",
            Self::Reference => "reference",
            Self::Avx2 => "avx2",
        }
    }

    /// The concrete family behind this choice: never [`KernelPath::Detect`].
    ///
    /// A family that the processor lacks becomes [`KernelPath::Reference`].
    #[must_use]
    pub fn resolve(self) -> Self {
        match self {
            Self::Reference => Self::Reference,
            Self::Detect | Self::Avx2 if CpuCaps::detect().has_avx2_family() => Self::Avx2,
            Self::Detect | Self::Avx2 => Self::Reference,
        }
    }
}

impl fmt::Display for KernelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Instruction sets that matter for choosing kernels.
///
/// `Display` prints the present ones, space separated, in a fixed order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct CpuCaps {
    /// 256-bit integer vectors.
    pub avx2: bool,
    /// Fused multiply-add.
    pub fma: bool,
    /// Half-precision conversion.
    pub f16c: bool,
    /// 512-bit vectors (F, BW, DQ and VL together).
    pub avx512: bool,
    /// 512-bit int8 dot products.
    pub avx512_vnni: bool,
    /// 512-bit bfloat16 dot products.
    pub avx512_bf16: bool,
}

impl CpuCaps {
    /// Asks the processor. Cheap: the answer is cached by the standard library.
    #[must_use]
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn detect() -> Self {
        Self {
            avx2: is_x86_feature_detected!("avx2"),
            fma: is_x86_feature_detected!("fma"),
            f16c: is_x86_feature_detected!("f16c"),
            avx512: is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl"),
            avx512_vnni: is_x86_feature_detected!("avx512vnni"),
            avx512_bf16: is_x86_feature_detected!("avx512bf16"),
        }
    }

    /// On other architectures only the portable kernels exist.
    #[must_use]
    #[cfg(not(target_arch = "x86_64"))]
    pub(crate) fn detect() -> Self {
        Self::default()
    }

    /// Whether the kernels of [`KernelPath::Avx2`] run here.
    #[must_use]
    pub(crate) fn has_avx2_family(self) -> bool {
        self.avx2 && self.fma && self.f16c
    }
}

impl fmt::Display for CpuCaps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = [
            (self.avx2, "avx2"),
            (self.fma, "fma"),
            (self.f16c, "f16c"),
            (self.avx512, "avx512"),
            (self.avx512_vnni, "avx512-vnni"),
            (self.avx512_bf16, "avx512-bf16"),
        ];
        let mut first = true;
        for (_, name) in named.iter().filter(|(present, _)| *present) {
            if !first {
                f.write_str(" ")?;
            }
            f.write_str(name)?;
            first = false;
        }
        if first { f.write_str("no vector extensions") } else { Ok(()) }
    }
}
