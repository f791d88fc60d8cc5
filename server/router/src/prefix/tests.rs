use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;

use super::*;
use crate::pieces::end;

const BOUNDS: PrefixConfig = PrefixConfig { bytes_max: 1 << 20, pieces_per_worker: 4096 };

fn pieces(prompt: &[u8]) -> Pieces {
    Pieces::of(prompt, 42)
}

impl PrefixTree {
    /// Everything that must always be true of it.
    fn check(&self) {
        assert!(self.bytes() <= self.config.bytes_max);
        assert_eq!(self.own.iter().map(|order| order.len).sum::<usize>(), self.all.len);
        assert_eq!(self.held.len(), self.all.len);
        let holders: usize = self
            .by_hash
            .values()
            .map(|node| self.nodes[*node as usize].holders.iter().count())
            .sum();
        assert_eq!(holders, self.all.len);
        assert!(self.own.iter().all(|order| order.len <= self.config.pieces_per_worker));
        // What is free is used again, so that memory follows the bound and not the traffic.
        assert_eq!(self.entries.len(), self.all.len + self.free_entries.len());
        assert_eq!(self.nodes.len(), self.by_hash.len() + self.free_nodes.len());
    }
}

#[test]
fn each_worker_is_found_as_deep_as_it_was_told() {
    let mut tree = PrefixTree::new(BOUNDS);
    let long = vec![b'a'; 4000];
    tree.remember(3, &pieces(&long));
    tree.remember(200, &pieces(&long[..1000]));
    let mut other = long.clone();
    other[600] = b'b';
    tree.remember(7, &pieces(&other));
    let deep = |bytes: usize| (0..).take_while(|index| end(*index) <= bytes).count() as u8;
    let depths = tree.depths(&pieces(&long));
    assert_eq!([depths[3], depths[200], depths[7]], [deep(4000), deep(1000), deep(600)]);
    assert_eq!(depths.iter().filter(|depth| **depth > 0).count(), 3);
    tree.forget(3);
    let depths = tree.depths(&pieces(&long));
    assert_eq!([depths[3], depths[200], depths[7]], [0, deep(1000), deep(600)]);
    tree.forget(7);
    tree.forget(200);
    assert_eq!((tree.bytes(), tree.by_hash.len()), (0, 0));
    tree.check();
}

#[test]
fn what_is_taken_back_is_what_was_added() {
    let mut tree = PrefixTree::new(BOUNDS);
    let long = pieces(&[b'a'; 4000]);
    tree.remember(3, &pieces(&[b'a'; 1000]));
    tree.remember(4, &long);
    let before = tree.depths(&long);
    tree.remember(3, &long);
    assert_eq!(tree.depths(&long)[3], before[4]);
    tree.take_back(3, &long, before[3]);
    tree.take_back(3, &long, before[3]);
    assert_eq!(tree.depths(&long), before);
    tree.check();
}

#[test]
fn adversarial_prompts_stay_within_the_bounds() {
    let config = PrefixConfig { bytes_max: 64 << 10, pieces_per_worker: 300 };
    let mut tree = PrefixTree::new(config);
    for number in 0..3000_u32 {
        // No two share a piece, and they are of any length.
        let mut prompt = vec![0; (number as usize * 977) % 40_000];
        prompt.iter_mut().take(4).zip(number.to_le_bytes()).for_each(|(to, from)| *to = from);
        tree.remember((number % 256) as u16, &pieces(&prompt));
        if number % 100 == 0 {
            tree.check();
        }
    }
    tree.check();
    let capacity = tree.entries.capacity() * ENTRY_BYTES + tree.nodes.capacity() * NODE_BYTES;
    assert!(capacity <= 4 * config.bytes_max, "{capacity}");
    tree.configure(PrefixConfig { bytes_max: 0, ..config });
    assert_eq!(tree.bytes(), 0);
    tree.check();
}

/// The least recently used beginnings of one worker, by hand.
#[derive(Default)]
struct Model {
    order: VecDeque<u64>,
}

impl Model {
    fn remember(&mut self, pieces: &Pieces, bound: usize) {
        for hash in pieces.hashes().iter().rev() {
            self.order.retain(|held| held != hash);
            self.order.push_back(*hash);
        }
        while self.order.len() > bound {
            self.order.pop_front();
        }
    }

    fn depth(&self, pieces: &Pieces) -> u8 {
        pieces.hashes().iter().take_while(|hash| self.order.contains(hash)).count() as u8
    }
}

#[derive(Debug, Clone)]
enum Action {
    Remember { worker: u16, stem: u8, length: usize, part: usize },
    Forget { worker: u16 },
}

fn action() -> impl Strategy<Value = Action> {
    let remember = (0..4_u16, 0..4_u8, 0..2000_usize, 0..2000_usize);
    prop_oneof![
        20 => remember.prop_map(|(worker, stem, length, part)|
            Action::Remember { worker, stem, length, part }),
        1 => (0..4_u16).prop_map(|worker| Action::Forget { worker }),
    ]
}

/// A prompt that parts from the others of its stem after `part` bytes.
fn text(stem: u8, length: usize, part: usize) -> Vec<u8> {
    (0..length).map(|at| if at < part { stem } else { stem + 100 }).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn a_worker_is_believed_to_hold_what_a_cache_of_its_bound_would(
        actions in proptest::collection::vec(action(), 1..40),
        bound in prop_oneof![Just(10_usize), Just(40), Just(4096)],
    ) {
        let mut tree = PrefixTree::new(PrefixConfig { pieces_per_worker: bound, ..BOUNDS });
        let mut models: BTreeMap<u16, Model> = BTreeMap::new();
        let mut probes = BTreeSet::new();
        for action in actions {
            match action {
                Action::Remember { worker, stem, length, part } => {
                    let prompt = text(stem, length, part);
                    tree.remember(worker, &pieces(&prompt));
                    models.entry(worker).or_default().remember(&pieces(&prompt), bound);
                    probes.insert(prompt);
                }
                Action::Forget { worker } => {
                    tree.forget(worker);
                    models.remove(&worker);
                }
            }
            tree.check();
        }
        for prompt in &probes {
            let depths = tree.depths(&pieces(prompt));
            for (worker, model) in &models {
                prop_assert_eq!(depths[usize::from(*worker)], model.depth(&pieces(prompt)));
            }
        }
    }
}
