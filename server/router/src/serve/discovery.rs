//! Who the workers are: lists from flags, a watched file, and names that are resolved again and
//! again.
//!
//! A source only ever says a whole list; what is new or gone is the registry's business. A source
//! that cannot be read says nothing, which keeps its last list: workers do not vanish because a
//! file is half written or a name server is down.

pub mod dns;
pub mod file;

use std::sync::Arc;

use crate::serve::address::{self, AddressError};
use crate::worker::{WorkerRole, WorkerSpec};

/// The worker at `url`, listed as `role` for `model`.
///
/// # Errors
/// `url` is no address of a worker.
pub fn spec(
    url: &str,
    role: WorkerRole,
    model: Option<Arc<str>>,
) -> Result<WorkerSpec, AddressError> {
    let (name, base) = address::parse(url)?;
    Ok(WorkerSpec { name, base, role, model })
}

/// A role by its name in files and flags.
#[must_use]
pub fn role(name: &str) -> Option<WorkerRole> {
    let listed = [WorkerRole::Unified, WorkerRole::Prefill, WorkerRole::Decode];
    listed.into_iter().find(|role| role.as_str() == name)
}
