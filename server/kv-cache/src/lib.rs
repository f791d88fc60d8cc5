//! Logical KV pages: which page ids are free, which request holds which, and how many.
//!
//! A model has one or more pools ([`PoolSpec`], one per `PoolId`); a request has one [`PageTable`]
//! over all of them that grows as its context grows. Ownership is the accounting: a page belongs
//! to exactly one table or to the free list, and dropping a table is the only way back.
//!
//! This crate holds no bytes (that is `memory-pool`), shares no pages between requests, and
//! decides nothing about who may grow: it says only whether there is room.
#![forbid(unsafe_code)]

mod layout;
mod pool;
mod table;

#[cfg(test)]
mod model_test;

pub use layout::PoolSpec;
pub use pool::{BlockPool, PoolStats};
pub use table::{NoRoom, PageTable, PoolSet};
