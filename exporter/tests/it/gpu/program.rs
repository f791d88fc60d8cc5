//! Cards and the whole program: signals, its end, and what a scrape waits for.

use std::path::PathBuf;
use std::time::Duration;

use fake_node::Tree;
use fake_nvml::Node;

use super::holders;
use crate::harness::{Exporter, PATIENCE, Page as Shown, eventually, signal};

/// The whole program on a node whose library is this one.
fn exporter(node: &Node, tree: &Tree) -> Exporter {
    let path = |path: PathBuf| path.display().to_string();
    let (procfs, sysfs) = (path(tree.procfs()), path(tree.sysfs()));
    let library = path(node.library());
    let args = ["--path.procfs", &procfs, "--path.sysfs", &sysfs, "--nvml.library", &library];
    let often = ["--interval", "gpu=100ms", "--interval", "page=50ms", "--no-kmsg"];
    Exporter::start(&[&args[..], &often[..]].concat())
}

fn responding(page: &Shown) -> Option<f64> {
    page.value("sightline_node_gpus", &[("state", "responding")])
}

#[test]
fn signals_release_the_cards_and_take_them_back() {
    let (node, tree) = (Node::with_cards(2), Tree::two_socket());
    let exporter = exporter(&node, &tree);
    exporter.page_where("cards answer", |page| responding(page) == Some(2.0));
    signal(exporter.pid(), "USR1");
    assert!(eventually(|| holders(&node).is_empty()), "nothing has the library open");
    exporter.page_where("they are gone", |page| responding(page) == Some(0.0));
    signal(exporter.pid(), "USR2");
    exporter.page_where("cards answer again", |page| responding(page) == Some(2.0));
}

#[test]
fn a_worker_does_not_outlive_its_exporter() {
    let (node, tree) = (Node::with_cards(1), Tree::two_socket());
    let exporter = exporter(&node, &tree);
    exporter.page_where("the card answers", |page| responding(page) == Some(1.0));
    signal(exporter.pid(), "KILL");
    assert!(eventually(|| holders(&node).is_empty()), "nothing has the library open");
}

#[test]
fn a_scrape_waits_for_no_card() {
    let (node, tree) = (Node::with_cards(8), Tree::two_socket());
    let exporter = exporter(&node, &tree);
    exporter.page_where("cards answer", |page| responding(page) == Some(8.0));
    node.fail(2, "*", "hang");
    exporter.page_where("one hangs", |page| responding(page) == Some(7.0));
    let times: Vec<Duration> = (0..50).map(|_| exporter.page().took).collect();
    let slowest = times.iter().max().expect("there are some");
    // What hangs does so until it is healed: who waited for it would not answer at all.
    assert!(*slowest < PATIENCE / 6, "{slowest:?}");
    node.fail("*", "*", "hang");
    exporter.page_where("all hang", |page| responding(page) == Some(0.0));
    let health = exporter.get("/health");
    assert_eq!(health.status, 503, "{}", health.body);
    assert!(health.took < Duration::from_secs(1), "{:?}", health.took);
}
