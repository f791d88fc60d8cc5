//! The real binary against nodes, cards, buses and servers that are not at hand.
//!
//! One module for each area; `harness` starts the program and reads its pages.

mod confined;
mod contract;
mod gpu;
mod harness;
mod http;
mod mock_bus;
mod mock_http;
mod node;
mod service;
mod sglang_log;
mod tls;
mod whole;
