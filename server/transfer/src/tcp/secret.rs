//! The shared secret of a link, from a file.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A shorter secret could be guessed from one recorded handshake.
const BYTES_MIN: usize = 16;
/// More is a wrong file, not a secret.
const BYTES_MAX: usize = 4096;
/// Reading by others, writing by group or others.
const FORBIDDEN: u32 = 0o026;

/// What both ends of a link know and nobody else does; never shown, not by `Debug` either.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<[u8]>);

/// Why a secret could not be had from a file. The text says what would work.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The file cannot be opened or read.
    #[error("secret file {path}: {error}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        error: io::Error,
    },
    /// Accounts other than the owner's and its group could read or change it.
    #[error(
        "secret file {path}: mode {mode:04o} lets others read it or write to it; \
         chmod 600 {path}"
    )]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// Too few or too many bytes after white space at the end is cut off.
    #[error(
        "secret file {path}: {bytes} bytes, of {BYTES_MIN} to {BYTES_MAX} that work; \
         head -c 32 /dev/urandom | base64 > {path}"
    )]
    Length {
        /// The file.
        path: PathBuf,
        /// Bytes found; `BYTES_MAX + 1` where there are more.
        bytes: usize,
    },
}

impl Secret {
    /// Reads a file that only its owner, and perhaps its group, can read. White space at its end
    /// does not count, so that an editor's line end makes no difference between hosts.
    ///
    /// # Errors
    /// An unreadable or exposed file, or one with fewer than 16 or more than 4096 bytes.
    pub fn read(path: &Path) -> Result<Self, SecretError> {
        let unreadable = |error| SecretError::Unreadable { path: path.into(), error };
        let file = File::open(path).map_err(unreadable)?;
        let mode = file.metadata().map_err(unreadable)?.permissions().mode() & 0o777;
        if mode & FORBIDDEN != 0 {
            return Err(SecretError::Exposed { path: path.into(), mode });
        }
        let mut bytes = Vec::new();
        // White space beyond the bound is not looked for: two bytes more than a line's end needs.
        file.take(BYTES_MAX as u64 + 3).read_to_end(&mut bytes).map_err(unreadable)?;
        Self::new(bytes.trim_ascii_end())
            .map_err(|bytes| SecretError::Length { path: path.into(), bytes })
    }

    /// A secret of 16 to 4096 bytes; otherwise the number of bytes there are.
    fn new(bytes: &[u8]) -> Result<Self, usize> {
        if (BYTES_MIN..=BYTES_MAX).contains(&bytes.len()) {
            Ok(Self(bytes.into()))
        } else {
            Err(bytes.len())
        }
    }

    /// The bytes, for the handshake. Never for a log.
    #[must_use]
    pub fn bytes(&self) -> Arc<[u8]> {
        Arc::clone(&self.0)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({} bytes)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};

    /// A file of its own, gone at the end of the test.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str, bytes: &[u8], mode: u32) -> Self {
            let path = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
            fs::write(&path, bytes).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            Self(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            fs::remove_file(&self.0).ok();
        }
    }

    #[test]
    fn white_space_at_the_end_does_not_count_and_nothing_is_shown() {
        let one = Scratch::new("secret-one", b"correct horse battery\n", 0o600);
        let two = Scratch::new("secret-two", b"correct horse battery", 0o440);
        let secret = Secret::read(&one.0).unwrap();
        assert_eq!(&secret.bytes()[..], b"correct horse battery");
        assert_eq!(secret, Secret::read(&two.0).unwrap());
        assert_eq!(format!("{secret:?}"), "Secret(21 bytes)");
    }

    #[test]
    fn rights_are_checked_and_the_error_says_what_to_do() {
        for mode in [0o644, 0o604, 0o620, 0o602] {
            let file = Scratch::new("secret-open", b"correct horse battery", mode);
            let error = Secret::read(&file.0).unwrap_err().to_string();
            assert!(error.contains(&format!("{mode:04o}")), "{error}");
            assert!(error.contains(&format!("chmod 600 {}", file.0.display())), "{error}");
        }
    }

    #[test]
    fn lengths_that_cannot_be_a_secret_are_refused() {
        let file = Scratch::new("secret-short", b"short\n", 0o600);
        let error = Secret::read(&file.0).unwrap_err().to_string();
        assert!(error.contains("5 bytes, of 16 to 4096"), "{error}");
        let file = Scratch::new("secret-long", &[b'x'; 9000], 0o600);
        assert!(matches!(Secret::read(&file.0), Err(SecretError::Length { bytes: 4099, .. })));
        let gone = Secret::read(Path::new("/nonexistent/secret")).unwrap_err().to_string();
        assert!(gone.contains("/nonexistent/secret"), "{gone}");
    }
}
