//! A blocking HTTP/1.1 client of a hundred lines: one request a connection, bounded waits.
//!
//! It exists so that a test can do what libraries hide: leave in mid-stream, send half a request,
//! look at raw bytes. It does no redirects, no TLS, no compression.

use anyhow::{Context, Result, bail, ensure};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Longest wait for the server to send anything at all.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// A whole answer.
#[derive(Debug)]
pub struct Response {
    /// Status code.
    pub status: u16,
    /// Header names in lower case, with their values.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Response {
    /// The value of a header, by its lower-case name.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The body as text.
    ///
    /// # Errors
    /// When it is not UTF-8.
    pub fn text(&self) -> Result<&str> {
        std::str::from_utf8(&self.body).context("the body is not UTF-8")
    }

    /// The body as JSON.
    ///
    /// # Errors
    /// When it is not JSON.
    pub fn json(&self) -> Result<serde_json::Value> {
        serde_json::from_slice(&self.body)
            .with_context(|| format!("not JSON: {}", String::from_utf8_lossy(&self.body)))
    }
}

/// An answer whose body is read as it comes.
#[derive(Debug)]
pub struct Stream {
    /// Status code.
    pub status: u16,
    /// Header names in lower case, with their values.
    pub headers: Vec<(String, String)>,
    reader: BufReader<TcpStream>,
    chunked: bool,
    left: Option<usize>,
    /// Of the body, read by [`event`](Self::event) and not yet returned.
    unread: Vec<u8>,
}

/// Sends a request and reads the whole answer. `base` is `http://host:port`.
///
/// # Errors
/// When the server cannot be reached or its answer cannot be read.
pub fn request(base: &str, method: &str, path: &str, body: Option<&[u8]>) -> Result<Response> {
    let mut stream = open(base, method, path, body)?;
    let mut body = Vec::new();
    while let Some(part) = stream.chunk()? {
        body.extend_from_slice(&part);
    }
    Ok(Response { status: stream.status, headers: stream.headers, body })
}

/// `GET path`.
///
/// # Errors
/// As [`request`].
pub fn get(base: &str, path: &str) -> Result<Response> {
    request(base, "GET", path, None)
}

/// `POST path` with a JSON body.
///
/// # Errors
/// As [`request`].
pub fn post(base: &str, path: &str, body: &serde_json::Value) -> Result<Response> {
    request(base, "POST", path, Some(body.to_string().as_bytes()))
}

/// Sends a request and returns when the head of the answer is there.
///
/// # Errors
/// As [`request`].
pub fn open(base: &str, method: &str, path: &str, body: Option<&[u8]>) -> Result<Stream> {
    let host = base.strip_prefix("http://").with_context(|| format!("not an http URL: {base}"))?;
    let mut socket = TcpStream::connect(host).with_context(|| format!("connect to {host}"))?;
    socket.set_read_timeout(Some(READ_TIMEOUT))?;
    socket.set_nodelay(true)?;
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n");
    if let Some(body) = body {
        head += &format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
    }
    socket.write_all((head + "\r\n").as_bytes())?;
    // A server may refuse a large body while it is still being sent: its answer is what counts.
    let sent = socket.write_all(body.unwrap_or_default());
    let mut reader = BufReader::new(socket);
    let (status, headers) = read_head(&mut reader).map_err(|error| match sent {
        Ok(()) => error,
        Err(write) => error.context(format!("after a failed write: {write}")),
    })?;
    let find = |name: &str| headers.iter().find(|(key, _)| key == name).map(|(_, value)| value);
    let chunked = find("transfer-encoding").is_some_and(|value| value.contains("chunked"));
    let left = find("content-length").map(|value| value.parse()).transpose()?;
    Ok(Stream { status, headers, reader, chunked, left, unread: Vec::new() })
}

fn read_head(reader: &mut BufReader<TcpStream>) -> Result<(u16, Vec<(String, String)>)> {
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let status = line.split(' ').nth(1).with_context(|| format!("no status line: {line:?}"))?;
    let status = status.parse()?;
    let mut headers = Vec::new();
    loop {
        line.clear();
        ensure!(reader.read_line(&mut line)? > 0, "the connection ended inside the head");
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    Ok((status, headers))
}

impl Stream {
    /// The next piece of the body; `None` at its end.
    ///
    /// # Errors
    /// When the connection breaks off before the end.
    pub fn chunk(&mut self) -> Result<Option<Vec<u8>>> {
        if self.chunked {
            return self.transfer_chunk();
        }
        if self.left == Some(0) {
            // Some servers keep the connection open all the same.
            return Ok(None);
        }
        let want = self.left.unwrap_or(64 * 1024).min(64 * 1024);
        let mut part = vec![0; want];
        let got = self.reader.read(&mut part)?;
        part.truncate(got);
        if let Some(left) = &mut self.left {
            *left -= got;
            ensure!(got > 0 || *left == 0, "the connection ended {left} bytes early");
        }
        Ok((got > 0).then_some(part))
    }

    fn transfer_chunk(&mut self) -> Result<Option<Vec<u8>>> {
        let mut line = String::new();
        if self.reader.read_line(&mut line)? == 0 {
            bail!("the connection ended inside a chunked body");
        }
        let size = usize::from_str_radix(line.trim(), 16)
            .with_context(|| format!("not a chunk size: {line:?}"))?;
        let mut part = vec![0; size + 2];
        self.reader.read_exact(&mut part)?;
        part.truncate(size);
        Ok((size > 0).then_some(part))
    }

    /// The next server-sent event's data; `None` at the end of the body.
    ///
    /// # Errors
    /// When the connection breaks off, or the body is not an event stream in chunks.
    pub fn event(&mut self) -> Result<Option<String>> {
        // One piece of the body may hold several events, or a part of one.
        loop {
            if let Some(end) = self.unread.windows(2).position(|pair| pair == b"\n\n") {
                let event: Vec<u8> = self.unread.drain(..end + 2).collect();
                let text = String::from_utf8(event)?;
                return Ok(Some(text.trim_end().trim_start_matches("data:").trim().to_owned()));
            }
            match self.chunk()? {
                Some(part) => self.unread.extend_from_slice(&part),
                None => return Ok(None),
            }
        }
    }
}
