//! Workers that an operator adds and removes.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{Method, Request};
use protocol::internal::LoadRole;
use serde_json::json;
use tokio::sync::Semaphore;

use super::mock::{Act, Mock, events};
use super::rig::{Answer, Rig, chat, part, post, settings};
use crate::worker::WorkerRole::{Decode, Unified};

fn good() -> Act {
    Act::Events(events(&["a"]))
}

/// A gate that lets nothing through yet.
fn closed() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(0))
}

async fn remove(rig: &Rig, worker: &str, query: &str) -> Answer {
    let request = Request::builder()
        .method(Method::DELETE)
        .uri(format!("/admin/workers/{worker}{query}"))
        .body(Body::empty())
        .expect("a request");
    Answer::read(rig.send(request).await).await
}

#[tokio::test]
async fn a_worker_is_added_asked_and_removed() {
    let worker = Mock::of(LoadRole::Unified, good()).await;
    let rig = Rig::new(settings(&[]));
    let entry = json!({"url": worker.url()});
    let added = rig.post("/admin/workers", &entry).await;
    assert_eq!(added.status, 200, "{}", added.text());
    let told = added.json();
    assert_eq!((&told["added"], &told["worker"]["role"]), (&true.into(), &"unified".into()));
    assert_eq!(told["worker"]["sources"], json!(["admin"]));
    assert!(told["lasts"].as_str().is_some_and(|text| text.contains("--workers-file")));
    rig.until("it is up", |rig| rig.up() == 1).await;
    assert_eq!(rig.stream().await.status, 200);
    let again = rig.post("/admin/workers", &entry).await.json();
    assert_eq!(again["added"], false);
    let declared = ["worker_role=\"unified\"", "model_name=\"m\""];
    assert_eq!(rig.metric("router_workers_declared", &declared).await, 1.0);
    let removed = remove(&rig, &worker.address.to_string(), "").await.json();
    assert_eq!((&removed["state"], &removed["deadline_s"]), (&"draining".into(), &60.0.into()));
    rig.until("it has left", |rig| rig.views().is_empty()).await;
    assert_eq!(remove(&rig, &worker.address.to_string(), "").await.status, 404);
}

#[tokio::test]
async fn a_removal_waits_for_what_is_open_and_not_longer_than_it_may() {
    let gate = closed();
    let gated = Act::Gated(events(&["a", "b"]), Arc::clone(&gate));
    let (one, two) = (Mock::of(LoadRole::Unified, gated.clone()).await, Mock::plain(good()).await);
    let rig = Rig::ready(settings(&[(&one, Unified)])).await;
    let mut body = rig.send(post("/v1/chat/completions", &chat(true))).await.into_body();
    part(&mut body).await.expect("the first part");
    assert_eq!(remove(&rig, &one.address.to_string(), "").await.json()["active_requests"], 1);
    let entry = json!({"url": two.url(), "role": "unified", "model": "m"});
    assert_eq!(rig.post("/admin/workers", &entry).await.status, 200);
    rig.until("the other is up", |rig| rig.up() == 1).await;
    for _ in 0..3 {
        assert_eq!(rig.stream().await.status, 200);
    }
    assert_eq!((one.counts().asked, two.counts().asked), (1, 3), "nothing new goes there");
    assert_eq!(rig.views().len(), 2, "it is waited for");
    gate.add_permits(10);
    let mut rest = String::new();
    while let Some(text) = part(&mut body).await {
        rest.push_str(&text);
    }
    assert!(rest.ends_with("data: [DONE]\n\n") && !rest.contains("error"), "{rest}");
    rig.until("it has left", |rig| rig.views().len() == 1).await;

    two.act(Act::Gated(events(&["a", "b"]), closed()));
    let mut body = rig.send(post("/v1/chat/completions", &chat(true))).await.into_body();
    part(&mut body).await.expect("the first part");
    assert_eq!(remove(&rig, &two.address.to_string(), "?deadline_s=0").await.status, 200);
    let end = part(&mut body).await.expect("an event that says why");
    assert!(end.contains("server_draining"), "{end}");
    assert!(part(&mut body).await.is_none());
    rig.until("it has left", |rig| rig.views().is_empty()).await;
    let aborted = ["reason=\"drain_deadline\"", "stage=\"decode\""];
    assert_eq!(rig.metric("requests_aborted_total", &aborted).await, 1.0);
    drop(body);
    two.until("it is told", |counts| counts.aborted == 1).await;
}

#[tokio::test]
async fn who_is_added_again_stays() {
    let gated = Act::Gated(events(&["a"]), closed());
    let worker = Mock::of(LoadRole::Unified, gated).await;
    let rig = Rig::ready(settings(&[(&worker, Unified)])).await;
    let mut body = rig.send(post("/v1/chat/completions", &chat(true))).await.into_body();
    part(&mut body).await.expect("the first part");
    assert_eq!(remove(&rig, &worker.address.to_string(), "").await.status, 200);
    assert_eq!(rig.up(), 0);
    let added = rig.post("/admin/workers", &json!({"url": worker.url()})).await.json();
    assert_eq!((&added["added"], &added["worker"]["up"]), (&false.into(), &true.into()));
    drop(body);
    worker.until("nothing is open", |counts| counts.aborted == 1).await;
    assert_eq!(rig.up(), 1);
}

#[tokio::test]
async fn who_is_listed_by_a_file_while_it_is_removed_stays() {
    let gate = closed();
    let gated = Act::Gated(events(&["a"]), Arc::clone(&gate));
    let worker = Mock::of(LoadRole::Unified, gated).await;
    let path = std::env::temp_dir().join(format!("sightline-again-{}", std::process::id()));
    std::fs::write(&path, "").expect("writable");
    let mut settings = settings(&[(&worker, Unified)]);
    settings.file = Some(path.clone());
    let rig = Rig::ready(settings).await;
    let mut body = rig.send(post("/v1/chat/completions", &chat(true))).await.into_body();
    part(&mut body).await.expect("the first part");
    assert_eq!(remove(&rig, &worker.address.to_string(), "").await.status, 200);
    assert_eq!(rig.up(), 0);
    let line = format!("{{\"url\":\"{}\"}}", worker.url());
    std::fs::write(&path, line).expect("writable");
    rig.until("it takes requests again", |rig| rig.up() == 1).await;
    gate.add_permits(10);
    while let Some(text) = part(&mut body).await {
        assert!(!text.contains("error"), "{text}");
    }
    worker.act(good());
    assert_eq!(rig.stream().await.status, 200, "its connections are open");
    assert_eq!(rig.views().len(), 1);
    std::fs::remove_file(&path).expect("it was there");
}

#[tokio::test]
async fn what_cannot_be_added_or_removed_is_named_with_what_would_work() {
    let worker = Mock::of(LoadRole::Decode, good()).await;
    let path = std::env::temp_dir().join(format!("sightline-kept-{}", std::process::id()));
    let listed = Mock::plain(good()).await;
    std::fs::write(&path, format!("{{\"url\":\"{}\"}}", listed.url())).expect("writable");
    let mut settings = settings(&[(&worker, Decode)]);
    settings.file = Some(path.clone());
    let rig = Rig::new(settings);
    rig.gateway.listens("127.0.0.1:9".parse().expect("an address"));
    rig.until("the file is read", |rig| rig.views().len() == 2).await;
    std::fs::remove_file(&path).expect("it was there");
    let refused = async |body: serde_json::Value, says: &[&str]| {
        let answer = rig.post("/admin/workers", &body).await;
        assert_eq!(answer.status, 400, "{body}: {}", answer.text());
        for says in says {
            assert!(answer.message().contains(says), "{says}: {}", answer.message());
        }
    };
    refused(json!({"url": "https://a:1"}), &["https is not spoken", "http://HOST:PORT"]).await;
    refused(json!({"url": "http://a"}), &["http://a", "needs a port"]).await;
    refused(json!({"url": "a:1", "role": "boss"}), &["\"boss\"", "unified, prefill"]).await;
    refused(json!({"url": "a:1", "weight": 1}), &["weight", "HOST:PORT"]).await;
    refused(json!({"role": "decode"}), &["url"]).await;
    refused(json!({"url": "127.0.0.1:9"}), &["this router itself"]).await;
    let conflict = json!({"url": worker.url(), "role": "prefill"});
    refused(conflict, &["listed as decode by flags", "one role"]).await;
    assert_eq!(rig.views().len(), 2);
    let kept = remove(&rig, &listed.address.to_string(), "").await;
    assert_eq!(kept.status, 400);
    assert!(kept.message().contains("--workers-file"), "{}", kept.message());
    for (query, says) in [("?deadline_s=-1", "from 0 to"), ("?force=1", "takes deadline_s")] {
        let answer = remove(&rig, &worker.address.to_string(), query).await;
        assert_eq!(answer.status, 400);
        assert!(answer.message().contains(says), "{}", answer.message());
    }
    assert_eq!(remove(&rig, "nobody:1", "").await.status, 404);
    assert_eq!(rig.views().len(), 2);
    let admin = ["route=\"/admin/workers\"", "status_code=\"400\""];
    assert_eq!(rig.metric("http_requests_total", &admin).await, 7.0);
}
