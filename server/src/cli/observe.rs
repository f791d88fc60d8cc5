//! Flags about what is seen of a program: its log and its metrics.

use clap::{Args, ValueEnum};

use super::Format;

/// Whether metrics are recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Metrics {
    /// Record and expose everything.
    On,
    /// Record nothing: for measuring what recording costs.
    Off,
}

/// Flags about what is seen of a program.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Observability")]
pub struct ObserveArgs {
    /// Form of the log on standard error.
    #[arg(long, value_enum, default_value_t = Format::Text, env = "SIGHTLINE_LOG_FORMAT")]
    pub log_format: Format,
    /// Least severe level that is logged: error, warn, info, debug or trace.
    #[arg(long, default_value = "info", env = "SIGHTLINE_LOG_LEVEL")]
    pub log_level: tracing::Level,
    /// Whether metrics are recorded.
    #[arg(long, value_enum, default_value_t = Metrics::On, env = "SIGHTLINE_METRICS")]
    pub metrics: Metrics,
}
