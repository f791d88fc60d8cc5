//! `/internal/load`: what a router asks every worker, health and load in one answer.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use engine::EngineSnapshot;
use protocol::internal::{LoadLimits, LoadQueued, LoadReport, LoadRole, LoadState};
use transfer::PeerSnapshot;

use super::{Api, json};
use crate::cli::Role;
use crate::lifecycle::{Needs, Phase};

/// The load of now. Reads snapshots only: it never waits for the engine.
pub(super) async fn load(State(api): State<Arc<Api>>) -> Response {
    json(StatusCode::OK, &api.load())
}

impl Api {
    /// What a router is told.
    #[must_use]
    pub fn load(&self) -> LoadReport {
        let snapshot = self.snapshot();
        let (queue, engine) = (snapshot.queue, snapshot.engine);
        let limits = self.live.values().limits;
        let millis =
            |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let computes = self.role != Role::Decode;
        LoadReport {
            instance_id: format!("{:016x}", self.nonce),
            role: match self.role {
                Role::Unified => LoadRole::Unified,
                Role::Prefill => LoadRole::Prefill,
                Role::Decode => LoadRole::Decode,
            },
            model: self.model_name.clone(),
            fingerprint: self.link.get().map(|(_, common)| common.clone()).unwrap_or_default(),
            state: self.load_state(snapshot.phase),
            queued: queue.map_or_else(LoadQueued::default, |queue| LoadQueued {
                requests: queue.requests as u64,
                tokens: queue.pending_tokens,
                uncached_tokens: queue.pending_uncached_tokens,
            }),
            limits: LoadLimits {
                requests: limits.max_queued_requests as u64,
                tokens: queue.map_or(0, |queue| queue.limit_tokens),
                drain_ms: millis(limits.ttft_objective),
            },
            drain_ms: queue.map_or(0, |queue| millis(queue.drain)),
            prefill_rate: queue.filter(|_| computes).map_or(0.0, |queue| queue.prefill_rate),
            running: engine.as_ref().map_or(0, |engine| engine.running as u64),
            running_limit: engine.as_ref().map_or(0, |engine| engine.running_limit as u64),
            free_tokens: engine.as_ref().map_or(0, |engine| self.free_tokens(engine)),
            place_ms: queue
                .filter(|queue| !queue.next_place.is_zero())
                .map(|q| millis(q.next_place)),
            peers_up: self.peers_up(),
        }
    }

    fn load_state(&self, phase: Phase) -> LoadState {
        match phase {
            Phase::HostPools | Phase::Loading | Phase::Warming => LoadState::Starting,
            Phase::Ready if self.life.is_held() => LoadState::Draining,
            Phase::Ready if self.life.is_ready() => LoadState::Ready,
            // It waits for its peers.
            Phase::Ready => LoadState::Starting,
            Phase::Draining => LoadState::Draining,
            Phase::Failed => LoadState::Failed,
        }
    }

    /// What the server lacks, and what it has not finished.
    pub(super) fn needs(&self) -> Needs {
        let (missing_peers, can_serve) = self.missing_peers();
        let needs = Needs { missing_peers, can_serve, ..Needs::default() };
        let Some(serving) = self.serving() else { return needs };
        let engine = serving.engine.snapshot();
        let kv_in = engine.prealloc.requests + engine.transfer.requests;
        let kv_out = engine.bootstrap.requests + engine.inflight_send.requests;
        let own = engine.running + engine.waiting + engine.retracted.requests;
        Needs { in_flight: own + kv_in + kv_out, kv_in, kv_out, ..needs }
    }

    /// Decode: the prefill workers whose link is not up, and whether one is.
    fn missing_peers(&self) -> (Vec<(String, String)>, bool) {
        if self.role != Role::Decode {
            return (Vec::new(), true);
        }
        let peers = self.link().map(|link| link.snapshot().peers).unwrap_or_default();
        let one_is_up = peers.iter().any(|peer| peer.up);
        let why = |peer: PeerSnapshot| {
            let trouble = peer.trouble.unwrap_or_else(|| "there is no connection yet".to_owned());
            (peer.peer.as_str().to_owned(), trouble)
        };
        (peers.into_iter().filter(|peer| !peer.up).map(why).collect(), one_is_up)
    }

    /// Tokens for which every pool that keeps all positions has pages, or cached ones that can go.
    fn free_tokens(&self, engine: &EngineSnapshot) -> u64 {
        let full = engine.pools.iter().zip(&self.windows).filter(|(_, window)| window.is_none());
        let pages = full.map(|(pool, _)| {
            let used = pool.device.used_active.0;
            pool.device.capacity.0.saturating_sub(used)
        });
        pages.min().unwrap_or(0).saturating_mul(self.page_tokens as u64)
    }

    /// Decode: the prefill workers whose link is up.
    fn peers_up(&self) -> Option<Vec<String>> {
        if self.role != Role::Decode {
            return None;
        }
        let peers = self.link().map(|link| link.snapshot().peers).unwrap_or_default();
        let up = peers.into_iter().filter(|peer| peer.up);
        Some(up.map(|peer| peer.peer.as_str().to_owned()).collect())
    }
}
