//! The serving binary from outside: exit codes, sockets, signals.

mod exit_codes;
mod plan;
mod process;
mod sglang;
mod sockets;
