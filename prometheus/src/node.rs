//! Metrics of the node exporter, one process on each host: is it fit to serve, and how much host
//! cache can it still take.
//!
//! Its series have no role and no model. Its page is made anew each time from what is known then,
//! so a value that is not fresh is not on it, and counters of cards and services appear with them.
//! Label values say what is told apart, not what is there from the start.

use crate::def::catalog;
use crate::labels::*;
use crate::roles::NONE;

/// Port that it listens on.
pub const PORT: u16 = 9840;
/// Errors of a card that need a hand: memory, bus, firmware, the card itself.
pub const XIDS_CRITICAL: [u16; 8] = [48, 62, 64, 74, 79, 95, 119, 120];
/// Errors that are counted from 0 as well, though most are an application's fault.
pub const XIDS_NOTED: [u16; 7] = [13, 31, 43, 45, 63, 92, 94];

catalog! {
    source: Node, roles: NONE;

    /// Constant 1.
    BUILD_INFO: Gauge<(Version, GitSha, Rustc)> = "sightline_node_build_info";
    /// 1 when the sandbox of the process is in force.
    SANDBOXED: Gauge<()> = "sightline_node_sandboxed";
    /// The verdict: 1 when no critical check fails or stays unknown beyond its grace period.
    HEALTHY: Gauge<()> = "sightline_node_healthy";
    /// 1 when a check passes, 0 when it fails; scope names the GPU, NUMA node, service, port or
    /// collector, or the node.
    HEALTH_CHECK: Gauge<(HealthCheck, CheckScope, CheckSeverity)> = "sightline_node_health_check";
    /// 0 when the check has no fresh data.
    HEALTH_CHECK_KNOWN: Gauge<(HealthCheck, CheckScope, CheckSeverity)> =
        "sightline_node_health_check_known";

    /// Cards; state is expected, pci, nvml or responding.
    GPUS: Gauge<(GpuCount,)> = "sightline_node_gpus";
    /// Constant 1; join on uuid.
    GPU_INFO: Gauge<
        (Gpu, Uuid, GpuName, PciBusId, NumaNode, DriverVersion, VbiosVersion, Minor)
    > = "sightline_node_gpu_info";
    /// 1 when the last poll of the card worked and is fresh.
    GPU_UP: Gauge<(Gpu, Uuid)> = "sightline_node_gpu_up";
    /// Share of time a kernel ran, over the driver's sampling window.
    GPU_UTILIZATION: Gauge<(Gpu, Uuid)> = "sightline_node_gpu_utilization_ratio";
    /// Share of time device memory was read or written.
    GPU_MEMORY_COPY_UTILIZATION: Gauge<(Gpu, Uuid)> =
        "sightline_node_gpu_memory_copy_utilization_ratio";
    /// Device memory; parts of a split card say which.
    GPU_MEMORY_TOTAL: Gauge<(Gpu, Uuid, GpuInstance, ComputeInstance)> =
        "sightline_node_gpu_memory_total_bytes";
    /// Device memory in use; parts of a split card say which.
    GPU_MEMORY_USED: Gauge<(Gpu, Uuid, GpuInstance, ComputeInstance)> =
        "sightline_node_gpu_memory_used_bytes";
    /// Device memory free; parts of a split card say which.
    GPU_MEMORY_FREE: Gauge<(Gpu, Uuid, GpuInstance, ComputeInstance)> =
        "sightline_node_gpu_memory_free_bytes";
    /// Device memory held by driver and firmware; parts of a split card say which.
    GPU_MEMORY_RESERVED: Gauge<(Gpu, Uuid, GpuInstance, ComputeInstance)> =
        "sightline_node_gpu_memory_reserved_bytes";
    /// Device memory of a configured service.
    GPU_PROCESS_MEMORY: Gauge<(Gpu, Uuid, Service)> =
        "sightline_node_gpu_process_memory_bytes";
    /// Temperature; sensor is gpu or memory.
    GPU_TEMPERATURE: Gauge<(Gpu, Uuid, Sensor)> = "sightline_node_gpu_temperature_celsius";
    /// Power draw.
    GPU_POWER: Gauge<(Gpu, Uuid)> = "sightline_node_gpu_power_watts";
    /// Enforced power limit.
    GPU_POWER_LIMIT: Gauge<(Gpu, Uuid)> = "sightline_node_gpu_power_limit_watts";
    /// Energy used since driver load.
    GPU_ENERGY: Counter<(Gpu, Uuid)> = "sightline_node_gpu_energy_joules_total";
    /// Clock; domain is sm or memory.
    GPU_CLOCK: Gauge<(Gpu, Uuid, ClockDomain)> = "sightline_node_gpu_clock_hertz";
    /// Highest clock; domain is sm or memory.
    GPU_CLOCK_MAX: Gauge<(Gpu, Uuid, ClockDomain)> = "sightline_node_gpu_clock_max_hertz";
    /// 1 while the card is slowed down for this reason.
    GPU_THROTTLE_ACTIVE: Gauge<(Gpu, Uuid, ThrottleReason)> =
        "sightline_node_gpu_throttle_active";
    /// Time throttled since driver load.
    GPU_THROTTLE_SECONDS: TimeCounter<(Gpu, Uuid, ThrottleTime)> =
        "sightline_node_gpu_throttle_seconds_total";
    /// PCIe bytes sent by the card.
    GPU_PCIE_TRANSMIT: Counter<(Gpu, Uuid)> = "sightline_node_gpu_pcie_transmit_bytes_total";
    /// PCIe bytes received by the card.
    GPU_PCIE_RECEIVE: Counter<(Gpu, Uuid)> = "sightline_node_gpu_pcie_receive_bytes_total";
    /// PCIe replays.
    GPU_PCIE_REPLAYS: Counter<(Gpu, Uuid)> = "sightline_node_gpu_pcie_replays_total";
    /// PCIe lanes in use.
    GPU_PCIE_LINK_WIDTH: Gauge<(Gpu, Uuid)> = "sightline_node_gpu_pcie_link_width";
    /// PCIe lanes possible.
    GPU_PCIE_LINK_WIDTH_MAX: Gauge<(Gpu, Uuid)> = "sightline_node_gpu_pcie_link_width_max";
    /// PCIe generation in use; falls when idle.
    GPU_PCIE_LINK_GENERATION: Gauge<(Gpu, Uuid)> = "sightline_node_gpu_pcie_link_generation";
    /// 1 when the link is active.
    GPU_NVLINK_UP: Gauge<(Gpu, Uuid, Nvlink)> = "sightline_node_gpu_nvlink_up";
    /// NVLink errors.
    GPU_NVLINK_ERRORS: Counter<(Gpu, Uuid, Nvlink, NvlinkError)> =
        "sightline_node_gpu_nvlink_errors_total";
    /// ECC errors since driver load; kind is corrected or uncorrected.
    GPU_ECC_ERRORS: Counter<(Gpu, Uuid, EccKind)> = "sightline_node_gpu_ecc_errors_total";
    /// ECC errors over the life of the card, as it remembers them; kind is corrected or
    /// uncorrected.
    GPU_ECC_LIFETIME_ERRORS: Gauge<(Gpu, Uuid, EccKind)> =
        "sightline_node_gpu_ecc_lifetime_errors";
    /// Rows remapped; kind is corrected or uncorrected.
    GPU_ROW_REMAPS: Gauge<(Gpu, Uuid, EccKind)> = "sightline_node_gpu_row_remaps";
    /// 1 when a row remap waits for a reset.
    GPU_ROW_REMAP_PENDING: Gauge<(Gpu, Uuid)> = "sightline_node_gpu_row_remap_pending";
    /// 1 when a row remap failed.
    GPU_ROW_REMAP_FAILED: Gauge<(Gpu, Uuid)> = "sightline_node_gpu_row_remap_failed";
    /// Pages retired, on cards that do not remap rows.
    GPU_RETIRED_PAGES: Gauge<(Gpu, Uuid, RetireCause)> = "sightline_node_gpu_retired_pages";
    /// Action the driver asks for; 0 none, 1 GPU reset, 2 reboot, 3 drain P2P, 4 drain and reset,
    /// 5 recover IMEX, 6 bus reset, 7 system reboot.
    GPU_RECOVERY_ACTION: Gauge<(Gpu, Uuid)> = "sightline_node_gpu_recovery_action";
    /// Xid events; source is nvml or kmsg, which both tell of one event.
    GPU_XID_ERRORS: Counter<(Gpu, Uuid, Xid, XidSource)> =
        "sightline_node_gpu_xid_errors_total";
    /// Unix time of the last event.
    GPU_XID_LAST: Gauge<(Gpu, Uuid, Xid)> = "sightline_node_gpu_xid_last_timestamp_seconds";
    /// 1 when the card is split into MIG instances.
    GPU_MIG_ENABLED: Gauge<(Gpu, Uuid)> = "sightline_node_gpu_mig_enabled";

    /// Memory of a NUMA node.
    NUMA_MEMORY_TOTAL: Gauge<(NumaNode,)> = "sightline_node_numa_memory_total_bytes";
    /// Free memory.
    NUMA_MEMORY_FREE: Gauge<(NumaNode,)> = "sightline_node_numa_memory_free_bytes";
    /// Page cache, shmem included.
    NUMA_MEMORY_FILE: Gauge<(NumaNode,)> = "sightline_node_numa_memory_file_bytes";
    /// Anonymous memory.
    NUMA_MEMORY_ANON: Gauge<(NumaNode,)> = "sightline_node_numa_memory_anon_bytes";
    /// Shared memory and tmpfs; not reclaimable.
    NUMA_MEMORY_SHMEM: Gauge<(NumaNode,)> = "sightline_node_numa_memory_shmem_bytes";
    /// Kernel slab.
    NUMA_MEMORY_SLAB: Gauge<(NumaNode,)> = "sightline_node_numa_memory_slab_bytes";
    /// Huge page pool.
    NUMA_MEMORY_HUGETLB: Gauge<(NumaNode,)> = "sightline_node_numa_memory_hugetlb_bytes";
    /// Locked memory.
    NUMA_MEMORY_MLOCKED: Gauge<(NumaNode,)> = "sightline_node_numa_memory_mlocked_bytes";
    /// Memory no kernel counter explains (pinned by drivers).
    NUMA_MEMORY_UNACCOUNTED: Gauge<(NumaNode,)> =
        "sightline_node_numa_memory_unaccounted_bytes";
    /// Free plus safely reclaimable, less watermarks and reserve; negative when the reserve is
    /// touched.
    NUMA_HEADROOM: Gauge<(NumaNode,)> = "sightline_node_numa_headroom_bytes";
    /// What is kept free of a NUMA node; only nodes with CPUs are judged by it.
    NUMA_RESERVE: Gauge<(NumaNode,)> = "sightline_node_numa_reserve_bytes";
    /// Page allocations; outcome is hit, miss, foreign, interleave_hit, local_node or other_node.
    NUMA_PAGE_ALLOCATIONS: Counter<(NumaNode, PageAllocation)> =
        "sightline_node_numa_page_allocations_total";
    /// Distance as firmware gives it.
    NUMA_DISTANCE: Gauge<(NumaNode, ToNode)> = "sightline_node_numa_distance";

    /// What the operator wanted; source is config or metrics, best first, one at a time.
    HOSTCACHE_TARGET: Gauge<(Service, TargetSource)> = "sightline_node_hostcache_target_bytes";
    /// What the flags in force ask for; source is metrics, log or plan, best first, one at a time.
    HOSTCACHE_PLANNED: Gauge<(Service, Pool, NumaNode, HostcacheSource)> =
        "sightline_node_hostcache_planned_bytes";
    /// What the server says it holds; source is metrics, log or plan, best first, one at a time.
    HOSTCACHE_ALLOCATED: Gauge<(Service, Pool, NumaNode, HostcacheSource)> =
        "sightline_node_hostcache_allocated_bytes";
    /// What the kernel says is resident (cgroup).
    HOSTCACHE_RESIDENT: Gauge<(Service, NumaNode)> = "sightline_node_hostcache_resident_bytes";
    /// Share of cache pages on the planned node.
    HOSTCACHE_LOCAL: Gauge<(Service,)> = "sightline_node_hostcache_local_ratio";
    /// Largest `--hicache-ratio` that fits the node.
    HICACHE_RATIO_MAX: Gauge<(Service,)> = "sightline_node_hicache_ratio_max";
    /// Host bytes per unit of ratio.
    HICACHE_BYTES_PER_RATIO: Gauge<(Service,)> = "sightline_node_hicache_bytes_per_ratio";

    /// 1 for the current state; state is active, activating, deactivating, inactive, failed or
    /// unknown.
    SERVICE_STATE: Gauge<(Service, ServiceState)> = "sightline_node_service_state";
    /// Automatic restarts of a unit.
    SERVICE_RESTARTS: Counter<(Service,)> = "sightline_node_service_restarts_total";
    /// Unix time of the last start of a unit.
    SERVICE_START: Gauge<(Service,)> = "sightline_node_service_start_timestamp_seconds";
    /// 1 when the last health probe worked.
    SERVICE_PROBE_SUCCESS: Gauge<(Service,)> = "sightline_node_service_probe_success";
    /// Duration of the last health probe.
    SERVICE_PROBE_DURATION: Gauge<(Service,)> = "sightline_node_service_probe_duration_seconds";
    /// HTTP status of the last health probe; 0 when none came.
    SERVICE_PROBE_STATUS: Gauge<(Service,)> = "sightline_node_service_probe_status_code";
    /// Memory charged to the service.
    SERVICE_MEMORY_CURRENT: Gauge<(Service,)> = "sightline_node_service_memory_current_bytes";
    /// Limit of the service; absent when unlimited.
    SERVICE_MEMORY_MAX: Gauge<(Service,)> = "sightline_node_service_memory_max_bytes";
    /// Memory of the service per NUMA node (cgroup).
    SERVICE_NUMA_RESIDENT: Gauge<(Service, NumaNode)> =
        "sightline_node_service_numa_resident_bytes";
    /// Locked memory of the service.
    SERVICE_LOCKED: Gauge<(Service,)> = "sightline_node_service_locked_bytes";
    /// Processes the kernel killed for lack of memory.
    SERVICE_OOM_KILLS: Counter<(Service,)> = "sightline_node_service_oom_kills_total";
    /// Constant 1.
    SERVICE_MEMPOLICY_INFO: Gauge<(Service, MempolicyKind, PolicyNodes)> =
        "sightline_node_service_mempolicy_info";

    /// Time some task waited; resource is cpu, memory, io or irq.
    PRESSURE_WAITING: TimeCounter<(PressureResource,)> =
        "sightline_node_pressure_waiting_seconds_total";
    /// Time all tasks waited; resource is cpu, memory, io or irq.
    PRESSURE_STALLED: TimeCounter<(PressureResource,)> =
        "sightline_node_pressure_stalled_seconds_total";

    /// 1 when the port is active.
    RDMA_PORT_UP: Gauge<(RdmaDevice, RdmaPort, NumaNode)> = "sightline_node_rdma_port_up";
    /// 1 when the configuration names the port for KV transfer.
    RDMA_PORT_REQUIRED: Gauge<(RdmaDevice, RdmaPort, NumaNode)> =
        "sightline_node_rdma_port_required";
    /// Rate of the port.
    RDMA_PORT_RATE: Gauge<(RdmaDevice, RdmaPort, NumaNode)> =
        "sightline_node_rdma_port_rate_bytes_per_second";
    /// Bytes sent (the kernel counts 4-byte words).
    RDMA_TRANSMIT: Counter<(RdmaDevice, RdmaPort, NumaNode)> =
        "sightline_node_rdma_transmit_bytes_total";
    /// Bytes received.
    RDMA_RECEIVE: Counter<(RdmaDevice, RdmaPort, NumaNode)> =
        "sightline_node_rdma_receive_bytes_total";
    /// Port errors; kind is symbol_error, link_downed, out_of_sequence, packet_seq_err,
    /// local_ack_timeout or rnr_nak_retry.
    RDMA_ERRORS: Counter<(RdmaDevice, RdmaPort, NumaNode, RdmaError)> =
        "sightline_node_rdma_errors_total";
    /// Congestion notifications; kind is cnp_sent or cnp_handled.
    RDMA_CONGESTION: Counter<(RdmaDevice, RdmaPort, NumaNode, RdmaCongestion)> =
        "sightline_node_rdma_congestion_events_total";

    /// 0 when this node lacks what the collector reads.
    COLLECTOR_SUPPORTED: Gauge<(Collector,)> = "sightline_node_collector_supported";
    /// Configured interval.
    COLLECTOR_INTERVAL: Gauge<(Collector,)> = "sightline_node_collector_interval_seconds";
    /// 1 when the last collection worked.
    COLLECTOR_SUCCESS: Gauge<(Collector,)> = "sightline_node_collector_success";
    /// Duration of the last collection.
    COLLECTOR_DURATION: Gauge<(Collector,)> = "sightline_node_collector_duration_seconds";
    /// Unix time of the last collection that worked; 0 when none has.
    COLLECTOR_LAST_SUCCESS: Gauge<(Collector,)> =
        "sightline_node_collector_last_success_timestamp_seconds";
    /// Time the running collection has been stuck; 0 when none is.
    COLLECTOR_STUCK: Gauge<(Collector,)> = "sightline_node_collector_stuck_seconds";
    /// Failed collections.
    COLLECTOR_ERRORS: Counter<(Collector, CollectorError)> =
        "sightline_node_collector_errors_total";

    /// Unix time until which work on a role of this host is planned, as its operator or a rollout
    /// says.
    MAINTENANCE_UNTIL: Gauge<(Role,)> = "sightline_maintenance_until_timestamp_seconds";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_that_they_are_of_the_node() {
        for info in ALL {
            let planned = info.name == MAINTENANCE_UNTIL.name();
            assert_eq!(info.name.starts_with("sightline_node_"), !planned, "{}", info.name);
            assert_eq!(info.label("engine_role").is_some(), planned, "{}", info.name);
        }
        let others = crate::all().filter(|info| info.source != crate::def::Source::Node);
        assert_eq!(others.filter(|info| info.name.starts_with("sightline_node_")).count(), 0);
    }

    #[test]
    fn what_is_watched_for_is_told_apart() {
        assert!(XIDS_CRITICAL.iter().all(|code| !XIDS_NOTED.contains(code)));
    }
}
