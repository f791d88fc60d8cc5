//! Physical memory: the bytes behind KV page ids, and weight files mapped read-only.
//!
//! Which page belongs to whom is decided elsewhere (crate `kv-cache`); nothing here counts
//! references, evicts, or knows a request.

mod device;
mod layout;
mod mapped;

pub use device::{DevicePool, PoolError};
pub use layout::KvLayout;
pub use mapped::{MapError, MappedFile};
