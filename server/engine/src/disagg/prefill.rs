//! Prefill: computed pages go to links while the next layers are computed.
//!
//! A page goes once nothing more comes into it: whole ones of pools without a window with the slice
//! that completes them, what is left with the last slice. The link is told before the pass, and
//! reads a layer once [`LayerProgress`] says that its rows are there. Loads from the host pass the
//! same layers' gates first, so their pages may go with the same pass; pages that were here before
//! go at once, unless a load may still run.
//!
//! What a link was given stays in its page until the link has let go of all of it: the table is
//! held when its request is retracted or ends, and keeps its own page where another request has
//! published the same one.

use memory_pool::LayerProgress;
use types::{RequestId, Time};

use crate::scheduler::Scheduler;
use crate::stats::QueueExit;
use crate::step::Core;

impl Scheduler {
    /// The decode worker has pages for everything behind the first `skip` tokens: the request waits
    /// for its start from now on.
    pub(crate) fn want(
        &mut self,
        id: RequestId,
        skip: usize,
        now: Time,
        exits: &mut Vec<QueueExit>,
    ) {
        let Some(rank) = self.rank_of.get(&id).copied() else { return };
        if self.waiting.bootstrap().get(rank).is_none() {
            return;
        }
        let mut request = self.waiting.remove(rank).expect("it has just been there");
        exits.extend(request.is_wanted(skip, now));
        request.note_cached(&self.pools);
        self.wait(request, now);
    }

    /// Everything of a running request is computed: it gives up its slot and keeps its pages.
    pub(crate) fn send_off(&mut self, rank: admission::Rank, now: Time) {
        let mut request = self.running.remove(rank).expect("a planned row runs");
        self.deadlines.remove(&request);
        request.send_off(now);
        self.sending.insert(request, 0, 0);
    }
}

impl Core {
    /// Tells links of the pages that the planned step completes.
    pub(crate) fn send_chunks(&mut self) {
        let Self { scheduler, plan, runner, .. } = self;
        let there = plan.batch.loads.is_none();
        let mut progress = None;
        for row in plan.rows.iter().filter(|row| !row.decode) {
            let request = scheduler.running.get_mut(row.rank).expect("a planned row runs");
            if request.sends() {
                let progress = progress.get_or_insert_with(|| {
                    LayerProgress::new(runner.memories().len().max(1), runner.spec().layers())
                });
                request.send_chunk(row.len, &scheduler.pools, progress, there);
            }
        }
        plan.batch.progress = progress;
    }

    /// Tells links how the pass ended.
    pub(crate) fn end_pass(&mut self, ran: bool) {
        if let Some(progress) = self.plan.batch.progress.take() {
            if ran { progress.finish() } else { progress.fail() }
        }
    }
}
