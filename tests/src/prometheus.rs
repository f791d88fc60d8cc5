//! The real Prometheus on a port of its own choice, and pages for it to scrape; ended when dropped.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::{http, skip};

/// Looks at a condition: three minutes at least, on a machine that does other things, too.
const LOOKS: usize = 9_000;

/// Between two looks: what is waited for needs the processor as well.
const PAUSE: Duration = Duration::from_millis(20);

/// Lines of the log that are kept for messages.
const LINES: usize = 50;

type Lines = Arc<Mutex<VecDeque<String>>>;

/// A running Prometheus.
#[derive(Debug)]
pub struct Prometheus {
    child: Child,
    /// Configuration, rules and data; removed at the end.
    folder: PathBuf,
    /// Base URL, as `http://127.0.0.1:PORT`.
    pub url: String,
    log: Lines,
}

impl Prometheus {
    /// Whether it is not installed here; says so.
    #[must_use]
    pub fn is_missing() -> bool {
        let there = Command::new("prometheus").arg("--version").output().is_ok();
        if !there {
            skip("prometheus is missing; Debian's package prometheus brings it");
        }
        !there
    }

    /// Starts it with this configuration and waits until it answers. `name` names its folder, in
    /// which the files (name and text) lie beside the configuration.
    ///
    /// # Errors
    /// It ends before it is ready; the message holds what it said.
    pub fn start(name: &str, config: &str, files: &[(&str, &str)]) -> Result<Self> {
        static STARTED: AtomicU64 = AtomicU64::new(0);
        let (process, count) = (std::process::id(), STARTED.fetch_add(1, Ordering::SeqCst));
        let folder = std::env::temp_dir().join(format!("prometheus-{name}-{process}-{count}"));
        std::fs::create_dir_all(&folder)?;
        let path = folder.join("prometheus.yml");
        std::fs::write(&path, config)?;
        for (file, text) in files {
            std::fs::write(folder.join(file), text)?;
        }
        let mut child = Command::new("prometheus")
            .arg(format!("--config.file={}", path.display()))
            .arg(format!("--storage.tsdb.path={}", folder.join("data").display()))
            .args(["--web.listen-address=127.0.0.1:0", "--web.enable-lifecycle"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("start prometheus")?;
        let stderr = child.stderr.take().context("standard error is piped")?;
        let log = Lines::default();
        let (tell, told) = mpsc::channel();
        let kept = Arc::clone(&log);
        // Reads until the process ends: a full pipe would stop it.
        std::thread::spawn(move || read_log(stderr, &kept, &tell));
        let mut prometheus = Self { child, folder, url: String::new(), log };
        match told.recv() {
            Ok(url) => prometheus.url = url,
            Err(_) => bail!("prometheus ended before it was ready:\n{}", prometheus.said()),
        }
        Ok(prometheus)
    }

    /// Its folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The last lines of its log.
    #[must_use]
    pub fn said(&self) -> String {
        let lines = self.log.lock().map(|lines| lines.iter().cloned().collect::<Vec<_>>());
        lines.unwrap_or_default().join("\n")
    }

    /// The elements of the value of an expression, now.
    ///
    /// # Errors
    /// It does not answer, or refuses the expression.
    pub fn query(&self, expr: &str) -> Result<Vec<Value>> {
        let escape = |byte: u8| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' => char::from(byte).to_string(),
            _ => format!("%{byte:02X}"),
        };
        let query: String = expr.bytes().map(escape).collect();
        let answer = http::get(&self.url, &format!("/api/v1/query?query={query}"))?;
        ensure!(answer.status == 200, "{expr}: {}", answer.text()?);
        Ok(answer.json()?["data"]["result"].as_array().cloned().unwrap_or_default())
    }

    /// Asks again and again until something comes; each question waits for the answer to the one
    /// before.
    ///
    /// # Errors
    /// Nothing comes.
    pub fn until(&self, expr: &str) -> Result<Vec<Value>> {
        for _ in 0..LOOKS {
            let found = self.query(expr)?;
            if !found.is_empty() {
                return Ok(found);
            }
            std::thread::park_timeout(PAUSE);
        }
        bail!("{expr} stays empty; prometheus said:\n{}", self.said())
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // Its data is of no use to anybody: it need not end gracefully.
        drop(self.child.kill());
        drop(self.child.wait());
        drop(std::fs::remove_dir_all(&self.folder));
    }
}

/// Keeps the last lines; tells the address once it answers.
fn read_log(stderr: impl std::io::Read, kept: &Lines, tell: &mpsc::Sender<String>) {
    let mut url = None;
    for line in BufReader::new(stderr).lines().map_while(Result::ok) {
        if line.contains("msg=\"Listening on\"") {
            let address = line.split("address=").nth(1).and_then(|rest| rest.split(' ').next());
            url = address.map(|address| format!("http://{address}"));
        }
        if line.contains("ready to receive web requests")
            && let Some(url) = url.take()
        {
            // Nobody listens once the test has given up.
            drop(tell.send(url));
        }
        if let Ok(mut lines) = kept.lock() {
            lines.push_back(line);
            if lines.len() > LINES {
                lines.pop_front();
            }
        }
    }
}

/// A page as it is at its n-th scrape, from 1; none answers 404.
type Paint = dyn Fn(&str, u64) -> Option<String> + Send + Sync;

/// Serves pages, each painted anew for each request.
pub struct Pages {
    /// `127.0.0.1:PORT`.
    pub address: SocketAddr,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Pages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pages").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Pages {
    /// Serves on a free port. `paint` gets path and query, and how many requests there were, this
    /// one included.
    ///
    /// # Errors
    /// There is no port.
    pub fn start(
        paint: impl Fn(&str, u64) -> Option<String> + Send + Sync + 'static,
    ) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let over = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&over);
        let paint: Box<Paint> = Box::new(paint);
        let count = AtomicU64::new(0);
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if stop.load(Ordering::SeqCst) {
                    break;
                }
                // A scraper that left is told nothing.
                drop(answer(stream, &*paint, &count));
            }
        });
        Ok(Self { address, over, thread: Some(thread) })
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        // Wakes the thread.
        drop(TcpStream::connect(self.address));
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// Answers one request and closes: a kept connection would keep others out.
fn answer(mut stream: TcpStream, paint: &Paint, count: &AtomicU64) -> Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let path = line.split_whitespace().nth(1).context("a path")?.to_owned();
    loop {
        line.clear();
        if reader.read_line(&mut line)? == 0 || line.trim().is_empty() {
            break;
        }
    }
    let scrape = count.fetch_add(1, Ordering::SeqCst) + 1;
    let (status, body) = match paint(&path, scrape) {
        Some(page) => (200, page),
        None => (404, "not found".to_owned()),
    };
    let head = format!(
        "HTTP/1.1 {status} x\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        body.len(),
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())?;
    Ok(())
}
