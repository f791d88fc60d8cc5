//! The scheduler and its thread.
#![forbid(unsafe_code)]
