//! Calls that the wrapper crate does not have, or has only for newer drivers.

use crate::protocol::{Memory, Process};
use nvml_wrapper::Device;
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::{NvmlError, nvml_try};
use nvml_wrapper::struct_wrappers::device::ProcessInfo;
use nvml_wrapper_sys::bindings as nvml;

/// Processes told of in one report.
const PROCESSES_MAX: usize = 256;

/// An entry point that the library may lack.
fn symbol<T: Copy, E: ToString>(found: Result<&T, E>) -> Result<T, NvmlError> {
    found.copied().map_err(|error| NvmlError::FailedToLoadSymbol(error.to_string()))
}

const fn is_missing(error: &NvmlError) -> bool {
    matches!(
        error,
        NvmlError::FailedToLoadSymbol(_) | NvmlError::NotSupported | NvmlError::FunctionNotFound
    )
}

/// Device memory, by the older call where the driver lacks the newer.
pub(crate) fn memory(device: &Device<'static>) -> Result<Memory, NvmlError> {
    match device.memory_info() {
        Ok(info) => Ok(Memory {
            total: info.total,
            used: info.used,
            free: info.free,
            reserved: Some(info.reserved),
        }),
        Err(error) if is_missing(&error) => older_memory(device),
        Err(error) => Err(error),
    }
}

fn older_memory(device: &Device<'static>) -> Result<Memory, NvmlError> {
    let call = symbol(device.nvml().lib().nvmlDeviceGetMemoryInfo.as_ref())?;
    let mut info = nvml::nvmlMemory_t { total: 0, free: 0, used: 0 };
    // SAFETY: the handle is the library's own and the structure is the one the call fills.
    nvml_try(unsafe { call(device.handle(), &raw mut info) })?;
    Ok(Memory { total: info.total, used: info.used, free: info.free, reserved: None })
}

/// Compute processes, by the oldest call that the driver has.
pub(crate) fn processes(device: &Device<'static>) -> Result<Vec<Process>, NvmlError> {
    let newest = device.running_compute_processes();
    let newer = match newest {
        Err(error) if is_missing(&error) => device.running_compute_processes_v2(),
        other => other,
    };
    match newer {
        Ok(list) => Ok(list.iter().take(PROCESSES_MAX).map(process).collect()),
        Err(error) if is_missing(&error) => oldest_processes(device),
        Err(error) => Err(error),
    }
}

fn process(info: &ProcessInfo) -> Process {
    let bytes = match info.used_gpu_memory {
        UsedGpuMemory::Used(bytes) => Some(bytes),
        UsedGpuMemory::Unavailable => None,
    };
    Process { pid: info.pid, bytes }
}

fn oldest_processes(device: &Device<'static>) -> Result<Vec<Process>, NvmlError> {
    const NOT_AVAILABLE: u64 = u64::MAX;
    let call = symbol(device.nvml().lib().nvmlDeviceGetComputeRunningProcesses.as_ref())?;
    let empty = nvml::nvmlProcessInfo_v1_t { pid: 0, usedGpuMemory: 0 };
    let mut list = vec![empty; PROCESSES_MAX];
    let mut count = PROCESSES_MAX as u32;
    // SAFETY: the handle is the library's own, and the list has room for as many as `count` says.
    nvml_try(unsafe { call(device.handle(), &raw mut count, list.as_mut_ptr()) })?;
    let known = |bytes: u64| Some(bytes).filter(|bytes| *bytes != NOT_AVAILABLE);
    let processes = list.iter().take(count as usize);
    Ok(processes.map(|p| Process { pid: p.pid, bytes: known(p.usedGpuMemory) }).collect())
}

/// Gpu instance and compute instance of a MIG handle.
pub(crate) fn instance_ids(device: &Device<'static>) -> Result<(u32, u32), NvmlError> {
    let lib = device.nvml().lib();
    let gpu = symbol(lib.nvmlDeviceGetGpuInstanceId.as_ref())?;
    let compute = symbol(lib.nvmlDeviceGetComputeInstanceId.as_ref())?;
    let (mut first, mut second) = (0, 0);
    // SAFETY: the handle is the library's own, and both calls fill one number.
    unsafe {
        nvml_try(gpu(device.handle(), &raw mut first))?;
        nvml_try(compute(device.handle(), &raw mut second))?;
    }
    Ok((first, second))
}

/// The one error count of a link that the wrapper has no name for.
pub(crate) fn link_ecc_errors(device: &Device<'static>, link: u32) -> Result<u64, NvmlError> {
    let call = symbol(device.nvml().lib().nvmlDeviceGetNvLinkErrorCounter.as_ref())?;
    let kind = nvml::nvmlNvLinkErrorCounter_enum_NVML_NVLINK_ERROR_DL_ECC_DATA;
    let mut count = 0;
    // SAFETY: the handle is the library's own, and the call fills one number.
    nvml_try(unsafe { call(device.handle(), link, kind, &raw mut count) })?;
    Ok(count)
}

/// A field of one of a card's parts, such as a link, which the wrapper cannot ask for.
pub(crate) fn scoped_field(
    device: &Device<'static>,
    field: u32,
    scope: u32,
) -> Result<u64, NvmlError> {
    let call = symbol(device.nvml().lib().nvmlDeviceGetFieldValues.as_ref())?;
    let mut value = nvml::nvmlFieldValue_t {
        fieldId: field,
        scopeId: scope,
        timestamp: 0,
        latencyUsec: 0,
        valueType: 0,
        nvmlReturn: 0,
        value: nvml::nvmlValue_t { ullVal: 0 },
    };
    // SAFETY: the handle is the library's own, and there is room for the one value announced.
    nvml_try(unsafe { call(device.handle(), 1, &raw mut value) })?;
    nvml_try(value.nvmlReturn)?;
    // SAFETY: the union was all zero before; its narrower values leave the rest of it so.
    Ok(unsafe { value.value.ullVal })
}
