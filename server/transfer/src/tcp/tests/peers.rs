//! Peers that come, go, come back, and some that are none.

use super::proxy::{Plan, Proxy};
use super::workers::{Decode, Prefill, at, name, options, prompt, soon, until};
use crate::tcp::HANDSHAKES_MAX;
use crate::{Backend, Failure, NotOffered};
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};

/// A proxy that does nothing by itself.
fn quiet() -> Plan {
    Plan { faults: Vec::new(), every_bytes: 1, at_most: 0 }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_that_was_never_there_is_no_connection() {
    // A port that nobody listens to: taken and closed again.
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let peer = at("prefill:1", gone);
    let decode = Decode::start(options("decode:1"), std::slice::from_ref(&peer)).unwrap();
    let failed = decode.transfer(&peer.name, 1, 40, 0).await;
    assert_eq!(failed, Err(NotOffered::Failed(Failure::Connect)));
    until("it is counted", || decode.ledger.ends() == [Err(Failure::Connect)]).await;
    let (up, trouble) = decode.peer(&peer.name);
    assert!(!up && trouble.contains(&gone.to_string()), "{trouble}");
    // It comes up later: it is found.
    let prefill = Prefill::start(options("prefill"), gone.port()).await.unwrap();
    until("it is found", || decode.peer(&peer.name).0).await;
    assert_eq!(decode.peer(&peer.name).1, "");
    assert_eq!(decode.transfer(&peer.name, 2, 40, 0).await, Ok(()));
    until("it is at rest", || prefill.at_rest()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_connection_fails_every_room_of_the_peer_on_both_sides() {
    let prefill = Prefill::start(options("prefill"), 0).await.unwrap();
    let other = Prefill::start(options("prefill"), 0).await.unwrap();
    let proxy = Proxy::start(prefill.address(), 0, quiet()).await;
    let peers = [at("prefill:1", proxy.address), at("prefill:2", other.address())];
    let decode = Decode::start(options("decode:1"), &peers).unwrap();
    // Accepted, and never computed.
    prefill.engine.idle.store(true, Ordering::SeqCst);
    let waiting = async {
        let transfer = |text| decode.transfer(&peers[0].name, text, 60, 0);
        tokio::join!(transfer(1), transfer(2), transfer(3))
    };
    let cut = async {
        until("all are landed", || {
            decode.client.snapshot().peers[0].waiting == 3 && !decode.pages.all_free()
        })
        .await;
        until("the other side has them", || prefill.server.snapshot().peers[0].waiting == 3).await;
        proxy.cut_all();
    };
    let gone = Err(NotOffered::Failed(Failure::PeerGone));
    let (results, ()) = tokio::join!(waiting, cut);
    assert_eq!(results, (gone, gone, gone));
    until("nothing is left", || decode.at_rest() && prefill.at_rest()).await;
    assert_eq!(prefill.ledger.ends(), [Err(Failure::PeerGone); 3]);
    assert_eq!(*prefill.engine.failed.lock().unwrap(), [Failure::PeerGone; 3]);
    // The other peer was not touched, and this one comes back.
    assert_eq!(decode.transfer(&peers[1].name, 4, 60, 0).await, Ok(()));
    prefill.engine.idle.store(false, Ordering::SeqCst);
    until("it is connected again", || decode.peer(&peers[0].name).0).await;
    assert_eq!(decode.transfer(&peers[0].name, 5, 60, 0).await, Ok(()));
    decode.client.shut_down().await;
    until("no connection is left", || proxy.open() == 0).await;
    until("it is noticed", || prefill.server.snapshot().peers.iter().all(|peer| !peer.up)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_peer_is_gone_on_both_sides() {
    let watchful = |own| {
        let mut options = options(own);
        options.limits.heartbeat = Duration::from_millis(200);
        options
    };
    let prefill = Prefill::start(watchful("prefill"), 0).await.unwrap();
    let proxy = Proxy::start(prefill.address(), 0, quiet()).await;
    let peer = at("prefill:1", proxy.address);
    let decode = Decode::start(watchful("decode:1"), std::slice::from_ref(&peer)).unwrap();
    prefill.engine.idle.store(true, Ordering::SeqCst);
    let hush = async {
        until("it is landed", || prefill.server.snapshot().peers[0].waiting == 1).await;
        proxy.hush();
    };
    let (result, ()) = tokio::join!(decode.transfer(&peer.name, 1, 60, 0), hush);
    assert_eq!(result, Err(NotOffered::Failed(Failure::PeerGone)));
    until("nothing is left", || decode.at_rest() && prefill.at_rest()).await;
    assert_eq!(prefill.ledger.ends(), [Err(Failure::PeerGone)]);
    until("it is known to be gone", || !prefill.server.snapshot().peers[0].up).await;
    until("and why", || {
        let (up, trouble) = decode.peer(&peer.name);
        !up && !trouble.is_empty()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_worker_is_another_peer() {
    let first = Prefill::start(options("prefill"), 0).await.unwrap();
    let proxy = Proxy::start(first.address(), 0, quiet()).await;
    let peer = at("prefill:1", proxy.address);
    let decode = Decode::start(options("decode:1"), std::slice::from_ref(&peer)).unwrap();
    first.engine.idle.store(true, Ordering::SeqCst);
    let second = Prefill::start(options("prefill"), 0).await.unwrap();
    let restart = async {
        until("it is landed", || first.server.snapshot().peers[0].waiting == 1).await;
        proxy.retarget(second.address());
        first.server.shut_down().await;
    };
    let (result, ()) = tokio::join!(decode.transfer(&peer.name, 1, 60, 0), restart);
    assert_eq!(result, Err(NotOffered::Failed(Failure::PeerGone)));
    until("nothing is left at the old one", || first.at_rest()).await;
    assert_eq!(first.ledger.ends(), [Err(Failure::LocalAbort)]);
    until("the new one is connected", || second.server.snapshot().peers[0].up).await;
    until("and known", || decode.peer(&peer.name).0).await;
    assert_eq!(decode.transfer(&peer.name, 2, 60, 0).await, Ok(()));
    // The decode worker restarts under the same name.
    drop(decode);
    let decode = Decode::start(options("decode:1"), std::slice::from_ref(&peer)).unwrap();
    assert_eq!(decode.transfer(&peer.name, 3, 60, 0).await, Ok(()));
    until("nothing is left", || decode.at_rest() && second.at_rest()).await;
    assert_eq!(second.ledger.ends(), [Ok(()); 2]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn peers_come_and_go_at_run_time() {
    let one = Prefill::start(options("prefill"), 0).await.unwrap();
    let two = Prefill::start(options("prefill"), 0).await.unwrap();
    let peers = [at("prefill:1", one.address()), at("prefill:2", two.address())];
    let decode = Decode::start(options("decode:3"), &peers[..1]).unwrap();
    assert_eq!(decode.transfer(&peers[0].name, 1, 40, 0).await, Ok(()));
    let up = |prefill: &Prefill, peer: &str| {
        let snapshot = prefill.server.snapshot();
        snapshot.peers.iter().any(|one| one.peer == name(peer) && one.up)
    };
    // It is not in the configuration, until that changes and it connects again.
    assert!(up(&one, "other"));
    one.server.set_peers(&[name("decode:3")]);
    decode.client.set_peers(&peers[1..]);
    until("the first is let go", || one.server.snapshot().peers.iter().all(|peer| !peer.up)).await;
    assert_eq!(decode.client.snapshot().peers.len(), 1);
    assert_eq!(decode.transfer(&peers[1].name, 2, 40, 0).await, Ok(()));
    let failed = decode.transfer(&peers[0].name, 3, 40, 0).await;
    assert_eq!(failed, Err(NotOffered::Failed(Failure::Connect)));
    decode.client.set_peers(&peers);
    assert_eq!(decode.transfer(&peers[0].name, 4, 40, 0).await, Ok(()));
    assert!(up(&one, "decode:3") && up(&two, "other"));
    until("nothing is left", || decode.at_rest() && one.at_rest() && two.at_rest()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_connects_and_says_nothing_keeps_nobody_out() {
    let mut slow = options("prefill");
    // Longer than the test: only the bound ends them.
    slow.tuning.handshake = Duration::from_secs(600);
    let prefill = Prefill::start(slow, 0).await.unwrap();
    let mut silent = Vec::new();
    for _ in 0..HANDSHAKES_MAX + 10 {
        silent.push(TcpStream::connect(prefill.address()).await.unwrap());
    }
    let peer = at("prefill:1", prefill.address());
    let decode = Decode::start(options("decode:1"), std::slice::from_ref(&peer)).unwrap();
    assert_eq!(decode.transfer(&peer.name, 1, 40, 0).await, Ok(()));
    // The oldest had to go.
    let end = soon("the end of the oldest", silent[0].read(&mut [0; 1])).await;
    assert!(matches!(end, Ok(0) | Err(_)), "{end:?}");
    until("nothing is left", || decode.at_rest() && prefill.at_rest()).await;
    soon("the end", prefill.server.shut_down()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handshake_has_a_time_limit() {
    let mut quick = options("prefill");
    quick.tuning.handshake = Duration::from_millis(50);
    let prefill = Prefill::start(quick, 0).await.unwrap();
    let mut silent = TcpStream::connect(prefill.address()).await.unwrap();
    let end = soon("the end of it", silent.read(&mut [0; 1])).await;
    assert!(matches!(end, Ok(0) | Err(_)), "{end:?}");
    // One that listens and never answers, from the other side.
    let deaf = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let peer = at("prefill:1", deaf.local_addr().unwrap());
    let mut quick = options("decode:1");
    quick.tuning.handshake = Duration::from_millis(50);
    let decode = Decode::start(quick, std::slice::from_ref(&peer)).unwrap();
    let failed = decode.transfer(&peer.name, 1, 40, 0).await;
    assert_eq!(failed, Err(NotOffered::Failed(Failure::Connect)));
    let (_, trouble) = decode.peer(&peer.name);
    assert!(trouble.contains("in time"), "{trouble}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_nobody_waits_for_is_given_up_at_once() {
    let prefill = Prefill::start(options("prefill"), 0).await.unwrap();
    let peer = at("prefill:1", prefill.address());
    let decode = Decode::start(options("decode:1"), std::slice::from_ref(&peer)).unwrap();
    assert_eq!(decode.transfer(&peer.name, 1, 40, 0).await, Ok(()));
    // Accepted, and dropped before pages were named.
    let (request, _news) = decode.request();
    let offered = decode.client.offer(&peer.name, request, prompt(2, 40)).await.unwrap();
    drop(offered);
    until("the prefill worker knows", || prefill.ledger.ends().len() == 2).await;
    assert_eq!(prefill.ledger.ends()[1], Err(Failure::PeerAbort));
    // Dropped before the answer: whether the other side knew of it depends on who was faster.
    let (request, _more) = decode.request();
    let mut offer = Box::pin(decode.client.offer(&peer.name, request, prompt(3, 40)));
    let polled = futures_util::poll!(&mut offer);
    drop(offer);
    drop(polled);
    until("nothing is left", || decode.at_rest() && prefill.at_rest()).await;
    until("both are counted", || decode.ledger.ends().len() == 3).await;
    assert_eq!(decode.ledger.ends()[1..], [Err(Failure::LocalAbort); 2]);
    assert_eq!(decode.transfer(&peer.name, 4, 40, 0).await, Ok(()));
}
