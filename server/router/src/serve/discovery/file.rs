//! A file of workers: TOML, or JSON lines.
//!
//! ```toml
//! [[worker]]
//! url = "http://10.0.0.7:8001"
//! role = "prefill"     # unified where nothing is said
//! model = "llama"      # by default what the worker says
//! ```
//!
//! ```json
//! {"url": "http://10.0.0.7:8001", "role": "prefill"}
//! ```

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use serde::Deserialize;

use super::{role, spec};
use crate::serve::address::AddressError;
use crate::worker::{WorkerRole, WorkerSpec};

/// Largest file that is read.
const BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Why a file gives no list.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The system does not give it.
    #[error("it cannot be read: {0}")]
    Read(#[from] std::io::Error),
    /// It is larger than a list of workers can be.
    #[error("its {0} bytes are more than {BYTES_MAX}")]
    Size(u64),
    /// It is not what its first letter promises.
    #[error("line {line}: {reason}")]
    Syntax {
        /// The line, from 1.
        line: usize,
        /// What the parser says.
        reason: String,
    },
    /// A role that does not exist.
    #[error("worker {url}: there is no role {role:?}; use unified, prefill or decode")]
    Role {
        /// The worker.
        url: String,
        /// The role as written.
        role: String,
    },
    /// An address that is none.
    #[error("worker {url}: {source}")]
    Address {
        /// The address as written.
        url: String,
        /// What is wrong with it.
        source: AddressError,
    },
    /// The same worker twice, as different things.
    #[error("worker {0} is listed twice; a worker has one role")]
    Twice(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    url: String,
    role: Option<String>,
    model: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    #[serde(default)]
    worker: Vec<Entry>,
}

/// The workers that `text` lists. JSON lines begin with a brace, TOML does not; an empty text lists
/// none.
///
/// # Errors
/// Anything that is not understood, so that no half of a list is ever taken.
pub fn parse(text: &str) -> Result<Vec<WorkerSpec>, FileError> {
    let entries = if text.trim_start().starts_with('{') { lines(text)? } else { table(text)? };
    let mut specs: Vec<WorkerSpec> = Vec::with_capacity(entries.len());
    for Entry { url, role: named, model } in entries {
        let known = named.as_deref().map_or(Some(WorkerRole::Unified), role);
        let Some(role) = known else {
            return Err(FileError::Role { url, role: named.unwrap_or_default() });
        };
        let listed = spec(&url, role, model.map(Arc::from))
            .map_err(|source| FileError::Address { url, source })?;
        if specs.iter().any(|other| other.name == listed.name) {
            return Err(FileError::Twice(listed.name.as_str().to_owned()));
        }
        specs.push(listed);
    }
    Ok(specs)
}

fn lines(text: &str) -> Result<Vec<Entry>, FileError> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(at, line)| {
            let syntax = |error: serde_json::Error| FileError::Syntax {
                line: at + 1,
                reason: error.to_string(),
            };
            serde_json::from_str(line).map_err(syntax)
        })
        .collect()
}

fn table(text: &str) -> Result<Vec<Entry>, FileError> {
    let read: Result<Table, toml::de::Error> = toml::from_str(text);
    let table = read.map_err(|error| FileError::Syntax {
        line: error.span().map_or(0, |span| text[..span.start].matches('\n').count()) + 1,
        reason: error.message().to_owned(),
    })?;
    Ok(table.worker)
}

/// What tells one version of a file from another without reading it.
type Stamp = (Option<SystemTime>, u64);

/// A file that is read again when it has changed.
#[derive(Debug)]
pub struct Watched {
    path: PathBuf,
    /// Of what was read last, whether or not it was a list.
    read: Option<Stamp>,
}

impl Watched {
    /// Nothing is read yet.
    #[must_use]
    pub const fn new(path: PathBuf) -> Self {
        Self { path, read: None }
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The list, where the file has changed since the last call or `again` says to read it anyway.
    /// Blocks while the file is read.
    ///
    /// # Errors
    /// The file cannot be read, or is not understood. It is tried again when it has changed.
    pub fn changed(&mut self, again: bool) -> Result<Option<Vec<WorkerSpec>>, FileError> {
        let stamp = self.stamp();
        let known = stamp.as_ref().ok().copied();
        if !again && known.is_some() && known == self.read {
            return Ok(None);
        }
        let first = self.read != known || known.is_none();
        self.read = known;
        let (_, bytes) = stamp?;
        if bytes > BYTES_MAX {
            return if first || again { Err(FileError::Size(bytes)) } else { Ok(None) };
        }
        parse(&std::fs::read_to_string(&self.path)?).map(Some)
    }

    fn stamp(&self) -> std::io::Result<Stamp> {
        let facts = std::fs::metadata(&self.path)?;
        Ok((facts.modified().ok(), facts.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(text: &str) -> Vec<String> {
        let specs = parse(text).expect(text);
        let line = |spec: &WorkerSpec| {
            format!("{} {} {:?}", spec.role.as_str(), spec.base, spec.model.as_deref())
        };
        specs.iter().map(line).collect()
    }

    #[test]
    fn both_forms_list_the_same() {
        let toml = "# ours\n[[worker]]\nurl = \"http://a:1\"\n\n[[worker]]\nurl = \"b:2\"\n\
                    role = \"decode\"\nmodel = \"m\"\n";
        let json =
            "{\"url\": \"http://a:1\"}\n\n{\"url\":\"b:2\",\"role\":\"decode\",\"model\":\"m\"}\n";
        let expected = ["unified http://a:1 None", "decode http://b:2 Some(\"m\")"];
        assert_eq!(listed(toml), expected);
        assert_eq!(listed(json), expected);
        assert!(listed("").is_empty() && listed("# none today\n").is_empty());
    }

    #[test]
    fn what_is_not_understood_is_named() {
        let why = |text: &str| parse(text).expect_err(text).to_string();
        assert!(why("[[worker]]\nurl = \"a:1\"\nrole = \"boss\"").contains("no role \"boss\""));
        assert!(why("[[worker]]\nurl = \"a\"").contains("needs a port"));
        assert!(why("{\"url\":\"a:1\"}\n{\"url\":").starts_with("line 2:"));
        assert!(why("[[worker]]\nurl = \"a:1\"\nprot = 1").starts_with("line 3:"));
        assert!(why("{\"url\":\"a:1\"}\n{\"url\":\"http://a:1/\"}").contains("listed twice"));
        assert!(why("[[workers]]\nurl = \"a:1\"").contains("workers"));
    }

    #[test]
    fn a_file_is_read_when_it_changes_and_never_half() {
        let folder = std::env::temp_dir();
        let path = folder.join(format!("sightline-workers-{}.jsonl", std::process::id()));
        let mut watched = Watched::new(path.clone());
        assert!(watched.changed(false).is_err(), "not there");
        std::fs::write(&path, "{\"url\":\"a:1\"}\n").expect("the folder is writable");
        assert_eq!(watched.changed(false).expect("read").expect("new").len(), 1);
        assert!(watched.changed(false).expect("read").is_none(), "the same");
        assert!(watched.changed(true).expect("read").is_some(), "asked for");
        std::fs::write(&path, "{\"url\":\"a:1\"}\n{\"url\":\"b").expect("writable");
        assert!(watched.changed(false).is_err());
        assert!(watched.changed(false).expect("told once").is_none());
        std::fs::write(&path, "{\"url\":\"a:1\"}\n{\"url\":\"b:1\"}\n").expect("writable");
        assert_eq!(watched.changed(false).expect("read").expect("new").len(), 2);
        std::fs::remove_file(&path).expect("it was there");
        assert!(watched.changed(false).is_err(), "gone");
    }
}
