//! Parser of `text/event-stream`, fed with whatever pieces the network delivers.
//!
//! Follows the WHATWG HTML standard, section 9.2.6: lines end in LF, CR or both, an event ends
//! with an empty line, several `data` fields are joined by LF. Names, ids and retry are ignored.
//! Buffers are kept from event to event, so that a long stream allocates nothing.

use std::ops::ControlFlow;

/// A longer event is refused: no token is that long.
const EVENT_BYTES_MAX: usize = 16 << 20;

/// An event exceeds what is accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event of more than {EVENT_BYTES_MAX} bytes")]
pub(crate) struct TooLong;

/// State between two pieces.
#[derive(Debug, Default)]
pub(crate) struct Parser {
    line: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    /// The last byte was CR: a LF that follows belongs to it.
    after_cr: bool,
}

impl Parser {
    /// Takes the next piece; calls `event` with the data of each event that it completes.
    ///
    /// Stops early, with `Break`, when `event` says so; the rest of the piece is lost then.
    pub(crate) fn feed(
        &mut self,
        mut bytes: &[u8],
        mut event: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, TooLong> {
        if std::mem::take(&mut self.after_cr) {
            // A piece without a byte decides nothing.
            self.after_cr = bytes.is_empty();
            bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
        }
        while let Some(end) = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            let flow = self.end_line(&bytes[..end], &mut event)?;
            let carriage = bytes[end] == b'\r';
            bytes = &bytes[end + 1..];
            if carriage {
                self.after_cr = bytes.is_empty();
                bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
            }
            if flow.is_break() {
                return Ok(flow);
            }
        }
        self.line.extend_from_slice(bytes);
        if self.line.len() > EVENT_BYTES_MAX {
            return Err(TooLong);
        }
        Ok(ControlFlow::Continue(()))
    }

    /// The stream is over. An event without its empty line counts: some servers forget the last.
    pub(crate) fn finish(
        &mut self,
        mut event: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<(), TooLong> {
        let open_line = !self.line.is_empty();
        if open_line && self.end_line(b"", &mut event)?.is_break() {
            return Ok(());
        }
        self.end_line(b"", &mut event).map(|_| ())
    }

    fn end_line(
        &mut self,
        rest: &[u8],
        event: &mut impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, TooLong> {
        let mut joined = std::mem::take(&mut self.line);
        let line = if joined.is_empty() {
            rest
        } else {
            joined.extend_from_slice(rest);
            joined.as_slice()
        };
        let mut flow = ControlFlow::Continue(());
        if line.is_empty() {
            if std::mem::take(&mut self.has_data) {
                flow = event(&self.data);
                self.data.clear();
            }
        } else if let Some(value) = field(line, b"data") {
            if self.has_data {
                self.data.push(b'\n');
            }
            self.has_data = true;
            self.data.extend_from_slice(value);
        }
        joined.clear();
        self.line = joined;
        if self.data.len() > EVENT_BYTES_MAX { Err(TooLong) } else { Ok(flow) }
    }
}

/// The value of a field of this name, less the one space that may precede it.
fn field<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    // A byte order mark may precede the very first line; it can precede no other data of ours.
    let line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line);
    match line.strip_prefix(name)? {
        [] => Some(b""),
        [b':', value @ ..] => Some(value.strip_prefix(b" ").unwrap_or(value)),
        [_, ..] => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &str = "\u{feff}data: one\n\n: a remark\nevent: x\nid: 7\ndata:two\r\n\r\n\
        data: three\rdata:  and a space\r\rdata\n\ndatabase: no\n\n\ndata: grün\n\n\
        data: [DONE]";
    const EVENTS: [&str; 6] = ["one", "two", "three\n and a space", "", "grün", "[DONE]"];

    fn read(pieces: &[&[u8]]) -> Vec<String> {
        let (mut parser, mut events) = (Parser::default(), Vec::new());
        let mut take = |data: &[u8]| {
            events.push(String::from_utf8(data.to_vec()).expect("whole events are text"));
            ControlFlow::Continue(())
        };
        for piece in pieces {
            assert!(parser.feed(piece, &mut take).expect("short").is_continue());
        }
        parser.finish(&mut take).expect("short");
        events
    }

    #[test]
    fn a_line_end_may_come_in_three_pieces() {
        assert_eq!(read(&[b"data: x\r", b"\n", b"\n", b"data: y\n\n"]), ["x", "y"]);
        assert_eq!(read(&[b"data: x\r", b"", b"\n\n", b"data: y\n\n"]), ["x", "y"]);
    }

    #[test]
    fn a_stream_split_anywhere_gives_the_same_events() {
        let bytes = STREAM.as_bytes();
        assert_eq!(read(&[bytes]), EVENTS);
        for first in 0..=bytes.len() {
            let (head, tail) = bytes.split_at(first);
            assert_eq!(read(&[head, tail]), EVENTS, "split at {first}");
            for second in (0..=tail.len()).step_by(7) {
                let (middle, tail) = tail.split_at(second);
                assert_eq!(read(&[head, middle, tail]), EVENTS, "split at {first}, {second}");
            }
        }
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(read(&single), EVENTS);
    }

    #[test]
    fn a_break_stops_at_once() {
        let (mut parser, mut seen) = (Parser::default(), 0);
        let flow = parser.feed(b"data: 1\n\ndata: 2\n\ndata: 3\n\n", |_| {
            seen += 1;
            if seen == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert_eq!((flow, seen), (Ok(ControlFlow::Break(())), 2));
    }

    #[test]
    fn an_endless_event_is_refused() {
        let piece = vec![b'x'; 1 << 20];
        let mut parser = Parser::default();
        let mut feed = || parser.feed(&piece, |_| ControlFlow::Continue(()));
        let refused = (0..=EVENT_BYTES_MAX >> 20).find(|_| feed().is_err());
        assert!(refused.is_some());
    }
}
