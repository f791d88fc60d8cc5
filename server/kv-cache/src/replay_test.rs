//! Recorded traces against exact expected hits.
//!
//! The expectations are those of a list of pages by recency, trimmed to its size after each
//! request. A real cache differs from it in three points, of which two are met here and one leaves
//! cases out:
//! - a request must compute its last token, so it cannot take a prompt of whole pages whole. Every
//!   prompt gets one token more; the page of that token is one page more in the pool.
//! - while it runs, a request holds its pages, and the rest of the pool is what the list would have
//!   kept: the same pages, since the ones it holds are the most recent ones.
//! - a prompt longer than the pool cannot run at all, where the list keeps its front. Those sizes
//!   are left out: every size below the longest prompt of a trace.

use serde_json::Value;
use types::{Bytes, Pages, TokenId};

use crate::trace_fixture::{Request, number, read, requests};
use crate::{CacheOptions, Lookup, Namespace, PoolSet, PoolSpec};

/// (pages that hit, requests with a hit) in a cache of `pages` pages.
fn replay(requests: &[Request], page_tokens: usize, pages: usize) -> (usize, usize) {
    let capacity = Pages(pages as u64 + 1);
    let spec = PoolSpec { name: "kv", page_tokens, page_bytes: Bytes(1), capacity, window: None };
    let set = PoolSet::new(vec![spec], CacheOptions::device_only(true));
    let mut with_hit = 0;
    for request in requests {
        let ids = request.pages.iter();
        let mut tokens: Vec<_> =
            ids.flat_map(|id| std::iter::repeat_n(TokenId(*id), page_tokens)).collect();
        tokens.push(TokenId(u32::MAX));
        let mut table = set.table();
        let cached = table.attach_prefix(&Namespace::SHARED, &tokens, Lookup::First).tokens;
        with_hit += usize::from(cached > 0);
        table.grow_to(tokens.len()).expect("longer prompts are left out");
        table.publish(&Namespace::SHARED, &tokens, tokens.len());
    }
    let stats = set.stats().next().expect("a pool");
    assert_eq!(stats.used_active, Pages(0));
    let looked_up =
        requests.iter().map(|request| request.pages.len() * page_tokens + 1).sum::<usize>();
    assert_eq!(stats.query_tokens, looked_up as u64);
    (stats.hit_pages as usize, with_hit)
}

#[test]
fn recorded_traces_hit_exactly_as_often_as_expected() {
    let expected: Value = serde_json::from_str(&read("expected_hits.json")).expect("JSON");
    let (mut compared, mut left_out) = (0, 0);
    for (name, trace) in expected.as_object().expect("traces by name") {
        let requests = requests(&format!("{name}.jsonl"));
        assert_eq!(requests.len(), number(&trace["requests"]), "{name}");
        let looked_up = requests.iter().map(|request| request.pages.len()).sum::<usize>();
        assert_eq!(looked_up, number(&trace["lookup_pages"]), "{name}");
        let longest = requests.iter().map(|request| request.pages.len()).max().expect("requests");
        let page_tokens = number(&trace["page_tokens"]);
        for size in trace["sizes"].as_array().expect("sizes") {
            let pages = number(&size["pages"]);
            if pages < longest {
                left_out += 1;
                continue;
            }
            let (hits, with_hit) = replay(&requests, page_tokens, pages);
            assert_eq!(hits, number(&size["hit_pages"]), "{name}, {pages} pages");
            assert_eq!(hits * page_tokens, number(&size["hit_tokens"]), "{name}, {pages} pages");
            assert_eq!(with_hit, number(&size["requests_with_hit"]), "{name}, {pages} pages");
            compared += 1;
        }
    }
    println!("{compared} sizes compared, {left_out} too small for their longest prompt");
    assert!(compared > 2 * left_out);
}
