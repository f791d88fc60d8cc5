//! Another number of host pages while everything runs.

use types::{PageId, Pages};

use crate::evict::Cause;
use crate::node::{NO_PAGE, NodeId};
use crate::state::State;

impl State {
    /// So many host pages in `pool`: more at once, fewer as far as what is held allows and not less
    /// than the device has. Returns how many there are.
    pub(crate) fn set_host_pages(&mut self, pool: usize, pages: usize) -> Option<usize> {
        let device = self.pools[pool].spec.capacity;
        let capacity = self.tier.as_ref()?.pools[pool].capacity();
        let wanted = pages.max(device.0 as usize);
        for id in (wanted..capacity).rev() {
            let id = PageId(u32::try_from(id).expect("a page id has 32 bits"));
            if self.tier.as_ref()?.pools[pool].pages.is_out(id) {
                self.vacate(pool, id);
            }
        }
        self.sweep();
        let host = &mut self.tier.as_mut()?.pools[pool];
        let reached = host.resize(wanted);
        debug_assert_eq!(host.pages.spec.capacity, Pages(reached as u64));
        Some(reached)
    }

    /// Frees a host page, where nobody needs it.
    fn vacate(&mut self, pool: usize, id: PageId) {
        let tier = self.tier.as_mut().expect("the caller has one");
        let place = tier.pools[pool].places[id.index()];
        if place.held > 0 || !place.node.is_some() {
            return;
        }
        let found = &self.tree.nodes[place.node];
        let index = place.depth - found.depth;
        let start = index * self.tree.pools;
        if tier.pools[pool].is_window {
            if found.pages[start + pool] == NO_PAGE {
                self.drop_host_window(pool, id);
            } else {
                tier.pools[pool].forget(id);
                self.clear_host(place.node, place.depth, pool);
            }
        } else if index < found.resident {
            // On the device it stays, without a copy.
            for other in 0..self.tree.pools {
                let copy = self.tree.nodes[place.node].host[start + other];
                let host = &mut self.tier.as_mut().expect("the caller has one").pools[other];
                if !host.is_window && copy != NO_PAGE && host.places[copy.index()].held == 0 {
                    host.forget(copy);
                    self.clear_host(place.node, place.depth, other);
                }
            }
        } else if found.host_locks == 0 {
            self.drop_at(place.node, index, Cause::Host(pool));
        }
    }

    /// Frees what nobody finds any more.
    fn sweep(&mut self) {
        let Some(tier) = &self.tier else { return };
        for node in tier.lru.keys() {
            let node = NodeId(node);
            if self.tier.as_ref().is_some_and(|tier| tier.lru.contains(node.0)) {
                self.reap(node);
            }
        }
    }
}
