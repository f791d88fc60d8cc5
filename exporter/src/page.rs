//! The families that are about the exporter itself, and the order in which all are put on the page.

use std::time::{Duration, SystemTime};

use metric_catalog::labels::{Collector, CollectorError, GitSha, Rustc, Version};
use metric_catalog::node as catalog;
use metric_catalog::page::Page;
use metric_catalog::process as standard;

use crate::facts::Facts;

/// Puts what the program is on the page.
pub fn program(sandboxed: bool, page: &mut Page) {
    let build = (
        Version::new(env!("CARGO_PKG_VERSION")),
        GitSha::new(program::GIT_SHA),
        Rustc::new(program::RUSTC),
    );
    page.gauge(catalog::BUILD_INFO, build, 1.0);
    page.flag(catalog::SANDBOXED, (), sandboxed);
}

/// Puts what the process itself takes on the page, under the names that every process has.
pub fn process(own: &node_info::Process, page: &mut Page) {
    let busy = Duration::try_from_secs_f64(own.cpu_seconds).unwrap_or_default();
    page.time(standard::CPU_SECONDS, (), busy);
    page.gauge(standard::RESIDENT_MEMORY, (), own.resident_bytes as f64);
    page.gauge(standard::VIRTUAL_MEMORY, (), own.virtual_bytes as f64);
    page.gauge(standard::START_TIME, (), own.start_seconds);
    page.gauge(standard::OPEN_FDS, (), own.open_files as f64);
    page.gauge(standard::MAX_FDS, (), own.max_files as f64);
}

/// Puts how each collector does on the page; every series is there from the start.
pub fn collectors(facts: &Facts, page: &mut Page) {
    for status in facts.statuses() {
        let labels: (Collector,) = (status.name,);
        let last = status.last_success.map_or(0.0, |last| {
            last.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64()
        });
        page.flag(catalog::COLLECTOR_SUPPORTED, labels, status.is_supported());
        page.gauge(catalog::COLLECTOR_INTERVAL, labels, status.interval.as_secs_f64());
        page.flag(catalog::COLLECTOR_SUCCESS, labels, status.success);
        page.gauge(catalog::COLLECTOR_DURATION, labels, status.last_duration.as_secs_f64());
        page.gauge(catalog::COLLECTOR_LAST_SUCCESS, labels, last);
        page.gauge(catalog::COLLECTOR_STUCK, labels, status.stuck.as_secs_f64());
        for (error, count) in CollectorError::ALL.iter().zip(status.errors) {
            page.counter(catalog::COLLECTOR_ERRORS, (status.name, *error), count);
        }
    }
}
