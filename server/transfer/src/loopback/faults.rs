//! What goes wrong on a network.

use std::time::Duration;

/// How a network behaves. Chances are per message or frame, in one of 1000.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultPlan {
    /// How long bytes are under way at least.
    pub latency: Duration,
    /// How much longer messages may take. They keep their order where `reorder` does not say
    /// otherwise.
    pub jitter: Duration,
    /// How fast frames are written.
    pub bytes_per_second: u64,
    /// A message comes twice, or a frame that came whole.
    pub duplicate: u32,
    /// A message does not wait for those before it.
    pub reorder: u32,
    /// One bit of a message changes: the connection is lost.
    pub corrupt_message: u32,
    /// One bit of a frame's payload changes.
    pub corrupt_payload: u32,
    /// One bit of a frame's header changes: the connection is lost.
    pub corrupt_header: u32,
    /// A frame is not taken by the network and comes back.
    pub refuse: u32,
    /// Nothing moves on a connection for up to [`stall_for`](Self::stall_for).
    pub stall: u32,
    /// See `stall`.
    pub stall_for: Duration,
    /// The connection is lost.
    pub drop: u32,
    /// How much later than the first the second side may notice a loss.
    pub notice: Duration,
    /// After a loss the connection is made again; `None`: never.
    pub reconnect: Option<Duration>,
}

impl FaultPlan {
    /// Nothing goes wrong, and nothing takes time.
    #[must_use]
    pub const fn none() -> Self {
        Self {
            latency: Duration::ZERO,
            jitter: Duration::ZERO,
            bytes_per_second: u64::MAX,
            duplicate: 0,
            reorder: 0,
            corrupt_message: 0,
            corrupt_payload: 0,
            corrupt_header: 0,
            refuse: 0,
            stall: 0,
            stall_for: Duration::ZERO,
            drop: 0,
            notice: Duration::ZERO,
            reconnect: Some(Duration::from_secs(1)),
        }
    }

    /// A local network on which nothing goes wrong.
    #[must_use]
    pub const fn local() -> Self {
        Self {
            latency: Duration::from_micros(100),
            jitter: Duration::from_micros(200),
            bytes_per_second: 1_000_000_000,
            ..Self::none()
        }
    }
}
