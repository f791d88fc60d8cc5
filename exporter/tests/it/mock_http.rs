//! A server that answers as it is told, or not at all.
#![allow(dead_code, unreachable_pub, clippy::allow_attributes, reason = "each user needs some")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// What it does with a request.
#[derive(Debug, Clone)]
pub enum Behaviour {
    /// Answers with this status and body.
    Answer(u16, String),
    /// Sends the caller elsewhere.
    Redirect(String),
    /// Accepts, reads, and never answers.
    Hang,
    /// Sends a head and half of a body, and no more.
    HangInBody,
    /// Sends these bytes, whatever they are, and closes.
    Raw(Vec<u8>),
    /// Closes without a word.
    Close,
}

#[derive(Debug)]
struct Script {
    behaviour: Behaviour,
    requests: Vec<String>,
    /// Connections that are kept open without an answer.
    held: Vec<TcpStream>,
    ended: bool,
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    script: Arc<Mutex<Script>>,
    address: SocketAddr,
}

impl Server {
    /// One that does this until it is told otherwise.
    pub fn start(behaviour: Behaviour) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("it is bound");
        let script = Script { behaviour, requests: Vec::new(), held: Vec::new(), ended: false };
        let script = Arc::new(Mutex::new(script));
        let shared = Arc::clone(&script);
        thread::spawn(move || {
            for stream in listener.incoming() {
                if shared.lock().expect("no test panics while it holds it").ended {
                    return;
                }
                let (stream, shared) = (stream.expect("a connection"), Arc::clone(&shared));
                thread::spawn(move || serve(stream, &shared));
            }
        });
        Self { script, address }
    }

    /// One that answers 200 with this body.
    pub fn well(body: &str) -> Self {
        Self::start(Behaviour::Answer(200, body.to_owned()))
    }

    /// A URL of it.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Changes what it does with later requests.
    pub fn set(&self, behaviour: Behaviour) {
        self.script().behaviour = behaviour;
    }

    /// Heads of the requests so far.
    pub fn requests(&self) -> Vec<String> {
        self.script().requests.clone()
    }

    fn script(&self) -> std::sync::MutexGuard<'_, Script> {
        self.script.lock().expect("no test panics while it holds it")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.script().ended = true;
        drop(TcpStream::connect(self.address));
    }
}

fn serve(mut stream: TcpStream, script: &Mutex<Script>) {
    let (mut head, mut chunk) = (Vec::new(), [0; 1024]);
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        match stream.read(&mut chunk) {
            Ok(0) | Err(_) => return,
            Ok(read) => head.extend_from_slice(&chunk[..read]),
        }
    }
    let mut script = script.lock().expect("no test panics while it holds it");
    script.requests.push(String::from_utf8_lossy(&head).into_owned());
    let send = |stream: &mut TcpStream, status: u16, header: &str, body: &str| {
        let length = body.len();
        let head = format!("HTTP/1.1 {status} x\r\n{header}Content-Length: {length}\r\n\r\n");
        // Whoever no longer listens has given up, as it may.
        drop(stream.write_all(format!("{head}{body}").as_bytes()));
    };
    match script.behaviour.clone() {
        Behaviour::Answer(status, body) => send(&mut stream, status, "", &body),
        Behaviour::Redirect(to) => send(&mut stream, 302, &format!("Location: {to}\r\n"), ""),
        Behaviour::Hang => script.held.push(stream),
        Behaviour::HangInBody => {
            drop(stream.write_all(b"HTTP/1.1 200 x\r\nContent-Length: 100\r\n\r\nhalf"));
            script.held.push(stream);
        }
        Behaviour::Raw(bytes) => drop(stream.write_all(&bytes)),
        Behaviour::Close => {}
    }
}
