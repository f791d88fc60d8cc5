//! Random growth and release against a naive model: sets of page ids per table.

use std::collections::HashSet;

use proptest::prelude::*;
use types::{Bytes, PageId, Pages, PoolId};

use crate::{PageTable, PoolSet, PoolSpec};

#[derive(Debug, Clone)]
enum Action {
    Open,
    Grow { pick: usize, tokens: usize },
    Clear { pick: usize },
    Close { pick: usize },
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        2 => Just(Action::Open),
        6 => (0..32_usize, 0..200_usize).prop_map(|(pick, tokens)| Action::Grow { pick, tokens }),
        1 => (0..32_usize).prop_map(|pick| Action::Clear { pick }),
        2 => (0..32_usize).prop_map(|pick| Action::Close { pick }),
    ]
}

fn spec(name: &'static str, page_tokens: usize, capacity: u64) -> PoolSpec {
    PoolSpec { name, page_tokens, page_bytes: Bytes(1024), capacity: Pages(capacity) }
}

/// A table, the tokens it must cover, and the failures that growing has met so far.
struct World {
    set: PoolSet,
    tables: Vec<(PageTable, usize)>,
    failures: Vec<u64>,
}

impl World {
    fn pages_for(&self, pool: usize, tokens: usize) -> usize {
        tokens.div_ceil(self.set.pools()[pool].spec().page_tokens)
    }

    fn free(&self, pool: usize) -> usize {
        let capacity = self.set.pools()[pool].spec().capacity.0 as usize;
        capacity - self.tables.iter().map(|(_, t)| self.pages_for(pool, *t)).sum::<usize>()
    }

    fn grow(&mut self, at: usize, tokens: usize) -> Result<(), TestCaseError> {
        let covered = self.tables[at].1;
        let short = (0..self.set.pools().len()).find(|&pool| {
            let more = self.pages_for(pool, tokens).saturating_sub(self.pages_for(pool, covered));
            more > self.free(pool)
        });
        let before = self.tables[at].0.pages(PoolId(0)).to_vec();
        let table = &mut self.tables[at];
        match (table.0.grow_to(tokens), short) {
            (Ok(()), None) => table.1 = covered.max(tokens),
            (Err(no_room), Some(pool)) => {
                prop_assert_eq!(usize::from(no_room.pool.0), pool);
                self.failures[pool] += 1;
            }
            (outcome, expected) => {
                prop_assert!(false, "{outcome:?} where the model says {expected:?}");
            }
        }
        prop_assert!(self.tables[at].0.pages(PoolId(0)).starts_with(&before), "pages stay");
        Ok(())
    }

    fn check(&self) -> Result<(), TestCaseError> {
        for (index, stats) in self.set.stats().enumerate() {
            let pool = PoolId(u16::try_from(index).expect("few pools"));
            let mut seen: HashSet<PageId> = HashSet::new();
            for (table, tokens) in &self.tables {
                prop_assert_eq!(table.pages(pool).len(), self.pages_for(index, *tokens));
                for page in table.pages(pool) {
                    prop_assert!((page.0 as u64) < stats.capacity.0);
                    prop_assert!(seen.insert(*page), "page {} is held twice", page);
                }
            }
            prop_assert_eq!(stats.used_active, Pages(seen.len() as u64));
            prop_assert_eq!(stats.alloc_failures, self.failures[index]);
            prop_assert_eq!(self.set.pools()[index].free(), self.free(index));
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn the_pools_agree_with_the_model(
        first in (1..20_usize, 1..40_u64),
        second in prop::option::of((1..20_usize, 1..40_u64)),
        actions in prop::collection::vec(action(), 1..150),
    ) {
        let mut specs = vec![spec("kv", first.0, first.1)];
        specs.extend(second.map(|(page_tokens, capacity)| spec("swa", page_tokens, capacity)));
        let failures = vec![0; specs.len()];
        let mut world = World { set: PoolSet::new(specs), tables: Vec::new(), failures };
        for action in actions {
            let count = world.tables.len();
            match action {
                Action::Open => world.tables.push((world.set.table(), 0)),
                Action::Grow { pick, tokens } if count > 0 => world.grow(pick % count, tokens)?,
                Action::Clear { pick } if count > 0 => {
                    let table = &mut world.tables[pick % count];
                    table.0.clear();
                    table.1 = 0;
                }
                Action::Close { pick } if count > 0 => {
                    world.tables.swap_remove(pick % count);
                }
                Action::Grow { .. } | Action::Clear { .. } | Action::Close { .. } => {}
            }
            world.check()?;
        }
        world.tables.clear();
        world.check()?;
    }
}

#[test]
fn a_table_covers_what_the_smallest_pool_holds() {
    let set = PoolSet::new(vec![spec("kv", 16, 10), spec("swa", 4, 20)]);
    let mut table = set.table();
    assert!(table.grow_to(81).is_err());
    assert_eq!(set.stats().map(|s| s.used_active.0).sum::<u64>(), 0, "all or nothing");
    table.grow_to(80).expect("fits exactly");
    assert_eq!(table.tokens(), 80);
    assert!(set.table().grow_to(1).is_err());
}
