//! Real sockets on loopback.

mod faults;
mod pages;
mod peers;
mod proxy;
pub(super) mod random;
mod security;
mod transfers;
mod workers;
