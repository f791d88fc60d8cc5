//! Rows that come from elsewhere, with two tiers.

use std::ops::Add;

use proptest::prelude::*;
use types::{PoolId, Time};

use super::naive::{Ask, Flat};
use super::world::{Checked, PAGE, Request, Seen, World, ids, is_busy, namespace};
use crate::{Landed, Lookup};

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
