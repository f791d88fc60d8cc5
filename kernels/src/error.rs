//! What can be wrong with weights that come from outside.

use crate::{KernelPath, WeightFormat};

/// Why weights cannot be packed or decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KernelError {
    /// The row length is no multiple of the format's block length.
    #[error("rows of {features} values cannot be stored as {format}: its blocks hold {block}")]
    RowLength {
        /// The format asked for.
        format: WeightFormat,
        /// Values of one row.
        features: usize,
        /// Values of one block.
        block: usize,
    },
    /// The byte count does not match the shape.
    #[error(
        "{format} weights of {rows} x {features} need {expected} bytes, but {found} were given"
    )]
    ByteCount {
        /// The format asked for.
        format: WeightFormat,
        /// Rows (output features).
        rows: usize,
        /// Values of one row (input features).
        features: usize,
        /// Bytes the shape needs; `u64::MAX` when that overflows.
        expected: u64,
        /// Bytes given.
        found: u64,
    },
    /// The wanted kernels do not run on this processor.
    #[error("kernel path {path} is not supported for {format} on this processor ({caps})")]
    Unsupported {
        /// The path asked for.
        path: KernelPath,
        /// The format asked for.
        format: WeightFormat,
        /// What the processor offers.
        caps: String,
    },
}
