//! What supervisor and worker say to each other: one JSON object a line, requests on the worker's
//! standard input, reports on its standard output.
//!
//! A line is parsed strictly: what is too long, is no JSON, lacks a field or has one too many is an
//! error that quotes it, never a panic and never half a report. Both sides are the same program, so
//! there are no versions.

pub mod values;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, ErrorKind as Io, Read};
use std::path::PathBuf;

pub use values::{
    Ecc, Fast, Fixed, Instance, Link, LinkErrors, Memory, Problem, Process, Rows, Slow,
    ThrottleTimes, Values,
};

/// Longest line, its end included.
pub const LINE_BYTES_MAX: usize = 64 * 1024;

/// More cards than a node has.
pub const CARDS_MAX: u32 = 64;

/// What is read together, and how often it changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Group {
    /// By the second: use, memory, power, clocks.
    Fast,
    /// By the minute: error counts, links, processes.
    Slow,
    /// Hardly ever: names and limits.
    Fixed,
}

impl Group {
    /// All of them, fastest first.
    pub const ALL: [Self; 3] = [Self::Fast, Self::Slow, Self::Fixed];
}

/// Supervisor to worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// The first request: open the library. Answered by [`Report::Hello`] or [`Report::Failed`].
    Open(Open),
    /// Read one group of one card. Answered by [`Report::Sample`] or [`Report::Error`], unless the
    /// card hangs. A card is asked one thing at a time.
    Poll {
        /// Index of the card, below [`Hello::cards`].
        card: u32,
        /// What to read.
        group: Group,
    },
    /// Close the library and end, so that nothing holds the cards. The end of the input means the
    /// same. Answered by [`Report::Bye`].
    Release,
}

/// How to open the library.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Open {
    /// Files to try, in order; [`crate::DEFAULT_LIBRARIES`] where empty.
    pub libraries: Vec<PathBuf>,
    /// Milliseconds after which a call that a card does not support is tried again.
    pub probe_again_millis: u64,
}

/// Worker to supervisor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Report {
    /// The library is open.
    Hello(Hello),
    /// The library cannot be used, or no longer: the supervisor ends this worker.
    Failed(Fault),
    /// What was read.
    Sample {
        /// Index of the card.
        card: u32,
        /// How long it took.
        micros: u64,
        /// What it says.
        values: Values,
    },
    /// What could not be read.
    Error {
        /// Index of the card.
        card: u32,
        /// What was asked for.
        group: Group,
        /// How long it took.
        micros: u64,
        /// Why.
        fault: Fault,
    },
    /// The driver reported an error of a card.
    Xid {
        /// Index of the card.
        card: u32,
        /// The error's code.
        code: u64,
    },
    /// Whether errors of a card are being listened for, whenever that changes.
    Listening {
        /// Index of the card.
        card: u32,
        /// Why not; nothing when they are.
        fault: Option<Fault>,
    },
    /// The worker ends.
    Bye {
        /// Whether every thread was out of the library, so that it could be closed.
        clean: bool,
    },
}

/// What the library is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hello {
    /// The file that was opened.
    pub library: String,
    /// Version of the driver, if it says.
    pub driver_version: Option<String>,
    /// Version of the library, if it says.
    pub library_version: Option<String>,
    /// Version of CUDA that the driver has, as 1000 times major plus 10 times minor.
    pub cuda_version: Option<i32>,
    /// Cards that the driver has, [`CARDS_MAX`] at most.
    pub cards: u32,
}

/// Why something failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// There is no library.
    LibraryMissing,
    /// There is a library and no driver.
    DriverNotLoaded,
    /// The driver is of another version than the library: it was replaced and is not reloaded yet.
    VersionMismatch,
    /// The library was not initialised, or the driver went away.
    Uninitialized,
    /// Not allowed.
    NoPermission,
    /// The card fell off the bus.
    GpuLost,
    /// The card needs a reset.
    ResetRequired,
    /// The index now means another card.
    CardChanged,
    /// The card or the driver cannot do it.
    NotSupported,
    /// The driver took too long, by its own measure.
    Timeout,
    /// The request makes no sense: no such card, not open, or still busy with another.
    BadRequest,
    /// Anything else that the driver says.
    Driver,
}

impl FaultKind {
    /// Whether it concerns the whole library: no card can be read any more.
    #[must_use]
    pub const fn is_of_library(self) -> bool {
        match self {
            Self::LibraryMissing
            | Self::DriverNotLoaded
            | Self::VersionMismatch
            | Self::Uninitialized
            | Self::CardChanged => true,
            Self::NoPermission
            | Self::GpuLost
            | Self::ResetRequired
            | Self::NotSupported
            | Self::Timeout
            | Self::BadRequest
            | Self::Driver => false,
        }
    }
}

/// A failure and its words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// Closed name.
    pub kind: FaultKind,
    /// What happened to what.
    pub detail: String,
}

impl Fault {
    /// Longest detail, in characters; longer ones are cut.
    const DETAIL_MAX: usize = 300;

    pub(crate) fn new(kind: FaultKind, detail: impl Into<String>) -> Self {
        let mut detail: String = detail.into();
        if let Some((at, _)) = detail.char_indices().nth(Self::DETAIL_MAX) {
            detail.truncate(at);
        }
        Self { kind, detail }
    }
}

/// A line that is none of the protocol's.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    /// The pipe broke.
    #[error("reading a line: {0}")]
    Read(#[from] std::io::Error),
    /// No end within the bound.
    #[error("a line is longer than {LINE_BYTES_MAX} bytes")]
    TooLong,
    /// The other side ended within a line.
    #[error("the last line has no end: {0:?}")]
    Cut(String),
    /// Not what is agreed on.
    #[error("{start:?} is no line of the protocol: {why}")]
    Malformed {
        /// How the line starts.
        start: String,
        /// What is wrong with it.
        why: String,
    },
}

/// A message as a line, its end included.
pub fn to_line(message: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(message).expect("strings and numbers are always JSON");
    line.push(b'\n');
    line
}

/// A message from a line, with or without its end.
///
/// # Errors
/// What is wrong with it.
pub fn from_line<T: DeserializeOwned>(line: &[u8]) -> Result<T, LineError> {
    if line.len() > LINE_BYTES_MAX {
        return Err(LineError::TooLong);
    }
    serde_json::from_slice(line)
        .map_err(|why| LineError::Malformed { start: start(line), why: why.to_string() })
}

/// The next message; `None` at the end of the input.
///
/// # Errors
/// As [`from_line`], and what the pipe says.
pub fn read<T: DeserializeOwned>(input: &mut impl BufRead) -> Result<Option<T>, LineError> {
    let mut line = Vec::new();
    let bound = LINE_BYTES_MAX as u64 + 1;
    loop {
        match input.by_ref().take(bound - line.len() as u64).read_until(b'\n', &mut line) {
            Ok(_) => break,
            Err(error) if error.kind() == Io::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    match line.last() {
        None => Ok(None),
        Some(b'\n') => from_line(&line).map(Some),
        Some(_) if line.len() > LINE_BYTES_MAX => Err(LineError::TooLong),
        Some(_) => Err(LineError::Cut(start(&line))),
    }
}

/// Enough of a line to recognise it.
fn start(line: &[u8]) -> String {
    const SHOWN: usize = 80;
    String::from_utf8_lossy(&line[..line.len().min(SHOWN)]).trim_end().to_owned()
}

#[cfg(test)]
mod tests;
