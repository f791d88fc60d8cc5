//! Where a store is: `file:///FOLDER` or `s3://BUCKET/PREFIX?endpoint=URL&region=NAME`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Where a store is. [`fmt::Display`] writes it as it is read; no secret is in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreUrl {
    /// `file:///FOLDER`: a folder, made if need be. In the URL a `%XX` stands for a byte.
    File(PathBuf),
    /// `s3://BUCKET/PREFIX?endpoint=URL&region=NAME`: a bucket of an S3-compatible service.
    S3 {
        /// The bucket.
        bucket: String,
        /// Comes before every name, without slashes at its ends; may be empty.
        prefix: String,
        /// The service, `http://` or `https://`; `None`: Amazon's for the region.
        endpoint: Option<String>,
        /// The region; services with an endpoint of their own mostly do not care.
        region: String,
    },
}

/// A URL that names no store, or credentials that are missing.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum UrlError {
    /// Neither of the forms.
    #[error("{0:?} is not the address of a store: give file:///FOLDER or s3://BUCKET/PREFIX")]
    Scheme(String),
    /// A folder that is not absolute.
    #[error("{0:?} names no absolute folder: write three slashes, file:///var/cache/kv")]
    Folder(String),
    /// Not a bucket's name.
    #[error(
        "{0:?} is not the name of a bucket: 3 to 63 lower-case letters, digits, dots and hyphens"
    )]
    Bucket(String),
    /// A key in the address; its value is not repeated.
    #[error(
        "an address has no credentials: leave them out and set AWS_ACCESS_KEY_ID and \
         AWS_SECRET_ACCESS_KEY"
    )]
    Credentials,
    /// Something behind `?` that is not known.
    #[error("{0:?} behind the ? is not known: give endpoint=URL and region=NAME")]
    Option(String),
    /// An endpoint that is not the URL of a host.
    #[error("{0:?} is not an endpoint: give http://HOST:PORT or https://HOST")]
    Endpoint(String),
    /// Neither region nor endpoint.
    #[error("{0:?} lacks a region: add ?region=eu-central-1, or ?endpoint=URL for another service")]
    Region(String),
    /// A `%` that two hexadecimal digits do not follow, or what is not UTF-8.
    #[error("{0:?} has a % that is not followed by two hexadecimal digits of UTF-8; write %25")]
    Percent(String),
    /// A variable of the environment is missing.
    #[error("{0} is not set: s3:// takes its credentials from the environment")]
    Environment(&'static str),
}

/// Credentials of an S3-compatible service.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The public half.
    pub access_key_id: String,
    /// The secret half.
    pub secret_access_key: String,
    /// For temporary credentials.
    pub session_token: Option<String>,
}

/// Secrets are not shown.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("access_key_id", &self.access_key_id)
            .finish_non_exhaustive()
    }
}

impl Credentials {
    /// Reads `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and, where set, `AWS_SESSION_TOKEN`;
    /// `variable` looks one up in the environment.
    ///
    /// # Errors
    /// The variable that is not set, or empty.
    pub fn from_environment(variable: impl Fn(&str) -> Option<String>) -> Result<Self, UrlError> {
        let set = |name| variable(name).filter(|value| !value.is_empty());
        let need = |name| set(name).ok_or(UrlError::Environment(name));
        Ok(Self {
            access_key_id: need("AWS_ACCESS_KEY_ID")?,
            secret_access_key: need("AWS_SECRET_ACCESS_KEY")?,
            session_token: set("AWS_SESSION_TOKEN"),
        })
    }
}

impl FromStr for StoreUrl {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        match text.split_once("://") {
            Some(("file", rest)) => {
                let folder = percent_decode(rest)?;
                // A host, a relative path, or the root of the file system.
                if !folder.starts_with('/') || folder.trim_matches('/').is_empty() {
                    return Err(UrlError::Folder(text.to_owned()));
                }
                Ok(Self::File(folder.into()))
            }
            Some(("s3", rest)) => s3(text, rest),
            Some(_) | None => Err(UrlError::Scheme(text.to_owned())),
        }
    }
}

fn s3(text: &str, rest: &str) -> Result<StoreUrl, UrlError> {
    let (place, options) = rest.split_once('?').unwrap_or((rest, ""));
    let (bucket, prefix) = place.split_once('/').unwrap_or((place, ""));
    if bucket.contains('@') {
        return Err(UrlError::Credentials);
    }
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '-');
    if !(3..=63).contains(&bucket.len()) || !bucket.chars().all(allowed) {
        return Err(UrlError::Bucket(bucket.to_owned()));
    }
    let (mut endpoint, mut region) = (None, None);
    for option in options.split('&').filter(|option| !option.is_empty()) {
        match option.split_once('=') {
            Some(("endpoint", value)) => endpoint = Some(check_endpoint(percent_decode(value)?)?),
            Some(("region", value)) if !value.is_empty() => region = Some(percent_decode(value)?),
            // A secret may be behind the name.
            Some((name, _)) => return Err(UrlError::Option(name.to_owned())),
            None => return Err(UrlError::Option(option.to_owned())),
        }
    }
    // Services with an endpoint of their own sign with this name unless told otherwise.
    let default = endpoint.as_ref().map(|_| "us-east-1".to_owned());
    let region = region.or(default).ok_or_else(|| UrlError::Region(text.to_owned()))?;
    let prefix = percent_decode(prefix)?.trim_matches('/').to_owned();
    Ok(StoreUrl::S3 { bucket: bucket.to_owned(), prefix, endpoint, region })
}

fn check_endpoint(endpoint: String) -> Result<String, UrlError> {
    let host = endpoint.strip_prefix("http://").or_else(|| endpoint.strip_prefix("https://"));
    match host.map(|host| host.trim_end_matches('/')) {
        Some(host) if host.contains('@') => Err(UrlError::Credentials),
        Some(host) if !host.is_empty() && !host.contains(['/', '?', '#', ' ']) => {
            Ok(endpoint.trim_end_matches('/').to_owned())
        }
        Some(_) | None => Err(UrlError::Endpoint(endpoint)),
    }
}

fn percent_decode(text: &str) -> Result<String, UrlError> {
    let wrong = || UrlError::Percent(text.to_owned());
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let (digits, tail) = rest.split_at_checked(2).ok_or_else(wrong)?;
        if !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err(wrong());
        }
        let digits = std::str::from_utf8(digits).expect("hexadecimal digits are ASCII");
        bytes.push(u8::from_str_radix(digits, 16).expect("two hexadecimal digits fit"));
        rest = tail;
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

/// Puts `%XX` in the place of what would be read as something else.
fn percent_encode(text: &str) -> String {
    let special = |c: char| c == '%' || c == '?' || c == '&' || c.is_whitespace() || c.is_control();
    let mut encoded = String::with_capacity(text.len());
    for c in text.chars() {
        if special(c) {
            let mut buffer = [0; 4];
            for byte in c.encode_utf8(&mut buffer).bytes() {
                encoded.push_str(&format!("%{byte:02X}"));
            }
        } else {
            encoded.push(c);
        }
    }
    encoded
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(folder) => write!(f, "file://{}", percent_encode(&folder.to_string_lossy())),
            Self::S3 { bucket, prefix, endpoint, region } => {
                write!(f, "s3://{bucket}/{}?", percent_encode(prefix))?;
                if let Some(endpoint) = endpoint {
                    write!(f, "endpoint={}&", percent_encode(endpoint))?;
                }
                write!(f, "region={}", percent_encode(region))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written() {
        for (text, written) in [
            ("file:///var/cache/kv", "file:///var/cache/kv"),
            ("file:///a%20b/%25", "file:///a%20b/%25"),
            ("s3://kv-pages?region=eu-central-1", "s3://kv-pages/?region=eu-central-1"),
            (
                "s3://pages/a/b/?endpoint=http://127.0.0.1:9000/",
                "s3://pages/a/b?endpoint=http://127.0.0.1:9000&region=us-east-1",
            ),
        ] {
            let url: StoreUrl = text.parse().expect(text);
            assert_eq!(url.to_string(), written);
            assert_eq!(written.parse(), Ok(url));
        }
        let url = "s3://pages/a/b/?endpoint=http%3A%2F%2F127.0.0.1:9000/&region=x";
        let expected = StoreUrl::S3 {
            bucket: "pages".to_owned(),
            prefix: "a/b".to_owned(),
            endpoint: Some("http://127.0.0.1:9000".to_owned()),
            region: "x".to_owned(),
        };
        assert_eq!(url.parse(), Ok(expected));
    }

    #[test]
    fn what_is_wrong_is_named_with_what_works() {
        for (text, part) in [
            ("", "give file:///FOLDER or s3://BUCKET/PREFIX"),
            ("/var/cache", "\"/var/cache\" is not the address of a store"),
            ("ftp://host/x", "\"ftp://host/x\" is not the address"),
            ("file://var/cache", "write three slashes"),
            ("file:///", "names no absolute folder"),
            ("file:///a%2", "write %25"),
            ("file:///a%+1", "write %25"),
            ("file:///a%FF", "write %25"),
            ("s3://ab?region=x", "\"ab\" is not the name of a bucket"),
            ("s3://Bucket?region=x", "\"Bucket\" is not the name of a bucket"),
            ("s3://bucket/x", "add ?region=eu-central-1"),
            ("s3://bucket?region=", "\"region\" behind the ? is not known"),
            ("s3://bucket?endpoint=minio:9000", "\"minio:9000\" is not an endpoint"),
            ("s3://bucket?endpoint=http://h/path", "is not an endpoint"),
            ("s3://bucket?tls", "\"tls\" behind the ? is not known"),
        ] {
            let error = text.parse::<StoreUrl>().expect_err(text).to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn secrets_are_neither_taken_nor_repeated() {
        for text in [
            "s3://key:hunter2@bucket?region=x",
            "s3://bucket?endpoint=http://key:hunter2@host",
            "s3://bucket?secret_access_key=hunter2",
        ] {
            let error = text.parse::<StoreUrl>().expect_err(text).to_string();
            assert!(!error.contains("hunter2"), "{error}");
        }
        let variable = |name: &str| Some(format!("hunter2 {name}"));
        let credentials = Credentials::from_environment(variable).expect("all are set");
        assert_eq!(credentials.session_token.as_deref(), Some("hunter2 AWS_SESSION_TOKEN"));
        assert!(!format!("{credentials:?}").contains("hunter2 AWS_SECRET"));
    }

    #[test]
    fn missing_credentials_are_named() {
        let only_id = |name: &str| (name == "AWS_ACCESS_KEY_ID").then(|| "id".to_owned());
        let error = Credentials::from_environment(only_id).expect_err("no secret").to_string();
        assert!(error.starts_with("AWS_SECRET_ACCESS_KEY is not set"), "{error}");
    }
}
