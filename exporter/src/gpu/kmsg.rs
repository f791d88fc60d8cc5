//! Errors of cards in the kernel's log: what happened before this program started, and what NVML
//! cannot tell any more.
//!
//! The driver writes `NVRM: Xid (PCI:0000:17:00): 79, pid=..`; no other line is looked at.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::OFlags;

use super::facts::Xids;
use crate::config::Config;
use crate::facts::Slots;
use crate::slot::{CollectError, ErrorKind, Now, Stop, run_blocking};

/// Cards that errors are told apart of; more than a node has.
const CARDS_MAX: usize = 64;
/// Longest line that is looked at. The kernel's own bound is a kilobyte.
const LINE_MAX: usize = 8 << 10;
/// Read in one collection at most: the whole ring of a kernel is smaller.
const READ_MAX: usize = 16 << 20;

/// Errors since the machine was started, as far as the log reaches.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KmsgFacts {
    /// By the card's address without its function: `0000:17:00`.
    pub cards: BTreeMap<String, Xids>,
}

impl KmsgFacts {
    /// Errors of the card with this address, as the kernel writes it elsewhere: `0000:17:00.0`.
    #[must_use]
    pub fn of(&self, address: &str) -> Option<&Xids> {
        self.cards.get(address.rsplit_once('.').map_or(address, |(device, _)| device))
    }
}

pub(super) fn start(config: &Config, slots: &Slots, stop: &Stop) -> io::Result<()> {
    let Some(path) = config.kmsg.clone() else {
        slots.kmsg.unsupported("no file of the kernel's log is configured");
        return Ok(());
    };
    let uptime = config.root().procfs().join("uptime");
    let mut log = Log { path, uptime, file: None, rest: Vec::new(), facts: KmsgFacts::default() };
    run_blocking(slots.kmsg.clone(), stop.clone(), move || log.collect(Now::read().wall))
}

struct Log {
    path: PathBuf,
    /// Tells when the machine was started, which is when the log's clock was 0.
    uptime: PathBuf,
    file: Option<File>,
    /// The start of a line whose end has not come.
    rest: Vec<u8>,
    facts: KmsgFacts,
}

impl Log {
    fn collect(&mut self, now: SystemTime) -> Result<KmsgFacts, CollectError> {
        let started = started(&self.uptime, now);
        let mut file = match self.file.take() {
            Some(file) => file,
            None => {
                let file = open(&self.path)?;
                // It is read from its start again: what was counted of it is counted anew.
                self.facts = KmsgFacts::default();
                self.rest.clear();
                file
            }
        };
        let mut buffer = vec![0; LINE_MAX];
        let mut bytes = 0;
        while bytes < READ_MAX {
            match file.read(&mut buffer) {
                Ok(0) => break,
                Ok(read) => {
                    bytes += read;
                    self.take(&buffer[..read], started, now);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // Older lines were overwritten before they were read; the next one is there.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => self.rest.clear(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(refused(&self.path, &error)),
            }
        }
        self.file = Some(file);
        Ok(self.facts.clone())
    }

    fn take(&mut self, bytes: &[u8], started: Option<SystemTime>, now: SystemTime) {
        self.rest.extend_from_slice(bytes);
        let Some(last) = self.rest.iter().rposition(|byte| *byte == b'\n') else {
            // Not a line of a log.
            self.rest.truncate(LINE_MAX);
            return;
        };
        let whole: Vec<u8> = self.rest.drain(..=last).collect();
        self.rest.truncate(LINE_MAX);
        for line in String::from_utf8_lossy(&whole).lines() {
            let Some(event) = parse(line) else { continue };
            let cards = &mut self.facts.cards;
            if cards.len() < CARDS_MAX || cards.contains_key(&event.card) {
                let at = started.zip(event.since_start).and_then(|(at, time)| at.checked_add(time));
                cards.entry(event.card).or_default().count(event.code, at.unwrap_or(now));
            }
        }
    }
}

fn open(path: &Path) -> Result<File, CollectError> {
    // A log that has nothing new must not hold this thread.
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = File::options().read(true).custom_flags(flags).open(path);
    file.map_err(|error| refused(path, &error))
}

/// Who may not read the log has none: only a privileged user does, and this program needs no
/// privileges otherwise.
fn refused(path: &Path, error: &io::Error) -> CollectError {
    let failed = CollectError::io(&path.display().to_string(), error);
    if let CollectError::Failed { kind: ErrorKind::Permission | ErrorKind::Missing, detail } =
        failed
    {
        return CollectError::unsupported(detail);
    }
    failed
}

/// When the machine was started.
fn started(uptime: &Path, now: SystemTime) -> Option<SystemTime> {
    let text = std::fs::read_to_string(uptime).ok()?;
    let seconds: f64 = text.split_whitespace().next()?.parse().ok()?;
    now.checked_sub(Duration::try_from_secs_f64(seconds).ok()?)
}

/// An error of a card.
#[derive(Debug, PartialEq, Eq)]
struct Event {
    card: String,
    code: u64,
    since_start: Option<Duration>,
}

/// The event of a line; `None` for every line that tells of none. Lines are either the kernel's
/// (`6,1234,5000000,-;NVRM: ..`, microseconds in the third place) or their text alone.
fn parse(line: &str) -> Option<Event> {
    let (head, text) = match line.split_once(';') {
        Some((head, text)) if head.starts_with(|first: char| first.is_ascii_digit()) => {
            (Some(head), text)
        }
        _ => (None, line),
    };
    let rest = &text[text.find("NVRM: Xid (")? + "NVRM: Xid (".len()..];
    let (card, rest) = rest.split_once(')')?;
    let card = card.strip_prefix("PCI:").unwrap_or(card);
    // Of a part of a card, more follows.
    let card = card.split_whitespace().next()?.to_ascii_lowercase();
    if card.len() > 16 || !card.chars().all(|c| c.is_ascii_hexdigit() || c == ':') {
        return None;
    }
    let digits = rest.strip_prefix(": ")?;
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    let code = digits[..end].parse().ok()?;
    let micros = head.and_then(|head| head.split(',').nth(2)?.parse().ok());
    Some(Event { card, code, since_start: micros.map(Duration::from_micros) })
}

#[cfg(test)]
mod tests;
