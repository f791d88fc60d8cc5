//! Recorded traces through two tiers: they hit exactly like one list of the larger one's pages, on
//! each tier as often as expected. As for the device alone, each prompt gets one token more and the
//! device one page more, and sizes below the longest prompt are left out.

use types::TokenId;

use super::{SHARED, tier_set};
use crate::trace_fixture::{Request, expected, number, requests};
use crate::{CopyEnd, HostTier, Lookup, PoolSet, WritePolicy};

/// The pages of each request, one token a page: what a page holds does not matter here.
fn prompts(file: &str) -> Vec<Vec<TokenId>> {
    let prompt = |request: Request| request.pages.into_iter().map(TokenId).collect();
    requests(file).into_iter().map(prompt).collect()
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
    let policy = WritePolicy::WriteThrough;
    let tier = HostTier { pages: vec![host], policy, load_back_threshold: 0, storage: false };
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
    let mut compared = 0;
    for (name, trace) in expected() {
        let requests = prompts(trace["file"].as_str().expect("a name"));
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
