//! What a page costs in the prefix tree, and that it costs the same in a small tree and in a large
//! one: `cargo bench -p kv-cache --bench radix`.
//!
//! Conversations of 100 pages, of which the first 20 are the same in all. Each is looked up, taken,
//! cut and added in trees of about 1,000, 100,000 and 1,000,000 pages, with and without a host
//! tier, in random order, so that a large tree is in no cache of the processor. The table shows
//! the first decile in nanoseconds per page, which neighbours on the machine disturb least, the
//! median in brackets, and how the former grows from the first size to the last one.
//! `-- 100000 added` takes no larger tree than that, and the lines with
//! that word: for a quick look.

#![expect(clippy::print_stdout, reason = "a benchmark's result is its output")]

use std::time::Duration;

use kv_cache::{
    CacheOptions, CopyEnd, CopyOrder, HostTier, Lookup, Namespace, PageTable, PoolSet, PoolSpec,
    WritePolicy,
};
use types::{Bytes, Clock, Pages, TokenId};

const PAGE_TOKENS: usize = 16;
/// Pages that all conversations begin with, and pages of one alone.
const SYSTEM: usize = 20;
const OWN: usize = 80;
/// Where a conversation is cut: between two of its own pages.
const CUT: usize = SYSTEM + OWN / 2;
const SIZES: [usize; 3] = [1_000, 100_000, 1_000_000];
/// Samples of each figure, one conversation each.
const SAMPLES: usize = 2_000;
const SHARED: Namespace = Namespace::SHARED;

/// The prompt of conversation `number`: whole pages and one token.
fn prompt(number: u32) -> Vec<TokenId> {
    let system = (0..SYSTEM * PAGE_TOKENS).map(|at| TokenId(at as u32));
    let own = (SYSTEM * PAGE_TOKENS..(SYSTEM + OWN) * PAGE_TOKENS)
        .map(|at| TokenId(number.wrapping_mul(2_654_435_761).wrapping_add(at as u32)));
    system.chain(own).chain([TokenId(u32::MAX)]).collect()
}

/// Which conversations come one after the other.
struct Dice(u64);

impl Dice {
    fn below(&mut self, count: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(0x9e37_79b9);
        ((self.0 >> 33) % u64::from(count)) as u32
    }
}

/// Takes as much memory as a tree of `pages` pages needs, in pieces as large as those of its nodes,
/// and frees it: a server that has run for a while has memory, and a page that the system has to
/// hand out first costs more than anything here.
fn warm(pages: usize) {
    let pieces = 4 * pages / OWN;
    let len = |piece: usize| OWN * if piece.is_multiple_of(2) { PAGE_TOKENS * 4 } else { 8 };
    let mut all: Vec<Vec<u8>> = (0..pieces).map(|piece| vec![1; len(piece)]).collect();
    // What lies at the end keeps the allocator from giving the rest back.
    std::mem::forget(all.pop());
}

/// What is behind the device's pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tier {
    None,
    /// Every page is on both.
    Both,
    /// Nearly every page is on the host alone.
    Host,
}

/// A tree of a number of conversations.
struct Forest {
    set: PoolSet,
    conversations: u32,
    orders: Vec<CopyOrder>,
    clock: Clock,
}

impl Forest {
    /// Room for about `pages` pages and `spare` more, without any.
    fn planted(pages: usize, spare: usize, tier: Tier) -> Self {
        warm(pages);
        let conversations = ((pages - SYSTEM) / OWN) as u32;
        let all = SYSTEM + conversations as usize * OWN + spare;
        let device = match tier {
            Tier::None | Tier::Both => all,
            Tier::Host => SYSTEM + 3 * OWN + 2,
        };
        let spec = PoolSpec {
            name: "kv",
            page_tokens: PAGE_TOKENS,
            page_bytes: Bytes(1),
            capacity: Pages(device as u64),
            window: None,
        };
        let host = (tier != Tier::None).then(|| HostTier {
            pages: vec![all + OWN],
            policy: WritePolicy::WriteThrough,
            load_back_threshold: HostTier::LOAD_BACK_THRESHOLD,
            storage: false,
        });
        let options = CacheOptions { host, ..CacheOptions::device_only(true) };
        let set = PoolSet::new(vec![spec], options);
        Self { set, conversations, orders: Vec::new(), clock: Clock::start() }
    }

    fn grown(pages: usize, spare: usize, tier: Tier) -> Self {
        let mut forest = Self::planted(pages, spare, tier);
        for number in 0..forest.conversations {
            forest.serve(&prompt(number));
        }
        forest
    }

    fn timed(&mut self, body: impl FnOnce(&mut Self)) -> Duration {
        let start = self.clock.now();
        body(self);
        self.clock.now().since(start)
    }

    /// A request from its beginning to its end; all copies are done at once.
    fn serve(&mut self, tokens: &[TokenId]) {
        let mut table = self.set.table();
        table.attach_prefix(&SHARED, tokens, Lookup::First);
        self.settle();
        self.compute(&mut table, tokens);
        drop(table);
    }

    fn compute(&mut self, table: &mut PageTable, tokens: &[TokenId]) {
        table.grow_to(tokens.len()).expect("room");
        table.publish(&SHARED, tokens, tokens.len());
        self.settle();
    }

    fn settle(&mut self) {
        self.set.take_copies(&mut self.orders);
        for order in self.orders.drain(..) {
            self.set.finish_copy(order.id, CopyEnd::Done);
        }
    }
}

/// A thing that is measured: nanoseconds per page in a tree of so many pages.
type Measure = fn(usize) -> Vec<f64>;

fn per_page(took: Duration, pages: usize) -> f64 {
    took.as_nanos() as f64 / pages as f64
}

/// Looked up; nothing changes.
fn find(pages: usize, tier: Tier) -> Vec<f64> {
    let (mut forest, mut dice) = (Forest::grown(pages, 200, tier), Dice(1));
    let sample = |_| {
        let tokens = prompt(dice.below(forest.conversations));
        let took = forest.timed(|forest| {
            let found = forest.set.cached_prefix(&SHARED, std::hint::black_box(&tokens));
            assert_eq!(found.tokens, (SYSTEM + OWN) * PAGE_TOKENS);
        });
        per_page(took, SYSTEM + OWN)
    };
    (0..SAMPLES).map(sample).collect()
}

/// Taken and let go of; where they are on the host alone, loaded.
fn take(pages: usize, tier: Tier) -> Vec<f64> {
    let (mut forest, mut dice) = (Forest::grown(pages, 200, tier), Dice(2));
    let mut samples = Vec::new();
    while samples.len() < SAMPLES {
        let tokens = prompt(dice.below(forest.conversations));
        let known = forest.set.cached_prefix(&SHARED, &tokens);
        if tier == Tier::Host && known.host_tokens < OWN * PAGE_TOKENS {
            // One of the few that the device has.
            let number = dice.below(forest.conversations);
            forest.serve(&prompt(number));
            continue;
        }
        let mut table = forest.set.table();
        let took = forest.timed(|forest| {
            let found = table.attach_prefix(&SHARED, std::hint::black_box(&tokens), Lookup::First);
            assert_eq!(found.tokens, (SYSTEM + OWN) * PAGE_TOKENS);
            forest.settle();
            table.clear();
        });
        samples.push(per_page(took, SYSTEM + OWN));
    }
    samples
}

/// New conversations, as the tree reaches its size: the last tenth of it.
fn add(pages: usize, tier: Tier) -> Vec<f64> {
    let mut samples = Vec::new();
    while samples.len() < SAMPLES.min(200) {
        let mut forest = Forest::planted(pages, 200, tier);
        let last = forest.conversations / 10 + 1;
        for number in 0..forest.conversations {
            let tokens = prompt(number);
            let took = forest.timed(|forest| forest.serve(std::hint::black_box(&tokens)));
            if number >= forest.conversations - last {
                samples.push(per_page(took, OWN));
            }
        }
    }
    samples
}

/// New conversations in a full tree: each page takes the place of one that was used long ago.
fn replace(pages: usize, tier: Tier) -> Vec<f64> {
    let mut forest = Forest::grown(pages, 1, tier);
    let first = forest.conversations;
    let sample = |number| {
        let tokens = prompt(number);
        let took = forest.timed(|forest| forest.serve(std::hint::black_box(&tokens)));
        per_page(took, OWN)
    };
    (first..first + SAMPLES as u32).map(sample).collect()
}

/// Nodes of 80 pages that are cut in the middle, by a request that goes half the way.
fn cut(pages: usize, tier: Tier) -> Vec<f64> {
    let mut samples = Vec::new();
    while samples.len() < SAMPLES.min(400) {
        let mut forest = Forest::grown(pages, 200, tier);
        // In an order that is none, every one once.
        let step = (1..).map(|i| 7_919 + 2 * i).find(|s| gcd(*s, forest.conversations) == 1);
        let step = step.expect("some odd number has no common divisor");
        for turn in 0..forest.conversations.min(SAMPLES as u32) {
            let number =
                (u64::from(turn) * u64::from(step) % u64::from(forest.conversations)) as u32;
            let tokens = prompt(number);
            let tokens = &tokens[..=CUT * PAGE_TOKENS];
            let mut table = forest.set.table();
            let took = forest.timed(|_| {
                let found =
                    table.attach_prefix(&SHARED, std::hint::black_box(tokens), Lookup::First);
                assert_eq!(found.tokens, CUT * PAGE_TOKENS);
                table.clear();
            });
            // The first one cuts the system prompt off as well.
            if turn > 0 {
                samples.push(per_page(took, CUT));
            }
        }
    }
    samples
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

const MEASURES: [(&str, Measure); 9] = [
    ("looked up", |pages| find(pages, Tier::None)),
    ("taken and let go of", |pages| take(pages, Tier::None)),
    ("taken up to the middle of a node, which is cut", |pages| cut(pages, Tier::None)),
    ("added", |pages| add(pages, Tier::None)),
    ("added, each for an old one", |pages| replace(pages, Tier::None)),
    ("host tier: looked up on the host", |pages| find(pages, Tier::Host)),
    ("host tier: taken, loaded from the host", |pages| take(pages, Tier::Host)),
    ("host tier: added and written through", |pages| add(pages, Tier::Both)),
    ("host tier: added, each for an old one", |pages| replace(pages, Tier::Both)),
];

fn main() {
    let flags: Vec<String> =
        std::env::args().skip(1).filter(|flag| !flag.starts_with("--")).collect();
    let most = flags.iter().find_map(|flag| flag.parse().ok()).unwrap_or(usize::MAX);
    let only: Vec<&String> = flags.iter().filter(|flag| flag.parse::<usize>().is_err()).collect();
    let sizes: Vec<usize> = SIZES.into_iter().filter(|pages| *pages <= most).collect();
    let head: Vec<String> = sizes.iter().map(|pages| format!("{pages} pages")).collect();
    println!("| pages of a conversation | {} | growth |", head.join(" | "));
    println!("|{}", " --- |".repeat(sizes.len() + 2));
    for (name, measure) in MEASURES {
        if !only.is_empty() && !only.iter().any(|part| name.contains(part.as_str())) {
            continue;
        }
        let mut figures = Vec::new();
        let cell = |pages: &usize| {
            let mut samples = measure(*pages);
            samples.sort_by(f64::total_cmp);
            let at = |share: f64| samples[(samples.len() as f64 * share) as usize];
            figures.push(at(0.1));
            format!("{:.0} ({:.0})", at(0.1), at(0.5))
        };
        let cells: Vec<String> = sizes.iter().map(cell).collect();
        let growth = figures.last().zip(figures.first()).map_or(1.0, |(last, first)| last / first);
        println!("| {name} | {} | {growth:.2} |", cells.join(" | "));
    }
}
