//! The router: which worker is asked, which is well, what is tried again.
//!
//! All modules but [`serve`] are the core. It is synchronous and pure: it takes `now`, does no IO,
//! reads no clock, logs nothing, records no metric. It owns what it is told: lists of workers,
//! polls, how requests ended. Its memory is bounded whatever clients send, and nothing of a prompt
//! is kept but hashes.
#![forbid(unsafe_code)]

mod breaker;
mod budget;
mod charge;
mod config;
mod core;
mod door;
mod failed;
mod hold;
mod member;
mod pick;
mod pieces;
mod policy;
mod prefix;
mod ramp;
mod ratio;
mod registry;
mod request;
mod route;
pub mod serve;
mod set;
mod worker;

pub use self::core::{Core, WorkerView};
pub use charge::Amount;
pub use config::{BreakerConfig, Config, HealthConfig, HoldConfig, PrefixConfig, RetryConfig};
pub use hold::{Held, Hold, Place};
pub use policy::{
    Branch, CacheAware, Candidate, Guard, LeastPendingTokens, Policy, PolicyKind, PowerOfTwo,
    PrefixHash, Prompt, RoundRobin, UnknownPolicy,
};
pub use registry::{Answer, Declared, MAX_MODELS_PER_WORKER, NoSuchWorker, Poll, TooManyWorkers};
pub use request::{
    Failure, FailureKind, Leg, Missing, OverloadReason, Refusal, Request, RetryReason, Route,
    Verdict,
};
pub use route::Attempt;
pub use set::MAX_WORKERS;
pub use worker::{
    CircuitState, DrainBy, Event, EventKind, Source, WorkerKey, WorkerName, WorkerRole, WorkerSpec,
    WorkerState,
};

#[cfg(test)]
mod balance_test;
#[cfg(test)]
mod door_test;
#[cfg(test)]
mod hold_test;
#[cfg(test)]
mod model_test;
#[cfg(test)]
mod scenario_test;
#[cfg(test)]
mod testing;
