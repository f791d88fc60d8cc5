//! Follows a JSON object or array byte by byte, to find its end or the first byte that cannot be.
//!
//! Numbers and words are only delimited here; the text is parsed once it is complete.

/// Deeper nesting is refused: the parser that reads the text later has such a bound, too.
const DEPTH_MAX: usize = 100;

/// What a byte meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// The value goes on.
    More,
    /// This byte ends it.
    Done,
    /// No JSON goes on like this.
    Bad,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// A value must follow.
    Value,
    /// After `{`: a key or the end.
    FirstKey,
    /// After a comma in an object.
    Key,
    /// After a key.
    Colon,
    /// After `[`: a value or the end.
    FirstItem,
    /// After a value inside something.
    Next,
    /// Inside a string; `key` says what follows it.
    Text { key: bool },
    /// After a backslash.
    Escape { key: bool },
    /// Inside `\uXXXX`, with so many digits to come.
    Hex { key: bool, left: u8 },
    /// Inside a number or a word.
    Word,
}

/// The state of one value that begins with a bracket.
#[derive(Debug, Clone)]
pub(super) struct Json {
    state: State,
    /// Open brackets, the outermost first.
    open: Vec<u8>,
}

impl Json {
    pub(super) const fn new() -> Self {
        Self { state: State::Value, open: Vec::new() }
    }

    pub(super) fn step(&mut self, byte: u8) -> Step {
        let next = match self.state {
            State::Text { key } => match byte {
                b'"' => Some(if key { State::Colon } else { State::Next }),
                b'\\' => Some(State::Escape { key }),
                0..=0x1f => None,
                _ => Some(self.state),
            },
            State::Escape { key } => match byte {
                b'u' => Some(State::Hex { key, left: 4 }),
                b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Some(State::Text { key }),
                _ => None,
            },
            State::Hex { key, left } => byte.is_ascii_hexdigit().then_some(match left {
                1 => State::Text { key },
                left => State::Hex { key, left: left - 1 },
            }),
            State::Word => match byte {
                b'0'..=b'9' | b'a'..=b'z' | b'E' | b'+' | b'-' | b'.' => Some(State::Word),
                _ => return self.between(State::Next, byte),
            },
            state @ (State::Value
            | State::FirstKey
            | State::Key
            | State::Colon
            | State::FirstItem
            | State::Next) => return self.between(state, byte),
        };
        self.go(next)
    }

    /// A byte outside of strings and words.
    fn between(&mut self, state: State, byte: u8) -> Step {
        if matches!(byte, b' ' | b'\t' | b'\n' | b'\r') && !self.open.is_empty() {
            return self.go(Some(state));
        }
        let next = match (state, byte) {
            (State::FirstKey | State::Key, b'"') => Some(State::Text { key: true }),
            (State::FirstKey, b'}') | (State::FirstItem, b']') | (State::Next, b'}' | b']') => {
                return self.close(byte);
            }
            (State::Colon, b':') => Some(State::Value),
            (State::Next, b',') => match self.open.last() {
                Some(b'{') => Some(State::Key),
                Some(_) => Some(State::Value),
                None => None,
            },
            (State::Value | State::FirstItem, byte) => self.value(byte),
            _ => None,
        };
        self.go(next)
    }

    fn value(&mut self, byte: u8) -> Option<State> {
        match byte {
            b'{' | b'[' if self.open.len() < DEPTH_MAX => {
                self.open.push(byte);
                Some(if byte == b'{' { State::FirstKey } else { State::FirstItem })
            }
            _ if self.open.is_empty() => None,
            b'"' => Some(State::Text { key: false }),
            b'0'..=b'9' | b'-' | b't' | b'f' | b'n' => Some(State::Word),
            _ => None,
        }
    }

    fn close(&mut self, byte: u8) -> Step {
        let opened = if byte == b'}' { b'{' } else { b'[' };
        if self.open.pop() != Some(opened) {
            return Step::Bad;
        }
        self.state = State::Next;
        if self.open.is_empty() { Step::Done } else { Step::More }
    }

    fn go(&mut self, next: Option<State>) -> Step {
        match next {
            Some(state) => {
                self.state = state;
                Step::More
            }
            None => Step::Bad,
        }
    }
}
