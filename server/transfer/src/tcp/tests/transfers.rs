//! Transfers over links on which nothing goes wrong.

use super::pages::PAGE_TOKENS;
use super::workers::{Decode, Prefill, at, name, options, until};
use crate::NotOffered;
use futures_util::future::join_all;
use std::sync::atomic::Ordering;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_rooms_with_several_peers_at_once() {
    let mut prefills = Vec::new();
    for _ in 0..2 {
        prefills.push(Prefill::start(options("prefill"), 0).await.unwrap());
    }
    let names = ["prefill:1", "prefill:2"];
    let peers: Vec<_> =
        names.iter().zip(&prefills).map(|(name, prefill)| at(name, prefill.address())).collect();
    let decodes = ["decode:1", "decode:2"].map(|own| Decode::start(options(own), &peers).unwrap());
    let mut transfers = Vec::new();
    for (number, decode) in decodes.iter().enumerate() {
        for peer in 0..2_u64 {
            for text in 0..6_u64 {
                // Whole and partial last pages, with and without a prefix of its own.
                let tokens = 1 + 17 * text as usize + 3 * number;
                let skip = if text % 2 == 0 { 0 } else { PAGE_TOKENS };
                let text = 1000 * number as u64 + 100 * peer + text;
                transfers.push(decode.transfer(&peers[peer as usize].name, text, tokens, skip));
            }
        }
    }
    for result in join_all(transfers).await {
        assert_eq!(result, Ok(()));
    }
    for decode in &decodes {
        until("the decode worker is at rest", || decode.at_rest()).await;
        assert_eq!(decode.ledger.ends(), vec![Ok(()); 12]);
    }
    for prefill in &prefills {
        until("the prefill worker is at rest", || prefill.at_rest()).await;
        assert_eq!(prefill.ledger.ends(), vec![Ok(()); 12]);
        assert_eq!(prefill.engine.delivered.load(Ordering::SeqCst), 12);
    }
    let sent: u64 = prefills.iter().map(|prefill| prefill.ledger.bytes()).sum();
    let received: u64 = decodes.iter().map(|decode| decode.ledger.bytes()).sum();
    // What every rank holds goes over once and is written twice.
    assert!(sent > 0 && received > sent && received < 2 * sent, "{sent} and {received}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rejected_offer_leaves_nothing_and_says_when_to_come_again() {
    let prefill = Prefill::start(options("prefill"), 0).await.unwrap();
    let peer = at("prefill:1", prefill.address());
    let decode = Decode::start(options("decode:1"), std::slice::from_ref(&peer)).unwrap();
    prefill.engine.full.store(true, Ordering::SeqCst);
    let Err(NotOffered::Rejected(rejected)) = decode.transfer(&peer.name, 1, 50, 0).await else {
        panic!("it is full")
    };
    assert_eq!((rejected.retry_after.as_secs(), rejected.value, rejected.limit), (3, 9, 8));
    until("nothing is left", || decode.at_rest() && prefill.at_rest()).await;
    prefill.engine.full.store(false, Ordering::SeqCst);
    assert_eq!(decode.transfer(&peer.name, 2, 50, 0).await, Ok(()));
    until("nothing is left", || decode.at_rest() && prefill.at_rest()).await;
    assert_eq!((decode.ledger.ends(), prefill.ledger.ends()), (vec![Ok(())], vec![Ok(())]));
    let unknown = decode.transfer(&name("nobody:1"), 3, 50, 0).await;
    assert_eq!(unknown, Err(NotOffered::Failed(crate::Failure::Connect)));
}
