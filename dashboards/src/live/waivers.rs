//! Series that a healthy system may lack, and why: a panel that reads them may be empty there.
//!
//! By name and not by panel, because whether a series exists depends on what is deployed, not on
//! who looks. Everything else is expected to exist as soon as a process is scraped, since processes
//! export every series of theirs at 0 before the first request.

use metric_catalog::engines::vllm;

/// Why a healthy system may lack the series; none where it may not.
#[must_use]
pub fn reason(name: &str) -> Option<&'static str> {
    match name {
        "ALERTS" | "ALERTS_FOR_STATE" => Some("no alert is pending or fires"),
        _ if is_old_name(name) => Some("the name in old versions; the new one is read as well"),
        _ => None,
    }
}

/// Whether queries read the series only beside another name of the same thing.
fn is_old_name(name: &str) -> bool {
    let family = name.strip_suffix("_bucket").unwrap_or(name);
    [vllm::TIME_PER_OUTPUT_TOKEN.name(), vllm::GPU_CACHE_USAGE_PERC.name()].contains(&family)
}
