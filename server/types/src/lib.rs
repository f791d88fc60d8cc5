//! Newtypes that every crate of the server shares: identifiers, units, priorities, virtual time.
//!
//! Nothing here allocates, logs, or knows a wire format.
#![forbid(unsafe_code)]

mod clock;
mod ids;
mod priority;
mod units;

pub use clock::{Clock, Time};
pub use ids::{PageId, PoolId, RequestId, TokenId};
pub use priority::{Priority, PriorityClass, PriorityOutOfRange};
pub use units::{Bytes, Pages, Tokens};
