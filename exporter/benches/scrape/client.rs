//! A client with one connection, as a scraper has it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// One connection that is kept.
pub(crate) struct Client(BufReader<TcpStream>);

impl Client {
    pub(crate) fn new(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("it listens");
        stream.set_nodelay(true).expect("a socket");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("not zero");
        Self(BufReader::new(stream))
    }

    /// Asks for the page, uncompressed, and reads all of it.
    pub(crate) fn scrape(&mut self) -> String {
        let head = "GET /metrics HTTP/1.1\r\nHost: x\r\nAccept-Encoding: identity\r\n\r\n";
        self.0.get_mut().write_all(head.as_bytes()).expect("it reads");
        let status = self.line();
        assert!(status.starts_with("HTTP/1.1 200"), "{status}");
        let (mut length, mut chunked) = (0, false);
        loop {
            let line = self.line().to_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(bytes) = line.strip_prefix("content-length:") {
                length = bytes.trim().parse().expect("a length");
            }
            chunked |= line.starts_with("transfer-encoding:") && line.contains("chunked");
        }
        let mut body = Vec::new();
        if chunked {
            loop {
                let size = usize::from_str_radix(&self.line(), 16).expect("a size");
                self.take(size, &mut body);
                assert_eq!(self.line(), "", "a chunk has an end");
                if size == 0 {
                    break;
                }
            }
        } else {
            self.take(length, &mut body);
        }
        String::from_utf8(body).expect("a page is text")
    }

    fn take(&mut self, size: usize, body: &mut Vec<u8>) {
        let before = body.len();
        body.resize(before + size, 0);
        self.0.read_exact(&mut body[before..]).expect("the whole page");
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("a line");
        line.trim_end().to_owned()
    }
}
