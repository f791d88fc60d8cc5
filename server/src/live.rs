//! Settings that can change while a program runs: by `POST /admin/config`, for as long as the
//! process lives, or by the file of `--config` and SIGHUP.
//!
//! Values are read in the words of the command line, by the same parser, and checked as at a
//! start. A change is all or nothing, has a number (the generation), and throws out nobody who
//! waits or runs.

mod router;
mod serve;

use std::ffi::OsString;
use std::fmt::Debug;
use std::sync::{Mutex, MutexGuard, PoisonError};

use clap::CommandFactory;
use xxhash_rust::xxh3::xxh3_64;

pub use router::{RouterKey, RouterValues};
pub use serve::{Key, Values};

use crate::cli::{Cli, Command};
use crate::config::file::{self, FileError};
use crate::telemetry::settings::{InForce, SettingsMetrics};

/// A setting that can change, by its flag.
pub trait LiveKey: Copy + Eq + Debug + Send + 'static {
    /// Every key.
    const ALL: &'static [Self];

    /// The flag, without dashes.
    fn as_str(self) -> &'static str;
}

/// The settings of one program that can change, with their values.
pub trait Changing: Copy + Debug + Send + 'static {
    /// One of them.
    type Key: LiveKey;

    /// The shortest command line that is complete, the program's name first.
    const LEAST: &'static [&'static str];

    /// Those of a command line, whether or not they go together.
    ///
    /// # Errors
    /// It is another command's.
    fn of(command: &Command) -> Result<Self, String>;

    /// Whether the values of a command line go together.
    ///
    /// # Errors
    /// Which does not, and what would.
    fn check(command: &Command) -> Result<(), String>;

    /// The value of `key` in the words of the command line; `default` where it follows something
    /// else.
    fn text(&self, key: Self::Key) -> String;

    /// Takes over the value of `key` from `other`.
    fn take(&mut self, key: Self::Key, other: &Self);

    /// Whether the two differ in `key`.
    fn differs(&self, key: Self::Key, other: &Self) -> bool {
        self.text(key) != other.text(key)
    }
}

/// The text of a value that follows something else.
const UNSAID: &str = "default";

/// Why nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// Somebody else changed something since the generation that the caller knows.
    #[error("the settings are at generation {now}, not {known}: read them again")]
    Stale {
        /// The generation in force.
        now: u64,
        /// What the caller had seen.
        known: u64,
    },
    /// A key that is no flag of the program.
    #[error("{key}: no such setting; those that can change are {known}")]
    Unknown {
        /// As it was given.
        key: String,
        /// Those that there are.
        known: String,
    },
    /// A value that the flag does not take.
    #[error("{key}: {reason}")]
    Value {
        /// The flag.
        key: String,
        /// Why, and what it takes.
        reason: String,
    },
    /// The file cannot be used.
    #[error("{0}")]
    File(#[from] FileError),
    /// The command line with the file's keys is no good any more.
    #[error("the file of --config: {0}")]
    Parse(String),
    /// There is no file to read again.
    #[error("there is no file to read again: the program was started without --config")]
    NoFile,
}

/// The keys that can change, with commas.
#[must_use]
pub fn names<K: LiveKey>() -> String {
    K::ALL.iter().map(|key| key.as_str()).collect::<Vec<_>>().join(", ")
}

/// The key of this flag.
fn key_of<K: LiveKey>(name: &str) -> Option<K> {
    K::ALL.iter().copied().find(|key| key.as_str() == name)
}

/// What a change came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed<V: Changing> {
    /// The generation in force now.
    pub generation: u64,
    /// What is in force now.
    pub values: V,
    /// Keys with a new value.
    pub applied: Vec<V::Key>,
    /// Flags that a start reads, and nothing else.
    pub needs_restart: Vec<String>,
}

#[derive(Debug)]
struct State<V> {
    generation: u64,
    /// What flags and file say.
    declared: V,
    /// What is in force.
    now: V,
    /// Command line and file together, as they were read last.
    args: Vec<OsString>,
}

/// The settings that can change.
#[derive(Debug)]
pub struct Live<V> {
    state: Mutex<State<V>>,
    /// The command line, where it names a file.
    given: Option<Vec<OsString>>,
    metrics: SettingsMetrics,
}

impl<V: Changing> Live<V> {
    /// `values` at generation 1. `given` is the command line, where it names a file.
    #[must_use]
    pub fn new(values: V, given: Option<Vec<OsString>>, metrics: SettingsMetrics) -> Self {
        // The file may have changed since; that is found when it is read again.
        let args = given.clone().and_then(|given| file::expand(given).ok()).unwrap_or_default();
        let state = State { generation: 1, declared: values, now: values, args };
        metrics.begin(state.in_force());
        Self { state: Mutex::new(state), given, metrics }
    }

    /// The values in force.
    #[must_use]
    pub fn values(&self) -> V {
        self.lock().now
    }

    /// The generation in force, its values, and the keys that flags and file say otherwise.
    #[must_use]
    pub fn current(&self) -> (u64, V, Vec<V::Key>) {
        let state = &*self.lock();
        (state.generation, state.now, state.drift())
    }

    /// Sets keys, where the generation is still `known`; a value of `None` is what flags and file
    /// say. Then `apply` is called with what is in force, before anybody else can change it.
    ///
    /// # Errors
    /// A key that does not exist, a value that it does not take, another generation: then nothing
    /// has changed.
    pub fn change(
        &self,
        known: Option<u64>,
        wanted: &[(String, Option<String>)],
        apply: impl FnOnce(&V),
    ) -> Result<Changed<V>, ChangeError> {
        let mut state = self.lock();
        let changed = state
            .wanted(known, wanted)
            .map(|(next, needs_restart)| state.set(next, needs_restart, apply));
        self.metrics.changed(changed.is_ok(), state.in_force());
        changed
    }

    /// Reads the file again. What it says of keys that can change is in force, also where they
    /// were changed since.
    ///
    /// # Errors
    /// A file that cannot be read or holds something wrong: then nothing has changed.
    pub fn reload(&self, apply: impl FnOnce(&V)) -> Result<Changed<V>, ChangeError> {
        let read = self.read();
        let mut state = self.lock();
        let changed = read.map(|(declared, args)| {
            let needs_restart = others::<V::Key>(&state.args, &args);
            (state.declared, state.args) = (declared, args);
            state.set(declared, needs_restart, apply)
        });
        if !matches!(changed, Err(ChangeError::NoFile)) {
            self.metrics.read(changed.is_ok(), state.in_force());
        }
        changed
    }

    /// What the file says now.
    fn read(&self) -> Result<(V, Vec<OsString>), ChangeError> {
        let given = self.given.clone().ok_or(ChangeError::NoFile)?;
        let args = file::expand(given)?;
        let parsed = Cli::parse_args(args.clone());
        let command = parsed.map_err(|error| ChangeError::Parse(reason(&error)))?.command;
        let values = V::of(&command).and_then(|values| V::check(&command).map(|()| values));
        Ok((values.map_err(ChangeError::Parse)?, args))
    }

    fn lock(&self) -> MutexGuard<'_, State<V>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<V: Changing> State<V> {
    fn drift(&self) -> Vec<V::Key> {
        let keys = V::Key::ALL.iter().copied();
        keys.filter(|key| self.now.differs(*key, &self.declared)).collect()
    }

    /// What metrics show. Equal values have equal hashes, in whatever process.
    fn in_force(&self) -> InForce {
        let line = |key: &V::Key| format!("{}={}\n", key.as_str(), self.now.text(*key));
        let text: String = V::Key::ALL.iter().map(line).collect();
        let drift = self.drift().len() as u64;
        InForce { generation: self.generation, hash: xxh3_64(text.as_bytes()), drift }
    }

    /// The values with what is wanted, and flags that only a start reads.
    fn wanted(
        &self,
        known: Option<u64>,
        wanted: &[(String, Option<String>)],
    ) -> Result<(V, Vec<String>), ChangeError> {
        if let Some(known) = known.filter(|known| *known != self.generation) {
            return Err(ChangeError::Stale { now: self.generation, known });
        }
        let mut next = self.now;
        let (mut keys, mut needs_restart) = (Vec::new(), Vec::new());
        for (name, value) in wanted {
            let name = name.replace('_', "-");
            let key = key_of::<V::Key>(&name);
            keys.extend(key);
            match (key, value) {
                (Some(key), None) => next.take(key, &self.declared),
                (Some(key), Some(value)) => next.take(key, &read::<V>(key, value)?),
                (None, _) if is_flag::<V>(&name) => needs_restart.push(name),
                (None, _) => {
                    return Err(ChangeError::Unknown { key: name, known: names::<V::Key>() });
                }
            }
        }
        together(&next, &keys)?;
        Ok((next, needs_restart))
    }

    fn set(&mut self, next: V, needs_restart: Vec<String>, apply: impl FnOnce(&V)) -> Changed<V> {
        let keys = V::Key::ALL.iter().copied();
        let applied: Vec<V::Key> = keys.filter(|key| next.differs(*key, &self.now)).collect();
        if !applied.is_empty() {
            self.generation += 1;
            self.now = next;
            apply(&next);
        }
        Changed { generation: self.generation, values: self.now, applied, needs_restart }
    }
}

/// What the command line makes of this value.
fn read<V: Changing>(key: V::Key, value: &str) -> Result<V, ChangeError> {
    let flag = format!("--{}={value}", key.as_str());
    // Environment and other flags do not matter: only this one is taken over.
    let parsed = Cli::parse_args(V::LEAST.iter().copied().chain([flag.as_str()]));
    let wrong = |reason| ChangeError::Value { key: key.as_str().to_owned(), reason };
    V::of(&parsed.map_err(|error| wrong(reason(&error)))?.command).map_err(wrong)
}

/// Whether the values go together, those with each other that were given in `keys` and those that
/// are in force already.
fn together<V: Changing>(values: &V, keys: &[V::Key]) -> Result<(), ChangeError> {
    let texts = V::Key::ALL.iter().map(|key| (key.as_str(), values.text(*key)));
    let said = texts.filter(|(_, text)| text != UNSAID);
    let flags: Vec<String> = said.map(|(key, text)| format!("--{key}={text}")).collect();
    let args = V::LEAST.iter().copied().chain(flags.iter().map(String::as_str));
    let parsed = Cli::parse_args(args).map_err(|error| reason(&error));
    parsed.and_then(|parsed| V::check(&parsed.command)).map_err(|reason| {
        // The rule names a flag, which need not be one that was given.
        let named = |key: &&V::Key| reason.contains(&format!("--{} ", key.as_str()));
        let key = keys.iter().find(named).or(keys.first());
        ChangeError::Value { key: key.map_or("", |key| key.as_str()).to_owned(), reason }
    })
}

/// The first sentence of what the parser says.
fn reason(error: &clap::Error) -> String {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    line.trim_start_matches("error: ").to_owned()
}

fn is_flag<V: Changing>(name: &str) -> bool {
    let command = Cli::command();
    let known = V::LEAST.get(1).and_then(|of| command.find_subcommand(of));
    known.is_some_and(|known| known.get_arguments().any(|arg| arg.get_long() == Some(name)))
}

/// Flags that only a start reads and that stand in one of the two, or differ.
fn others<K: LiveKey>(before: &[OsString], after: &[OsString]) -> Vec<String> {
    let only = |of: &[OsString], not: &[OsString]| {
        let new = of.iter().filter(|arg| !not.contains(*arg));
        let names = new.filter_map(|arg| arg.to_str()?.strip_prefix("--")?.split_once('='));
        names.map(|(name, _)| name.to_owned()).collect::<Vec<_>>()
    };
    let mut names = only(before, after);
    names.extend(only(after, before));
    names.retain(|name| key_of::<K>(name).is_none());
    names.sort_unstable();
    names.dedup();
    names
}

#[cfg(test)]
mod tests;
