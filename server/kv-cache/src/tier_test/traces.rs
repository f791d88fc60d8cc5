//! Recorded traces through two tiers: they hit exactly like one list of the larger one's pages, on
//! each tier as often as expected. As for the device alone, each prompt gets one token more and the
//! device one page more, and sizes below the longest prompt are left out.
//!
//! With a window pool the order in which things are given up counts, and the lists have one of
//! their own: they are trimmed after each request, the window's first. So here every pool gets room
//! for a whole request more, and is trimmed in that order. Without it a request makes room as it
//! goes: it gives up pages of the pool without a window first, and the window pages that go with
//! those leave room for others; and what it computes again, it holds twice for a while. So a real
//! cache differs a little, mostly for the better.

use types::{Bytes, Pages, TokenId};

use super::examples::{SHARED, tier_set};
use crate::trace_fixture::{Request, expected, number, requests};
use crate::{CacheOptions, CopyEnd, HostTier, Lookup, PoolSet, PoolSpec, Retention, WritePolicy};

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
    (device.hit_pages, host.hit_pages)
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

/// Tokens of a page where there is a window: a prompt's last token must begin a page, not fill it.
const TWO: usize = 2;

/// Sizes of a model with two pools.
#[derive(Debug, Clone, Copy)]
struct Pair {
    device: [usize; 2],
    host: Option<[usize; 2]>,
    retention: Retention,
    /// What each pool has beyond these sizes while a request runs.
    spare: usize,
    /// Pages computed at once.
    chunk: usize,
}

impl Pair {
    fn of(row: &serde_json::Value, page_tokens: usize, longest: usize) -> Self {
        let retention = match row["retention"].as_str().expect("a rule") {
            "all" => Retention::All,
            "tail" => Retention::Tail,
            "tail_every_4096" => Retention::TailEvery(4096 / page_tokens * TWO),
            "tail_branch" => Retention::TailBranch,
            other => panic!("an unknown rule: {other}"),
        };
        let full = number(&row["device_pages"]);
        let share = row["window_ratio"].as_f64().expect("a share");
        let device = [full, (full as f64 * share) as usize];
        let ratio = row["ratio"].as_f64().expect("a ratio");
        let host = device.map(|pages| (pages as f64 * ratio) as usize);
        let host = (ratio > 1.0).then_some(host);
        Self { device, host, retention, spare: longest + 2, chunk: longest }
    }

    fn set(self) -> PoolSet {
        let spec = |name, pages: usize, window| PoolSpec {
            name,
            page_tokens: TWO,
            page_bytes: Bytes(1),
            capacity: Pages((pages + self.spare) as u64),
            window,
        };
        let [kv, swa] = self.device;
        let specs = vec![spec("kv", kv, None), spec("swa", swa, Some(TWO))];
        let host = self.host.map(|pages| HostTier {
            pages: pages.iter().map(|pages| pages + self.spare).collect(),
            policy: WritePolicy::WriteThrough,
            load_back_threshold: 0,
            storage: false,
        });
        PoolSet::new(specs, CacheOptions { enabled: true, host, retention: self.retention })
    }

    /// Pages that hit.
    fn replay(self, requests: &[Vec<TokenId>]) -> usize {
        let set = self.set();
        let mut hits = 0;
        for ids in requests {
            let mut tokens: Vec<_> = ids.iter().flat_map(|id| [*id; TWO]).collect();
            tokens.push(TokenId(u32::MAX));
            let mut table = set.table();
            let found = table.attach_prefix(&SHARED, &tokens, Lookup::First).tokens;
            settle(&set);
            hits += found / TWO;
            let mut computed = found;
            while computed < tokens.len() {
                computed = tokens.len().min(computed + self.chunk * TWO);
                table.grow_to(computed).expect("there is room for it");
                table.publish(&SHARED, &tokens, computed);
                settle(&set);
            }
            drop(table);
            settle(&set);
            if self.spare > 1 {
                self.trim(&set);
            }
        }
        hits
    }

    fn trim(self, set: &PoolSet) {
        let mut state = set.lock();
        state.make_free(1, self.spare);
        if self.host.is_some() {
            state.make_host_room(&[0, self.spare]);
        }
        state.make_free(0, self.spare);
        if self.host.is_some() {
            state.make_host_room(&[self.spare, 0]);
        }
    }
}

#[test]
fn two_pools_on_two_tiers_hit_exactly_as_the_curve_says() {
    let mut compared = 0;
    for (name, trace) in expected() {
        let all = prompts(trace["file"].as_str().expect("a name"));
        let longest = all.iter().map(Vec::len).max().expect("requests");
        for (nth, row) in trace["two_pool"].as_array().expect("rows").iter().enumerate() {
            let ratio = row["ratio"].as_f64().expect("a ratio");
            let (device, window) = (number(&row["device_pages"]), number(&row["window_pages"]));
            // The longest trace takes seconds a row.
            let is_slow =
                all.len() > 7000 && !(device == 8350 && window % 835 == 0 && nth % 2 == 0);
            if ![0.0, 2.0, 8.0].contains(&ratio) || is_slow {
                continue;
            }
            let pair = Pair::of(row, number(&trace["page_tokens"]), longest);
            assert_eq!(pair.replay(&all), number(&row["hit_pages"]), "{name} {row}");
            compared += 1;
        }
    }
    println!("{compared} sizes compared");
    assert!(compared > 100);
}

#[test]
fn without_room_to_work_in_two_pools_hit_nearly_as_the_curve_says() {
    let traces = expected();
    let (_, trace) = traces.iter().find(|(name, _)| name == "conversation_p512").expect("a trace");
    let all = prompts(trace["file"].as_str().expect("a name"));
    let longest = all.iter().map(Vec::len).max().expect("requests");
    let looked_up = all.iter().map(Vec::len).sum::<usize>() as f64;
    let mut worst = 0.0_f64;
    for row in trace["two_pool"].as_array().expect("rows") {
        let ratio = row["ratio"].as_f64().expect("a ratio");
        let pair = Pair::of(row, number(&trace["page_tokens"]), longest);
        if ![0.0, 2.0, 8.0].contains(&ratio) || pair.device[1] < 100 {
            continue;
        }
        // As an engine computes: in chunks, and nothing is trimmed.
        let pair = Pair { spare: 1, chunk: 16, ..pair };
        let off = pair.replay(&all) as f64 - number(&row["hit_pages"]) as f64;
        println!("{off:+} pages: {row}");
        worst = worst.max(off.abs() / looked_up);
    }
    println!("at most {worst:.5} of the pages looked up");
    assert!(worst < 0.005, "{worst}");
}
