//! Whose a request is: named by a header, else by the field `user`, else nobody's.

use std::sync::Arc;

use axum::http::{HeaderMap, HeaderName};
use protocol::{ApiError, MAX_USER_BYTES};

/// The tenant that `header` names; an empty one names nobody.
///
/// # Errors
/// 400 for a name that is not readable text, or too long to be one.
pub(super) fn of_header(
    headers: &HeaderMap,
    header: &HeaderName,
) -> Result<Option<Arc<str>>, ApiError> {
    let Some(value) = headers.get(header) else { return Ok(None) };
    let refused = |why: String| ApiError::invalid(header.as_str(), format!("{header}: {why}"));
    let name = value
        .to_str()
        .map_err(|_| refused("a tenant is named in printable ASCII characters".to_owned()))?;
    if name.len() > MAX_USER_BYTES {
        return Err(refused(format!("{} bytes are more than {MAX_USER_BYTES}", name.len())));
    }
    Ok((!name.is_empty()).then(|| Arc::from(name)))
}

/// Whether a body may have a field `priority`: cheaper than reading it, and never wrong about
/// one that has.
pub(super) fn mentions_priority(body: &[u8]) -> bool {
    // A JSON string may spell any letter as an escape.
    const NAME: &[u8] = b"priority";
    body.contains(&b'\\') || body.windows(NAME.len()).any(|part| part == NAME)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_names_the_tenant() {
        let name = HeaderName::from_static("x-tenant-id");
        let of = |value: &[u8]| {
            let mut headers = HeaderMap::new();
            headers.insert(&name, value.try_into().expect("a header value"));
            of_header(&headers, &name)
        };
        assert_eq!(of(b"team a").expect("a name").as_deref(), Some("team a"));
        assert_eq!(of(b"").expect("nobody"), None);
        assert_eq!(of_header(&HeaderMap::new(), &name).expect("nobody"), None);
        let long = of(&[b'x'; 257]).expect_err("too long");
        assert_eq!(long.message, "x-tenant-id: 257 bytes are more than 256");
        assert!(of(&[0xfc]).expect_err("not ASCII").message.contains("printable"));
    }

    #[test]
    fn a_priority_is_never_overlooked() {
        assert!(mentions_priority(br#"{"priority": 3}"#));
        assert!(mentions_priority(br#"{"\u0070riority": 3}"#));
        assert!(!mentions_priority(br#"{"prompt": "high prio"}"#));
    }
}
