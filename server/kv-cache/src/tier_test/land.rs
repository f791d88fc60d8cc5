//! Rows that come from elsewhere, with two tiers.

use std::ops::Add;

use proptest::prelude::*;
use types::{Bytes, Pages, PoolId, Time};

use super::examples::{SHARED, orders, serve, text, tier_set};
use super::naive::{Ask, Flat};
use super::world::{Checked, PAGE, Request, Seen, World, ids, is_busy, namespace};
use crate::{
    CacheOptions, CopyEnd, CopyOrder, Direction, HostTier, Landed, Lookup, NoRoom, PoolSet,
    PoolSpec, Retention, WritePolicy,
};

impl World {
    /// Whether rows are still to come to a table.
    pub(super) fn lands(&self, at: usize) -> bool {
        self.requests[at].landing.is_some()
    }

    /// A request whose rows are computed elsewhere, but for those of its last `less` tokens.
    pub(super) fn land(
        &mut self,
        salt: u8,
        tokens: Vec<u32>,
        less: usize,
        lookup: Lookup,
    ) -> Checked {
        self.now += 1;
        self.set.set_now(Time(self.now));
        let computed = tokens.len().saturating_sub(less);
        let kept = self.set.specs().iter().map(|spec| spec.first_kept(computed)).max();
        let ask = Ask { at_most: computed, kept: kept.unwrap_or(0) };
        let flat = Flat::of(&self.set);
        let (found, gained) = flat.find(&self.set, salt, &tokens, self.threshold, &ask);
        let pages = (found, computed.div_ceil(PAGE));
        let room = flat.room_for(&self.set, (salt, &tokens), pages, &ask);
        let before = (self.set.stats().collect::<Vec<_>>(), self.set.host_stats());
        let mut table = self.set.table();
        let landed = table.land(&namespace(salt), &ids(&tokens), computed, lookup);
        let landed = match (landed, room) {
            (Ok(landed), Ok(())) => landed,
            (Err(no_room), Err(pool)) => {
                prop_assert_eq!(usize::from(no_room.pool.0), pool);
                let after = (self.set.stats().collect::<Vec<_>>(), self.set.host_stats());
                prop_assert_eq!(before, after);
                let orders = self.running.len();
                self.take_orders()?;
                prop_assert_eq!(orders, self.running.len(), "nothing was ordered");
                self.seen.no_room += 1;
                return Ok(());
            }
            (found, expected) => {
                prop_assert!(false, "{found:?} instead of {expected:?}");
                return Ok(());
            }
        };
        let expected = Landed { prefix_tokens: found * PAGE, host_tokens: gained * PAGE };
        prop_assert_eq!(landed, expected);
        self.seen.landed += 1;
        self.seen.landed_loads += usize::from(gained > 0);
        let alone = flat.find(&self.set, salt, &tokens, self.threshold, &Ask::ALL);
        self.seen.landed_holes += usize::from(found > alone.0);
        // What the device gave up is copied before anything comes.
        let loads = self.take_orders()?;
        for (pool, spec) in self.set.specs().iter().enumerate() {
            let (first, pages) = table.pages(PoolId(pool as u16));
            prop_assert_eq!(first + pages.len(), spec.pages_for(computed).max(first));
            prop_assert!(first >= spec.first_kept(computed));
            if lookup != Lookup::Again {
                let taken = found.saturating_sub(first) as u64;
                self.hits[pool][0] += taken;
                self.hits[pool][1] += loads[pool] as u64;
            }
        }
        let (computed, landing) = (landed.prefix_tokens, Some(computed));
        self.requests.push(Request { table, salt, tokens, computed, landing });
        self.check_hits()
    }

    /// The rows of a landed table have come.
    pub(super) fn arrive(&mut self, at: usize, end: usize) -> Checked {
        let Request { table, salt, tokens, computed, .. } = &mut self.requests[at];
        for (pool, index, page) in table.wire_pages(*computed, 0, end, true) {
            let place = (pool.0, page);
            prop_assert!(!is_busy(&self.running, place), "a page is being copied");
            let rows = tokens[..end.min((index + 1) * PAGE)].to_vec();
            self.device.insert(place, (*salt, rows));
        }
        *computed = end;
        table.publish(&namespace(*salt), &ids(tokens), end);
        self.take_orders()?;
        Ok(())
    }
}

impl Seen {
    /// Every count.
    pub(super) const fn counts(&self) -> [usize; 11] {
        let Self { loads, window_loads, urgent, runs, entered, window_alone, .. } = *self;
        let Self { landed, landed_loads, landed_holes, no_room, given_up, .. } = *self;
        [
            loads,
            window_loads,
            urgent,
            runs,
            entered,
            window_alone,
            landed,
            landed_loads,
            landed_holes,
            no_room,
            given_up,
        ]
    }
}

impl Add for Seen {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            loads: self.loads + other.loads,
            window_loads: self.window_loads + other.window_loads,
            urgent: self.urgent + other.urgent,
            runs: self.runs + other.runs,
            entered: self.entered + other.entered,
            window_alone: self.window_alone + other.window_alone,
            landed: self.landed + other.landed,
            landed_loads: self.landed_loads + other.landed_loads,
            landed_holes: self.landed_holes + other.landed_holes,
            no_room: self.no_room + other.no_room,
            given_up: self.given_up + other.given_up,
        }
    }
}

/// A pool without a window and one of three tokens, with a tier that has all pages.
fn windowed() -> PoolSet {
    let spec = |name, pages, window| PoolSpec {
        name,
        page_tokens: PAGE,
        page_bytes: Bytes(1),
        capacity: Pages(pages),
        window,
    };
    let host = HostTier {
        pages: vec![16; 2],
        policy: WritePolicy::WriteThrough,
        load_back_threshold: 0,
        storage: false,
    };
    let specs = vec![spec("kv", 8, None), spec("swa", 2, Some(3))];
    let retention = Retention::TailBranch;
    PoolSet::new(specs, CacheOptions { enabled: true, host: Some(host), retention })
}

/// Pages of each pool in an order.
fn sizes(order: &CopyOrder) -> [usize; 2] {
    [0, 1].map(|wanted| order.pages.iter().filter(|(pool, _, _)| pool.0 == wanted).count())
}

#[test]
fn landed_pages_go_to_the_host_and_come_back_to_land_again() {
    let set = windowed();
    let prompt = [text(1, 4), text(9, 1)].concat();
    let land = || {
        let mut table = set.table();
        let landed = table.land(&SHARED, &prompt[..9], 8, Lookup::First).expect("room");
        (table, landed)
    };
    let (mut table, landed) = land();
    assert_eq!(landed, Landed::default());
    assert!(orders(&set).is_empty(), "the rows are not there yet");
    table.publish(&SHARED, &prompt[..9], 8);
    let order = orders(&set).remove(0);
    // The window before the end of the prompt; the page before is kept when the table goes.
    assert_eq!((order.direction, sizes(&order)), (Direction::Backup, [4, 1]));
    set.finish_copy(order.id, CopyEnd::Done);
    drop(table);
    let order = orders(&set).remove(0);
    assert_eq!(sizes(&order), [0, 1]);
    set.finish_copy(order.id, CopyEnd::Done);

    // Another one needs the whole device.
    let mut other = set.table();
    other.land(&SHARED, &[text(2, 8), text(9, 1)].concat(), 16, Lookup::First).expect("room");
    assert_eq!(other.pages(PoolId(1)).0, 6);
    assert_eq!(other.wire_pages(0, 0, 16, true).len(), 8 + 2);
    let mut again = set.table();
    let refused = again.land(&SHARED, &prompt[..9], 8, Lookup::First);
    assert_eq!(refused, Err(NoRoom { pool: PoolId(0), pages: 4 }));
    // It is given up before anything has come: nothing of it is found or copied.
    drop(other);
    assert!(orders(&set).is_empty());

    let (table, landed) = land();
    assert_eq!(landed, Landed { prefix_tokens: 8, host_tokens: 8 });
    let order = orders(&set).remove(0);
    assert_eq!((order.direction, sizes(&order)), (Direction::Load, [4, 1]));
    assert_eq!((table.tokens(), table.pages(PoolId(1)).0), (8, 3));
    assert!(table.wire_pages(8, 0, 8, true).is_empty(), "nothing is to come");
    set.finish_copy(order.id, CopyEnd::Done);
}

#[test]
fn what_leaves_the_device_for_a_landing_is_saved_before_rows_come() {
    let host = HostTier {
        pages: vec![8],
        policy: WritePolicy::WriteBack,
        load_back_threshold: 0,
        storage: false,
    };
    let set = tier_set(&[4], host, PAGE);
    drop(serve(&set, &text(1, 4)));
    assert!(orders(&set).is_empty());
    let mut table = set.table();
    table.land(&SHARED, &text(2, 3), 5, Lookup::First).expect("room");
    let saved: Vec<_> = orders(&set);
    assert!(saved.iter().all(|order| order.urgent));
    let pages = saved.iter().flat_map(|order| &order.pages);
    let saved_from: Vec<_> = pages.map(|(_, device, _)| *device).collect();
    assert!(table.pages(PoolId(0)).1.iter().all(|page| saved_from.contains(page)));
    saved.iter().for_each(|order| set.finish_copy(order.id, CopyEnd::Done));
}
