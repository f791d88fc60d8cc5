//! A program as a child process: preflight, start, readiness, drain, death.
//!
//! Each child runs in a process group of its own, so that Ctrl-C reaches only this program, which
//! then drains the child. It cannot outlive this program: the kernel ends it (Linux), and so does
//! dropping [`Child`].

use std::collections::VecDeque;
use std::ffi::OsString;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use serde::Deserialize;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader, Lines};
use tokio::process::{ChildStderr, ChildStdout, Command};
use tokio_util::task::AbortOnDropHandle;

use super::progress::Progress;
use super::{Failure, exit};
use crate::complain;

/// Set for children of `up`: the id of the process that they must not outlive.
const PARENT: &str = "SIGHTLINE_PARENT";

/// Last lines of the child's log, shown when it dies.
const LINES_KEPT: usize = 12;

/// What the server prints when it serves.
#[derive(Debug, Deserialize)]
struct ReadyLine {
    event: String,
    /// Where it answers; for a server its API.
    #[serde(alias = "address")]
    api: String,
    /// A router serves whatever its workers do.
    model: Option<String>,
    /// Where a prefill worker's transfer link listens.
    transfer: Option<String>,
}

/// A server that answers.
#[derive(Debug, Clone)]
pub(crate) struct Ready {
    /// `host:port` where it answers; of a server the API.
    pub(crate) address: String,
    /// Name that clients use.
    pub(crate) model: Option<String>,
    /// The port of its transfer link.
    pub(crate) transfer_port: Option<u16>,
}

/// A program to run: a subcommand of this one with its arguments.
#[derive(Debug, Clone)]
pub(crate) struct Part {
    /// What messages call it.
    pub(crate) name: &'static str,
    /// The words that come before its arguments, such as `server serve`.
    pub(crate) program: &'static [&'static str],
    pub(crate) args: Vec<OsString>,
    /// Shown while it starts.
    pub(crate) starting: String,
}

/// A running server.
pub(crate) struct Child {
    name: &'static str,
    process: tokio::process::Child,
    stdout: Lines<BufReader<ChildStdout>>,
    log: Arc<Log>,
    /// Reads the log until the child closes it.
    _reader: AbortOnDropHandle<()>,
}

/// The child's log: shown as progress at first, then passed on.
struct Log {
    name: &'static str,
    last: Mutex<VecDeque<String>>,
    progress: Mutex<Option<Progress>>,
}

/// Ends this process when its parent does, if `sightline up` is the parent.
pub(crate) fn end_with_parent() {
    let Some(parent) = std::env::var_os(PARENT) else {
        return;
    };
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{Signal, getppid, set_parent_process_death_signal};
        if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
            complain(&format!("warning: this process may outlive its parent: {error}"));
        }
        // The parent may have ended before the line above.
        let alive = getppid().is_some_and(|id| {
            Some(id.as_raw_nonzero().to_string()) == parent.to_str().map(str::to_owned)
        });
        if !alive && rustix::process::kill_process(rustix::process::getpid(), Signal::KILL).is_err()
        {
            complain("warning: the parent has ended");
        }
    }
    #[cfg(not(target_os = "linux"))]
    drop(parent);
}

fn command(words: &[&str], args: &[OsString]) -> Result<Command, Failure> {
    let program = std::env::current_exe().map_err(|e| {
        Failure::new(exit::INTERNAL, format!("the program does not find itself: {e}"))
    })?;
    let mut command = Command::new(program);
    command
        .args(words)
        .args(args)
        .env(PARENT, std::process::id().to_string())
        .stdin(Stdio::null())
        .process_group(0)
        .kill_on_drop(true);
    Ok(command)
}

/// Has the server check all flags and the model's headers, without loading anything.
pub(super) async fn preflight(part: &Part) -> Result<(), Failure> {
    let output = command(&["server", "plan"], &part.args)?.stdout(Stdio::piped()).output().await;
    let output = output
        .map_err(|e| Failure::new(exit::INTERNAL, format!("the check did not start: {e}")))?;
    if output.status.success() {
        return Ok(());
    }
    let (report, log) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let errors: Vec<&str> =
        report.lines().chain(log.lines()).filter_map(|line| line.strip_prefix("error")).collect();
    let errors: Vec<&str> = errors.iter().map(|line| line.trim_start_matches([':', ' '])).collect();
    let message = if errors.is_empty() {
        format!("the {} refuses these options; `sightline plan` shows why", part.name)
    } else {
        errors.join("\nerror: ")
    };
    Err(Failure::new(code(output.status), message))
}

/// The exit code to pass on; a death by signal is an internal error.
fn code(status: ExitStatus) -> u8 {
    status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(exit::INTERNAL)
}

impl Child {
    /// Starts a part; a worker loads the model while [`Child::ready`] is awaited.
    pub(crate) fn start(part: &Part) -> Result<Self, Failure> {
        let name = part.name;
        let failed = |e: std::io::Error| {
            Failure::new(exit::INTERNAL, format!("the {name} did not start: {e}"))
        };
        let mut command = command(part.program, &part.args)?;
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().map_err(failed)?;
        let missing = || Failure::new(exit::INTERNAL, format!("the {name} has no output"));
        let stdout = BufReader::new(process.stdout.take().ok_or_else(missing)?).lines();
        let stderr = process.stderr.take().ok_or_else(missing)?;
        let (last, progress) = (Mutex::default(), Mutex::default());
        let log = Arc::new(Log { name, last, progress });
        log.show(Some(Progress::new(&part.starting)));
        let reader = read_log(stderr, Arc::clone(&log));
        Ok(Self { name, process, stdout, log, _reader: reader })
    }

    /// Waits until the server says that it serves; the error says why it never will.
    pub(crate) async fn ready(&mut self) -> Result<Ready, Failure> {
        while let Ok(Some(line)) = self.stdout.next_line().await {
            let Ok(line) = serde_json::from_str::<ReadyLine>(&line) else { continue };
            if line.event != "ready" {
                continue;
            }
            self.log.show(None);
            let address = line.api.trim_start_matches("http://").trim_end_matches('/');
            let port = line.transfer.and_then(|at| at.rsplit_once(':')?.1.parse().ok());
            let address = address.to_owned();
            return Ok(Ready { address, model: line.model, transfer_port: port });
        }
        self.log.show(None);
        Err(self.wait().await)
    }

    /// Waits until the server ends by itself, which it should not: the reason.
    pub(crate) async fn wait(&mut self) -> Failure {
        let status = match self.process.wait().await {
            Ok(status) => status,
            Err(error) => {
                return Failure::new(exit::INTERNAL, format!("lost the {}: {error}", self.name));
            }
        };
        let cause = self.log.last_lines();
        let cause = if cause.is_empty() { "it said nothing".to_owned() } else { cause };
        Failure::new(code(status), format!("the {} ended ({status}): {cause}", self.name))
    }

    /// Asks the server to drain and waits until it has.
    pub(crate) async fn stop(&mut self) {
        self.log.show(None);
        let id = self.process.id().and_then(|id| i32::try_from(id).ok());
        let pid = id.and_then(rustix::process::Pid::from_raw);
        let term = rustix::process::Signal::TERM;
        if pid.is_some_and(|pid| rustix::process::kill_process(pid, term).is_err()) {
            complain(&format!("warning: the {} could not be told to stop", self.name));
        }
        drop(self.process.wait().await);
    }

    /// Ends the server now.
    pub(crate) fn kill(&mut self) {
        drop(self.process.start_kill());
    }
}

impl Log {
    fn show(&self, progress: Option<Progress>) {
        *self.progress.lock().unwrap_or_else(PoisonError::into_inner) = progress;
    }

    fn line(&self, line: String) {
        match &*self.progress.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(progress) => progress.line(&line),
            None => complain(&format!("{}: {line}", self.name)),
        }
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.len() == LINES_KEPT {
            last.pop_front();
        }
        last.push_back(line);
    }

    fn last_lines(&self) -> String {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.iter().map(String::as_str).collect::<Vec<_>>().join("\n  ")
    }
}

#[expect(clippy::disallowed_methods, reason = "the task is owned by the child it reads")]
fn read_log(stderr: ChildStderr, log: Arc<Log>) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(tokio::spawn(pass_on(stderr, log)))
}

async fn pass_on(from: impl AsyncRead + Unpin, log: Arc<Log>) {
    let mut lines = BufReader::new(from).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        log.line(line);
    }
}
