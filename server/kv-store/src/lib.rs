//! Pages of KV in files or objects: a third tier behind device and host memory, which outlives the
//! process.
//!
//! An object is one page: all parts (named byte arrays, per rank) that the caller keeps of it. It
//! is found under the chained hash of everything up to the end of the page, below a folder that
//! names the model, the layout and the shape of tensor parallelism ([`Scope`]), and it says all of
//! that again in its header, together with its tokens and a checksum. So whatever is found there is
//! either the page that was asked for or a miss with a reason ([`Miss`]): never somebody else's
//! bytes.
//!
//! - [`KvStore`] reads, writes and bounds; [`StoreUrl`] says where; [`backend::Backend`] is the
//!   seam to whatever keeps bytes by name.
//! - [`StorageTier`] is a store for a thread that must not wait: backups out of host memory and
//!   fetches into it, on a thread of their own.
//!
//! What it never does: know a request or an engine; judge errors of a backend (they are
//! misses, counted); log.
#![forbid(unsafe_code)]

pub mod backend;
mod fingerprint;
mod index;
mod key;
mod object;
mod stats;
mod store;
mod tier;
mod url;
mod write;

pub use fingerprint::fingerprint;
pub use key::{PageHash, PartShape, Scope, ScopeError};
pub use object::{Page, Part};
pub use stats::{DropReason, Miss, StoreStats};
pub use store::{KvStore, NotQueued, OpenError, StoreOptions};
pub use tier::{HostPages, Places, Reading, StorageTier, TierBusy, TierPages, TierPlace};
pub use url::{Credentials, StoreUrl, UrlError};
