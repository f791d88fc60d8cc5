//! Starts `sightline-exporter`, asks it, and waits for what its pages are to say.
#![allow(clippy::allow_attributes, dead_code, reason = "each area uses some of it")]
#![expect(clippy::disallowed_methods, reason = "tests measure and wait in real time")]
#![expect(clippy::print_stderr, reason = "what a failed test saw must be where it is read")]

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// How long a test waits for anything. Far more than it takes, for machines that are busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// A running exporter; ends with the value.
pub(crate) struct Exporter {
    child: Child,
    /// Where it answers.
    pub(crate) address: SocketAddr,
    /// Folder of its own, removed at the end.
    pub(crate) folder: Folder,
}

/// The program, with a clean environment and short intervals.
pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sightline-exporter"));
    command.args(args).env_clear().env("RUST_BACKTRACE", "1");
    command
}

/// Runs the program to its end.
pub(crate) fn run(args: &[&str]) -> Output {
    command(args).output().expect("the program starts")
}

impl Exporter {
    /// Starts it on a free port with these arguments and waits until it answers. It is not
    /// confined: tests hand it files and libraries from anywhere.
    pub(crate) fn start(args: &[&str]) -> Self {
        let free = if args.contains(&"--no-sandbox") { None } else { Some("--no-sandbox") };
        Self::start_with(args, |command| command.args(free))
    }

    /// The same, confined as it is when it is installed.
    pub(crate) fn start_confined(args: &[&str]) -> Self {
        Self::start_with(args, |command| command)
    }

    /// The same; `change` may add variables of the environment.
    pub(crate) fn start_with(
        args: &[&str],
        change: impl FnOnce(&mut Command) -> &mut Command,
    ) -> Self {
        let folder = Folder::new();
        let mut command = command(&["--listen", "127.0.0.1:0"]);
        command.args(args).stdout(Stdio::piped()).stderr(folder.file("stderr"));
        let mut child = change(&mut command).spawn().expect("the program starts");
        let out = child.stdout.take().expect("standard output is a pipe");
        let mut line = String::new();
        BufReader::new(out).read_line(&mut line).expect("standard output is text");
        let ready: serde_json::Value = serde_json::from_str(&line)
            .unwrap_or_else(|error| panic!("{error}: {line:?}\n{}", folder.read("stderr")));
        let address = ready["address"].as_str().and_then(|url| url.split_once("://"));
        let (_, address) = address.unwrap_or_else(|| panic!("{line}"));
        Self { child, address: address.parse().expect("an address"), folder }
    }

    /// Asks for a path.
    pub(crate) fn get(&self, path: &str) -> Answer {
        self.request("GET", path, &[])
    }

    /// Asks with a method and headers.
    pub(crate) fn request(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
        let started = Instant::now();
        let mut stream = self.connect();
        let bytes = exchange(&mut stream, method, path, headers);
        Answer { took: started.elapsed(), ..Answer::parse(&bytes) }
    }

    /// A bare connection, with a deadline for reading.
    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("the time is not zero");
        stream
    }

    /// The metrics page.
    pub(crate) fn page(&self) -> Page {
        let answer = self.get("/metrics");
        assert_eq!(answer.status, 200, "{}", answer.body);
        Page::parse(&answer.body, answer.took)
    }

    /// The first page that `wanted` likes.
    pub(crate) fn page_where(&self, what: &str, mut wanted: impl FnMut(&Page) -> bool) -> Page {
        let mut last = None;
        let found = eventually_some(|| {
            let page = self.page();
            let good = wanted(&page);
            last = Some(page.text.clone());
            good.then_some(page)
        });
        found.unwrap_or_else(|| {
            panic!("never: {what}\n{}\n{}", last.unwrap_or_default(), self.log())
        })
    }

    /// What it has written to standard error.
    pub(crate) fn log(&self) -> String {
        self.folder.read("stderr")
    }

    /// Id of the process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends SIGTERM and waits; the exit code.
    pub(crate) fn stop(&mut self) -> Option<i32> {
        signal(self.child.id(), "TERM");
        self.wait()
    }

    /// Waits for the end; the exit code.
    pub(crate) fn wait(&mut self) -> Option<i32> {
        eventually_some(|| self.child.try_wait().expect("it is our child"))
            .unwrap_or_else(|| panic!("it does not end\n{}", self.log()))
            .code()
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- standard error of the exporter\n{}", self.log());
        }
        if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            drop(self.child.kill());
            drop(self.child.wait());
        }
    }
}

/// One request and all of its answer.
pub(crate) fn exchange<S: Read + Write>(
    stream: &mut S,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
) -> Vec<u8> {
    try_exchange(stream, method, path, headers).expect("it reads and answers")
}

/// The same, of somebody who may refuse.
pub(crate) fn try_exchange<S: Read + Write>(
    stream: &mut S,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
) -> io::Result<Vec<u8>> {
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    stream.write_all(format!("{head}\r\n").as_bytes())?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Sends a signal to a process that this test started.
pub(crate) fn signal(pid: u32, name: &str) {
    let sent = Command::new("kill").args([format!("-{name}"), pid.to_string()]).status();
    assert!(sent.expect("kill is installed").success(), "no process {pid}");
}

/// Polls until `condition` holds; false if it never does.
pub(crate) fn eventually(mut condition: impl FnMut() -> bool) -> bool {
    eventually_some(|| condition().then_some(())).is_some()
}

/// Polls until there is something; `None` if there never is.
pub(crate) fn eventually_some<T>(mut poll: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = poll() {
            return Some(found);
        }
        if Instant::now() > end {
            return None;
        }
        std::thread::park_timeout(Duration::from_millis(10));
    }
}

/// An answer over HTTP.
#[derive(Debug)]
pub(crate) struct Answer {
    /// Status code.
    pub(crate) status: u16,
    /// Headers with lower-case names.
    pub(crate) headers: BTreeMap<String, String>,
    /// Body as text.
    pub(crate) body: String,
    /// From before connecting to the last byte.
    pub(crate) took: Duration,
}

impl Answer {
    /// Reads a whole answer.
    pub(crate) fn parse(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let mut lines = head.lines();
        let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok());
        let headers = lines.filter_map(|line| line.split_once(": "));
        Self {
            status: status.unwrap_or_else(|| panic!("no answer: {text:?}")),
            headers: headers.map(|(n, v)| (n.to_lowercase(), v.to_owned())).collect(),
            body: body.to_owned(),
            took: Duration::ZERO,
        }
    }

    /// The body as JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.body))
    }
}

/// A metrics page.
#[derive(Debug, Clone)]
pub(crate) struct Page {
    /// As it came.
    pub(crate) text: String,
    /// How long it took.
    pub(crate) took: Duration,
    samples: BTreeMap<String, f64>,
}

impl Page {
    /// Reads a page.
    pub(crate) fn parse(text: &str, took: Duration) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
        let samples = lines.map(|line| {
            let (series, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line:?}"));
            (series.to_owned(), value.parse().unwrap_or_else(|_| panic!("{line:?}")))
        });
        Self { text: text.to_owned(), took, samples: samples.collect() }
    }

    /// The value of the one series of this family whose labels include these; `None` where there is
    /// none.
    pub(crate) fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let found = self.all(name, labels);
        assert!(found.len() <= 1, "{name} {labels:?} is not one series: {found:?}");
        found.first().map(|(_, value)| *value)
    }

    /// Every series of this family whose labels include these.
    pub(crate) fn all(&self, name: &str, labels: &[(&str, &str)]) -> Vec<(&str, f64)> {
        let matches = |series: &str| {
            let (family, rest) = series.split_once('{').unwrap_or((series, "}"));
            let rest = format!(",{}", rest.trim_end_matches('}'));
            let has = |(n, v): &(&str, &str)| rest.contains(&format!(",{n}=\"{v}\""));
            family == name && labels.iter().all(has)
        };
        self.samples.iter().filter(|(s, _)| matches(s)).map(|(s, v)| (s.as_str(), *v)).collect()
    }
}

/// A folder that is removed at the end.
#[derive(Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// An empty one.
    pub(crate) fn new() -> Self {
        use std::sync::atomic::{AtomicU32, Ordering};
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("sightline-exporter-{}-{next}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("the temporary folder is writable");
        Self(path)
    }

    /// A path in it.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// The same as text, for arguments.
    pub(crate) fn arg(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// Writes a file, all of it at once, and gives its path.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let (new, path) = (self.path(&format!("{name}.new")), self.path(name));
        std::fs::write(&new, text).expect("the folder is writable");
        std::fs::rename(new, &path).expect("the folder is writable");
        path
    }

    /// Adds to the end of a file, in place.
    pub(crate) fn append(&self, name: &str, text: &str) {
        let file = std::fs::File::options().append(true).open(self.path(name));
        file.and_then(|mut file| file.write_all(text.as_bytes())).expect("the file is there");
    }

    /// An empty file to write to.
    pub(crate) fn file(&self, name: &str) -> std::fs::File {
        std::fs::File::create(self.path(name)).expect("the folder is writable")
    }

    /// The text of a file; empty where there is none.
    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}
