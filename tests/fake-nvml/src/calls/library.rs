//! Calls without a card: initialisation, versions, finding cards.

use crate::answer::{self, INITIALISED, INVALID};
use crate::script::{self, Code, Lines};
use nvml_wrapper_sys::bindings as nvml;
use std::ffi::{c_char, c_int, c_uint};
use std::sync::atomic::Ordering;

fn initialise(own: &str) -> Code {
    let outcome = answer::enter("sys", own).and_then(|()| answer::enter("sys", "nvmlInit"));
    if outcome.is_ok() {
        INITIALISED.fetch_add(1, Ordering::SeqCst);
    }
    answer::code_of(outcome)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlInit() -> Code {
    initialise("nvmlInit")
}

#[unsafe(no_mangle)]
extern "C" fn nvmlInit_v2() -> Code {
    initialise("nvmlInit_v2")
}

#[unsafe(no_mangle)]
extern "C" fn nvmlInitWithFlags(_flags: c_uint) -> Code {
    initialise("nvmlInitWithFlags")
}

#[unsafe(no_mangle)]
extern "C" fn nvmlShutdown() -> Code {
    let less = |count: usize| count.checked_sub(1);
    match INITIALISED.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less) {
        Ok(_) => answer::code_of(answer::enter("sys", "nvmlShutdown")),
        Err(_) => nvml::nvmlReturn_enum_NVML_ERROR_UNINITIALIZED,
    }
}

#[unsafe(no_mangle)]
extern "C" fn nvmlErrorString(_code: Code) -> *const c_char {
    c"scripted".as_ptr()
}

fn enter(own: &str) -> Result<(), Code> {
    answer::enter_card("sys", own)
}

/// Writes one of the script's texts that belong to no card.
///
/// # Safety
/// `out` is null or valid for writes of `room` bytes.
unsafe fn version(own: &str, out: *mut c_char, room: c_uint, key: &str, otherwise: &str) -> Code {
    let outcome = enter(own).and_then(|()| {
        // SAFETY: the caller of the entry point passes `room` bytes, or null.
        unsafe { answer::put_text(out, room as usize, &answer::system_text(key, otherwise)) }
    });
    answer::code_of(outcome)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlSystemGetDriverVersion(out: *mut c_char, room: c_uint) -> Code {
    // SAFETY: as this function's own contract.
    unsafe { version("nvmlSystemGetDriverVersion", out, room, "driver", "580.95.05") }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlSystemGetNVMLVersion(out: *mut c_char, room: c_uint) -> Code {
    // SAFETY: as this function's own contract.
    unsafe { version("nvmlSystemGetNVMLVersion", out, room, "library", "13.580.95.05") }
}

/// # Safety
/// `out` is null or valid for a write.
unsafe fn cuda_version(own: &str, out: *mut c_int) -> Code {
    let value = answer::system_text("cuda", "13000").parse().unwrap_or_default();
    // SAFETY: as this function's own contract.
    answer::code_of(enter(own).and_then(|()| unsafe { answer::put(out, value) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlSystemGetCudaDriverVersion(out: *mut c_int) -> Code {
    // SAFETY: as this function's own contract.
    unsafe { cuda_version("nvmlSystemGetCudaDriverVersion", out) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlSystemGetCudaDriverVersion_v2(out: *mut c_int) -> Code {
    // SAFETY: as this function's own contract.
    unsafe { cuda_version("nvmlSystemGetCudaDriverVersion_v2", out) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlSystemGetProcessName(
    process: c_uint,
    out: *mut c_char,
    room: c_uint,
) -> Code {
    let outcome = enter("nvmlSystemGetProcessName").and_then(|()| {
        // SAFETY: the caller passes `room` bytes, or null.
        unsafe { answer::put_text(out, room as usize, &format!("process-{process}")) }
    });
    answer::code_of(outcome)
}

/// # Safety
/// `out` is null or valid for a write.
unsafe fn count(own: &str, out: *mut c_uint) -> Code {
    let outcome = enter(own).and_then(|()| {
        // SAFETY: as this function's own contract.
        unsafe { answer::put(out, script::with(Lines::cards) as c_uint) }
    });
    answer::code_of(outcome)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetCount(out: *mut c_uint) -> Code {
    // SAFETY: as this function's own contract.
    unsafe { count("nvmlDeviceGetCount", out) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetCount_v2(out: *mut c_uint) -> Code {
    // SAFETY: as this function's own contract.
    unsafe { count("nvmlDeviceGetCount_v2", out) }
}

/// # Safety
/// `out` is null or valid for a write.
unsafe fn by_index(own: &str, index: c_uint, out: *mut nvml::nvmlDevice_t) -> Code {
    let card = index as usize;
    let outcome = || {
        if card >= script::with(Lines::cards) {
            return Err(INVALID);
        }
        answer::enter_card(&index.to_string(), own)?;
        // SAFETY: as this function's own contract.
        unsafe { answer::put(out, answer::handle(card, None)) }
    };
    answer::code_of(outcome())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetHandleByIndex(i: c_uint, out: *mut nvml::nvmlDevice_t) -> Code {
    // SAFETY: as this function's own contract.
    unsafe { by_index("nvmlDeviceGetHandleByIndex", i, out) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetHandleByIndex_v2(
    index: c_uint,
    out: *mut nvml::nvmlDevice_t,
) -> Code {
    // SAFETY: as this function's own contract.
    unsafe { by_index("nvmlDeviceGetHandleByIndex_v2", index, out) }
}

/// Finds the card whose `key` is the caller's text, upper and lower case alike.
///
/// # Safety
/// `wanted` is null or ends with a zero byte; `out` is null or valid for a write.
unsafe fn by_text(
    own: &str,
    key: &str,
    wanted: *const c_char,
    out: *mut nvml::nvmlDevice_t,
) -> Code {
    let outcome = || {
        // SAFETY: as this function's own contract.
        let wanted = unsafe { answer::read_text(wanted) }?;
        let is_it = |card: &usize| {
            let text = answer::text(&card.to_string(), key);
            text.is_ok_and(|text| text.eq_ignore_ascii_case(&wanted))
        };
        let card = (0..script::with(Lines::cards)).find(is_it);
        let card = card.ok_or(nvml::nvmlReturn_enum_NVML_ERROR_NOT_FOUND)?;
        answer::enter_card(&card.to_string(), own)?;
        // SAFETY: as this function's own contract.
        unsafe { answer::put(out, answer::handle(card, None)) }
    };
    answer::code_of(outcome())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetHandleByUUID(
    uuid: *const c_char,
    out: *mut nvml::nvmlDevice_t,
) -> Code {
    // SAFETY: as this function's own contract.
    unsafe { by_text("nvmlDeviceGetHandleByUUID", "nvmlDeviceGetUUID", uuid, out) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetHandleByPciBusId_v2(
    address: *const c_char,
    out: *mut nvml::nvmlDevice_t,
) -> Code {
    // SAFETY: as this function's own contract.
    unsafe { by_text("nvmlDeviceGetHandleByPciBusId_v2", "nvmlDeviceGetPciInfo", address, out) }
}
