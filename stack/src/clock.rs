//! The one place that reads the wall clock.

use std::time::{SystemTime, UNIX_EPOCH};

/// Unix time in milliseconds; 0 on a machine whose clock is before 1970.
pub(crate) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
