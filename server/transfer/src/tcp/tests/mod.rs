//! Real sockets on loopback.

pub(super) mod random;
