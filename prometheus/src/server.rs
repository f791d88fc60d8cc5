//! Metrics of a process that serves, the front door of a router included.
//!
//! Values are recorded elsewhere; what cannot be recorded yet is not declared. Gauges of queues,
//! pools and ages are set from one snapshot right before a page is rendered.

use crate::buckets;
use crate::def::catalog;
use crate::labels::*;
use crate::roles::ENGINES;

catalog! {
    source: Server, roles: ENGINES;

    // ---- HTTP front door and admission ----

    /// HTTP requests by final status, counted once when the outcome is known; an error after the
    /// stream opened counts as its error status, not as 200.
    HTTP_REQUESTS: Counter<(Route, Method, StatusCode)> =
        "sightline_http_requests_total", only http_possible, by ALL;
    /// Time from accept to last byte of an HTTP request.
    HTTP_REQUEST_DURATION: Histogram<(Route,)> =
        "sightline_http_request_duration_seconds", buckets buckets::HTTP, by ALL;
    /// HTTP requests being served now.
    HTTP_REQUESTS_IN_FLIGHT: Gauge<(Route,)> = "sightline_http_requests_in_flight", by ALL;
    /// Inference requests accepted into the waiting queue.
    REQUESTS_ADMITTED: Counter<(Priority,)> = "sightline_requests_admitted_total", by ALL;
    /// Inference requests refused before any response header was sent; reason is
    /// queue_requests_full, queue_tokens_full, drain_time, draining, unhealthy, invalid,
    /// priority_evicted or queue_timeout; the last two were admitted before.
    REQUESTS_REJECTED: Counter<(RejectReason, Priority)> =
        "sightline_requests_rejected_total", by ALL;
    /// Configured limit of waiting requests; 0 means no limit.
    ADMISSION_QUEUE_LIMIT_REQUESTS: Gauge<()> = "sightline_admission_queue_limit_requests";
    /// Configured limit of waiting uncached prompt tokens; 0 means no limit.
    ADMISSION_QUEUE_LIMIT_TOKENS: Gauge<()> = "sightline_admission_queue_limit_tokens";
    /// Retry-After delay told to refused clients.
    ADMISSION_RETRY_AFTER: Histogram<()> =
        "sightline_admission_retry_after_seconds", buckets buckets::QUEUE, by ALL;
    /// Inference requests that left the engine; outcome is stop, length, tool_call,
    /// aborted or error.
    REQUESTS_FINISHED: Counter<(Outcome,)> = "sightline_requests_finished_total", by ALL;
    /// Requests ended before completion; stage is queued, bootstrap, prefill, transfer or decode;
    /// initiator is client, server or peer.
    REQUESTS_ABORTED: Counter<(AbortStage, AbortInitiator, AbortReason)> =
        "sightline_requests_aborted_total", only abort_possible, by ALL;
    /// Finished requests judged against the configured objective; slo is ttft, itl or e2e; result
    /// is good or bad; refused and aborted requests count as bad for ttft.
    SLO_REQUESTS: Counter<(Slo, SloResult)> = "sightline_slo_requests_total", by ANSWERING;
    /// Configured objective.
    SLO_OBJECTIVE: Gauge<(Slo,)> = "sightline_slo_objective_seconds", by ANSWERING;

    // ---- queues and scheduler ----

    /// Requests in a queue; queue is waiting, retracted, bootstrap, inflight_send, prealloc or
    /// transfer; read at scrape time.
    QUEUE_REQUESTS: Gauge<(Queue,)> = "sightline_queue_requests";
    /// Prompt tokens still to be prefilled in a queue, before cache hits.
    QUEUE_PENDING_TOKENS: Gauge<(Queue,)> = "sightline_queue_pending_tokens";
    /// Prompt tokens still to be computed in a queue, after known prefix hits; the unscheduled rest
    /// of a prompt in chunked prefill counts in waiting; always 0 in prealloc, transfer and
    /// inflight_send.
    QUEUE_PENDING_UNCACHED_TOKENS: Gauge<(Queue,)> = "sightline_queue_pending_uncached_tokens";
    /// Age of the oldest request in a queue, computed at scrape time; 0 when empty.
    QUEUE_OLDEST_REQUEST_AGE: Gauge<(Queue,)> = "sightline_queue_oldest_request_age_seconds";
    /// Time a request spent in a queue, recorded when it leaves, whatever the exit.
    REQUEST_QUEUE_TIME: Histogram<(Queue,)> =
        "sightline_request_queue_time_seconds", buckets buckets::QUEUE;
    /// Requests in the running batch; read at scrape time, so it is 0 as soon as the engine is
    /// idle.
    RUNNING_REQUESTS: Gauge<()> = "sightline_running_requests";
    /// Largest running batch allowed.
    RUNNING_REQUESTS_LIMIT: Gauge<()> = "sightline_running_requests_limit";
    /// Scheduler loop turns; phase is prefill, decode, mixed or idle.
    SCHEDULER_ITERATIONS: Counter<(Turn,)> = "sightline_scheduler_iterations_total";
    /// Wall time of one scheduler turn that ran a batch.
    SCHEDULER_ITERATION_DURATION: Histogram<(Phase,)> =
        "sightline_scheduler_iteration_duration_seconds", buckets buckets::LOOP;
    /// Wall time of the scheduler loop by exclusive stage; the stages add up to elapsed time.
    SCHEDULER_STAGE_SECONDS: TimeCounter<(Stage,)> = "sightline_scheduler_stage_seconds_total";
    /// Unix time of the last scheduler turn.
    SCHEDULER_LAST_ITERATION: Gauge<()> = "sightline_scheduler_last_iteration_timestamp_seconds";
    /// Requests in an executed batch.
    BATCH_REQUESTS: Histogram<(Phase,)> = "sightline_batch_requests", buckets buckets::BATCH;
    /// New tokens in an executed batch.
    BATCH_TOKENS: Histogram<(Phase,)> = "sightline_batch_tokens", buckets buckets::TOKENS;
    /// Time that a rank computed in model forward passes; phase is prefill, decode or mixed.
    FORWARD_BUSY_SECONDS: TimeCounter<(Phase, TpRank)> = "sightline_forward_busy_seconds_total";
    /// Running requests retracted; reason is kv_pressure or priority.
    PREEMPTIONS: Counter<(PreemptReason,)> = "sightline_preemptions_total";
    /// Tokens whose work was thrown away by preemption; kind is input or output.
    PREEMPTED_TOKENS: Counter<(PreemptedKind,)> = "sightline_preempted_tokens_total";
    /// 1 for the current lifecycle state; state is loading, warming, ready, draining or failed.
    ENGINE_STATE: Gauge<(EngineState,)> = "sightline_engine_state", by ALL;

    // ---- latency ----

    /// Time from accept at this process to the first output token sent.
    TIME_TO_FIRST_TOKEN: Histogram<(Streaming,)> =
        "sightline_time_to_first_token_seconds", buckets buckets::TTFT, by ANSWERING;
    /// Exclusive parts of time to first token; phase is tokenize, queue, bootstrap, prefill,
    /// kv_transfer, decode_queue or first_decode; the parts add up.
    TTFT_PHASE: Histogram<(TtftPhase,)> =
        "sightline_ttft_phase_seconds", buckets buckets::TTFT, by GENERATING;
    /// Gap between successive output tokens of one request.
    INTER_TOKEN_LATENCY: Histogram<()> =
        "sightline_inter_token_latency_seconds", buckets buckets::ITL, by ANSWERING;
    /// Mean gap per output token of one finished request.
    REQUEST_TIME_PER_OUTPUT_TOKEN: Histogram<()> =
        "sightline_request_time_per_output_token_seconds", buckets buckets::ITL, by ANSWERING;
    /// Time from accept to the end of an inference request.
    REQUEST_DURATION: Histogram<(Outcome,)> =
        "sightline_request_duration_seconds", buckets buckets::E2E, by ANSWERING;
    /// Prompt tokens of a request, recorded at admission.
    REQUEST_PROMPT_TOKENS: Histogram<()> =
        "sightline_request_prompt_tokens", buckets buckets::TOKENS;
    /// Output tokens of a finished request.
    REQUEST_GENERATED_TOKENS: Histogram<()> =
        "sightline_request_generated_tokens", buckets buckets::TOKENS, by ANSWERING;

    // ---- tokens ----

    /// Prompt tokens by where their KV came from; source is computed, device, host, storage
    /// or remote; added when the batch runs, recompute after preemption excluded.
    PROMPT_TOKENS: Counter<(PromptSource,)> = "sightline_prompt_tokens_total";
    /// Tokens of prompts and answers computed again after a preemption.
    RECOMPUTED_TOKENS: Counter<()> = "sightline_recomputed_tokens_total";
    /// Output tokens produced.
    GENERATION_TOKENS: Counter<()> = "sightline_generation_tokens_total", by GENERATING;

    // ---- KV pools ----

    /// Size of a KV pool; tier is device or host.
    KV_POOL_CAPACITY_BYTES: Gauge<(Tier, Pool, TpRank)> = "sightline_kv_pool_capacity_bytes";
    /// Used part of a KV pool; state is active (pinned by live requests; on the host by the same
    /// page of the device or by a copy) or cached (evictable).
    KV_POOL_USED_BYTES: Gauge<(Tier, Pool, TpRank, SlotState)> = "sightline_kv_pool_used_bytes";
    /// Slots (pages or states) of a KV pool.
    KV_POOL_CAPACITY_SLOTS: Gauge<(Tier, Pool, TpRank)> = "sightline_kv_pool_capacity_slots";
    /// Used slots of a KV pool; state as for bytes.
    KV_POOL_USED_SLOTS: Gauge<(Tier, Pool, TpRank, SlotState)> = "sightline_kv_pool_used_slots";
    /// Slots freed by eviction; reason is capacity, pressure or flush.
    KV_POOL_EVICTED_SLOTS: Counter<(Tier, Pool, EvictReason)> =
        "sightline_kv_pool_evicted_slots_total";
    /// Slots reused by a prefix hit.
    KV_POOL_HIT_SLOTS: Counter<(Tier, Pool)> = "sightline_kv_pool_hit_slots_total";
    /// How long pages of a pool of page ids had lain unused when they were given up or used again,
    /// each page counted by itself.
    KV_PAGE_AGE: Histogram<(Tier, Pool, PageEvent)> =
        "sightline_kv_page_age_seconds", buckets buckets::AGE;
    /// Allocations that found no room.
    KV_POOL_ALLOC_FAILURES: Counter<(Tier, Pool)> = "sightline_kv_pool_alloc_failures_total";
    /// Prompt tokens looked up in the prefix index.
    KV_PREFIX_QUERY_TOKENS: Counter<()> = "sightline_kv_prefix_query_tokens_total";
    /// Constant 1 with the geometry of a pool; derived_from names the pool whose indices a sidecar
    /// pool borrows; none for other pools.
    KV_POOL_INFO: Gauge<(Tier, Pool, Layers, PageTokens, SlotBytes, Layout, DerivedFrom)> =
        "sightline_kv_pool_info";

    // ---- host tier ----

    /// Host bytes that the flags in force ask for: a size flag, or ratio times device pools; 0
    /// without a host tier.
    HICACHE_REQUESTED_BYTES: Gauge<()> = "sightline_hicache_requested_bytes";
    /// Host bytes the operator wanted on this server, all ranks, from --hicache-target or
    /// --hicache-budget; 0 when not given.
    HICACHE_TARGET_BYTES: Gauge<()> = "sightline_hicache_target_bytes";
    /// Host to device ratio in force, however the tier was sized; 0 without a host tier.
    HICACHE_RATIO: Gauge<()> = "sightline_hicache_ratio";
    /// Bytes moved between device and host; direction is load or backup.
    HICACHE_TRANSFER_BYTES: Counter<(CopyDirection, Pool, TpRank)> =
        "sightline_hicache_transfer_bytes_total";
    /// Time at least one copy of a direction was in flight; bytes over busy time is the true
    /// bandwidth.
    HICACHE_TRANSFER_BUSY_SECONDS: TimeCounter<(CopyDirection, TpRank)> =
        "sightline_hicache_transfer_busy_seconds_total";
    /// Time that one copy of any number of pages took, without its time in the queue.
    HICACHE_TRANSFER_DURATION: Histogram<(CopyDirection,)> =
        "sightline_hicache_transfer_duration_seconds", buckets buckets::XFER;
    /// Pages that got no copy; reason is no_host_room or queue_full.
    HICACHE_TRANSFER_FAILURES: Counter<(CopyDirection, Pool, CopyFailure)> =
        "sightline_hicache_transfer_failures_total";
    /// Time that forward passes waited for copies, on the rank that waited longest; cause is loads
    /// or urgent.
    HICACHE_WAIT_SECONDS: TimeCounter<(CopyWait,)> = "sightline_hicache_wait_seconds_total";
    /// Requests passed over because pages that they need are being copied; each turn counts anew.
    HICACHE_HELD_REQUESTS: Counter<()> = "sightline_hicache_held_requests_total";
    /// Copies queued or running.
    HICACHE_PENDING_OPERATIONS: Gauge<(CopyDirection,)> = "sightline_hicache_pending_operations";
    /// Host pool bytes resident on a NUMA node, by sampling; local is true when they were meant for
    /// that node or for none in particular, else false.
    HOST_POOL_NUMA_BYTES: Gauge<(NumaNode, Local)> = "sightline_host_pool_numa_bytes";

    // ---- store behind the host tier ----

    /// Pages read from the store, or not; result is hit, absent, timeout, error, truncated,
    /// corrupt, foreign, model, layout or collision.
    KV_STORE_READS: Counter<(StoreRead,)> = "sightline_kv_store_reads_total";
    /// Pages written to the store, or not; result is written, present, queue_full, no_room,
    /// timeout, error, closed or busy.
    KV_STORE_WRITES: Counter<(StoreWrite,)> = "sightline_kv_store_writes_total";
    /// Bytes of objects read and written; operation is read or write.
    KV_STORE_TRANSFER_BYTES: Counter<(StoreOperation,)> =
        "sightline_kv_store_transfer_bytes_total";
    /// Time that reads and writes took, added up over those that ran at once; operation is read or
    /// write.
    KV_STORE_TRANSFER_SECONDS: TimeCounter<(StoreOperation,)> =
        "sightline_kv_store_transfer_seconds_total";
    /// Objects deleted; reason is capacity or broken.
    KV_STORE_DELETED_OBJECTS: Counter<(StoreDeletion,)> =
        "sightline_kv_store_deleted_objects_total";
    /// Prefixes that might be in the store, by what happened; event is looked_up, found (of those),
    /// timeout, no_host_room or busy.
    KV_STORE_PREFIXES: Counter<(StorePrefix,)> = "sightline_kv_store_prefixes_total";
    /// Pages that were to be read for requests; step is asked, arrived (in time) or entered (the
    /// host tier).
    KV_STORE_PREFETCHED_SLOTS: Counter<(StorePages,)> =
        "sightline_kv_store_prefetched_slots_total";
    /// Requests that wait for pages of the store; state is reading or queued.
    KV_STORE_WAITING_REQUESTS: Gauge<(StoreWait,)> = "sightline_kv_store_waiting_requests";
    /// Objects in the store that this server knows of.
    KV_STORE_OBJECTS: Gauge<()> = "sightline_kv_store_objects";
    /// Their bytes, those being written or deleted included.
    KV_STORE_HELD_BYTES: Gauge<()> = "sightline_kv_store_held_bytes";
    /// Most bytes that this server keeps there; 0 without a store.
    KV_STORE_LIMIT_BYTES: Gauge<()> = "sightline_kv_store_limit_bytes";
    /// Bytes of pages that wait to be written or are being written.
    KV_STORE_QUEUED_BYTES: Gauge<()> = "sightline_kv_store_queued_bytes";

    // ---- hit-ratio curve ----

    /// Prompt tokens of requests seen by the estimator.
    KV_HIT_CURVE_LOOKUP_TOKENS: Counter<()> = "sightline_kv_hit_curve_lookup_tokens_total";
    /// Prompt tokens that would have been prefix hits, both tiers, at this host ratio; ratio 0 is
    /// the device alone.
    KV_HIT_CURVE_HIT_TOKENS: Counter<(HostRatio,)> = "sightline_kv_hit_curve_hit_tokens_total";
    /// Tokens that the full-history pool had at this ratio but the window pool had lost.
    KV_HIT_CURVE_WINDOW_LOSS_TOKENS: Counter<(HostRatio,)> =
        "sightline_kv_hit_curve_window_loss_tokens_total";
    /// Tokens of full pages not in the tracked horizon; no candidate could have served them.
    KV_HIT_CURVE_COLD_TOKENS: Counter<()> = "sightline_kv_hit_curve_cold_tokens_total";
    /// Host bytes that a NUMA node, or the control group, could give to a host tier, less the
    /// reserve and what the server takes besides; numa_node is any where ranks are bound to none.
    HICACHE_HEADROOM_BYTES: Gauge<(NumaNode,)> = "sightline_hicache_headroom_bytes";
    /// Host bytes all local ranks on a node would need at this ratio, all pools; numa_node is any
    /// where ranks are bound to none.
    KV_HIT_CURVE_REQUIRED_BYTES: Gauge<(HostRatio, NumaNode)> =
        "sightline_kv_hit_curve_required_bytes";
    /// Host slots of a pool at this ratio.
    KV_HIT_CURVE_CAPACITY_SLOTS: Gauge<(HostRatio, Pool)> =
        "sightline_kv_hit_curve_capacity_slots";
    /// Pages in the recency list.
    KV_HIT_CURVE_TRACKED_SLOTS: Gauge<()> = "sightline_kv_hit_curve_tracked_slots";
    /// 1 when the list has been full to this candidate's capacity, or nothing was ever dropped and
    /// 10 capacities of look-ups have passed.
    KV_HIT_CURVE_WARM: Gauge<(HostRatio,)> = "sightline_kv_hit_curve_warm";
    /// Share of pages that the estimator follows; 1 when exact.
    KV_HIT_CURVE_SAMPLING: Gauge<()> = "sightline_kv_hit_curve_sampling_ratio";
    /// Requests the estimator missed, in whole or in part, because its queue was full.
    KV_HIT_CURVE_DROPPED_REQUESTS: Counter<()> = "sightline_kv_hit_curve_dropped_requests_total";
    /// Restarts from empty; reason is flush.
    KV_HIT_CURVE_RESETS: Counter<(CurveReset,)> = "sightline_kv_hit_curve_resets_total";
    /// CPU time of the estimator.
    KV_HIT_CURVE_UPDATE_SECONDS: TimeCounter<()> = "sightline_kv_hit_curve_update_seconds_total";

    // ---- process and self-observation ----

    /// Constant 1; cuda is none in a build without it.
    BUILD_INFO: Gauge<(Version, GitSha, Rustc, Cuda)> = "sightline_build_info", by ALL, per Process;
    /// Constant 1 with the constant labels of the model served.
    SERVED_MODEL_INFO: Gauge<()> = "sightline_served_model_info", by ALL;
    /// Constant 1 with the configuration that dashboards need.
    CONFIG_INFO: Gauge<(TpSize, DpSize, KvDtype, PageTokens, HicacheMode, TransferBackend)> =
        "sightline_config_info";
    /// Constant 1 with the generation and the hash of the settings in force that can change.
    CONFIG_GENERATION_INFO: Gauge<(ConfigGeneration, ConfigHash)> =
        "sightline_config_generation_info", by ALL, per Process;
    /// Attempts to change settings while the process runs, by the file or by an admin.
    CONFIG_RELOADS: Counter<(ReloadResult,)> =
        "sightline_config_reload_total", by ALL, per Process;
    /// 1 when the file of settings could be used the last time it was read, else 0.
    CONFIG_LAST_RELOAD_SUCCESSFUL: Gauge<()> =
        "sightline_config_last_reload_successful", by ALL, per Process;
    /// Unix time the settings were last read or changed.
    CONFIG_LAST_RELOAD_SUCCESS_TIMESTAMP: Gauge<()> =
        "sightline_config_last_reload_success_timestamp_seconds", by ALL, per Process;
    /// Settings in force that differ from flags and file, because an admin changed them.
    CONFIG_DRIFT: Gauge<()> = "sightline_config_drift", by ALL, per Process;
    /// Constant 1 for each operation with the weight format it reads and the code path it runs.
    KERNEL_INFO: Gauge<(Op, Format, Kernel)> = "sightline_kernel_info";
    /// Duration of a startup phase; phase is host_pools, load, pools or warmup.
    STARTUP_PHASE: Gauge<(StartupPhase,)> = "sightline_startup_phase_seconds";
    /// Unix time the engine became ready; 0 before.
    READY_TIMESTAMP: Gauge<()> = "sightline_ready_timestamp_seconds", by ALL, per Process;
    /// Wake-up drift of a 10 ms timer.
    TOKIO_EVENT_LOOP_DELAY: Histogram<()> =
        "sightline_tokio_event_loop_delay_seconds", buckets buckets::TICK, by ALL, per Process;
    /// Time to render the metrics page.
    METRICS_RENDER_DURATION: Histogram<()> =
        "sightline_metrics_render_duration_seconds", buckets buckets::TICK, by ALL, per Process;
    /// Series on the last rendered page.
    METRICS_SERIES: Gauge<()> = "sightline_metrics_series", by ALL, per Process;
}
