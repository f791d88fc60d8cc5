//! The bounds of the engine, checked against the model before anything is allocated.

use std::time::Duration;

use kv_cache::{CacheOptions, CurveOptions, CurveWindow, HostTier, PoolSet, PoolSpec, Retention};
use model::ModelSpec;
use types::{Bytes, Pages};

/// Bounds of the engine. Every field is a hard limit, none is a hint.
#[derive(Debug, Clone, PartialEq)]
pub struct EngineConfig {
    /// Most requests in the running batch; at least 1.
    pub max_running: usize,
    /// Token budget of one step, decode rows and prompt chunks together; at least `max_running`,
    /// so that no decode row ever waits for the budget.
    pub max_batch_tokens: usize,
    /// Most prompt tokens of one request in one step; at least 1.
    pub prefill_chunk: usize,
    /// Pages of each KV pool of the model, in the order of `PoolId`; at least 1 each.
    pub pool_pages: Vec<usize>,
    /// Most submissions that may lie between the front door and the engine's next step.
    pub max_submissions: usize,
    /// Whether pages stay cached for requests with the same beginning.
    pub prefix_cache: bool,
    /// The tier of pages in host memory; only with `prefix_cache`.
    pub host: Option<HostTier>,
    /// Which computed pages keep their part in a window pool.
    pub retention: Retention,
    /// The hit ratios to estimate, where the prefix cache is on and somebody wants to know.
    pub hit_curve: Option<HitCurveConfig>,
    /// Who runs before whom, and for how long.
    pub scheduling: Scheduling,
    /// Start of the randomness of requests that bring no seed.
    pub seed: u64,
}

/// What the hit-ratio curve is drawn for.
#[derive(Debug, Clone, PartialEq)]
pub struct HitCurveConfig {
    /// Host to device ratios to follow, beside the device alone.
    pub ratios: Vec<f64>,
    /// Pages followed at most; ratios that need more are left out.
    pub max_pages: usize,
}

/// The rules among requests. The default is first come, first served within a priority, and no
/// time limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scheduling {
    /// By so many levels of effective priority a waiting request must exceed a running one to
    /// take its place; 0: never.
    pub preemption_threshold: u32,
    /// Whether tenants of equal priority take turns by the tokens they were served.
    pub fair_share: bool,
    /// Longest time that a request may wait to start, from its permit on; `None` is no limit.
    pub queue_timeout: Option<Duration>,
    /// Longest time that a request may spend in the running batch; `None` is no limit.
    pub request_timeout: Option<Duration>,
}

impl Default for Scheduling {
    fn default() -> Self {
        Self {
            preemption_threshold: 10,
            fair_share: false,
            queue_timeout: None,
            request_timeout: None,
        }
    }
}

/// A setting with which the engine could not work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A field that must be at least 1 is 0.
    #[error("{field} is 0 and must be at least 1")]
    Zero {
        /// The field of [`EngineConfig`].
        field: &'static str,
    },
    /// Decode rows alone would pass the budget of a step.
    #[error(
        "max_batch_tokens is {max_batch_tokens} and must be at least max_running, {max_running}"
    )]
    BudgetBelowRunning {
        /// The value given.
        max_batch_tokens: usize,
        /// The least value that works.
        max_running: usize,
    },
    /// More pages than a page id can name.
    #[error("pool_pages is {0} and must be below 2^32")]
    TooManyPages(usize),
    /// As many page counts as pools are needed.
    #[error("pool_pages has {given} entries and the model has {pools} pools")]
    PoolCount {
        /// Entries given.
        given: usize,
        /// Pools of the model.
        pools: usize,
    },
    /// The model's pools do not fit the prefix cache.
    #[error(
        "the prefix cache needs KV pools with pages of equal length, one of them without a window; \
         switch it off for this model"
    )]
    Uncacheable,
    /// A host tier without a prefix cache would never be used.
    #[error("a host tier needs the prefix cache, which is off")]
    HostWithoutCache,
    /// Host pages that do not mirror those of the device.
    #[error("host pages are {host:?} and must be, pool by pool, at least the device's, {device:?}")]
    HostPages {
        /// Host pages given.
        host: Vec<usize>,
        /// Device pages given.
        device: Vec<usize>,
    },
    /// The model declares no KV pool, or one with empty pages.
    #[error("the model declares no usable KV pool")]
    NoPool,
}

impl EngineConfig {
    /// Checks every bound against the others and the model.
    ///
    /// # Errors
    /// The first bound that cannot hold.
    pub fn check(&self, spec: &ModelSpec) -> Result<(), ConfigError> {
        let fields = [
            ("max_running", self.max_running),
            ("prefill_chunk", self.prefill_chunk),
            ("pool_pages", self.pool_pages.iter().copied().min().unwrap_or(0)),
            ("max_submissions", self.max_submissions),
        ];
        if let Some((field, _)) = fields.into_iter().find(|(_, value)| *value == 0) {
            return Err(ConfigError::Zero { field });
        }
        if self.max_batch_tokens < self.max_running {
            let (max_batch_tokens, max_running) = (self.max_batch_tokens, self.max_running);
            return Err(ConfigError::BudgetBelowRunning { max_batch_tokens, max_running });
        }
        if let Some(pages) = self.pool_pages.iter().find(|pages| u32::try_from(**pages).is_err()) {
            return Err(ConfigError::TooManyPages(*pages));
        }
        if spec.pools.is_empty() || spec.pools.iter().any(|pool| pool.page_tokens == 0) {
            return Err(ConfigError::NoPool);
        }
        let (given, pools) = (self.pool_pages.len(), spec.pools.len());
        if given != pools {
            return Err(ConfigError::PoolCount { given, pools });
        }
        if self.prefix_cache && !PoolSet::can_cache(&self.pools(spec)) {
            return Err(ConfigError::Uncacheable);
        }
        self.host.as_ref().map_or(Ok(()), |host| self.check_host(host))
    }

    fn check_host(&self, host: &HostTier) -> Result<(), ConfigError> {
        if !self.prefix_cache {
            return Err(ConfigError::HostWithoutCache);
        }
        let (host, device) = (host.pages.clone(), self.pool_pages.clone());
        if let Some(pages) = host.iter().find(|pages| u32::try_from(**pages).is_err()) {
            return Err(ConfigError::TooManyPages(*pages));
        }
        if host.len() != device.len() || host.iter().zip(&device).any(|(host, own)| host < own) {
            return Err(ConfigError::HostPages { host, device });
        }
        Ok(())
    }

    /// How pages are shared.
    pub(crate) fn cache(&self) -> CacheOptions {
        let (host, retention) = (self.host.clone(), self.retention);
        CacheOptions { enabled: self.prefix_cache, host, retention }
    }

    /// The most tokens, prompt and answer together, that one request may ever have.
    #[must_use]
    pub fn max_request_tokens(&self, spec: &ModelSpec) -> usize {
        let pools = self.pools(spec);
        let held = pools.iter().map(|pool| {
            let pages = usize::try_from(pool.capacity.0).unwrap_or(usize::MAX);
            // A window pool that holds a window and a chunk holds requests of any length.
            if pool.pages_at_most(spec.max_context, self.prefill_chunk) <= pages {
                spec.max_context
            } else {
                pool.page_tokens.saturating_mul(pages)
            }
        });
        held.chain([spec.max_context]).min().unwrap_or(0)
    }

    /// What the hit-ratio curve needs to know, where one is wanted and pages are cached.
    pub(crate) fn curve(&self, spec: &ModelSpec) -> Option<CurveOptions> {
        let wanted = self.hit_curve.as_ref().filter(|_| self.prefix_cache)?;
        let pools = self.pools(spec);
        let pages = |pool: &PoolSpec| usize::try_from(pool.capacity.0).unwrap_or(usize::MAX);
        let full = pools.iter().find(|pool| pool.window.is_none())?;
        let window = pools
            .iter()
            .find(|pool| pool.window.is_some())
            .map(|pool| CurveWindow { device_pages: pages(pool), retention: self.retention });
        Some(CurveOptions {
            page_tokens: full.page_tokens,
            device_pages: pages(full),
            window,
            ratios: wanted.ratios.clone(),
            computes_last_token: true,
            max_pages: wanted.max_pages,
        })
    }

    /// The pools of a model of `spec` with these page counts.
    pub(crate) fn pools(&self, spec: &ModelSpec) -> Vec<PoolSpec> {
        let pools = spec.pools.iter().zip(&self.pool_pages);
        let spec = |(pool, pages): (&model::PoolSpec, &usize)| PoolSpec {
            name: pool.name,
            page_tokens: pool.page_tokens,
            page_bytes: Bytes(pool.page_bytes()),
            capacity: Pages(*pages as u64),
            window: pool.window,
        };
        pools.map(spec).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kv_cache::WritePolicy;
    use model::{FakeOptions, FakeRunner, ModelRunner};

    #[test]
    fn each_impossible_bound_is_named() {
        let runner = FakeRunner::new(FakeOptions::default());
        let good = EngineConfig {
            max_running: 4,
            max_batch_tokens: 4,
            prefill_chunk: 1,
            pool_pages: vec![2],
            max_submissions: 1,
            prefix_cache: true,
            host: None,
            retention: Retention::default(),
            hit_curve: None,
            scheduling: Scheduling::default(),
            seed: 0,
        };
        let check = |config: &EngineConfig| config.check(runner.spec()).map_err(|e| e.to_string());
        assert_eq!(check(&good), Ok(()));
        assert_eq!(good.max_request_tokens(runner.spec()), 32);
        let bad = EngineConfig { max_batch_tokens: 3, ..good.clone() };
        assert!(check(&bad).is_err_and(|text| text.contains("at least max_running, 4")));
        let bad = EngineConfig { prefill_chunk: 0, ..good.clone() };
        assert!(check(&bad).is_err_and(|text| text.contains("prefill_chunk is 0")));
        let bad = EngineConfig { pool_pages: vec![1 << 32], ..good.clone() };
        assert!(check(&bad).is_err_and(|text| text.contains("below 2^32")));
        let bad = EngineConfig { pool_pages: vec![2, 2], ..good.clone() };
        assert!(check(&bad).is_err_and(|text| text.contains("2 entries and the model has 1")));
        let tier = |pages: usize, policy| {
            let threshold = HostTier::LOAD_BACK_THRESHOLD;
            Some(HostTier {
                pages: vec![pages],
                policy,
                load_back_threshold: threshold,
                storage: false,
            })
        };
        let through = WritePolicy::WriteThrough;
        let tiered = EngineConfig { host: tier(2, through), ..good.clone() };
        assert_eq!(check(&tiered), Ok(()));
        let bad = EngineConfig { prefix_cache: false, ..tiered };
        assert!(check(&bad).is_err_and(|text| text.contains("needs the prefix cache")));
        let bad = EngineConfig { host: tier(1, through), ..good.clone() };
        assert!(check(&bad).is_err_and(|text| text.contains("at least the device's, [2]")));
        let back = EngineConfig { host: tier(2, WritePolicy::WriteBack), ..good.clone() };
        assert_eq!(check(&back), Ok(()));
        let windowed = FakeRunner::new(FakeOptions { window: Some(32), ..FakeOptions::default() });
        let host = Some(HostTier { pages: vec![2; 2], ..tier(2, through).expect("a tier") });
        let tiered = EngineConfig { host, pool_pages: vec![2; 2], ..good };
        assert_eq!(tiered.check(windowed.spec()), Ok(()));
    }
}
