//! The worker's process and its pipes.

use std::io::{self, BufReader, Write};
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::thread;

use nvml_worker::protocol::{self, LineError, Report, Request};

const STACK_BYTES: usize = 128 << 10;

/// What came from the worker.
#[derive(Debug)]
pub(super) enum Heard {
    /// A line.
    Report(Box<Report>),
    /// Something else; nothing more is read.
    Garbage(String),
    /// The end of its output.
    End,
}

/// A worker. It ends when its input does, which happens at the latest when this is dropped.
#[derive(Debug)]
pub(super) struct Child {
    process: std::process::Child,
    input: Option<ChildStdin>,
}

impl Child {
    /// Starts the program as a worker. What it says is handed to `hear` on a thread of its own,
    /// until that says that nobody listens any more.
    pub(super) fn start(
        program: &Path,
        hear: impl Fn(Heard) -> bool + Send + 'static,
    ) -> io::Result<Self> {
        let mut process = Command::new(program)
            .arg(nvml_worker::ARGUMENT)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (input, output) = (process.stdin.take(), process.stdout.take());
        let output = output.ok_or_else(|| io::Error::other("no pipe for the output"))?;
        let thread = thread::Builder::new().name("gpu-lines".to_owned()).stack_size(STACK_BYTES);
        thread.spawn(move || {
            let mut lines = BufReader::new(output);
            while hear_next(&mut lines, &hear) {}
        })?;
        Ok(Self { process, input })
    }

    /// Says something. A worker that does not listen is about to end, which shows elsewhere.
    pub(super) fn say(&mut self, request: &Request) {
        if let Some(input) = &mut self.input {
            drop(input.write_all(&protocol::to_line(request)));
        }
    }

    /// Asks it to end.
    pub(super) fn close(&mut self) {
        self.input = None;
    }

    /// Its process id.
    pub(super) fn id(&self) -> u32 {
        self.process.id()
    }

    pub(super) const fn is_closed(&self) -> bool {
        self.input.is_none()
    }

    pub(super) fn kill(&mut self) {
        // It may have ended meanwhile.
        drop(self.process.kill());
    }

    /// How it ended; `None` while it runs.
    pub(super) fn ended(&mut self) -> Option<String> {
        match self.process.try_wait() {
            Ok(status) => status.map(|status| status.to_string()),
            Err(error) => Some(format!("nobody knows how: {error}")),
        }
    }
}

/// Hands the next line on. Says whether there may be more.
fn hear_next(lines: &mut BufReader<impl io::Read>, hear: &impl Fn(Heard) -> bool) -> bool {
    match protocol::read::<Report>(lines) {
        Ok(Some(report)) => hear(Heard::Report(Box::new(report))),
        // What is cut was cut by a crash, which says more.
        Ok(None) | Err(LineError::Cut(_)) => {
            hear(Heard::End);
            false
        }
        Err(error) => {
            hear(Heard::Garbage(error.to_string()));
            false
        }
    }
}
