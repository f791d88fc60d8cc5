//! Newtypes that every crate of the server shares: identifiers, units, virtual time.
//!
//! Nothing here allocates, logs, or knows a wire format.
#![forbid(unsafe_code)]

mod clock;
mod ids;
mod units;

pub use clock::{Clock, Time};
pub use ids::{PageId, PoolId, RequestId, TokenId};
pub use units::{Bytes, Pages, Tokens};
