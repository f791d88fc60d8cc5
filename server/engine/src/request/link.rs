//! A request whose prompt is computed elsewhere, or for somebody else: what it says to its link.

use std::time::Duration;

use kv_cache::{Lookup, NoRoom, PoolSet};
use memory_pool::LayerProgress;
use transfer::{CachedTokens, Chunk, Failure, LandPages, Landing, RemoteTimes, Sending};
use types::{PoolId, Time};

use super::{Phase, Request, Taken};
use crate::output::RemotePhases;
use crate::stats::QueueExit;

/// Decode: where the KV of a prompt comes from.
pub(crate) struct Inbox {
    link: Box<dyn Landing>,
    /// Of the prompt, what was here when it was given pages: on the device, and on the host.
    device: usize,
    host: usize,
    /// When the prefill worker began, as far as it has said so.
    started: Option<Time>,
}

/// Prefill: where the KV of a prompt goes.
pub(crate) struct Outbox {
    link: Box<dyn Sending>,
    /// Tokens that the decode worker has, in whole pages; none is sent before that is known.
    skip: usize,
    /// Tokens up to which pages of pools without a window were sent, as far as they were whole.
    sent: usize,
    /// The number of the last chunk; 0 before the first.
    fence: u64,
    /// Whether the link was given a page.
    on_wire: bool,
    cached: CachedTokens,
}

impl Inbox {
    pub(super) fn new(link: Box<dyn Landing>) -> Self {
        Self { link, device: 0, host: 0, started: None }
    }
}

impl Outbox {
    pub(super) fn new(link: Box<dyn Sending>) -> Self {
        let cached = CachedTokens::default();
        Self { link, skip: 0, sent: 0, fence: 0, on_wire: false, cached }
    }

    pub(super) fn note_cached(&mut self, taken: Taken) {
        self.cached.device += taken.device;
        self.cached.host += taken.host;
        self.cached.storage += taken.storage;
    }
}

impl Request {
    /// Whether a link has still something to do for it.
    pub(crate) const fn has_link(&self) -> bool {
        self.inbox.is_some() || self.outbox.is_some()
    }

    /// Prefill: whether its KV goes to somebody.
    pub(crate) const fn sends(&self) -> bool {
        self.outbox.is_some()
    }

    /// Whether a link may still read pages of it.
    pub(crate) fn is_on_wire(&self) -> bool {
        self.outbox.as_ref().is_some_and(|outbox| outbox.on_wire)
    }

    /// Decode: takes what is here of its prompt, and pages for all of it but its last token; they
    /// are filled from elsewhere from now on.
    ///
    /// # Errors
    /// There is no room, and nothing has changed.
    ///
    /// # Panics
    /// Where its prompt is not computed elsewhere.
    pub(crate) fn reserve_landing(&mut self) -> Result<(), NoRoom> {
        let computed = self.tokens.len() - 1;
        let inbox = self.inbox.as_mut().expect("its prompt is computed elsewhere");
        let table = &mut self.table;
        let landed = table.land(&self.namespace, &self.tokens, computed, Lookup::First)?;
        inbox.device = landed.prefix_tokens - landed.host_tokens;
        inbox.host = landed.host_tokens;
        if let Some(follower) = &self.follower {
            follower.looked_up(self.prompt_tokens);
        }
        self.was_looked_up = true;
        Ok(())
    }

    /// Decode: tells the link about its pages, which nobody else uses any more.
    pub(crate) fn tell_landed(&mut self, pools: &PoolSet) {
        let computed = self.tokens.len() - 1;
        let inbox = self.inbox.as_mut().expect("its prompt is computed elsewhere");
        let skip = inbox.device + inbox.host;
        let pages = (0..).map(PoolId).zip(pools.specs()).map(|(pool, spec)| {
            let (first, pages) = self.table.pages(pool);
            let from = spec.first_kept(computed).max(skip / spec.page_tokens);
            let pages = pages[from - first..].to_vec();
            LandPages { pool, first_index: from, pages }
        });
        inbox.link.land(computed, skip, pages.collect());
    }

    /// Tokens whose rows are in its pages.
    #[cfg(test)]
    pub(crate) fn here(&self) -> usize {
        match &self.inbox {
            Some(inbox) => inbox.device + inbox.host,
            None => self.computed,
        }
    }

    /// Decode: tokens of its prompt that are to come, or are computed here at the end.
    pub(crate) fn missing(&self) -> u64 {
        let here = self.inbox.as_ref().map_or(0, |inbox| inbox.device + inbox.host);
        (self.prompt_tokens - here) as u64
    }

    /// Decode: the prefill worker has begun.
    pub(crate) fn note_started(&mut self, now: Time) {
        if let Some(inbox) = &mut self.inbox {
            inbox.started.get_or_insert(now);
        }
    }

    /// Decode: all of its pages are filled. Returns where the KV of its prompt came from.
    pub(crate) fn arrive(&mut self, times: RemoteTimes, now: Time) -> (Taken, Option<QueueExit>) {
        let inbox = self.inbox.take().expect("its pages were being filled");
        let landed = self.queued_since;
        let took = now.since(landed);
        let started = inbox.started.map(|started| started.since(landed));
        let queued = started.unwrap_or(times.queued).min(took);
        let prefill = times.prefill.min(took - queued);
        self.timings.queued += queued;
        let (transfer, decode_queue) = (took - queued - prefill, Duration::ZERO);
        self.timings.remote = Some(RemotePhases { prefill, transfer, decode_queue });
        let exit = self.advance_to(|_| Phase::Landed, now);
        let prefix = inbox.device + inbox.host;
        let remote = self.cover(self.prompt_tokens - 1).prompt - prefix;
        self.cached += prefix;
        self.remote_tokens += remote;
        self.publish();
        let (device, host) = (inbox.device as u64, inbox.host as u64);
        (Taken { device, host, storage: 0, remote: remote as u64 }, exit)
    }

    /// Prefill: the decode worker has pages for everything behind the first `skip` tokens.
    pub(crate) fn is_wanted(&mut self, skip: usize, now: Time) -> Option<QueueExit> {
        let outbox = self.outbox.as_mut()?;
        outbox.skip = skip;
        self.advance_to(
            |before| match before {
                Phase::Bootstrap(permit) => Phase::Waiting(permit),
                other @ (Phase::Waiting(_)
                | Phase::Prealloc(_)
                | Phase::Transfer
                | Phase::Landed
                | Phase::Prefill(_)
                | Phase::Decode
                | Phase::Retracted
                | Phase::Sending) => other,
            },
            now,
        )
    }

    /// Prefill: hands the link the pages that a slice of `len` tokens completes, the last partial
    /// ones and those of windows with the last slice. `progress` is that of the pass that computes
    /// the slice; with `there`, the rows of earlier positions are in their pages already.
    pub(crate) fn send_chunk(
        &mut self,
        len: usize,
        pools: &PoolSet,
        progress: &LayerProgress,
        there: bool,
    ) {
        let (total, end) = (self.tokens.len(), self.computed + len);
        let last = end == total;
        let Self { outbox: Some(outbox), table, computed, .. } = self else { return };
        let (mut early, mut pages) = (Vec::new(), Vec::new());
        for (pool, spec) in (0..).map(PoolId).zip(pools.specs()) {
            let skip = outbox.skip / spec.page_tokens;
            let to = if last { spec.pages_for(total) } else { end / spec.page_tokens };
            let from = match spec.window {
                None => (outbox.sent / spec.page_tokens).max(skip),
                Some(_) if last => spec.first_kept(total).max(skip),
                Some(_) => continue,
            };
            let (first, held) = table.pages(pool);
            let page = |index: usize| (pool, index, held[index - first]);
            // Pages of windows may hold state that every slice changes.
            let is_there = there && spec.window.is_none();
            let whole = if is_there { (*computed / spec.page_tokens).max(from) } else { from };
            early.extend((from..whole).map(page));
            pages.extend((whole..to).map(page));
        }
        outbox.sent = outbox.sent.max(end);
        if !early.is_empty() || !pages.is_empty() {
            outbox.on_wire = true;
            table.hold_swapped(true);
        }
        let cached = outbox.cached;
        if !early.is_empty() {
            outbox.fence += 1;
            let fence = outbox.fence;
            outbox.link.chunk(Chunk { fence, pages: early, progress: None, last: false, cached });
        }
        if !pages.is_empty() || last || outbox.fence == 0 {
            outbox.fence += 1;
            let (fence, progress) = (outbox.fence, Some(progress.clone()));
            outbox.link.chunk(Chunk { fence, pages, progress, last, cached });
        }
    }

    /// Prefill: everything is computed; its pages stay until the decode worker has them.
    pub(crate) fn send_off(&mut self, now: Time) {
        self.phase = Phase::Sending;
        self.queued_since = now;
    }

    /// Its link has told of the end itself.
    pub(crate) fn link_is_over(&mut self) {
        self.told_over = true;
    }

    /// Tells its link, if it has one that does not know, that the request is over. Whether its
    /// pages must stay until the link has let go of them.
    pub(crate) fn abandon_link(&mut self, why: Failure) -> bool {
        let landing = matches!(self.phase, Phase::Transfer);
        let on_wire = self.is_on_wire();
        let (inbox, outbox) = (self.inbox.take(), self.outbox.take());
        if self.told_over {
            return landing || on_wire;
        }
        if let Some(mut inbox) = inbox {
            inbox.link.abandon(why);
        }
        if let Some(mut outbox) = outbox {
            outbox.link.abandon(why);
        }
        landing || on_wire
    }
}
