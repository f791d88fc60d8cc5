//! Single behaviours of the cache, told as examples.

use types::{Bytes, PageId, Pages, PoolId, TokenId};

use crate::{
    CacheOptions, CachedPrefix, Landed, Lookup, Namespace, NoRoom, PageTable, PoolSet, PoolSpec,
};

const SHARED: Namespace = Namespace::SHARED;

fn spec(name: &'static str, capacity: u64, window: Option<usize>) -> PoolSpec {
    PoolSpec { name, page_tokens: 4, page_bytes: Bytes(1), capacity: Pages(capacity), window }
}

fn set(specs: Vec<PoolSpec>) -> PoolSet {
    PoolSet::new(specs, CacheOptions::device_only(true))
}

fn ids(tokens: impl IntoIterator<Item = u32>) -> Vec<TokenId> {
    tokens.into_iter().map(TokenId).collect()
}

/// Computes all of `tokens`, in chunks, and returns the table and how many came from the cache.
fn serve(set: &PoolSet, tokens: &[TokenId], chunk: usize) -> (PageTable, usize) {
    let mut table = set.table();
    let cached = table.attach_prefix(&SHARED, tokens, Lookup::First).tokens;
    let mut computed = cached;
    while computed < tokens.len() {
        computed = (computed + chunk).min(tokens.len());
        table.grow_to(computed).expect("room");
        table.publish(&SHARED, tokens, computed);
    }
    (table, cached)
}

fn used(set: &PoolSet, pool: usize) -> (u64, u64) {
    let stats = set.stats().nth(pool).expect("a pool");
    (stats.used_active.0, stats.used_cached.0)
}

#[test]
fn a_second_turn_finds_prompt_and_answer_of_the_first() {
    let set = set(vec![spec("kv", 16, None)]);
    let first = ids(0..19);
    drop(serve(&set, &first, 8).0);
    assert_eq!(used(&set, 0), (0, 4), "whole pages stay");
    let (table, cached) = serve(&set, &ids(0..30), 100);
    assert_eq!(cached, 16);
    assert_eq!(used(&set, 0), (8, 0));
    drop(table);
    // The same prompt again: the last token is computed, and with it its page.
    assert_eq!(set.cached_prefix(&SHARED, &ids(0..16)).tokens, 12);
    assert_eq!(set.cached_prefix(&SHARED, &ids(0..17)).tokens, 16);
}

#[test]
fn two_that_compute_the_same_end_up_with_one_copy() {
    let set = set(vec![spec("kv", 16, None)]);
    let tokens = ids(0..10);
    let (mut one, mut two) = (set.table(), set.table());
    for table in [&mut one, &mut two] {
        assert_eq!(table.attach_prefix(&SHARED, &tokens, Lookup::First).tokens, 0);
        table.grow_to(10).expect("room");
    }
    assert_eq!(used(&set, 0), (6, 0));
    one.publish(&SHARED, &tokens, 10);
    two.publish(&SHARED, &tokens, 10);
    assert_eq!(used(&set, 0), (4, 0), "two shared, one unfinished each");
    let (mine, theirs) = (one.pages(PoolId(0)).1, two.pages(PoolId(0)).1);
    assert_eq!(mine[..2], theirs[..2]);
    assert_ne!(mine[2], theirs[2]);
}

#[test]
fn whoever_waits_takes_over_chunk_by_chunk() {
    let set = set(vec![spec("kv", 16, None)]);
    let tokens = ids(0..24);
    let (mut one, mut two, mut claims) = (set.table(), set.table(), set.claims());
    for computed in [8, 16, 24] {
        claims.clear();
        one.claim(&SHARED, &tokens, computed, &mut claims);
        let taken = two.attach_prefix(&SHARED, &tokens, Lookup::Again).tokens;
        assert_eq!(taken, computed - 8);
        assert!(two.is_claimed(&SHARED, &tokens, &mut claims), "{computed}");
        let other = Namespace::new(Some("somebody"), None);
        assert!(!set.table().is_claimed(&other, &tokens, &mut claims));
        one.grow_to(computed).expect("room");
        one.publish(&SHARED, &tokens, computed);
    }
    assert_eq!(two.attach_prefix(&SHARED, &tokens, Lookup::Again).tokens, 20);
    claims.clear();
    assert!(claims.is_empty() && !two.is_claimed(&SHARED, &tokens, &mut claims));
    assert_eq!(
        set.cached_prefix(&SHARED, &tokens),
        CachedPrefix { tokens: 20, host_tokens: 0, held_pages: 5 }
    );
}

#[test]
fn the_branch_used_last_stays() {
    let set = set(vec![spec("kv", 8, None)]);
    let (a, b) = (ids([0, 0, 0, 0, 1, 1, 1, 1, 9]), ids([0, 0, 0, 0, 2, 2, 2, 2, 9]));
    drop(serve(&set, &a, 100).0);
    drop(serve(&set, &b, 100).0);
    drop(serve(&set, &a, 100).0);
    assert_eq!(used(&set, 0), (0, 3));
    let _room = {
        let mut table = set.table();
        table.grow_to(6 * 4).expect("six pages");
        table
    };
    assert_eq!(set.cached_prefix(&SHARED, &a).tokens, 8);
    assert_eq!(set.cached_prefix(&SHARED, &b).tokens, 4);
    assert_eq!(set.stats().next().expect("a pool").evicted_pages.capacity, 1);
}

#[test]
fn locked_pages_never_make_room() {
    let set = set(vec![spec("kv", 4, None)]);
    let (held, _) = serve(&set, &ids(0..13), 100);
    let mut other = set.table();
    assert!(other.grow_to(1).is_err());
    assert_eq!(set.stats().next().expect("a pool").alloc_failures, 1);
    // Another one with the same beginning.
    let mut twin = set.table();
    assert_eq!(twin.attach_prefix(&SHARED, &ids(0..9), Lookup::First).tokens, 8);
    assert_eq!((held.exclusive_pages(PoolId(0)), twin.exclusive_pages(PoolId(0))), (2, 0));
    drop(twin);
    assert_eq!(held.exclusive_pages(PoolId(0)), 4);
    drop(held);
    assert_eq!(set.available(PoolId(0)), 4);
    other.grow_to(16).expect("nobody holds them now");
    assert_eq!(used(&set, 0), (4, 0));
}

#[test]
fn a_window_slides_and_its_tail_is_found_again() {
    let set = set(vec![spec("kv", 40, None), spec("swa", 7, Some(6))]);
    // Two pages of the past are seen; a request of any length runs in a small window pool.
    let tokens = ids(0..60);
    let (table, _) = serve(&set, &tokens, 8);
    let (first, pages) = table.pages(PoolId(1));
    assert_eq!((first, first + pages.len()), (12, 15));
    drop(table);
    let longer = ids(0..64);
    assert_eq!(set.cached_prefix(&SHARED, &longer).tokens, 60);
    let shorter = ids(0..40);
    assert_eq!(set.cached_prefix(&SHARED, &shorter).tokens, 0, "its window is gone");
    let (table, cached) = serve(&set, &longer, 8);
    assert_eq!((cached, table.pages(PoolId(1)).0), (60, 13));
}

#[test]
fn a_prompt_is_found_again_though_its_answer_was_long() {
    let set = set(vec![spec("kv", 40, None), spec("swa", 12, Some(6))]);
    let prompt = ids(0..20);
    let mut tokens = prompt.clone();
    let mut table = set.table();
    assert_eq!(table.attach_prefix(&SHARED, &prompt, Lookup::First).tokens, 0);
    for computed in 20..80 {
        tokens.push(TokenId(computed as u32));
        table.grow_to(computed).expect("room");
        table.publish(&SHARED, &tokens, computed);
    }
    assert_eq!(set.cached_prefix(&SHARED, &prompt).tokens, 16, "the same prompt");
    let mut other = prompt;
    other.extend(ids(500..505));
    assert_eq!(set.cached_prefix(&SHARED, &other).tokens, 20, "another question after it");
    drop(table);
    tokens.push(TokenId(7));
    assert_eq!(set.cached_prefix(&SHARED, &tokens).tokens, 76, "and its answer");
}

#[test]
fn an_answer_is_published_when_it_ends_though_its_window_has_moved() {
    let set = set(vec![spec("kv", 40, None), spec("swa", 12, Some(6))]);
    let prompt = ids(0..20);
    let mut tokens = prompt.clone();
    let mut table = set.table();
    assert_eq!(table.attach_prefix(&SHARED, &prompt, Lookup::First).tokens, 0);
    table.grow_to(20).expect("room");
    table.publish(&SHARED, &tokens, 20);
    for computed in 21..80 {
        tokens.push(TokenId(computed as u32));
        table.grow_to(computed).expect("room");
        table.slide(computed);
        let held = table.pages(PoolId(1)).1.len();
        assert!(table.exclusive_pages(PoolId(1)) <= held, "at {computed}");
        assert_eq!(table.exclusive_pages(PoolId(0)), computed.div_ceil(4), "nobody else has any");
    }
    assert_eq!(table.exclusive_pages(PoolId(1)), table.pages(PoolId(1)).1.len());
    table.publish(&SHARED, &tokens, 79);
    drop(table);
    assert_eq!(set.cached_prefix(&SHARED, &prompt).tokens, 16, "the same prompt");
    tokens.push(TokenId(7));
    assert_eq!(set.cached_prefix(&SHARED, &tokens).tokens, 76, "the prompt and its answer");
}

#[test]
fn a_lost_window_leaves_the_pages_that_show_where_prompts_part() {
    let set = set(vec![spec("kv", 40, None), spec("swa", 8, Some(6))]);
    drop(serve(&set, &ids(0..40), 8).0);
    assert_eq!(used(&set, 0).1, 10);
    // Other prompts need the whole window pool.
    drop(serve(&set, &ids(1000..1030), 16).0);
    let stats: Vec<_> = set.stats().collect();
    assert!(stats[1].evicted_pages.capacity > 0);
    assert_eq!((stats[0].evicted_pages, used(&set, 0).1), (Default::default(), 17));
    // Nothing is found at first; but where this prompt leaves the first one is known.
    let parts = ids((0..20).chain(2000..2014));
    assert_eq!(serve(&set, &parts, 8).1, 0);
    assert_eq!(serve(&set, &ids((0..20).chain(3000..3014)), 8).1, 20);
}

#[test]
fn flushed_pages_are_not_found_and_are_free_when_let_go_of() {
    let set = set(vec![spec("kv", 16, None)]);
    drop(serve(&set, &ids(100..120), 8).0);
    let (mut table, _) = serve(&set, &ids(0..10), 8);
    set.flush();
    assert_eq!(used(&set, 0), (3, 0));
    assert_eq!(set.cached_prefix(&SHARED, &ids(0..10)).tokens, 0);
    // It goes on, and so does a new one with the same tokens.
    let longer = ids(0..14);
    table.grow_to(14).expect("room");
    table.publish(&SHARED, &longer, 14);
    let (other, cached) = serve(&set, &longer, 8);
    assert_eq!(cached, 0);
    drop(table);
    assert_eq!(used(&set, 0), (4, 0), "what was flushed is free");
    assert_eq!(set.cached_prefix(&SHARED, &longer).tokens, 12);
    drop(other);
    assert_eq!(used(&set, 0), (0, 3));
    assert_eq!(set.stats().next().expect("a pool").evicted_pages.flush, 5 + 3);
}

#[test]
fn a_disabled_cache_keeps_nothing_and_still_slides() {
    let specs = vec![spec("swa", 5, Some(6)), spec("kv", 40, None)];
    let set = PoolSet::new(specs, CacheOptions::device_only(false));
    let tokens = ids(0..60);
    let (table, cached) = serve(&set, &tokens, 4);
    assert_eq!((cached, table.pages(PoolId(0)).0, table.pages(PoolId(1)).0), (0, 12, 0));
    drop(table);
    assert_eq!((used(&set, 0), used(&set, 1)), ((0, 0), (0, 0)));
    assert_eq!(serve(&set, &tokens, 4).1, 0);
    assert_eq!(set.stats().next().expect("a pool").query_tokens, 0);
}

#[test]
fn pools_of_unequal_pages_grow_together_without_a_cache() {
    let kv = PoolSpec { page_tokens: 16, ..spec("kv", 10, None) };
    let set = PoolSet::new(vec![kv, spec("other", 20, None)], CacheOptions::device_only(false));
    let mut table = set.table();
    assert!(table.grow_to(81).is_err());
    assert_eq!(set.stats().map(|s| s.used_active.0).sum::<u64>(), 0, "all or nothing");
    table.grow_to(80).expect("fits exactly");
    assert_eq!(table.tokens(), 80);
    assert!(set.table().grow_to(1).is_err());
}

#[test]
fn a_table_keeps_its_namespace() {
    let set = set(vec![spec("kv", 16, None)]);
    let (mut table, _) = serve(&set, &ids(0..10), 8);
    let other = Namespace::new(Some("a"), None);
    let mixed = std::panic::AssertUnwindSafe(|| {
        table.attach_prefix(&other, &ids(0..10), Lookup::Again).tokens
    });
    let panic = std::panic::catch_unwind(mixed).expect_err("it would leak across namespaces");
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or_default();
    assert!(text.contains("a table belongs to one namespace"), "{text}");
}

#[test]
fn a_window_pool_keeps_what_its_rule_says() {
    use crate::Retention;
    // A prompt of 8 pages whose window is one page; then others that share its first pages.
    let check = |retention: Retention, shared: u32, cached: usize| {
        let specs = vec![spec("kv", 64, None), spec("swa", 64, Some(4))];
        let options = CacheOptions { retention, ..CacheOptions::device_only(true) };
        let set = PoolSet::new(specs, options);
        drop(serve(&set, &ids(0..33), 100).0);
        let other = ids((0..shared * 4).chain(1000..1020));
        let (table, found) = serve(&set, &other, 100);
        assert_eq!(found, cached, "{retention:?}, {shared} pages in common");
        drop(table);
        // Once the point where they part is known, the rule may have kept it.
        let again = ids((0..shared * 4).chain(2000..2020));
        let parted = serve(&set, &again, 100).1;
        let branch = retention == Retention::TailBranch;
        assert_eq!(parted, if branch { shared as usize * 4 } else { cached }, "{retention:?}");
    };
    for shared in 1..8 {
        check(Retention::All, shared, shared as usize * 4);
        check(Retention::Tail, shared, 0);
        check(Retention::TailBranch, shared, 0);
        check(Retention::TailEvery(16), shared, if shared < 4 { 0 } else { 16 });
    }
}

#[test]
fn a_prompt_of_whole_pages_is_found_when_it_comes_again() {
    for retention in [crate::Retention::Tail, crate::Retention::TailBranch] {
        let specs = vec![spec("kv", 64, None), spec("swa", 64, Some(4))];
        let options = CacheOptions { retention, ..CacheOptions::device_only(true) };
        let set = PoolSet::new(specs, options);
        let answered = ids(0..50);
        let mut table = serve(&set, &answered[..32], 100).0;
        table.grow_to(50).expect("room");
        table.publish(&SHARED, &answered, 50);
        drop(table);
        // Its last token is computed again, so it uses one page less than it has.
        assert_eq!(set.cached_prefix(&SHARED, &answered[..32]).tokens, 28);
        assert_eq!(set.cached_prefix(&SHARED, &answered[..33]).tokens, 32);
        assert_eq!(set.cached_prefix(&SHARED, &answered).tokens, 48);
    }
}

/// Lands `tokens` up to `computed`; the rows come at once.
fn land(set: &PoolSet, tokens: &[TokenId], computed: usize) -> (PageTable, Landed) {
    let mut table = set.table();
    let landed = table.land(&SHARED, tokens, computed, Lookup::First).expect("room");
    table.publish(&SHARED, tokens, computed);
    (table, landed)
}

fn ranges(table: &PageTable, pools: u16) -> Vec<std::ops::Range<usize>> {
    let range = |pool| {
        let (first, pages) = table.pages(PoolId(pool));
        first..first + pages.len()
    };
    (0..pools).map(range).collect()
}

#[test]
fn rows_that_come_from_elsewhere_are_found_like_computed_ones() {
    let set = set(vec![spec("kv", 16, None), spec("swa", 16, Some(5))]);
    let prompt = ids(0..22);
    let (table, landed) = land(&set, &prompt, 21);
    assert_eq!((landed, table.tokens()), (Landed::default(), 21));
    // The last page but one is the whole window of a token behind page 5.
    assert_eq!(ranges(&table, 2), [0..6, 4..6]);
    // A second one comes with nothing but the last page, while the first one goes on.
    let (other, landed) = land(&set, &prompt, 21);
    assert_eq!(landed.prefix_tokens, 20);
    assert_eq!(ranges(&other, 2), [0..6, 4..6]);
    assert_eq!(used(&set, 0), (7, 0));
    drop((table, other));
    assert_eq!(used(&set, 0), (0, 5));
    let (_, cached) = serve(&set, &ids(0..30), 8);
    assert_eq!(cached, 20);
}

#[test]
fn a_landing_needs_no_windows_before_its_own() {
    let set = set(vec![spec("kv", 32, None), spec("swa", 16, Some(5))]);
    // Windows are kept at the end alone, page 9.
    drop(serve(&set, &ids(0..41), 4).0);
    let mut other = ids(0..24);
    other.extend(ids(100..125));
    // Whoever computes has to begin at the start.
    assert_eq!(set.cached_prefix(&SHARED, &other).tokens, 0);
    let (table, landed) = land(&set, &other, 48);
    assert_eq!((landed.prefix_tokens, landed.host_tokens), (24, 0));
    assert_eq!(ranges(&table, 2), [0..12, 10..12]);
    assert_eq!(used(&set, 0), (12, 4));
}

#[test]
fn a_landing_without_room_leaves_everything_as_it_was() {
    let set = set(vec![spec("kv", 8, None), spec("swa", 5, Some(5))]);
    let held = serve(&set, &ids(0..12), 4).0;
    drop(serve(&set, &ids(50..59), 4).0);
    let before: Vec<_> = set.stats().collect();
    let mut table = set.table();
    let prompt = ids(0..40);
    let refused = table.land(&SHARED, &prompt, 33, Lookup::First);
    // Three pages are held and taken over; of the other five two are cached.
    assert_eq!(refused, Err(NoRoom { pool: PoolId(0), pages: 6 }));
    assert_eq!(set.stats().collect::<Vec<_>>(), before);
    assert_eq!((table.tokens(), ranges(&table, 2)), (0, vec![0..0, 0..0]));
    let landed = table.land(&SHARED, &prompt, 32, Lookup::First).expect("just enough");
    assert_eq!((landed.prefix_tokens, ranges(&table, 2)), (12, vec![0..8, 6..8]));
    // Given up before it was published: its own pages are free.
    drop(table);
    assert_eq!((used(&set, 0), used(&set, 1)), ((3, 0), (2, 0)));
    drop(held);
}

#[test]
fn what_is_sent_is_what_is_wanted_each_page_once() {
    let set = set(vec![spec("kv", 64, None), spec("swa", 64, Some(6))]);
    for computed in [1, 3, 4, 5, 8, 17, 30, 32] {
        for skip in (0..=computed).step_by(4) {
            let prompt = ids(0..computed as u32 + 1);
            let mut wanted = set.table();
            wanted.land(&SHARED, &prompt, computed, Lookup::First).expect("room");
            let names = |pages: Vec<(PoolId, usize, PageId)>| {
                pages.into_iter().map(|(pool, index, _)| (pool, index)).collect::<Vec<_>>()
            };
            let wanted = names(wanted.wire_pages(skip, 0, computed, true));
            let mut sender = set.table();
            let (mut done, mut sent) = (0, Vec::new());
            while done < computed {
                let end = (done + 7).min(computed);
                sender.grow_to(end).expect("room");
                let own = sender.wire_pages(skip, done / 4 * 4, end, end == computed);
                for (pool, index, page) in &own {
                    let (first, pages) = sender.pages(*pool);
                    assert_eq!(pages[index - first], *page);
                }
                sent.extend(names(own));
                sender.publish(&SHARED, &prompt, end);
                done = end;
            }
            sent.sort_unstable();
            assert_eq!(sent, wanted, "{computed} tokens, {skip} not wanted");
            set.flush();
        }
    }
}

#[test]
fn a_page_that_is_swapped_stays_while_it_is_held() {
    let set = set(vec![spec("kv", 8, None)]);
    let prompt = ids(0..9);
    let (mut one, mut two) = (set.table(), set.table());
    for table in [&mut one, &mut two] {
        table.grow_to(9).expect("room");
    }
    two.hold_swapped(true);
    let own = two.pages(PoolId(0)).1[..2].to_vec();
    one.publish(&SHARED, &prompt, 8);
    two.publish(&SHARED, &prompt, 8);
    assert_eq!(two.pages(PoolId(0)).1[..2], one.pages(PoolId(0)).1[..2]);
    assert_eq!((used(&set, 0), two.exclusive_pages(PoolId(0))), ((6, 0), 3));
    let mut third = set.table();
    third.grow_to(8).expect("the last two pages");
    assert!(third.pages(PoolId(0)).1.iter().all(|page| !own.contains(page)));
    two.hold_swapped(false);
    assert_eq!(used(&set, 0), (6, 0));
    two.hold_swapped(true);
    drop(two);
    assert_eq!(used(&set, 0), (5, 0));
}
