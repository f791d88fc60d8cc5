//! Event sets: who registered for which card, and which events each set has seen.

use crate::answer;
use crate::calls::card_call;
use crate::script::{self, Code, Lines};
use nvml_wrapper_sys::bindings as nvml;
use std::collections::BTreeMap;
use std::ffi::{c_uint, c_ulonglong};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

const TIMEOUT: Code = nvml::nvmlReturn_enum_NVML_ERROR_TIMEOUT;

/// A set delivers what happens after a card's registration.
#[derive(Default)]
struct Set {
    /// Of each registered card: how many of the script's events it has seen.
    seen: BTreeMap<usize, usize>,
}

#[derive(Default)]
struct Sets {
    last: usize,
    live: BTreeMap<usize, Set>,
}

fn sets() -> MutexGuard<'static, Sets> {
    static SETS: Mutex<Sets> = Mutex::new(Sets { last: 0, live: BTreeMap::new() });
    SETS.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlEventSetCreate(out: *mut nvml::nvmlEventSet_t) -> Code {
    let outcome = answer::enter_card("sys", "nvmlEventSetCreate").and_then(|()| {
        let mut sets = sets();
        sets.last += 1;
        let id = sets.last;
        sets.live.insert(id, Set::default());
        // SAFETY: the caller passes a place for the handle, or null.
        unsafe { answer::put(out, std::ptr::without_provenance_mut(id)) }
    });
    answer::code_of(outcome)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlEventSetFree(set: nvml::nvmlEventSet_t) -> Code {
    let freed = sets().live.remove(&set.addr()).ok_or(answer::INVALID);
    answer::code_of(freed.map(|_| ()))
}

card_call! {
    nvmlDeviceRegisterEvents(card, _own, _kinds: c_ulonglong, set: nvml::nvmlEventSet_t) {
        let card: usize = card.parse().map_err(|_| answer::INVALID)?;
        let so_far = script::with(|lines| lines.xids().len());
        let mut sets = sets();
        let set = sets.live.get_mut(&set.addr()).ok_or(answer::INVALID)?;
        set.seen.insert(card, so_far);
        Ok(())
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlEventSetWait_v2(
    set: nvml::nvmlEventSet_t,
    out: *mut nvml::nvmlEventData_t,
    millis: c_uint,
) -> Code {
    // SAFETY: as this function's own contract.
    answer::code_of(unsafe { wait(set, out, millis) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlEventSetWait(
    set: nvml::nvmlEventSet_t,
    out: *mut nvml::nvmlEventData_t,
    millis: c_uint,
) -> Code {
    // SAFETY: as this function's own contract.
    answer::code_of(unsafe { wait(set, out, millis) })
}

/// # Safety
/// `out` is null or valid for a write.
unsafe fn wait(
    set: nvml::nvmlEventSet_t,
    out: *mut nvml::nvmlEventData_t,
    millis: c_uint,
) -> Result<(), Code> {
    let started = answer::now();
    loop {
        answer::enter_card("sys", "nvmlEventSetWait_v2")?;
        let cards: Vec<usize> = {
            let sets = sets();
            let set = sets.live.get(&set.addr()).ok_or(answer::INVALID)?;
            set.seen.keys().copied().collect()
        };
        // As after Xid 79: what is to be seen is delivered, then a wait fails at once for as long
        // as one of the set's cards is gone.
        if let Some((card, code)) = next_event(set, &script::with(Lines::xids)) {
            let event = nvml::nvmlEventData_t {
                device: answer::handle(card, None),
                eventType: c_ulonglong::from(nvml::nvmlEventTypeXidCriticalError),
                eventData: code,
                gpuInstanceId: c_uint::MAX,
                computeInstanceId: c_uint::MAX,
            };
            // SAFETY: as this function's own contract.
            return unsafe { answer::put(out, event) };
        }
        for card in cards {
            answer::enter_card(&card.to_string(), "nvmlEventSetWait_v2")?;
        }
        if started.elapsed() >= Duration::from_millis(u64::from(millis)) {
            return Err(TIMEOUT);
        }
        answer::rest();
    }
}

/// The oldest event that the set has not seen.
fn next_event(set: nvml::nvmlEventSet_t, events: &[(usize, u64)]) -> Option<(usize, u64)> {
    let mut sets = sets();
    let set = sets.live.get_mut(&set.addr())?;
    let unseen = |(at, (card, _)): &(usize, &(usize, u64))| {
        set.seen.get(card).is_some_and(|seen| at >= seen)
    };
    let (at, (card, code)) = events.iter().enumerate().find(unseen)?;
    set.seen.insert(*card, at + 1);
    Some((*card, *code))
}
