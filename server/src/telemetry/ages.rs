//! How long cached pages had lain unused when they were given up or used again.

use engine::{Age, AgeEvent, CacheTier};
use metric_catalog::install::{HistogramHandle, Registry};
use metric_catalog::labels::{PageEvent, Pool, Tier};
use metric_catalog::server as catalog;

use super::all;
use crate::config::Resolved;

/// Handles by tier, pool of page ids and event; none of a tier that there is not.
#[derive(Debug)]
pub(super) struct AgeHandles(Vec<Vec<Vec<HistogramHandle>>>);

impl AgeHandles {
    pub(super) fn new(registry: &Registry, resolved: &Resolved) -> Self {
        let of = |tier: Tier, pool: &'static str| {
            all(|event| registry.histogram(catalog::KV_PAGE_AGE, (tier, Pool::new(pool), event)))
        };
        let is_there = |tier: &Tier| match tier {
            Tier::Device => true,
            Tier::Host => resolved.hierarchy.is_some(),
        };
        let pools = |tier: &Tier| {
            let pools = resolved.kv.iter().filter(|_| is_there(tier));
            pools.map(|pool| of(*tier, pool.name)).collect()
        };
        Self(Tier::ALL.iter().map(pools).collect())
    }

    pub(super) fn record(&self, ages: &[Age]) {
        for Age { pool, tier, event, age, pages } in ages {
            let tier = match tier {
                CacheTier::Device => Tier::Device,
                CacheTier::Host => Tier::Host,
            };
            let event = match event {
                AgeEvent::Evicted => PageEvent::Evicted,
                AgeEvent::Reused => PageEvent::Reused,
            };
            if let Some(events) = self.0[tier.index()].get(usize::from(pool.0)) {
                events[event.index()].record_durations(*age, *pages);
            }
        }
    }
}
