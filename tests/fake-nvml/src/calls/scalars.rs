//! Calls that answer one number, two numbers or a text.

use super::card_call;
use crate::answer;
use crate::script::{self, Code};
use nvml_wrapper_sys::bindings as nvml;
use std::ffi::{c_char, c_uint, c_ulonglong};

/// One number of 32 bits.
macro_rules! numbers {
    ($($name:ident)*) => { card_call! { $(
        $name(card, own, out: *mut c_uint) {
            let value = answer::number(&card, own)?;
            // SAFETY: the caller passes a place for the number, or null.
            unsafe { answer::put(out, value as c_uint) }
        }
    )* } };
}

/// One number of 32 bits, of a kind that the caller names.
macro_rules! numbers_by_kind {
    ($($name:ident)*) => { card_call! { $(
        $name(card, own, kind: c_uint, out: *mut c_uint) {
            let value = answer::number(&card, &format!("{own}.{kind}"))?;
            // SAFETY: the caller passes a place for the number, or null.
            unsafe { answer::put(out, value as c_uint) }
        }
    )* } };
}

/// One number of 64 bits.
macro_rules! wide_numbers {
    ($($name:ident)*) => { card_call! { $(
        $name(card, own, out: *mut c_ulonglong) {
            let value = answer::number(&card, own)?;
            // SAFETY: the caller passes a place for the number, or null.
            unsafe { answer::put(out, value) }
        }
    )* } };
}

/// One number of 64 bits, of two kinds that the caller names.
macro_rules! wide_numbers_by_kinds {
    ($($name:ident)*) => { card_call! { $(
        $name(card, own, first: c_uint, second: c_uint, out: *mut c_ulonglong) {
            let value = answer::number(&card, &format!("{own}.{first}.{second}"))?;
            // SAFETY: the caller passes a place for the number, or null.
            unsafe { answer::put(out, value) }
        }
    )* } };
}

/// What is in force and what will be.
macro_rules! modes {
    ($($name:ident)*) => { card_call! { $(
        $name(card, own, current: *mut c_uint, pending: *mut c_uint) {
            let [now, next] = answer::numbers(&card, own)?;
            // SAFETY: the caller passes places for both numbers, or null.
            unsafe {
                answer::put(current, now as c_uint)?;
                answer::put(pending, next as c_uint)
            }
        }
    )* } };
}

macro_rules! texts {
    ($($name:ident)*) => { card_call! { $(
        $name(card, own, out: *mut c_char, room: c_uint) {
            let text = answer::text(&card, own)?;
            if let Some(code) = script::named(&text) {
                return Err(code);
            }
            // SAFETY: the caller passes `room` bytes, or null.
            unsafe { answer::put_text(out, room as usize, &text) }
        }
    )* } };
}

numbers! {
    nvmlDeviceGetArchitecture
    nvmlDeviceGetBoardId
    nvmlDeviceGetBrand
    nvmlDeviceGetComputeMode
    nvmlDeviceGetCurrPcieLinkGeneration
    nvmlDeviceGetCurrPcieLinkWidth
    nvmlDeviceGetDisplayActive
    nvmlDeviceGetDisplayMode
    nvmlDeviceGetEnforcedPowerLimit
    nvmlDeviceGetFanSpeed
    nvmlDeviceGetIndex
    nvmlDeviceGetMaxPcieLinkGeneration
    nvmlDeviceGetMaxPcieLinkWidth
    nvmlDeviceGetMinorNumber
    nvmlDeviceGetNumaNodeId
    nvmlDeviceGetNumGpuCores
    nvmlDeviceGetPcieReplayCounter
    nvmlDeviceGetPerformanceState
    nvmlDeviceGetPersistenceMode
    nvmlDeviceGetPowerManagementDefaultLimit
    nvmlDeviceGetPowerManagementLimit
    nvmlDeviceGetPowerUsage
    nvmlDeviceGetRetiredPagesPendingStatus
}
numbers_by_kind! {
    nvmlDeviceGetApplicationsClock
    nvmlDeviceGetClockInfo
    nvmlDeviceGetMaxClockInfo
    nvmlDeviceGetNvLinkState
    nvmlDeviceGetNvLinkVersion
    nvmlDeviceGetTemperature
    nvmlDeviceGetTemperatureThreshold
}
wide_numbers! {
    nvmlDeviceGetCurrentClocksThrottleReasons
    nvmlDeviceGetSupportedClocksThrottleReasons
    nvmlDeviceGetSupportedEventTypes
    nvmlDeviceGetTotalEnergyConsumption
}
wide_numbers_by_kinds! {
    nvmlDeviceGetNvLinkErrorCounter
    nvmlDeviceGetTotalEccErrors
}
modes! {
    nvmlDeviceGetEccMode
    nvmlDeviceGetMigMode
}
texts! {
    nvmlDeviceGetBoardPartNumber
    nvmlDeviceGetName
    nvmlDeviceGetSerial
    nvmlDeviceGetUUID
    nvmlDeviceGetVbiosVersion
}

card_call! {
    // The newer name of a call above.
    nvmlDeviceGetCurrentClocksEventReasons(card, _own, out: *mut c_ulonglong) {
        let value = answer::number(&card, "nvmlDeviceGetCurrentClocksThrottleReasons")?;
        // SAFETY: the caller passes a place for the number, or null.
        unsafe { answer::put(out, value) }
    }
}
