//! The host tier: random work with late, dropped and failed copies, a store that reads and writes
//! pages, and every policy, against the bytes that it moves and against what is found by looking at
//! everything; single rules as examples; recorded traces against exact expected hits.

mod check;
mod examples;
mod land;
mod naive;
mod storage;
mod traces;
mod world;

use proptest::prelude::*;
use types::PoolId;

use self::world::{Checked, Seen, Shape, World};
use crate::hash::{HashFn, page_hash};
use crate::{CopyEnd, Direction, Lookup, Retention, WritePolicy};

#[derive(Debug, Clone)]
enum Action {
    Open {
        salt: u8,
        text: Text,
    },
    /// A request whose rows are computed elsewhere, all but those of its last tokens.
    Land {
        salt: u8,
        text: Text,
        less: usize,
        again: bool,
    },
    /// Where rows come from elsewhere, they have come.
    Compute {
        pick: usize,
        tokens: usize,
    },
    /// Pages that are swapped are held on to, or not.
    Hold {
        pick: usize,
        hold: bool,
    },
    Attach {
        pick: usize,
        again: bool,
    },
    Clear {
        pick: usize,
    },
    Close {
        pick: usize,
    },
    /// The oldest running copy of a direction ends.
    End {
        direction: Direction,
        end: CopyEnd,
    },
    /// The next copy that cannot wait ends so.
    Spoil(CopyEnd),
    /// All copies end well.
    Settle,
    Release {
        pick: usize,
    },
    Reserve {
        salt: u8,
        text: Text,
        limit: usize,
    },
    Commit {
        pick: usize,
        pages: usize,
    },
    Resize {
        pool: usize,
        pages: usize,
    },
    Flush,
}

/// Tokens: so many of one base text, then another.
#[derive(Debug, Clone)]
struct Text {
    bases: (u32, u32),
    cut: usize,
    len: usize,
}

impl Text {
    fn tokens(&self) -> Vec<u32> {
        let base = |at: usize| if at < self.cut { self.bases.0 } else { self.bases.1 };
        let token = |at: usize| (at as u32 * 7 + base(at) * at as u32 / 3) % 3;
        (0..self.len).map(token).collect()
    }
}

fn text() -> impl Strategy<Value = Text> {
    ((0..3_u32, 0..3_u32), 0..20_usize, 6..26_usize).prop_map(|(bases, cut, len)| Text {
        bases,
        cut,
        len,
    })
}

fn action() -> impl Strategy<Value = Action> {
    let pick = 0..16_usize;
    let salt = || prop::bool::weighted(0.1).prop_map(u8::from);
    let end = || {
        prop_oneof![
            6 => Just(CopyEnd::Done),
            1 => Just(CopyEnd::Dropped),
            1 => Just(CopyEnd::Failed),
        ]
    };
    let rare = |action: Action| {
        prop::bool::weighted(0.1)
            .prop_map(move |is_now| if is_now { action.clone() } else { Action::Settle })
    };
    prop_oneof![
        8 => (salt(), text()).prop_map(|(salt, text)| Action::Open { salt, text }),
        4 => (salt(), text(), prop_oneof![3 => Just(1), 1 => 0..7_usize], any::<bool>())
            .prop_map(|(salt, text, less, again)| Action::Land { salt, text, less, again }),
        1 => (pick.clone(), any::<bool>()).prop_map(|(pick, hold)| Action::Hold { pick, hold }),
        10 => (pick.clone(), 1..26_usize)
            .prop_map(|(pick, tokens)| Action::Compute { pick, tokens }),
        2 => (pick.clone(), any::<bool>())
            .prop_map(|(pick, again)| Action::Attach { pick, again }),
        1 => pick.clone().prop_map(|pick| Action::Clear { pick }),
        8 => pick.clone().prop_map(|pick| Action::Close { pick }),
        6 => end().prop_map(|end| Action::End { direction: Direction::Backup, end }),
        4 => Just(Action::End { direction: Direction::Load, end: CopyEnd::Done }),
        1 => rare(Action::End { direction: Direction::Load, end: CopyEnd::Failed }),
        1 => end().prop_map(Action::Spoil),
        2 => Just(Action::Settle),
        4 => pick.clone().prop_map(|pick| Action::Release { pick }),
        2 => (salt(), text(), 1..13_usize)
            .prop_map(|(salt, text, limit)| Action::Reserve { salt, text, limit }),
        2 => (pick, 0..13_usize).prop_map(|(pick, pages)| Action::Commit { pick, pages }),
        1 => (0..3_usize, 0..60_usize).prop_map(|(pool, pages)| Action::Resize { pool, pages }),
        1 => rare(Action::Flush),
    ]
}

fn shape() -> impl Strategy<Value = Shape> {
    let full = prop::collection::vec(5..20_usize, 1..=2);
    let window = prop::option::weighted(0.7, (5..20_usize, prop::sample::select(vec![1, 2, 4, 7])));
    let policy = prop::sample::select(vec![
        WritePolicy::WriteThrough,
        WritePolicy::WriteThroughSelective,
        WritePolicy::WriteBack,
    ]);
    let retention = prop::sample::select(vec![
        Retention::All,
        Retention::Tail,
        Retention::TailEvery(6),
        Retention::TailBranch,
    ]);
    let threshold = prop::sample::select(vec![0, 1, 5]);
    (full, window, 0..40_usize, policy, retention, threshold).prop_map(
        |(full, window, more, policy, retention, threshold)| Shape {
            full,
            window,
            more,
            policy,
            retention,
            threshold,
        },
    )
}

impl World {
    fn act(&mut self, action: &Action) -> Checked {
        let count = self.requests.len();
        match action {
            Action::Open { salt, text } if count < 4 => self.open(*salt, text.tokens())?,
            Action::Land { salt, text, less, again } if count < 4 => {
                let lookup = if *again { Lookup::Again } else { Lookup::First };
                self.land(*salt, text.tokens(), *less, lookup)?;
            }
            Action::Compute { pick, tokens } if count > 0 => {
                let at = pick % count;
                match self.requests[at].landing.take() {
                    Some(end) => self.arrive(at, end)?,
                    None => self.compute(at, *tokens)?,
                }
            }
            Action::Hold { pick, hold } if count > 0 => {
                self.requests[pick % count].table.hold_swapped(*hold);
            }
            Action::Attach { pick, again } if count > 0 && !self.lands(pick % count) => {
                self.attach(pick % count, if *again { Lookup::Again } else { Lookup::More })?;
            }
            Action::Clear { pick } if count > 0 => {
                let request = &mut self.requests[pick % count];
                request.table.clear();
                request.computed = 0;
                self.seen.given_up += usize::from(request.landing.take().is_some());
            }
            Action::Close { pick } if count > 0 => {
                let request = self.requests.swap_remove(pick % count);
                self.seen.given_up += usize::from(request.landing.is_some());
            }
            Action::End { direction, end } => self.end_oldest(*direction, *end)?,
            Action::Spoil(end) => self.urgent = *end,
            Action::Settle => self.settle()?,
            Action::Release { pick } => self.release_run(*pick)?,
            Action::Reserve { salt, text, limit } => self.reserve(*salt, text.tokens(), *limit)?,
            Action::Commit { pick, pages } => self.commit(*pick, *pages)?,
            Action::Resize { pool, pages } => {
                let pool = pool % self.set.specs().len();
                let least = self.set.specs()[pool].capacity.0 as usize;
                let reached = self.set.set_host_pages(PoolId(pool as u16), *pages);
                let stats = self.set.host_stats().expect("there is a tier")[pool];
                prop_assert_eq!(reached, Some(stats.capacity.0 as usize));
                prop_assert!(reached >= Some((*pages).max(least)));
            }
            Action::Flush => self.set.flush(),
            Action::Open { .. }
            | Action::Land { .. }
            | Action::Hold { .. }
            | Action::Compute { .. }
            | Action::Attach { .. }
            | Action::Clear { .. }
            | Action::Close { .. } => {}
        }
        self.take_orders()?;
        self.check()
    }
}

fn run(shape: &Shape, actions: &[Action], hash: HashFn) -> Result<Seen, TestCaseError> {
    let mut world = World::new(shape, hash);
    for action in actions {
        world.act(action)?;
    }
    world.settle()?;
    world.requests.clear();
    world.settle()?;
    world.check()?;
    world.act(&Action::Flush)?;
    while !world.reserved.is_empty() {
        world.commit(0, 0)?;
    }
    while !world.runs.is_empty() {
        world.release_run(0)?;
    }
    world.check()?;
    let device = world.set.stats().map(|stats| stats.used_active.0 + stats.used_cached.0);
    prop_assert_eq!(device.sum::<u64>(), 0, "a flushed, idle cache is empty");
    let host = world.set.host_stats().expect("there is a tier").into_iter();
    prop_assert_eq!(host.map(|stats| stats.used_active.0 + stats.used_cached.0).sum::<u64>(), 0);
    Ok(world.seen)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn both_tiers_hold_what_they_say_however_copies_end(
        shape in shape(),
        actions in prop::collection::vec(action(), 1..150),
    ) {
        run(&shape, &actions, page_hash)?;
    }

    #[test]
    fn equal_hashes_never_join_different_prefixes(
        shape in shape(),
        actions in prop::collection::vec(action(), 1..80),
    ) {
        run(&shape, &actions, |_, _, _| 0)?;
    }
}

#[test]
fn the_random_work_reaches_every_corner() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let all = (shape(), prop::collection::vec(action(), 150));
    let mut sum = Seen::default();
    for _ in 0..120 {
        let (shape, actions) = all.new_tree(&mut runner).expect("a case").current();
        let seen = run(&shape, &actions, page_hash).expect("it holds");
        sum = sum + seen;
    }
    println!("{sum:?}");
    let least = sum.counts().into_iter().min().expect("there are some");
    assert!(least > 20, "{sum:?}");
}
