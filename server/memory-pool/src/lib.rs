//! Physical memory: the bytes behind KV page ids, on the device and on the host, the threads that
//! move them, what a link to another process needs of pages, and weight files mapped read-only.
//!
//! Which page belongs to whom is decided elsewhere (crate `kv-cache`); nothing here counts
//! references, evicts, or knows a request.

mod copy;
mod device;
mod gate;
mod host;
mod layout;
mod link;
mod mapped;
mod progress;

pub use copy::{
    CopyBusy, CopyDone, CopyEngine, CopyFailed, CopyHook, CopyPage, CopyStats, CopyStep, CopyWaker,
    Direction, Full, PartCopies,
};
pub use device::{Compute, DeviceMemory, PoolError};
pub use gate::{LoadFailed, LoadGate, Loads};
pub use host::{
    HostBytes, HostError, HostLayout, HostMemory, HostNote, HostOptions, HugePages, Progress,
    SlabStep,
};
pub use layout::{KvLayout, PartLayout};
pub use link::{Block, LinkPart, PageBytes, RankPages};
pub use mapped::{MapError, MappedFile};
pub use progress::{LayerProgress, ProgressState};
