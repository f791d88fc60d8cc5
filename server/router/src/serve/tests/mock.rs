//! A worker on a real socket that does what a test says.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use protocol::internal::{LoadLimits, LoadQueued, LoadReport, LoadRole, LoadState};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// What a worker does with a request for an answer.
#[derive(Clone)]
pub(super) enum Act {
    /// A stream of these events.
    Events(Vec<String>),
    /// The same, each event but the first when the test adds a permit.
    Gated(Vec<String>, Arc<Semaphore>),
    /// These events, then the connection is closed without an end.
    Cut(Vec<String>),
    /// These events, then nothing.
    Silent(Vec<String>),
    /// A status, more lines of the head, a body.
    Whole(u16, &'static str, String),
    /// The head of a stream, then nothing.
    HeadOnly,
    /// Nothing.
    Hang,
    /// The connection is closed.
    Close,
    /// What is no HTTP.
    Garbage,
}

/// A request as it came.
#[derive(Debug, Clone, Default)]
pub(super) struct Received {
    pub(super) path: String,
    pub(super) headers: HashMap<String, String>,
    pub(super) body: String,
}

/// What a test can wait for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Connections that are open.
    pub(super) open: usize,
    /// Connections that were ever opened.
    pub(super) opened: usize,
    /// Requests for answers.
    pub(super) asked: usize,
    /// Polls of any kind.
    pub(super) polled: usize,
    /// Connections that the other side closed while a request was not answered.
    pub(super) aborted: usize,
}

struct State {
    act: Mutex<Act>,
    /// The answer of `/internal/load`; there is no such path without one.
    load: Mutex<Option<LoadReport>>,
    /// The status of `/health`.
    health: Mutex<u16>,
    models: Mutex<Vec<String>>,
    /// Polls are not answered.
    deaf: Mutex<bool>,
    received: Mutex<Vec<Received>>,
    counts: watch::Sender<Counts>,
}

/// A worker. Dropping it closes its socket and all connections.
pub(super) struct Mock {
    pub(super) address: SocketAddr,
    state: Arc<State>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

/// The load of an idle worker.
pub(super) fn load(role: LoadRole, instance: &str) -> LoadReport {
    LoadReport {
        instance_id: instance.to_owned(),
        role,
        model: "m".to_owned(),
        fingerprint: "f".to_owned(),
        state: LoadState::Ready,
        queued: LoadQueued::default(),
        limits: LoadLimits { requests: 32, tokens: 100_000, drain_ms: 30_000 },
        drain_ms: 0,
        prefill_rate: 3300.0,
        running: 0,
        running_limit: 32,
        free_tokens: 1_000_000,
        place_ms: None,
        peers_up: None,
    }
}

/// Events of an answer with these texts.
pub(super) fn events(texts: &[&str]) -> Vec<String> {
    let event = |text: &&str| {
        format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n")
    };
    let last = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}],\
                \"usage\":{\"prompt_tokens\":5,\"completion_tokens\":3}}\n\n";
    let texts = texts.iter().map(event);
    texts.chain([last.to_owned(), "data: [DONE]\n\n".to_owned()]).collect()
}

impl Mock {
    /// A worker without `/internal/load`.
    pub(super) async fn plain(act: Act) -> Self {
        Self::at("127.0.0.1:0".parse().expect("an address"), act, None).await
    }

    /// A worker that tells its load.
    pub(super) async fn of(role: LoadRole, act: Act) -> Self {
        Self::at("127.0.0.1:0".parse().expect("an address"), act, Some(load(role, "i-1"))).await
    }

    /// A worker at an address, which must be free.
    pub(super) async fn at(address: SocketAddr, act: Act, load: Option<LoadReport>) -> Self {
        let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
        socket.set_reuseaddr(true).expect("an option of every system");
        socket.bind(address).expect("a free address");
        let listener = socket.listen(1024).expect("it is bound");
        let address = listener.local_addr().expect("it is bound");
        let state = Arc::new(State {
            act: Mutex::new(act),
            load: Mutex::new(load),
            health: Mutex::new(200),
            models: Mutex::new(vec!["m".to_owned()]),
            deaf: Mutex::new(false),
            received: Mutex::default(),
            counts: watch::Sender::new(Counts::default()),
        });
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        tasks.spawn(accept(listener, Arc::clone(&state), stop.clone(), tasks.clone()));
        Self { address, state, stop, tasks }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// From now on it does this.
    pub(super) fn act(&self, act: Act) {
        *self.state.act.lock().expect("no test panics in it") = act;
    }

    /// From now on it tells this load.
    pub(super) fn tell(&self, change: impl FnOnce(&mut LoadReport)) {
        let mut load = self.state.load.lock().expect("no test panics in it");
        change(load.as_mut().expect("it tells its load"));
    }

    pub(super) fn health(&self, status: u16) {
        *self.state.health.lock().expect("no test panics in it") = status;
    }

    pub(super) fn models(&self, models: &[&str]) {
        let models = models.iter().map(ToString::to_string).collect();
        *self.state.models.lock().expect("no test panics in it") = models;
    }

    pub(super) fn deaf(&self, deaf: bool) {
        *self.state.deaf.lock().expect("no test panics in it") = deaf;
    }

    pub(super) fn received(&self) -> Vec<Received> {
        self.state.received.lock().expect("no test panics in it").clone()
    }

    pub(super) fn counts(&self) -> Counts {
        *self.state.counts.borrow()
    }

    /// Until `condition` holds.
    pub(super) async fn until(&self, what: &str, condition: impl Fn(Counts) -> bool) {
        let mut counts = self.state.counts.subscribe();
        let waited = tokio::time::timeout(super::rig::PATIENCE, counts.wait_for(|c| condition(*c)));
        let last = self.counts();
        waited.await.unwrap_or_else(|_| panic!("in vain until {what}: {last:?}")).expect("alive");
    }

    /// Closes its socket and all connections, as the end of its process does.
    pub(super) async fn kill(self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl Drop for Mock {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn accept(
    listener: TcpListener,
    state: Arc<State>,
    stop: CancellationToken,
    tasks: TaskTracker,
) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => return,
        };
        let Ok((stream, _)) = accepted else { return };
        let (state, stop) = (Arc::clone(&state), stop.clone());
        tasks.spawn(async move {
            state.counts.send_modify(|counts| {
                counts.open += 1;
                counts.opened += 1;
            });
            tokio::select! {
                _ = serve(stream, &state) => {}
                () = stop.cancelled() => {}
            }
            state.counts.send_modify(|counts| counts.open -= 1);
        });
    }
}

/// Answers requests until the connection ends.
async fn serve(mut stream: TcpStream, state: &State) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = Vec::new();
    loop {
        let Some(received) = request(&mut stream, &mut buffer).await? else { return Ok(()) };
        let path = received.path.clone();
        let poll = path == "/health" || path == "/internal/load" || path == "/v1/models";
        if poll {
            state.counts.send_modify(|counts| counts.polled += 1);
            if *state.deaf.lock().expect("no test panics in it") {
                return closed(&mut stream, state).await;
            }
            let (status, body) = polled(state, &path);
            whole(&mut stream, status, "", &body).await?;
            continue;
        }
        state.received.lock().expect("no test panics in it").push(received);
        let act = state.act.lock().expect("no test panics in it").clone();
        state.counts.send_modify(|counts| counts.asked += 1);
        if !play(&mut stream, act, state).await? {
            return Ok(());
        }
    }
}

fn polled(state: &State, path: &str) -> (u16, String) {
    let load = state.load.lock().expect("no test panics in it").clone();
    match (path, load) {
        ("/internal/load", Some(load)) => (200, serde_json::to_string(&load).expect("JSON")),
        ("/internal/load", None) => (404, "{}".to_owned()),
        ("/health", _) => (*state.health.lock().expect("no test panics in it"), String::new()),
        _ => {
            let models = state.models.lock().expect("no test panics in it").clone();
            let data: Vec<_> = models.iter().map(|id| serde_json::json!({"id": id})).collect();
            (200, serde_json::json!({"data": data}).to_string())
        }
    }
}

/// Plays one act; whether the connection goes on.
async fn play(stream: &mut TcpStream, act: Act, state: &State) -> std::io::Result<bool> {
    const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
                        transfer-encoding: chunked\r\n\r\n";
    match act {
        Act::Whole(status, head, body) => whole(stream, status, head, &body).await?,
        Act::Events(events) => {
            stream.write_all(HEAD.as_bytes()).await?;
            for event in &events {
                chunk(stream, event).await?;
            }
            stream.write_all(b"0\r\n\r\n").await?;
        }
        Act::Gated(events, gate) => {
            stream.write_all(HEAD.as_bytes()).await?;
            for (at, event) in events.iter().enumerate() {
                if at > 0 {
                    let permit = tokio::select! {
                        permit = gate.acquire() => permit,
                        ended = closed(stream, state) => return ended.map(|()| false),
                    };
                    permit.expect("the gate stays").forget();
                }
                chunk(stream, event).await?;
            }
            stream.write_all(b"0\r\n\r\n").await?;
        }
        Act::Cut(events) => {
            stream.write_all(HEAD.as_bytes()).await?;
            for event in &events {
                chunk(stream, event).await?;
            }
            return Ok(false);
        }
        Act::Silent(events) => {
            stream.write_all(HEAD.as_bytes()).await?;
            for event in &events {
                chunk(stream, event).await?;
            }
            return closed(stream, state).await.map(|()| false);
        }
        Act::HeadOnly => {
            stream.write_all(HEAD.as_bytes()).await?;
            return closed(stream, state).await.map(|()| false);
        }
        Act::Hang => return closed(stream, state).await.map(|()| false),
        Act::Close => return Ok(false),
        Act::Garbage => {
            stream.write_all(b"220 mail.example.org ESMTP\r\n\r\n").await?;
            return Ok(false);
        }
    }
    Ok(true)
}

/// Until the other side has closed the connection.
async fn closed(stream: &mut TcpStream, state: &State) -> std::io::Result<()> {
    let mut byte = [0; 1];
    while stream.read(&mut byte).await.is_ok_and(|read| read > 0) {}
    state.counts.send_modify(|counts| counts.aborted += 1);
    Ok(())
}

async fn chunk(stream: &mut TcpStream, text: &str) -> std::io::Result<()> {
    stream.write_all(format!("{:x}\r\n{text}\r\n", text.len()).as_bytes()).await
}

async fn whole(stream: &mut TcpStream, status: u16, head: &str, body: &str) -> std::io::Result<()> {
    let length = body.len();
    let text = format!(
        "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\n{head}\
         content-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(text.as_bytes()).await
}

/// Reads one request; `None` at the end of the connection.
async fn request(
    stream: &mut TcpStream,
    buffer: &mut Vec<u8>,
) -> std::io::Result<Option<Received>> {
    let end = loop {
        if let Some(end) = memchr::memmem::find(buffer, b"\r\n\r\n") {
            break end;
        }
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    };
    let head = String::from_utf8_lossy(&buffer[..end]).into_owned();
    let mut lines = head.lines();
    let path = lines.next().and_then(|line| line.split(' ').nth(1)).unwrap_or_default().to_owned();
    let field = |line: &str| {
        let (name, value) = line.split_once(':')?;
        Some((name.to_ascii_lowercase(), value.trim().to_owned()))
    };
    let headers: HashMap<String, String> = lines.filter_map(field).collect();
    let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    while buffer.len() < end + 4 + length {
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    }
    let body = String::from_utf8_lossy(&buffer[end + 4..end + 4 + length]).into_owned();
    buffer.drain(..end + 4 + length);
    Ok(Some(Received { path, headers, body }))
}
