//! How a peer broke the protocol.

use crate::message::Message;

/// What a peer did that no correct one does. It costs the transfer it is about, nothing else.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// A message that only the other side sends.
    #[error("{0} is not for this side")]
    Direction(&'static str),
    /// A message or frame before its turn.
    #[error("{what} came while the transfer was {state}")]
    Early {
        /// What came.
        what: &'static str,
        /// Where the transfer was.
        state: &'static str,
    },
    /// A number that is out of its range.
    #[error("{what} {value} is not within {first}..{end}")]
    Range {
        /// What it counts.
        what: &'static str,
        /// The value.
        value: u64,
        /// The first possible one.
        first: u64,
        /// The first impossible one.
        end: u64,
    },
    /// Two numbers that should be equal.
    #[error("{what} is {value}, expected {expected}")]
    Unequal {
        /// What it counts.
        what: &'static str,
        /// The value.
        value: u64,
        /// What it must be.
        expected: u64,
    },
    /// A frame that overlaps another one, or a number that was used for another one.
    #[error("frame {0} is not the one that had this number or these blocks before")]
    Overlap(u32),
    /// A room that was used before.
    #[error("the room was used before")]
    Room,
}

impl Violation {
    pub(crate) fn range(what: &'static str, value: u64, first: u64, end: u64) -> Result<(), Self> {
        if (first..end).contains(&value) {
            Ok(())
        } else {
            Err(Self::Range { what, value, first, end })
        }
    }

    pub(crate) const fn direction(message: &Message) -> Self {
        Self::Direction(message.name())
    }
}
