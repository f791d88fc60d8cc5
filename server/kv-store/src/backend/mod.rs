//! The seam to whatever keeps bytes by name.

mod memory;
#[cfg(any(feature = "fs", feature = "s3"))]
mod operator;

pub use memory::{Fault, MemoryBackend, Operation};
#[cfg(any(feature = "fs", feature = "s3"))]
pub(crate) use operator::OperatorBackend;

use bytes::Bytes;
use std::pin::Pin;

/// Work of a backend. Dropped before it is done, it may still have happened or not, but never half.
pub type Work<'a, T> = Pin<Box<dyn Future<Output = Result<T, BackendError>> + Send + 'a>>;

/// Why a backend did not do what it was asked.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
pub enum BackendError {
    /// There is nothing with this name.
    #[error("there is no such object")]
    Absent,
    /// The object is longer than the caller would take.
    #[error("the object is longer than {0} bytes")]
    TooLong(u64),
    /// Anything else, in the backend's words.
    #[error("{0}")]
    Failed(String),
}

/// An object in a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its path.
    pub path: String,
    /// Its length.
    pub bytes: u64,
    /// When it was written, in nanoseconds since 1970; 0 where that is not known.
    pub modified: u64,
}

/// Keeps objects, which are bytes under a path of `/`-separated names. All calls may run at once.
pub trait Backend: Send + Sync + 'static {
    /// The bytes of an object, if there are at most `max_bytes`.
    ///
    /// # Errors
    /// [`BackendError::Absent`] where there is none, [`BackendError::TooLong`], or a failure.
    fn read<'a>(&'a self, path: &'a str, max_bytes: u64) -> Work<'a, Bytes>;

    /// Puts an object, given in pieces, in the place of the one there may be. A reader gets the old
    /// or the new one as a whole.
    ///
    /// # Errors
    /// A failure; what was there before is still there.
    fn write<'a>(&'a self, path: &'a str, pieces: Vec<Bytes>) -> Work<'a, ()>;

    /// The length of an object; `None` where there is none.
    ///
    /// # Errors
    /// A failure; absence is an answer.
    fn size<'a>(&'a self, path: &'a str) -> Work<'a, Option<u64>>;

    /// Deletes an object; without one there is nothing to do.
    ///
    /// # Errors
    /// A failure; the object may still be there.
    fn delete<'a>(&'a self, path: &'a str) -> Work<'a, ()>;

    /// Gives every object to `each`, in any order. What is written or deleted meanwhile may be
    /// among them or not.
    ///
    /// # Errors
    /// A failure, after some objects.
    fn list<'a>(&'a self, each: &'a mut (dyn FnMut(Listed) + Send)) -> Work<'a, ()>;
}
