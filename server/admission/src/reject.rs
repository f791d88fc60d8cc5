//! Why a request was refused, in words and as a label.

use std::fmt;
use std::time::Duration;

/// The closed list of reasons for which admission refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RejectReason {
    /// As many requests wait as are allowed.
    QueueRequestsFull,
    /// The waiting tokens and the request's own pass the configured limit.
    QueueTokensFull,
    /// Prefilling the waiting tokens and the request's own would take longer than the objective.
    DrainTime,
    /// The server is about to stop.
    Draining,
    /// The engine has failed.
    Unhealthy,
    /// A better request took its place while it waited.
    PriorityEvicted,
    /// It waited longer than is allowed.
    QueueTimeout,
}

impl RejectReason {
    /// Every reason, in declaration order.
    pub const ALL: [Self; 7] = [
        Self::QueueRequestsFull,
        Self::QueueTokensFull,
        Self::DrainTime,
        Self::Draining,
        Self::Unhealthy,
        Self::PriorityEvicted,
        Self::QueueTimeout,
    ];

    /// The label value of metrics, logs and error bodies.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::QueueRequestsFull => "queue_requests_full",
            Self::QueueTokensFull => "queue_tokens_full",
            Self::DrainTime => "drain_time",
            Self::Draining => "draining",
            Self::Unhealthy => "unhealthy",
            Self::PriorityEvicted => "priority_evicted",
            Self::QueueTimeout => "queue_timeout",
        }
    }

    /// True where the same request may be admitted later by this process (429 rather than 503).
    #[must_use]
    pub const fn is_overload(self) -> bool {
        match self {
            Self::QueueRequestsFull
            | Self::QueueTokensFull
            | Self::DrainTime
            | Self::PriorityEvicted
            | Self::QueueTimeout => true,
            Self::Draining | Self::Unhealthy => false,
        }
    }
}

/// A refusal. `Display` is one sentence for the client, with value and limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub struct Rejected {
    /// Why.
    pub reason: RejectReason,
    /// When to come back: whole seconds, at least 1.
    pub retry_after: Duration,
    /// What was measured against `limit`: requests, tokens or milliseconds, as the reason says.
    pub value: u64,
    /// The bound that `value` would have passed; 0 where the reason is not a bound.
    pub limit: u64,
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (value, limit) = (self.value, self.limit);
        match self.reason {
            RejectReason::QueueRequestsFull => {
                write!(f, "The queue is full: {value} requests are waiting and {limit} may wait.")
            }
            RejectReason::QueueTokensFull => write!(
                f,
                "The queue is full: {value} prompt tokens would be waiting with this request \
                 and {limit} may wait."
            ),
            RejectReason::DrainTime => write!(
                f,
                "The queue is too long: with this request its prefill would take {:.1} s \
                 and the objective is {:.1} s.",
                value as f64 / 1000.0,
                limit as f64 / 1000.0,
            ),
            RejectReason::Draining => {
                write!(f, "The server is draining and takes no new requests.")
            }
            RejectReason::Unhealthy => {
                write!(f, "The engine has failed and takes no new requests.")
            }
            RejectReason::PriorityEvicted => write!(
                f,
                "The queue is full and a request of higher priority took this one's place: \
                 {value} requests are waiting."
            ),
            RejectReason::QueueTimeout => write!(
                f,
                "The request waited {:.1} s for its turn and {:.1} s is the limit.",
                value as f64 / 1000.0,
                limit as f64 / 1000.0,
            ),
        }?;
        if self.reason.is_overload() {
            write!(f, " Retry in {} s.", self.retry_after.as_secs())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_value_limit_and_when_to_come_back() {
        let refusal =
            |reason| Rejected { reason, retry_after: Duration::from_secs(7), value: 33, limit: 32 };
        for reason in RejectReason::ALL {
            let text = refusal(reason).to_string();
            assert!(text.ends_with('.'), "{text}");
            assert_eq!(text.contains("Retry in 7 s."), reason.is_overload(), "{text}");
        }
        assert!(refusal(RejectReason::QueueRequestsFull).to_string().contains("33 requests"));
        let slow = Rejected { value: 67_040, limit: 30_000, ..refusal(RejectReason::DrainTime) };
        assert!(slow.to_string().contains("67.0 s and the objective is 30.0 s"), "{slow}");
    }
}
