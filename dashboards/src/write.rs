//! Canonical bytes and careful writing of files.
//!
//! Grafana compares the MD5 of a provisioned file, so equal content must be equal bytes: struct
//! field order, sorted maps, two spaces, LF, one final newline. A file is replaced by a rename, so
//! that no reader sees half of it, and only when its bytes differ.

use serde::Serialize;
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

/// Canonical JSON of a model.
#[must_use]
pub fn canonical_json<T: Serialize>(value: &T) -> String {
    let mut text =
        serde_json::to_string_pretty(value).expect("models have string keys and finite numbers");
    text.push('\n');
    text
}

/// JSON of a model on one line, for where size counts; the same fields in the same order.
#[must_use]
pub fn compact_json<T: Serialize>(value: &T) -> String {
    let mut text =
        serde_json::to_string(value).expect("models have string keys and finite numbers");
    text.push('\n');
    text
}

/// What became of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// It had these bytes already and was not touched.
    Unchanged,
    /// It was made or replaced.
    Replaced,
}

/// Makes `path` hold exactly `bytes`; its folder is made where it is missing.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<Written> {
    match fs::read(path) {
        Ok(present) if present == bytes => return Ok(Written::Unchanged),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
    // Grafana and Prometheus read `*.json` and `*.yml`; this is neither.
    name.push(format!(".{}.tmp", std::process::id()));
    let temporary = path.with_file_name(name);
    let result = write_and_rename(&temporary, path, bytes);
    if result.is_err() {
        // The first error is the one to report; a left-over temporary file harms nobody.
        let _ignored = fs::remove_file(&temporary);
    }
    result.map(|()| Written::Replaced)
}

fn write_and_rename(temporary: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = fs::File::create(temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    drop(file);
    fs::rename(temporary, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_only_when_it_differs() {
        let folder = std::env::temp_dir().join(format!("dashboards-write-{}", std::process::id()));
        let path = folder.join("deep/board.json");
        assert_eq!(replace(&path, b"one\n").expect("new"), Written::Replaced);
        assert_eq!(replace(&path, b"one\n").expect("same"), Written::Unchanged);
        assert_eq!(replace(&path, b"two\n").expect("other"), Written::Replaced);
        assert_eq!(fs::read(&path).expect("there"), b"two\n");
        let names = fs::read_dir(folder.join("deep")).expect("folder").count();
        assert_eq!(names, 1, "a temporary file was left");
        fs::remove_dir_all(&folder).expect("own folder");
    }
}
