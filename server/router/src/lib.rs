//! The core of the router: which worker is asked, which is well, what is tried again.
//!
//! Synchronous and pure: it takes `now`, does no IO, reads no clock, logs nothing, records no
//! metric. It owns what it is told: lists of workers, polls, how requests ended. Its memory is
//! bounded whatever clients send, and nothing of a prompt is kept but hashes.
//!
//! `Core` comes next, with these methods, to be called under one lock, none of which waits:
//!
//! ```text
//! Core::new(config: Config, seed: u64) -> Core;        configure(&mut self, config: Config)
//! relist(&mut self, source: Source, workers: &[WorkerSpec], now) -> Result<Vec<Event>, TooMany>
//!     the whole list of a source; whoever is not in it leaves (not called when a look-up failed)
//! drain(&mut self, name: &WorkerName, by: DrainBy) / undrain(..) -> Result<Vec<Event>, NoSuchWorker>
//! poll_began(&mut self, name: &WorkerName) -> Option<Poll>      before GET /internal/load goes out
//! poll_ended(&mut self, poll: Poll, answer: Result<Answer, String>, now) -> Vec<Event>
//!     Answer::Load(LoadReport), Answer::Plain { models: Vec<String> } (no /internal/load, /health well)
//! route(&mut self, request: &Request, attempt: &mut Attempt, now) -> Result<Route, Refusal>
//! answered(&mut self, route: &mut Route, now) -> Vec<Event>     first byte: breaker, prefill_done
//! failed(&mut self, route: Route, failure: Failure, request, attempt, now) -> (Verdict, Vec<Event>)
//!     also after the answer has begun (then always Pass); a client that left: just drop the route
//! usage(&mut self, model: &str, prompt_bytes: usize, prompt_tokens: u64)
//! workers(&self, now) -> Vec<WorkerView>   name, base, role, state, up, circuit, amounts, report age
//! models(&self) -> Vec<Arc<str>>; declared(&self) -> Vec<Declared { role, model, workers }>
//! readiness(&self, now) -> Result<(), Missing>
//! ```
#![forbid(unsafe_code)]
#![expect(dead_code, reason = "the core that reads them follows")]

mod charge;
mod config;
mod policy;
mod request;
mod worker;

pub use charge::{Amount, Charge};
pub use config::{BreakerConfig, Config, HealthConfig, PrefixConfig, RetryConfig};
pub use policy::{Branch, PolicyKind, UnknownPolicy};
pub use request::{
    Failure, FailureKind, Leg, Missing, OverloadReason, Refusal, Request, RetryReason, Route,
    Verdict,
};
pub use worker::{
    CircuitState, DrainBy, Event, EventKind, Source, WorkerKey, WorkerName, WorkerRole, WorkerSpec,
    WorkerState,
};
