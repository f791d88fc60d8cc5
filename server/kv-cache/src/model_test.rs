//! Random work against a naive cache: hits, counts and evictions agree after every action, the
//! inside is consistent, and no page ever shows rows of other tokens.

pub(crate) mod check;
mod landed;
mod naive;

use std::collections::HashMap;

use proptest::prelude::*;
use types::{Bytes, PageId, Pages, PoolId, TokenId};

use self::naive::{Naive, Shape, Table};
use crate::PoolSpec;
use crate::hash::{HashFn, page_hash};
use crate::{CacheOptions, CachedPrefix, Evictions, Landed, Lookup, Namespace, PageTable, PoolSet};

type Checked = Result<(), TestCaseError>;

#[derive(Debug, Clone)]
enum Action {
    /// A request comes; `salt` picks its namespace, the rest its tokens.
    Open {
        salt: u8,
        text: Text,
        attach: bool,
    },
    /// A request comes whose rows are computed elsewhere, all but those of its last tokens.
    Land {
        salt: u8,
        text: Text,
        less: usize,
        counts: bool,
    },
    /// Its table holds on to pages that are swapped, or lets go of them.
    Hold {
        pick: usize,
        hold: bool,
    },
    /// It computes so many more tokens, which may be written behind its prompt. Where its rows come
    /// from elsewhere, they have come.
    Compute {
        pick: usize,
        tokens: usize,
    },
    /// It looks whether others have published what it needs next; `counts` in the hits or not.
    Attach {
        pick: usize,
        counts: bool,
    },
    /// Its pages are taken away; it will come again.
    Clear {
        pick: usize,
    },
    Close {
        pick: usize,
    },
    /// Somebody asks what would hit.
    Peek {
        salt: u8,
        text: Text,
    },
    Flush,
}

/// Tokens: so many of one base text, then another.
#[derive(Debug, Clone)]
struct Text {
    bases: (usize, usize),
    cut: usize,
    len: usize,
}

impl Text {
    fn tokens(&self) -> Vec<u32> {
        let base = |base: usize, at: usize| ((at * 7 + base * at / 3) % 3) as u32;
        let token = |at| base(if at < self.cut { self.bases.0 } else { self.bases.1 }, at);
        (0..self.len).map(token).collect()
    }
}

fn text() -> impl Strategy<Value = Text> {
    ((0..4_usize, 0..4_usize), 0..40_usize, 1..48_usize).prop_map(|(bases, cut, len)| Text {
        bases,
        cut,
        len,
    })
}

fn action() -> impl Strategy<Value = Action> {
    let pick = 0..32_usize;
    prop_oneof![
        4 => (0..2_u8, text(), prop::bool::weighted(0.9))
            .prop_map(|(salt, text, attach)| Action::Open { salt, text, attach }),
        3 => (0..2_u8, text(), prop_oneof![3 => Just(1), 1 => 0..9_usize], any::<bool>())
            .prop_map(|(salt, text, less, counts)| Action::Land { salt, text, less, counts }),
        1 => (pick.clone(), any::<bool>()).prop_map(|(pick, hold)| Action::Hold { pick, hold }),
        9 => (pick.clone(), 1..20_usize)
            .prop_map(|(pick, tokens)| Action::Compute { pick, tokens }),
        2 => (pick.clone(), any::<bool>())
            .prop_map(|(pick, counts)| Action::Attach { pick, counts }),
        1 => pick.clone().prop_map(|pick| Action::Clear { pick }),
        3 => pick.prop_map(|pick| Action::Close { pick }),
        1 => (0..2_u8, text()).prop_map(|(salt, text)| Action::Peek { salt, text }),
        1 => prop::bool::weighted(0.1).prop_map(|flush| if flush {
            Action::Flush
        } else {
            Action::Attach { pick: 0, counts: true }
        }),
    ]
}

fn shape() -> impl Strategy<Value = Shape> {
    let window = prop::option::of((4..24_usize, prop::sample::select(vec![1, 2, 3, 5, 9])));
    (1..5_usize, 6..40_usize, window).prop_map(|(page_tokens, full, window)| Shape {
        page_tokens,
        full,
        window,
    })
}

fn namespace(salt: u8) -> Namespace {
    if salt == 0 { Namespace::SHARED } else { Namespace::new(None, Some("other")) }
}

fn ids(tokens: &[u32]) -> Vec<TokenId> {
    tokens.iter().copied().map(TokenId).collect()
}

/// What a cell of a page holds: the namespace and all tokens up to its own.
type Row = (u8, Vec<u32>);

struct World {
    set: PoolSet,
    naive: Naive,
    tables: Vec<(PageTable, Table)>,
    /// Up to where rows will come, of each table that waits for them, by its id.
    landing: HashMap<u64, usize>,
    /// By pool, page and place in the page.
    rows: HashMap<(u16, PageId, usize), Row>,
    next_id: u64,
}

impl World {
    fn new(shape: Shape, hash: HashFn) -> Self {
        let spec = |name, capacity: usize, window| PoolSpec {
            name,
            page_tokens: shape.page_tokens,
            page_bytes: Bytes(1024),
            capacity: Pages(capacity as u64),
            window,
        };
        let mut specs = vec![spec("kv", shape.full, None)];
        specs.extend(shape.window.map(|(capacity, window)| spec("swa", capacity, Some(window))));
        let set = PoolSet::with_hash(specs, CacheOptions::device_only(true), hash);
        let naive = Naive::new(shape);
        let (tables, landing, rows) = (Vec::new(), HashMap::new(), HashMap::new());
        Self { set, naive, tables, landing, rows, next_id: 0 }
    }

    fn act(&mut self, action: &Action) -> Checked {
        let count = self.tables.len();
        match action {
            Action::Open { salt, text, attach } => {
                let table = (self.set.table(), Table::new(self.next_id, *salt, text.tokens()));
                self.next_id += 1;
                self.tables.push(table);
                if *attach {
                    self.attach(count, Lookup::First)?;
                }
            }
            Action::Land { salt, text, less, counts } => {
                let lookup = if *counts { Lookup::First } else { Lookup::Again };
                self.land((*salt, text.tokens()), *less, lookup)?;
            }
            Action::Hold { pick, hold } if count > 0 => {
                let (table, model) = &mut self.tables[pick % count];
                table.hold_swapped(*hold);
                if *hold {
                    model.holds = true;
                } else {
                    self.naive.let_go_of_swapped(model);
                }
            }
            Action::Compute { pick, tokens } if count > 0 => {
                let at = pick % count;
                match self.landing.remove(&self.tables[at].1.id) {
                    Some(end) => self.arrive(at, end)?,
                    None => self.compute(at, *tokens)?,
                }
            }
            Action::Attach { pick, counts } if count > 0 && !self.lands(pick % count) => {
                self.attach(pick % count, if *counts { Lookup::More } else { Lookup::Again })?;
            }
            Action::Clear { pick } if count > 0 => {
                let (table, model) = &mut self.tables[pick % count];
                self.landing.remove(&model.id);
                table.clear();
                self.naive.release(model);
            }
            Action::Close { pick } if count > 0 => {
                let (table, mut model) = self.tables.swap_remove(pick % count);
                self.landing.remove(&model.id);
                drop(table);
                self.naive.release(&mut model);
            }
            Action::Peek { salt, text } => {
                let tokens = text.tokens();
                let found = self.set.cached_prefix(&namespace(*salt), &ids(&tokens));
                let (tokens, held_pages) = self.naive.peek(*salt, &tokens);
                prop_assert_eq!(found, CachedPrefix { tokens, host_tokens: 0, held_pages });
            }
            Action::Flush => {
                self.set.flush();
                self.naive.flush();
            }
            Action::Hold { .. }
            | Action::Compute { .. }
            | Action::Attach { .. }
            | Action::Clear { .. }
            | Action::Close { .. } => {}
        }
        self.check()
    }

    fn attach(&mut self, at: usize, lookup: Lookup) -> Checked {
        let (table, model) = &mut self.tables[at];
        let tokens = ids(&model.tokens);
        let found = table.attach_prefix(&namespace(model.namespace), &tokens, lookup).tokens;
        let counts = (lookup == Lookup::First, lookup != Lookup::Again);
        let expected = self.naive.attach(model, counts);
        prop_assert_eq!(found, expected);
        let is_left = found < tokens.len() || found <= model.computed;
        prop_assert!(is_left, "a token is left to compute");
        prop_assert_eq!(found % self.naive.shape.page_tokens, 0);
        model.computed = model.computed.max(found);
        Ok(())
    }

    /// Whether rows are still to come to a table.
    fn lands(&self, at: usize) -> bool {
        self.landing.contains_key(&self.tables[at].1.id)
    }

    fn land(&mut self, (salt, tokens): (u8, Vec<u32>), less: usize, lookup: Lookup) -> Checked {
        let (mut table, mut model) = (self.set.table(), Table::new(self.next_id, salt, tokens));
        self.next_id += 1;
        let (ns, all) = (namespace(salt), ids(&model.tokens));
        let computed = all.len().saturating_sub(less);
        let counts = (lookup == Lookup::First, lookup != Lookup::Again);
        match (
            table.land(&ns, &all, computed, lookup),
            self.naive.land(&mut model, computed, counts),
        ) {
            (Ok(landed), Ok(expected)) => {
                prop_assert_eq!(landed, Landed { prefix_tokens: expected, host_tokens: 0 });
                prop_assert!(expected <= computed);
                prop_assert_eq!(table.tokens(), computed);
                model.computed = expected;
                self.landing.insert(model.id, computed);
            }
            (Err(no_room), Err(pool)) => {
                prop_assert_eq!(usize::from(no_room.pool.0), pool);
                prop_assert_eq!(table.tokens(), 0);
            }
            (found, expected) => prop_assert!(false, "{found:?} instead of {expected:?}"),
        }
        // Where there was no room the table may still compute.
        self.tables.push((table, model));
        Ok(())
    }

    /// The rows of a landed table have come.
    fn arrive(&mut self, at: usize, end: usize) -> Checked {
        let (table, model) = &mut self.tables[at];
        let wire = table.wire_pages(model.computed, 0, end, true);
        for (pool, index, page) in wire {
            let tokens = self.set.specs()[usize::from(pool.0)].page_tokens;
            for place in (index * tokens..end.min((index + 1) * tokens)).rev() {
                let row = (model.namespace, model.tokens[..=place].to_vec());
                self.rows.insert((pool.0, page, place % tokens), row);
            }
        }
        model.computed = end;
        table.publish(&namespace(model.namespace), &ids(&model.tokens), end);
        self.naive.publish(model);
        Ok(())
    }

    fn compute(&mut self, at: usize, tokens: usize) -> Checked {
        let (table, model) = &mut self.tables[at];
        let end = model.computed + tokens;
        // Whatever is behind its text is written now, by the text so far.
        while model.tokens.len() < end {
            model.tokens.push(model.tokens.iter().sum::<u32>() % 3);
        }
        match (table.grow_to(end), self.naive.grow(model, end)) {
            (Ok(()), Ok(())) => {}
            (Err(no_room), Err(pool)) => {
                prop_assert_eq!(usize::from(no_room.pool.0), pool);
                return Ok(());
            }
            (found, expected) => prop_assert!(false, "{found:?} instead of {expected:?}"),
        }
        for place in model.computed..end {
            let row = (model.namespace, model.tokens[..=place].to_vec());
            for (pool, page, offset) in places(&self.set, table, place) {
                self.rows.insert((pool, page, offset), row.clone());
            }
        }
        model.computed = end;
        table.publish(&namespace(model.namespace), &ids(&model.tokens), end);
        self.naive.publish(model);
        Ok(())
    }

    fn check(&self) -> Checked {
        for (table, model) in &self.tables {
            for pool in 0..self.set.specs().len() {
                let (first, pages) = table.pages(PoolId(pool as u16));
                let expected = if pool == 0 { 0 } else { model.first };
                prop_assert_eq!((first, first + pages.len()), (expected, model.covered));
            }
            for place in 0..model.computed {
                for (pool, page, offset) in places(&self.set, table, place) {
                    let row = &self.rows[&(pool, page, offset)];
                    let whole = (model.namespace, &model.tokens[..=place]);
                    prop_assert_eq!((row.0, &row.1[..]), whole, "page {} of {}", page, pool);
                }
            }
            for (pool, page) in table.parts().1.swapped.iter().flatten() {
                let (salt, row) = &self.rows[&(*pool as u16, *page, 0)];
                let own = *salt == model.namespace && model.tokens.starts_with(row);
                prop_assert!(own, "page {} of {} is written while it is held", page, pool);
            }
        }
        for (stats, counts) in self.set.stats().zip(&self.naive.counts) {
            prop_assert_eq!(stats.used_active, Pages(counts.active as u64));
            prop_assert_eq!(stats.used_cached, Pages(counts.cached as u64));
            prop_assert_eq!(
                (stats.hit_pages, stats.alloc_failures),
                (counts.hits, counts.failures)
            );
            let [capacity, pressure, flush] = counts.evicted;
            prop_assert_eq!(stats.evicted_pages, Evictions { capacity, pressure, flush });
            prop_assert_eq!(stats.query_tokens, self.naive.queries);
        }
        let tables: Vec<_> = self.tables.iter().map(|(table, _)| table).collect();
        check::consistent(&self.set, &tables)
    }
}

/// Where the row of `place` is, in each pool that still has it.
fn places(set: &PoolSet, table: &PageTable, place: usize) -> Vec<(u16, PageId, usize)> {
    let pools = (0_u16..).zip(set.specs());
    let find = |(pool, spec): (u16, &PoolSpec)| {
        let (first, pages) = table.pages(PoolId(pool));
        let page = (place / spec.page_tokens).checked_sub(first)?;
        Some((pool, *pages.get(page)?, place % spec.page_tokens))
    };
    pools.filter_map(find).collect()
}

fn run(shape: Shape, actions: &[Action], hash: HashFn) -> Checked {
    let mut world = World::new(shape, hash);
    for action in actions {
        world.act(action)?;
    }
    while let Some((table, mut model)) = world.tables.pop() {
        drop(table);
        world.naive.release(&mut model);
        world.check()?;
    }
    world.act(&Action::Flush)?;
    let used = world.set.stats().map(|stats| stats.used_active.0 + stats.used_cached.0);
    prop_assert_eq!(used.sum::<u64>(), 0, "a flushed, idle cache is empty");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn the_cache_agrees_with_a_naive_one(
        shape in shape(),
        actions in prop::collection::vec(action(), 1..120),
    ) {
        run(shape, &actions, page_hash)?;
    }

    #[test]
    fn equal_hashes_never_join_different_prefixes(
        shape in shape(),
        actions in prop::collection::vec(action(), 1..80),
    ) {
        run(shape, &actions, |_, _, _| 0)?;
    }

    #[test]
    fn hashes_that_often_collide_change_nothing(
        shape in shape(),
        actions in prop::collection::vec(action(), 1..80),
    ) {
        run(shape, &actions, |scratch, before, tokens| page_hash(scratch, before, tokens) % 3)?;
    }
}
