//! The log on standard error.

use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::cli::LogFormat;

/// From now on lines at `level` and above go to standard error.
pub(super) fn install(format: LogFormat, level: tracing::Level) {
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_target(false);
    let registry = tracing_subscriber::registry().with(LevelFilter::from_level(level));
    let installed = match format {
        LogFormat::Text => registry.with(lines.with_ansi(false)).try_init(),
        LogFormat::Json => registry.with(lines.json().flatten_event(true)).try_init(),
    };
    if let Err(error) = installed {
        tracing::debug!(%error, "Logging was set up before.");
    }
}
