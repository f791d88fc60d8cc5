//! How weights are stored in files: element types and the 32-value block formats of GGUF.
//!
//! This module only decodes; repacking for speed belongs to each kernel.

use std::fmt;

use half::{bf16, f16};

use crate::KernelError;

/// Values of one quantised block, of weights and of activations.
pub(crate) const BLOCK: usize = 32;

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
}

impl WeightFormat {
    /// Every format, for tables and tests.
    pub const ALL: [Self; 6] =
        [Self::F32, Self::F16, Self::Bf16, Self::Q8_0, Self::Q4_0, Self::Q4_1];

    /// The name used in logs and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::Q8_0 => "q8_0",
            Self::Q4_0 => "q4_0",
            Self::Q4_1 => "q4_1",
        }
    }

    /// Values of one block; row lengths are multiples of it.
    #[must_use]
    pub fn block_values(self) -> usize {
        match self {
            Self::F32 | Self::F16 | Self::Bf16 => 1,
            Self::Q8_0 | Self::Q4_0 | Self::Q4_1 => BLOCK,
        }
    }

    /// Bytes of one block.
    #[must_use]
    pub fn block_bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::Q8_0 => 34,
            Self::Q4_0 => 18,
            Self::Q4_1 => 20,
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
        WeightFormat::Q8_0 => {
            for (o, b) in out.as_chunks_mut::<BLOCK>().0.iter_mut().zip(row.as_chunks::<34>().0) {
                let d = block_f16(b, 0);
                for (o, q) in o.iter_mut().zip(&b[2..]) {
                    *o = d * f32::from(q.cast_signed());
                }
            }
        }
        WeightFormat::Q4_0 => {
            for (o, b) in out.as_chunks_mut::<BLOCK>().0.iter_mut().zip(row.as_chunks::<18>().0) {
                let d = block_f16(b, 0);
                for (i, o) in o.iter_mut().enumerate() {
                    *o = d * (f32::from(nibble(&b[2..], i)) - 8.0);
                }
            }
        }
        WeightFormat::Q4_1 => {
            for (o, b) in out.as_chunks_mut::<BLOCK>().0.iter_mut().zip(row.as_chunks::<20>().0) {
                let (d, m) = (block_f16(b, 0), block_f16(b, 2));
                for (i, o) in o.iter_mut().enumerate() {
                    *o = d * f32::from(nibble(&b[4..], i)) + m;
                }
            }
        }
    }
    Ok(())
}

/// The f16 at byte `at` of a block, widened.
pub(crate) fn block_f16(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// Value `i` of 16 nibble bytes: low nibbles are values 0..16, high nibbles 16..32.
pub(crate) fn nibble(bytes: &[u8], i: usize) -> u8 {
    if i < 16 { bytes[i] & 0x0f } else { bytes[i - 16] >> 4 }
}

#[cfg(test)]
mod tests;
