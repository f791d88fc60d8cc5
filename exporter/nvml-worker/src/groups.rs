//! What each group asks a card.

use crate::fallback;
use crate::protocol::{
    Ecc, Fast, Fixed, Instance, Link, LinkErrors, Rows, Slow, ThrottleTimes, Values,
};
use crate::reading::Reading;
use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::{Clock, EccCounter, MemoryError, TemperatureSensor};
use nvml_wrapper::enum_wrappers::nv_link::ErrorCounter;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::sys_exports::field_id as id;

/// The call that counts errors of memory.
pub(crate) const ECC_ERRORS: &str = "nvmlDeviceGetTotalEccErrors";
const VOLATILE: u32 = 0;
const LIFETIME: u32 = 2;
const UNCORRECTED: u32 = 1;
/// Its argument for those not put right since the driver was loaded.
pub(crate) const VOLATILE_UNCORRECTED: u32 = VOLATILE + UNCORRECTED;

/// Links that a card can have.
const LINKS_MAX: u32 = 18;
/// Instances that a card can be split into.
const INSTANCES_MAX: u32 = 16;

pub(crate) fn fast(reading: &mut Reading<'_>) -> Fast {
    let rates = reading.take(("nvmlDeviceGetUtilizationRates", 0), Device::utilization_rates);
    // One call for everything that has a number of a field, whatever its driver knows of them.
    let [power, memory_celsius, sent, received, cap, boost, sw, hw, brake, heat, board, low, rely] =
        reading.fields([
            id::NVML_FI_DEV_POWER_INSTANT,
            id::NVML_FI_DEV_MEMORY_TEMP,
            id::NVML_FI_DEV_PCIE_COUNT_TX_BYTES,
            id::NVML_FI_DEV_PCIE_COUNT_RX_BYTES,
            id::NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP,
            id::NVML_FI_DEV_CLOCKS_EVENT_REASON_SYNC_BOOST,
            id::NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN,
            id::NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN,
            id::NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN,
            id::NVML_FI_DEV_PERF_POLICY_THERMAL,
            id::NVML_FI_DEV_PERF_POLICY_BOARD_LIMIT,
            id::NVML_FI_DEV_PERF_POLICY_LOW_UTILIZATION,
            id::NVML_FI_DEV_PERF_POLICY_RELIABILITY,
        ]);
    let usage = reading.take(("nvmlDeviceGetPowerUsage", 0), Device::power_usage);
    let clock = |reading: &mut Reading<'_>, clock: Clock, at| {
        let call = ("nvmlDeviceGetClockInfo", at);
        reading.take(call, |card| card.clock_info(clock)).map(u64::from)
    };
    Fast {
        utilization_percent: rates.as_ref().map(|rates| rates.gpu),
        memory_utilization_percent: rates.as_ref().map(|rates| rates.memory),
        memory: reading.take(("nvmlDeviceGetMemoryInfo", 0), fallback::memory),
        temperature_celsius: reading
            .take(("nvmlDeviceGetTemperature", 0), |card| card.temperature(TemperatureSensor::Gpu))
            .map(u64::from),
        memory_temperature_celsius: memory_celsius,
        power_milliwatts: usage.map(u64::from).or(power),
        power_limit_milliwatts: reading
            .take(("nvmlDeviceGetEnforcedPowerLimit", 0), Device::enforced_power_limit)
            .map(u64::from),
        energy_millijoules: reading
            .take(("nvmlDeviceGetTotalEnergyConsumption", 0), Device::total_energy_consumption),
        sm_clock_megahertz: clock(reading, Clock::SM, 1),
        memory_clock_megahertz: clock(reading, Clock::Memory, 2),
        throttle_reasons: reading.take(("nvmlDeviceGetCurrentClocksThrottleReasons", 0), |card| {
            card.current_throttle_reasons().map(|reasons| reasons.bits())
        }),
        throttle_times: ThrottleTimes {
            sw_power_cap: cap,
            sync_boost: boost,
            sw_thermal: sw,
            hw_thermal: hw,
            hw_power_brake: brake,
            thermal: heat,
            board_limit: board,
            low_utilization: low,
            reliability: rely,
        },
        pcie_transmit_bytes: sent,
        pcie_receive_bytes: received,
        problems: Vec::new(),
    }
}

pub(crate) fn slow(reading: &mut Reading<'_>) -> Slow {
    let [corrected, uncorrected, pending, failed, single, double, retire, action] =
        reading.fields([
            id::NVML_FI_DEV_REMAPPED_COR,
            id::NVML_FI_DEV_REMAPPED_UNC,
            id::NVML_FI_DEV_REMAPPED_PENDING,
            id::NVML_FI_DEV_REMAPPED_FAILURE,
            id::NVML_FI_DEV_RETIRED_SBE,
            id::NVML_FI_DEV_RETIRED_DBE,
            id::NVML_FI_DEV_RETIRED_PENDING,
            id::NVML_FI_DEV_GET_GPU_RECOVERY_ACTION,
        ]);
    let yes = |number: Option<u64>| number.map(|number| number != 0);
    let mig = reading.take(("nvmlDeviceGetMigMode", 0), Device::mig_mode);
    let mig_enabled = mig.map(|mode| mode.current != 0);
    Slow {
        ecc_volatile: ecc(reading, EccCounter::Volatile, VOLATILE),
        ecc_lifetime: ecc(reading, EccCounter::Aggregate, LIFETIME),
        rows: Rows { corrected, uncorrected, pending: yes(pending), failed: yes(failed) },
        retired_single_bit: single,
        retired_double_bit: double,
        retire_pending: yes(retire),
        recovery_action: action,
        pcie_replays: reading
            .take(("nvmlDeviceGetPcieReplayCounter", 0), Device::pcie_replay_counter)
            .map(u64::from),
        pcie_link_width: reading
            .take(("nvmlDeviceGetCurrPcieLinkWidth", 0), Device::current_pcie_link_width)
            .map(u64::from),
        pcie_link_width_max: reading
            .take(("nvmlDeviceGetMaxPcieLinkWidth", 0), Device::max_pcie_link_width)
            .map(u64::from),
        pcie_link_generation: reading
            .take(("nvmlDeviceGetCurrPcieLinkGeneration", 0), Device::current_pcie_link_gen)
            .map(u64::from),
        links: (0..LINKS_MAX).filter_map(|number| link(reading, number)).collect(),
        mig_enabled,
        instances: if mig_enabled == Some(true) { instances(reading) } else { Vec::new() },
        processes: reading
            .take(("nvmlDeviceGetComputeRunningProcesses", 0), fallback::processes)
            .unwrap_or_default(),
        problems: Vec::new(),
    }
}

fn ecc(reading: &mut Reading<'_>, counter: EccCounter, at: u32) -> Ecc {
    let mut count = |error: MemoryError, at| {
        let call = (ECC_ERRORS, at);
        reading.take(call, |card| card.total_ecc_errors(error, counter))
    };
    Ecc {
        corrected: count(MemoryError::Corrected, at),
        uncorrected: count(MemoryError::Uncorrected, at + UNCORRECTED),
    }
}

/// A link; `None` where the card has none of this number.
fn link(reading: &mut Reading<'_>, number: u32) -> Option<Link> {
    let state = reading.take(("nvmlDeviceGetNvLinkState", number), |card| {
        match card.link_wrapper_for(number).is_active() {
            // What a card says of a number that it has no link for.
            Err(NvmlError::InvalidArg) => Err(NvmlError::NotSupported),
            other => other,
        }
    });
    let up = state?;
    let mut count = |counter: ErrorCounter, at: u32, field: Option<u32>| {
        let call = ("nvmlDeviceGetNvLinkErrorCounter", number << 8 | at);
        let counted =
            reading.take(call, |card| card.link_wrapper_for(number).error_counter(counter));
        counted.or_else(|| {
            let field = field?;
            let call = ("nvmlDeviceGetFieldValues of a link", field << 8 | number);
            reading.take(call, |card| fallback::scoped_field(card, field, number))
        })
    };
    let errors = LinkErrors {
        replay: count(ErrorCounter::DlReplay, 0, Some(id::NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY)),
        recovery: count(
            ErrorCounter::DlRecovery,
            1,
            Some(id::NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS),
        ),
        crc_flit: count(ErrorCounter::DlCrcFlit, 2, Some(id::NVML_FI_DEV_NVLINK_ERROR_DL_CRC)),
        crc_data: count(ErrorCounter::DlCrcData, 3, None),
        ecc_data: None,
    };
    let errors = LinkErrors {
        ecc_data: reading.take(("nvmlDeviceGetNvLinkErrorCounter", number << 8 | 4), |card| {
            fallback::link_ecc_errors(card, number)
        }),
        ..errors
    };
    Some(Link { link: number, up, errors })
}

fn instances(reading: &mut Reading<'_>) -> Vec<Instance> {
    let count = reading.take(("nvmlDeviceGetMaxMigDeviceCount", 0), Device::mig_device_count);
    let mut found = Vec::new();
    for index in 0..count.unwrap_or_default().min(INSTANCES_MAX) {
        let instance = reading.take(("nvmlDeviceGetMigDeviceHandleByIndex", index), |card| {
            match card.mig_device_by_index(index) {
                Ok(part) => {
                    let (gpu_instance, compute_instance) = fallback::instance_ids(&part)?;
                    let memory = fallback::memory(&part).ok();
                    let uuid = part.uuid()?;
                    Ok(Some(Instance { uuid, gpu_instance, compute_instance, memory }))
                }
                // Numbers have holes: instances come and go.
                Err(NvmlError::NotFound) => Ok(None),
                Err(error) => Err(error),
            }
        });
        found.extend(instance.flatten());
    }
    found
}

pub(crate) fn fixed(reading: &mut Reading<'_>, uuid: &str) -> Fixed {
    let address = reading.take(("nvmlDeviceGetPciInfo", 0), Device::pci_info);
    let clock = |reading: &mut Reading<'_>, clock: Clock, at| {
        let call = ("nvmlDeviceGetMaxClockInfo", at);
        reading.take(call, |card| card.max_clock_info(clock)).map(u64::from)
    };
    Fixed {
        uuid: uuid.to_owned(),
        name: reading.take(("nvmlDeviceGetName", 0), Device::name),
        pci_bus_id: address.map(|address| kernel_address(&address.bus_id)),
        minor: reading.take(("nvmlDeviceGetMinorNumber", 0), Device::minor_number).map(u64::from),
        vbios_version: reading.take(("nvmlDeviceGetVbiosVersion", 0), Device::vbios_version),
        sm_clock_max_megahertz: clock(reading, Clock::SM, 1),
        memory_clock_max_megahertz: clock(reading, Clock::Memory, 2),
        problems: Vec::new(),
    }
}

/// The kernel's spelling of an address: NVML writes eight digits of the domain, in upper case.
fn kernel_address(address: &str) -> String {
    let lower = address.to_ascii_lowercase();
    match lower.split_once(':') {
        Some((domain, rest)) if domain.len() == 8 && domain.starts_with("0000") => {
            format!("{}:{rest}", &domain[4..])
        }
        _ => lower,
    }
}

/// Reads a group.
pub(crate) fn read(reading: &mut Reading<'_>, group: crate::protocol::Group, uuid: &str) -> Values {
    use crate::protocol::Group;
    match group {
        Group::Fast => Values::Fast(Box::new(fast(reading))),
        Group::Slow => Values::Slow(Box::new(slow(reading))),
        Group::Fixed => Values::Fixed(Box::new(fixed(reading, uuid))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_spelt_as_the_kernel_does() {
        assert_eq!(kernel_address("00000000:A1:00.0"), "0000:a1:00.0");
        assert_eq!(kernel_address("00010000:A1:00.0"), "00010000:a1:00.0");
        assert_eq!(kernel_address("0000:17:00.0"), "0000:17:00.0");
    }
}
