//! Router-level tests: the whole front door over the real engine and a model that computes
//! nothing, without sockets.

mod admin;
mod admission;
mod echo;
mod errors;
mod metrics;
mod order;
mod pair;
mod plan;
pub(crate) mod rig;
mod router;
mod sampling;
mod serving;
mod shutdown;
mod store;
#[cfg(feature = "structured-output")]
mod structured;
mod tier;
#[cfg(feature = "structured-output")]
mod tools;
mod windows;
