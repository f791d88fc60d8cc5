//! Where workers come from.

use std::path::PathBuf;

use super::mock::{Act, Mock, events};
use super::rig::{Rig, settings};
use crate::Source;
use crate::serve::discovery::dns::Group;

fn good() -> Act {
    Act::Events(events(&["a"]))
}

fn failures(rig: &Rig, source: Source) -> u64 {
    rig.gateway.discovered().sources.get(&source).map_or(0, |look| look.failures)
}

/// A file that is gone after the test.
struct Lines(PathBuf);

impl Lines {
    fn new(name: &str, text: &str) -> Self {
        let name = format!("sightline-{name}-{}", std::process::id());
        let file = Self(std::env::temp_dir().join(name));
        file.write(text);
        file
    }

    fn write(&self, text: &str) {
        std::fs::write(&self.0, text).expect("the folder is writable");
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.0));
    }
}

#[tokio::test]
async fn a_file_is_followed_and_a_broken_one_keeps_the_list() {
    let (one, two) = (Mock::plain(good()).await, Mock::plain(good()).await);
    let table = |mock: &Mock| format!("[[worker]]\nurl = \"{}\"\nmodel = \"m\"\n", mock.url());
    let file = Lines::new("followed", &table(&one));
    let mut settings = settings(&[]);
    settings.file = Some(file.0.clone());
    let rig = Rig::new(settings);
    rig.until("one is up", |rig| rig.up() == 1).await;
    file.write(&(table(&one) + &table(&two)));
    rig.until("both are up", |rig| rig.up() == 2).await;
    file.write("[[worker]\nurl = ");
    rig.until("it is refused", |rig| failures(rig, Source::File) == 1).await;
    assert_eq!(rig.up(), 2);
    let of = ["source=\"file\""];
    assert_eq!(rig.metric("router_discovery_failures_total", &of).await, 1.0);
    let read = rig.metric("router_discovery_last_success_timestamp_seconds", &of).await;
    assert!(read > 1.6e9, "{read}");
    let told = rig.get("/internal/workers").await.json();
    let error = told["sources"][0]["error"].as_str().expect("an error").to_owned();
    assert!(error.contains("line 1") && error.contains("followed"), "{error}");
    file.write(&table(&two));
    rig.until("one has left", |rig| rig.views().len() == 1).await;
    assert!(rig.get("/internal/workers").await.json()["sources"][0]["error"].is_null());
    file.write("");
    rig.until("an empty list is a list", |rig| rig.views().is_empty()).await;
}

#[tokio::test]
async fn the_same_worker_from_two_sources_stays_until_both_drop_it() {
    let worker = Mock::plain(good()).await;
    let file = Lines::new("twice", &format!("{{\"url\":\"{}\"}}", worker.url()));
    let mut settings = settings(&[(&worker, crate::WorkerRole::Unified)]);
    settings.file = Some(file.0.clone());
    let rig = Rig::new(settings);
    rig.until("it is up", |rig| rig.up() == 1).await;
    let told = |rig: &Rig| rig.gateway.discovered().sources.contains_key(&Source::File);
    rig.until("the file is read", told).await;
    file.write("");
    let empty = |rig: &Rig| {
        rig.gateway.discovered().sources.get(&Source::File).is_some_and(|look| look.listed == 0)
    };
    rig.until("the file lists nobody", empty).await;
    assert_eq!((rig.up(), rig.views().len()), (1, 1));
    assert_eq!(rig.stream().await.status, 200);
}

#[tokio::test]
async fn names_are_resolved_again_and_one_that_fails_keeps_its_workers() {
    let worker = Mock::plain(good()).await;
    let port = worker.address.port();
    let group = |name: &str| Group::parse(&format!("{name}:{port}")).expect("a group");
    let mut one = settings(&[]);
    one.groups = vec![group("localhost")];
    let rig = Rig::new(one);
    rig.until("it is found", |rig| rig.up() == 1).await;
    assert_eq!(rig.stream().await.status, 200);
    assert_eq!(failures(&rig, Source::Dns), 0);

    // Names below `invalid` have no address anywhere.
    let mut two = settings(&[]);
    two.groups = vec![group("127.0.0.1"), group("no-such-host.invalid")];
    let rig = Rig::new(two);
    rig.until("it is found", |rig| rig.up() == 1).await;
    rig.until("the other is missed", |rig| failures(rig, Source::Dns) > 1).await;
    assert_eq!(rig.up(), 1, "one name does not take the other's workers away");
    let told = rig.get("/internal/workers").await.json();
    let error = told["sources"][0]["error"].as_str().expect("an error").to_owned();
    assert!(error.contains("no-such-host.invalid"), "{error}");
}
