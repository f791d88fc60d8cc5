//! The running router against workers that behave, and against those that do not.

mod discovery;
mod issues;
mod metrics;
mod mock;
mod proxy;
mod rig;
