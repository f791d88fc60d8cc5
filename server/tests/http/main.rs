//! The serving binary from outside: exit codes, sockets, signals.

mod exit_codes;
mod golden;
mod live;
mod pair;
mod plan;
mod process;
mod settings;
mod sglang;
mod sockets;
mod store;
mod tier;
