//! A real Prometheus for tests: Debian's package, on a free port of this machine.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use serde_json::Value;

use crate::http;

/// A folder that is removed with everything in it.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    /// An empty one; `name` tells it from those of other tests of the process.
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("sightline-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder for temporary files");
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// Whether Prometheus is not installed, which is said; in CI it must be.
pub(crate) fn missing() -> bool {
    if Path::new("/usr/bin/prometheus").exists() {
        return false;
    }
    let ci = std::env::var_os("CI").is_some_and(|value| !value.is_empty() && value != "0");
    assert!(!ci, "cannot run in CI: Prometheus is missing; Debian's package has it");
    println!("SKIP prometheus is missing; Debian's package has it");
    true
}

/// A running one, ended when dropped.
pub(crate) struct Prometheus {
    child: Child,
    pub(crate) address: String,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Prometheus {
    /// Starts it with this configuration in `folder` and waits until it is ready. It keeps samples
    /// of any age and takes remote writes.
    pub(crate) async fn start(folder: &Path, config: &str) -> Self {
        let file = folder.join("prometheus.yml");
        std::fs::write(&file, config).expect("the folder is writable");
        // Somebody else may take the port before Prometheus does.
        for attempt in 0..5 {
            let socket = TcpListener::bind("127.0.0.1:0").expect("a free port");
            let address = socket.local_addr().expect("it is bound").to_string();
            drop(socket);
            let log = std::fs::File::create(folder.join("log")).expect("the folder is writable");
            let child = Command::new("/usr/bin/prometheus")
                .arg(format!("--config.file={}", file.display()))
                .arg(format!("--storage.tsdb.path={}", folder.join(attempt.to_string()).display()))
                .arg(format!("--web.listen-address={address}"))
                .args(["--storage.tsdb.retention.time=100y", "--log.level=warn"])
                .args(["--web.enable-remote-write-receiver", "--query.max-concurrency=4"])
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(log)
                .spawn();
            let mut server = Self { child: child.expect("prometheus starts"), address };
            if server.ready().await {
                return server;
            }
        }
        let log = std::fs::read_to_string(folder.join("log")).unwrap_or_default();
        panic!("prometheus does not start: {log}");
    }

    /// Waits until it answers; false when it ended.
    async fn ready(&mut self) -> bool {
        let mut ticks = tokio::time::interval(Duration::from_millis(50));
        for _ in 0..1200 {
            ticks.tick().await;
            if !matches!(self.child.try_wait(), Ok(None)) {
                return false;
            }
            let request = http::get(&self.address, "/-/ready").expect("valid");
            let answer = http::fetch(&self.address, request, 1 << 20, Duration::from_secs(5)).await;
            if answer.is_ok_and(|(status, _)| status.is_success()) {
                return true;
            }
        }
        panic!("prometheus is not ready after a minute");
    }

    /// Asks a path of its API with a form; the status and the body.
    pub(crate) async fn ask(&self, path: &str, form: String) -> (u16, Value) {
        let request = Request::post(path)
            .header("host", &self.address)
            .header("content-type", "application/x-www-form-urlencoded")
            .body(Full::from(form))
            .expect("valid");
        self.exchange(request).await
    }

    /// Gets a path of its API, the query included.
    pub(crate) async fn get(&self, path: &str) -> (u16, Value) {
        self.exchange(http::get(&self.address, path).expect("valid")).await
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> (u16, Value) {
        let answer = http::fetch(&self.address, request, 256 << 20, Duration::from_secs(60)).await;
        let (status, body) = answer.expect("it answers");
        let json = serde_json::from_slice(&body);
        (status.as_u16(), json.unwrap_or_else(|_| String::from_utf8_lossy(&body).into()))
    }

    /// Writes a block of snappy-compressed protocol buffers.
    pub(crate) async fn write(&self, block: Vec<u8>) {
        let request = Request::post("/api/v1/write")
            .header("host", &self.address)
            .header("content-type", "application/x-protobuf")
            .header("content-encoding", "snappy")
            .header("x-prometheus-remote-write-version", "0.1.0")
            .body(Full::from(block))
            .expect("valid");
        let (status, said) = self.exchange(request).await;
        assert_eq!(status, 204, "remote write: {said}");
    }
}
