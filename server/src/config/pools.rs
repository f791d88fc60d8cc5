//! How a budget of bytes is shared out among the KV pools of a model.

use kv_cache::PoolSpec;
use model::ModelSpec;
use types::{Bytes, Pages};

use super::AssumedPools;
use super::findings::{Class, Finding, Findings};
use crate::cli::Settings;

/// One KV pool as each rank allocates it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolPlan {
    /// Its name, a label value.
    pub name: &'static str,
    /// Layers whose rows a page holds.
    pub layers: usize,
    /// Tokens of a page.
    pub page_tokens: usize,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// Positions that a token sees in this pool; `None`: all of them.
    pub window: Option<usize>,
    /// How many pages.
    pub pages: usize,
}

impl PoolPlan {
    /// Bytes of the pool.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.page_bytes.saturating_mul(self.pages as u64)
    }

    /// Tokens the pool can hold.
    #[must_use]
    pub const fn tokens(&self) -> usize {
        self.page_tokens.saturating_mul(self.pages)
    }

    /// The most pages that a request of `tokens` tokens holds, computed in chunks of `chunk`.
    pub(super) fn pages_for(&self, tokens: usize, chunk: usize) -> usize {
        let spec = PoolSpec {
            name: self.name,
            page_tokens: self.page_tokens,
            page_bytes: Bytes(self.page_bytes),
            capacity: Pages(self.pages as u64),
            window: self.window,
        };
        spec.pages_at_most(tokens, chunk)
    }

    /// The longest request that fits, in tokens; `None` where it may have any length, because the
    /// pool gives back what its window has left behind.
    pub(super) fn longest(&self, chunk: usize) -> Option<usize> {
        let any = self.window.is_some() && self.pages_for(usize::MAX, chunk) <= self.pages;
        if any { None } else { Some(self.tokens()) }
    }
}

/// The pools of a model before and after they have a size.
pub(super) struct Shares {
    pub(super) pools: Vec<PoolPlan>,
    /// Tokens of the longest request that is wanted.
    context: usize,
    chunk: usize,
    running: u64,
}

impl Shares {
    pub(super) fn new(settings: &Settings, spec: &ModelSpec) -> Self {
        let unsized_pool = |pool: &model::PoolSpec| PoolPlan {
            name: pool.name,
            layers: pool.layers(),
            page_tokens: pool.page_tokens,
            page_bytes: pool.page_bytes(),
            window: pool.window,
            pages: 0,
        };
        let load = &settings.load;
        Self {
            pools: spec.pools.iter().map(unsized_pool).collect(),
            context: load.max_context.unwrap_or(spec.max_context),
            chunk: chunk(settings),
            running: load.max_running_requests as u64,
        }
    }

    /// Bytes of one page of every pool.
    pub(super) fn page_bytes(&self) -> u64 {
        self.sum(|_| 1).max(1)
    }

    /// Bytes with which one request of the longest kind fits.
    pub(super) fn one_request(&self) -> u64 {
        self.sum(|pool| self.pages_of_one(pool))
    }

    /// Bytes beyond which running requests could use no more.
    pub(super) fn useful(&self) -> u64 {
        let others = self.running.saturating_sub(1);
        let more = self.sum(|pool| self.pages_of_another(pool));
        self.one_request().saturating_add(more.saturating_mul(others))
    }

    /// Shares `budget` bytes out. One request of the longest kind comes first; of what is left,
    /// windows get half, as long as running requests can use it, and the rest is for pools that
    /// keep everything. Where not even that one request fits, all pools hold the longest that does.
    pub(super) fn share_out(&mut self, budget: u64) {
        let windows = self.bytes_of(|pool| pool.window.is_some());
        let whole = self.bytes_of(|pool| pool.window.is_none());
        let largest = |sliding: bool, pages: fn(&Self, &PoolPlan) -> u64| {
            let kind = self.pools.iter().filter(|pool| pool.window.is_some() == sliding);
            kind.map(|pool| pages(self, pool)).max().unwrap_or(0)
        };
        let window_pages = largest(true, Self::pages_of_one);
        let [more_windows, more_whole] = [true, false].map(|s| largest(s, Self::pages_of_another));
        let window_pages = match budget.checked_sub(self.one_request()) {
            Some(rest) => {
                let others = self.running.saturating_sub(1);
                let useful = more_whole.saturating_mul(others).saturating_mul(whole);
                let share = (rest / 2).max(rest.saturating_sub(useful));
                let more = share.checked_div(windows).unwrap_or(0);
                window_pages + more.min(more_windows.saturating_mul(others))
            }
            None => window_pages.min(budget / self.page_bytes()),
        };
        let left = budget.saturating_sub(window_pages.saturating_mul(windows));
        let whole_pages = left.checked_div(whole).unwrap_or(0);
        for pool in &mut self.pools {
            let pages = if pool.window.is_some() { window_pages } else { whole_pages };
            pool.pages = usize::try_from(pages).unwrap_or(usize::MAX);
        }
    }

    /// The pools have so many tokens, whatever they take.
    pub(super) fn assume(&mut self, assumed: AssumedPools, findings: &mut Findings) {
        for pool in &mut self.pools {
            let (flag, tokens) = match pool.window {
                None => ("--assume-device-tokens", assumed.tokens),
                Some(_) => ("--assume-swa-tokens", assumed.window_tokens),
            };
            pool.pages = tokens / pool.page_tokens.max(1);
            if pool.pages == 0 {
                findings.add(Finding {
                    id: "PLAN002",
                    class: Class::Configuration,
                    flag,
                    value: tokens.to_string(),
                    reason: format!("a page of pool {} holds {}", pool.name, pool.page_tokens),
                    fix: format!("{flag} {}, or what the engine's log says", 64 * pool.page_tokens),
                });
            }
        }
    }

    fn pages_of_one(&self, pool: &PoolPlan) -> u64 {
        pool.pages_for(self.context, self.chunk) as u64
    }

    /// Beside others, a request in a window pool reserves the page that its window moves on to.
    fn pages_of_another(&self, pool: &PoolPlan) -> u64 {
        self.pages_of_one(pool) + u64::from(pool.window.is_some())
    }

    fn bytes_of(&self, kind: impl Fn(&PoolPlan) -> bool) -> u64 {
        self.sum(|pool| u64::from(kind(pool)))
    }

    fn sum(&self, pages: impl Fn(&PoolPlan) -> u64) -> u64 {
        let bytes = self.pools.iter().map(|pool| pool.page_bytes.saturating_mul(pages(pool)));
        bytes.fold(0, u64::saturating_add)
    }
}

/// Tokens of one prompt in one step.
pub(super) fn chunk(settings: &Settings) -> usize {
    settings.load.prefill_chunk.unwrap_or(settings.load.max_batch_tokens)
}
