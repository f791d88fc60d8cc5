//! The life of a copy thread.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};

use super::{CopyFailed, CopyStep, Direction, Job, Shared, stream};
use crate::host::{HostLayout, Slabs, stay_on};

/// Consecutive loads that are moved together, layer by layer, so that the first layers of all come
/// before the last layers of any; or one backup.
type Group = Vec<Arc<Job>>;

impl Shared {
    /// Copies for the ranks of thread `node` until it is told to stop.
    pub(super) fn work(&self, node: usize) {
        if let Some(node) = self.nodes[node].0 {
            // Where the system does not let us, copies are as right and slower.
            drop(stay_on(node));
        }
        while let Some(group) = self.next_group(node) {
            let ranks = &self.nodes[node].1;
            let copy = || self.copy_group(&group, ranks);
            let failed = catch_unwind(AssertUnwindSafe(copy)).err().map(|panic| {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
                CopyFailed(text.unwrap_or("a copy thread panicked").to_owned())
            });
            self.end_group(group, ranks, failed.as_ref());
        }
    }

    /// The next copies, or `None` when it is over and those still queued were given up.
    fn next_group(&self, node: usize) -> Option<Group> {
        let mut state = self.lock();
        loop {
            if state.stop {
                let left = std::mem::take(&mut state.queues[node]);
                drop(state);
                let stopped = CopyFailed("the copy engine is stopped".to_owned());
                self.end_group(left.into(), &self.nodes[node].1, Some(&stopped));
                return None;
            }
            let queue = &mut state.queues[node];
            if let Some(first) = queue.pop_front() {
                let loads = first.direction == Direction::Load;
                let mut group = vec![first];
                while loads && queue.front().is_some_and(|job| job.direction == Direction::Load) {
                    group.extend(queue.pop_front());
                }
                return Some(group);
            }
            state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn end_group(&self, group: Group, ranks: &[usize], failed: Option<&CopyFailed>) {
        let mut state = self.lock();
        for job in group {
            job.end_load(ranks, failed);
            let mut outcome = job.outcome();
            outcome.threads -= 1;
            if let Some(failed) = failed {
                outcome.failed.get_or_insert_with(|| failed.clone());
            }
            let ended = outcome.threads == 0;
            drop(outcome);
            if ended {
                state.running.retain(|other| !Arc::ptr_eq(other, &job));
                state.done.push(job);
            }
        }
        drop(state);
        self.ended.notify_all();
        if let Some(wake) = self.waker.get() {
            wake();
        }
    }

    fn copy_group(&self, group: &[Arc<Job>], ranks: &[usize]) {
        let loads = group[0].direction == Direction::Load;
        if !loads && self.host.options().layout == HostLayout::PageFirst {
            for rank in ranks {
                self.hook(group, *rank, None);
                for part in 0..self.device_parts.len() {
                    self.copy_part(group, *rank, part, None);
                }
            }
            return;
        }
        let mut rest = self.layers.as_slice();
        while let Some((layer, ..)) = rest.first().copied() {
            let (now, later) = rest.split_at(rest.partition_point(|(other, ..)| *other == layer));
            rest = later;
            for rank in ranks {
                self.hook(group, *rank, Some(layer));
                for (_, part, at) in now {
                    self.copy_part(group, *rank, *part, Some(*at));
                }
                for load in group.iter().filter_map(|job| job.load.as_ref()) {
                    match later.first() {
                        Some((next, ..)) => load.advance(*rank, *next),
                        None => load.end(*rank, None),
                    }
                }
            }
        }
    }

    /// Copies the pages of one part on one rank: one layer, or all at once.
    fn copy_part(&self, group: &[Arc<Job>], rank: usize, part: usize, layer: Option<usize>) {
        let host = &self.host.host_parts()[part];
        let bytes = match layer {
            Some(_) => host.layout.layer_bytes,
            None => host.layout.page_bytes(),
        };
        let slabs = host.slabs(rank);
        for job in group {
            let start = self.clock.now();
            let mut moved = 0;
            for page in job.pages.iter().filter(|page| page.pool == host.pool) {
                let device = self.devices[rank].address(
                    self.device_parts[part],
                    page.device,
                    layer.unwrap_or(0),
                );
                self.copy_block(
                    &slabs,
                    (page.host, layer.unwrap_or(0)),
                    device,
                    bytes,
                    job.direction,
                );
                moved += bytes as u64;
            }
            let busy = self.clock.now().since(start);
            self.tally.add_bytes(job.direction, rank, part, moved);
            self.tally.add_busy(job.direction, rank, busy);
            let mut outcome = job.outcome();
            outcome.bytes[part] += moved;
            outcome.busy += busy;
        }
    }

    fn copy_block(
        &self,
        slabs: &Slabs,
        (page, layer): (types::PageId, usize),
        device: *mut u8,
        bytes: usize,
        direction: Direction,
    ) {
        let host = slabs.address(page, layer);
        let (from, to) = match direction {
            Direction::Backup => (device, host),
            Direction::Load => (host, device),
        };
        // SAFETY: both are valid for that many bytes, which is a layer, or a whole page where both
        // sides have its layers side by side; the slabs stay while their guard lives and device
        // memory while `self` does. They are different maps. That nobody else writes them, and for
        // the target reads them, is the condition of `device.rs`.
        unsafe { stream::copy(from, to, bytes) };
    }

    fn hook(&self, group: &[Arc<Job>], rank: usize, layer: Option<usize>) {
        if let Some(hook) = &self.hook {
            for Job { id, direction, .. } in group.iter().map(AsRef::as_ref) {
                hook(CopyStep { id: *id, direction: *direction, rank, layer });
            }
        }
    }
}
