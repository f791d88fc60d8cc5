//! Names of transfers and of peers.

use std::fmt;
use std::sync::Arc;

/// A source of random bytes, passed in so that tests replay.
pub trait Random: Send {
    /// Fills `bytes`. What makes rooms and nonces must be unpredictable to others: the system's
    /// generator, outside of tests.
    fn fill(&mut self, bytes: &mut [u8]);
}

impl<F: FnMut(&mut [u8]) + Send> Random for F {
    fn fill(&mut self, bytes: &mut [u8]) {
        self(bytes);
    }
}

/// One transfer: made by the decode worker, unguessable, used once. It holds between one decode
/// worker and one prefill worker: nobody else can name it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Room(pub u128);

impl Room {
    /// A new one.
    pub fn new(random: &mut dyn Random) -> Self {
        let mut bytes = [0; 16];
        random.fill(&mut bytes);
        Self(u128::from_le_bytes(bytes))
    }
}

/// 32 hexadecimal digits.
impl fmt::Display for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Room({self})")
    }
}

/// A peer as metrics and logs call it: `HOST:PORT` from our own configuration, or `other` for one
/// that the configuration does not name. Never what the peer says of itself, so the number of
/// values is bounded by the configuration.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerName(Arc<str>);

impl PeerName {
    /// What peers are called that the configuration does not name.
    pub const OTHER: &str = "other";

    /// A name out of the configuration.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self(name.into())
    }

    /// Of a peer that the configuration does not name.
    #[must_use]
    pub fn other() -> Self {
        Self::new(Self::OTHER)
    }

    /// The label value.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PeerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One connected peer, from its handshake to its loss. A peer that comes back has another one, so
/// nothing of its former life is taken for the new one's. Made by the end it connects to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(pub u64);

impl fmt::Display for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_room_is_what_the_generator_gave() {
        let mut next = 0_u8;
        let mut random = |bytes: &mut [u8]| {
            for byte in bytes {
                *byte = next;
                next += 1;
            }
        };
        let room = Room::new(&mut random);
        assert_eq!(room.to_string(), "0f0e0d0c0b0a09080706050403020100");
        assert_ne!(Room::new(&mut random), room);
        assert_eq!(PeerName::other().to_string(), "other");
    }
}
