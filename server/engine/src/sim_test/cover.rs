//! What a world has reached, counted when it is over.

use super::world::World;
use crate::PreemptReason;

impl World {
    /// Counts it all.
    pub(super) fn cover(&mut self) {
        let told = self.watcher.0.lock().expect("one thread");
        let coverage = &mut self.coverage;
        for end in &told.ends {
            coverage.end(end);
        }
        let phases = crate::StepPhase::ALL.map(|phase| (phase, told.phases[phase as usize]));
        for (phase, steps) in phases {
            coverage.count(&format!("steps: {phase:?}"), steps);
        }
        for reason in PreemptReason::ALL {
            let times = told.preempted[reason as usize];
            coverage.count(&format!("preempted for {reason:?}"), times);
        }
        for (what, pages) in &told.ages {
            coverage.count(what, *pages);
        }
        let links = self.links.lock().expect("one thread");
        for (what, times) in &links.counts {
            coverage.count(what, *times);
        }
        drop(links);
        let window = self.conditions.model.window.is_some();
        let counts = [
            ("preemptions", told.preemptions),
            ("tokens generated", told.generated),
            ("tokens recomputed", told.recomputed),
            ("prompt tokens taken from the cache", told.cached),
            ("prompt tokens loaded from the host", told.cached_host),
            ("requests held by a copy", told.held),
            ("prompt tokens that links have brought", told.remote),
            ("landed requests that were retracted", told.landed_retracted),
            ("requests", self.accepted.len() as u64),
            ("seeds", 1),
            ("seeds with a window", u64::from(window)),
        ];
        for (what, times) in counts {
            coverage.count(what, times);
        }
        let (Some(copies), Some(tier)) = (&self.copies, &self.conditions.config.host) else {
            return;
        };
        let done = copies.lock().expect("one thread").done;
        coverage.count("seeds with a host tier", 1);
        coverage.count(&format!("seeds with {:?}", tier.policy), 1);
        coverage.count("seeds with a host tier and a window", u64::from(window));
        let counts = [
            ("backups", done.backups),
            ("loads", done.loads),
            ("copies that found the queue full", done.refused),
            ("waits at a gate", done.gates),
            ("waits for a whole copy", done.waits),
            ("copies that failed", done.failed),
        ];
        for (what, times) in counts {
            coverage.count(what, times);
        }
        for pool in self.core.scheduler.pools.host_stats().into_iter().flatten() {
            coverage.count("backups dropped for the queue", pool.backups_dropped.queue);
            coverage.count("backups dropped for host pages", pool.backups_dropped.no_host_room);
            coverage.count("pages evicted from the host", pool.evicted_pages.capacity);
        }
    }
}
