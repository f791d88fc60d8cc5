//! A worker that does what the prompt says: what a router does about others can then be driven,
//! status by status and fault by fault.

use anyhow::{Context, Result};
use protocol::internal::{LoadLimits, LoadQueued, LoadReport, LoadRole, LoadState};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

/// What it shares with the threads of its connections.
struct State {
    load: Mutex<LoadReport>,
    /// Connections that are open, and whether no more are taken.
    open: Mutex<(Vec<TcpStream>, bool)>,
}

/// A worker on a port of its own; it leaves when dropped.
pub(super) struct Worker {
    /// `http://HOST:PORT`.
    pub(super) url: String,
    state: Arc<State>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Worker {
    /// One that has nothing to do and takes everything.
    pub(super) fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let load = LoadReport {
            instance_id: address.to_string(),
            role: LoadRole::Unified,
            model: "fake".to_owned(),
            fingerprint: String::new(),
            state: LoadState::Ready,
            queued: LoadQueued::default(),
            limits: LoadLimits { requests: 32, tokens: 0, drain_ms: 0 },
            drain_ms: 0,
            prefill_rate: 1000.0,
            running: 0,
            running_limit: 16,
            free_tokens: 1 << 20,
            place_ms: None,
            peers_up: None,
        };
        let state = Arc::new(State { load: Mutex::new(load), open: Mutex::default() });
        let shared = Arc::clone(&state);
        thread::spawn(move || accept(&listener, &shared));
        Ok(Self { url: format!("http://{address}"), state })
    }

    /// From now on so many uncached tokens wait.
    pub(super) fn wait(&self, tokens: u64) {
        let mut load = lock(&self.state.load);
        load.queued = LoadQueued { requests: 1, tokens, uncached_tokens: tokens };
    }

    /// Takes no connection any more and closes those that are open.
    pub(super) fn leave(&self) {
        let mut open = lock(&self.state.open);
        open.1 = true;
        for socket in open.0.drain(..) {
            // Its other side may have closed it.
            drop(socket.shutdown(Shutdown::Both));
        }
        drop(open);
        // So that the listener is looked at once more, and is dropped.
        drop(TcpStream::connect(self.url.trim_start_matches("http://")));
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.leave();
    }
}

fn accept(listener: &TcpListener, state: &Arc<State>) {
    for socket in listener.incoming() {
        let mut open = lock(&state.open);
        if open.1 {
            return;
        }
        let (Ok(socket), state) = (socket, Arc::clone(state)) else { continue };
        open.0.extend(socket.try_clone());
        drop(open);
        thread::spawn(move || {
            // How a connection ends is the client's business.
            drop(serve(&socket, &state));
            drop(socket.shutdown(Shutdown::Both));
        });
    }
}

/// Answers until the connection ends, or is to be broken off.
fn serve(socket: &TcpStream, state: &State) -> Result<()> {
    socket.set_nodelay(true)?;
    let mut from = BufReader::new(socket.try_clone()?);
    while let Some((path, body)) = request(&mut from)? {
        match path.as_str() {
            "/internal/load" => {
                let load = serde_json::to_string(&*lock(&state.load))?;
                answer(socket, 200, &load)?;
            }
            _ if !asked(socket, &body)? => return Ok(()),
            _ => {}
        }
    }
    Ok(())
}

/// Does what the prompt says: `status N`, `close`, `cut` (after the answer has begun) or `hang`;
/// anything else is answered. Whether the connection goes on.
fn asked(socket: &TcpStream, body: &Value) -> Result<bool> {
    let prompt = body["prompt"].as_str().unwrap_or_default();
    if let Some(status) = prompt.strip_prefix("status ") {
        let status: u16 = status.split(' ').next().unwrap_or_default().parse()?;
        let error = json!({"error": {"message": "as asked", "type": "t", "code": null}});
        answer(socket, status, &error.to_string())?;
        return Ok(true);
    }
    let stream = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
                  transfer-encoding: chunked\r\n\r\n";
    let event = |text: &str| format!("{:x}\r\n{text}\r\n", text.len());
    let token = event("data: {\"choices\":[{\"index\":0,\"text\":\"a\"}]}\n\n");
    let mut to = socket;
    match prompt {
        "close" => return Ok(false),
        "cut" => {
            to.write_all((stream.to_owned() + &token).as_bytes())?;
            return Ok(false);
        }
        "hang" => {
            to.read_to_end(&mut Vec::new())?;
            return Ok(false);
        }
        _ if body["stream"] == true => {
            let last = event("data: [DONE]\n\n");
            to.write_all(format!("{stream}{token}{token}{last}0\r\n\r\n").as_bytes())?;
        }
        _ => {
            let choice = json!({"index": 0, "text": "a", "finish_reason": "length"});
            let usage = json!({"prompt_tokens": 5, "completion_tokens": 1});
            answer(socket, 200, &json!({"choices": [choice], "usage": usage}).to_string())?;
        }
    }
    Ok(true)
}

fn answer(mut to: &TcpStream, status: u16, body: &str) -> Result<()> {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    );
    Ok(to.write_all((head + body).as_bytes())?)
}

/// The path and the JSON body of the next request, null where there is none; `None` at the end.
fn request(from: &mut BufReader<TcpStream>) -> Result<Option<(String, Value)>> {
    let mut line = String::new();
    if from.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let path = line.split(' ').nth(1).context("a request line without a path")?.to_owned();
    let mut length = 0;
    loop {
        line.clear();
        from.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse()?;
        }
    }
    let mut body = vec![0; length];
    from.read_exact(&mut body)?;
    Ok(Some((path, serde_json::from_slice(&body).unwrap_or_default())))
}
