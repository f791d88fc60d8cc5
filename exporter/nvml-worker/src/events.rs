//! The thread that waits for a card's errors (Xid).
//!
//! Each card has an event set of its own: a wait on a set with a lost card fails at once, and then
//! every card in it would be deaf.

use crate::closing::Alive;
use crate::fault;
use crate::protocol::{Fault, FaultKind, Report};
use crate::worker::Output;
use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{EventSet, Nvml};
use std::time::Duration;

/// How long one wait lasts. Ending waits for it.
const WAIT_MILLIS: u32 = 1000;
/// Pauses after errors: without them, a lost card would cost a processor.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// Code of an error that the driver has no number for.
const UNKNOWN_XID: u64 = 999;

/// Tells of every error of a card until the worker ends.
pub(crate) fn listen(nvml: &'static Nvml, card: u32, output: &Output, alive: &Alive) {
    let mut pause = PAUSE.0;
    let mut said: Option<Option<FaultKind>> = None;
    let mut say = |fault: Option<&Fault>| {
        let kind = fault.map(|fault| fault.kind);
        if said != Some(kind) {
            said = Some(kind);
            output.say(&Report::Listening { card, fault: fault.cloned() });
        }
    };
    while !alive.ends_within(Duration::ZERO) {
        let fault = match register(nvml, card) {
            Ok(set) => {
                say(None);
                match wait(&set, card, output, alive, &mut pause) {
                    Ok(()) => return,
                    Err(error) => fault::of("nvmlEventSetWait", &error),
                }
            }
            Err(error) => fault::of("nvmlDeviceRegisterEvents", &error),
        };
        say(Some(&fault));
        if alive.ends_within(pause) {
            return;
        }
        pause = (pause * 2).min(PAUSE.1);
    }
}

fn register(nvml: &'static Nvml, card: u32) -> Result<EventSet<'static>, NvmlError> {
    let device = nvml.device_by_index(card)?;
    let wanted = EventTypes::CRITICAL_XID_ERROR;
    if !device.supported_event_types()?.contains(wanted) {
        return Err(NvmlError::NotSupported);
    }
    let set = nvml.create_event_set()?;
    device.register_events(wanted, set).map_err(|error| error.error)
}

/// Ends without an error when the worker does.
fn wait(
    set: &EventSet<'static>,
    card: u32,
    output: &Output,
    alive: &Alive,
    pause: &mut Duration,
) -> Result<(), NvmlError> {
    while !alive.ends_within(Duration::ZERO) {
        match set.wait(WAIT_MILLIS) {
            Ok(event) => {
                *pause = PAUSE.0;
                let code = match event.event_data {
                    Some(XidError::Value(code)) => code,
                    Some(XidError::Unknown) => UNKNOWN_XID,
                    None => continue,
                };
                output.say(&Report::Xid { card, code });
            }
            Err(NvmlError::Timeout) => *pause = PAUSE.0,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
