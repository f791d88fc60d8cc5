//! Logical KV pages: which page ids are free, which request holds which, and which are kept
//! because somebody may ask for the same tokens again.
//!
//! A model has one or more pools ([`PoolSpec`], one per `PoolId`); a request has one [`PageTable`]
//! over all of them that grows as its context grows. Ownership is the accounting: a page is free,
//! held by tables (active), or only cached, and in each pool the three add up to its capacity.
//!
//! The prefix cache is a radix tree over whole pages. A table *publishes* pages once their rows are
//! computed; a later table *attaches* the longest published prefix of its tokens. Tables lock what
//! they use, from their last published page up to the root; what nobody locks is dropped leaf
//! first, longest unused first, when an allocation needs room. There is no second budget: the cache
//! is whatever the pool does not need.
//!
//! A pool with a sliding window keeps, per request, only the pages that its next tokens see. Its
//! part of a cached page may be missing (a tombstone); a prefix is usable only where the window
//! before its end is whole. See `docs/adr/011-radix-prefix-cache.md`.
//!
//! A *host tier* may stand behind the device: copies of pages are ordered ([`CopyOrder`]), what the
//! device drops stays there, and a prefix that goes on there is loaded when somebody attaches it. A
//! store may stand behind that ([`NewRun`], [`HostReservation`]). See
//! `docs/adr/021-host-tier-of-the-prefix-cache.md`.
//!
//! Rows may also come from another process: a table *lands* there, publishes when they are in its
//! pages, and is like one that has computed them.
//!
//! This crate holds no bytes (that is `memory-pool`) and decides nothing about who may grow: it
//! says only whether there is room.
#![forbid(unsafe_code)]

mod advise;
mod ages;
mod claims;
mod curve;
mod evict;
mod hash;
mod host;
mod land;
mod layout;
mod lru;
mod namespace;
mod node;
mod plan;
mod pool;
mod publish;
mod radix;
mod retention;
mod set;
mod state;
mod storage;
mod table;
mod tier;
mod window;

#[cfg(test)]
mod model_test;
#[cfg(test)]
mod replay_test;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tier_test;
#[cfg(test)]
mod trace_fixture;

pub use advise::{Action, Advice, AdviceRatio, AdviceRow, AdviseInput, Reason, advise};
pub use ages::{Age, AgeEvent, CacheTier};
pub use claims::Claims;
pub use curve::{CANDIDATE_RATIOS, Candidate, CurveOptions, CurveWindow, HitCurve, ResetReason};
pub use hash::page_keys;
pub use host::{
    Attached, CopyEnd, CopyOrder, Direction, DroppedBackups, HostStats, HostTier, WritePolicy,
};
pub use land::Landed;
pub use layout::PoolSpec;
pub use namespace::Namespace;
pub use plan::{
    HostTierPlan, Largest, Limit, NodeRoom, NodeShare, PartShare, PlanError, PlanInput, PlanPart,
    PlanPool, PoolShare, Room, Shortage, Sizing, Want, plan_host_tier,
};
pub use pool::{Evictions, PoolStats};
pub use retention::Retention;
pub use set::{CacheOptions, CachedPrefix, PoolSet};
pub use storage::{HostReservation, NewRun};
pub use table::{Lookup, NoRoom, PageTable};
