//! Architectures: which tensors they are made of and how they compute.
//!
//! Llama and Qwen3 are one decoder with an optional norm on the heads. This module knows kernels
//! and tensors; it opens no files and decides nothing about batches.

mod decoder;
mod rope;
mod tensors;

pub use decoder::Progress;
pub(crate) use decoder::{Decoder, NoTrace, Packing, Trace};
pub use tensors::TensorsError;
pub(crate) use tensors::{Naming, check as check_tensors};

#[cfg(test)]
mod convert;
#[cfg(test)]
mod demo;
#[cfg(test)]
mod golden;
#[cfg(test)]
mod invariance;
#[cfg(test)]
mod quants;
