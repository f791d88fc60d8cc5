//! One card: its handle, its name, and the thread that reads it.

use crate::closing::Alive;
use crate::fault;
use crate::groups;
use crate::protocol::{Fault, FaultKind, Group, Report, Values};
use crate::reading::{Reading, Unsupported};
use crate::worker::{Output, now};
use nvml_wrapper::{Device, Nvml};
use std::sync::mpsc::Receiver;
use std::time::Duration;

/// A card of the driver.
pub(crate) struct Card {
    nvml: &'static Nvml,
    index: u32,
    device: Option<Device<'static>>,
    /// The card that this index meant first: after one is lost, the others may be numbered anew.
    uuid: Option<String>,
    unsupported: Unsupported,
}

impl Card {
    pub(crate) const fn new(nvml: &'static Nvml, index: u32, probe_again: Duration) -> Self {
        let unsupported = Unsupported::new(probe_again);
        Self { nvml, index, device: None, uuid: None, unsupported }
    }

    /// Reads a group. A card that is gone is looked up anew the next time.
    pub(crate) fn read(&mut self, group: Group) -> Result<Values, Fault> {
        let read = self.try_read(group);
        if read.is_err() {
            self.device = None;
        }
        read
    }

    fn try_read(&mut self, group: Group) -> Result<Values, Fault> {
        let device = match self.device.take() {
            Some(device) => device,
            None => self.look_up()?,
        };
        let uuid = self.uuid.clone().unwrap_or_default();
        let mut reading = Reading::new(&device, &mut self.unsupported, now());
        let mut values = groups::read(&mut reading, group, &uuid);
        let problems = reading.finish()?;
        match &mut values {
            Values::Fast(values) => values.problems = problems,
            Values::Slow(values) => values.problems = problems,
            Values::Fixed(values) => values.problems = problems,
        }
        self.device = Some(device);
        Ok(values)
    }

    fn look_up(&mut self) -> Result<Device<'static>, Fault> {
        let by_index = self.nvml.device_by_index(self.index);
        let device = by_index.map_err(|error| fault::of("nvmlDeviceGetHandleByIndex", &error))?;
        let uuid = device.uuid().map_err(|error| fault::of("nvmlDeviceGetUUID", &error))?;
        match &self.uuid {
            Some(known) if *known != uuid => {
                let detail = format!("card {} was {known} and is {uuid}", self.index);
                return Err(Fault::new(FaultKind::CardChanged, detail));
            }
            Some(_) => {}
            None => self.uuid = Some(uuid),
        }
        Ok(device)
    }
}

/// Reads what is asked for until nobody asks any more.
pub(crate) fn serve(mut card: Card, asked: &Receiver<Group>, output: &Output, alive: Alive) {
    for group in asked {
        let started = now();
        let read = card.read(group);
        let micros = started.elapsed().as_micros() as u64;
        let index = card.index;
        output.say(&match read {
            Ok(values) => Report::Sample { card: index, micros, values },
            Err(fault) if fault.kind.is_of_library() => Report::Failed(fault),
            Err(fault) => Report::Error { card: index, group, micros, fault },
        });
    }
    drop(alive);
}
