//! Reads the web configuration again when it, or a file that it names, has changed.
//!
//! A file that cannot be used changes nothing: the configuration in force stays, and the collector
//! fails with the reason until the file is good again.

use std::path::Path;

use super::InForce;
use super::auth::Checker;
use super::web_config::WebConfig;
use crate::slot::{CollectError, ErrorKind};

/// The web configuration in force is the one in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loaded {
    /// How often another one was put into force since the start.
    pub reloads: u64,
}

/// A collection: makes `web` what the file says.
///
/// # Errors
/// The file has changed and cannot be used.
pub fn reload(
    path: &Path,
    web: &InForce,
    checker: &Checker,
    loaded: &mut Loaded,
) -> Result<Loaded, CollectError> {
    if web.get().is_outdated() {
        let given = path.display();
        let config = WebConfig::read(path).map_err(|error| {
            let detail = format!("--web.config.file {given}: {error}; {}", error.fix());
            CollectError::new(ErrorKind::Malformed, detail)
        })?;
        web.set(config);
        checker.forget();
        loaded.reloads += 1;
        tracing::info!(path = %given, "The web configuration was read again.");
    }
    Ok(*loaded)
}
