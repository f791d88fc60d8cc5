//! What is read of a card. Everything may be missing: cards and drivers differ. Numbers are in the
//! driver's own units, which the names say.

use super::{Fault, Group};
use serde::{Deserialize, Serialize};

/// One group's values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Values {
    /// Of [`Group::Fast`].
    Fast(Box<Fast>),
    /// Of [`Group::Slow`].
    Slow(Box<Slow>),
    /// Of [`Group::Fixed`].
    Fixed(Box<Fixed>),
}

impl Values {
    /// Which group they are of.
    #[must_use]
    pub const fn group(&self) -> Group {
        match self {
            Self::Fast(_) => Group::Fast,
            Self::Slow(_) => Group::Slow,
            Self::Fixed(_) => Group::Fixed,
        }
    }

    /// Calls that failed while others worked.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        match self {
            Self::Fast(values) => &values.problems,
            Self::Slow(values) => &values.problems,
            Self::Fixed(values) => &values.problems,
        }
    }
}

macro_rules! group {
    ($(#[$doc:meta])+ $name:ident { $($(#[$field_doc:meta])+ $field:ident: $type:ty,)+ }) => {
        $(#[$doc])+
        #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            $(
                $(#[$field_doc])+
                #[serde(default, skip_serializing_if = "is_default")]
                pub $field: $type,
            )+
        }
    };
}

/// What says nothing is not written.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

group! {
    /// What changes by the second.
    Fast {
        /// Share of time in which a kernel ran, 0 to 100.
        utilization_percent: Option<u32>,
        /// Share of time in which memory was read or written, 0 to 100.
        memory_utilization_percent: Option<u32>,
        /// Device memory.
        memory: Option<Memory>,
        /// Temperature of the chip.
        temperature_celsius: Option<u64>,
        /// Temperature of the memory.
        memory_temperature_celsius: Option<u64>,
        /// Power draw.
        power_milliwatts: Option<u64>,
        /// Enforced limit.
        power_limit_milliwatts: Option<u64>,
        /// Energy since the driver was loaded.
        energy_millijoules: Option<u64>,
        /// Clock of the multiprocessors.
        sm_clock_megahertz: Option<u64>,
        /// Clock of the memory.
        memory_clock_megahertz: Option<u64>,
        /// Reasons for lower clocks, as NVML's bits.
        throttle_reasons: Option<u64>,
        /// Time with lower clocks.
        throttle_times: ThrottleTimes,
        /// Bytes sent over PCIe.
        pcie_transmit_bytes: Option<u64>,
        /// Bytes received over PCIe.
        pcie_receive_bytes: Option<u64>,
        /// Calls that failed.
        problems: Vec<Problem>,
    }
}

group! {
    /// Nanoseconds with lower clocks since the driver was loaded, by reason.
    ThrottleTimes {
        /// Power limit.
        sw_power_cap: Option<u64>,
        /// In step with another card.
        sync_boost: Option<u64>,
        /// The driver saw heat.
        sw_thermal: Option<u64>,
        /// The hardware saw heat.
        hw_thermal: Option<u64>,
        /// The power supply asked.
        hw_power_brake: Option<u64>,
        /// Heat, as older drivers count.
        thermal: Option<u64>,
        /// A limit of the board.
        board_limit: Option<u64>,
        /// Too little to do.
        low_utilization: Option<u64>,
        /// Reliability.
        reliability: Option<u64>,
    }
}

group! {
    /// What changes by the minute.
    Slow {
        /// ECC errors since the driver was loaded.
        ecc_volatile: Ecc,
        /// ECC errors in the card's life.
        ecc_lifetime: Ecc,
        /// Remapped rows.
        rows: Rows,
        /// Pages retired after several corrected errors.
        retired_single_bit: Option<u64>,
        /// Pages retired after an uncorrected error.
        retired_double_bit: Option<u64>,
        /// Pages wait to be retired.
        retire_pending: Option<bool>,
        /// What the driver asks for, as NVML's number.
        recovery_action: Option<u64>,
        /// PCIe replays.
        pcie_replays: Option<u64>,
        /// PCIe lanes in use.
        pcie_link_width: Option<u64>,
        /// PCIe lanes possible.
        pcie_link_width_max: Option<u64>,
        /// PCIe generation in use.
        pcie_link_generation: Option<u64>,
        /// NVLinks that the card has.
        links: Vec<Link>,
        /// MIG is on.
        mig_enabled: Option<bool>,
        /// Its instances.
        instances: Vec<Instance>,
        /// Compute processes.
        processes: Vec<Process>,
        /// Calls that failed.
        problems: Vec<Problem>,
    }
}

group! {
    /// Error counts of memory.
    Ecc {
        /// Put right.
        corrected: Option<u64>,
        /// Not put right.
        uncorrected: Option<u64>,
    }
}

group! {
    /// Rows of memory that were replaced.
    Rows {
        /// After corrected errors.
        corrected: Option<u64>,
        /// After uncorrected errors.
        uncorrected: Option<u64>,
        /// One waits for a reset.
        pending: Option<bool>,
        /// One could not be replaced.
        failed: Option<bool>,
    }
}

group! {
    /// What hardly ever changes.
    Fixed {
        /// The card's own name; the key to know it by.
        uuid: String,
        /// Product name.
        name: Option<String>,
        /// Address on the bus as the kernel writes it: `0000:17:00.0`.
        pci_bus_id: Option<String>,
        /// Number of the device file.
        minor: Option<u64>,
        /// Version of the firmware.
        vbios_version: Option<String>,
        /// Highest clock of the multiprocessors.
        sm_clock_max_megahertz: Option<u64>,
        /// Highest clock of the memory.
        memory_clock_max_megahertz: Option<u64>,
        /// Calls that failed.
        problems: Vec<Problem>,
    }
}

/// Bytes of device memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    /// All of it.
    pub total: u64,
    /// In use; includes what the driver holds where `reserved` is not known.
    pub used: u64,
    /// Free.
    pub free: u64,
    /// Held by driver and firmware.
    pub reserved: Option<u64>,
}

/// One NVLink.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// As the card numbers it.
    pub link: u32,
    /// It carries data.
    pub up: bool,
    /// What went wrong on it.
    pub errors: LinkErrors,
}

group! {
    /// Error counts of a link.
    LinkErrors {
        /// Checksum of a control packet.
        crc_flit: Option<u64>,
        /// Checksum of data.
        crc_data: Option<u64>,
        /// Sent again.
        replay: Option<u64>,
        /// The link recovered.
        recovery: Option<u64>,
        /// Memory of the link.
        ecc_data: Option<u64>,
    }
}

/// A part of a split card.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Instance {
    /// Its own name.
    pub uuid: String,
    /// Part of memory and compute.
    pub gpu_instance: u32,
    /// Part of that part's compute.
    pub compute_instance: u32,
    /// Its memory.
    pub memory: Option<Memory>,
}

/// A process that computes on a card.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Process {
    /// As the host numbers it.
    pub pid: u32,
    /// Device memory; `None` where the driver does not say.
    pub bytes: Option<u64>,
}

/// A call that failed while others worked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Problem {
    /// The library's function.
    pub call: String,
    /// Why.
    pub fault: Fault,
}
