//! Server-sent events: each holds one JSON object; the stream ends with `[DONE]`.

use serde::Serialize;

/// The event that ends a stream.
pub const SSE_DONE: &str = "data: [DONE]\n\n";

/// One event. JSON has no raw line ends, so one `data:` line holds it.
///
/// # Panics
/// Never for the types of this crate: their keys are strings and their numbers finite.
#[must_use]
pub fn sse_event<T: Serialize>(value: &T) -> String {
    let json = serde_json::to_string(value).expect("the types of this crate serialize");
    format!("data: {json}\n\n")
}
