//! A running `sightline up`, ended when dropped.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::OnceLock;

use anyhow::{Context, Result, bail, ensure};
use tests::cluster::binary;

/// The program, built once a process.
pub(crate) fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| binary("stack", "sightline"))
}

/// The processes of one `up`.
#[derive(Debug)]
pub(crate) struct Up {
    child: Child,
    stdout: BufReader<ChildStdout>,
    stderr: Option<ChildStderr>,
    /// Base URL of the API, as `http://127.0.0.1:PORT`.
    pub(crate) api: String,
    /// Base URL of the console and of the Prometheus API.
    pub(crate) console: String,
}

/// `sightline up` with `args`, its output piped.
pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.arg("up").args(args).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

impl Up {
    /// Starts everything on free ports and waits until the addresses are printed.
    ///
    /// # Errors
    /// When it ends before; the message holds what it said.
    pub(crate) fn start(model: &Path, args: &[&str]) -> Result<Self> {
        let model = model.to_str().context("the path of the model is UTF-8")?;
        let ports = ["--port", "0", "--console-port", "0", "--model", model];
        let mut child = command(&[&ports, args].concat()).spawn().context("start sightline up")?;
        let mut stdout = BufReader::new(child.stdout.take().context("stdout is piped")?);
        let stderr = child.stderr.take();
        let (mut api, mut console) = (None, None);
        let mut line = String::new();
        while stdout.read_line(&mut line)? > 0 {
            let mut words = line.split_whitespace();
            let place = match words.next() {
                Some("console") => Some(&mut console),
                Some("API") => Some(&mut api),
                _ => None,
            };
            if let (Some(place), Some(url)) = (place, words.next()) {
                *place = Some(url.trim_end_matches("/v1").trim_end_matches('/').to_owned());
            }
            if line.contains("Ctrl-C drains") {
                let api = api.context("no address of the API was printed")?;
                let console = console.context("no address of the console was printed")?;
                return Ok(Self { child, stdout, stderr, api, console });
            }
            line.clear();
        }
        let status = child.wait()?;
        bail!("`up` ended before it was ready: {status}: {}", rest(stderr)?)
    }

    /// Sends a signal, by its name without `SIG`, to `up` alone.
    pub(crate) fn signal(&self, name: &str) -> Result<()> {
        signal(self.child.id(), name)
    }

    /// The process ids of the children.
    pub(crate) fn children(&self) -> Result<Vec<u32>> {
        let own = self.child.id();
        let text = std::fs::read_to_string(format!("/proc/{own}/task/{own}/children"))?;
        Ok(text.split_whitespace().filter_map(|id| id.parse().ok()).collect())
    }

    /// Waits for the end: the status and everything said on standard error.
    pub(crate) fn wait(mut self) -> Result<(ExitStatus, String)> {
        let said = rest(self.stderr.take())?;
        let mut last = String::new();
        self.stdout.read_to_string(&mut last)?;
        Ok((self.child.wait()?, said))
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        // The child of a killed `up` is ended by the kernel.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn rest(stderr: Option<ChildStderr>) -> Result<String> {
    let mut text = String::new();
    if let Some(mut stderr) = stderr {
        stderr.read_to_string(&mut text)?;
    }
    Ok(text)
}

/// Sends a signal to one process.
pub(crate) fn signal(id: u32, name: &str) -> Result<()> {
    let status = Command::new("kill").args(["-s", name, &id.to_string()]).status()?;
    ensure!(status.success(), "kill -s {name} {id}: {status}");
    Ok(())
}
