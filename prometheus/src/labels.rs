//! Labels: closed sets of values, and open ones with a bound.
//!
//! Only values that the product can record today are here. `of` names the roles that record a value
//! (sets of `roles`); without it every role does that exports the metric. No label is ever taken
//! from what a client sends without being folded into a closed set first (`Route`, `Method`,
//! `StatusCode`).

mod possible;

use std::borrow::Cow;

use crate::def::{Label, LabelInfo, Values};

pub(crate) use possible::{
    abort_possible, decision_possible, http_possible, transfer_error_possible,
};

macro_rules! closed {
    ($(
        $(#[$doc:meta])+
        $name:ident : $label:literal {
            $($(#[$value_doc:meta])+ $value:ident = $text:literal $(of $roles:ident)?),+ $(,)?
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

            fn occurs(&self, role: Role) -> bool {
                let roles = match self {
                    $(Self::$value => closed!(@of $($roles)?)),+
                };
                roles.contains(&role)
            }
        }
    )+};
    (@of) => { $crate::roles::ALL };
    (@of $roles:ident) => { $crate::roles::$roles };
}

macro_rules! open {
    ($($(#[$doc:meta])+ $name:ident : $label:literal, $bound:literal, $why:literal
        $(, $leaves:ident)?;)+) => {$(
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
            const INFO: LabelInfo = LabelInfo {
                name: $label,
                values: Values::Open {
                    bound: $bound,
                    why: $why,
                    leaves: open!(@leaves $($leaves)?),
                },
            };

            fn value(&self) -> Cow<'static, str> {
                self.0.clone()
            }

            fn all() -> &'static [Self] {
                &[]
            }
        }
    )+};
    (@leaves) => { false };
    (@leaves leaves) => { true };
}

pub(crate) use {closed, open as open_labels};

mod http;
mod node;
mod open;
mod pair;
mod router;
mod store;

pub use http::*;
pub use node::*;
pub use open::*;
pub use pair::*;
pub use router::*;
pub use store::*;

closed! {
    /// What the process does; a constant label of every series it exports.
    Role: "engine_role" {
        /// Prefill and decode in one process.
        Unified = "unified",
        /// Computes prompts and hands their KV to a decode worker.
        Prefill = "prefill",
        /// Answers clients from KV that prefill workers computed.
        Decode = "decode",
        /// Spreads requests over workers.
        Router = "router",
    }
    /// Queue that a request waits in.
    Queue: "queue" {
        /// Admitted, not yet scheduled.
        Waiting = "waiting",
        /// Preempted, to be computed again.
        Retracted = "retracted",
        /// Accepted; the decode worker has no room for its KV yet.
        Bootstrap = "bootstrap" of PREFILL,
        /// Computed; the decode worker has not said yet that all of its KV is there.
        InflightSend = "inflight_send" of PREFILL,
        /// A prefill worker has accepted it; it waits for room here.
        Prealloc = "prealloc" of DECODE,
        /// It has room; its KV is being computed or is on its way.
        Transfer = "transfer" of DECODE,
    }
    /// Kind of batch that a forward pass ran.
    Phase: "phase" {
        /// Only prompt tokens.
        Prefill = "prefill",
        /// Only one token per request.
        Decode = "decode" of GENERATING,
        /// Both.
        Mixed = "mixed" of GENERATING,
    }
    /// Kind of scheduler turn: a batch, or nothing to run.
    Turn: "phase" {
        /// Ran a prefill batch.
        Prefill = "prefill",
        /// Ran a decode batch.
        Decode = "decode" of GENERATING,
        /// Ran a mixed batch.
        Mixed = "mixed" of GENERATING,
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
        Stop = "stop" of ANSWERING,
        /// Token limit reached; all that is asked of a prefill worker.
        Length = "length",
        /// The answer is a call of the client's tools.
        ToolCall = "tool_call" of ANSWERING,
        /// Given up before its end.
        Aborted = "aborted",
        /// The engine could not go on.
        Error = "error",
    }
    /// Where a request was when it was given up.
    AbortStage: "stage" {
        /// In a queue; at the router: no worker has answered yet.
        Queued = "queued",
        /// The two workers of a pair had not agreed yet where its KV goes.
        Bootstrap = "bootstrap" of PAIR,
        /// Its prompt was being computed.
        Prefill = "prefill" of ENGINES,
        /// Its KV was being waited for, or on its way.
        Transfer = "transfer" of PAIR,
        /// It was producing tokens.
        Decode = "decode" of ANSWERING,
    }
    /// Who gave a request up.
    AbortInitiator: "initiator" {
        /// The client.
        Client = "client" of ANSWERING,
        /// This server.
        Server = "server",
        /// The decode worker that the prompt was computed for.
        Peer = "peer" of PREFILL,
    }
    /// Why a request was given up.
    AbortReason: "reason" {
        /// The connection is gone.
        ClientGone = "client_gone",
        /// The client does not read what it asked for.
        SlowClient = "slow_client" of ANSWERING,
        /// Still running when the time to drain was over.
        DrainDeadline = "drain_deadline",
        /// The process stops without draining.
        Shutdown = "shutdown",
        /// It ran longer than it may.
        RunningTimeout = "running_timeout",
        /// The decode worker gave it up.
        PeerAbort = "peer_abort" of PREFILL,
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
        /// A prefill worker.
        Remote = "remote" of DECODE,
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
        /// Reading weights; a router: nothing is known of its workers yet.
        Loading = "loading",
        /// Measuring and warming up.
        Warming = "warming" of ENGINES,
        /// Serving.
        Ready = "ready",
        /// Finishing what runs, taking nothing new.
        Draining = "draining",
        /// Dead; every request is refused.
        Failed = "failed" of ENGINES,
    }
    /// Exclusive part of the time to first token.
    TtftPhase: "phase" {
        /// From accept to tokens.
        Tokenize = "tokenize",
        /// In the queue.
        Queue = "queue",
        /// From the first chunk to the first token sent; with a prefill worker: its computing.
        Prefill = "prefill",
        /// Until the two workers of a pair agreed where the KV goes.
        Bootstrap = "bootstrap" of DECODE,
        /// From the end of the prefill until all of its KV is here.
        KvTransfer = "kv_transfer" of DECODE,
        /// With all of its KV here, until it runs.
        DecodeQueue = "decode_queue" of DECODE,
        /// From running to the first token sent.
        FirstDecode = "first_decode" of DECODE,
    }
    /// What became of an attempt to change settings.
    ReloadResult: "result" {
        /// They are in force.
        Ok = "ok",
        /// Nothing was changed.
        Failed = "failed",
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
}
