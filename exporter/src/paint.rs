//! Composes what is handed out: the metrics page and the verdict, once every interval.
//!
//! It reads slots and writes bytes; it collects nothing and answers nobody.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use metric_catalog::page::Page;

use crate::config::Config;
use crate::facts::{Facts, Slots};
use crate::health::{Input, Judge, Verdict, report};
use crate::hostcache::join::Join;
use crate::service::State;
use crate::slot::{FRESH_INTERVALS, Now};
use crate::{dcgm, gpu, hostcache, maintenance, node, page, service};

/// What is handed out, as bytes.
#[derive(Debug, Clone, Default)]
pub struct Painted {
    /// The metrics page.
    pub metrics: Bytes,
    /// The verdict with its reasons, as JSON.
    pub health: Bytes,
    /// The verdict.
    pub healthy: bool,
    /// Every collector has tried once.
    pub started: bool,
}

/// Where the last of it hangs. Clones share the place.
#[derive(Debug, Clone, Default)]
pub struct Board(Arc<Mutex<Arc<Painted>>>);

impl Board {
    /// What was painted last.
    #[must_use]
    pub fn get(&self) -> Arc<Painted> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// From now on this.
    pub fn set(&self, painted: Painted) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(painted);
    }
}

/// Paints again and again.
#[derive(Debug)]
pub struct Painter {
    config: Arc<Config>,
    slots: Slots,
    sandboxed: bool,
    hostname: String,
    judge: Judge,
}

impl Painter {
    /// For these slots. Reads the name of the host.
    #[must_use]
    pub fn new(config: Arc<Config>, slots: Slots, sandboxed: bool) -> Self {
        let hostname = dcgm::hostname(&config.paths.procfs);
        Self { config, slots, sandboxed, hostname, judge: Judge::default() }
    }

    /// What is known at `now`, and what the process itself takes. The reason of a change of the
    /// verdict is logged.
    pub fn paint(&mut self, now: Now, own: Option<node_info::Process>, board: &Board) {
        let facts = self.slots.view(now);
        let states = service::states(&self.config.services, &facts);
        let numa = facts.numa.facts.as_deref();
        let headroom = numa.map(|numa| numa.headroom(self.config.reserve)).unwrap_or_default();
        let joined = hostcache::page::of_facts(&states, &facts, &headroom);
        let input = Input { config: &self.config, facts: &facts, states: &states, joined: &joined };
        let verdict = self.judge.judge(&input);
        let mut page = Page::new();
        page::program(self.sandboxed, &mut page);
        if let Some(own) = &own {
            page::process(own, &mut page);
        }
        report::page(&verdict, &mut page);
        self.families(&facts, &states, &joined, &mut page);
        page::collectors(&facts, &mut page);
        let before = board.get();
        let painted = Painted {
            metrics: page.render().into(),
            health: report::json(&verdict, now).into(),
            healthy: verdict.healthy,
            started: before.started || started(&facts),
        };
        if before.started && before.healthy != verdict.healthy {
            say(&verdict);
        }
        board.set(painted);
    }

    /// What the node has.
    fn families(&self, facts: &Facts, states: &[State<'_>], joined: &Join, page: &mut Page) {
        let config = &self.config;
        gpu::page::gpu(facts, config, page);
        if config.compat_dcgm {
            dcgm::page(facts, &self.hostname, page);
        }
        node::page::numa(&facts.numa, config.reserve, page);
        node::page::pressure(&facts.pressure, page);
        node::page::rdma(&facts.rdma, &config.rdma_required, page);
        service::page::service(states, facts, page);
        hostcache::page::hostcache(states, joined, page);
        maintenance::page(&facts.maintenance, page);
    }
}

/// Whether every collector has ended once, or hangs.
fn started(facts: &Facts) -> bool {
    facts.statuses().iter().all(|status| {
        let tried = status.last_success.is_some() || status.error.is_some();
        tried || !status.is_supported() || status.stuck > status.interval * FRESH_INTERVALS
    })
}

fn say(verdict: &Verdict) {
    if verdict.healthy {
        tracing::info!("The node is fit to serve.");
        return;
    }
    for judged in verdict.checks.iter().filter(|judged| !judged.passes) {
        tracing::warn!(
            check = judged.check.as_str(),
            scope = judged.scope,
            severity = judged.severity.as_str(),
            outcome = ?judged.outcome,
            "The node is not fit to serve."
        );
    }
}
