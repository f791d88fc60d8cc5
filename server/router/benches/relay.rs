//! Cost of a request that passes through: `scripts/bench.sh router`.
//!
//! Two workers that answer at once with a stream of 32 events, in 32 writes; clients that read it,
//! 1, 4 and 16 at a time. Asked directly, through this router, and through others that are named
//! on the command line, in turns. Processor time is that of the router's threads as the kernel
//! counts it, time to the first byte is the clients'.
//!
//! Arguments: NAME=COMMAND for each router, with {port}, {metrics}, {one} and {two} for the port to
//! listen on, one for its metrics, and the addresses of the workers. Without any there is nothing
//! to measure.
#![expect(clippy::print_stdout, reason = "it prints what it measures")]

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::TaskTracker;
use types::Clock;

const EVENTS: usize = 32;
const ROUNDS: usize = 5;
const STREAMS: [usize; 3] = [1, 4, 16];
/// Requests of one measurement.
const REQUESTS: usize = 600;
/// How long a router may take to answer its first request.
const START: Duration = Duration::from_secs(60);

fn main() {
    let routers: Vec<String> = std::env::args().skip(1).filter(|arg| arg.contains('=')).collect();
    if routers.is_empty() {
        println!("SKIP: name a router, as scripts/bench.sh router does");
        return;
    }
    // The workers have threads of their own, so that they do not wait for the clients.
    let threads = |count| {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(count).enable_all().build().expect("the system has threads")
    };
    let (workers, clients) = (threads(1), threads(1));
    let one = workers.block_on(worker(&workers));
    let two = workers.block_on(worker(&workers));
    let mut started: Vec<Started> = Vec::new();
    for router in &routers {
        started.push(clients.block_on(Started::new(router, one, two)));
    }
    for streams in STREAMS {
        clients.block_on(measure(streams, one, &mut started));
    }
    println!("\nResident memory after all of it:");
    for router in &started {
        println!("  {:<12} {:6.1} MB", router.name, router.resident_kilobytes() as f64 / 1024.0);
    }
    ratios(&started);
}

/// A router that runs.
struct Started {
    name: String,
    child: Child,
    address: SocketAddr,
    /// Processor time of a request, in microseconds, by streams.
    cpu: Vec<f64>,
    /// Time to the first byte beyond that of a worker, in microseconds, by streams.
    added: Vec<f64>,
}

impl Drop for Started {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Started {
    async fn new(text: &str, one: SocketAddr, two: SocketAddr) -> Self {
        let (name, command) = text.split_once('=').expect("it has one");
        let (port, metrics) = (free_port().await, free_port().await);
        let command = command
            .replace("{port}", &port.to_string())
            .replace("{metrics}", &metrics.to_string())
            .replace("{one}", &format!("http://{one}"))
            .replace("{two}", &format!("http://{two}"));
        let mut words = command.split_whitespace();
        let child = Command::new(words.next().expect("a program"))
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("{command}: {error}"));
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let started = Self { name: name.to_owned(), child, address, cpu: vec![], added: vec![] };
        let ready = async {
            loop {
                if let Ok(mut client) = Client::new(address).await
                    && client.ask().await.is_ok()
                {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        let ready = tokio::time::timeout(START, ready).await;
        ready.unwrap_or_else(|_| panic!("{command}: it answers nothing"));
        started
    }

    /// Nanoseconds that its threads have run.
    fn cpu_nanoseconds(&self) -> u64 {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id()));
        let tasks = tasks.expect("it runs").filter_map(Result::ok);
        let ran = |task: std::fs::DirEntry| {
            let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
            text.split_whitespace().next()?.parse::<u64>().ok()
        };
        tasks.filter_map(ran).sum()
    }

    fn resident_kilobytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()));
        let status = status.expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        number.expect("every process has one")
    }
}

async fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    listener.local_addr().expect("it is bound").port()
}

/// Asks a worker and all routers in turns.
async fn measure(streams: usize, worker: SocketAddr, routers: &mut [Started]) {
    let mut direct = Vec::new();
    let mut first: Vec<Vec<f64>> = routers.iter().map(|_| Vec::new()).collect();
    let mut cpu: Vec<Vec<f64>> = routers.iter().map(|_| Vec::new()).collect();
    load(worker, streams, REQUESTS / 4).await;
    for _ in 0..ROUNDS {
        direct.push(load(worker, streams, REQUESTS).await);
        for (at, router) in routers.iter().enumerate() {
            load(router.address, streams, REQUESTS / 4).await;
            let before = router.cpu_nanoseconds();
            first[at].push(load(router.address, streams, REQUESTS).await);
            let spent = router.cpu_nanoseconds() - before;
            cpu[at].push(spent as f64 / 1000.0 / REQUESTS as f64);
        }
    }
    let direct = median(&mut direct);
    println!("\n{streams} streams: first byte of a worker after {direct:.0} us (p50)");
    println!(
        "  {:<12} {:>14} {:>14} {:>18}",
        "router", "first byte us", "added us", "CPU us a request"
    );
    for (at, router) in routers.iter_mut().enumerate() {
        let (first, cpu) = (median(&mut first[at]), median(&mut cpu[at]));
        let added = (first - direct).max(0.0);
        println!("  {:<12} {first:>14.0} {added:>14.0} {cpu:>18.0}", router.name);
        router.cpu.push(cpu);
        router.added.push(added);
    }
}

/// What the first router needs of what each other one needs.
fn ratios(routers: &[Started]) {
    let Some((ours, others)) = routers.split_first() else { return };
    for other in others {
        let mut line = format!("\n{} / {}:", ours.name, other.name);
        for (at, streams) in STREAMS.iter().enumerate() {
            let ratio = |a: &[f64], b: &[f64]| a[at] / b[at].max(1.0);
            let (cpu, added) = (ratio(&ours.cpu, &other.cpu), ratio(&ours.added, &other.added));
            write!(line, "\n  {streams:>2} streams: CPU {cpu:.2}, added first byte {added:.2}")
                .expect("writing to a String cannot fail");
        }
        let memory = ours.resident_kilobytes() as f64 / other.resident_kilobytes() as f64;
        println!("{line}\n  resident memory {memory:.2}");
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Sends `requests`, so many at a time; the median time to the first byte of a body, in
/// microseconds.
async fn load(address: SocketAddr, streams: usize, requests: usize) -> f64 {
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..streams {
        clients.spawn(async move {
            let mut client = Client::new(address).await.expect("it takes connections");
            let mut times = Vec::new();
            for _ in 0..requests / streams {
                let time = client.ask().await.expect("an answer");
                times.push(time.as_secs_f64() * 1e6);
            }
            times
        });
    }
    let mut times: Vec<f64> = clients.join_all().await.into_iter().flatten().collect();
    median(&mut times)
}

/// A client with one connection.
struct Client {
    stream: TcpStream,
    clock: Clock,
    buffer: Vec<u8>,
}

impl Client {
    async fn new(address: SocketAddr) -> std::io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, clock: Clock::start(), buffer: vec![0; 64 * 1024] })
    }

    /// Asks for a stream and reads it whole; the time to its first byte.
    async fn ask(&mut self) -> std::io::Result<Duration> {
        let prompt = "Tell me about the sea and the ships on it. ".repeat(20);
        let body = format!(
            "{{\"model\":\"bench\",\"stream\":true,\"messages\":[{{\"role\":\"user\",\
             \"content\":\"{prompt}\"}}]}}"
        );
        let request = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: bench\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let sent = self.clock.now();
        self.stream.write_all(request.as_bytes()).await?;
        let mut first = None;
        let mut tail: Vec<u8> = Vec::new();
        loop {
            let read = self.stream.read(&mut self.buffer).await?;
            if read == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            let part = &self.buffer[..read];
            if first.is_none() {
                if !part.starts_with(b"HTTP/1.1 200") {
                    return Err(std::io::Error::other("another status"));
                }
                first = Some(self.clock.now().since(sent));
            }
            tail.extend_from_slice(&part[part.len().saturating_sub(8)..]);
            if tail.ends_with(b"\r\n0\r\n\r\n") {
                return Ok(first.unwrap_or_default());
            }
            let keep = tail.len().saturating_sub(8);
            tail.drain(..keep);
        }
    }
}

/// A worker that answers every request with the same stream.
async fn worker(runtime: &tokio::runtime::Runtime) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("it is bound");
    let tasks = TaskTracker::new();
    let connections = tasks.clone();
    tasks.spawn_on(
        async move {
            while let Ok((stream, _)) = listener.accept().await {
                // A client that leaves ends its connection.
                connections.spawn(async move { drop(answers(stream).await) });
            }
        },
        runtime.handle(),
    );
    address
}

async fn answers(mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut buffer, mut held) = (vec![0; 64 * 1024], Vec::new());
    let chunk = |text: &str| format!("{:x}\r\n{text}\r\n", text.len());
    loop {
        let end = loop {
            if let Some(end) = memchr::memmem::find(&held, b"\r\n\r\n") {
                break end + 4;
            }
            let read = stream.read(&mut buffer).await?;
            if read == 0 {
                return Ok(());
            }
            held.extend_from_slice(&buffer[..read]);
        };
        let head = String::from_utf8_lossy(&held[..end]).to_ascii_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.and_then(|length| length.trim().parse().ok()).unwrap_or(0);
        while held.len() < end + length {
            let read = stream.read(&mut buffer).await?;
            if read == 0 {
                return Ok(());
            }
            held.extend_from_slice(&buffer[..read]);
        }
        held.drain(..end + length);
        if !head.starts_with("post") {
            plain(&mut stream, &head).await?;
            continue;
        }
        let mut text = String::from(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
             transfer-encoding: chunked\r\n\r\n",
        );
        for number in 0..EVENTS {
            let event = format!(
                "data: {{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1,\
                 \"model\":\"bench\",\"choices\":[{{\"index\":0,\
                 \"delta\":{{\"content\":\" w{number}\"}},\"finish_reason\":null}}]}}\n\n"
            );
            text.push_str(&chunk(&event));
            stream.write_all(text.as_bytes()).await?;
            text.clear();
            // As a worker does, which computes between two tokens.
            tokio::task::yield_now().await;
        }
        text = chunk("data: [DONE]\n\n") + "0\r\n\r\n";
        stream.write_all(text.as_bytes()).await?;
    }
}

/// Health, models, and no load: a plain OpenAI server.
async fn plain(stream: &mut TcpStream, head: &str) -> std::io::Result<()> {
    let (status, body) = if head.starts_with("get /v1/models ") {
        (200, "{\"object\":\"list\",\"data\":[{\"id\":\"bench\",\"object\":\"model\"}]}")
    } else if head.starts_with("get /health") {
        (200, "{}")
    } else {
        (404, "{}")
    };
    let length = body.len();
    let text = format!(
        "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(text.as_bytes()).await
}
