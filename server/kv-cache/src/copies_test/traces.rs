//! Recorded traces through two tiers: they hit exactly like one list of the larger one's pages, on
//! each tier as often as expected. As for the device alone, each prompt gets one token more and the
//! device one page more, and sizes below the longest prompt are left out.

use std::io::Read;
use std::path::PathBuf;

use serde_json::Value;
use types::TokenId;

use super::{SHARED, tier_set};
use crate::{CopyEnd, HostTier, Lookup, PoolSet, WritePolicy};

fn read(name: &str) -> String {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/traces");
    let bytes = std::fs::read(folder.join(name)).expect("a fixture");
    if !name.ends_with(".gz") {
        return String::from_utf8(bytes).expect("text");
    }
    let mut text = String::new();
    flate2::read::GzDecoder::new(&bytes[..]).read_to_string(&mut text).expect("compressed text");
    text
}

fn number(value: &Value) -> usize {
    value.as_u64().expect("a count") as usize
}

/// The page ids of each request.
fn requests(file: &str) -> Vec<Vec<TokenId>> {
    let line = |line: &str| {
        let request: Value = serde_json::from_str(line).expect("a JSON line");
        let runs: Vec<_> = request["p"].as_array().expect("runs").iter().map(number).collect();
        let pages = runs.chunks(2).flat_map(|run| run[0]..run[0] + run[1]);
        pages.map(|page| TokenId(page as u32)).collect()
    };
    read(file).lines().map(line).collect()
}

/// Everything that was ordered is copied at once.
fn settle(set: &PoolSet) {
    let mut orders = Vec::new();
    set.take_copies(&mut orders);
    for order in orders {
        set.finish_copy(order.id, CopyEnd::Done);
    }
}

/// Pages that hit on the device, and pages that were loaded from the host. Copies end while their
/// request runs, or `late`: when it is gone.
fn replay(requests: &[Vec<TokenId>], device: usize, host: usize, late: bool) -> (u64, u64) {
    // A page of one token: what a page holds does not matter here.
    let policy = WritePolicy::WriteThrough;
    let tier = HostTier { pages: vec![host], policy, load_back_threshold: 0 };
    let set = tier_set(&[device + 1], tier, 1);
    for ids in requests {
        let mut tokens = ids.clone();
        tokens.push(TokenId(u32::MAX));
        let mut table = set.table();
        table.attach_prefix(&SHARED, &tokens, Lookup::First);
        table.grow_to(tokens.len()).expect("longer prompts are left out");
        // The token behind the prompt is of no whole page.
        table.publish(&SHARED, &tokens[..ids.len()], ids.len());
        if !late {
            settle(&set);
        }
        drop(table);
        settle(&set);
    }
    let device = set.stats().next().expect("a pool");
    let host = &set.host_stats().expect("a tier")[0];
    assert_eq!(host.backups_dropped.no_host_room, 0);
    // Loaded pages count as hits of both.
    (device.hit_pages - host.hit_pages, host.hit_pages)
}

#[test]
fn two_tiers_hit_exactly_as_one_of_the_larger_size() {
    let expected: Value =
        serde_json::from_str(&read("expected_hit_ratios.json.gz")).expect("a JSON file");
    let mut compared = 0;
    for (name, trace) in expected["traces"].as_object().expect("traces by name") {
        let requests = requests(trace["file"].as_str().expect("a name"));
        let longest = requests.iter().map(Vec::len).max().expect("requests");
        for row in trace["single_pool"].as_array().expect("rows") {
            let device = number(&row["device_pages"]);
            let ratio = row["ratio"].as_f64().expect("a ratio");
            // A host tier is larger than the device, here with its additional page.
            let host = (device as f64 * ratio) as usize;
            if device < longest || host <= device {
                continue;
            }
            // Both ways in turn.
            let found = replay(&requests, device, host, compared % 2 == 1);
            let wanted = |key: &str| number(&row[key]) as u64;
            assert_eq!(found.0 + found.1, wanted("hit_pages"), "{name} {row}");
            let tiers = (wanted("device_hit_pages"), wanted("host_hit_pages"));
            assert_eq!(found, tiers, "{name} {row}");
            compared += 1;
        }
    }
    println!("{compared} sizes compared");
    assert!(compared > 100);
}
