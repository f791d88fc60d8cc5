//! What every program of Sightline is to those who start it: how it ends, where it prints, how it
//! reads values with units, and what it was built from.
//!
//! Programs must agree on these, so they are said once. It knows no flag and no configuration.
#![forbid(unsafe_code)]

pub mod exit;
pub mod out;
pub mod units;

/// The commit this was built from; `unknown` where that was not to be found out.
pub const GIT_SHA: &str = env!("SIGHTLINE_GIT_SHA");

/// The version of the compiler.
pub const RUSTC: &str = env!("SIGHTLINE_RUSTC");
