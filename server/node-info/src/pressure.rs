//! `/proc/pressure`: how long work stood still for lack of something.

use std::time::Duration;

use crate::read::{self, Bad, Found};
use crate::{FactError, Root};

/// What was lacking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    /// A CPU.
    Cpu,
    /// Memory.
    Memory,
    /// Storage.
    Io,
    /// The CPU, taken by interrupts.
    Irq,
}

impl Resource {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Cpu, Self::Memory, Self::Io, Self::Irq];

    /// The name of its file.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Io => "io",
            Self::Irq => "irq",
        }
    }
}

/// One line of a file.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stall {
    /// Since the start of the machine.
    pub total: Duration,
    /// Share of the last 10, 60 and 300 seconds, 0 to 1.
    pub average: [f64; 3],
}

/// Pressure on one resource. What this kernel does not tell is `None`: `stalled` of the CPU before
/// Linux 5.13, `waiting` of interrupts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pressure {
    /// The resource.
    pub resource: Resource,
    /// Some task waited (`some`).
    pub waiting: Option<Stall>,
    /// All tasks waited (`full`).
    pub stalled: Option<Stall>,
}

pub(crate) fn read(root: &Root) -> Result<Option<Found<Pressure>>, FactError> {
    let mut found = Found::default();
    let mut first = None;
    for resource in Resource::ALL {
        let path = root.proc("pressure").join(resource.name());
        // Switched off, the files are there and say that they are not supported.
        match read::optional_with(&path, parse) {
            Ok(None) => {}
            Ok(Some((waiting, stalled))) => {
                found.entries.push(Pressure { resource, waiting, stalled });
            }
            Err(error) => {
                found.problems.push((&error).into());
                first.get_or_insert(error);
            }
        }
    }
    match first {
        Some(error) if found.entries.is_empty() => Err(error),
        _ if found.entries.is_empty() => Ok(None),
        _ => Ok(Some(found)),
    }
}

type Lines = (Option<Stall>, Option<Stall>);

/// `some avg10=0.00 avg60=0.00 avg300=0.00 total=0`, with microseconds at the end; then `full`.
pub(crate) fn parse(text: &str) -> Result<Lines, Bad> {
    let (mut some, mut full) = (None, None);
    for line in text.lines() {
        let (kind, rest) = line.split_once(' ').ok_or_else(|| Bad::new("line", line))?;
        match kind {
            "some" => some = Some(stall(rest)?),
            "full" => full = Some(stall(rest)?),
            _ => {}
        }
    }
    if some.is_none() && full.is_none() {
        return Err(Bad::missing("some"));
    }
    Ok((some, full))
}

fn stall(line: &str) -> Result<Stall, Bad> {
    let field = |name: &'static str| {
        let mut words = line.split_whitespace();
        let value = words.find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        value.ok_or_else(|| Bad::missing(name))
    };
    let share = |name: &'static str| {
        let text = field(name)?;
        let percent: f64 = text.parse().map_err(|_| Bad::new(name, text))?;
        // Averages may pass the whole by a rounding.
        let share = (0.0..=101.0).contains(&percent).then(|| (percent / 100.0).min(1.0));
        share.ok_or_else(|| Bad::new(name, text))
    };
    Ok(Stall {
        total: Duration::from_micros(read::number(field("total")?, "total")?),
        average: [share("avg10")?, share("avg60")?, share("avg300")?],
    })
}
