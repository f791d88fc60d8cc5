//! MIG: instances of a card are handles of their own.

use super::card_call;
use crate::answer::{self, INVALID};
use crate::script::Code;
use nvml_wrapper_sys::bindings as nvml;
use std::ffi::c_uint;

card_call! {
    nvmlDeviceGetMaxMigDeviceCount(card, own, out: *mut c_uint) {
        let count = answer::number(&card, own)?;
        // SAFETY: the caller passes a place for the number, or null.
        unsafe { answer::put(out, count as c_uint) }
    }
    nvmlDeviceGetMigDeviceHandleByIndex(
        card, _own, index: c_uint, out: *mut nvml::nvmlDevice_t
    ) {
        // An index without an instance is a hole that callers must step over.
        answer::text(&format!("{card}/{index}"), "nvmlDeviceGetUUID")
            .map_err(|_| nvml::nvmlReturn_enum_NVML_ERROR_NOT_FOUND)?;
        let card = card.parse().map_err(|_| INVALID)?;
        // SAFETY: the caller passes a place for the handle, or null.
        unsafe { answer::put(out, answer::handle(card, Some(index as usize))) }
    }
    nvmlDeviceGetGpuInstanceId(card, own, out: *mut c_uint) {
        let id = answer::number(&card, own)?;
        // SAFETY: the caller passes a place for the number, or null.
        unsafe { answer::put(out, id as c_uint) }
    }
    nvmlDeviceGetComputeInstanceId(card, own, out: *mut c_uint) {
        let id = answer::number(&card, own)?;
        // SAFETY: the caller passes a place for the number, or null.
        unsafe { answer::put(out, id as c_uint) }
    }
    nvmlDeviceIsMigDeviceHandle(card, _own, out: *mut c_uint) {
        // SAFETY: the caller passes a place for the number, or null.
        unsafe { answer::put(out, c_uint::from(card.contains('/'))) }
    }
    nvmlDeviceGetDeviceHandleFromMigDeviceHandle(card, _own, out: *mut nvml::nvmlDevice_t) {
        let (parent, _) = card.split_once('/').ok_or(INVALID)?;
        let parent = parent.parse().map_err(|_| INVALID)?;
        // SAFETY: the caller passes a place for the handle, or null.
        unsafe { answer::put(out, answer::handle(parent, None)) }
    }
}
