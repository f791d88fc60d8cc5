//! Models: configuration and weight files, forward passes, sampling.
//!
//! [`ModelRunner`] is all that the engine knows of a model: it executes a [`Batch`] of tokens
//! against KV pages and fills [`Logits`]. This crate does not schedule, does not choose pages, and
//! does not turn text into tokens: it only says where a model's tokenizer is found.
#![forbid(unsafe_code)]

mod arch;
mod config;
mod fake;
#[cfg(test)]
mod link_test;
mod load;
mod ranks;
mod runner;
mod sampler;
mod weights;

pub use arch::TensorsError;
pub use config::{
    Architecture, Compression, ConfigError, DeepseekV4, Indexer, ModelConfig, RopePairs,
    RopeScaling, Sliding, Yarn,
};
pub use fake::{FakeOptions, FakeRunner, FakeTiming};
pub use kernels::KernelPath;
pub use load::{
    GgufTokenizer, LOADABLE, LoadError, LoadOptions, Loaded, ModelInfo, PageTokensError,
    TokenizerSource, TpError, TpLimits, inspect, load, page_multiple, pools_of, read_config,
};
pub use runner::{
    Batch, KernelUse, Logits, ModelRunner, ModelSpec, PageList, PageMover, PartSpec, PoolSpec,
    RunError, Slice,
};
pub use sampler::{
    Constraint, ConstraintError, Sampled, Sampler, SamplingParams, Scorer, TokenMask,
};
pub use weights::WeightsError;
