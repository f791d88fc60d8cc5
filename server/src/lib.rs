//! The serving process: HTTP in front, the engine behind, and what both say about themselves.
//!
//! - [`cli`] declares every flag; [`config`] settles them against model and host; [`app`] starts
//!   and stops the parts; [`http`] and [`generate`] are the path of a request; [`telemetry`] is
//!   the path of a metric.
//!
//! Nothing here computes, schedules or tokenises: that is done by the crates below.
#![forbid(unsafe_code)]

pub mod app;
pub mod cli;
pub mod config;
pub mod generate;
mod health;
pub mod host_tier;
pub mod http;
pub mod lifecycle;
pub mod live;
pub mod pd;
mod peer;
mod plan;
pub mod probes;
pub mod source;
mod storage;
pub mod structured;
pub mod telemetry;

#[cfg(test)]
mod tests;
