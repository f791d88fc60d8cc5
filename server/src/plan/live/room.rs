//! How much memory the host tier may take now, what it has included.

use kv_cache::{NodeRoom, NodeShare, Room};
use types::Bytes;

use crate::config::{Host, Resolved, reserve};

/// What this process was sized for.
#[derive(Debug, Clone)]
pub(super) struct Process {
    /// Bytes of everything, the tier included.
    sized: u64,
    /// What the tier has, by node; empty without one.
    pub(super) held: Vec<NodeShare>,
    /// Whether the tier is locked in memory.
    lock: bool,
}

impl Process {
    pub(super) fn new(resolved: &Resolved) -> Self {
        let rows = resolved.ledger.rows.iter();
        // The reserve is kept free of what there is, and not taken.
        let taken = rows.filter(|row| row.what != "reserve").map(|row| row.bytes);
        let tier = resolved.hierarchy.as_ref();
        Self {
            sized: taken.sum::<Bytes>().0,
            held: tier.map_or_else(Vec::new, |tier| tier.plan.nodes.clone()),
            lock: resolved.settings.cache.hicache_lock_memory == Some(crate::cli::Switch::On),
        }
    }

    /// Free and reclaimable memory and what the tier has, less a reserve and what this process has
    /// yet to touch of the rest. `resident`: bytes that it has touched.
    pub(super) fn room(&self, host: &Host, resident: Bytes, ranks: &[Option<u32>]) -> Room {
        let due = self.sized.saturating_sub(resident.0);
        let total = self.held.iter().fold(0, |sum: u64, share| sum.saturating_add(share.bytes));
        let less = |bytes: u64, more: u64, due: u64| {
            let kept = reserve(Bytes(bytes)).saturating_add(due);
            bytes.saturating_add(more).saturating_sub(kept)
        };
        let count = host.nodes.len().max(1) as u64;
        let nodes = host.nodes.iter().enumerate().map(|(index, node)| {
            let held = |share: &&NodeShare| match share.node {
                Some(id) => id == node.node,
                // Anywhere: only the sum of all nodes is looked at.
                None => index == 0,
            };
            let held = self.held.iter().filter(held).map(|share| share.bytes).sum();
            NodeRoom { node: node.node, bytes: less(node.bytes, held, due / count) }
        });
        // Ranks that are bound to no node are bounded by the host; nodes add nothing.
        let bound = ranks.iter().any(Option::is_some);
        Room {
            nodes: if bound { nodes.collect() } else { Vec::new() },
            host: host.available.map(|bytes| less(bytes.0, total, due)),
            group: host.group.map(|bytes| less(bytes.0, total, due)),
            locked: if self.lock { host.lockable } else { None },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GB: u64 = 1_000_000_000;

    fn host(nodes: &[u64], group: Option<u64>) -> Host {
        let rooms = (0..).zip(nodes).map(|(node, bytes)| NodeRoom { node, bytes: *bytes });
        let all = Some(Bytes(nodes.iter().sum()));
        Host {
            cores: 4,
            usable: all,
            available: all,
            group: group.map(Bytes),
            files: 1024,
            numa_nodes: nodes.len(),
            nodes: rooms.collect(),
            lockable: Some(65_536),
            assumed: None,
        }
    }

    fn held(node: Option<u32>, bytes: u64) -> NodeShare {
        NodeShare { node, ranks: vec![0], bytes, room: None }
    }

    #[test]
    fn free_memory_and_what_the_tier_has_are_its_room_less_a_reserve() {
        let process = Process { sized: 50 * GB, held: vec![held(Some(1), 30 * GB)], lock: false };
        let ranks = [Some(0), Some(1)];
        let room = process.room(&host(&[100 * GB, 40 * GB], Some(60 * GB)), Bytes(50 * GB), &ranks);
        let nodes: Vec<u64> = room.nodes.iter().map(|node| node.bytes).collect();
        assert_eq!(nodes, [95 * GB, (40 + 30 - 2) * GB]);
        assert_eq!((room.host, room.group), (Some((140 + 30 - 7) * GB), Some((60 + 30 - 3) * GB)));
        assert_eq!(room.locked, None);
    }

    #[test]
    fn what_the_process_will_still_take_is_not_room() {
        // Weights and pools are not touched yet: nor is the tier, whose bytes are among them.
        let process = Process { sized: 50 * GB, held: vec![held(None, 30 * GB)], lock: true };
        let room = process.room(&host(&[100 * GB], None), Bytes(0), &[None]);
        assert_eq!(room.host, Some((100 + 30 - 50 - 5) * GB));
        assert_eq!((room.nodes, room.locked), (Vec::new(), Some(65_536)));
    }

    #[test]
    fn nothing_known_bounds_nothing() {
        let unknown = Host { available: None, nodes: Vec::new(), ..host(&[], None) };
        let process = Process { sized: 0, held: Vec::new(), lock: false };
        assert_eq!(process.room(&unknown, Bytes(0), &[None]), Room::default());
    }
}
