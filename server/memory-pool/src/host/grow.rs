//! Making slabs: map and bind all, then touch them, a thread per NUMA node.

use std::io;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;

use types::Bytes;

use super::slab::Slab;
use super::system::{Mapping, TOUCH};
use super::{HostError, HostMemory, HostNote, HostPart, HugePages, Progress, SlabStep};

/// A slab that is not yet in use.
struct Fresh {
    part: usize,
    rank: usize,
    /// Its number among those of part and rank.
    number: usize,
    slab: Slab,
}

impl HostMemory {
    /// Adds slabs until the parts hold `wanted` pages, one number per part. All or nothing.
    pub(super) fn grow(
        &self,
        wanted: &[usize],
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(), HostError> {
        let mut fresh = Vec::new();
        for (number, (part, wanted)) in self.parts.iter().zip(wanted).enumerate() {
            for rank in 0..self.options.ranks {
                self.map_slabs((number, part, rank), *wanted, &mut fresh)?;
            }
        }
        self.touch_all(&fresh, progress)?;
        let mut fresh = fresh.into_iter().peekable();
        for (number, (part, wanted)) in self.parts.iter().zip(wanted).enumerate() {
            for (rank, slabs) in part.ranks.iter().enumerate() {
                let own = |fresh: &Fresh| (fresh.part, fresh.rank) == (number, rank);
                let own = std::iter::from_fn(|| fresh.next_if(own)).map(|fresh| fresh.slab);
                let own = own.collect();
                slabs.write().unwrap_or_else(PoisonError::into_inner).add(own, *wanted);
            }
        }
        Ok(())
    }

    /// Maps what `part` lacks on `rank` and binds it.
    fn map_slabs(
        &self,
        (part, of, rank): (usize, &HostPart, usize),
        wanted: usize,
        fresh: &mut Vec<Fresh>,
    ) -> Result<(), HostError> {
        let shape = self.shape(of);
        let page = shape.layers.checked_mul(shape.layer_bytes);
        let page = page.filter(|bytes| isize::try_from(*bytes).is_ok());
        let page = page.ok_or(HostError::TooLarge { part: of.layout.name })?;
        let most = usize::try_from(self.options.slab_bytes.0).unwrap_or(usize::MAX);
        let per_slab = (most / page).max(1);
        let (mut first, mut number) = {
            let slabs = of.slabs(rank);
            (slabs.held(), slabs.len())
        };
        while first < wanted {
            let pages = per_slab.min(wanted - first);
            let map = self.map_one(of, (rank, number), pages * page)?;
            let slab = Slab::new(first, pages, shape, map);
            fresh.push(Fresh { part, rank, number, slab });
            first += pages;
            number += 1;
        }
        Ok(())
    }

    fn map_one(
        &self,
        part: &HostPart,
        (rank, slab): (usize, usize),
        bytes: usize,
    ) -> Result<Mapping, HostError> {
        let wanted = self.options.huge_pages;
        let usual = || self.system.map(bytes, HugePages::Off);
        let map = match wanted {
            HugePages::Off => usual(),
            HugePages::TwoMiB | HugePages::OneGiB => {
                self.system.map(bytes, wanted).or_else(|error| {
                    self.note(HostNote::UsualPages { wanted, reason: error.to_string() });
                    usual()
                })
            }
        };
        let failed = |step, source| self.failed(part, (rank, slab), bytes, step, source);
        let map = map.map_err(|error| failed(SlabStep::Map, error))?;
        if let Some(node) = self.options.nodes[rank]
            && let Err(error) = self.system.bind(&map, node)
        {
            if !binds_nothing(&error) {
                return Err(failed(SlabStep::Bind, error));
            }
            self.note(HostNote::Unbound { reason: error.to_string() });
        }
        Ok(map)
    }

    /// Takes the memory of all slabs from the system, the ranks of a node on one thread.
    fn touch_all(
        &self,
        fresh: &[Fresh],
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(), HostError> {
        let total = Bytes(fresh.iter().map(|fresh| fresh.slab.map().bytes() as u64).sum());
        let mut nodes = self.options.nodes.clone();
        nodes.sort_unstable();
        nodes.dedup();
        let stop = AtomicBool::new(false);
        let mut failed = None;
        std::thread::scope(|scope| {
            // A slow listener slows the threads down; nothing piles up.
            let (tell, hear) = sync_channel(16);
            for node in nodes {
                let (tell, stop) = (tell.clone(), &stop);
                scope.spawn(move || {
                    let own = |fresh: &&Fresh| self.options.nodes[fresh.rank] == node;
                    for fresh in fresh.iter().filter(own) {
                        let outcome = self.touch_one(fresh, stop, |bytes| {
                            // The listener stays until all senders are gone.
                            drop(tell.send(Ok((fresh.part, fresh.rank, bytes))));
                        });
                        if let Err(error) = outcome {
                            stop.store(true, Ordering::Relaxed);
                            drop(tell.send(Err(error)));
                            return;
                        }
                    }
                });
            }
            drop(tell);
            let mut done = Bytes(0);
            for news in hear {
                match news {
                    Ok((part, rank, bytes)) => {
                        done.0 += bytes as u64;
                        let part = self.parts[part].layout.name;
                        progress(Progress { part, rank, done, total });
                    }
                    Err(error) => failed = failed.take().or(Some(error)),
                }
            }
        });
        failed.map_or(Ok(()), Err)
    }

    fn touch_one(
        &self,
        fresh: &Fresh,
        stop: &AtomicBool,
        mut tell: impl FnMut(usize),
    ) -> Result<(), HostError> {
        let map = fresh.slab.map();
        let (part, place) = (&self.parts[fresh.part], (fresh.rank, fresh.number));
        let failed = |step, source| self.failed(part, place, map.bytes(), step, source);
        for from in (0..map.bytes()).step_by(TOUCH) {
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            self.system.touch(map, from).map_err(|error| failed(SlabStep::Touch, error))?;
            tell(TOUCH.min(map.bytes() - from));
        }
        if self.options.lock {
            self.system.lock(map).map_err(|error| failed(SlabStep::Lock, error))?;
        }
        Ok(())
    }

    fn failed(
        &self,
        part: &HostPart,
        (rank, slab): (usize, usize),
        bytes: usize,
        step: SlabStep,
        source: io::Error,
    ) -> HostError {
        let (part, node) = (part.layout.name, self.options.nodes[rank]);
        HostError::Slab { part, rank, slab, node, bytes: Bytes(bytes as u64), step, source }
    }
}

/// Whether the system has no NUMA policy at all, or not for this process.
fn binds_nothing(error: &io::Error) -> bool {
    use io::ErrorKind as K;
    matches!(error.kind(), K::Unsupported | K::PermissionDenied)
}
