//! Asks another server over plain HTTP.
//!
//! Plain blocking sockets: a command that starts a runtime costs more than its answer. No TLS, no
//! redirects, one request per connection.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use types::Clock;

/// Longest head of an answer.
const HEAD_MAX: usize = 64 * 1024;

/// How every answer begins.
const PROTOCOL: &[u8] = b"HTTP/1.";

/// What a server answered.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// The status.
    pub(crate) status: u16,
    /// The body, whole.
    pub(crate) body: Vec<u8>,
}

/// Sends a GET to `authority`, a host with its port, and reads the answer.
///
/// # Errors
/// `InvalidData` where the answer is no HTTP, `FileTooLarge` where its body has more than `most`
/// bytes, `TimedOut` where all of it takes longer than `time`; else what the system says.
pub(crate) fn get(authority: &str, path: &str, time: Duration, most: usize) -> io::Result<Answer> {
    let clock = Clock::start();
    let left = || {
        let left = time.saturating_sub(clock.now().since(types::Time::ZERO));
        if left.is_zero() { Err(io::Error::from(io::ErrorKind::TimedOut)) } else { Ok(left) }
    };
    let mut stream = connect(authority, left)?;
    stream.set_write_timeout(Some(left()?))?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: {authority}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    let mut part = [0; 16 * 1024];
    loop {
        stream.set_read_timeout(Some(left()?))?;
        let read = match stream.read(&mut part) {
            Ok(0) => break,
            Ok(read) => read,
            // The name that some systems have for it.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(io::ErrorKind::TimedOut.into());
            }
            Err(error) => return Err(error),
        };
        answer.extend_from_slice(&part[..read]);
        // Whoever greets with something else may well say nothing more.
        let shown = answer.len().min(PROTOCOL.len());
        if answer[..shown] != PROTOCOL[..shown] {
            return Err(io::ErrorKind::InvalidData.into());
        }
        if answer.len() > HEAD_MAX.saturating_add(most) {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
    }
    parse(&answer, most)
}

/// The first address that takes a connection.
fn connect(authority: &str, left: impl Fn() -> io::Result<Duration>) -> io::Result<TcpStream> {
    let mut refused = io::Error::from(io::ErrorKind::NotFound);
    for address in authority.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, left()?) {
            Ok(stream) => return Ok(stream),
            Err(error) => refused = error,
        }
    }
    Err(refused)
}

fn parse(answer: &[u8], most: usize) -> io::Result<Answer> {
    let wrong = || io::Error::from(io::ErrorKind::InvalidData);
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").ok_or_else(wrong)?;
    let head = std::str::from_utf8(&answer[..end]).map_err(|_| wrong())?.to_ascii_lowercase();
    let mut lines = head.lines();
    let line = lines.next().filter(|_| answer.starts_with(PROTOCOL)).ok_or_else(wrong)?;
    let status = line.split_whitespace().nth(1).and_then(|status| status.parse().ok());
    let field = |name: &str| {
        let of = |line: &str| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim().to_owned());
        head.lines().find_map(of)
    };
    let rest = &answer[end + 4..];
    let body = if field("transfer-encoding").is_some_and(|coding| coding == "chunked") {
        joined(rest).ok_or_else(wrong)?
    } else {
        let length = field("content-length").and_then(|length| length.parse().ok());
        // Cut short: the connection broke.
        rest.get(..length.unwrap_or(rest.len())).ok_or(io::ErrorKind::UnexpectedEof)?.to_vec()
    };
    if body.len() > most {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(Answer { status: status.ok_or_else(wrong)?, body })
}

/// A body that came in chunks, up to the last one.
fn joined(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let end = rest.windows(2).position(|two| two == b"\r\n")?;
        let size = std::str::from_utf8(&rest[..end]).ok()?;
        let size = usize::from_str_radix(size.split(';').next()?.trim(), 16).ok()?;
        if size == 0 {
            return Some(body);
        }
        let from = end + 2;
        let to = from.checked_add(size)?;
        body.extend_from_slice(rest.get(from..to)?);
        rest = rest.get(to..)?.strip_prefix(b"\r\n")?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_with_a_length_in_chunks_or_to_their_end() {
        let body = |text: &str| parse(text.as_bytes(), 10).map(|answer| answer.body);
        let is = |text: &str| assert_eq!(body(text).expect(text), b"hello", "{text}");
        is("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
        is("HTTP/1.0 200 OK\r\n\r\nhello");
        let chunks = "2;x\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n";
        is(&format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}"));
        assert_eq!(parse(b"HTTP/1.1 404 Not Found\r\n\r\n", 0).expect("HTTP").status, 404);
        let wrong = |text: &str, kind| assert_eq!(body(text).expect_err(text).kind(), kind);
        use io::ErrorKind::{FileTooLarge, InvalidData, UnexpectedEof};
        wrong("SSH-2.0-OpenSSH\r\n\r\n", InvalidData);
        wrong("HTTP/1.1 ok\r\n\r\n", InvalidData);
        wrong("HTTP/1.1 200 OK", InvalidData);
        wrong("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhello", UnexpectedEof);
        wrong("HTTP/1.1 200 OK\r\n\r\nmore than ten", FileTooLarge);
        let cut = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nffffffffffffffff\r\nhe";
        wrong(cut, InvalidData);
    }
}
