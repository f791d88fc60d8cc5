//! What a router does.

use super::*;

closed! {
    /// How a router chooses.
    RouterPolicy: "policy" {
        /// The worker that has most of the prompt cached, unless it has much more to do.
        CacheAware = "cache_aware",
        /// The worker with the fewest tokens to prefill.
        LeastPendingTokens = "least_pending_tokens",
        /// The better of two taken at random.
        PowerOfTwo = "power_of_two",
        /// One after the other.
        RoundRobin = "round_robin",
        /// By a hash of the start of the prompt.
        PrefixHash = "prefix_hash",
    }
    /// How a routed request ended.
    RouterOutcome: "outcome" {
        /// A worker answered it.
        Ok = "ok",
        /// No worker could be chosen.
        NoWorker = "no_worker",
        /// A worker refused it.
        UpstreamRejected = "upstream_rejected",
        /// A worker failed.
        UpstreamError = "upstream_error",
        /// The client left.
        ClientGone = "client_gone",
    }
    /// Why a policy chose as it did.
    RouterBranch: "branch" {
        /// Most of the prompt is believed to be cached there.
        CacheHit = "cache_hit",
        /// It has the least to do.
        LeastLoad = "least_load",
        /// What the policy prefers has too much to do.
        LoadGuard = "load_guard",
        /// The hash of the prompt.
        Hash = "hash",
        /// Its turn.
        Turn = "turn",
        /// There was no other.
        Only = "only",
    }
    /// Why a request was sent again.
    RetryReason: "reason" {
        /// The worker could not be reached.
        Connect = "connect",
        /// The connection broke before the answer began.
        Broken = "broken",
        /// The worker refused it.
        Rejected = "rejected",
        /// The worker failed before the answer began.
        Error = "error",
        /// The worker took too long to begin its answer.
        Timeout = "timeout",
    }
    /// What became of a request that waited while nobody could be asked.
    HoldOutcome: "outcome" {
        /// A worker came back and took it.
        Routed = "routed",
        /// Workers came back and all of them refused it.
        Refused = "refused",
        /// None came back in time.
        Expired = "expired",
        /// Too many waited already: it did not.
        Full = "full",
        /// The client left.
        ClientGone = "client_gone",
        /// The router stopped.
        Draining = "draining",
    }
    /// Who lists workers.
    DiscoverySource: "source" {
        /// Flags.
        Flags = "flags",
        /// A watched file.
        File = "file",
        /// Names that are resolved again and again.
        Dns = "dns",
        /// An operator, while the router runs.
        Admin = "admin",
    }
    /// State of the circuit breaker of a worker.
    CircuitState: "state" {
        /// Requests go there.
        Closed = "closed",
        /// None goes there.
        Open = "open",
        /// A few go there to see whether it is well again.
        HalfOpen = "half_open",
    }
    /// Role of a worker.
    WorkerRole: "worker_role" {
        /// It does both.
        Unified = "unified",
        /// It computes prompts.
        Prefill = "prefill",
        /// It answers.
        Decode = "decode",
    }
}
