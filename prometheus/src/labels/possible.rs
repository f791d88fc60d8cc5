//! What some labels mean beyond their values: folding, and combinations that can occur.

use super::*;

impl RejectReason {
    /// Refusals of requests that had a place in the queue; those are among the admitted ones, too.
    pub const AFTER_ADMISSION: [Self; 2] = [Self::PriorityEvicted, Self::QueueTimeout];
}

impl Route {
    /// The template of a path; whatever is not ours is `other`.
    pub fn of_path(path: &str) -> Self {
        let below = |start: &str, end: &str| {
            let name = path.strip_prefix(start).and_then(|rest| rest.strip_suffix(end));
            name.is_some_and(|name| !name.is_empty())
        };
        match path {
            "/livez" | "/readyz" | "/startupz" => Self::Health,
            _ if below("/v1/models/", "") => Self::Model,
            _ if below("/admin/workers/", "/drain") => Self::AdminWorker,
            _ if below("/admin/workers/", "") && path.matches('/').count() == 3 => {
                Self::AdminListed
            }
            _ => {
                let fixed = |route: &Self| !route.as_str().contains('{') && route.as_str() == path;
                Self::ALL.iter().copied().find(fixed).unwrap_or(Self::Other)
            }
        }
    }
}

impl Method {
    /// The value for a method as it stands in the request line.
    pub fn from_name(name: &str) -> Self {
        Self::ALL.iter().copied().find(|method| method.as_str() == name).unwrap_or(Self::Other)
    }

    /// Methods that a route answers with something else than 405.
    const fn served_by(self, route: Route) -> bool {
        match route {
            Route::Completions | Route::ChatCompletions | Route::Tokenize | Route::Detokenize => {
                matches!(self, Self::Post)
            }
            Route::AdminConfig => matches!(self, Self::Get | Self::Head | Self::Post),
            Route::AdminDrain | Route::AdminWorker => matches!(self, Self::Post | Self::Delete),
            Route::AdminWorkers => matches!(self, Self::Post),
            Route::AdminListed => matches!(self, Self::Delete),
            Route::Models
            | Route::Model
            | Route::Metrics
            | Route::Version
            | Route::Plan
            | Route::Load
            | Route::Workers
            | Route::Health => matches!(self, Self::Get | Self::Head),
            Route::Other => true,
        }
    }
}

impl StatusCode {
    /// The value for a numeric status.
    ///
    /// The server answers with the declared ones only. Should it ever answer with another, it is
    /// counted as the general status of its class (200, 400 or 500), so that nothing is lost.
    pub fn from_code(code: u16) -> Self {
        match code {
            400 => Self::S400,
            403 => Self::S403,
            404 => Self::S404,
            405 => Self::S405,
            408 => Self::S408,
            412 => Self::S412,
            413 => Self::S413,
            415 => Self::S415,
            428 => Self::S428,
            429 => Self::S429,
            499 => Self::S499,
            502 => Self::S502,
            503 => Self::S503,
            504 => Self::S504,
            401..=498 => Self::S400,
            500.. => Self::S500,
            _ => Self::S200,
        }
    }
}

/// Combinations of `http_requests_total` that can occur.
pub(crate) fn http_possible(
    role: Role,
    &(route, method, status): &(Route, Method, StatusCode),
) -> bool {
    use StatusCode as S;
    if !method.served_by(route) {
        return status == S::S405;
    }
    let inference = matches!(route, Route::Completions | Route::ChatCompletions);
    let tokens = matches!(route, Route::Tokenize | Route::Detokenize);
    if role == Role::Router && (inference || tokens) {
        // Whatever a worker answers goes through a router, also that of another program.
        return true;
    }
    let local = !matches!(status, S::S502 | S::S504);
    let body = matches!(status, S::S400 | S::S408 | S::S413 | S::S415);
    match route {
        // A prefill worker says that it is none for clients.
        Route::Completions | Route::ChatCompletions if role == Role::Prefill => {
            body || matches!(status, S::S404 | S::S499 | S::S503)
        }
        Route::Completions | Route::ChatCompletions => !of_admins(status) && status != S::S405,
        Route::Tokenize | Route::Detokenize => local && !of_admins(status) && status != S::S405,
        Route::Model => matches!(status, S::S200 | S::S404),
        Route::Models | Route::Metrics | Route::Version => status == S::S200,
        Route::Plan | Route::Load | Route::Workers => matches!(status, S::S200 | S::S403),
        Route::AdminConfig => body || of_admins(status) || status == S::S200,
        Route::AdminDrain => body || matches!(status, S::S200 | S::S403),
        Route::AdminWorker => matches!(status, S::S200 | S::S403 | S::S404),
        Route::AdminWorkers => body || matches!(status, S::S200 | S::S403 | S::S503),
        Route::AdminListed => {
            matches!(status, S::S200 | S::S400 | S::S403 | S::S404 | S::S503)
        }
        Route::Health => matches!(status, S::S200 | S::S503),
        Route::Other => status == S::S404,
    }
}

/// Statuses that only those see who change settings.
const fn of_admins(status: StatusCode) -> bool {
    matches!(status, StatusCode::S403 | StatusCode::S412 | StatusCode::S428)
}

/// Combinations of `requests_aborted_total` that can occur.
pub(crate) fn abort_possible(
    _role: Role,
    &(stage, initiator, reason): &(AbortStage, AbortInitiator, AbortReason),
) -> bool {
    let by = match reason {
        AbortReason::ClientGone => AbortInitiator::Client,
        AbortReason::SlowClient
        | AbortReason::DrainDeadline
        | AbortReason::Shutdown
        | AbortReason::RunningTimeout => AbortInitiator::Server,
        AbortReason::PeerAbort => AbortInitiator::Peer,
    };
    // Nothing has been sent to a client before decode, so it cannot be slow.
    initiator == by && (reason != AbortReason::SlowClient || stage == AbortStage::Decode)
}

/// Combinations of `kv_transfer_errors_total` that can occur.
pub(crate) fn transfer_error_possible(
    _role: Role,
    &(_, stage, reason): &(TransferSide, TransferEndStage, TransferFailure),
) -> bool {
    use TransferEndStage as At;
    match reason {
        TransferFailure::BootstrapTimeout => stage != At::Wire,
        TransferFailure::WaitingTimeout => stage == At::Wire,
        // A message that breaks costs the connection, whatever waits for it.
        TransferFailure::Checksum
        | TransferFailure::PeerAbort
        | TransferFailure::LocalAbort
        | TransferFailure::Connect
        | TransferFailure::Alloc
        | TransferFailure::PeerGone
        | TransferFailure::Protocol
        | TransferFailure::RestoreFailed
        | TransferFailure::Internal => true,
    }
}

/// Combinations of `router_decisions_total` that can occur.
pub(crate) fn decision_possible(
    _role: Role,
    &(policy, branch): &(RouterPolicy, RouterBranch),
) -> bool {
    use RouterBranch as B;
    let own = match policy {
        RouterPolicy::CacheAware => matches!(branch, B::CacheHit | B::LeastLoad | B::LoadGuard),
        RouterPolicy::LeastPendingTokens | RouterPolicy::PowerOfTwo => branch == B::LeastLoad,
        RouterPolicy::RoundRobin => branch == B::Turn,
        RouterPolicy::PrefixHash => matches!(branch, B::Hash | B::LoadGuard),
    };
    own || branch == B::Only
}
