//! Bounds on the requests and tokens that wait for their prefill, with a truthful `Retry-After`.
//!
//! Ownership is the accounting: the queue depth *is* the number of live [`QueuePermit`]s, and the
//! pending tokens are what permits and [`PrefillDebt`]s hold. Dropping one is the only release, so
//! no path through the server can leak a place in the queue. The one other way out is eviction: a
//! strictly better newcomer takes the places of the worst that wait, under the same lock under
//! which a request starts, so that what has started is never evicted.
//!
//! This crate does not queue anything, read a clock, know HTTP, or record a metric.
#![forbid(unsafe_code)]

mod controller;
mod permit;
mod queue;
mod rank;
mod rate;
mod reject;
mod returns;
mod starts;

#[cfg(test)]
mod model_test;

pub use controller::{AdmissionController, Limits, Outlook, QueueSnapshot, Uncounted};
pub use permit::{Evicted, PrefillDebt, QueuePermit};
pub use rank::{AGEING, Rank};
pub use reject::{RejectReason, Rejected};
pub use returns::Returns;
