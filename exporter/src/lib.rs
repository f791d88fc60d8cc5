//! The sidecar: health of a node's GPUs, memory, services and links, and how much host cache it can
//! still take.
//!
//! Background collectors fill a snapshot, each with its own deadline; a scrape only hands out the
//! page that was made from it. This crate links no GPU code of the server and never waits for a
//! driver, a bus or a file while somebody scrapes.
#![forbid(unsafe_code)]

pub mod app;
pub mod cli;
pub mod config;
pub mod dcgm;
pub mod facts;
pub mod gpu;
pub mod health;
pub mod hostcache;
pub mod http;
pub mod maintenance;
pub mod node;
pub mod notify;
pub mod page;
pub mod paint;
pub mod sandbox;
pub mod service;
pub mod slot;

#[cfg(test)]
mod mocks;
