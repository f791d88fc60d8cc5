//! How weights are stored in files: element types and the block formats of GGUF.
//!
//! This module only decodes; repacking for speed belongs to each kernel.

mod block;

use std::fmt;

use half::{bf16, f16};

pub(crate) use self::block::Block;
use crate::KernelError;

/// Values of one quantised block, of weights and of activations.
pub(crate) const BLOCK: usize = 32;

/// Values of a super-block of the K formats: eight blocks under one pair of f16 scales.
pub(crate) const SUPER_BLOCK: usize = 256;

/// The stored form of a weight matrix, little endian, rows one after another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WeightFormat {
    /// IEEE single.
    F32,
    /// IEEE half.
    F16,
    /// bfloat16.
    Bf16,
    /// 32 signed bytes and an f16 scale `d`: `d * q`.
    Q8_0,
    /// 32 nibbles and an f16 scale `d`: `d * (q - 8)`.
    Q4_0,
    /// 32 nibbles, an f16 scale `d` and an f16 offset `m`: `d * q + m`.
    Q4_1,
    /// 32 values of five bits and an f16 scale `d`: `d * (q - 16)`.
    Q5_0,
    /// 32 values of five bits, an f16 scale `d` and an f16 offset `m`: `d * q + m`.
    Q5_1,
    /// 256 nibbles; f16 `d` and `e`; six bits of scale `s` and of minimum `t` for every 32:
    /// `d * s * q - e * t`.
    Q4K,
    /// As [`Q4K`](Self::Q4K) with values of five bits.
    Q5K,
    /// 256 values of six bits; an f16 scale `d`; a signed byte of scale `s` for every 16:
    /// `d * s * (q - 32)`.
    Q6K,
}

impl WeightFormat {
    /// Every format, for tables and tests.
    pub const ALL: [Self; 11] = [
        Self::F32,
        Self::F16,
        Self::Bf16,
        Self::Q8_0,
        Self::Q4_0,
        Self::Q4_1,
        Self::Q5_0,
        Self::Q5_1,
        Self::Q4K,
        Self::Q5K,
        Self::Q6K,
    ];

    /// The name used in logs and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::Q8_0 => "q8_0",
            Self::Q4_0 => "q4_0",
            Self::Q4_1 => "q4_1",
            Self::Q5_0 => "q5_0",
            Self::Q5_1 => "q5_1",
            Self::Q4K => "q4_k",
            Self::Q5K => "q5_k",
            Self::Q6K => "q6_k",
        }
    }

    /// Values of one block; row lengths are multiples of it.
    #[must_use]
    pub const fn block_values(self) -> usize {
        match self {
            Self::F32 | Self::F16 | Self::Bf16 => 1,
            Self::Q8_0 | Self::Q4_0 | Self::Q4_1 | Self::Q5_0 | Self::Q5_1 => BLOCK,
            Self::Q4K | Self::Q5K | Self::Q6K => SUPER_BLOCK,
        }
    }

    /// Bytes of one block.
    #[must_use]
    pub const fn block_bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::Q8_0 => 34,
            Self::Q4_0 => 18,
            Self::Q4_1 => 20,
            Self::Q5_0 => 22,
            Self::Q5_1 => 24,
            Self::Q4K => 144,
            Self::Q5K => 176,
            Self::Q6K => 210,
        }
    }

    /// Whether products use int8 activations.
    #[must_use]
    pub fn is_quantized(self) -> bool {
        self.block_values() > 1
    }

    /// Bytes of a row of `features` values.
    ///
    /// # Errors
    /// [`KernelError::RowLength`] when `features` is no multiple of the block length.
    pub fn row_bytes(self, features: usize) -> Result<usize, KernelError> {
        let block = self.block_values();
        if !features.is_multiple_of(block) {
            return Err(KernelError::RowLength { format: self, features, block });
        }
        Ok((features / block).saturating_mul(self.block_bytes()))
    }

    /// Checks that `found` bytes are exactly `rows` rows of `features` values.
    ///
    /// # Errors
    /// [`KernelError::RowLength`] or [`KernelError::ByteCount`].
    pub fn check_bytes(
        self,
        rows: usize,
        features: usize,
        found: usize,
    ) -> Result<(), KernelError> {
        let row = self.row_bytes(features)?;
        let expected = (row as u64).saturating_mul(rows as u64);
        if expected == found as u64 {
            return Ok(());
        }
        Err(KernelError::ByteCount { format: self, rows, features, expected, found: found as u64 })
    }
}

impl fmt::Display for WeightFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Decodes one stored row to f32, e.g. an embedding row.
///
/// # Errors
/// [`KernelError`] when `row` is not exactly `out.len()` values of `format`.
pub fn dequantize_row(
    format: WeightFormat,
    row: &[u8],
    out: &mut [f32],
) -> Result<(), KernelError> {
    format.check_bytes(1, out.len(), row.len())?;
    match format {
        WeightFormat::F32 => {
            for (o, b) in out.iter_mut().zip(row.as_chunks::<4>().0) {
                *o = f32::from_le_bytes(*b);
            }
        }
        WeightFormat::F16 => {
            for (o, b) in out.iter_mut().zip(row.as_chunks::<2>().0) {
                *o = f16::from_le_bytes(*b).to_f32();
            }
        }
        WeightFormat::Bf16 => {
            for (o, b) in out.iter_mut().zip(row.as_chunks::<2>().0) {
                *o = bf16::from_le_bytes(*b).to_f32();
            }
        }
        WeightFormat::Q8_0
        | WeightFormat::Q4_0
        | WeightFormat::Q4_1
        | WeightFormat::Q5_0
        | WeightFormat::Q5_1
        | WeightFormat::Q4K
        | WeightFormat::Q5K
        | WeightFormat::Q6K => {
            for (at, o) in out.as_chunks_mut::<BLOCK>().0.iter_mut().enumerate() {
                Block::read(format, row, at).dequantize(o);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
