//! Cost of the prefix cache with 100,000 cached pages: `cargo bench -p kv-cache`.
//!
//! 1,250 conversations of 100 pages, which share a system prompt of 20. Allocations are counted as
//! well: a decode step in which no page becomes full has none.

use divan::counter::ItemsCount;
use divan::{AllocProfiler, Bencher, black_box};
use kv_cache::{CacheOptions, Lookup, Namespace, PageTable, PoolSet, PoolSpec};
use types::{Bytes, Pages, TokenId};

#[global_allocator]
static ALLOCATIONS: AllocProfiler = AllocProfiler::system();

const PAGE_TOKENS: usize = 16;
const SYSTEM_PAGES: usize = 20;
const CONVERSATION_PAGES: usize = 100;
const CONVERSATIONS: u32 = 1_250;
const SHARED: Namespace = Namespace::SHARED;

fn main() {
    divan::main();
}

/// The prompt of conversation `number`, of whole pages and one token.
fn prompt(number: u32) -> Vec<TokenId> {
    let system = (0..SYSTEM_PAGES * PAGE_TOKENS).map(|at| TokenId(at as u32));
    let own = (SYSTEM_PAGES * PAGE_TOKENS..CONVERSATION_PAGES * PAGE_TOKENS)
        .map(|at| TokenId(number.wrapping_mul(2_654_435_761).wrapping_add(at as u32)));
    system.chain(own).chain([TokenId(u32::MAX)]).collect()
}

fn serve(set: &PoolSet, tokens: &[TokenId]) -> PageTable {
    let mut table = set.table();
    table.attach_prefix(&SHARED, tokens, Lookup::First);
    table.grow_to(tokens.len()).expect("room");
    table.publish(&SHARED, tokens, tokens.len());
    table
}

/// A pool with 100,020 cached pages and `free` free ones.
fn filled(free: usize) -> PoolSet {
    let cached = CONVERSATIONS as usize * (CONVERSATION_PAGES - SYSTEM_PAGES) + SYSTEM_PAGES;
    let spec = PoolSpec {
        name: "kv",
        page_tokens: PAGE_TOKENS,
        page_bytes: Bytes(1),
        capacity: Pages((cached + free) as u64),
        window: None,
    };
    let set = PoolSet::new(vec![spec], CacheOptions::device_only(true));
    for number in 0..CONVERSATIONS {
        drop(serve(&set, &prompt(number)));
    }
    assert_eq!(set.stats().next().map(|stats| stats.used_cached), Some(Pages(cached as u64)));
    set
}

/// A hit over 100 pages, read only.
#[divan::bench]
fn peek_100_pages(bencher: Bencher<'_, '_>) {
    let set = filled(200);
    let mut number = 0;
    bencher
        .counter(ItemsCount::new(CONVERSATION_PAGES))
        .with_inputs(|| {
            number = (number + 7) % CONVERSATIONS;
            prompt(number)
        })
        .bench_local_refs(|tokens| set.cached_prefix(&SHARED, black_box(tokens)));
}

/// A prompt that nobody has sent.
#[divan::bench]
fn peek_a_miss(bencher: Bencher<'_, '_>) {
    let set = filled(200);
    let tokens = vec![TokenId(1); CONVERSATION_PAGES * PAGE_TOKENS];
    bencher.bench_local(|| set.cached_prefix(&SHARED, black_box(&tokens)));
}

/// A hit over 100 pages, taken and let go of.
#[divan::bench]
fn attach_100_pages(bencher: Bencher<'_, '_>) {
    let set = filled(200);
    let mut number = 0;
    bencher
        .counter(ItemsCount::new(CONVERSATION_PAGES))
        .with_inputs(|| {
            number = (number + 7) % CONVERSATIONS;
            (set.table(), prompt(number))
        })
        .bench_local_refs(|(table, tokens)| {
            black_box(table.attach_prefix(&SHARED, tokens, Lookup::First).tokens);
            table.clear();
        });
}

/// 80 new pages behind the system prompt: taken from the free ones, published, let go of.
#[divan::bench(sample_count = 50, sample_size = 1)]
fn publish_80_pages(bencher: Bencher<'_, '_>) {
    publish(bencher, 80 * 64);
}

/// The same in a full pool: each page takes the place of an old one.
#[divan::bench(sample_count = 50, sample_size = 1)]
fn publish_and_evict_80_pages(bencher: Bencher<'_, '_>) {
    publish(bencher, 1);
}

fn publish(bencher: Bencher<'_, '_>, free: usize) {
    let set = filled(free);
    let mut number = CONVERSATIONS;
    bencher
        .counter(ItemsCount::new(CONVERSATION_PAGES - SYSTEM_PAGES))
        .with_inputs(|| {
            number += 1;
            prompt(number)
        })
        .bench_local_refs(|tokens| drop(serve(&set, black_box(tokens))));
}

/// A decode step: one token more, and no page is full.
#[divan::bench]
fn decode_step(bencher: Bencher<'_, '_>) {
    let set = filled(200);
    let tokens = prompt(3);
    let mut table = serve(&set, &tokens);
    bencher.bench_local(|| {
        table.grow_to(black_box(tokens.len())).expect("room");
        table.publish(&SHARED, &tokens, tokens.len());
    });
}

/// 16 decode steps, of which one fills a page and publishes it.
#[divan::bench(sample_count = 50, sample_size = 1)]
fn decode_a_page(bencher: Bencher<'_, '_>) {
    let set = filled(200);
    let mut tokens = prompt(3);
    let mut table = serve(&set, &tokens);
    bencher.counter(ItemsCount::new(PAGE_TOKENS)).bench_local(|| {
        for _ in 0..PAGE_TOKENS {
            tokens.push(TokenId(1));
            table.grow_to(tokens.len()).expect("room");
            table.publish(&SHARED, &tokens, tokens.len());
        }
    });
}
