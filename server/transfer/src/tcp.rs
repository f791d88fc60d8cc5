//! Transfers over TCP, on tokio.
//!
//! A decode worker dials each of its prefill workers: one connection for messages, so that none of
//! them waits behind KV, and some for KV. One handshake ties them together.

mod options;
mod secret;
mod tls;

pub use options::{
    DATA_CONNECTIONS_MAX, HANDSHAKES_MAX, LinkOptions, ListenOptions, PEERS_MAX, PrefillPeer,
    Tuning,
};
pub use secret::{Secret, SecretError};
pub use tls::{TlsError, TlsFiles};
