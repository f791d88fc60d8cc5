//! Architectures: which tensors they are made of and how they compute.
//!
//! Llama, Qwen3 and Gemma 3 are one decoder: some norms are optional, and some layers may see a
//! sliding window. DeepSeek-V4 is one of its own. This module knows kernels and
//! tensors; it opens no files and decides nothing about batches.

mod decoder;
pub(crate) mod deepseek_v4;
mod pools;
mod rope;
mod share;
mod tensors;
mod trace;

pub(crate) use decoder::{Decoder, Packing};
pub(crate) use pools::specs as pool_specs;
pub(crate) use share::{Exchange, ModelShare, Peers, Share};
pub use tensors::TensorsError;
pub(crate) use tensors::{Naming, check as check_tensors};
pub(crate) use trace::{NoTrace, Trace};

#[cfg(test)]
pub(crate) mod convert;
#[cfg(test)]
mod demo;
#[cfg(test)]
pub(crate) mod golden;
#[cfg(test)]
pub(crate) mod invariance;
#[cfg(test)]
mod quants;
