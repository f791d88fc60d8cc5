//! Cards: a worker process reads them, this side asks, waits, and forgets what is too old.
//!
//! [`facts`] is what is known; [`supervisor`] decides, as a state machine that is handed its `now`;
//! [`link`] runs it: one thread that never calls the driver, so that no card, no crash and no
//! initialisation that hangs can hold it up. [`kmsg`] and [`pci`] know of cards without the driver.

pub mod facts;
pub mod kmsg;
pub mod link;
pub mod page;
pub mod pci;
pub mod supervisor;

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;

use nvml_worker::Ending;

pub use facts::{Card, GpuFacts, Library, Seen};
pub use kmsg::KmsgFacts;
pub use link::{Handle, Launch, NotReleased, Refused};
pub use pci::PciFacts;

use crate::config::Config;
use crate::facts::Slots;
use crate::slot::Stop;

/// What the slot of slow values holds: the values are with the others, in [`GpuFacts`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SlowFacts {
    /// Cards whose slow values are fresh.
    pub cards: usize,
}

/// Starts the collectors of the bus, of the kernel's log and of the cards. They end with `stop`;
/// the handle makes the cards free and takes them back.
///
/// # Errors
/// The system gives no thread.
pub fn start(config: &Config, slots: &Slots, stop: &Stop) -> io::Result<Handle> {
    start_with(config, slots, stop, Launch::default())
}

/// As [`start`], with another program as the worker.
///
/// # Errors
/// As [`start`].
pub fn start_with(
    config: &Config,
    slots: &Slots,
    stop: &Stop,
    launch: Launch,
) -> io::Result<Handle> {
    pci::start(config, slots, stop)?;
    kmsg::start(config, slots, stop)?;
    link::start(config, slots, stop, launch)
}

/// Whether this process was started to be the worker.
#[must_use]
pub fn is_worker(arguments: &[OsString]) -> bool {
    arguments.get(1).is_some_and(|first| first == nvml_worker::ARGUMENT)
}

/// Is the worker, until its input ends.
#[must_use]
pub fn work() -> ExitCode {
    match nvml_worker::run(io::stdin().lock(), io::stdout()) {
        Ending::Clean | Ending::Hung => ExitCode::SUCCESS,
        // Somebody else than the supervisor is talking.
        Ending::Garbage(_) => ExitCode::from(64),
    }
}
