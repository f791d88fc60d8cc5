//! Weight files, mapped read-only: their pages are the system's cache, shared by all processes.

use std::fs::File;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use memmap2::Mmap;

/// Why a file could not be mapped.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    /// The system's reason.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A folder, a pipe, a device.
    #[error("{} is not a regular file", .0.display())]
    NotAFile(PathBuf),
    /// Nothing to map.
    #[error("{} is empty", .0.display())]
    Empty(PathBuf),
}

/// The bytes of a file. Only what is looked at is read from disk.
///
/// The file must not be shortened while it is mapped: reading what is gone kills the process, as
/// with every mapped file. Replace a model by renaming a new file over the old one.
#[derive(Debug)]
pub struct MappedFile {
    path: PathBuf,
    map: Mmap,
}

impl MappedFile {
    /// Maps the whole file.
    ///
    /// # Errors
    /// [`MapError`] where it cannot be opened, is not a regular file, or is empty.
    pub fn open(path: &Path) -> Result<Self, MapError> {
        let io = |source| MapError::Io { path: path.to_owned(), source };
        let file = File::open(path).map_err(io)?;
        let facts = file.metadata().map_err(io)?;
        if !facts.is_file() {
            return Err(MapError::NotAFile(path.to_owned()));
        }
        if facts.len() == 0 {
            return Err(MapError::Empty(path.to_owned()));
        }
        // SAFETY: the map is private and read-only, so this process never writes through it; that
        // others neither shorten nor rewrite the file is this type's documented condition, and the
        // readers of these bytes check every value they take from them.
        let map = unsafe { Mmap::map(&file) }.map_err(io)?;
        Ok(Self { path: path.to_owned(), map })
    }

    /// The file's path, as it was given.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Deref for MappedFile {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.map
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_mapped_and_other_things_are_named() {
        let folder = std::env::temp_dir();
        let path = folder.join(format!("mapped-file-test-{}", std::process::id()));
        std::fs::write(&path, b"weights").unwrap();
        assert_eq!(&*MappedFile::open(&path).unwrap(), b"weights");
        std::fs::write(&path, b"").unwrap();
        assert!(MappedFile::open(&path).unwrap_err().to_string().ends_with("is empty"));
        std::fs::remove_file(&path).unwrap();
        let error = MappedFile::open(&path).unwrap_err().to_string();
        assert!(error.starts_with("cannot read "), "{error}");
        let error = MappedFile::open(&folder).unwrap_err().to_string();
        assert!(error.ends_with("not a regular file"), "{error}");
    }
}
