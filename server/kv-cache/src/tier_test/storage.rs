//! Windows, write-back, a store behind the tier, another size and ages, told as examples.

use std::time::Duration;

use types::{Bytes, Pages, PoolId, Time, TokenId};

use super::examples::{SHARED, orders, serve, settle, text};
use super::world::PAGE;
use crate::{
    AgeEvent, CacheOptions, CacheTier, CopyEnd, Direction, HostTier, Lookup, PoolSet, PoolSpec,
    Retention, WritePolicy,
};

const KV: PoolId = PoolId(0);

/// A pool that keeps everything and, with a window of one page, one that does not.
fn pair(device: [usize; 2], host: [usize; 2], policy: WritePolicy) -> PoolSet {
    let spec = |name, pages: usize, window| PoolSpec {
        name,
        page_tokens: PAGE,
        page_bytes: Bytes(1),
        capacity: Pages(pages as u64),
        window,
    };
    let specs = vec![spec("kv", device[0], None), spec("swa", device[1], Some(PAGE))];
    let host = HostTier { pages: host.to_vec(), policy, load_back_threshold: 0, storage: true };
    let retention = Retention::TailBranch;
    PoolSet::new(specs, CacheOptions { enabled: true, host: Some(host), retention })
}

fn through() -> PoolSet {
    pair([8, 6], [24, 12], WritePolicy::WriteThrough)
}

/// (tokens, of these on the host) that `tokens` and one more would find.
fn found(set: &PoolSet, tokens: &[TokenId]) -> (usize, usize) {
    let found = set.cached_prefix(&SHARED, &[tokens, &[TokenId(99)]].concat());
    (found.tokens, found.host_tokens)
}

/// Used host pages of both pools.
fn used(set: &PoolSet) -> [u64; 2] {
    let stats = set.host_stats().expect("a tier");
    [0, 1].map(|pool| stats[pool].used_active.0 + stats[pool].used_cached.0)
}

fn prompt(token: u32, pages: usize) -> Vec<TokenId> {
    [text(token, pages), vec![TokenId(99)]].concat()
}

fn run(set: &PoolSet, token: u32, pages: usize) {
    drop(serve(set, &prompt(token, pages)));
    settle(set);
}

/// The store has read everything.
fn release(set: &PoolSet) {
    let mut runs = Vec::new();
    set.take_new_runs(&mut runs);
    runs.iter().for_each(|run| set.release_run(run.id));
}

#[test]
fn of_a_window_only_what_is_kept_gets_a_copy_and_a_load_brings_what_the_end_needs() {
    let set = through();
    run(&set, 1, 4);
    assert_eq!(used(&set), [4, 1], "the last page has a window");
    for other in 2..5 {
        run(&set, other, 4);
    }
    assert_eq!(found(&set, &text(1, 4)), (8, 8));
    let mut table = set.table();
    table.attach_prefix(&SHARED, &prompt(1, 4), Lookup::First);
    let load = orders(&set).remove(0);
    let pools: Vec<_> = load.pages.iter().map(|(pool, _, _)| pool.0).collect();
    assert_eq!((load.direction, pools), (Direction::Load, vec![0, 0, 0, 0, 1]));
    assert_eq!((table.pages(PoolId(1)).0, table.pages(PoolId(1)).1), (3, &[load.pages[4].1][..]));
    set.finish_copy(load.id, CopyEnd::Done);
    let hits: Vec<_> = set.host_stats().expect("a tier").iter().map(|s| s.hit_pages).collect();
    assert_eq!(hits, [4, 1]);
    assert!(set.stats().all(|stats| stats.hit_pages == 0), "nothing was on the device");
}

#[test]
fn a_window_alone_may_be_on_the_host_and_its_loss_leaves_the_other_pages() {
    let set = pair([20, 6], [60, 6], WritePolicy::WriteThrough);
    run(&set, 1, 2);
    // Four more ends; the window pool has six pages, of which a request works in three.
    for other in 2..6 {
        run(&set, other, 2);
    }
    assert_eq!(found(&set, &text(1, 2)), (4, 4), "only its window left the device");
    for other in 6..9 {
        release(&set);
        run(&set, other, 2);
    }
    assert_eq!(found(&set, &text(1, 2)), (0, 0), "nor has the host a window for it");
    assert!(set.host_stats().expect("a tier")[1].evicted_pages.capacity > 0);
    assert_eq!(set.stats().next().expect("a pool").evicted_pages.capacity, 0);
}

#[test]
fn a_page_that_is_written_back_is_found_again_when_its_copy_is_done() {
    let set = pair([6, 8], [12, 8], WritePolicy::WriteBack);
    run(&set, 1, 3);
    assert_eq!((used(&set), orders(&set)), ([0, 0], vec![]), "nothing is copied yet");
    let mut table = set.table();
    table.grow_to(5 * PAGE).expect("room");
    let order = orders(&set).remove(0);
    assert!(order.urgent && order.direction == Direction::Backup);
    assert_eq!(found(&set, &text(1, 3)), (0, 0), "two of its pages are on no tier");
    drop(table);
    set.finish_copy(order.id, CopyEnd::Done);
    // Two pages are loaded; without them the first would be of no use, as no window ends there.
    assert_eq!(found(&set, &text(1, 3)), (6, 6));
    // The next one fails: what was on its way is gone, and so is what lay behind it.
    set.table().grow_to(6 * PAGE).expect("room");
    let order = orders(&set).remove(0);
    set.finish_copy(order.id, CopyEnd::Failed);
    assert_eq!(found(&set, &text(1, 3)), (0, 0));
    release(&set);
    set.flush();
    assert_eq!(used(&set), [0, 0]);
}

#[test]
fn a_store_gets_what_is_new_and_its_host_pages_stay_until_it_has_read_them() {
    let set = through();
    run(&set, 1, 4);
    let mut runs = Vec::new();
    set.take_new_runs(&mut runs);
    let first = &runs[0];
    assert_eq!((first.first, first.pages.len(), &first.tokens[..]), (0, 4, &text(1, 4)[..]));
    assert_eq!(first.pages.iter().map(Vec::len).collect::<Vec<_>>(), [1, 1, 1, 2]);
    set.flush();
    assert_eq!(used(&set), [4, 1], "they are read");
    runs.iter().for_each(|run| set.release_run(run.id));
    assert_eq!(used(&set), [0, 0]);
}

#[test]
fn pages_that_come_from_a_store_are_found_as_far_as_they_fit() {
    let set = through();
    let tokens = prompt(1, 4);
    let reservation = set.reserve_host(&SHARED, &tokens, 4).expect("room");
    assert_eq!(reservation.first, 0);
    assert_eq!(reservation.pages.iter().map(Vec::len).collect::<Vec<_>>(), [1, 1, 1, 2]);
    assert_eq!((used(&set), found(&set, &text(1, 4))), ([4, 1], (0, 0)));
    assert_eq!(set.commit_host(reservation, 4), 4);
    assert_eq!(found(&set, &text(1, 4)), (8, 8));
    assert_eq!(set.reserve_host(&SHARED, &tokens, 4), None, "nothing is missing");
    // Somebody computes what is on its way: only the rest enters.
    let other = prompt(2, 4);
    let reservation = set.reserve_host(&SHARED, &other, 4).expect("room");
    drop(serve(&set, &other[..2 * PAGE + 1]));
    settle(&set);
    assert_eq!(set.commit_host(reservation, 4), 2);
    assert_eq!(found(&set, &text(2, 4)), (8, 4));
    let third = prompt(3, 4);
    let reservation = set.reserve_host(&SHARED, &third, 4).expect("room");
    set.flush();
    assert_eq!(set.commit_host(reservation, 0), 0, "the store had nothing");
    release(&set);
    assert_eq!(used(&set), [0, 0]);
}

#[test]
fn a_page_that_lacks_its_window_alone_gets_it_from_a_store() {
    let set = pair([20, 6], [60, 6], WritePolicy::WriteThrough);
    for other in 1..9 {
        release(&set);
        run(&set, other, 2);
    }
    release(&set);
    assert_eq!(found(&set, &text(1, 2)), (0, 0), "its window has left both tiers");
    let reservation = set.reserve_host(&SHARED, &prompt(1, 2), 2).expect("room");
    assert_eq!((reservation.first, reservation.pages.len()), (1, 1));
    assert_eq!(reservation.pages[0].iter().map(|(pool, _)| pool.0).collect::<Vec<_>>(), [1]);
    assert_eq!(set.commit_host(reservation, 1), 0, "no page is new");
    assert_eq!(found(&set, &text(1, 2)), (4, 4));
    assert_eq!(set.reserve_host(&SHARED, &prompt(1, 2), 2), None, "nothing is missing");
    // The page goes while its window part comes: that is of no use then.
    let reservation = set.reserve_host(&SHARED, &prompt(2, 2), 2).expect("room");
    set.flush();
    let have = set.reserve_host(&SHARED, &prompt(2, 2), 2).map(|other| {
        let first = other.first;
        set.commit_host(other, 0);
        first
    });
    assert_eq!((set.commit_host(reservation, 1), have), (0, Some(0)));
    set.flush();
    assert_eq!((used(&set), found(&set, &text(2, 2))), ([0, 0], (0, 0)));
}

#[test]
fn the_tier_grows_at_once_and_shrinks_as_far_as_what_is_held_allows() {
    let set = pair([4, 4], [4, 12], WritePolicy::WriteThrough);
    assert_eq!(set.set_host_pages(KV, 16), Some(16));
    for other in 1..5 {
        run(&set, other, 3);
    }
    let mut runs = Vec::new();
    set.take_new_runs(&mut runs);
    let last = runs.iter().flat_map(|run| &run.pages).flatten().filter(|(pool, _)| *pool == KV);
    let last = last.map(|(_, page)| page.index()).max().expect("a page");
    assert_eq!(set.set_host_pages(KV, 0), Some(last + 1), "a store reads it");
    runs.iter().for_each(|run| set.release_run(run.id));
    assert_eq!(set.set_host_pages(KV, 0), Some(4), "as many as the device");
    assert!(found(&set, &text(4, 3)).0 > 0, "the device keeps its pages");
    run(&set, 6, 3);
    assert_eq!(set.host_stats().expect("a tier")[0].capacity, Pages(4));
}

#[test]
fn ages_tell_how_long_pages_lay_unused_on_each_tier() {
    let set = pair([4, 6], [12, 6], WritePolicy::WriteThrough);
    let mut ages = Vec::new();
    for (at, token) in [(10, 1), (30, 2), (70, 1)] {
        set.set_now(Time(at));
        run(&set, token, 3);
        set.take_ages(&mut ages);
    }
    let of = |tier, event| {
        let all = ages.iter().filter(|age| (age.pool, age.tier, age.event) == (KV, tier, event));
        all.map(|age| (age.age.as_nanos(), age.pages)).collect::<Vec<_>>()
    };
    assert_eq!(of(CacheTier::Device, AgeEvent::Evicted)[0], (20, 3));
    assert_eq!(of(CacheTier::Host, AgeEvent::Reused), [(60, 3)]);
    assert!(ages.iter().all(|age| age.age > Duration::ZERO));
    let quiet = through();
    run(&quiet, 1, 3);
    run(&quiet, 1, 3);
    ages.clear();
    quiet.take_ages(&mut ages);
    assert_eq!(ages, []);
}
