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

use std::io;

pub use facts::{Card, GpuFacts, Library, Seen};
pub use kmsg::KmsgFacts;
pub use link::Handle;
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
    pci::start(config, slots, stop)?;
    kmsg::start(config, slots, stop)?;
    link::start(config, slots, stop)
}
