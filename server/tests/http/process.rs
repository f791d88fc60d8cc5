//! Runs the binary and speaks raw HTTP to it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;

/// No test waits longer for a byte.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) fn binary() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sightline-server"));
    command.stdin(Stdio::null());
    command
}

/// Runs the binary to its end.
pub(super) fn run(args: &str) -> Output {
    binary().args(args.split_whitespace()).output().expect("the binary starts")
}

/// A server that is ready; killed when dropped.
pub(super) struct Server {
    child: Child,
    out: BufReader<ChildStdout>,
    /// `host:port` of the API.
    pub(super) api: String,
    /// `host:port` of the probes.
    pub(super) probes: String,
    /// `host:port` of the transfer link, of a prefill worker.
    pub(super) transfer: Option<String>,
}

impl Server {
    pub(super) fn start(flags: &str) -> Self {
        let mut command = binary();
        command.args(["serve", "--port", "0", "--log-level", "warn"]);
        Self::ready(command.args(flags.split_whitespace()))
    }

    pub(super) fn router(flags: &str) -> Self {
        let mut command = binary();
        command.args(["router", "--port", "0", "--probe-port", "0", "--log-level", "error"]);
        Self::ready(command.args(flags.split_whitespace()))
    }

    /// A server whose log of fewer than 64 KiB is kept, an object a line; probes on a free port.
    pub(super) fn logged(flags: &str) -> Self {
        let mut command = binary();
        command.args(["serve", "--port", "0", "--probe-port", "0", "--log-format", "json"]);
        Self::ready(command.args(flags.split_whitespace()).stderr(Stdio::piped()))
    }

    fn ready(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the binary starts");
        let mut out = BufReader::new(child.stdout.take().expect("standard output is piped"));
        let mut line = String::new();
        out.read_line(&mut line).expect("a line");
        let ready: Value = serde_json::from_str(&line).expect("one JSON object");
        assert_eq!(ready["event"], "ready", "{line}");
        assert_eq!(ready["pid"], child.id());
        let host = |key: &str| {
            let url = ready[key].as_str().expect("a URL");
            url.strip_prefix("http://").expect("an HTTP URL").to_owned()
        };
        let transfer = ready["transfer"].as_str().map(str::to_owned);
        Self { api: host("api"), probes: host("probes"), transfer, child, out }
    }

    pub(super) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let status = Command::new("kill").args(["-s", name, &pid]).status().expect("kill runs");
        assert!(status.success());
    }

    /// What is logged until the end, of a server that was started for that.
    pub(super) fn log(&mut self) -> Vec<Value> {
        let mut text = String::new();
        let log = self.child.stderr.as_mut().expect("a server whose log is kept");
        log.read_to_string(&mut text).expect("text");
        text.lines().map(|line| serde_json::from_str(line).expect("one JSON object")).collect()
    }

    /// The exit code, after the end; nothing more is on standard output.
    pub(super) fn exit_code(&mut self) -> Option<i32> {
        let mut rest = String::new();
        self.out.read_to_string(&mut rest).expect("text");
        assert_eq!(rest, "", "one line on standard output is all");
        self.child.wait().expect("the process ends").code()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Already gone is what we want.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A connection that may be used for several requests.
pub(super) struct Connection {
    reader: BufReader<TcpStream>,
}

/// An answer with a body of known length.
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) head: String,
    pub(super) body: String,
}

impl Connection {
    pub(super) fn open(host: &str) -> Self {
        let socket = TcpStream::connect(host).expect("the server listens");
        socket.set_read_timeout(Some(PATIENCE)).expect("a socket");
        Self { reader: BufReader::new(socket) }
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.reader.get_mut().write_all(bytes)
    }

    pub(super) fn send(&mut self, method: &str, path: &str, body: &str) {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: test\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        );
        self.write(head.as_bytes()).expect("the server reads");
    }

    /// The status and the head of the next answer, lower case.
    pub(super) fn head(&mut self) -> (u16, String) {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            let read = self.reader.read_line(&mut head).expect("a line of the head");
            assert!(read > 0, "the connection ended inside the head: {head:?}");
        }
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        (status.expect("a status line"), head.to_lowercase())
    }

    pub(super) fn answer(&mut self) -> Answer {
        let (status, head) = self.head();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length = length.and_then(|length| length.parse().ok()).expect("a length");
        let mut body = vec![0; length];
        self.reader.read_exact(&mut body).expect("the body");
        Answer { status, head, body: String::from_utf8(body).expect("UTF-8") }
    }

    /// The next line of a stream.
    pub(super) fn line(&mut self) -> String {
        let mut line = String::new();
        self.reader.read_line(&mut line).expect("a line");
        line
    }

    /// Everything until the connection ends.
    pub(super) fn rest(&mut self) -> String {
        let mut rest = Vec::new();
        self.reader.read_to_end(&mut rest).expect("the rest");
        String::from_utf8_lossy(&rest).into_owned()
    }
}

/// Asks again and again until `condition` holds.
pub(super) fn until(what: &str, condition: impl Fn() -> bool) {
    let clock = types::Clock::start();
    while !condition() {
        let waited = clock.now().since(types::Time::ZERO);
        assert!(waited < PATIENCE, "waited in vain until {what}");
        std::thread::yield_now();
    }
}

/// One request on a connection of its own.
pub(super) fn get(host: &str, path: &str) -> Answer {
    let mut connection = Connection::open(host);
    connection.send("GET", path, "");
    connection.answer()
}

/// The JSON of a good answer to a request on a connection of its own.
pub(super) fn post(host: &str, path: &str, body: &Value) -> Value {
    let mut connection = Connection::open(host);
    connection.send("POST", path, &body.to_string());
    let answer = connection.answer();
    assert_eq!(answer.status, 200, "{}", answer.body);
    serde_json::from_str(&answer.body).expect("JSON")
}

pub(super) fn completion(tokens: usize, stream: bool) -> String {
    format!(
        "{{\"model\":\"fake\",\"prompt\":\"a\",\"max_tokens\":{tokens},\"ignore_eos\":true,\
         \"stream\":{stream}}}"
    )
}
