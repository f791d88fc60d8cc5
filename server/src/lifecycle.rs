//! The state of the process that probes, admission and the shutdown sequence share.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use serde_json::{Value, json};

/// Where the process is between start and end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// Taking the memory of the host tier, where there is one.
    HostPools,
    /// Reading weights.
    Loading,
    /// Running the warm-up.
    Warming,
    /// Serving.
    Ready,
    /// Finishing what runs, taking nothing new.
    Draining,
    /// The engine has failed; nothing can be served any more.
    Failed,
}

impl Phase {
    /// Every phase, in order.
    pub const ALL: [Self; 6] =
        [Self::HostPools, Self::Loading, Self::Warming, Self::Ready, Self::Draining, Self::Failed];

    /// The name in probes and logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::HostPools => "host_pools",
            Self::Loading => "loading",
            Self::Warming => "warming",
            Self::Ready => "ready",
            Self::Draining => "draining",
            Self::Failed => "failed",
        }
    }
}

/// What keeps a server from being ready, and what keeps it from ending.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Needs {
    /// Peers that are not there, each with the reason.
    pub missing_peers: Vec<(String, String)>,
    /// Whether it can serve without them.
    pub can_serve: bool,
    /// Requests that have not ended.
    pub in_flight: usize,
    /// Of them, those that wait for KV from a peer.
    pub kv_in: usize,
    /// Of them, those whose KV is not at a peer yet.
    pub kv_out: usize,
}

/// Tells the needs of now, without waiting for anything slow.
type Watch = Box<dyn Fn() -> Needs + Send + Sync>;

/// The phase, readable from every thread without waiting.
pub struct Lifecycle {
    phase: AtomicU8,
    /// Drained by an admin: as in a drain, but it can end.
    held: AtomicBool,
    watch: OnceLock<Watch>,
}

impl fmt::Debug for Lifecycle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let held = self.is_held();
        f.debug_struct("Lifecycle").field("phase", &self.phase()).field("held", &held).finish()
    }
}

impl Default for Lifecycle {
    fn default() -> Self {
        Self::new(Phase::Loading)
    }
}

impl Lifecycle {
    /// A life that begins in `first`.
    #[must_use]
    pub const fn new(first: Phase) -> Self {
        Self {
            phase: AtomicU8::new(first as u8),
            held: AtomicBool::new(false),
            watch: OnceLock::new(),
        }
    }

    /// The phase now.
    #[must_use]
    pub fn phase(&self) -> Phase {
        let now = self.phase.load(Ordering::Acquire);
        Phase::ALL.into_iter().find(|phase| *phase as u8 == now).unwrap_or(Phase::Failed)
    }

    /// Moves on to `phase`. Phases only move forward: a late `Ready` does not undo a drain.
    pub fn advance(&self, phase: Phase) {
        self.phase.fetch_max(phase as u8, Ordering::AcqRel);
    }

    /// Whether new requests are refused although the process goes on.
    pub fn hold(&self, held: bool) {
        self.held.store(held, Ordering::Release);
    }

    /// Whether new requests are refused although the process goes on.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.held.load(Ordering::Acquire)
    }

    /// From now on `watch` tells what is needed. A second call changes nothing.
    pub fn watch(&self, watch: Watch) {
        drop(self.watch.set(watch));
    }

    /// What is needed now; before anybody tells, nothing is.
    #[must_use]
    pub fn needs(&self) -> Needs {
        let nothing = || Needs { can_serve: true, ..Needs::default() };
        self.watch.get().map_or_else(nothing, |watch| watch())
    }

    /// Whether requests are served.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.phase() == Phase::Ready && !self.is_held() && self.needs().can_serve
    }

    /// The body of a probe.
    #[must_use]
    pub fn report(&self) -> Value {
        let (phase, needs) = (self.phase(), self.needs());
        let draining = phase == Phase::Draining || (phase == Phase::Ready && self.is_held());
        let state = match phase {
            Phase::Ready if draining => Phase::Draining.as_str(),
            Phase::Ready if !needs.can_serve => "waiting_for_peers",
            Phase::HostPools
            | Phase::Loading
            | Phase::Warming
            | Phase::Ready
            | Phase::Draining
            | Phase::Failed => phase.as_str(),
        };
        let mut report = json!({"state": state});
        if draining {
            report["in_flight"] = needs.in_flight.into();
            report["kv_in"] = needs.kv_in.into();
            report["kv_out"] = needs.kv_out.into();
        }
        if !needs.missing_peers.is_empty() {
            let missing = needs.missing_peers.iter();
            report["missing_peers"] =
                missing.map(|(peer, why)| json!({"peer": peer, "why": why})).collect();
        }
        report
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_only_move_forward() {
        let life = Lifecycle::default();
        assert_eq!(life.phase(), Phase::Loading);
        life.advance(Phase::HostPools);
        assert_eq!(life.phase(), Phase::Loading, "that is behind it");
        life.advance(Phase::Draining);
        life.advance(Phase::Ready);
        assert_eq!(life.phase(), Phase::Draining);
        life.advance(Phase::Failed);
        assert_eq!(life.phase(), Phase::Failed);
        let life = Lifecycle::new(Phase::HostPools);
        assert_eq!(life.phase().as_str(), "host_pools");
        life.advance(Phase::Loading);
        assert_eq!(life.phase(), Phase::Loading);
    }

    #[test]
    fn a_server_is_ready_with_what_it_needs_and_can_be_held() {
        let life = Lifecycle::new(Phase::Ready);
        assert!(life.is_ready());
        assert_eq!(life.report(), json!({"state": "ready"}));
        life.hold(true);
        assert!(!life.is_ready());
        let drained = json!({"state": "draining", "in_flight": 0, "kv_in": 0, "kv_out": 0});
        assert_eq!(life.report(), drained);
        life.hold(false);
        life.watch(Box::new(|| Needs {
            missing_peers: vec![("p:1".to_owned(), "refused".to_owned())],
            ..Needs::default()
        }));
        assert!(!life.is_ready());
        let missing = json!([{"peer": "p:1", "why": "refused"}]);
        let waits = json!({"state": "waiting_for_peers", "missing_peers": missing});
        assert_eq!(life.report(), waits);
    }
}
