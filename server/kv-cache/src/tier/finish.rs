//! How copies end.

use types::PageId;

use super::Pending;
use crate::evict::Cause;
use crate::host::{CopyEnd, Direction};
use crate::node::NO_PAGE;
use crate::state::State;

impl State {
    /// The order `id` has ended.
    ///
    /// # Panics
    /// When there is none.
    pub(crate) fn finish_copy(&mut self, id: u64, result: CopyEnd) {
        let pending = self.tier.as_mut().map(|tier| &mut tier.pending);
        let place = pending.as_ref().and_then(|all| all.iter().position(|order| order.id == id));
        let (Some(pending), Some(place)) = (pending, place) else {
            panic!("no order {id} is being carried out");
        };
        let order = pending.remove(place);
        match (order.direction, result) {
            (Direction::Backup, _) => self.end_backup(&order, result),
            (Direction::Load, CopyEnd::Done) => self.end_load(&order),
            (Direction::Load, CopyEnd::Dropped | CopyEnd::Failed) => {
                // Somebody may have computed with the rows already, and published what came out.
                self.flush();
                self.end_load(&order);
            }
        }
    }

    fn end_load(&mut self, order: &Pending) {
        for (pool, device, copy) in &order.pages {
            let pool = usize::from(pool.0);
            let tier = self.tier.as_mut().expect("it had the order");
            tier.pools[pool].release(*copy);
            if !self.pools[pool].is_full() {
                self.unhold_window(pool, *device, true);
            }
        }
        order.nodes.iter().for_each(|node| self.let_go(*node, false));
    }

    fn end_backup(&mut self, order: &Pending, result: CopyEnd) {
        let mut failed = Vec::new();
        for (pool, _, copy) in &order.pages {
            let pool = usize::from(pool.0);
            let host = &mut self.tier.as_mut().expect("it had the order").pools[pool];
            host.places[copy.index()].is_busy = false;
            match result {
                CopyEnd::Done => {}
                CopyEnd::Dropped => host.dropped.queue += 1,
                CopyEnd::Failed => {}
            }
            let belongs = host.release(*copy);
            match result {
                CopyEnd::Done if belongs => self.settle_window(pool, *copy),
                CopyEnd::Done => {}
                CopyEnd::Dropped | CopyEnd::Failed => failed.push((pool, *copy)),
            }
        }
        if result == CopyEnd::Done {
            self.report(order);
        }
        if order.is_urgent {
            self.unlock_host_paths(&order.nodes);
        } else {
            for (pool, device, _) in &order.pages {
                let pool = usize::from(pool.0);
                if !self.pools[pool].is_full() {
                    self.unhold_window(pool, *device, true);
                }
            }
            order.nodes.iter().for_each(|node| self.let_go(*node, false));
        }
        for (pool, copy) in failed {
            self.undo_copy(pool, copy);
        }
    }

    /// A page of the host is not needed by somebody any more. Of a window pool, and without its
    /// page on the device, it can be given up.
    pub(super) fn settle_window(&mut self, pool: usize, copy: PageId) {
        let tier = self.tier.as_mut().expect("it has the page");
        let host = &mut tier.pools[pool];
        let place = host.places[copy.index()];
        if !host.is_window || !place.node.is_some() {
            return;
        }
        let found = &self.tree.nodes[place.node];
        if found.pages[(place.depth - found.depth) * self.tree.pools + pool] == NO_PAGE {
            host.enlist(copy);
        }
    }

    /// The bytes of a copy never came: its page loses it, and goes where it has left the device.
    fn undo_copy(&mut self, pool: usize, copy: PageId) {
        let tier = self.tier.as_mut().expect("it had the order");
        let place = tier.pools[pool].places[copy.index()];
        if !place.node.is_some() || !tier.pools[pool].pages.is_out(copy) {
            return;
        }
        let found = &self.tree.nodes[place.node];
        let index = place.depth - found.depth;
        if tier.pools[pool].is_window || index < found.resident {
            tier.pools[pool].forget(copy);
            self.clear_host(place.node, place.depth, pool);
        } else {
            self.drop_at(place.node, index, Cause::Flush);
        }
    }
}
