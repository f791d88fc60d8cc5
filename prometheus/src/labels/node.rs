//! What a node exporter tells apart: its collectors and checks, cards, services, memory, links.
//!
//! Closed sets are what drivers, the kernel and the configuration can say, folded where they can
//! say more. Open values come from the host, never from a client.

use super::*;

closed! {
    /// Part of the exporter that reads one source.
    Collector: "collector" {
        /// Cards, what changes by the second: use, power, clocks, memory.
        Gpu = "gpu",
        /// Cards, what changes rarely: error counts, links, limits.
        GpuSlow = "gpu_slow",
        /// Cards that the bus knows.
        Pci = "pci",
        /// The kernel's log, for errors of cards.
        Kmsg = "kmsg",
        /// Memory of each NUMA node.
        Numa = "numa",
        /// Time that tasks wait for resources.
        Pressure = "pressure",
        /// Ports of RDMA devices.
        Rdma = "rdma",
        /// States of units.
        Systemd = "systemd",
        /// Health addresses of services.
        Probe = "probe",
        /// Memory of the control groups and processes of services.
        Cgroup = "cgroup",
        /// Host caches of services: their metrics, logs or plans.
        Hostcache = "hostcache",
        /// The file that says what work is planned.
        Maintenance = "maintenance",
        /// The file that says who may ask, and how the answers are encrypted.
        WebConfig = "web_config",
    }
    /// Why a collection failed.
    CollectorError: "error" {
        /// What is read is not there, though it should be.
        Missing = "missing",
        /// It may not be read.
        Permission = "permission",
        /// It says something that makes no sense.
        Malformed = "malformed",
        /// It took too long.
        Timeout = "timeout",
        /// It was there and went away meanwhile.
        Gone = "gone",
        /// The other end says something else than was asked.
        Protocol = "protocol",
        /// The process that reads it died.
        Crashed = "crashed",
        /// A mistake of ours.
        Internal = "internal",
    }
    /// One question that the verdict on a node asks.
    HealthCheck: "check" {
        /// As many cards as the bus has, or as are expected.
        GpuPresent = "gpu_present",
        /// The card answers.
        GpuResponding = "gpu_responding",
        /// The driver asks for no reset.
        GpuRecovery = "gpu_recovery",
        /// No error of the card that needs a hand.
        GpuXid = "gpu_xid",
        /// No new uncorrected memory error, no failed remapping of a row.
        GpuEcc = "gpu_ecc",
        /// No row waits for a reset to be remapped, no page to be retired.
        GpuRowRemap = "gpu_row_remap",
        /// Not slowed down by heat or power.
        GpuThermal = "gpu_thermal",
        /// All lanes of the bus are in use.
        GpuPcieLink = "gpu_pcie_link",
        /// Device memory is free where no service owns the card.
        GpuMemory = "gpu_memory",
        /// The unit is active and its probe is answered.
        ServiceUp = "service_up",
        /// The unit does not start again and again.
        ServiceRestarts = "service_restarts",
        /// There is room for what is still to be taken.
        NumaHeadroom = "numa_headroom",
        /// The host cache lies on the node it was planned for.
        HostcacheLocal = "hostcache_local",
        /// A service with a planned node is bound to it.
        NumaPolicy = "numa_policy",
        /// Tasks do not wait for memory, and none is killed for it.
        MemoryPressure = "memory_pressure",
        /// The port is active, at its rate, without new errors.
        RdmaLink = "rdma_link",
        /// The collector has fresh data.
        CollectorFresh = "collector_fresh",
    }
    /// What a failed check means for the verdict.
    CheckSeverity: "severity" {
        /// The node is not fit to serve.
        Critical = "critical",
        /// It serves, and somebody should look.
        Warning = "warning",
    }
    /// How cards are counted.
    GpuCount: "state" {
        /// The configuration says so many, or else the bus does.
        Expected = "expected",
        /// The bus has them.
        Pci = "pci",
        /// The driver has them.
        Nvml = "nvml",
        /// They answer.
        Responding = "responding",
    }
    /// Where a card's temperature is taken.
    Sensor: "sensor" {
        /// The chip.
        Gpu = "gpu",
        /// Its memory.
        Memory = "memory",
    }
    /// What a clock drives.
    ClockDomain: "domain" {
        /// The multiprocessors.
        Sm = "sm",
        /// The memory.
        Memory = "memory",
    }
    /// Why a card runs below its clocks.
    ThrottleReason: "reason" {
        /// Nothing to do.
        GpuIdle = "gpu_idle",
        /// Somebody set lower clocks.
        ClocksSetting = "clocks_setting",
        /// At its power limit.
        SwPowerCap = "sw_power_cap",
        /// The hardware halves the clocks: heat, or power.
        HwSlowdown = "hw_slowdown",
        /// In step with a slower card.
        SyncBoost = "sync_boost",
        /// The driver sees too much heat.
        SwThermal = "sw_thermal",
        /// The hardware sees too much heat.
        HwThermal = "hw_thermal",
        /// The power supply asks for less.
        HwPowerBrake = "hw_power_brake",
        /// Limits of a display.
        DisplayClocks = "display_clocks",
    }
    /// Why a card has run below its clocks, as the driver keeps time of it.
    ThrottleTime: "reason" {
        /// At its power limit.
        SwPowerCap = "sw_power_cap",
        /// In step with a slower card.
        SyncBoost = "sync_boost",
        /// The driver saw too much heat.
        SwThermal = "sw_thermal",
        /// The hardware saw too much heat.
        HwThermal = "hw_thermal",
        /// The power supply asked for less.
        HwPowerBrake = "hw_power_brake",
        /// Heat, as older drivers count it.
        Thermal = "thermal",
        /// A limit of the board.
        BoardLimit = "board_limit",
        /// Too little to do.
        LowUtilization = "low_utilization",
        /// Limits of reliability.
        Reliability = "reliability",
    }
    /// Error of a link between cards.
    NvlinkError: "kind" {
        /// Checksum of a control packet.
        CrcFlit = "crc_flit",
        /// Checksum of data.
        CrcData = "crc_data",
        /// Sent again.
        Replay = "replay",
        /// The link recovered.
        Recovery = "recovery",
        /// Memory of the link.
        EccData = "ecc_data",
    }
    /// Whether an error of memory could be put right.
    EccKind: "kind" {
        /// It could.
        Corrected = "corrected",
        /// It could not.
        Uncorrected = "uncorrected",
    }
    /// Why a page of device memory was retired.
    RetireCause: "cause" {
        /// Several corrected errors.
        MultipleSingleBit = "multiple_single_bit",
        /// One uncorrected error.
        DoubleBit = "double_bit",
    }
    /// Who told of an error of a card.
    XidSource: "source" {
        /// An event of the driver, while the exporter runs.
        Nvml = "nvml",
        /// The kernel's log.
        Kmsg = "kmsg",
    }
    /// How an allocation of a page went, seen from one NUMA node.
    PageAllocation: "outcome" {
        /// Wanted here and got here.
        Hit = "hit",
        /// Got here, wanted elsewhere.
        Miss = "miss",
        /// Wanted here, got elsewhere.
        Foreign = "foreign",
        /// Interleaved, and got where its turn was.
        InterleaveHit = "interleave_hit",
        /// By a task that runs here.
        LocalNode = "local_node",
        /// By a task that runs elsewhere.
        OtherNode = "other_node",
    }
    /// Where the size of a host cache was read; the first that has it is taken.
    HostcacheSource: "source" {
        /// The service's own metrics.
        Metrics = "metrics",
        /// The log of its start.
        Log = "log",
        /// A planner's file.
        Plan = "plan",
    }
    /// Where the wanted size of a host cache was read; the first that has it is taken.
    TargetSource: "source" {
        /// The exporter's configuration.
        Config = "config",
        /// The service's own metrics.
        Metrics = "metrics",
    }
    /// State of a service; one is 1.
    ServiceState: "state" {
        /// It runs.
        Active = "active",
        /// It starts.
        Activating = "activating",
        /// It stops.
        Deactivating = "deactivating",
        /// It does not run, and nobody wants it to.
        Inactive = "inactive",
        /// It does not run, and will not by itself.
        Failed = "failed",
        /// Nobody can say.
        Unknown = "unknown",
    }
    /// Where the kernel takes memory of a service from.
    MempolicyKind: "policy" {
        /// Wherever the task runs.
        Default = "default",
        /// Only the nodes named.
        Bind = "bind",
        /// One node while it has room.
        Preferred = "preferred",
        /// Several nodes while they have room.
        PreferredMany = "preferred_many",
        /// In turn.
        Interleave = "interleave",
        /// In turn, by weight.
        WeightedInterleave = "weighted_interleave",
        /// Where the task runs, whatever the policy of the process.
        Local = "local",
        /// Something else.
        Other = "other",
    }
    /// What tasks wait for.
    PressureResource: "resource" {
        /// Processors.
        Cpu = "cpu",
        /// Memory.
        Memory = "memory",
        /// Disks.
        Io = "io",
        /// Interrupts.
        Irq = "irq",
    }
    /// Error of an RDMA port.
    RdmaError: "kind" {
        /// Garbled symbols on the wire.
        SymbolError = "symbol_error",
        /// The link went down.
        LinkDowned = "link_downed",
        /// Packets out of order.
        OutOfSequence = "out_of_sequence",
        /// Packets missing.
        PacketSeqErr = "packet_seq_err",
        /// No acknowledgement in time.
        LocalAckTimeout = "local_ack_timeout",
        /// The receiver was not ready, and again.
        RnrNakRetry = "rnr_nak_retry",
    }
    /// Notification of congestion at an RDMA port.
    RdmaCongestion: "kind" {
        /// Told the other end to send less.
        CnpSent = "cnp_sent",
        /// Was told to send less.
        CnpHandled = "cnp_handled",
    }
}

open! {
    /// What a check is about: a GPU's uuid, a NUMA node, a service, `device/port`, a collector, or
    /// `node` for all of it.
    CheckScope: "scope", 256, "cards, NUMA nodes, services, ports and collectors of one host";
    /// Card, as the driver numbers them; not the same after one is lost.
    Gpu: "gpu", 32, "cards of one host";
    /// Card, or a part of one, by its own name; the key to join by.
    Uuid: "uuid", 256, "cards of one host, and up to seven parts of each";
    /// Part of a card's memory and compute, where it is split; empty for the whole card.
    GpuInstance: "gpu_instance", 15, "parts that a card can be split into";
    /// Part of such a part's compute; empty for the whole card.
    ComputeInstance: "compute_instance", 8, "parts that such a part can be split into";
    /// Product name of a card.
    GpuName: "name", 32, "cards of one host";
    /// Address on the bus, as the kernel writes it.
    PciBusId: "pci_bus_id", 32, "cards of one host";
    /// Version of the driver.
    DriverVersion: "driver_version", 1, "one driver is loaded";
    /// Version of a card's firmware.
    VbiosVersion: "vbios_version", 32, "cards of one host";
    /// Number of a card's device file.
    Minor: "minor", 32, "cards of one host";
    /// Link between cards, as a card numbers them.
    Nvlink: "link", 18, "links of one card";
    /// Code of an error of a card; `other` beyond the bound.
    Xid: "xid", 64, "codes watched for and codes seen, and other";
    /// The other NUMA node of a pair.
    ToNode: "to", 16, "nodes of one host";
    /// Service, as the configuration calls it.
    Service: "service", 64, "services of the configuration";
    /// Nodes of a memory policy, as the kernel lists them; `none` where it has none.
    PolicyNodes: "nodes", 64, "one for each service";
    /// RDMA device.
    RdmaDevice: "device", 32, "devices of one host";
    /// Port of an RDMA device, from 1.
    RdmaPort: "port", 8, "ports of one device";
}

impl GpuInstance {
    /// The whole card: no label on the page.
    pub const WHOLE: Self = Self(Cow::Borrowed(""));
}

impl ComputeInstance {
    /// The whole card: no label on the page.
    pub const WHOLE: Self = Self(Cow::Borrowed(""));
}

impl ThrottleReason {
    /// Reasons that the hardware has: heat and power.
    pub const OF_HARDWARE: [Self; 3] = [Self::HwThermal, Self::HwSlowdown, Self::HwPowerBrake];
}
