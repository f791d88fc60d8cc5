//! Real server processes on ports of their own choice; ended when dropped.

use crate::{http, root, scrape::Page};
use anyhow::{Context, Result, bail, ensure};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;

/// A running `sightline-server`, of any role.
#[derive(Debug)]
pub struct Server {
    child: Child,
    /// Base URL of the API, as `http://127.0.0.1:PORT`.
    pub api: String,
    /// Base URL of the probes.
    pub probes: String,
    /// Where the transfer link of a prefill worker listens, as `127.0.0.1:PORT`.
    pub transfer: Option<String>,
}

/// Builds (where needed) and names a binary of the workspace.
///
/// With `SIGHTLINE_TEST_PREBUILT` set, the one that `cargo test --workspace` has just built is
/// taken as it is: building it alone would choose other features of its dependencies, and compile
/// them once more.
///
/// # Panics
/// When the build fails: no test could run.
#[expect(clippy::disallowed_methods, reason = "how the tests were started is no option")]
pub fn binary(package: &str, name: &str) -> PathBuf {
    // target/debug/deps/THIS-TEST -> target/debug/NAME
    let test = std::env::current_exe().expect("a running program has a path");
    let profile = test.ancestors().nth(2).expect("a test lies in target/PROFILE/deps");
    let binary = profile.join(name);
    if std::env::var("SIGHTLINE_TEST_PREBUILT").is_ok() {
        assert!(binary.is_file(), "{} is not built", binary.display());
        return binary;
    }
    let status = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--package", package, "--bin", name])
        .current_dir(root())
        .status()
        .expect("cargo starts, as it started this test");
    assert!(status.success(), "cargo build --bin {name} failed");
    binary
}

/// The serving binary, built once a process.
pub fn server_binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| binary("server", "sightline-server"))
}

impl Server {
    /// Starts a server on free ports and waits until it says that it is ready.
    ///
    /// # Errors
    /// When it ends or closes its output before it is ready; the message holds its exit status.
    pub fn start(args: &[&str]) -> Result<Self> {
        Self::of_role("serve", args)
    }

    /// Starts a router on free ports and waits until it listens: whether it has workers, its
    /// `/readyz` says.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn router(args: &[&str]) -> Result<Self> {
        Self::of_role("router", args)
    }

    fn of_role(role: &str, args: &[&str]) -> Result<Self> {
        let mut command = Command::new(server_binary());
        command.args([role, "--host", "127.0.0.1", "--probe-port", "0"]);
        if !args.contains(&"--port") {
            command.args(["--port", "0"]);
        }
        command.args(args).stdout(Stdio::piped()).stdin(Stdio::null());
        let mut child = command.spawn().context("start sightline-server")?;
        let stdout = child.stdout.take().context("stdout is piped")?;
        for line in BufReader::new(stdout).lines() {
            let event: serde_json::Value = serde_json::from_str(&line?)?;
            if event["event"] == "ready" {
                let url = |key: &str| event[key].as_str().map(str::to_owned);
                let api = url("api").context("the ready line names no api")?;
                let probes = url("probes").context("the ready line names no probes")?;
                return Ok(Self { child, api, probes, transfer: url("transfer") });
            }
        }
        let status = child.wait()?;
        bail!("the server ended before it was ready: {status}")
    }

    /// `HOST:PORT` of the API, which is the server's name among workers.
    #[must_use]
    pub fn name(&self) -> &str {
        self.api.trim_start_matches("http://")
    }

    /// The server's process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Reads the metrics page.
    ///
    /// # Errors
    /// When there is none or it cannot be read.
    pub fn metrics(&self) -> Result<Page> {
        let answer = http::get(&self.api, "/metrics")?;
        ensure!(answer.status == 200, "/metrics answered {}", answer.status);
        Page::parse(answer.text()?)
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// When the process is gone.
    pub fn signal(&self, signal: i32) -> Result<()> {
        let pid = self.child.id().to_string();
        let status = Command::new("kill").args([&format!("-{signal}"), &pid]).status()?;
        ensure!(status.success(), "kill -{signal} {pid}: {status}");
        Ok(())
    }

    /// Waits for the process to end.
    ///
    /// # Errors
    /// When waiting fails.
    pub fn wait(&mut self) -> Result<ExitStatus> {
        Ok(self.child.wait()?)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Already gone is what we want.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
