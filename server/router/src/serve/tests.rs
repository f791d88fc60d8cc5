//! The running router against workers that behave, and against those that do not.

mod away;
mod discovery;
mod issues;
mod listing;
mod metrics;
mod mock;
mod proxy;
mod rig;
