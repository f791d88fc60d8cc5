//! Bounds on the requests and tokens that wait for their prefill, with a truthful `Retry-After`.
//!
//! Ownership is the accounting: the queue depth *is* the number of live [`QueuePermit`]s, and the
//! pending tokens are what permits and [`PrefillDebt`]s hold. Dropping one is the only release, so
//! no path through the server can leak a place in the queue.
//!
//! This crate does not queue anything, read a clock, know HTTP, or record a metric.
#![forbid(unsafe_code)]

mod controller;
mod permit;
mod rate;
mod reject;

#[cfg(test)]
mod model_test;

pub use controller::{AdmissionController, Limits, QueueSnapshot};
pub use permit::{PrefillDebt, QueuePermit};
pub use reject::{RejectReason, Rejected};
