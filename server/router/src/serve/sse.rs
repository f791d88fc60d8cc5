//! What can be told about a stream of server-sent events without taking it apart.
//!
//! Parts of a body are looked at where they lie. Workers write one event in one part; where they
//! do not, the looks below see less, and the bytes are passed on all the same.

use std::sync::LazyLock;

use memchr::memmem::Finder;
use serde::Serialize;

/// The fields whose text is an answer's, as they stand in front of it.
static TEXTS: LazyLock<[Finder<'static>; 4]> = LazyLock::new(|| {
    ["\"content\":", "\"text\":", "\"reasoning_content\":", "\"arguments\":"].map(Finder::new)
});

/// How an event that tells of an error begins.
const ERROR: &[u8] = b"data: {\"error\":";

/// Whether a part of a stream has something of the answer in it, rather than only a role, a
/// comment or counts.
pub(crate) fn has_content(part: &[u8]) -> bool {
    TEXTS.iter().any(|field| {
        let mut rest = part;
        while let Some(at) = field.find(rest) {
            rest = rest[at + field.needle().len()..].trim_ascii_start();
            // Empty text and null are what is sent along with a role.
            if rest.first() == Some(&b'"') && rest.get(1).is_some_and(|byte| *byte != b'"') {
                return true;
            }
        }
        false
    })
}

/// Whether a part begins with an event that tells of an error.
pub(crate) fn is_error(part: &[u8]) -> bool {
    part.starts_with(ERROR)
}

/// Whether the bytes end where an event ends, or are none.
pub(crate) fn is_boundary(part: &[u8]) -> bool {
    part.is_empty() || part.ends_with(b"\n\n") || part.ends_with(b"\r\n\r\n")
}

/// Whether a part ends with the event that ends a stream.
pub(crate) fn is_done(part: &[u8]) -> bool {
    part.trim_ascii_end().ends_with(protocol::SSE_DONE.trim_ascii_end().as_bytes())
}

/// An event with `error`, for a stream that was passed on up to `boundary` or within an event.
pub(crate) fn error_event<E: Serialize>(error: &E, boundary: bool) -> String {
    let event = protocol::sse_event(error);
    if boundary { event } else { format!("\n\n{event}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_told_from_what_surrounds_it() {
        let has = |part: &str| has_content(part.as_bytes());
        assert!(has(r#"data: {"choices":[{"delta":{"role":"assistant","content":"Once"}}]}"#));
        assert!(has(r#"data: {"choices":[{"index":0,"text":" upon"}]}"#));
        assert!(has(r#"data: {"choices":[{"delta":{"content": "\n"}}]}"#));
        assert!(has(r#"data: {"choices":[{"delta":{"content":"","reasoning_content":"hm"}}]}"#));
        assert!(has(r#"{"function":{"name":"f","arguments":"{"}}"#));
        assert!(!has(r#"data: {"choices":[{"delta":{"role":"assistant","content":""}}]}"#));
        assert!(!has(r#"data: {"choices":[{"delta":{"content":null}}]}"#));
        assert!(!has(": ping\n\n"));
        assert!(!has("data: [DONE]\n\n"));
        assert!(!has(r#"{"content":"#), "cut before the text");
        let two = "data: {\"text\":\"\"}\n\ndata: {\"text\":\"x\"}\n\n";
        assert!(has(two), "the second of two events");
    }

    #[test]
    fn errors_follow_whole_events() {
        assert!(is_error(b"data: {\"error\":{\"message\":\"no\"}}\n\n"));
        assert!(!is_error(b"data: {\"choices\":[]}\n\n"));
        assert!(is_boundary(b"") && is_boundary(b"data: 1\n\n") && is_boundary(b"a\r\n\r\n"));
        assert!(!is_boundary(b"data: {\"te"));
        assert!(is_done(b"data: {}\n\ndata: [DONE]\n\n") && !is_done(b"data: [DONE]\n\ndata"));
        assert_eq!(error_event(&1, true), "data: 1\n\n");
        assert_eq!(error_event(&1, false), "\n\ndata: 1\n\n");
    }
}
