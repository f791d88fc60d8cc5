//! Labels of other engines.
//!
//! Values are closed where the engine's source has them as constants, and open where they come from
//! requests, from the configuration or from a version of their HTTP framework.

use std::borrow::Cow;

use crate::def::{Label, LabelInfo, Values};
use crate::labels::{Role, closed, open_labels as open};

closed! {
    /// What a process of SGLang does.
    EngineType: "engine_type" {
        /// Prefill only.
        Prefill = "prefill",
        /// Decode only.
        Decode = "decode",
        /// Both.
        Unified = "unified",
        /// Changes between them.
        Dynamic = "dynamic",
    }
    /// What SGLang counts tokens as, when they are processed.
    TokenMode: "mode" {
        /// Prompt tokens that were computed.
        PrefillCompute = "prefill_compute",
        /// Prompt tokens whose KV was there.
        PrefillCache = "prefill_cache",
        /// Tokens that were generated.
        Decode = "decode",
    }
    /// What waiting requests of vLLM wait for.
    WaitingReason: "reason" {
        /// Room in the batch or in the pool.
        Capacity = "capacity",
        /// Something that passes: an adapter, a transfer.
        Deferred = "deferred",
    }
    /// How far the KV of a request of vLLM has come.
    FetchStage: "stage" {
        /// Not begun.
        WaitingToStart = "waiting_to_start",
        /// On its way.
        InProgress = "in_progress",
        /// There; the request does not run yet.
        CompletedWaiting = "completed_waiting",
    }
    /// Where the KV of a prompt token of vLLM comes from.
    TokenSource: "source" {
        /// Computed.
        LocalCompute = "local_compute",
        /// In the device's prefix cache.
        LocalCacheHit = "local_cache_hit",
        /// From another tier or process.
        ExternalKvTransfer = "external_kv_transfer",
    }
    /// Which tier held the KV of a prompt token of vLLM.
    CacheHitSource: "source" {
        /// The device.
        Device = "device",
        /// Host memory.
        Host = "host",
        /// Another process.
        P2p = "p2p",
        /// Storage.
        Disk = "disk",
        /// A connector that does not say.
        ExternalUnspecified = "external_unspecified",
    }
    /// State of sleep of a vLLM engine.
    SleepState: "sleep_state" {
        /// It serves.
        Awake = "awake",
        /// Weights are on the host.
        WeightsOffloaded = "weights_offloaded",
        /// Weights are gone.
        DiscardAll = "discard_all",
    }
    /// Which limit of vLLM refuses a request.
    RejectionReason: "reason" {
        /// Requests that may wait.
        MaxNumQueuedReqs = "max_num_queued_reqs",
        /// Tokens that may wait.
        MaxNumQueuedTokens = "max_num_queued_tokens",
    }
    /// How a request of vLLM ended.
    FinishedReason: "finished_reason" {
        /// By a stop condition.
        Stop = "stop",
        /// At its limit.
        Length = "length",
        /// Given up.
        Abort = "abort",
        /// An error.
        Error = "error",
        /// Cut because it repeats itself.
        Repetition = "repetition",
    }
}

open! {
    /// Rank of data parallelism; only where there are several.
    DpRank: "dp_rank", 64, "ranks of one process";
    /// Rank of pipeline parallelism.
    PpRank: "pp_rank", 16, "ranks of one process";
    /// Rank of expert parallelism.
    MoeEpRank: "moe_ep_rank", 128, "ranks of one process";
    /// Data-parallel engine of a vLLM process.
    EngineIndex: "engine", 64, "engines of one process";
    /// Route of SGLang's HTTP server, or what was asked for where there is none.
    Endpoint: "endpoint", 64, "routes of the server";
    /// Route of vLLM's HTTP server, or `none`.
    Handler: "handler", 64, "routes of the server";
    /// Method of an HTTP request.
    HttpMethod: "method", 8, "methods of HTTP";
    /// Status of an HTTP answer, as a number.
    HttpStatusCode: "status_code", 32, "statuses that the server answers with";
    /// Class of the status of an HTTP answer, as `2xx`.
    HttpStatusClass: "status", 5, "classes of status";
    /// Stage of a request, as SGLang names them.
    Stage: "stage", 32, "stages of a request";
    /// What time of SGLang's scheduler or device is spent on.
    Category: "category", 16, "stages of the scheduler, or modes of a pass";
    /// Part of the start of SGLang.
    Phase: "phase", 16, "parts of a start";
    /// Whether the device computed meanwhile.
    ForwardOverlap: "forward_overlap", 2, "yes and no";
    /// Why cached tokens were dropped.
    DropReason: "reason", 8, "causes in the source";
    /// Pool of a tier, as SGLang names them.
    CachePool: "pool", 8, "pools of a tier";
    /// Tier that cached tokens come from; the storage tier with the name of its backend.
    CacheSource: "cache_source", 8, "tiers and storage backends";
}
