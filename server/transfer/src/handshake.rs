//! How two workers find out that they may, and can, work together.

use crate::shape::Shape;

/// First message on every connection, decode -> prefill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// [`PROTOCOL`](crate::PROTOCOL) of the sender.
    pub protocol: u16,
    /// Whether it has a shared secret.
    pub secret: bool,
    /// 32 random bytes.
    pub nonce: [u8; 32],
    /// `None`: a new peer's control connection. Otherwise the [`Ready::link`] of the peer for
    /// which this is one more data connection.
    pub joins: Option<[u8; 16]>,
}

/// The answer, prefill -> decode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Welcome {
    /// [`PROTOCOL`](crate::PROTOCOL) of the sender.
    pub protocol: u16,
    /// 32 random bytes.
    pub nonce: [u8; 32],
    /// That it knows the secret; zeros without one.
    pub proof: [u8; 32],
}

/// Decode -> prefill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proof {
    /// That it knows the secret; zeros without one.
    pub proof: [u8; 32],
    /// How the decode worker calls itself, `HOST:PORT`; looked up in the prefill worker's
    /// configuration, shown nowhere else. At most 256 bytes.
    pub name: String,
    /// What it has.
    pub shape: Shape,
}

/// The last step, prefill -> decode: offers may come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ready {
    /// Names the peer for further data connections; random.
    pub link: [u8; 16],
    /// Most rooms that may be open at a time.
    pub rooms_max: u32,
    /// What the prefill worker has.
    pub shape: Shape,
}

/// Why not; the connection closes after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// For a human, with both values of what does not fit; at most 1 KiB.
    pub reason: String,
}
