//! What a metric counts and in what.

/// What a metric counts, as Prometheus types it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Only grows; its name ends in `_total`.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Classic histogram with fixed bucket edges.
    Histogram,
}

impl Kind {
    /// The word of the exposition format.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// Unit of a metric or of an expression over metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unit {
    /// A plain number of things.
    Count,
    /// Requests.
    Requests,
    /// Tokens.
    Tokens,
    /// Slots (pages or states) of a pool.
    Slots,
    /// Bytes.
    Bytes,
    /// Seconds of duration.
    Seconds,
    /// A moment: Unix seconds.
    Timestamp,
    /// Degrees.
    Celsius,
    /// Energy.
    Joules,
    /// Energy by the second.
    Watts,
    /// Turns of a clock by the second.
    Hertz,
    /// Share, 0 to 1; or a multiple.
    Ratio,
    /// 0 or 1: constants that carry labels, and one-hot states.
    Flag,
    /// Things a second.
    CountPerSecond,
    /// Requests a second.
    RequestsPerSecond,
    /// Tokens a second.
    TokensPerSecond,
    /// Slots a second.
    SlotsPerSecond,
    /// Bytes a second.
    BytesPerSecond,
    /// Thousandths of a second; other engines only, see `Unit::base`.
    Milliseconds,
    /// Millionths of a second; other engines only.
    Microseconds,
    /// 1024 times 1024 bytes; other engines only.
    Mebibytes,
    /// 1024 times as many bytes; other engines only.
    Gibibytes,
    /// 1024 times 1024 bytes by the second; other engines only.
    MebibytesPerSecond,
    /// 1024 times as many bytes by the second; other engines only.
    GibibytesPerSecond,
}

impl Unit {
    /// Unit of a per-second rate of this quantity; a rate of seconds is a share of elapsed time.
    pub const fn rate(self) -> Self {
        match self {
            Self::Requests => Self::RequestsPerSecond,
            Self::Tokens => Self::TokensPerSecond,
            Self::Slots => Self::SlotsPerSecond,
            Self::Bytes => Self::BytesPerSecond,
            Self::Seconds => Self::Ratio,
            Self::Joules => Self::Watts,
            // Of a thing that is not in base units nothing is said: it is converted first.
            Self::Milliseconds
            | Self::Microseconds
            | Self::MebibytesPerSecond
            | Self::GibibytesPerSecond => Self::CountPerSecond,
            Self::Mebibytes => Self::MebibytesPerSecond,
            Self::Gibibytes => Self::GibibytesPerSecond,
            Self::Count
            | Self::Timestamp
            | Self::Celsius
            | Self::Watts
            | Self::Hertz
            | Self::Ratio
            | Self::Flag
            | Self::CountPerSecond
            | Self::RequestsPerSecond
            | Self::TokensPerSecond
            | Self::SlotsPerSecond
            | Self::BytesPerSecond => Self::CountPerSecond,
        }
    }

    /// The base unit of the same quantity, and how many of it make one of this.
    pub const fn base(self) -> (Self, f64) {
        const MEBI: f64 = 1_048_576.0;
        match self {
            Self::Milliseconds => (Self::Seconds, 0.001),
            Self::Microseconds => (Self::Seconds, 0.000_001),
            Self::Mebibytes => (Self::Bytes, MEBI),
            Self::Gibibytes => (Self::Bytes, MEBI * 1024.0),
            Self::MebibytesPerSecond => (Self::BytesPerSecond, MEBI),
            Self::GibibytesPerSecond => (Self::BytesPerSecond, MEBI * 1024.0),
            Self::Count
            | Self::Requests
            | Self::Tokens
            | Self::Slots
            | Self::Bytes
            | Self::Seconds
            | Self::Timestamp
            | Self::Celsius
            | Self::Joules
            | Self::Watts
            | Self::Hertz
            | Self::Ratio
            | Self::Flag
            | Self::CountPerSecond
            | Self::RequestsPerSecond
            | Self::TokensPerSecond
            | Self::SlotsPerSecond
            | Self::BytesPerSecond => (self, 1.0),
        }
    }

    /// Unit of a metric, read from the last word of its name that is a unit; `Count` without one.
    pub const fn of_name(name: &str) -> Self {
        let bytes = name.as_bytes();
        if contains(bytes, b"_timestamp_seconds") || contains(bytes, b"_start_time_seconds") {
            return Self::Timestamp;
        }
        if contains(bytes, b"_bytes_per_second") {
            return Self::BytesPerSecond;
        }
        if contains(bytes, b"_bytes_per_") {
            return Self::Bytes;
        }
        let mut end = bytes.len();
        while end > 0 {
            let mut start = end;
            while start > 0 && bytes[start - 1] != b'_' {
                start -= 1;
            }
            let (_, tail) = bytes.split_at(start);
            let (word, _) = tail.split_at(end - start);
            match word {
                b"seconds" => return Self::Seconds,
                b"bytes" => return Self::Bytes,
                b"tokens" => return Self::Tokens,
                b"requests" => return Self::Requests,
                b"slots" => return Self::Slots,
                b"celsius" => return Self::Celsius,
                b"joules" => return Self::Joules,
                b"watts" => return Self::Watts,
                b"hertz" => return Self::Hertz,
                b"ratio" => return Self::Ratio,
                b"info" | b"state" => return Self::Flag,
                _ => end = start.saturating_sub(1),
            }
        }
        Self::Count
    }
}

const fn contains(text: &[u8], part: &[u8]) -> bool {
    let mut at = 0;
    while at + part.len() <= text.len() {
        let mut same = 0;
        while same < part.len() && text[at + same] == part[same] {
            same += 1;
        }
        if same == part.len() {
            return true;
        }
        at += 1;
    }
    false
}
