//! Names under which NVIDIA's own exporter shows what we show too, for dashboards made for it.
//!
//! Not of our making: neither names nor units nor kinds follow the rules of the catalog, and
//! nothing here is part of it. Only families that can be served truthfully are listed; a value that
//! is not known is left off the page, never 0.

use crate::def::Kind;

/// A family of another exporter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Family {
    /// Name.
    pub name: &'static str,
    /// What it is, and in what.
    pub help: &'static str,
    /// Kind, as the other exporter types it.
    pub kind: Kind,
}

/// The labels of all these series, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Labels<'a> {
    /// Number of the card.
    pub gpu: &'a str,
    /// The card by its own name.
    pub uuid: &'a str,
    /// Address on the bus, as the driver writes it.
    pub pci_bus_id: &'a str,
    /// Name of the device file.
    pub device: &'a str,
    /// Product name.
    pub model_name: &'a str,
    /// Name of the host.
    pub hostname: &'a str,
    /// Version of the driver.
    pub driver_version: &'a str,
}

impl<'a> Labels<'a> {
    /// Names and values.
    pub const fn pairs(&self) -> [(&'static str, &'a str); 7] {
        [
            ("gpu", self.gpu),
            ("UUID", self.uuid),
            ("pci_bus_id", self.pci_bus_id),
            ("device", self.device),
            ("modelName", self.model_name),
            ("hostname", self.hostname),
            ("DCGM_FI_DRIVER_VERSION", self.driver_version),
        ]
    }
}

macro_rules! families {
    ($($(#[doc = $help:literal])+ $id:ident : $kind:ident = $name:literal;)+) => {
        $(
            $(#[doc = $help])+
            pub const $id: Family = Family {
                name: $name,
                help: concat!($($help),+).trim_ascii(),
                kind: Kind::$kind,
            };
        )+

        /// All of them, in order.
        pub const ALL: &[Family] = &[$($id),+];
    };
}

families! {
    /// Clock of the multiprocessors, in MHz.
    SM_CLOCK: Gauge = "DCGM_FI_DEV_SM_CLOCK";
    /// Clock of the memory, in MHz.
    MEM_CLOCK: Gauge = "DCGM_FI_DEV_MEM_CLOCK";
    /// Temperature of the memory, in C.
    MEMORY_TEMP: Gauge = "DCGM_FI_DEV_MEMORY_TEMP";
    /// Temperature of the chip, in C.
    GPU_TEMP: Gauge = "DCGM_FI_DEV_GPU_TEMP";
    /// Power draw, in W.
    POWER_USAGE: Gauge = "DCGM_FI_DEV_POWER_USAGE";
    /// Energy used since driver load, in mJ.
    TOTAL_ENERGY_CONSUMPTION: Counter = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION";
    /// Packets sent again on PCIe.
    PCIE_REPLAY_COUNTER: Counter = "DCGM_FI_DEV_PCIE_REPLAY_COUNTER";
    /// Share of time a kernel ran, in percent.
    GPU_UTIL: Gauge = "DCGM_FI_DEV_GPU_UTIL";
    /// Share of time memory was read or written, in percent.
    MEM_COPY_UTIL: Gauge = "DCGM_FI_DEV_MEM_COPY_UTIL";
    /// Use of the video encoder, in percent.
    ENC_UTIL: Gauge = "DCGM_FI_DEV_ENC_UTIL";
    /// Use of the video decoder, in percent.
    DEC_UTIL: Gauge = "DCGM_FI_DEV_DEC_UTIL";
    /// Code of the last Xid; 0 while there was none.
    XID_ERRORS: Gauge = "DCGM_FI_DEV_XID_ERRORS";
    /// Device memory free, in MiB.
    FB_FREE: Gauge = "DCGM_FI_DEV_FB_FREE";
    /// Device memory in use, in MiB.
    FB_USED: Gauge = "DCGM_FI_DEV_FB_USED";
    /// Device memory held by driver and firmware, in MiB.
    FB_RESERVED: Gauge = "DCGM_FI_DEV_FB_RESERVED";
    /// Rows remapped after uncorrected errors.
    UNCORRECTABLE_REMAPPED_ROWS: Counter = "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS";
    /// Rows remapped after corrected errors.
    CORRECTABLE_REMAPPED_ROWS: Counter = "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS";
    /// 1 when a row could not be remapped.
    ROW_REMAP_FAILURE: Gauge = "DCGM_FI_DEV_ROW_REMAP_FAILURE";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_told_apart_and_not_ours() {
        let mut names: Vec<_> = ALL.iter().map(|family| family.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ALL.len());
        for family in ALL {
            assert!(family.name.starts_with("DCGM_FI_DEV_"), "{}", family.name);
            assert!(family.help.ends_with('.') && family.kind != Kind::Histogram);
            assert!(crate::all().all(|info| info.name != family.name));
        }
    }
}
