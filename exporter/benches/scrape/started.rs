//! An exporter that runs, and what it costs.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::client::Client;

/// How long it may take to listen.
const START: Duration = Duration::from_secs(60);

/// An exporter that runs; ends with the value.
pub(crate) struct Started {
    pub(crate) name: &'static str,
    pub(crate) address: SocketAddr,
    child: Child,
    /// Seconds of each scrape.
    times: Vec<f64>,
    /// Processor time of each round, a scrape.
    cpu: Vec<f64>,
    /// Series on its page.
    series: usize,
}

impl Drop for Started {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Started {
    /// One that says where it listens.
    pub(crate) fn told(name: &'static str, mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the program starts");
        let out = child.stdout.take().expect("standard output is a pipe");
        let mut line = String::new();
        BufReader::new(out).read_line(&mut line).expect("standard output is text");
        let address = line.split("://").nth(1).and_then(|rest| rest.split(['"', '/']).next());
        let address = address.and_then(|address| address.parse().ok());
        let address = address.unwrap_or_else(|| panic!("where does it listen? {line:?}"));
        Self { name, address, child, times: Vec::new(), cpu: Vec::new(), series: 0 }
    }

    /// One that was told where to listen; `None` where it is not installed.
    pub(crate) fn at(
        name: &'static str,
        mut command: Command,
        address: SocketAddr,
    ) -> Option<Self> {
        let child = match command.stdout(Stdio::null()).spawn() {
            Ok(child) => child,
            Err(error) if error.kind() == ErrorKind::NotFound => return None,
            Err(error) => panic!("{name}: {error}"),
        };
        let end = Instant::now() + START;
        while TcpStream::connect(address).is_err() {
            assert!(Instant::now() < end, "{name} does not listen");
            std::thread::park_timeout(Duration::from_millis(20));
        }
        let (times, cpu) = (Vec::new(), Vec::new());
        Some(Self { name, address, child, times, cpu, series: 0 })
    }

    /// Scrapes one after the other; the first `warm` do not count.
    pub(crate) fn round(&mut self, warm: usize, scrapes: usize) {
        let mut client = Client::new(self.address);
        for _ in 0..warm {
            client.scrape();
        }
        let before = cpu_seconds(self.child.id());
        let mut page = String::new();
        for _ in 0..scrapes {
            let start = Instant::now();
            page = client.scrape();
            self.times.push(start.elapsed().as_secs_f64());
        }
        self.cpu.push((cpu_seconds(self.child.id()) - before) / scrapes as f64);
        self.series = page.lines().filter(|line| !line.starts_with('#')).count();
    }

    /// Processor time of a scrape, in seconds: the median of the rounds.
    pub(crate) fn cpu(&self) -> f64 {
        quantile(&self.cpu, 0.5)
    }

    /// Time that a client waits, in seconds.
    pub(crate) fn quantile(&self, share: f64) -> f64 {
        quantile(&self.times, share)
    }

    /// Resident memory of it and its children, in MiB.
    pub(crate) fn resident(&self) -> f64 {
        family(self.child.id()).into_iter().map(resident_mebibytes).sum()
    }

    /// Processor time so far.
    pub(crate) fn spent(&self) -> Spent {
        let own = self.child.id();
        let mut spent = Spent([cpu_seconds(own), 0.0, 0.0]);
        for child in family(own).into_iter().skip(1) {
            for (thread, seconds) in threads(child) {
                spent.0[if thread.starts_with("xid-") { 2 } else { 1 }] += seconds;
            }
        }
        spent
    }

    /// Everything measured, as a line of a table.
    pub(crate) fn line(&self) -> String {
        let own = resident_mebibytes(self.child.id());
        format!(
            "{:<26} {:4} series  p50 {:7.3} ms  p99 {:7.3} ms  CPU {:7.3} ms a scrape  RSS {:5.1} \
             MiB (children {:.1})",
            self.name,
            self.series,
            self.quantile(0.5) * 1e3,
            self.quantile(0.99) * 1e3,
            self.cpu() * 1e3,
            self.resident(),
            self.resident() - own,
        )
    }
}

fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[(sorted.len() as f64 * share) as usize]
}

/// A process and its children.
fn family(pid: u32) -> Vec<u32> {
    let is_child = |id: &u32| {
        let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"));
        parent.is_some_and(|parent| parent.trim() == pid.to_string())
    };
    let entries = fs::read_dir("/proc").expect("Linux");
    let ids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    std::iter::once(pid).chain(ids.filter(is_child)).collect()
}

/// Seconds of processor time of a program, of its children, and of those of their threads that wait
/// for Xids.
pub(crate) struct Spent(pub(crate) [f64; 3]);

impl std::ops::Sub for Spent {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self(std::array::from_fn(|at| self.0[at] - earlier.0[at]))
    }
}

/// Processor time of all threads that live, to the nanosecond.
fn cpu_seconds(pid: u32) -> f64 {
    threads(pid).into_iter().map(|(_, seconds)| seconds).sum()
}

/// Names of threads and their processor time.
fn threads(pid: u32) -> Vec<(String, f64)> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("it runs");
    let one = |task: fs::DirEntry| {
        let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
        let nanos: f64 = text.split_whitespace().next()?.parse().ok()?;
        Some((fs::read_to_string(task.path().join("comm")).ok()?, nanos / 1e9))
    };
    tasks.flatten().filter_map(one).collect()
}

fn resident_mebibytes(pid: u32) -> f64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<f64>().ok());
    kib.unwrap_or(0.0) / 1024.0
}

/// A port that is free just now.
pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("it listens").port()
}
