//! Collectors of services against a bus, servers and a node that are not at hand.
#![expect(clippy::disallowed_methods, reason = "tests measure in real time")]

mod bus;
mod fetch;
mod group;
mod join;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("sightline-service-{}-{next}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// Runs on one thread, as the program does.
fn run<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, work)
}

fn service(text: &str) -> crate::config::Service {
    text.parse().expect("a service")
}
