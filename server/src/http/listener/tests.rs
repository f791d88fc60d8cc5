//! Clients that do not behave, on real sockets.

use axum::routing::get;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;

/// More than sockets hold on the way.
const LONG: usize = 64 << 20;
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";

/// Serves a long answer to one connection at a time.
async fn served(write_timeout: Duration) -> (SocketAddr, CancellationToken) {
    let bound = Bound::new(([127, 0, 0, 1], 0).into()).await.expect("a free port");
    let (address, stop) = (bound.address(), CancellationToken::new());
    let router = Router::new().route("/", get(|| async { vec![b'x'; LONG] }));
    let bounds = Bounds { connections: 1, write_timeout };
    TaskTracker::new().spawn(bound.serve(router, bounds, stop.clone()));
    (address, stop)
}

async fn ask(address: SocketAddr) -> TcpStream {
    let mut client = TcpStream::connect(address).await.expect("a listener");
    client.write_all(REQUEST).await.expect("a socket that takes a request");
    client
}

#[tokio::test]
async fn who_does_not_read_makes_room_for_others() {
    let (address, stop) = served(Duration::from_millis(200)).await;
    // It stays connected all the while, and never reads.
    let silent = ask(address).await;
    let mut reader = ask(address).await;
    let mut answer = Vec::new();
    let read = reader.read_to_end(&mut answer);
    let read = tokio::time::timeout(Duration::from_secs(60), read).await;
    read.expect("the silent one is given up").expect("a whole answer");
    assert!(answer.len() > LONG, "{}", answer.len());
    drop(silent);
    stop.cancel();
}

/// Reading now and then is enough: the time is between two reads, not that of the answer.
#[tokio::test]
async fn who_reads_slowly_gets_everything() {
    let (address, stop) = served(Duration::from_secs(30)).await;
    let mut reader = ask(address).await;
    let (mut total, mut part) = (0, vec![0; 1 << 20]);
    loop {
        let read = reader.read(&mut part).await.expect("the connection stays");
        if read == 0 {
            break;
        }
        total += read;
        tokio::task::yield_now().await;
    }
    assert!(total > LONG, "{total}");
    stop.cancel();
}
