//! Series that a healthy system may lack, and why: a panel that reads them may be empty there.
//!
//! By name and not by panel, because whether a series exists depends on what is deployed, not on
//! who looks. Everything else is expected to exist as soon as a process is scraped, since processes
//! export every series of theirs at 0 before the first request.

/// Why a healthy system may lack the series; none where it may not.
#[must_use]
pub fn reason(name: &str) -> Option<&'static str> {
    match name {
        "ALERTS" | "ALERTS_FOR_STATE" => Some("no alert is pending or fires"),
        _ => None,
    }
}
