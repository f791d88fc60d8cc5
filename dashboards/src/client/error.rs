//! What can go wrong with a request, in words that say what would work.

use std::time::Duration;

/// Why a server gave no usable answer. No text holds a password or a token.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The address is none.
    #[error(
        "{shown:?} is no address of a server: {why}; give http://HOST:PORT, or https://HOST with \
         the path that the server lies below"
    )]
    Url {
        /// The text, without what stands before `@`.
        shown: String,
        /// What is wrong with it.
        why: String,
    },
    /// A file with a password, a token or certificates is of no use.
    #[error("{path}: {why}")]
    File {
        /// Which file.
        path: String,
        /// What is wrong with it.
        why: String,
    },
    /// Nobody listens, or the name is not known.
    #[error("{url}: no connection: {source}; is it running, and does this host reach it?")]
    Connect {
        /// What was asked.
        url: String,
        /// Cause.
        source: std::io::Error,
    },
    /// No agreement on encryption.
    #[error(
        "{url}: TLS: {why}; where a certificate is signed by an authority of your own, name its \
         file with --ca-file"
    )]
    Tls {
        /// What was asked.
        url: String,
        /// Cause.
        why: String,
    },
    /// Not all of the answer came in time.
    #[error("{url}: no whole answer within {} s; give it longer with --timeout", .limit.as_secs())]
    Timeout {
        /// What was asked.
        url: String,
        /// How long was waited.
        limit: Duration,
    },
    /// The answer has more bytes than are read.
    #[error("{url}: the answer has more than {bytes_max} bytes; {advice}")]
    TooLarge {
        /// What was asked.
        url: String,
        /// The bound.
        bytes_max: usize,
        /// How to make it smaller.
        advice: &'static str,
    },
    /// The connection ended, or what came is no HTTP.
    #[error("{url}: {why}; is this the port of an HTTP server, and is http or https right?")]
    Http {
        /// What was asked.
        url: String,
        /// Cause.
        why: String,
    },
    /// An answer with a status that says no.
    #[error("{url}: HTTP {status}{}; {advice}", bracketed(.said))]
    Status {
        /// What was asked.
        url: String,
        /// Status code.
        status: u16,
        /// What the server said, shortened; empty where that is no text.
        said: String,
        /// What would work.
        advice: String,
    },
    /// Prometheus understood the question and refuses it.
    #[error("{url}: Prometheus says {kind}: {message}")]
    Refused {
        /// What was asked.
        url: String,
        /// Its name for the kind of error, as `bad_data`.
        kind: String,
        /// Its words.
        message: String,
    },
    /// The answer is none of the expected kind.
    #[error("{url}: not the answer of {expected}: {why}; it begins with {start:?}")]
    NotUnderstood {
        /// What was asked.
        url: String,
        /// Who should have answered.
        expected: &'static str,
        /// What is wrong.
        why: String,
        /// The first characters.
        start: String,
    },
}

impl ClientError {
    /// Whether the server answered at all: with `false`, further questions are in vain.
    #[must_use]
    pub const fn answered(&self) -> bool {
        match self {
            Self::Url { .. }
            | Self::File { .. }
            | Self::Connect { .. }
            | Self::Tls { .. }
            | Self::Timeout { .. }
            | Self::Http { .. } => false,
            Self::TooLarge { .. }
            | Self::Status { .. }
            | Self::Refused { .. }
            | Self::NotUnderstood { .. } => true,
        }
    }

    /// Whether what was asked for is missing there: the server answers 404.
    #[must_use]
    pub const fn is_missing(&self) -> bool {
        matches!(self, Self::Status { status: 404, .. })
    }
}

fn bracketed(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(" ({text})") }
}

/// The start of a body as text for a message: one line, at most `most` characters.
#[must_use]
pub fn shortened(body: &[u8], most: usize) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(most * 4)]).into_owned();
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= most {
        return line;
    }
    let start: String = line.chars().take(most).collect();
    format!("{start}...")
}
