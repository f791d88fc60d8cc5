//! What entry points share: failures before an answer, handles, writing through the caller's
//! pointers.

use crate::script::{self, Code};
use nvml_wrapper_sys::bindings as nvml;
use std::ffi::{CStr, c_char};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

pub(crate) const SUCCESS: Code = nvml::nvmlReturn_enum_NVML_SUCCESS;
pub(crate) const NOT_SUPPORTED: Code = nvml::nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED;
pub(crate) const INVALID: Code = nvml::nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT;
pub(crate) const INSUFFICIENT: Code = nvml::nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_SIZE;

/// How often a waiting call looks whether the script has changed.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Calls to the initialisation that no shutdown has taken back.
pub(crate) static INITIALISED: AtomicUsize = AtomicUsize::new(0);

/// Lets the thread rest before the next look at the script.
pub(crate) fn rest() {
    std::thread::park_timeout(LOOK_EVERY);
}

#[expect(clippy::disallowed_methods, reason = "the library stands in for a driver, which has time")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Carries out what the script wants instead of an answer: fails, waits, hangs or crashes. No lock
/// is held meanwhile: a call that hangs on one card must not stop the others.
pub(crate) fn enter(who: &str, function: &str) -> Result<(), Code> {
    let started = now();
    loop {
        let (broken, wanted) =
            script::with(|lines| (lines.broken, lines.failure(who, function).map(str::to_owned)));
        if broken {
            return Err(nvml::nvmlReturn_enum_NVML_ERROR_UNKNOWN);
        }
        let Some(wanted) = wanted else { return Ok(()) };
        match wanted.split_once(' ') {
            Some(("sleep", millis)) => {
                let wait = Duration::from_millis(millis.trim().parse().unwrap_or_default());
                if started.elapsed() >= wait {
                    return Ok(());
                }
            }
            _ if wanted == "crash" => std::process::abort(),
            _ if wanted == "hang" => {}
            _ => return Err(script::code(&wanted)),
        }
        rest();
    }
}

/// As [`enter`] for a call with a card, which needs an initialised library.
pub(crate) fn enter_card(who: &str, function: &str) -> Result<(), Code> {
    if INITIALISED.load(Ordering::SeqCst) == 0 {
        return Err(nvml::nvmlReturn_enum_NVML_ERROR_UNINITIALIZED);
    }
    enter(who, function)
}

/// The code of a call from its outcome.
pub(crate) fn code_of(outcome: Result<(), Code>) -> Code {
    outcome.err().unwrap_or(SUCCESS)
}

/// A number of the script.
pub(crate) fn number(who: &str, key: &str) -> Result<u64, Code> {
    Ok(numbers::<1>(who, key)?[0])
}

/// Numbers of the script, separated by spaces; those that lack are 0.
pub(crate) fn numbers<const N: usize>(who: &str, key: &str) -> Result<[u64; N], Code> {
    let text = text(who, key)?;
    let mut found = [0; N];
    for (slot, word) in found.iter_mut().zip(text.split_whitespace()) {
        *slot = word.parse().map_err(|_| script::code(word))?;
    }
    Ok(found)
}

/// A text of the script.
pub(crate) fn text(who: &str, key: &str) -> Result<String, Code> {
    script::with(|lines| lines.of(who, key).map(str::to_owned)).ok_or(NOT_SUPPORTED)
}

/// A text of the script that belongs to no card.
pub(crate) fn system_text(key: &str, otherwise: &str) -> String {
    script::with(|lines| lines.get(key).unwrap_or(otherwise).to_owned())
}

// A handle is a card's index plus one in its upper half and an instance's plus one in its lower, so
// that null is none.
const CARD_SHIFT: u32 = 16;

pub(crate) fn handle(card: usize, instance: Option<usize>) -> nvml::nvmlDevice_t {
    let low = instance.map_or(0, |instance| instance + 1);
    std::ptr::without_provenance_mut(((card + 1) << CARD_SHIFT) | low)
}

/// Card and instance of a handle.
pub(crate) fn unpack(device: nvml::nvmlDevice_t) -> Result<(usize, Option<usize>), Code> {
    let raw = device.addr();
    let card = (raw >> CARD_SHIFT).checked_sub(1).ok_or(INVALID)?;
    if card >= script::with(script::Lines::cards) {
        return Err(INVALID);
    }
    Ok((card, (raw & ((1 << CARD_SHIFT) - 1)).checked_sub(1)))
}

/// The script's name of what a handle means.
pub(crate) fn name_of(device: nvml::nvmlDevice_t) -> Result<String, Code> {
    let (card, instance) = unpack(device)?;
    Ok(instance.map_or_else(|| card.to_string(), |instance| format!("{card}/{instance}")))
}

/// Writes an answer.
///
/// # Safety
/// `out` is null or valid for a write.
pub(crate) unsafe fn put<T>(out: *mut T, value: T) -> Result<(), Code> {
    if out.is_null() {
        return Err(INVALID);
    }
    // SAFETY: not null, and valid for a write by the contract above.
    unsafe { out.write(value) };
    Ok(())
}

/// Writes a text and its end.
///
/// # Safety
/// `out` is null or valid for writes of `room` bytes.
pub(crate) unsafe fn put_text(out: *mut c_char, room: usize, text: &str) -> Result<(), Code> {
    if out.is_null() {
        return Err(INVALID);
    }
    if room < text.len() + 1 {
        return Err(INSUFFICIENT);
    }
    // SAFETY: the text and its end fit into `room`, which the caller owns.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), out, text.len());
        out.add(text.len()).write(0);
    }
    Ok(())
}

/// A text that a caller passed.
///
/// # Safety
/// `text` is null or ends with a zero byte.
pub(crate) unsafe fn read_text(text: *const c_char) -> Result<String, Code> {
    if text.is_null() {
        return Err(INVALID);
    }
    // SAFETY: not null, and ends by the contract above.
    Ok(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}
