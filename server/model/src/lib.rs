//! Models.
#![forbid(unsafe_code)]
