//! Follows a log file that may grow, be moved away, be cut to nothing, or not exist yet. Blocks.
//!
//! What was read before a log is rotated stays known: the service did not start anew because its
//! log did. Lines of a file that was moved away are read to its end first.

use std::fs::{File, Metadata};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use super::start_log::{LINE_MAX, StartLog};
use crate::slot::{CollectError, ErrorKind};

/// Bytes that are read at a time.
const CHUNK: usize = 256 << 10;

/// Bytes that one call reads at most: a log of days is caught up with in a few calls.
pub const STEP: u64 = 64 << 20;

/// A log file and what it said.
#[derive(Debug)]
pub struct Follower {
    path: PathBuf,
    open: Option<Open>,
    lines: Lines,
}

#[derive(Debug)]
struct Open {
    file: File,
    id: (u64, u64),
    offset: u64,
}

impl Follower {
    /// Follows the file at `path`, which need not exist yet.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        Self { path, open: None, lines: Lines::default() }
    }

    /// Reads what is new, `most` bytes of it. The log as far as it was understood; `None` while
    /// there is more to be read.
    ///
    /// # Errors
    /// The file cannot be read, or is no file. What was known stays, for when it comes back.
    pub fn step(&mut self, most: u64) -> Result<Option<&StartLog>, CollectError> {
        let path = &self.path;
        let failed = |error: io::Error| CollectError::io(&path.display().to_string(), &error);
        let mut left = most;
        if let Some(open) = &mut self.open {
            if !open.read(&mut self.lines, &mut left).map_err(failed)? {
                return Ok(None);
            }
            // Its last lines are read; is it still the one at that path?
            if std::fs::metadata(path).is_ok_and(|meta| id(&meta) != open.id) {
                self.open = None;
            }
        }
        if self.open.is_none() {
            let (file, id) = open(path)?;
            self.lines.forget_partial();
            let open = self.open.insert(Open { file, id, offset: 0 });
            if !open.read(&mut self.lines, &mut left).map_err(failed)? {
                return Ok(None);
            }
        }
        Ok(Some(&self.lines.log))
    }
}

fn id(meta: &Metadata) -> (u64, u64) {
    (meta.dev(), meta.ino())
}

/// A regular file and its identity. Opening anything else could wait for ever.
fn open(path: &Path) -> Result<(File, (u64, u64)), CollectError> {
    let failed = |error: io::Error| CollectError::io(&path.display().to_string(), &error);
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file =
        rustix::fs::open(path, flags, Mode::empty()).map_err(|error| failed(error.into()))?;
    let file = File::from(file);
    let meta = file.metadata().map_err(failed)?;
    if !meta.is_file() {
        let detail = format!("{} is no regular file; give the path of a log file", path.display());
        return Err(CollectError::new(ErrorKind::Malformed, detail));
    }
    let id = id(&meta);
    Ok((file, id))
}

/// A file that is no longer than `most`, whole.
///
/// # Errors
/// It cannot be read, is no regular file, or is longer.
pub fn read_whole(path: &Path, most: usize) -> Result<Vec<u8>, CollectError> {
    let (file, _) = open(path)?;
    let mut text = Vec::new();
    let read = file.take(most as u64 + 1).read_to_end(&mut text);
    read.map_err(|error| CollectError::io(&path.display().to_string(), &error))?;
    if text.len() > most {
        let detail = format!("{} is longer than {most} bytes", path.display());
        return Err(CollectError::new(ErrorKind::Malformed, detail));
    }
    Ok(text)
}

impl Open {
    /// Reads to the end; false where `left` was used up before.
    fn read(&mut self, lines: &mut Lines, left: &mut u64) -> io::Result<bool> {
        if self.file.metadata()?.len() < self.offset {
            // It was cut to be written anew; what it said before is still so.
            self.offset = 0;
            lines.forget_partial();
        }
        self.file.seek(SeekFrom::Start(self.offset))?;
        let mut chunk = vec![0; CHUNK];
        while *left > 0 {
            let most = chunk.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
            let read = match self.file.read(&mut chunk[..most]) {
                Ok(0) => return Ok(true),
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            lines.add(&chunk[..read]);
            self.offset += read as u64;
            *left -= read as u64;
        }
        Ok(false)
    }
}

/// Cuts what is read into lines and hands them on. Keeps at most one line.
#[derive(Debug, Default)]
pub struct Lines {
    /// What the lines said.
    pub log: StartLog,
    partial: Vec<u8>,
    /// Whether the line that is being read is too long to be kept.
    skipping: bool,
}

impl Lines {
    /// The next bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            self.keep(&rest[..end]);
            if !std::mem::take(&mut self.skipping) {
                self.log.line(String::from_utf8_lossy(&self.partial).trim_end_matches('\r'));
            }
            self.partial.clear();
            rest = &rest[end + 1..];
        }
        self.keep(rest);
    }

    fn keep(&mut self, part: &[u8]) {
        self.skipping |= self.partial.len() + part.len() > LINE_MAX;
        if self.skipping {
            self.partial.clear();
        } else {
            self.partial.extend_from_slice(part);
        }
    }

    /// The line that is being read will not be ended.
    fn forget_partial(&mut self) {
        self.partial.clear();
        self.skipping = false;
    }
}

#[cfg(test)]
mod tests;
