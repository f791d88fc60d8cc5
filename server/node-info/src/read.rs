//! Bounded reading, and what went wrong with it.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// What any file but `zoneinfo` may hold at most. `/proc/stat` of a large machine has 100 kB.
const TEXT_BYTES: u64 = 1 << 20;
/// Entries of a folder that are looked at.
const FOLDER_ENTRIES: usize = 1 << 14;
/// What of a value is repeated in an error.
const SHOWN: usize = 60;

/// A file of the kernel could not be read or understood.
#[derive(Debug, thiserror::Error)]
pub enum FactError {
    /// The file is missing or unreadable.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The path as it was asked for, root included.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file is there, but the value is not what the kernel documents.
    #[error("{} has no usable {field}", path.display())]
    Field {
        /// The path as it was asked for, root included.
        path: PathBuf,
        /// The field that was looked for.
        field: &'static str,
    },
    /// The file is there, and holds something else than the kernel documents.
    #[error("{}: {field} is {found:?}", path.display())]
    Value {
        /// The path as it was asked for, root included.
        path: PathBuf,
        /// The field that was read.
        field: &'static str,
        /// What was found in its place, cut.
        found: String,
    },
    /// The file or folder is longer than any that a kernel writes.
    #[error("{} has more than {most} {unit}", path.display())]
    TooLong {
        /// The path as it was asked for, root included.
        path: PathBuf,
        /// How much is read.
        most: u64,
        /// Of what.
        unit: &'static str,
    },
    /// What was asked for does not exist on this node, and here is why.
    #[error("{}: {why}", path.display())]
    Unsupported {
        /// The path that would have told.
        path: PathBuf,
        /// Why it does not, and what would.
        why: &'static str,
    },
}

/// What kind of failure a [`FactError`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FactKind {
    /// It is not there.
    Missing,
    /// It may not be read by this user.
    Permission,
    /// It is not what the kernel documents, or longer than anything a kernel writes.
    Malformed,
    /// This node has no such thing.
    Unsupported,
    /// The system failed to read it.
    Failed,
}

impl FactError {
    /// Which kind of failure it is.
    #[must_use]
    pub fn kind(&self) -> FactKind {
        match self {
            Self::Read { source, .. } => system(source),
            Self::Field { .. } | Self::Value { .. } | Self::TooLong { .. } => FactKind::Malformed,
            Self::Unsupported { .. } => FactKind::Unsupported,
        }
    }

    /// The path that was asked for.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self {
            Self::Read { path, .. }
            | Self::Field { path, .. }
            | Self::Value { path, .. }
            | Self::TooLong { path, .. }
            | Self::Unsupported { path, .. } => path,
        }
    }
}

/// What the system means by an error.
fn system(error: &io::Error) -> FactKind {
    use io::ErrorKind::{InvalidData, NotADirectory, NotFound, PermissionDenied, Unsupported};
    let kind = error.kind();
    // The process of a file may go while it is open.
    if kind == NotFound || kind == NotADirectory || error.raw_os_error() == Some(ESRCH) {
        FactKind::Missing
    } else if kind == PermissionDenied {
        FactKind::Permission
    } else if kind == Unsupported {
        FactKind::Unsupported
    } else if kind == InvalidData {
        // What is no text is no file of the kernel.
        FactKind::Malformed
    } else {
        FactKind::Failed
    }
}

/// "No such process", which has no kind of its own.
const ESRCH: i32 = 3;

/// One thing among others that could not be read. Its text names path and reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The path as it was asked for, root included.
    pub path: PathBuf,
    /// Which kind of failure it is.
    pub kind: FactKind,
    /// The whole error as a sentence.
    pub reason: String,
}

impl From<FactError> for Problem {
    fn from(error: FactError) -> Self {
        (&error).into()
    }
}

impl From<&FactError> for Problem {
    fn from(error: &FactError) -> Self {
        Self { path: error.path().to_owned(), kind: error.kind(), reason: error.to_string() }
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.reason)
    }
}

/// What was found of one kind, and what of it could not be read. Both are bounded by the entries of
/// a folder, which are bounded.
#[derive(Debug, Clone, PartialEq)]
pub struct Found<T> {
    /// What could be read, in order.
    pub entries: Vec<T>,
    /// What could not, in the order in which it was met.
    pub problems: Vec<Problem>,
}

impl<T> Default for Found<T> {
    fn default() -> Self {
        Self { entries: Vec::new(), problems: Vec::new() }
    }
}

impl<T> Found<T> {
    /// Keeps an entry, or the reason why there is none.
    pub(crate) fn push(&mut self, entry: Result<T, FactError>) {
        match entry {
            Ok(entry) => self.entries.push(entry),
            Err(error) => self.problems.push(error.into()),
        }
    }
}

/// What a parser found in the place of `field`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Bad {
    pub(crate) field: &'static str,
    pub(crate) found: String,
}

impl Bad {
    pub(crate) fn new(field: &'static str, found: &str) -> Self {
        Self { field, found: found.chars().take(SHOWN).collect() }
    }

    /// A field that is not there at all.
    pub(crate) fn missing(field: &'static str) -> Self {
        Self { field, found: "missing".into() }
    }

    pub(crate) fn at(self, path: &Path) -> FactError {
        FactError::Value { path: path.to_owned(), field: self.field, found: self.found }
    }
}

/// A whole file of at most a megabyte.
pub(crate) fn text(path: &Path) -> Result<String, FactError> {
    text_within(path, TEXT_BYTES)
}

/// A whole file of at most `most` bytes.
pub(crate) fn text_within(path: &Path, most: u64) -> Result<String, FactError> {
    let fail = |source| FactError::Read { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    File::open(path).and_then(|file| file.take(most + 1).read_to_end(&mut bytes)).map_err(fail)?;
    if bytes.len() as u64 > most {
        return Err(FactError::TooLong { path: path.to_owned(), most, unit: "bytes" });
    }
    let text = String::from_utf8(bytes);
    text.map_err(|error| fail(io::Error::new(io::ErrorKind::InvalidData, error.utf8_error())))
}

/// The first bytes of a file, never more than `head` holds; how many there are.
pub(crate) fn head(path: &Path, head: &mut [u8]) -> Result<usize, FactError> {
    let mut read = || {
        let mut file = File::open(path)?;
        let mut have = 0;
        while let Some(rest) = head.get_mut(have..).filter(|rest| !rest.is_empty()) {
            match file.read(rest) {
                Ok(0) => break,
                Ok(count) => have += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(have)
    };
    read().map_err(|source| FactError::Read { path: path.to_owned(), source })
}

/// A file that may be absent: where the kernel has no such thing it is not there, or says that it
/// is not supported.
pub(crate) fn optional(path: &Path) -> Result<Option<String>, FactError> {
    match text(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) => match error.kind() {
            FactKind::Missing | FactKind::Unsupported => Ok(None),
            FactKind::Permission | FactKind::Malformed | FactKind::Failed => Err(error),
        },
    }
}

/// A number in digits, without sign or anything else.
pub(crate) fn digits<T: FromStr>(text: &str) -> Option<T> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// A file that holds one number.
pub(crate) fn number(text: &str, field: &'static str) -> Result<u64, Bad> {
    let text = text.trim();
    digits(text).ok_or_else(|| Bad::new(field, text))
}

/// The kernel ends every file with the end of a line: what does not was cut.
pub(crate) fn whole(text: &str) -> Result<&str, Bad> {
    let cut = || Bad::new("end", text.lines().next_back().unwrap_or_default());
    text.ends_with('\n').then_some(text).ok_or_else(cut)
}

/// Parses a file that must be there.
pub(crate) fn required_with<T>(
    path: &Path,
    parse: impl FnOnce(&str) -> Result<T, Bad>,
) -> Result<T, FactError> {
    let text = text(path)?;
    whole(&text).and_then(parse).map_err(|bad| bad.at(path))
}

/// Parses a file that may be absent.
pub(crate) fn optional_with<T>(
    path: &Path,
    parse: impl FnOnce(&str) -> Result<T, Bad>,
) -> Result<Option<T>, FactError> {
    let parse = |text: String| whole(&text).and_then(parse).map_err(|bad| bad.at(path));
    optional(path)?.map(parse).transpose()
}

/// The names in a folder, sorted; `None` where it does not exist. Names that are no text are none
/// of the kernel's.
pub(crate) fn names(path: &Path) -> Result<Option<Vec<String>>, FactError> {
    names_within(path, FOLDER_ENTRIES)
}

/// The same, of a folder of at most `most` entries.
pub(crate) fn names_within(path: &Path, most: usize) -> Result<Option<Vec<String>>, FactError> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(source) => {
            let error = FactError::Read { path: path.to_owned(), source };
            return if error.kind() == FactKind::Missing { Ok(None) } else { Err(error) };
        }
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|source| FactError::Read { path: path.to_owned(), source })?;
        if names.len() == most {
            let most = most as u64;
            return Err(FactError::TooLong { path: path.to_owned(), most, unit: "entries" });
        }
        names.extend(entry.file_name().into_string());
    }
    names.sort_unstable();
    Ok(Some(names))
}
