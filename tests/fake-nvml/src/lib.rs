//! A scripted stand-in for the NVIDIA management library: its cards, answers and failures come
//! from a file that is read again while it runs.
//!
//! Two halves in one crate. The shared library (`libfake_nvml.so`) has every entry point of the
//! NVML 13 header; those that this workspace and NVIDIA's Python binding read cards with answer
//! from the script, all others say "not supported". [`Node`] is the half for tests: a folder with a
//! copy of that library under the name programs look for and the script beside it, so that each
//! test has a library, and a state, of its own.
//!
//! # The script
//! Lines `key = value`; `#` starts a comment. A line that is neither makes every call answer
//! `NVML_ERROR_UNKNOWN`, so that a typing error shows. Values that are names of return codes
//! without their prefix (`NOT_SUPPORTED`, `GPU_IS_LOST`) are returned as such; what no line names
//! is not supported. `CARD` is an index, `INDEX/MIG` for an instance of one, or `*` for each
//! card that has no line of its own.
//!
//! ```text
//! cards = 2                                  driver = 580.95.05
//! 0.nvmlDeviceGetPowerUsage = 412345         one value
//! 0.nvmlDeviceGetClockInfo.1 = 2280          with the argument
//! 0.nvmlDeviceGetUtilizationRates = 87 41    a structure
//! 0.field.82 = 74                            nvmlDeviceGetFieldValues; 0.field.210@3 for scope 3
//! fail.0.nvmlDeviceGetPowerUsage = hang      or: sleep 200, crash, NO_PERMISSION
//! fail.0.* = GPU_IS_LOST                     every call with card 0
//! fail.sys.nvmlInit = DRIVER_NOT_LOADED      calls without a card
//! xids = 0:31 1:79                           events so far, oldest first
//! ```
//! A `hang` ends when its line goes. Entry points are hidden, as in an older driver's library, by
//! [`Node::hide`] before the library is loaded.
//!
//! This crate does not know what the values mean, and it never sets anything.

mod answer;
mod calls;
mod events;
mod node;
mod script;
mod stubs;

pub use node::Node;
