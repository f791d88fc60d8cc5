//! Constrained decoding: what an answer must look like becomes, token by token, the set of tokens
//! that may come next.
//!
//! A [`Compiler`] is made once per tokenizer; it turns a [`Source`] into a [`Grammar`], which takes
//! milliseconds and has no place on the engine's thread; a grammar hands out one [`Follower`] per
//! answer, which has. The parsing itself is done by the `llguidance` crate. Nothing here samples,
//! schedules, or knows a wire format.
#![forbid(unsafe_code)]

mod calls;
mod compiler;
mod follower;
mod schema;

pub use calls::{Calls, Function};
pub use compiler::{Compiler, Grammar, Source};
pub use follower::Follower;
pub use schema::{MAX_SCHEMA_DEPTH, MAX_SCHEMA_PATTERNS, MAX_SCHEMAS};

/// A form that cannot be compiled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {reason}")]
pub struct CompileError {
    /// Where in the source the fault is: what the source was named, and the way from there, as in
    /// `schema.properties.age.minimum`.
    pub path: String,
    /// What is wrong, and where it helps, what would work.
    pub reason: String,
}

impl CompileError {
    fn new(path: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { path: path.into(), reason: reason.into() }
    }
}

#[cfg(test)]
mod tests;
