//! A server for tests: answers each request by a function, one thread a connection, until dropped.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// What was asked.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) method: String,
    /// Path and query.
    pub(crate) path: String,
    /// Header lines, names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Asked {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }
}

/// What is answered.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    /// Status, further header lines and body.
    Of(u16, Vec<(&'static str, String)>, String),
    /// Nothing, for as long as the client waits.
    Nothing,
    /// These bytes, then the connection is closed.
    Raw(&'static [u8]),
}

impl Reply {
    pub(crate) fn json(status: u16, body: impl ToString) -> Self {
        Self::Of(status, Vec::new(), body.to_string())
    }
}

type Answer = dyn Fn(&Asked) -> Reply + Send + Sync;

pub(crate) struct Mock {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
    connections: Arc<Mutex<Vec<TcpStream>>>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Mock {
    pub(crate) fn start(answer: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let (asked, connections) = (Arc::default(), Arc::default());
        let over = Arc::new(AtomicBool::new(false));
        let mut mock = Self { address, asked, connections, over, thread: None };
        let (asked, over) = (Arc::clone(&mock.asked), Arc::clone(&mock.over));
        let connections = Arc::clone(&mock.connections);
        let answer: Arc<Answer> = Arc::new(answer);
        let thread = std::thread::spawn(move || {
            let mut threads = Vec::new();
            for stream in listener.incoming() {
                if over.load(Ordering::SeqCst) {
                    break;
                }
                let stream = stream.expect("a connection");
                connections.lock().expect("sound").push(stream.try_clone().expect("a handle"));
                let (asked, answer) = (Arc::clone(&asked), Arc::clone(&answer));
                threads.push(std::thread::spawn(move || serve(stream, &asked, &*answer)));
            }
            threads.into_iter().for_each(|thread| thread.join().expect("no panic in a handler"));
        });
        mock.thread = Some(thread);
        mock
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().expect("sound").clone()
    }

    /// Connections that were made so far.
    pub(crate) fn connections(&self) -> usize {
        self.connections.lock().expect("sound").len()
    }
}

impl Drop for Mock {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        // Wakes the accepting thread.
        drop(TcpStream::connect(self.address));
        for stream in self.connections.lock().expect("sound").drain(..) {
            drop(stream.shutdown(std::net::Shutdown::Both));
        }
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            eprintln!("a handler of the mock panicked");
        }
    }
}

fn serve(stream: TcpStream, asked: &Mutex<Vec<Asked>>, answer: &Answer) {
    let mut writer = stream.try_clone().expect("a handle");
    let mut reader = BufReader::new(stream);
    while let Some(request) = read(&mut reader) {
        asked.lock().expect("sound").push(request.clone());
        let sent = match answer(&request) {
            Reply::Of(status, headers, body) => {
                let mut head = format!("HTTP/1.1 {status} x\r\nContent-Length: {}\r\n", body.len());
                for (name, value) in headers {
                    head.push_str(&format!("{name}: {value}\r\n"));
                }
                writer.write_all(format!("{head}\r\n{body}").as_bytes())
            }
            Reply::Nothing => continue,
            Reply::Raw(bytes) => {
                drop(writer.write_all(bytes));
                drop(writer.shutdown(std::net::Shutdown::Both));
                return;
            }
        };
        if sent.is_err() {
            return;
        }
    }
}

/// The next request; none when the client is gone.
fn read(reader: &mut BufReader<TcpStream>) -> Option<Asked> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
    let mut words = line.split_whitespace().map(str::to_owned);
    let (method, path) = (words.next()?, words.next()?);
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
        let Some((name, value)) = line.trim().split_once(':') else { break };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let mut body = vec![0; length.map_or(0, |(_, value)| value.parse().expect("a number"))];
    reader.read_exact(&mut body).ok()?;
    Some(Asked { method, path, headers, body: String::from_utf8(body).expect("text") })
}
