//! Field values: many numbers in one call, each with a return code of its own.

use super::card_call;
use crate::answer::{self, INVALID};
use crate::script::Code;
use nvml_wrapper_sys::bindings as nvml;
use std::ffi::c_int;

/// Any time does: nobody reads it.
const SAMPLED_AT: i64 = 1;

card_call! {
    nvmlDeviceGetFieldValues(card, _own, count: c_int, values: *mut nvml::nvmlFieldValue_t) {
        let count = usize::try_from(count).map_err(|_| INVALID)?;
        if values.is_null() || count == 0 {
            return Err(INVALID);
        }
        for at in 0..count {
            // SAFETY: the caller passes `count` values with their fields filled in.
            let value = unsafe { &mut *values.add(at) };
            let mut key = format!("field.{}", value.fieldId);
            if value.scopeId != 0 {
                key = format!("{key}@{}", value.scopeId);
            }
            value.timestamp = SAMPLED_AT;
            value.latencyUsec = 0;
            match answer::number(&card, &key) {
                Ok(number) => {
                    value.valueType =
                        nvml::nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_LONG_LONG;
                    value.value.ullVal = number;
                    value.nvmlReturn = answer::SUCCESS;
                }
                Err(code) => value.nvmlReturn = code,
            }
        }
        Ok(())
    }
}
