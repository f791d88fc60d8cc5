//! Labels: closed sets of values, and open ones with a bound.
//!
//! Only values that the product can record today are here; `LATER` in `promql` lists the values
//! that rules already name for roles to come. No label is ever taken from what a client sends
//! without being folded into a closed set first (`Route`, `Method`, `StatusCode`).

mod possible;

use std::borrow::Cow;

use crate::def::{Label, LabelInfo, Values};

pub(crate) use possible::{abort_possible, http_possible};

macro_rules! closed {
    ($(
        $(#[$doc:meta])+
        $name:ident : $label:literal {
            $($(#[$value_doc:meta])+ $value:ident = $text:literal),+ $(,)?
        }
    )+) => {$(
        $(#[$doc])+
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name {
            $($(#[$value_doc])+ $value),+
        }

        impl $name {
            /// Every value, in declaration order.
            pub const ALL: &'static [Self] = &[$(Self::$value),+];

            /// The label value.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$value => $text),+
                }
            }

            /// Position in `ALL`, for tables of handles.
            pub const fn index(self) -> usize {
                self as usize
            }
        }

        impl Label for $name {
            const INFO: LabelInfo =
                LabelInfo { name: $label, values: Values::Closed(&[$($text),+]) };

            fn value(&self) -> Cow<'static, str> {
                Cow::Borrowed(self.as_str())
            }

            fn all() -> &'static [Self] {
                Self::ALL
            }
        }
    )+};
}

macro_rules! open {
    ($($(#[$doc:meta])+ $name:ident : $label:literal, $bound:literal, $why:literal;)+) => {$(
        $(#[$doc])+
        #[derive(Debug, Clone, PartialEq, Eq, Hash)]
        pub struct $name(Cow<'static, str>);

        impl $name {
            /// A value; the caller keeps to the bound. Must not be empty.
            pub fn new(value: impl Into<Cow<'static, str>>) -> Self {
                Self(value.into())
            }
        }

        impl Label for $name {
            const INFO: LabelInfo =
                LabelInfo { name: $label, values: Values::Open { bound: $bound, why: $why } };

            fn value(&self) -> Cow<'static, str> {
                self.0.clone()
            }

            fn all() -> &'static [Self] {
                &[]
            }
        }
    )+};
}

mod store;

pub use store::*;

closed! {
    /// What the process does; a constant label of every series it exports.
    Role: "engine_role" {
        /// Prefill and decode in one process.
        Unified = "unified",
    }
    /// Queue that a request waits in.
    Queue: "queue" {
        /// Admitted, not yet scheduled.
        Waiting = "waiting",
        /// Preempted, to be computed again.
        Retracted = "retracted",
    }
    /// Kind of batch that a forward pass ran.
    Phase: "phase" {
        /// Only prompt tokens.
        Prefill = "prefill",
        /// Only one token per request.
        Decode = "decode",
        /// Both.
        Mixed = "mixed",
    }
    /// Kind of scheduler turn: a batch, or nothing to run.
    Turn: "phase" {
        /// Ran a prefill batch.
        Prefill = "prefill",
        /// Ran a decode batch.
        Decode = "decode",
        /// Ran a mixed batch.
        Mixed = "mixed",
        /// Found nothing to run.
        Idle = "idle",
    }
    /// Exclusive stage of the scheduler loop; the stages add up to elapsed time.
    Stage: "stage" {
        /// Blocked, with nothing to do.
        Wait = "wait",
        /// Taking in submissions and aborts.
        Events = "events",
        /// Choosing the batch and its pages.
        Schedule = "schedule",
        /// Forward pass of the model.
        Forward = "forward",
        /// Choosing tokens from logits.
        Sample = "sample",
        /// Handing tokens out and ending requests.
        Commit = "commit",
        /// Reporting.
        Observe = "observe",
    }
    /// Why a request was refused before any header was sent.
    RejectReason: "reason" {
        /// Too many requests wait.
        QueueRequestsFull = "queue_requests_full",
        /// Too many tokens wait.
        QueueTokensFull = "queue_tokens_full",
        /// What waits takes longer than the objective.
        DrainTime = "drain_time",
        /// The server is shutting down.
        Draining = "draining",
        /// The engine has failed.
        Unhealthy = "unhealthy",
        /// The request itself is wrong.
        Invalid = "invalid",
        /// It waited, and a more important request took its place.
        PriorityEvicted = "priority_evicted",
        /// It waited longer than it may.
        QueueTimeout = "queue_timeout",
    }
    /// How important a request is, folded from its number.
    Priority: "priority" {
        /// Above the default.
        High = "high",
        /// The default.
        Normal = "normal",
        /// Below the default.
        Low = "low",
    }
    /// How a request left the engine.
    Outcome: "outcome" {
        /// End of text, stop string or stop token.
        Stop = "stop",
        /// Token limit reached.
        Length = "length",
        /// The answer is a call of the client's tools.
        ToolCall = "tool_call",
        /// Given up before its end.
        Aborted = "aborted",
        /// The engine could not go on.
        Error = "error",
    }
    /// Where a request was when it was given up.
    AbortStage: "stage" {
        /// In a queue.
        Queued = "queued",
        /// Its prompt was being computed.
        Prefill = "prefill",
        /// It was producing tokens.
        Decode = "decode",
    }
    /// Who gave a request up.
    AbortInitiator: "initiator" {
        /// The client.
        Client = "client",
        /// This server.
        Server = "server",
    }
    /// Why a request was given up.
    AbortReason: "reason" {
        /// The connection is gone.
        ClientGone = "client_gone",
        /// The client does not read what it asked for.
        SlowClient = "slow_client",
        /// Still running when the time to drain was over.
        DrainDeadline = "drain_deadline",
        /// The process stops without draining.
        Shutdown = "shutdown",
        /// It ran longer than it may.
        RunningTimeout = "running_timeout",
    }
    /// Objective that a request is judged against.
    Slo: "slo" {
        /// Time to first token.
        Ttft = "ttft",
        /// Worst gap between tokens.
        Itl = "itl",
        /// Time to the end.
        E2e = "e2e",
    }
    /// Verdict.
    SloResult: "result" {
        /// Within the objective.
        Good = "good",
        /// Not.
        Bad = "bad",
    }
    /// Why a running request was retracted.
    PreemptReason: "reason" {
        /// No page was free for its next token.
        KvPressure = "kv_pressure",
        /// A more important request needed its place.
        Priority = "priority",
    }
    /// Tokens whose work was thrown away.
    PreemptedKind: "kind" {
        /// Of the prompt.
        Input = "input",
        /// Generated.
        Output = "output",
    }
    /// Where the KV of prompt tokens came from.
    PromptSource: "source" {
        /// A forward pass here.
        Computed = "computed",
        /// Pages of the device that an earlier request left.
        Device = "device",
        /// Pages of the host tier, loaded for it.
        Host = "host",
        /// Pages that came from storage.
        Storage = "storage",
    }
    /// Memory that a pool lives in.
    Tier: "tier" {
        /// Memory of the device that computes.
        Device = "device",
        /// Memory of the host.
        Host = "host",
    }
    /// What ended the time that cached pages lay unused.
    PageEvent: "event" {
        /// They were given up for room.
        Evicted = "evicted",
        /// A request took them.
        Reused = "reused",
    }
    /// Which way pages are copied between the tiers.
    CopyDirection: "direction" {
        /// From the host to the device.
        Load = "load",
        /// From the device to the host.
        Backup = "backup",
    }
    /// Why a page got no copy.
    CopyFailure: "reason" {
        /// Every host page is a copy of one of the device, or is being copied.
        NoHostRoom = "no_host_room",
        /// Too many copies wait already.
        QueueFull = "queue_full",
    }
    /// Copies that a forward pass waited for.
    CopyWait: "cause" {
        /// Loads of pages that it read, layer by layer.
        Loads = "loads",
        /// Copies that had to end before it began: of pages that were somebody else's already.
        Urgent = "urgent",
    }
    /// Whether memory lies on the node that it was meant for.
    Local: "local" {
        /// It does, or was meant for none in particular.
        True = "true",
        /// It lies on another.
        False = "false",
    }
    /// Why the hit-ratio curve started again from nothing.
    CurveReset: "reason" {
        /// The cache was emptied.
        Flush = "flush",
    }
    /// State of used slots of a pool.
    SlotState: "state" {
        /// Pinned: by live requests; on the host by the same page of the device, and by copies.
        Active = "active",
        /// Kept for requests to come; given up when pages are needed.
        Cached = "cached",
    }
    /// Why cached slots were given up.
    EvictReason: "reason" {
        /// A live request needed the pages.
        Capacity = "capacity",
        /// Pages of another pool, of the same tokens, are gone.
        Pressure = "pressure",
        /// Everything cached was dropped.
        Flush = "flush",
    }
    /// Lifecycle of the engine; one is 1.
    EngineState: "state" {
        /// Reading weights.
        Loading = "loading",
        /// Measuring and warming up.
        Warming = "warming",
        /// Serving.
        Ready = "ready",
        /// Finishing what runs, taking nothing new.
        Draining = "draining",
        /// Dead; every request is refused.
        Failed = "failed",
    }
    /// Exclusive part of the time to first token.
    TtftPhase: "phase" {
        /// From accept to tokens.
        Tokenize = "tokenize",
        /// In the queue.
        Queue = "queue",
        /// From the first chunk to the first token sent.
        Prefill = "prefill",
    }
    /// Part of the start-up.
    StartupPhase: "phase" {
        /// Taking the memory of the host tier.
        HostPools = "host_pools",
        /// Reading and packing weights.
        Load = "load",
        /// Allocating KV pools.
        Pools = "pools",
        /// First passes.
        Warmup = "warmup",
    }
    /// Whether the client asked for a stream.
    Streaming: "streaming" {
        /// One event a token.
        True = "true",
        /// One body at the end.
        False = "false",
    }
    /// Template of the path of an HTTP request.
    Route: "route" {
        /// Completions.
        Completions = "/v1/completions",
        /// Chat completions.
        ChatCompletions = "/v1/chat/completions",
        /// Models served.
        Models = "/v1/models",
        /// One of them.
        Model = "/v1/models/{model}",
        /// Text to tokens.
        Tokenize = "/tokenize",
        /// Tokens to text.
        Detokenize = "/detokenize",
        /// Metrics page.
        Metrics = "/metrics",
        /// Version.
        Version = "/version",
        /// Advice on the size of the host tier.
        Plan = "/internal/plan",
        /// Readiness, on the API port too.
        Health = "/health",
        /// Any other path.
        Other = "other",
    }
    /// Method of an HTTP request.
    Method: "method" {
        /// GET.
        Get = "GET",
        /// POST.
        Post = "POST",
        /// HEAD.
        Head = "HEAD",
        /// PUT.
        Put = "PUT",
        /// DELETE.
        Delete = "DELETE",
        /// PATCH.
        Patch = "PATCH",
        /// OPTIONS.
        Options = "OPTIONS",
        /// Any other.
        Other = "OTHER",
    }
    /// Final status of an HTTP request.
    StatusCode: "status_code" {
        /// OK.
        S200 = "200",
        /// Bad request.
        S400 = "400",
        /// Not found.
        S404 = "404",
        /// Method not allowed.
        S405 = "405",
        /// Body not received in time.
        S408 = "408",
        /// Body too large.
        S413 = "413",
        /// Not JSON.
        S415 = "415",
        /// Refused for lack of capacity.
        S429 = "429",
        /// The client left before the end.
        S499 = "499",
        /// Failed in the server.
        S500 = "500",
        /// Not ready, draining or failed.
        S503 = "503",
    }
}

open! {
    /// Cluster; set by the scrape configuration.
    Cluster: "cluster", 16, "clusters of one Prometheus";
    /// Host; set by the scrape configuration.
    Node: "node", 256, "hosts of one Prometheus";
    /// Scrape job, one for each role; set by the scrape configuration.
    Job: "job", 8, "one for each role";
    /// Address of the scrape target; set by the scrape configuration.
    Instance: "instance", 1024, "targets of one Prometheus";
    /// Model served; a constant label.
    ModelName: "model_name", 1, "one engine serves one model";
    /// Version of the program.
    Version: "version", 1, "constant of the build";
    /// Commit it was built from.
    GitSha: "git_sha", 1, "constant of the build";
    /// Compiler it was built with.
    Rustc: "rustc", 1, "constant of the build";
    /// CUDA version it was built with, or `none`.
    Cuda: "cuda", 1, "constant of the build";
    /// Ranks of tensor parallelism.
    TpSize: "tp_size", 1, "constant of the configuration";
    /// Ranks of data parallelism.
    DpSize: "dp_size", 1, "constant of the configuration";
    /// Element type of the KV cache.
    KvDtype: "kv_dtype", 1, "constant of the configuration";
    /// Tokens of a page.
    PageTokens: "page_tokens", 1, "constant of the configuration or of the pool";
    /// Mode of the host cache, or `none`.
    HicacheMode: "hicache_mode", 1, "constant of the configuration";
    /// How KV moves between servers, or `none`.
    TransferBackend: "transfer_backend", 1, "constant of the configuration";
    /// Layers whose KV a pool holds.
    Layers: "layers", 1, "constant of the pool";
    /// Bytes of one slot of a pool.
    SlotBytes: "slot_bytes", 1, "constant of the pool";
    /// Order of the dimensions in a slot.
    Layout: "layout", 1, "constant of the pool";
    /// KV pool of the model served.
    Pool: "pool", 8, "pools of a model: one for dense ones, eight for DeepSeek-V4";
    /// Rank of a tensor-parallel group, from 0.
    TpRank: "tp_rank", 64, "ranks of one process";
    /// Host to device ratio of a candidate size of the host tier; 0 is the device alone.
    HostRatio: "ratio", 16, "the candidates and the ratio in force";
    /// NUMA node, as the kernel numbers them.
    NumaNode: "numa_node", 16, "nodes of one host, or any";
    /// Pool whose indices this one borrows, or `none`.
    DerivedFrom: "derived_from", 1, "constant of the pool";
    /// Operation of the model that a kernel computes.
    Op: "op", 16, "linear layers of the architectures we run, attention, embedding, head";
    /// Weight format of an operation.
    Format: "format", 8, "weight formats we read, and none";
    /// Code path chosen for an operation.
    Kernel: "kernel", 16, "code paths of the kernels crate";
}
