//! The API: routes, what they share, and the layers around them.
//!
//! It knows the wire and the front door, not the engine's insides: a request leaves here as a
//! [`crate::generate::Generation`].

mod admin;
pub mod body;
pub mod error;
mod glance;
pub(crate) mod guard;
pub mod listener;
mod load;
mod openai;
mod ops;
mod plan;
mod prompt;
mod record;
mod remote;
mod respond;
pub(crate) mod settings;
mod socket;
mod tenant;
mod tokens;
mod tools;
mod usage;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use admission::AdmissionController;
use axum::Router;
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use engine::Handle;
use kv_store::KvStore;
use metric_catalog::install::Registry;
use model::ModelSpec;
use protocol::ApiError;
use serde::Serialize;
use tokenizer::Tokenizer;
use tokio::sync::Semaphore;
use types::{Clock, RequestId};

use crate::cli::{PrefixCacheScope, PriorityOrder, Role, ToolCallParser};
use crate::config::{Resolved, Secret};
use crate::host_tier::Facts;
use crate::lifecycle::{Lifecycle, Needs, Phase};
use crate::live::{Live, Values};
use crate::pd::Link;
use crate::plan::live::Advisor;
use crate::probes;
use crate::structured::Structures;
use crate::telemetry::gauges::{Gauges, Snapshot};
use crate::telemetry::http::HttpMetrics;
use crate::telemetry::requests::RequestMetrics;
use crate::telemetry::settings::SettingsMetrics;
use error::Failure;
pub use guard::Peer;

/// What exists once the model is loaded.
#[derive(Clone)]
pub struct Serving {
    /// The engine.
    pub engine: Handle,
    /// The front door's bounds.
    pub admission: Arc<AdmissionController>,
    /// The model's text.
    pub tokenizer: Arc<Tokenizer>,
    /// The model's sizes.
    pub spec: ModelSpec,
    /// Compiles what answers must look like.
    pub structures: Structures,
}

/// What all handlers share.
pub struct Api {
    /// The process's clock.
    pub clock: Clock,
    /// Where the process is in its life.
    pub life: Arc<Lifecycle>,
    /// All series.
    pub registry: Registry,
    /// The name clients use.
    pub model_name: String,
    /// Longest prompt and answer together.
    pub(crate) max_context: usize,
    body: body::BodyLimits,
    max_unsent: usize,
    /// Requests that run at a time.
    max_running: usize,
    cache_scope: PrefixCacheScope,
    /// What a number in `priority` means.
    priority_order: PriorityOrder,
    /// The header that names the tenant.
    tenant_header: HeaderName,
    created: u64,
    serving: OnceLock<Serving>,
    tier: OnceLock<Arc<Facts>>,
    store: OnceLock<KvStore>,
    tool_call_parser: ToolCallParser,
    /// One permit for each prompt that may be tokenised at a time.
    tokenizing: Arc<Semaphore>,
    /// One for each that may be looked at meanwhile.
    glancing: Arc<Semaphore>,
    stretch: Arc<glance::Stretch>,
    aside: tokens::Aside,
    http: Arc<HttpMetrics>,
    pub(crate) requests: RequestMetrics,
    gauges: Gauges,
    advisor: Advisor,
    nonce: u64,
    next_id: AtomicU64,
    /// Settings that can change.
    pub(crate) live: Live<Values>,
    /// The drain that an admin asked for.
    drain: admin::Drain,
    /// What this worker is.
    role: Role,
    /// Prefill: the decode workers of the configuration.
    decode_peers: Vec<String>,
    /// What lets others than this host change settings.
    admin_token: Option<Secret>,
    /// What a worker of a pair talks to its peers by, and what it must have in common with them.
    link: OnceLock<(Link, String)>,
    /// The window of each pool.
    windows: Vec<Option<usize>>,
    page_tokens: usize,
}

impl Api {
    /// An API that refuses to serve until [`open`](Self::open).
    #[must_use]
    pub fn new(
        resolved: &Resolved,
        registry: Registry,
        life: Arc<Lifecycle>,
        clock: Clock,
    ) -> Arc<Self> {
        let settings = &resolved.settings;
        crate::telemetry::record_build(&registry);
        let api = Arc::new(Self {
            clock,
            life,
            model_name: resolved.model_name.clone(),
            max_context: resolved.max_context,
            body: body::BodyLimits {
                bytes: usize::try_from(settings.max_body_bytes.0).unwrap_or(usize::MAX),
                time: settings.body_timeout.0,
            },
            max_unsent: settings.max_unsent_tokens,
            max_running: settings.load.max_running_requests,
            cache_scope: settings.load.prefix_cache_scope,
            priority_order: settings.order.priority_order,
            tenant_header: settings.order.tenant_header.clone(),
            created: clock.unix_seconds(clock.now()) as u64,
            serving: OnceLock::new(),
            tier: OnceLock::new(),
            store: OnceLock::new(),
            tool_call_parser: settings.tool_call_parser,
            tokenizing: Arc::new(Semaphore::new(settings.machine.tokenizer_threads)),
            glancing: Arc::new(Semaphore::new(settings.machine.tokenizer_threads)),
            stretch: Arc::default(),
            aside: tokens::Aside::new(settings.machine.max_tokenize_requests),
            http: HttpMetrics::new(&registry, clock),
            requests: RequestMetrics::new(&registry),
            gauges: Gauges::new(&registry, clock, resolved),
            advisor: Advisor::new(resolved),
            live: Live::new(
                Values::new(settings),
                settings.config.is_some().then(|| settings.given.clone()),
                SettingsMetrics::new(&registry, clock),
            ),
            registry,
            // Seeded by the system; only has to differ from process to process.
            nonce: RandomState::new().build_hasher().finish(),
            next_id: AtomicU64::new(1),
            drain: admin::Drain::default(),
            role: resolved.roles.role,
            decode_peers: resolved.roles.decode_peers.iter().map(ToString::to_string).collect(),
            admin_token: resolved.roles.admin_token.clone(),
            link: OnceLock::new(),
            windows: resolved.pools.iter().map(|pool| pool.window).collect(),
            page_tokens: resolved.page_tokens,
        });
        let asked = Arc::downgrade(&api);
        let needs = move || asked.upgrade().map_or_else(Needs::default, |api| api.needs());
        api.life.watch(Box::new(needs));
        api
    }

    /// Places of prompts that are being tokenised.
    #[cfg(test)]
    pub(crate) fn tokenizing(&self) -> Arc<Semaphore> {
        Arc::clone(&self.tokenizing)
    }

    /// From now on requests are served. A second call changes nothing.
    pub fn open(&self, serving: Serving) {
        drop(self.serving.set(serving));
        // What has changed since the start; what changes from here on finds what serves.
        if let Some(serving) = self.serving() {
            serving.apply(&self.live.values());
        }
        let now = self.clock.now();
        self.advisor.begin(now);
        crate::telemetry::gauges::record_ready(&self.registry, self.clock.unix_seconds(now));
    }

    /// What serves, once the model is loaded.
    #[must_use]
    pub fn serving(&self) -> Option<&Serving> {
        self.serving.get()
    }

    /// The host tier has its memory. A second call changes nothing.
    pub fn has_tier(&self, facts: Facts) {
        drop(self.tier.set(Arc::new(facts)));
    }

    /// The store behind the host tier is open. A second call changes nothing.
    pub fn has_store(&self, store: KvStore) {
        drop(self.store.set(store));
    }

    /// The link to the other workers of a pair is open; `fingerprint` is what those have in common
    /// with this one. A second call changes nothing.
    pub fn has_link(&self, link: Link, fingerprint: String) {
        drop(self.link.set((link, fingerprint)));
    }

    /// What a worker of a pair talks to its peers by.
    #[must_use]
    pub fn link(&self) -> Option<&Link> {
        self.link.get().map(|(link, _)| link)
    }

    /// What sizes of the host tier would be worth.
    #[must_use]
    pub(crate) const fn advisor(&self) -> &Advisor {
        &self.advisor
    }

    /// A number that differs from process to process.
    #[must_use]
    pub const fn nonce(&self) -> u64 {
        self.nonce
    }

    /// Most choices of one request that can ever be admitted together: open slots of the batch
    /// count beyond the queue.
    fn max_together(&self) -> usize {
        match self.live.values().limits.max_queued_requests {
            0 => usize::MAX,
            queued => queued.saturating_add(self.max_running),
        }
    }

    /// Everything that gauges are set from.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let now = self.clock.now();
        let queue = self.serving().map(|serving| serving.admission.snapshot(now));
        let engine = self.serving().map(|serving| serving.engine.snapshot());
        let curve = self.serving().and_then(|serving| serving.engine.curve());
        let failed = engine.as_ref().is_some_and(|e| e.state == engine::EngineState::Failed);
        let phase = if failed { Phase::Failed } else { self.life.phase() };
        let tier = self.tier.get().map(Arc::clone);
        let store = self.store.get().map(KvStore::stats);
        let link = self.link().map(Link::snapshot);
        Snapshot { now, phase, queue, engine, curve, tier, store, link }
    }

    /// Who takes what happens on the link to the other workers of a pair.
    pub(crate) fn transfer_observer(&self) -> Arc<dyn transfer::TransferObserver> {
        self.gauges.transfer_observer()
    }

    pub(crate) fn next_id(&self) -> RequestId {
        RequestId(self.next_id.fetch_add(1, Ordering::Relaxed))
    }

    /// A name for a request that came without one.
    fn new_request_id(&self) -> HeaderValue {
        let text = format!("req-{:016x}-{}", self.nonce, self.next_id());
        HeaderValue::from_str(&text).expect("letters, digits and dashes")
    }
}

/// All routes with their layers.
pub fn router(api: &Arc<Api>) -> Router {
    Router::new()
        .route("/v1/models", get(openai::models))
        .route("/v1/models/{*model}", get(openai::model))
        .route("/v1/completions", post(openai::completions))
        .route("/v1/chat/completions", post(openai::chat))
        .route("/tokenize", post(tokens::tokenize))
        .route("/detokenize", post(tokens::detokenize))
        .route("/metrics", get(ops::metrics))
        .route("/version", get(ops::version))
        .merge(internal(api))
        .merge(admin(api))
        .merge(probes::routes(&api.life))
        .method_not_allowed_fallback(method_not_allowed)
        .fallback(not_found)
        .layer(from_fn_with_state(Arc::clone(api), record::record))
        .with_state(Arc::clone(api))
}

/// What other processes of ours ask.
fn internal(api: &Arc<Api>) -> Router<Arc<Api>> {
    Router::new()
        .route("/internal/plan", get(plan::plan))
        .route("/internal/load", get(load::load))
        .route_layer(from_fn_with_state(Arc::clone(api), guard::internal))
}

/// What changes the server.
fn admin(api: &Arc<Api>) -> Router<Arc<Api>> {
    Router::new()
        .route("/admin/config", get(settings::of_server).post(settings::change_server))
        .route("/admin/drain", post(admin::drain).delete(admin::undrain))
        .route_layer(from_fn_with_state(Arc::clone(api), guard::admin))
}

async fn not_found(uri: Uri) -> Failure {
    ApiError::unknown_path(uri.path()).into()
}

async fn method_not_allowed(method: Method, uri: Uri) -> Failure {
    ApiError::method_not_allowed(method.as_str(), uri.path()).into()
}

/// A JSON body.
fn json<T: Serialize>(status: StatusCode, body: &T) -> Response {
    match serde_json::to_vec(body) {
        Ok(bytes) => (status, [(header::CONTENT_TYPE, "application/json")], bytes).into_response(),
        Err(error) => {
            tracing::error!(%error, "An answer could not be written as JSON.");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}
