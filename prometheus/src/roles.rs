//! Which role exports what: the one place where sets of roles are named.
//!
//! A metric is exported by the roles that its declaration names (`by`; without it by those of its
//! module), a label value by those that stand behind it (`of`), a combination of values where its
//! predicate (`only`) says that it can occur. Everything a role exports is there at 0 from the
//! start; what it does not export is not there at all, and queries must do without: rules join,
//! `or` or aggregate, and never need a series of a role that is not deployed.
//!
//! A process that counts `slo_requests` sees clients (`ANSWERING`), and exports all that rules read
//! at the observer of a model: HTTP, admission, endings, time to first token, gaps, durations. A
//! prefill worker sees none of its clients: it counts offers as admitted or refused, and nothing
//! that a client could feel.
//!
//! A router serves several models. What concerns requests carries the model of the request; the
//! rest (`Per::Process`) has no `model_name` at all; that of HTTP requests for no model is `none`.

use crate::labels::Role;

/// No role: what a node exporter exports.
pub const NONE: &[Role] = &[];
/// Every role.
pub const ALL: &[Role] = Role::ALL;
/// Those that have a model in memory.
pub const ENGINES: &[Role] = &[Role::Unified, Role::Prefill, Role::Decode];
/// Those that produce tokens.
pub const GENERATING: &[Role] = &[Role::Unified, Role::Decode];
/// Those that clients talk to.
pub const ANSWERING: &[Role] = &[Role::Unified, Role::Decode, Role::Router];
/// Those whose answers depend on another process.
pub const RELAYING: &[Role] = &[Role::Decode, Role::Router];
/// The two ends of a transfer.
pub const PAIR: &[Role] = &[Role::Prefill, Role::Decode];
/// The sending end.
pub const PREFILL: &[Role] = &[Role::Prefill];
/// The receiving end.
pub const DECODE: &[Role] = &[Role::Decode];
/// The one in front of all others.
pub const ROUTER: &[Role] = &[Role::Router];

/// What a router exports a series of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Per {
    /// Each model that it routes to.
    Model,
    /// Itself, or one of its workers: without a model.
    Process,
}
