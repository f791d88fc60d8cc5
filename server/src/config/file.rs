//! `--config FILE`: keys of a TOML file become arguments that stand before the command line's.
//!
//! So every rule about a flag (names, units, suggestions) holds for the file too, and the file
//! needs no second list of names.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

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
    /// A value is neither text, a number nor a switch.
    #[error(
        "--config {path}: key {key} must be one string, number, true or false, as on the command \
         line"
    )]
    Value {
        /// The path as given.
        path: PathBuf,
        /// The key.
        key: String,
    },
}

/// `args` with the keys of the file inserted after the subcommand. Without `--config` they are
/// returned as they are.
///
/// # Errors
/// The file cannot be read, is not TOML, or holds tables or lists.
pub fn expand(args: Vec<OsString>) -> Result<Vec<OsString>, FileError> {
    let Some(path) = path_of(&args) else { return Ok(args) };
    let text = std::fs::read_to_string(&path)
        .map_err(|source| FileError::Read { path: path.clone(), source })?;
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| FileError::Syntax {
        path: path.clone(),
        reason: error.message().to_owned(),
    })?;
    let mut inserted = Vec::new();
    for (key, value) in table {
        let flag = format!("--{}", key.replace('_', "-"));
        let value = match value {
            toml::Value::String(text) => text,
            toml::Value::Integer(number) => number.to_string(),
            toml::Value::Float(number) => number.to_string(),
            toml::Value::Boolean(true) => "on".to_owned(),
            toml::Value::Boolean(false) => "off".to_owned(),
            toml::Value::Datetime(_) | toml::Value::Array(_) | toml::Value::Table(_) => {
                return Err(FileError::Value { path, key });
            }
        };
        // On the command line the flag wins; clap would call the pair a conflict.
        if !given(&args, &flag) {
            inserted.push(OsString::from(format!("{flag}={value}")));
        }
    }
    let mut args = args;
    let at = args.len().min(2);
    args.splice(at..at, inserted);
    Ok(args)
}

fn path_of(args: &[OsString]) -> Option<PathBuf> {
    let at = args.iter().position(|arg| is_flag(arg, "--config"))?;
    match args[at].to_str().and_then(|arg| arg.split_once('=')) {
        Some((_, path)) => Some(PathBuf::from(path)),
        None => args.get(at + 1).map(PathBuf::from),
    }
}

fn given(args: &[OsString], flag: &str) -> bool {
    args.iter().any(|arg| is_flag(arg, flag))
}

fn is_flag(arg: &OsStr, flag: &str) -> bool {
    let arg = arg.to_str().unwrap_or_default();
    arg == flag || arg.strip_prefix(flag).is_some_and(|rest| rest.starts_with('='))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_file(name: &str, text: &str, rest: &[&str]) -> Result<Vec<String>, FileError> {
        let path = std::env::temp_dir().join(format!("sightline-{}-{name}", std::process::id()));
        std::fs::write(&path, text).expect("the temporary folder is writable");
        let mut args: Vec<OsString> = vec!["server".into(), "serve".into(), "--config".into()];
        args.push(path.clone().into());
        args.extend(rest.iter().map(OsString::from));
        let expanded = expand(args);
        drop(std::fs::remove_file(path));
        Ok(expanded?.into_iter().map(|arg| arg.to_string_lossy().into_owned()).collect())
    }

    #[test]
    fn keys_become_flags_and_the_command_line_wins() {
        let text = "model = \"fake\"\nport = 9000\nkv_pool_bytes = \"64MiB\"\n\
                    hicache-ratio = 2.5\nenable-hierarchical-cache = true\n";
        let args = with_file("a.toml", text, &["--port", "7000"]).expect("the file is good");
        assert!(args.contains(&"--model=fake".to_owned()), "{args:?}");
        assert!(args.contains(&"--kv-pool-bytes=64MiB".to_owned()), "{args:?}");
        assert!(!args.contains(&"--port=9000".to_owned()), "{args:?}");
        assert!(args.contains(&"--hicache-ratio=2.5".to_owned()), "{args:?}");
        assert!(args.contains(&"--enable-hierarchical-cache=on".to_owned()), "{args:?}");
        assert_eq!(args[1], "serve");
    }

    #[test]
    fn a_bad_file_is_named() {
        let error = with_file("b.toml", "port = [1]", &[]).expect_err("a list is no flag");
        assert!(error.to_string().contains("key port"), "{error}");
        let error = with_file("c.toml", "port 1", &[]).expect_err("not TOML");
        assert!(error.to_string().contains("not TOML"), "{error}");
        let args = vec!["server".into(), "serve".into(), "--config=/nowhere.toml".into()];
        assert!(expand(args).expect_err("no file").to_string().contains("/nowhere.toml"));
    }
}
