//! Settings that can change while the server runs: by `POST /admin/config`, for as long as the
//! process lives, or by the file of `--config` and SIGHUP.
//!
//! Values are read in the words of the command line, by the same parser. A change is all or
//! nothing, has a number (the generation), and throws out nobody who waits or runs.

use std::ffi::OsString;
use std::sync::{Mutex, MutexGuard, PoisonError};

use admission::Limits;
use clap::CommandFactory;
use tracing::Level;

use crate::cli::{Cli, Command, Settings, Span};
use crate::config::file::{self, FileError};

/// A setting that can change, by its flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// Requests that may wait.
    MaxQueuedRequests,
    /// Tokens that may wait.
    MaxQueuedTokens,
    /// Objective for the first token, which bounds the queue.
    TtftObjective,
    /// What is logged.
    LogLevel,
    /// How long a stop may take.
    DrainDeadline,
    /// Prompts that a decode worker computes itself.
    PdLocalTokens,
}

impl Key {
    /// Every key.
    pub const ALL: [Self; 6] = [
        Self::MaxQueuedRequests,
        Self::MaxQueuedTokens,
        Self::TtftObjective,
        Self::LogLevel,
        Self::DrainDeadline,
        Self::PdLocalTokens,
    ];

    /// The flag, without dashes.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::MaxQueuedRequests => "max-queued-requests",
            Self::MaxQueuedTokens => "max-queued-tokens",
            Self::TtftObjective => "ttft-objective",
            Self::LogLevel => "log-level",
            Self::DrainDeadline => "drain-deadline",
            Self::PdLocalTokens => "pd-local-tokens",
        }
    }

    /// The key of this flag, in either spelling.
    fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|key| key.as_str() == name)
    }
}

/// The values in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Values {
    /// Bounds of the queue.
    pub limits: Limits,
    /// Least severe level that is logged.
    pub log_level: Level,
    /// How long running requests may go on after SIGTERM.
    pub drain_deadline: Span,
    /// Decode: a prompt of which so few tokens are not cached is computed here; `None`: a page.
    pub local_tokens: Option<usize>,
}

impl Values {
    /// Those of these settings.
    #[must_use]
    pub fn of(settings: &Settings) -> Self {
        let load = &settings.load;
        Self {
            limits: Limits {
                max_queued_requests: load.max_queued_requests,
                max_queued_tokens: load.max_queued_tokens,
                ttft_objective: load.ttft_objective.0,
            },
            log_level: settings.log_level,
            drain_deadline: settings.drain_deadline,
            local_tokens: settings.roles.pd_local_tokens,
        }
    }

    /// The value of `key` in the words of the command line; `default` where it follows something
    /// else.
    #[must_use]
    pub fn text(&self, key: Key) -> String {
        let or_default = |value: Option<String>| value.unwrap_or_else(|| "default".to_owned());
        match key {
            Key::MaxQueuedRequests => self.limits.max_queued_requests.to_string(),
            Key::MaxQueuedTokens => {
                or_default(self.limits.max_queued_tokens.map(|t| t.to_string()))
            }
            Key::TtftObjective => Span(self.limits.ttft_objective).to_string(),
            Key::LogLevel => self.log_level.as_str().to_ascii_lowercase(),
            Key::DrainDeadline => self.drain_deadline.to_string(),
            Key::PdLocalTokens => or_default(self.local_tokens.map(|tokens| tokens.to_string())),
        }
    }

    /// Takes over the value of `key` from `other`.
    fn take(&mut self, key: Key, other: &Self) {
        match key {
            Key::MaxQueuedRequests => {
                self.limits.max_queued_requests = other.limits.max_queued_requests;
            }
            Key::MaxQueuedTokens => self.limits.max_queued_tokens = other.limits.max_queued_tokens,
            Key::TtftObjective => self.limits.ttft_objective = other.limits.ttft_objective,
            Key::LogLevel => self.log_level = other.log_level,
            Key::DrainDeadline => self.drain_deadline = other.drain_deadline,
            Key::PdLocalTokens => self.local_tokens = other.local_tokens,
        }
    }

    fn differs(&self, key: Key, other: &Self) -> bool {
        self.text(key) != other.text(key)
    }
}

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
    /// A key that is no flag of `serve`.
    #[error("{0}: no such setting; those that can change are {keys}", keys = names())]
    Unknown(String),
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
    #[error("there is no file to read again: the server was started without --config")]
    NoFile,
}

/// The keys that can change, with commas.
#[must_use]
pub fn names() -> String {
    Key::ALL.map(Key::as_str).join(", ")
}

/// What a change came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed {
    /// The generation in force now.
    pub generation: u64,
    /// What is in force now.
    pub values: Values,
    /// Keys with a new value.
    pub applied: Vec<Key>,
    /// Flags that a start reads, and nothing else.
    pub needs_restart: Vec<String>,
}

#[derive(Debug)]
struct State {
    generation: u64,
    /// What flags and file say.
    declared: Values,
    /// What is in force.
    now: Values,
    /// Command line and file together, as they were read last.
    args: Vec<OsString>,
}

/// The settings that can change.
#[derive(Debug)]
pub struct Live {
    state: Mutex<State>,
    /// The command line, where it names a file.
    given: Option<Vec<OsString>>,
}

impl Live {
    /// Those of `settings`, at generation 1.
    #[must_use]
    pub fn new(settings: &Settings) -> Self {
        let values = Values::of(settings);
        let given = settings.config.is_some().then(|| settings.given.clone());
        // The file may have changed since; that is found when it is read again.
        let args = given.clone().and_then(|given| file::expand(given).ok()).unwrap_or_default();
        let state = State { generation: 1, declared: values, now: values, args };
        Self { state: Mutex::new(state), given }
    }

    /// The values in force.
    #[must_use]
    pub fn values(&self) -> Values {
        self.lock().now
    }

    /// The generation in force, its values, and the keys that flags and file say otherwise.
    #[must_use]
    pub fn current(&self) -> (u64, Values, Vec<Key>) {
        let State { generation, now, declared, .. } = &*self.lock();
        let drift = Key::ALL.into_iter().filter(|key| now.differs(*key, declared)).collect();
        (*generation, *now, drift)
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
        apply: impl FnOnce(&Values),
    ) -> Result<Changed, ChangeError> {
        let mut state = self.lock();
        if let Some(known) = known.filter(|known| *known != state.generation) {
            return Err(ChangeError::Stale { now: state.generation, known });
        }
        let mut next = state.now;
        let mut needs_restart = Vec::new();
        for (name, value) in wanted {
            let name = name.replace('_', "-");
            match (Key::of(&name), value) {
                (Some(key), None) => next.take(key, &state.declared),
                (Some(key), Some(value)) => next.take(key, &read(key, value)?),
                (None, _) if is_flag(&name) => needs_restart.push(name),
                (None, _) => return Err(ChangeError::Unknown(name)),
            }
        }
        Ok(state.set(next, needs_restart, apply))
    }

    /// Reads the file again. What it says of keys that can change is in force, also where they
    /// were changed since.
    ///
    /// # Errors
    /// A file that cannot be read or holds something wrong: then nothing has changed.
    pub fn reload(&self, apply: impl FnOnce(&Values)) -> Result<Changed, ChangeError> {
        let given = self.given.clone().ok_or(ChangeError::NoFile)?;
        let args = file::expand(given)?;
        let parsed = Cli::parse_args(args.clone());
        let settings = match parsed.map_err(|error| ChangeError::Parse(reason(&error)))?.command {
            Command::Serve(settings) => *settings,
            Command::Plan(_) | Command::Router(_) | Command::Metrics | Command::Health(_) => {
                return Err(ChangeError::NoFile);
            }
        };
        let mut state = self.lock();
        let needs_restart = others(&state.args, &args);
        (state.declared, state.args) = (Values::of(&settings), args);
        let next = state.declared;
        Ok(state.set(next, needs_restart, apply))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn set(
        &mut self,
        next: Values,
        needs_restart: Vec<String>,
        apply: impl FnOnce(&Values),
    ) -> Changed {
        let applied: Vec<Key> =
            Key::ALL.into_iter().filter(|key| next.differs(*key, &self.now)).collect();
        if !applied.is_empty() {
            self.generation += 1;
            self.now = next;
            apply(&next);
        }
        Changed { generation: self.generation, values: self.now, applied, needs_restart }
    }
}

/// What the command line makes of this value.
fn read(key: Key, value: &str) -> Result<Values, ChangeError> {
    let flag = format!("--{}={value}", key.as_str());
    // Environment and other flags do not matter: only this one is taken over.
    let parsed = Cli::parse_args(["sightline-server", "serve", "--model", "fake", &flag]);
    let wrong = |reason| ChangeError::Value { key: key.as_str().to_owned(), reason };
    match parsed.map_err(|error| wrong(reason(&error)))?.command {
        Command::Serve(settings) => Ok(Values::of(&settings)),
        Command::Plan(_) | Command::Router(_) | Command::Metrics | Command::Health(_) => {
            Err(wrong("it is no flag of serve".to_owned()))
        }
    }
}

/// The first sentence of what the parser says.
fn reason(error: &clap::Error) -> String {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    line.trim_start_matches("error: ").to_owned()
}

fn is_flag(name: &str) -> bool {
    let command = Cli::command();
    let serve = command.find_subcommand("serve");
    serve.is_some_and(|serve| serve.get_arguments().any(|arg| arg.get_long() == Some(name)))
}

/// Flags that only a start reads and that stand in one of the two, or differ.
fn others(before: &[OsString], after: &[OsString]) -> Vec<String> {
    let only = |of: &[OsString], not: &[OsString]| {
        let new = of.iter().filter(|arg| !not.contains(*arg));
        let names = new.filter_map(|arg| arg.to_str()?.strip_prefix("--")?.split_once('='));
        names.map(|(name, _)| name.to_owned()).collect::<Vec<_>>()
    };
    let mut names = only(before, after);
    names.extend(only(after, before));
    names.retain(|name| Key::of(name).is_none());
    names.sort_unstable();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::rig::settings;

    fn wanted(pairs: &[(&str, &str)]) -> Vec<(String, Option<String>)> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), Some((*value).to_owned()))).collect()
    }

    #[test]
    fn a_change_is_all_or_nothing_and_has_a_number() {
        let live = Live::new(&settings("--model fake --max-queued-requests 8"));
        let pairs = [("max-queued-requests", "4"), ("ttft_objective", "2s"), ("port", "1")];
        let mut seen = None;
        let changed = live
            .change(Some(1), &wanted(&pairs), |values| seen = Some(*values))
            .expect("values that work");
        assert_eq!(changed.generation, 2);
        assert_eq!(changed.applied, [Key::MaxQueuedRequests, Key::TtftObjective]);
        assert_eq!(changed.needs_restart, ["port"]);
        assert_eq!(seen.expect("applied").limits.max_queued_requests, 4);
        let never = |_: &Values| panic!("nothing to apply");
        for (pairs, says) in [
            ([("log-level", "debug"), ("drain-deadline", "5")], "needs a unit"),
            ([("log-level", "debug"), ("max-queued-tokens", "-1")], "max-queued-tokens"),
            ([("log-level", "debug"), ("nonsense", "1")], "no such setting"),
        ] {
            let error = live.change(None, &wanted(&pairs), never).expect_err(says);
            assert!(error.to_string().contains(says), "{error}");
        }
        let stale = live.change(Some(1), &wanted(&[("log-level", "debug")]), never);
        assert!(matches!(stale, Err(ChangeError::Stale { now: 2, known: 1 })));
        let same = live.change(Some(2), &wanted(&[("max-queued-requests", "4")]), never);
        assert_eq!(same.expect("nothing new").generation, 2);
        let (generation, values, drift) = live.current();
        assert_eq!((generation, values.log_level), (2, Level::INFO));
        assert_eq!(drift, [Key::MaxQueuedRequests, Key::TtftObjective]);
        let back = [("max-queued-requests".to_owned(), None)];
        let changed = live.change(Some(2), &back, |_| {}).expect("back to the flag");
        assert_eq!(changed.values.limits.max_queued_requests, 8);
        assert!(matches!(live.reload(|_| {}), Err(ChangeError::NoFile)));
    }

    #[test]
    fn the_file_is_the_truth_when_it_is_read_again() {
        let name = format!("sightline-live-{}.toml", std::process::id());
        let path = std::env::temp_dir().join(name);
        let write = |text: &str| std::fs::write(&path, text).expect("the folder is writable");
        write("model = \"fake\"\nmax-queued-requests = 8\nport = 1\n");
        let given = ["sightline-server", "serve", "--config"].map(OsString::from);
        let given: Vec<OsString> = given.into_iter().chain([path.clone().into()]).collect();
        let parsed = Cli::parse_args(file::expand(given.clone()).expect("a file"));
        let Command::Serve(mut settings) = parsed.expect("flags").command else {
            panic!("not serve")
        };
        settings.given = given;
        let live = Live::new(&settings);
        live.change(None, &wanted(&[("log-level", "debug")]), |_| {}).expect("a level");
        write("model = \"fake\"\nmax-queued-requests = 9\nport = 2\nthreads = 3\n");
        let changed = live.reload(|_| {}).expect("a good file");
        assert_eq!(changed.applied, [Key::MaxQueuedRequests, Key::LogLevel]);
        assert_eq!(changed.needs_restart, ["port", "threads"]);
        assert_eq!(live.current().2, []);
        for (text, says) in [("port = [1]", "key port"), ("max-queued-requests = -1", "-1")] {
            write(&format!("model = \"fake\"\n{text}\n"));
            let error = live.reload(|_| panic!("nothing to apply")).expect_err(text);
            assert!(error.to_string().contains(says), "{error}");
        }
        assert_eq!(live.values().limits.max_queued_requests, 9);
        std::fs::remove_file(&path).expect("it is there");
        assert!(matches!(live.reload(|_| {}), Err(ChangeError::File(_))));
    }
}
