//! Calls that fill structures and lists about a card.

use super::card_call;
use crate::answer::{self, INSUFFICIENT, INVALID};
use crate::script::Code;
use nvml_wrapper_sys::bindings as nvml;
use std::ffi::{c_char, c_int, c_uint, c_ulonglong};

/// Total, used and reserved bytes.
fn memory(card: &str) -> Result<[u64; 3], Code> {
    answer::numbers(card, "nvmlDeviceGetMemoryInfo")
}

/// PCI address of the script, as in `00000000:17:00.0`.
fn address(card: &str) -> Result<nvml::nvmlPciInfo_t, Code> {
    let text = answer::text(card, "nvmlDeviceGetPciInfo")?;
    let parts: Option<Vec<u32>> =
        text.split([':', '.']).map(|part| u32::from_str_radix(part, 16).ok()).collect();
    let Some([domain, bus, device, _function]) = parts.as_deref() else {
        return Err(crate::script::code(&text));
    };
    let old = format!("{:04X}:{bus:02X}:{device:02X}.0", domain & 0xffff);
    Ok(nvml::nvmlPciInfo_t {
        busIdLegacy: characters(&old),
        domain: *domain,
        bus: *bus,
        device: *device,
        pciDeviceId: 0x2335_10de,
        pciSubSystemId: 0x18be_10de,
        busId: characters(&text),
    })
}

/// A text in an array of characters, cut where the array's end must be a zero.
fn characters<const N: usize>(text: &str) -> [c_char; N] {
    let mut array = [0; N];
    for (slot, byte) in array[..N - 1].iter_mut().zip(text.bytes()) {
        *slot = byte as c_char;
    }
    array
}

/// Writes a list the way NVML does: `count` is the room on the way in and the length on the way
/// out; too little room is an error that says the length.
///
/// # Safety
/// `count` is null or valid; `out` is null or has room for as many items as `count` says.
unsafe fn list<T>(count: *mut c_uint, out: *mut T, items: Vec<T>) -> Result<(), Code> {
    if count.is_null() {
        return Err(INVALID);
    }
    // SAFETY: not null, and valid by the contract above.
    let room = unsafe { count.replace(items.len() as c_uint) } as usize;
    if items.is_empty() {
        return Ok(());
    }
    if out.is_null() || room < items.len() {
        return Err(INSUFFICIENT);
    }
    for (at, item) in items.into_iter().enumerate() {
        // SAFETY: `at` is below the room that the caller has.
        unsafe { out.add(at).write(item) };
    }
    Ok(())
}

/// Processes of the script: `pid:bytes` each; bytes may be `-` where the driver does not say.
fn processes(card: &str) -> Result<Vec<nvml::nvmlProcessInfo_t>, Code> {
    const NOT_AVAILABLE: u64 = u64::MAX;
    let text = answer::text(card, "processes")?;
    let process = |word: &str| {
        let (pid, bytes) = word.split_once(':')?;
        Some(nvml::nvmlProcessInfo_t {
            pid: pid.parse().ok()?,
            usedGpuMemory: if bytes == "-" { NOT_AVAILABLE } else { bytes.parse().ok()? },
            gpuInstanceId: c_uint::MAX,
            computeInstanceId: c_uint::MAX,
        })
    };
    text.split_whitespace().map(process).collect::<Option<_>>().ok_or(crate::script::code(&text))
}

card_call! {
    nvmlDeviceGetUtilizationRates(card, own, out: *mut nvml::nvmlUtilization_t) {
        let [gpu, memory] = answer::numbers(&card, own)?;
        let rates = nvml::nvmlUtilization_t { gpu: gpu as c_uint, memory: memory as c_uint };
        // SAFETY: the caller passes a place for the structure, or null.
        unsafe { answer::put(out, rates) }
    }
    nvmlDeviceGetMemoryInfo(card, _own, out: *mut nvml::nvmlMemory_t) {
        let [total, used, reserved] = memory(&card)?;
        // The first version counts what the driver holds as used.
        let used = used + reserved;
        let info = nvml::nvmlMemory_t { total, free: total.saturating_sub(used), used };
        // SAFETY: the caller passes a place for the structure, or null.
        unsafe { answer::put(out, info) }
    }
    nvmlDeviceGetMemoryInfo_v2(card, _own, out: *mut nvml::nvmlMemory_v2_t) {
        let [total, used, reserved] = memory(&card)?;
        let version = size_of::<nvml::nvmlMemory_v2_t>() as c_uint | (2 << 24);
        // SAFETY: the caller passes the structure with its version filled in, or null.
        if out.is_null() || unsafe { (*out).version } != version {
            return Err(INVALID);
        }
        let free = total.saturating_sub(used + reserved);
        // SAFETY: not null, checked above.
        unsafe { answer::put(out, nvml::nvmlMemory_v2_t { version, total, reserved, free, used }) }
    }
    nvmlDeviceGetBAR1MemoryInfo(card, own, out: *mut nvml::nvmlBAR1Memory_t) {
        let [total, used] = answer::numbers(&card, own)?;
        let free = total.saturating_sub(used);
        let info = nvml::nvmlBAR1Memory_t { bar1Total: total, bar1Free: free, bar1Used: used };
        // SAFETY: the caller passes a place for the structure, or null.
        unsafe { answer::put(out, info) }
    }
    nvmlDeviceGetPciInfo(card, _own, out: *mut nvml::nvmlPciInfo_t) {
        // SAFETY: the caller passes a place for the structure, or null.
        unsafe { answer::put(out, address(&card)?) }
    }
    nvmlDeviceGetPciInfo_v2(card, _own, out: *mut nvml::nvmlPciInfo_t) {
        // SAFETY: the caller passes a place for the structure, or null.
        unsafe { answer::put(out, address(&card)?) }
    }
    nvmlDeviceGetPciInfo_v3(card, _own, out: *mut nvml::nvmlPciInfo_t) {
        // SAFETY: the caller passes a place for the structure, or null.
        unsafe { answer::put(out, address(&card)?) }
    }
    nvmlDeviceGetCudaComputeCapability(card, own, major: *mut c_int, minor: *mut c_int) {
        let [first, second] = answer::numbers(&card, own)?;
        // SAFETY: the caller passes places for both numbers, or null.
        unsafe {
            answer::put(major, first as c_int)?;
            answer::put(minor, second as c_int)
        }
    }
    nvmlDeviceGetViolationStatus(
        card, own, policy: nvml::nvmlPerfPolicyType_t, out: *mut nvml::nvmlViolationTime_t
    ) {
        let nanos = answer::number(&card, &format!("{own}.{policy}"))?;
        let time = nvml::nvmlViolationTime_t { referenceTime: 1, violationTime: nanos };
        // SAFETY: the caller passes a place for the structure, or null.
        unsafe { answer::put(out, time) }
    }
    nvmlDeviceGetRemappedRows(
        card, own, corrected: *mut c_uint, uncorrected: *mut c_uint, pending: *mut c_uint,
        failed: *mut c_uint
    ) {
        let [first, second, third, fourth] = answer::numbers(&card, own)?;
        // SAFETY: the caller passes places for the numbers, or null.
        unsafe {
            answer::put(corrected, first as c_uint)?;
            answer::put(uncorrected, second as c_uint)?;
            answer::put(pending, third as c_uint)?;
            answer::put(failed, fourth as c_uint)
        }
    }
    nvmlDeviceGetRetiredPages(
        card, own, cause: c_uint, count: *mut c_uint, out: *mut c_ulonglong
    ) {
        let pages = answer::number(&card, &format!("{own}.{cause}"))?;
        // SAFETY: the caller passes the room and the list, or null for the list.
        unsafe { list(count, out, (0..pages).map(|page| page << 12).collect()) }
    }
    nvmlDeviceGetComputeRunningProcesses(
        card, _own, count: *mut c_uint, out: *mut nvml::nvmlProcessInfo_v1_t
    ) {
        let short = |process: nvml::nvmlProcessInfo_t| nvml::nvmlProcessInfo_v1_t {
            pid: process.pid,
            usedGpuMemory: process.usedGpuMemory,
        };
        // SAFETY: the caller passes the room and the list, or null for the list.
        unsafe { list(count, out, processes(&card)?.into_iter().map(short).collect()) }
    }
    nvmlDeviceGetComputeRunningProcesses_v2(
        card, _own, count: *mut c_uint, out: *mut nvml::nvmlProcessInfo_t
    ) {
        // SAFETY: the caller passes the room and the list, or null for the list.
        unsafe { list(count, out, processes(&card)?) }
    }
    nvmlDeviceGetComputeRunningProcesses_v3(
        card, _own, count: *mut c_uint, out: *mut nvml::nvmlProcessInfo_t
    ) {
        // SAFETY: the caller passes the room and the list, or null for the list.
        unsafe { list(count, out, processes(&card)?) }
    }
}
