//! The generator as a program: the committed files, its exit codes, and other tools' opinions.

mod compose;
#[cfg(feature = "live")]
mod doctor;
mod formats;
#[cfg(feature = "live")]
mod live;
mod program;
mod promtool;
#[cfg(feature = "live")]
mod targets;

use std::path::{Path, PathBuf};

/// The root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A folder of its own for one test; removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("dashboards-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a temporary folder");
        Self(folder)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What stays behind is in the temporary folder.
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// Whether a missing tool is a failure.
fn tools_are_mandatory() -> bool {
    std::env::var_os("CI").is_some_and(|value| value == "1")
}
