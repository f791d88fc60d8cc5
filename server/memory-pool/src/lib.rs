//! Physical memory: the bytes behind KV page ids, and weight files mapped read-only.
//!
//! Which page belongs to whom is decided elsewhere (crate `kv-cache`); nothing here counts
//! references, evicts, or knows a request.

mod device;
mod gate;
mod layout;
mod mapped;

pub use device::{Compute, DeviceMemory, PoolError};
pub use gate::{LoadFailed, LoadGate};
pub use layout::{KvLayout, PartLayout};
pub use mapped::{MapError, MappedFile};
