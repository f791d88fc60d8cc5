//! Reads the start of a unit from the journal, by way of `journalctl`: a process that can be
//! killed, and no library of the journal in this one.
//!
//! The journal tags every line with the start of the unit that wrote it, so that one start is never
//! taken for another. Once its sizes are known it is not read again.

use std::ffi::{OsStr, OsString};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::process::Command;

use super::follow::Lines;
use super::start_log::StartLog;
use crate::slot::{CollectError, ErrorKind};

/// How long one reading may take.
pub const DEADLINE: Duration = Duration::from_secs(10);

/// Bytes of a start that are read at most; a server says its sizes in the first of them.
const MOST: u64 = 64 << 20;

/// Calls that pass at most before a start that has not said its sizes is read again.
const PAUSE_MAX: u32 = 12;

/// The journal of one unit.
#[derive(Debug)]
pub struct Journal {
    unit: String,
    /// Name or path of `journalctl`.
    program: OsString,
    deadline: Duration,
    read: Option<Reading>,
}

/// One start, as far as it was read.
#[derive(Debug)]
struct Reading {
    invocation: String,
    lines: Lines,
    /// Whether there is nothing more to learn.
    done: bool,
    /// Why the last reading failed.
    failure: Option<CollectError>,
    /// Calls until it is read again, and how many there were the last time.
    wait: u32,
    pause: u32,
}

impl Journal {
    /// That of `unit`.
    #[must_use]
    pub fn new(unit: String) -> Self {
        Self { unit, program: "journalctl".into(), deadline: DEADLINE, read: None }
    }

    /// What the start with the id `invocation` has said so far; an id is 32 hexadecimal digits.
    ///
    /// # Errors
    /// There is no `journalctl`, it fails, or does not end in time.
    pub async fn step(&mut self, invocation: &str) -> Result<&StartLog, CollectError> {
        let mut reading = match self.read.take() {
            Some(read) if read.invocation == invocation => read,
            Some(_) | None => Reading::new(invocation),
        };
        if reading.done {
            return Ok(&self.read.insert(reading).lines.log);
        }
        if reading.wait > 0 {
            reading.wait -= 1;
            let reading = self.read.insert(reading);
            return reading.failure.clone().map_or(Ok(&reading.lines.log), Err);
        }
        // A journal of days without a start in it is not read every time, nor is one that cannot
        // be read.
        reading.pause = (reading.pause * 2).clamp(1, PAUSE_MAX);
        reading.wait = reading.pause;
        let late = || {
            let (unit, deadline) = (&self.unit, self.deadline);
            let detail = format!("journalctl: no end of {unit} within {deadline:?}");
            CollectError::new(ErrorKind::Timeout, detail)
        };
        let found = tokio::time::timeout(self.deadline, read(&self.program, invocation)).await;
        match found.map_err(|_| late()).flatten() {
            Ok((lines, done)) => {
                (reading.lines, reading.done, reading.failure) = (lines, done, None);
            }
            Err(error) => reading.failure = Some(error),
        }
        let reading = self.read.insert(reading);
        reading.failure.clone().map_or(Ok(&reading.lines.log), Err)
    }
}

impl Reading {
    /// Of a start that was not read yet.
    fn new(invocation: &str) -> Self {
        Self {
            invocation: invocation.to_owned(),
            lines: Lines::default(),
            done: false,
            failure: None,
            wait: 0,
            pause: 0,
        }
    }
}

/// What the start says, and whether reading it again would say more.
async fn read(program: &OsStr, invocation: &str) -> Result<(Lines, bool), CollectError> {
    let failed = |error: std::io::Error| CollectError::io("journalctl", &error);
    let mut child = Command::new(program)
        .args(["--quiet", "--no-pager", "--output=cat"])
        .arg(format!("_SYSTEMD_INVOCATION_ID={invocation}"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(failed)?;
    let mut out = child.stdout.take().expect("standard output is a pipe").take(MOST);
    let (mut lines, mut chunk) = (Lines::default(), vec![0; 64 << 10]);
    loop {
        let read = out.read(&mut chunk).await.map_err(failed)?;
        lines.add(&chunk[..read]);
        if lines.log.is_complete() || (read > 0 && out.limit() == 0) {
            // The rest says nothing of the start.
            return Ok((lines, true));
        }
        if read == 0 {
            break;
        }
    }
    let status = child.wait().await.map_err(failed)?;
    // It ends with 1 where nothing matches.
    if status.success() || status.code() == Some(1) {
        return Ok((lines, false));
    }
    let detail = format!("journalctl ended with {status}; may this user read the journal?");
    Err(CollectError::new(ErrorKind::Permission, detail))
}

#[cfg(test)]
mod tests;
