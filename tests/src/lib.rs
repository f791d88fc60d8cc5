//! What the tests across crates share: real processes, a small HTTP client, a reader of metrics.
//!
//! Nothing here knows the insides of a crate: it sees what a user sees.

pub mod cluster;
pub mod http;
pub mod prometheus;
pub mod replay;
pub mod scrape;

use std::path::PathBuf;

/// The repository's root.
#[must_use]
pub fn root() -> PathBuf {
    let package = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    package.parent().map(PathBuf::from).unwrap_or(package)
}

/// A tiny checkpoint with random weights that is part of the repository.
#[must_use]
pub fn fixture_model(name: &str) -> PathBuf {
    root().join("tests/fixtures/models").join(name)
}

/// Says why a test cannot run here. With `CI=1` (or `true`) that is a failure instead.
///
/// # Panics
/// In CI, where everything a test needs must be there.
#[expect(clippy::print_stdout, reason = "a skipped test must say so where tests are read")]
#[expect(clippy::disallowed_methods, reason = "CI is a property of the environment, not an option")]
pub fn skip(reason: &str) {
    let ci = std::env::var("CI").is_ok_and(|value| value == "1" || value == "true");
    assert!(!ci, "cannot run in CI: {reason}");
    println!("SKIP {reason}");
}
