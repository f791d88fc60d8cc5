//! What a request takes from the tiers instead of computing it.

use std::ops::Range;

use kv_cache::{Lookup, PoolSet};

use super::Request;
use crate::storage::Text;

/// Prompt tokens taken from the cache for the first time, by where their pages were.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Taken {
    pub(crate) device: u64,
    pub(crate) host: u64,
    pub(crate) storage: u64,
    /// Sent by a prefill worker.
    pub(crate) remote: u64,
}

impl std::ops::AddAssign for Taken {
    fn add_assign(&mut self, more: Self) {
        self.device += more.device;
        self.host += more.host;
        self.storage += more.storage;
        self.remote += more.remote;
    }
}

impl Request {
    /// Takes what is cached of its tokens beyond those in its pages. Returns how many prompt
    /// tokens it has for the first time.
    pub(crate) fn take_cached(&mut self) -> Taken {
        if self.scores_prompt() {
            self.settle();
            return Taken::default();
        }
        let lookup = match (self.was_looked_up, self.preemptions) {
            (false, _) => Lookup::First,
            (true, 0) => Lookup::More,
            (true, _) => Lookup::Again,
        };
        if !self.was_looked_up
            && let Some(follower) = &self.follower
        {
            follower.looked_up(self.prompt_tokens);
        }
        self.was_looked_up = true;
        let attached = self.table.attach_prefix(&self.namespace, &self.tokens, lookup);
        let new = self.ever_computed.max(self.computed);
        let prompt = self.cover(attached.tokens.saturating_sub(self.computed)).prompt;
        self.cached += prompt;
        self.settle();
        // What is loaded lies behind what the device has.
        let loaded = new.max(attached.tokens - attached.host_tokens)..new + prompt;
        let fetched = self.fetched.start.max(loaded.start)..self.fetched.end.min(loaded.end);
        let (loaded, storage) = (loaded.len() as u64, fetched.len() as u64);
        let (device, host) = (prompt as u64 - loaded, loaded - storage);
        let taken = Taken { device, host, storage, remote: 0 };
        if let Some(outbox) = &mut self.outbox {
            outbox.note_cached(taken);
        }
        taken
    }

    /// Whose text it is, and all of it.
    pub(crate) fn text(&self) -> Text<'_> {
        (&self.namespace, &self.tokens)
    }

    /// The pages of these positions have come from storage. Others may have come from elsewhere, or
    /// have got what they lacked in pools with a window.
    pub(crate) fn arrived(&mut self, tokens: Range<usize>, pools: &PoolSet) {
        if !tokens.is_empty() {
            self.fetched = tokens;
        }
        self.note_cached(pools);
    }
}
