//! Flags about who is served before whom, and for how long.

use axum::http::HeaderName;
use clap::{Args, ValueEnum};
use types::Priority;

use program::units::Span;

/// What a number in the `priority` field means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PriorityOrder {
    /// Larger numbers are more important.
    HighFirst,
    /// Smaller numbers are more important.
    LowFirst,
}

impl PriorityOrder {
    /// The priority that a client means by `sent`.
    #[must_use]
    pub fn read(self, sent: Priority) -> Priority {
        match self {
            Self::HighFirst => sent,
            Self::LowFirst => -sent,
        }
    }
}

/// Whether something is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    /// It is done.
    #[value(alias = "true")]
    On,
    /// It is not.
    #[value(alias = "false")]
    Off,
}

/// Flags about the order of requests.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Order of requests")]
pub struct OrderSettings {
    /// Which priorities are more important: the larger numbers, or the smaller ones.
    #[arg(long, value_enum, default_value_t = PriorityOrder::HighFirst)]
    #[arg(env = "SIGHTLINE_PRIORITY_ORDER")]
    pub priority_order: PriorityOrder,
    /// A waiting request takes the place of a running one that it exceeds by so many levels of
    /// priority; ten seconds of waiting count as one level; 0 means never.
    #[arg(long, default_value_t = 10, value_name = "N", env = "SIGHTLINE_PREEMPTION_THRESHOLD")]
    pub preemption_threshold: u32,
    /// Whether tenants of equal priority take turns by the tokens they were served.
    #[arg(long, value_enum, default_value_t = Switch::Off, env = "SIGHTLINE_FAIR_SHARE")]
    pub fair_share: Switch,
    /// Header that names the tenant of a request; without it, its field `user` does.
    #[arg(
        long,
        default_value = "x-tenant-id",
        value_name = "NAME",
        env = "SIGHTLINE_TENANT_HEADER"
    )]
    pub tenant_header: HeaderName,
    /// Longest time a request may wait to start, then it is refused with 429; 0s means no limit.
    #[arg(long, default_value = "0s", value_name = "TIME", env = "SIGHTLINE_QUEUE_TIMEOUT")]
    pub queue_timeout: Span,
    /// Longest time a request may run, then it is given up; 0s means no limit.
    #[arg(long, default_value = "0s", value_name = "TIME", env = "SIGHTLINE_REQUEST_TIMEOUT")]
    pub request_timeout: Span,
}

impl OrderSettings {
    /// As the engine takes them.
    #[must_use]
    pub fn scheduling(&self) -> engine::Scheduling {
        let limit = |span: Span| (!span.0.is_zero()).then_some(span.0);
        engine::Scheduling {
            preemption_threshold: self.preemption_threshold,
            fair_share: self.fair_share == Switch::On,
            queue_timeout: limit(self.queue_timeout),
            request_timeout: limit(self.request_timeout),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_says_what_a_number_means() {
        let seven = Priority::new(7).expect("in range");
        assert_eq!(PriorityOrder::HighFirst.read(seven), seven);
        assert_eq!(PriorityOrder::LowFirst.read(seven), -seven);
    }
}
