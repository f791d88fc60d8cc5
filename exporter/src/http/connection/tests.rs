use std::future::Future;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::task::LocalSet;

use super::*;
use crate::http::answer::tests::{door, near};

const ASK: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";

/// Runs with virtual time: it jumps to the next timer when nothing else can happen.
fn run<F: Future>(test: F) -> F::Output {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().expect("a runtime");
    LocalSet::new().block_on(&runtime, test)
}

struct Client {
    stream: DuplexStream,
    link: Arc<Link>,
    served: tokio::task::JoinHandle<()>,
    outdated: CancellationToken,
}

/// A client whose connection holds `buffer` bytes each way.
fn connect(door: &Arc<Door>, buffer: usize, stop: &Stop) -> Client {
    let (stream, other) = duplex(buffer);
    let link = Arc::new(Link::default());
    let (stop, outdated) = (stop.clone(), CancellationToken::new());
    let serving = serve(other, Arc::clone(door), near(), Arc::clone(&link), stop, outdated.clone());
    Client { stream, link, served: tokio::task::spawn_local(serving), outdated }
}

impl Client {
    /// Asks and reads the answer's head and as much of its body as comes with it.
    async fn ask(&mut self) -> String {
        self.stream.write_all(ASK).await.expect("open");
        self.read().await
    }

    async fn read(&mut self) -> String {
        let mut bytes = vec![0; 4096];
        let read = self.stream.read(&mut bytes).await.expect("open");
        String::from_utf8_lossy(&bytes[..read]).into_owned()
    }
}

#[test]
fn a_connection_that_is_outdated_ends_after_its_answer() {
    run(async {
        let page = "x".repeat(10_000);
        let (door, stop) = (Arc::new(door(true, 4, &page)), Stop::new());
        let began = tokio::time::Instant::now();
        let mut idle = connect(&door, 1 << 20, &stop);
        assert!(idle.ask().await.starts_with("HTTP/1.1 200"));
        let silent = connect(&door, 64, &stop);
        let mut busy = connect(&door, 64, &stop);
        busy.stream.write_all(ASK).await.expect("open");
        while busy.link.phase() != Phase::Answering {
            tokio::task::yield_now().await;
        }
        for client in [&idle, &silent, &busy] {
            client.outdated.cancel();
        }
        let mut rest = Vec::new();
        idle.stream.read_to_end(&mut rest).await.expect("it is closed");
        silent.served.await.expect("it ends");
        let mut answer = String::new();
        busy.stream.read_to_string(&mut answer).await.expect("it is closed");
        assert!(answer.ends_with(&page), "{} bytes", answer.len());
        assert!(tokio::time::Instant::now() - began < door.timeout, "nobody waits for a deadline");
    });
}

#[test]
fn answers_in_flight_are_bounded_and_give_their_place_back() {
    run(async {
        let page = "x".repeat(10_000);
        let (door, stop) = (Arc::new(door(true, 1, &page)), Stop::new());
        let mut slow = connect(&door, 64, &stop);
        slow.stream.write_all(ASK).await.expect("open");
        while slow.link.phase() != Phase::Answering {
            tokio::task::yield_now().await;
        }
        assert!(!slow.link.is_idle());
        let mut other = connect(&door, 1 << 20, &stop);
        let refused = other.ask().await;
        assert!(refused.starts_with("HTTP/1.1 503"), "{refused}");
        assert!(refused.contains("retry-after: 1"), "{refused}");
        let mut got = String::new();
        while !got.ends_with(&page) {
            got.push_str(&slow.read().await);
        }
        while !slow.link.is_idle() {
            tokio::task::yield_now().await;
        }
        let served = other.ask().await;
        assert!(served.starts_with("HTTP/1.1 200"), "{served}");
    });
}

#[test]
fn who_does_not_read_is_left() {
    run(async {
        let (door, stop) = (Arc::new(door(true, 1, &"x".repeat(10_000))), Stop::new());
        let mut slow = connect(&door, 64, &stop);
        slow.stream.write_all(ASK).await.expect("open");
        let begun = tokio::time::Instant::now();
        slow.served.await.expect("no panic");
        assert_eq!(begun.elapsed().as_secs(), door.timeout.as_secs());
        let mut other = connect(&door, 1 << 20, &stop);
        assert!(other.ask().await.starts_with("HTTP/1.1 200"), "the place is free again");
    });
}

#[test]
fn who_sends_half_a_request_is_left_and_who_sends_none_may_wait() {
    run(async {
        let (door, stop) = (Arc::new(door(true, 1, "")), Stop::new());
        let mut half = connect(&door, 1 << 10, &stop);
        half.stream.write_all(b"GET /metr").await.expect("open");
        let begun = tokio::time::Instant::now();
        half.served.await.expect("no panic");
        assert_eq!(begun.elapsed().as_secs(), door.timeout.as_secs());

        let mut idle = connect(&door, 1 << 20, &stop);
        assert!(idle.ask().await.contains("200 OK"));
        tokio::time::advance(door.timeout * 6).await;
        assert!(idle.ask().await.contains("200 OK"), "a scrape interval may be a minute");
        let begun = tokio::time::Instant::now();
        idle.served.await.expect("no panic");
        assert_eq!(begun.elapsed().as_secs(), IDLE.as_secs());
    });
}

#[test]
fn a_long_head_is_refused() {
    run(async {
        let (door, stop) = (Arc::new(door(true, 1, "")), Stop::new());
        let mut client = connect(&door, 1 << 20, &stop);
        let head = format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "a".repeat(HEAD_BYTES));
        client.stream.write_all(head.as_bytes()).await.expect("open");
        let answer = client.read().await;
        assert!(answer.starts_with("HTTP/1.1 4"), "{answer}");
    });
}

#[test]
fn an_idle_connection_makes_room_and_ends_with_the_program() {
    run(async {
        let (door, stop) = (Arc::new(door(true, 1, "")), Stop::new());
        let mut evicted = connect(&door, 1 << 20, &stop);
        assert!(evicted.ask().await.contains("200 OK"));
        evicted.link.evicted.cancel();
        evicted.served.await.expect("no panic");
        let mut last = connect(&door, 1 << 20, &stop);
        assert!(last.ask().await.contains("200 OK"));
        stop.stop();
        last.served.await.expect("no panic");
    });
}
