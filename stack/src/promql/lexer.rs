//! Splits PromQL text into tokens.
//!
//! Knows nothing of grammar: `by` and `sum` are both identifiers here. Durations are recognised
//! by shape (`5m`, `1h30m`), as in Prometheus.

use super::ParseError;

/// A token and the byte offset where it starts.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    pub(crate) at: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Kind {
    Ident(String),
    Number(f64),
    Text(String),
    /// Milliseconds.
    Duration(i64),
    /// An operator or a bracket, as written.
    Symbol(&'static str),
    End,
}

impl Kind {
    /// How an error message calls the token.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Ident(name) => format!("identifier {name:?}"),
            Self::Number(value) => format!("number {value}"),
            Self::Text(text) => format!("string {text:?}"),
            Self::Duration(_) => "duration".to_owned(),
            Self::Symbol(symbol) => format!("{symbol:?}"),
            Self::End => "end of input".to_owned(),
        }
    }
}

/// The longest duration, as in Prometheus: what 64 bits hold in nanoseconds.
const DURATION_MS_MAX: i64 = i64::MAX / 1_000_000;

/// Longest first, so that `=~` is not read as `=`.
const SYMBOLS: [&str; 25] = [
    "==", "!=", "=~", "!~", ">=", "<=", "=", ">", "<", "+", "-", "*", "/", "%", "^", "(", ")", "{",
    "}", "[", "]", ",", ":", "@", ";",
];

/// Splits `text`; the last token is always [`Kind::End`].
pub(crate) fn tokens(text: &str) -> Result<Vec<Token>, ParseError> {
    let mut lexer = Lexer { text, at: 0, brackets: 0 };
    let mut out = Vec::new();
    loop {
        let token = lexer.next()?;
        let end = token.kind == Kind::End;
        out.push(token);
        if end {
            return Ok(out);
        }
    }
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
    /// Inside `[...]` a colon stands alone; elsewhere it may begin a metric name.
    brackets: usize,
}

impl Lexer<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn next(&mut self) -> Result<Token, ParseError> {
        self.skip_blanks();
        let at = self.at;
        let Some(first) = self.rest().chars().next() else {
            return Ok(Token { kind: Kind::End, at });
        };
        let kind = if first.is_ascii_digit() || (first == '.' && self.digit_after_dot()) {
            self.number()?
        } else if first.is_ascii_alphabetic() || first == '_' || (first == ':' && self.colon_name())
        {
            Kind::Ident(self.take(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':').to_owned())
        } else if matches!(first, '"' | '\'' | '`') {
            self.string(first)?
        } else {
            self.symbol(first)?
        };
        Ok(Token { kind, at })
    }

    fn skip_blanks(&mut self) {
        loop {
            self.take(char::is_whitespace);
            if !self.rest().starts_with('#') {
                return;
            }
            self.take(|c| c != '\n');
        }
    }

    fn take(&mut self, wanted: impl Fn(char) -> bool) -> &str {
        let from = self.at;
        let length = self.rest().find(|c| !wanted(c)).unwrap_or(self.rest().len());
        self.at += length;
        &self.text[from..self.at]
    }

    fn digit_after_dot(&self) -> bool {
        self.rest().as_bytes().get(1).is_some_and(u8::is_ascii_digit)
    }

    fn colon_name(&self) -> bool {
        self.brackets == 0
    }

    fn symbol(&mut self, first: char) -> Result<Kind, ParseError> {
        let found = SYMBOLS.into_iter().find(|symbol| self.rest().starts_with(symbol));
        let Some(symbol) = found else {
            return Err(ParseError::new(self.at, format!("unexpected character: {first:?}")));
        };
        match symbol {
            "[" => self.brackets += 1,
            "]" => self.brackets = self.brackets.saturating_sub(1),
            _ => {}
        }
        self.at += symbol.len();
        Ok(Kind::Symbol(symbol))
    }

    fn number(&mut self) -> Result<Kind, ParseError> {
        let from = self.at;
        if let Some((duration, length)) = duration(self.rest()) {
            self.at += length;
            return Ok(Kind::Duration(duration));
        }
        if self.rest().starts_with("0x") || self.rest().starts_with("0X") {
            self.at += 2;
            let digits = self.take(|c| c.is_ascii_hexdigit()).to_owned();
            return u64::from_str_radix(&digits, 16)
                .map(|value| Kind::Number(value as f64))
                .map_err(|_| ParseError::new(from, "bad number or duration syntax"));
        }
        self.take(|c| c.is_ascii_digit() || c == '.');
        if self.rest().starts_with(['e', 'E']) {
            self.at += 1;
            if self.rest().starts_with(['+', '-']) {
                self.at += 1;
            }
            self.take(|c| c.is_ascii_digit());
        }
        let glued = self.rest().starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
        match self.text[from..self.at].parse::<f64>() {
            Ok(value) if !glued => Ok(Kind::Number(value)),
            _ => Err(ParseError::new(from, "bad number or duration syntax")),
        }
    }

    fn string(&mut self, quote: char) -> Result<Kind, ParseError> {
        let from = self.at;
        self.at += 1;
        let mut out = String::new();
        loop {
            let Some(c) = self.rest().chars().next() else {
                return Err(ParseError::new(from, "unterminated quoted string"));
            };
            self.at += c.len_utf8();
            match c {
                _ if c == quote => return Ok(Kind::Text(out)),
                '\\' if quote != '`' => out.push(self.escape(from)?),
                '\n' if quote != '`' => {
                    return Err(ParseError::new(from, "unterminated quoted string"));
                }
                other => out.push(other),
            }
        }
    }

    fn escape(&mut self, from: usize) -> Result<char, ParseError> {
        let bad = || ParseError::new(from, "unknown escape sequence in quoted string");
        let c = self.rest().chars().next().ok_or_else(bad)?;
        self.at += c.len_utf8();
        Ok(match c {
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            'a' => '\u{7}',
            'b' => '\u{8}',
            'f' => '\u{c}',
            'v' => '\u{b}',
            '\\' | '"' | '\'' => c,
            'x' => self.code_point(2).ok_or_else(bad)?,
            'u' => self.code_point(4).ok_or_else(bad)?,
            'U' => self.code_point(8).ok_or_else(bad)?,
            _ => return Err(bad()),
        })
    }

    fn code_point(&mut self, digits: usize) -> Option<char> {
        let code = self.rest().get(..digits)?;
        let value = char::from_u32(u32::from_str_radix(code, 16).ok()?)?;
        self.at += digits;
        Some(value)
    }
}

/// Reads a duration such as `5m` or `1h30m` at the start of `text`: milliseconds and its length.
pub(crate) fn duration(text: &str) -> Option<(i64, usize)> {
    let bytes = text.as_bytes();
    let (mut at, mut total, mut last) = (0, 0_i64, i64::MAX);
    while at < bytes.len() && bytes[at].is_ascii_digit() {
        let digits = bytes[at..].iter().take_while(|b| b.is_ascii_digit()).count();
        let value: i64 = text[at..at + digits].parse().ok()?;
        let rest = &text[at + digits..];
        let (unit, factor) = [
            ("ms", 1),
            ("s", 1_000),
            ("m", 60_000),
            ("h", 3_600_000),
            ("d", 86_400_000),
            ("w", 604_800_000),
            ("y", 31_536_000_000),
        ]
        .into_iter()
        .find(|(unit, _)| rest.starts_with(unit))?;
        if factor >= last {
            return None;
        }
        last = factor;
        total =
            total.checked_add(value.checked_mul(factor)?).filter(|ms| *ms <= DURATION_MS_MAX)?;
        at += digits + unit.len();
    }
    let glued = bytes.get(at).is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_');
    (at > 0 && !glued).then_some((total, at))
}
