//! What the process says about itself: logs to standard error, metrics through the catalog.
//!
//! The recording sites are the modules below, one per side: [`observe`] for the engine, [`http`]
//! for requests as HTTP sees them, [`requests`] for admission, [`curve`] for the estimate of hit
//! ratios, [`host`] and [`store`] for the tiers behind the device, [`transfer`] for the link
//! between prefill and decode workers. Nothing else touches a handle.

mod ages;
pub mod curve;
pub mod gauges;
mod host;
pub mod http;
pub mod observe;
mod pools;
pub mod requests;
pub mod settings;
mod store;
pub mod transfer;

use std::fmt::Write;
use std::sync::OnceLock;
use std::time::Duration;

use metric_catalog::install::{Registry, UPKEEP_INTERVAL};
use metric_catalog::labels::{Cuda, GitSha, Role, Rustc, Version};
use metric_catalog::server as catalog;
use tokio_util::sync::CancellationToken;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::reload;
use tracing_subscriber::util::SubscriberInitExt;
use types::Clock;

use crate::cli::{Format, ObserveArgs};

/// The period of the timer whose delay is measured.
const CANARY_PERIOD: Duration = Duration::from_millis(10);

/// Changes the least severe level that is logged; there once logging is set up.
static LEVEL: OnceLock<reload::Handle<LevelFilter, tracing_subscriber::Registry>> = OnceLock::new();

/// Sends log lines at the level of `args` and above to standard error. A second call has no effect.
pub fn install_logs(args: &ObserveArgs) {
    let (level, handle) = reload::Layer::new(LevelFilter::from_level(args.log_level));
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_target(false);
    let registry = tracing_subscriber::registry().with(level);
    let installed = match args.log_format {
        Format::Text => registry.with(lines.with_ansi(false)).try_init(),
        Format::Json => registry.with(lines.json().flatten_event(true)).try_init(),
    };
    match installed {
        Ok(()) => drop(LEVEL.set(handle)),
        Err(error) => tracing::debug!(%error, "Logging was set up before."),
    }
}

/// From now on, lines at `level` and above are logged. Does nothing where logging was not set up
/// here.
pub fn set_log_level(level: tracing::Level) {
    if let Some(Err(error)) =
        LEVEL.get().map(|handle| handle.reload(LevelFilter::from_level(level)))
    {
        tracing::warn!(%error, "The log level cannot be changed.");
    }
}

/// Every metric of the catalog as a table in Markdown: name, kind, labels, roles, meaning.
#[must_use]
pub fn reference() -> String {
    let mut page =
        String::from("| name | kind | labels | roles | meaning |\n| --- | --- | --- | --- | --- |");
    for info in metric_catalog::all() {
        let labels: Vec<&str> = info.labels.iter().map(|label| label.name).collect();
        let labels = if labels.is_empty() { "-".to_owned() } else { labels.join(", ") };
        let kind = info.kind.as_str();
        let roles: Vec<&str> = info.roles.iter().map(|role| role.as_str()).collect();
        let roles = match info.roles {
            [] => "node exporter".to_owned(),
            all if all == Role::ALL => "all".to_owned(),
            _ => roles.join(", "),
        };
        write!(page, "\n| `{}` | {kind} | {labels} | {roles} | {} |", info.name, info.help)
            .expect("writing to a string cannot fail");
    }
    page
}

/// The role as metrics call it.
#[must_use]
pub const fn role(role: crate::cli::Role) -> Role {
    match role {
        crate::cli::Role::Unified => Role::Unified,
        crate::cli::Role::Prefill => Role::Prefill,
        crate::cli::Role::Decode => Role::Decode,
    }
}

/// One handle for each value of a closed label, in the order of its index.
fn all<L: metric_catalog::def::Label, T>(make: impl Fn(L) -> T) -> Vec<T> {
    L::all().iter().cloned().map(make).collect()
}

/// Sets the info metrics that are constants of the build and of the model.
pub fn record_build(registry: &Registry) {
    record_program(registry);
    registry.gauge(catalog::SERVED_MODEL_INFO, ()).set(1.0);
}

/// Sets the info metric that is a constant of the build.
pub fn record_program(registry: &Registry) {
    let labels = (
        Version::new(env!("CARGO_PKG_VERSION")),
        GitSha::new(program::GIT_SHA),
        Rustc::new(program::RUSTC),
        Cuda::new("none"),
    );
    registry.gauge(catalog::BUILD_INFO, labels).set(1.0);
}

/// Folds raw samples into buckets until `stop`; without it they would pile up.
pub async fn upkeep(registry: Registry, stop: CancellationToken) {
    let mut ticks = tokio::time::interval(UPKEEP_INTERVAL);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = ticks.tick() => registry.run_upkeep(),
        }
    }
}

/// Measures how late a 10 ms timer wakes up: the delay that every connection has.
pub async fn canary(registry: Registry, clock: Clock, stop: CancellationToken) {
    let delay = registry.histogram(catalog::TOKIO_EVENT_LOOP_DELAY, ());
    while !stop.is_cancelled() {
        let asleep = clock.now();
        tokio::time::sleep(CANARY_PERIOD).await;
        delay.record_duration(clock.now().since(asleep).saturating_sub(CANARY_PERIOD));
    }
}

#[cfg(test)]
mod tests;
