//! Single behaviours of the host tier, told as examples.

use types::{Bytes, Pages, PoolId, TokenId};

use super::world::{PAGE, ids};
use crate::{
    CacheOptions, CopyEnd, CopyOrder, Direction, Evictions, HostTier, Lookup, Namespace, NoRoom,
    PageTable, PoolSet, PoolSpec, Retention, WritePolicy,
};

pub(super) const SHARED: Namespace = Namespace::SHARED;

/// Pools without a window, and a tier.
pub(super) fn tier_set(device: &[usize], host: HostTier, page_tokens: usize) -> PoolSet {
    let spec = |(name, pages): (&'static str, &usize)| PoolSpec {
        name,
        page_tokens,
        page_bytes: Bytes(1),
        capacity: Pages(*pages as u64),
        window: None,
    };
    let specs = ["kv", "index"].into_iter().zip(device).map(spec).collect();
    let retention = Retention::TailBranch;
    PoolSet::new(specs, CacheOptions { enabled: true, host: Some(host), retention })
}

fn tier(pages: usize, load_back_threshold: usize) -> HostTier {
    HostTier {
        pages: vec![pages],
        policy: WritePolicy::WriteThrough,
        load_back_threshold,
        storage: false,
    }
}

/// Whole pages of one token that nobody else has.
pub(super) fn text(token: u32, pages: usize) -> Vec<TokenId> {
    ids(&vec![token; pages * PAGE])
}

pub(super) fn serve(set: &PoolSet, tokens: &[TokenId]) -> PageTable {
    let mut table = set.table();
    table.attach_prefix(&SHARED, tokens, Lookup::First);
    table.grow_to(tokens.len()).expect("room");
    table.publish(&SHARED, tokens, tokens.len());
    table
}

pub(super) fn orders(set: &PoolSet) -> Vec<CopyOrder> {
    let mut orders = Vec::new();
    set.take_copies(&mut orders);
    orders
}

pub(super) fn settle(set: &PoolSet) {
    for order in orders(set) {
        set.finish_copy(order.id, CopyEnd::Done);
    }
}

/// (tokens, of these on the host) that `tokens` and one more would find.
fn found(set: &PoolSet, tokens: &[TokenId]) -> (usize, usize) {
    let more = [tokens, &[TokenId(99)]].concat();
    let found = set.cached_prefix(&SHARED, &more);
    (found.tokens, found.host_tokens)
}

/// (active, cached) host pages.
fn used(set: &PoolSet) -> (u64, u64) {
    let stats = set.host_stats().expect("a tier")[0];
    (stats.used_active.0, stats.used_cached.0)
}

#[test]
fn what_the_device_drops_is_loaded_from_the_host() {
    let set = tier_set(&[4], tier(8, 0), PAGE);
    drop(serve(&set, &text(1, 3)));
    settle(&set);
    assert_eq!(used(&set), (3, 0));
    drop(serve(&set, &text(2, 4)));
    settle(&set);
    assert_eq!((used(&set), found(&set, &text(1, 3))), ((4, 3), (6, 6)));
    let mut table = set.table();
    let more = [text(1, 3), vec![TokenId(9)]].concat();
    let taken = table.attach_prefix(&SHARED, &more, Lookup::First);
    assert_eq!((taken.tokens, taken.host_tokens), (6, 6));
    let load = orders(&set).remove(0);
    assert_eq!((load.direction, load.pages.len(), load.urgent), (Direction::Load, 3, false));
    let targets: Vec<_> = load.pages.iter().map(|(_, device, _)| *device).collect();
    assert_eq!(targets, table.pages(PoolId(0)).1);
    // The last page of the other text is on the device still.
    assert_eq!((used(&set), found(&set, &text(2, 4))), ((4, 3), (2, 0)));
    drop(table);
    let full = set.table().grow_to(4 * PAGE);
    assert_eq!(full, Err(NoRoom { pool: PoolId(0), pages: 4 }), "pages being loaded stay");
    set.finish_copy(load.id, CopyEnd::Done);
    set.table().grow_to(4 * PAGE).expect("room");
    assert_eq!(set.host_stats().expect("a tier")[0].hit_pages, 3);
}

#[test]
fn a_load_saves_at_least_the_threshold() {
    let set = tier_set(&[4], tier(16, 6), PAGE);
    drop(serve(&set, &text(1, 2)));
    drop(serve(&set, &text(2, 2)));
    settle(&set);
    set.table().grow_to(4 * PAGE).expect("room");
    assert_eq!(used(&set), (0, 4));
    assert_eq!(found(&set, &text(1, 2)), (0, 0), "4 tokens are too few");
    let long = tier_set(&[4], tier(16, 4), PAGE);
    drop(serve(&long, &text(1, 2)));
    settle(&long);
    long.table().grow_to(4 * PAGE).expect("room");
    assert_eq!(found(&long, &text(1, 2)), (4, 4));
}

#[test]
fn a_load_without_room_takes_only_what_is_on_the_device() {
    let set = tier_set(&[4], tier(16, 0), PAGE);
    drop(serve(&set, &text(1, 4)));
    settle(&set);
    let mut other = set.table();
    other.grow_to(2 * PAGE).expect("room");
    assert_eq!(found(&set, &text(1, 4)), (4, 0), "two pages are held by another");
    let more = [text(1, 4), vec![TokenId(9)]].concat();
    let taken = set.table().attach_prefix(&SHARED, &more, Lookup::First);
    assert_eq!((taken.tokens, taken.host_tokens), (4, 0));
    drop(other);
    assert_eq!(found(&set, &text(1, 4)), (8, 4));
}

#[test]
fn a_copy_that_ends_late_is_no_use() {
    let set = tier_set(&[4], tier(8, 0), PAGE);
    drop(serve(&set, &text(1, 2)));
    drop(serve(&set, &text(2, 2)));
    let ordered = orders(&set);
    for order in ordered.iter().rev() {
        set.finish_copy(order.id, CopyEnd::Done);
    }
    set.table().grow_to(2 * PAGE).expect("room");
    assert_eq!((found(&set, &text(1, 2)), found(&set, &text(2, 2))), ((4, 4), (4, 0)));
}

#[test]
fn what_got_no_copy_is_copied_with_what_comes_behind_it() {
    let set = tier_set(&[8], tier(8, 0), PAGE);
    let tokens = text(1, 5);
    let mut table = set.table();
    for (pages, end) in [(1, CopyEnd::Done), (2, CopyEnd::Dropped), (4, CopyEnd::Failed)] {
        table.grow_to(pages * PAGE).expect("room");
        table.publish(&SHARED, &tokens, pages * PAGE);
        for order in orders(&set) {
            set.finish_copy(order.id, end);
        }
    }
    assert_eq!(used(&set), (1, 0));
    assert_eq!(set.host_stats().expect("a tier")[0].backups_dropped.queue, 1);
    table.grow_to(5 * PAGE).expect("room");
    table.publish(&SHARED, &tokens, 5 * PAGE);
    let order = orders(&set).remove(0);
    assert_eq!(order.pages.len(), 4);
    set.finish_copy(order.id, CopyEnd::Done);
    assert_eq!(used(&set), (5, 0));
}

#[test]
fn a_copy_whose_prefix_has_none_stays_and_the_prefix_is_copied_later() {
    let set = tier_set(&[8], tier(8, 0), PAGE);
    let tokens = text(1, 4);
    let mut table = set.table();
    for pages in [2, 4] {
        table.grow_to(pages * PAGE).expect("room");
        table.publish(&SHARED, &tokens, pages * PAGE);
    }
    let [first, second] = <[_; 2]>::try_from(orders(&set)).expect("two orders");
    set.finish_copy(first.id, CopyEnd::Dropped);
    set.finish_copy(second.id, CopyEnd::Done);
    assert_eq!(used(&set), (2, 0));
    drop(table);
    let again = orders(&set).remove(0);
    assert_eq!((again.pages.len(), again.urgent), (2, false), "with the end of the request");
    set.finish_copy(again.id, CopyEnd::Done);
    assert_eq!(used(&set), (4, 0));
}

#[test]
fn flushed_pages_stay_until_their_copy_ends() {
    let set = tier_set(&[4], tier(4, 0), PAGE);
    let one = serve(&set, &text(1, 3));
    let running = orders(&set).remove(0);
    set.flush();
    drop(one);
    // The flushed pages are locked on both tiers until their copy ends.
    assert_eq!(used(&set), (3, 0));
    assert_eq!(set.table().grow_to(2 * PAGE).map_err(|short| short.pages), Err(2));
    set.finish_copy(running.id, CopyEnd::Done);
    assert_eq!(used(&set), (0, 0));
    assert_eq!(set.stats().next().expect("a pool").used_cached, Pages(0));
    assert_eq!(found(&set, &text(1, 3)), (0, 0));
}

#[test]
fn a_flush_empties_both_tiers_and_a_failed_load_flushes() {
    let set = tier_set(&[4], tier(16, 0), PAGE);
    drop(serve(&set, &text(1, 4)));
    settle(&set);
    set.table().grow_to(2 * PAGE).expect("room");
    assert_eq!(used(&set), (2, 2));
    let mut table = set.table();
    let more = [text(1, 4), vec![TokenId(9)]].concat();
    assert_eq!(table.attach_prefix(&SHARED, &more, Lookup::First).host_tokens, 4);
    set.finish_copy(orders(&set)[0].id, CopyEnd::Failed);
    assert_eq!(found(&set, &text(1, 4)), (0, 0), "nobody finds rubbish");
    drop(table);
    assert_eq!(used(&set), (0, 0));
    drop(serve(&set, &text(1, 4)));
    settle(&set);
    set.table().grow_to(3 * PAGE).expect("room");
    set.flush();
    assert_eq!((used(&set), found(&set, &text(1, 4))), ((0, 0), (0, 0)));
    let evicted = set.host_stats().expect("a tier")[0].evicted_pages;
    assert_eq!(evicted, Evictions { capacity: 0, pressure: 0, flush: 3 });
}

#[test]
fn a_selective_tier_copies_what_is_used_again() {
    let host = HostTier { policy: WritePolicy::WriteThroughSelective, ..tier(8, 0) };
    let set = tier_set(&[8], host, PAGE);
    drop(serve(&set, &text(1, 3)));
    assert_eq!(orders(&set), []);
    drop(serve(&set, &[text(1, 2), text(2, 2)].concat()));
    let order = orders(&set).remove(0);
    assert_eq!(order.pages.len(), 2, "the hit alone");
    set.finish_copy(order.id, CopyEnd::Done);
    assert_eq!(used(&set), (2, 0));
}
