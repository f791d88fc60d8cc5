//! Addresses of workers as people write them.

use std::net::Ipv6Addr;
use std::sync::Arc;

use crate::worker::WorkerName;

/// Why a text is no address of a worker, with what would be one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// Another scheme than `http`.
    #[error("the scheme {0} is not spoken here; write http://HOST:PORT")]
    Scheme(String),
    /// Something behind the port.
    #[error("workers have no path ({0}); write http://HOST:PORT")]
    Path(String),
    /// No port, or no number of one.
    #[error("a worker needs a port from 1 to 65535; write http://HOST:PORT, as in http://{0}:8000")]
    Port(String),
    /// No host, or none that can be one.
    #[error("{0:?} is no host name and no address; write http://HOST:PORT")]
    Host(String),
}

/// The name and the base address of the worker at `text`: `http://HOST:PORT` or `HOST:PORT`.
///
/// # Errors
/// Any other form.
pub(crate) fn parse(text: &str) -> Result<(WorkerName, Arc<str>), AddressError> {
    let rest = match text.split_once("://") {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => rest,
        Some((scheme, _)) => return Err(AddressError::Scheme(scheme.to_owned())),
        None => text,
    };
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    if let Some(at) = rest.find(['/', '?', '#']) {
        return Err(AddressError::Path(rest[at..].to_owned()));
    }
    let (host, port) = split(rest)?;
    let known = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(inner) => inner.parse::<Ipv6Addr>().is_ok(),
        None => {
            let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
            !host.is_empty() && host.bytes().all(plain)
        }
    };
    if !known {
        return Err(AddressError::Host(host.to_owned()));
    }
    // One name for one place, however it is written.
    let name = format!("{}:{port}", host.to_ascii_lowercase());
    let base = Arc::from(format!("http://{name}"));
    Ok((WorkerName::new(name), base))
}

/// Host and port of `HOST:PORT`; the host of an IPv6 address keeps its brackets.
///
/// # Errors
/// No port, or none between 1 and 65535.
pub(crate) fn split(text: &str) -> Result<(&str, u16), AddressError> {
    let missing = || AddressError::Port(text.to_owned());
    let (host, port) = text.rsplit_once(':').ok_or_else(missing)?;
    let inside = host.starts_with('[') && !host.ends_with(']');
    if inside {
        return Err(missing());
    }
    match port.parse() {
        Ok(port) if port > 0 => Ok((host, port)),
        Ok(_) | Err(_) => Err(AddressError::Port(host.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_has_one_name_however_it_is_written() {
        let of = |text: &str| {
            let (name, base) = parse(text).expect(text);
            assert_eq!(*base, format!("http://{name}"));
            name.as_str().to_owned()
        };
        for same in ["http://Host-1:8001", "host-1:8001", "HTTP://host-1:8001/"] {
            assert_eq!(of(same), "host-1:8001");
        }
        assert_eq!(of("127.0.0.1:80"), "127.0.0.1:80");
        assert_eq!(of("http://[::1]:8000"), "[::1]:8000");
    }

    #[test]
    fn other_forms_are_refused_with_what_would_work() {
        let why = |text: &str| parse(text).expect_err(text).to_string();
        assert!(why("https://h:1").contains("https is not spoken"));
        assert!(why("http://h:1/v1").contains("(/v1)"));
        for text in ["http://h", "h:0", "h:70000", "h:http", "[::1]"] {
            assert!(why(text).contains("needs a port"), "{text}");
        }
        for text in ["http://:80", "user@h:80", "::1:80", "h h:80"] {
            assert!(why(text).contains("is no host name"), "{text}");
        }
    }
}
