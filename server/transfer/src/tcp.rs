//! Transfers over TCP, on tokio.
//!
//! A decode worker dials each of its prefill workers: one connection for messages, so that none of
//! them waits behind KV, and some for KV. One handshake ties them together; where one is lost, all
//! of them go, every transfer of the peer fails on both sides, and the decode worker dials anew.
//!
//! ```text
//!   decode worker                                   prefill worker
//!   DecodeClient ── offer ─────── messages ───────> PrefillServer ── Offers, engine
//!        engine <── news ──┐                        ┌── Sending::chunk
//!               pages <── receive <── KV ── send <──┘ pages
//! ```
//!
//! What it never does: decide anything about a transfer. That is in the ends, which know no socket.

mod backoff;
mod decode;
mod hub;
mod link;
mod options;
mod prefill;
mod random;
mod receive;
mod refusals;
mod secret;
mod send;
mod socket;
mod stream;
mod tls;
mod wire;

#[cfg(test)]
mod tests;

pub use decode::DecodeClient;
pub use options::{
    DATA_CONNECTIONS_MAX, Environment, HANDSHAKES_MAX, LinkOptions, ListenOptions, PEERS_MAX,
    PrefillPeer, Tuning,
};
pub use prefill::{PrefillServer, StartError};
pub use secret::{Secret, SecretError};
pub use socket::BindError;
pub use tls::{TlsError, TlsFiles};
