//! One reading of one card: calls one after another, what each may cost the others, and which are
//! not worth making.

use crate::fault;
use crate::protocol::{Fault, FaultKind, Problem};
use nvml_wrapper::Device;
use nvml_wrapper::enums::device::SampleValue;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::structs::device::FieldId;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Problems told of in one report: more than there are values that are judged by.
pub(crate) const PROBLEMS_MAX: usize = 16;

/// The call that reads many fields.
pub(crate) const FIELD_VALUES: &str = "nvmlDeviceGetFieldValues";

/// A call with what tells it from others of the same name: a sensor, a link, a field.
pub(crate) type Call = (&'static str, u32);

/// How a call is named in problems.
pub(crate) fn name((function, argument): Call) -> String {
    format!("{function}({argument})")
}

/// Calls that a card does not support, each until it is worth another try: a driver may be asked
/// hundreds of things a second that it will never know.
#[derive(Debug)]
pub(crate) struct Unsupported {
    again: Duration,
    until: BTreeMap<Call, Instant>,
}

impl Unsupported {
    pub(crate) const fn new(again: Duration) -> Self {
        Self { again, until: BTreeMap::new() }
    }

    fn skips(&self, call: Call, now: Instant) -> bool {
        self.until.get(&call).is_some_and(|until| now < *until)
    }

    fn remember(&mut self, call: Call, now: Instant) {
        self.until.insert(call, now + self.again);
    }
}

/// A reading under way.
pub(crate) struct Reading<'a> {
    pub(crate) device: &'a Device<'static>,
    unsupported: &'a mut Unsupported,
    now: Instant,
    answered: bool,
    fatal: Option<Fault>,
    problems: Vec<Problem>,
}

impl<'a> Reading<'a> {
    pub(crate) fn new(
        device: &'a Device<'static>,
        unsupported: &'a mut Unsupported,
        now: Instant,
    ) -> Self {
        Self { device, unsupported, now, answered: false, fatal: None, problems: Vec::new() }
    }

    /// Makes a call, unless the card is gone or does not know it.
    pub(crate) fn take<T>(
        &mut self,
        call: Call,
        make: impl FnOnce(&Device<'static>) -> Result<T, NvmlError>,
    ) -> Option<T> {
        if self.fatal.is_some() || self.unsupported.skips(call, self.now) {
            return None;
        }
        match make(self.device) {
            Ok(value) => {
                self.answered = true;
                Some(value)
            }
            Err(error) => {
                self.failed(call, &error);
                None
            }
        }
    }

    /// Makes one call for many fields, each of which may fail alone. Values come in the order of
    /// `ids`.
    pub(crate) fn fields<const N: usize>(&mut self, ids: [u32; N]) -> [Option<u64>; N] {
        let mut values = [None; N];
        let wanted: Vec<usize> = (0..N)
            .filter(|at| !self.unsupported.skips((FIELD_VALUES, ids[*at]), self.now))
            .collect();
        if wanted.is_empty() {
            return values;
        }
        let asked: Vec<FieldId> = wanted.iter().map(|at| FieldId(ids[*at])).collect();
        let answered = self.answered;
        let Some(samples) = self.take((FIELD_VALUES, 0), |card| card.field_values_for(&asked))
        else {
            return values;
        };
        // The call says nothing by itself: each field may fail.
        self.answered = answered;
        for (at, sample) in wanted.into_iter().zip(samples) {
            match sample.and_then(|sample| sample.value) {
                Ok(value) => {
                    self.answered = true;
                    values[at] = Some(whole(value));
                }
                // What a driver says of a field that is younger than it.
                Err(NvmlError::InvalidArg) => {
                    self.failed((FIELD_VALUES, ids[at]), &NvmlError::NotSupported);
                }
                Err(error) => self.failed((FIELD_VALUES, ids[at]), &error),
            }
        }
        values
    }

    fn failed(&mut self, call: Call, error: &NvmlError) {
        match fault::kind(error) {
            FaultKind::NotSupported => self.unsupported.remember(call, self.now),
            FaultKind::GpuLost
            | FaultKind::ResetRequired
            | FaultKind::LibraryMissing
            | FaultKind::DriverNotLoaded
            | FaultKind::VersionMismatch
            | FaultKind::CardChanged
            | FaultKind::Uninitialized => {
                self.fatal.get_or_insert_with(|| fault::of(call.0, error));
            }
            FaultKind::NoPermission
            | FaultKind::Timeout
            | FaultKind::BadRequest
            | FaultKind::Driver => {
                if self.problems.len() < PROBLEMS_MAX {
                    let name = name(call);
                    let fault = fault::of(&name, error);
                    self.problems.push(Problem { call: name, fault });
                }
            }
        }
    }

    /// What failed while something worked.
    ///
    /// # Errors
    /// The card or the library is gone, or nothing worked.
    pub(crate) fn finish(self) -> Result<Vec<Problem>, Fault> {
        if let Some(fault) = self.fatal {
            return Err(fault);
        }
        match self.problems.first() {
            Some(first) if !self.answered => Err(first.fault.clone()),
            _ => Ok(self.problems),
        }
    }
}

/// Counts and measures are never negative; what is so is nonsense and cut to nothing.
fn whole(value: SampleValue) -> u64 {
    match value {
        SampleValue::F64(value) => value.max(0.0) as u64,
        SampleValue::U32(value) => u64::from(value),
        SampleValue::U64(value) => value,
        SampleValue::I64(value) => u64::try_from(value).unwrap_or_default(),
    }
}
