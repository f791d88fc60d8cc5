//! Reads the cards of a node through NVIDIA's management library and says what it read, line by
//! line, to the process that supervises it.
//!
//! It runs in a process of its own: a call that hangs in the driver, or a crash in the library,
//! costs this process and nothing else. Inside, each card has a thread that reads it when asked and
//! one that waits for its events, so that a card that hangs holds up no other.
//!
//! [`protocol`] is what both processes agree on; [`run`] is the worker. It decides nothing: when to
//! ask, what is too old, when to start again are its supervisor's questions. It knows no metric and
//! never changes a setting of a card.

mod card;
mod closing;
mod events;
mod fallback;
mod fault;
mod groups;
mod library;
mod missing;
pub mod protocol;
mod reading;
mod worker;

pub use library::DEFAULT_LIBRARIES;
pub use missing::Wanted;
pub use worker::{Ending, run};

/// The argument that makes a program a worker instead of what it is otherwise: the supervisor
/// starts its own program with it.
pub const ARGUMENT: &str = "--internal-nvml-worker";
