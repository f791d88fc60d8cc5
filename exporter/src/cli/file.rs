//! `--config FILE`: keys of a TOML file become arguments that stand before the command line's.
//!
//! So every rule about a flag holds for the file too, and the file needs no second list of names. A
//! dotted flag is a dotted key (`web.config.file`), a repeated one a list; services are tables
//! (`[[service]]`), intervals are one (`[interval]`).

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use clap::Command;
use toml::{Table, Value};

use crate::config;

/// The file named by `--config` is unusable.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It cannot be read.
    #[error("--config {path}: cannot read the file ({source}); name an existing TOML file")]
    Read {
        /// The path as given.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// It is not TOML.
    #[error("--config {path}: not TOML: {reason}")]
    Syntax {
        /// The path as given.
        path: PathBuf,
        /// What the parser said, on one line.
        reason: String,
    },
    /// A key or its value is not one that a flag could have.
    #[error("--config {path}: {key}: {reason}")]
    Key {
        /// The path as given.
        path: PathBuf,
        /// The key.
        key: String,
        /// What is wrong and what would work.
        reason: String,
    },
}

/// `args` with the keys of the file inserted before them. Without `--config` they are returned as
/// they are.
///
/// # Errors
/// The file cannot be read, is not TOML, or holds what no flag of `command` could say.
pub(super) fn expand(args: Vec<OsString>, command: &Command) -> Result<Vec<OsString>, FileError> {
    let Some(path) = path_of(&args) else { return Ok(args) };
    let text = std::fs::read_to_string(&path)
        .map_err(|source| FileError::Read { path: path.clone(), source })?;
    let table: Table = text.parse().map_err(|error: toml::de::Error| FileError::Syntax {
        path: path.clone(),
        reason: error.to_string().lines().collect::<Vec<_>>().join(" "),
    })?;
    let flags: Vec<&str> = command.get_arguments().filter_map(clap::Arg::get_long).collect();
    let mut reading = Reading { args: &args, flags, inserted: Vec::new() };
    for (key, value) in &table {
        reading.key(key, value).map_err(|(key, reason)| {
            let path = path.clone();
            FileError::Key { path, key, reason }
        })?;
    }
    let inserted = reading.inserted;
    let mut args = args;
    let at = args.len().min(1);
    args.splice(at..at, inserted);
    Ok(args)
}

/// A key, and what is wrong with it.
type Problem = (String, String);

struct Reading<'a> {
    args: &'a [OsString],
    flags: Vec<&'a str>,
    inserted: Vec<OsString>,
}

impl Reading<'_> {
    fn key(&mut self, key: &str, value: &Value) -> Result<(), Problem> {
        let problem = |reason: &str| (key.to_owned(), reason.to_owned());
        match (key, value) {
            ("service", Value::Array(services)) => {
                services.iter().try_for_each(|service| self.service(service))
            }
            ("service", _) => Err(problem("services are tables; write [[service]]")),
            ("interval", Value::Table(table)) => {
                for (name, time) in table {
                    let time = scalar(time).ok_or_else(|| problem("write gpu = \"1s\""))?;
                    self.inserted.push(format!("--interval={name}={time}").into());
                }
                Ok(())
            }
            ("interval", _) => Err(problem("intervals are a table; write [interval]")),
            ("config" | "check", _) => Err(problem("this belongs on the command line")),
            (_, Value::Table(table)) if !self.flags.contains(&key) => table
                .iter()
                .try_for_each(|(inner, value)| self.key(&format!("{key}.{inner}"), value)),
            (_, value) => self.flag(&key.replace('_', "-"), value),
        }
    }

    fn flag(&mut self, key: &str, value: &Value) -> Result<(), Problem> {
        let problem = |reason: String| (key.to_owned(), reason);
        if !self.flags.contains(&key) {
            let known = self.flags.join(", ");
            return Err(problem(format!("there is no such flag; flags are {known}")));
        }
        let flag = format!("--{key}");
        let values = match value {
            Value::Array(values) => values.iter().map(scalar).collect::<Option<Vec<_>>>(),
            Value::String(_)
            | Value::Integer(_)
            | Value::Float(_)
            | Value::Boolean(_)
            | Value::Datetime(_)
            | Value::Table(_) => scalar(value).map(|value| vec![value]),
        };
        let wrong = "must be a string, a number, true or false, or a list of them";
        for value in values.ok_or_else(|| problem(wrong.to_owned()))? {
            // On the command line the flag wins; clap would call the pair a conflict.
            if !self.args.iter().any(|arg| is_flag(arg, &flag)) {
                self.inserted.push(format!("{flag}={value}").into());
            }
        }
        Ok(())
    }

    /// One table of `[[service]]`, as the flag writes it.
    fn service(&mut self, service: &Value) -> Result<(), Problem> {
        let problem = |reason: &str| ("service".to_owned(), reason.to_owned());
        let table = service.as_table().ok_or_else(|| problem("write [[service]]"))?;
        let name = table.get("name").and_then(Value::as_str);
        let name = name.ok_or_else(|| problem("lacks its name; write name = \"prefill-0\""))?;
        if self.is_on_the_command_line(name) {
            return Ok(());
        }
        let mut flag = format!("--service={}", config::escape(name));
        for (key, value) in table.iter().filter(|(key, _)| *key != "name") {
            let value = scalar(value)
                .ok_or_else(|| problem(&format!("{name}: {key} must be a string or a number")))?;
            flag.push_str(&format!(",{}={}", key.replace('_', "-"), config::escape(&value)));
        }
        self.inserted.push(flag.into());
        Ok(())
    }

    /// Whether a `--service` is given there with this name.
    fn is_on_the_command_line(&self, name: &str) -> bool {
        let named = |value: &str| value.split(',').next() == Some(name);
        let mut args = self.args.iter().filter_map(|arg| arg.to_str());
        while let Some(arg) = args.next() {
            let value = match arg.strip_prefix("--service=") {
                Some(value) => Some(value),
                None if arg == "--service" => args.next(),
                None => None,
            };
            if value.is_some_and(named) {
                return true;
            }
        }
        false
    }
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Float(number) => Some(number.to_string()),
        Value::Boolean(switch) => Some(switch.to_string()),
        Value::Datetime(_) | Value::Array(_) | Value::Table(_) => None,
    }
}

/// The file, from the command line or else from the environment, which clap reads only later.
#[expect(clippy::disallowed_methods, reason = "the option is declared in the CLI, read early")]
fn path_of(args: &[OsString]) -> Option<PathBuf> {
    let Some(at) = args.iter().position(|arg| is_flag(arg, "--config")) else {
        let path = std::env::var("SIGHTLINE_EXPORTER_CONFIG").ok();
        return path.filter(|path| !path.is_empty()).map(PathBuf::from);
    };
    match args[at].to_str().and_then(|arg| arg.split_once('=')) {
        Some((_, path)) => Some(PathBuf::from(path)),
        None => args.get(at + 1).map(PathBuf::from),
    }
}

fn is_flag(arg: &OsStr, flag: &str) -> bool {
    let arg = arg.to_str().unwrap_or_default();
    arg == flag || arg.strip_prefix(flag).is_some_and(|rest| rest.starts_with('='))
}
