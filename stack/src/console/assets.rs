//! Files that the program carries, compressed since it was built.
//!
//! A client that takes gzip gets the bytes as they lie here; for others they are inflated. A
//! validator spares the bytes of a file that the client has: names stay over builds, so every use
//! asks again.

use std::io::Read;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use flate2::read::GzDecoder;

mod embedded {
    //! Written by the build script.
    use super::Packed;
    include!(concat!(env!("OUT_DIR"), "/embedded.rs"));
}

pub(super) use embedded::{BOARDS, FILES, RULES};

/// A compressed file.
#[derive(Debug)]
pub(super) struct Packed {
    /// Path below its folder, with `/`.
    pub(super) name: &'static str,
    /// Bytes when inflated.
    pub(super) size: usize,
    /// Entity tag, quotes included; weak, as it names the content and not its encoding.
    tag: &'static str,
    gzip: &'static [u8],
}

impl Packed {
    /// The content.
    pub(super) fn inflated(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.size);
        GzDecoder::new(self.gzip)
            .read_to_end(&mut bytes)
            .expect("the build script has compressed it");
        bytes
    }

    /// Bytes as they are carried.
    #[cfg(test)]
    pub(super) const fn packed_len(&self) -> usize {
        self.gzip.len()
    }

    /// The file for a request with these headers: whole, or 304 when the client has it.
    pub(super) fn answer(&self, request: &HeaderMap) -> Response {
        let mut headers = HeaderMap::new();
        headers.insert(header::ETAG, HeaderValue::from_static(self.tag));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
        if has(request, self.tag) {
            return (StatusCode::NOT_MODIFIED, headers).into_response();
        }
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind(self.name)));
        let body = if takes_gzip(request) {
            headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            Body::from(self.gzip)
        } else {
            Body::from(self.inflated())
        };
        (headers, body).into_response()
    }
}

/// The carried file of that name.
pub(super) fn find(name: &str) -> Option<&'static Packed> {
    FILES.iter().find(|file| file.name == name)
}

/// The media type of a file.
pub(super) fn kind(name: &str) -> &'static str {
    match name.rsplit('.').next().unwrap_or("") {
        "html" => "text/html; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        "json" => "application/json",
        "md" => "text/markdown; charset=utf-8",
        _ => "text/plain; charset=utf-8",
    }
}

/// Whether the client names the tag as one that it has; compared weakly, as for GET.
fn has(request: &HeaderMap, tag: &str) -> bool {
    let opaque = |tag: &str| tag.trim().trim_start_matches("W/").to_owned();
    let listed = request.get_all(header::IF_NONE_MATCH).iter().filter_map(|v| v.to_str().ok());
    listed
        .flat_map(|list| list.split(','))
        .any(|one| one.trim() == "*" || opaque(one) == opaque(tag))
}

/// Whether the client takes gzip: it says so, and not with a weight of zero.
pub(super) fn takes_gzip(request: &HeaderMap) -> bool {
    let lists = request.get_all(header::ACCEPT_ENCODING).iter().filter_map(|v| v.to_str().ok());
    lists.flat_map(|list| list.split(',')).any(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, "q=1"));
        let weight = weight.trim().strip_prefix("q=").and_then(|q| q.trim().parse::<f32>().ok());
        name.trim().eq_ignore_ascii_case("gzip") && weight.is_some_and(|q| q > 0.0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asking(pairs: &[(header::HeaderName, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(header::HeaderName, &'static str)| {
            (name.clone(), HeaderValue::from_static(value))
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn every_file_comes_back_whole() {
        for file in FILES.iter().chain(BOARDS) {
            assert_eq!(file.inflated().len(), file.size, "{}", file.name);
            assert!(file.packed_len() < file.size.max(200), "{}", file.name);
        }
    }

    #[test]
    fn a_client_gets_what_it_takes() {
        let file = find("js/main.js").expect("the entry of the page");
        let plain = file.answer(&HeaderMap::new());
        assert_eq!(plain.headers().get(header::CONTENT_ENCODING), None);
        let packed = file.answer(&asking(&[(header::ACCEPT_ENCODING, "br, gzip;q=0.5")]));
        assert_eq!(packed.headers()[header::CONTENT_ENCODING], "gzip");
        assert_eq!(packed.headers()[header::CONTENT_TYPE], "text/javascript; charset=utf-8");
        let none = file.answer(&asking(&[(header::ACCEPT_ENCODING, "gzip;q=0, br")]));
        assert_eq!(none.headers().get(header::CONTENT_ENCODING), None);
    }

    #[test]
    fn a_client_that_has_it_gets_nothing() {
        let file = find("js/main.js").expect("the entry of the page");
        let (same, other) = (StatusCode::NOT_MODIFIED, StatusCode::OK);
        let strong = file.tag.trim_start_matches("W/");
        let listed = format!("\"x\", {}", file.tag);
        let cases =
            [(file.tag, same), (strong, same), (&listed, same), ("*", same), ("\"x\"", other)];
        for (tags, status) in cases {
            let tags = HeaderValue::from_str(tags).expect("a list of tags");
            let asked = HeaderMap::from_iter([(header::IF_NONE_MATCH, tags.clone())]);
            assert_eq!(file.answer(&asked).status(), status, "{tags:?}");
        }
    }
}
