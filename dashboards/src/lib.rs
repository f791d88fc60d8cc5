//! Grafana dashboards, Prometheus rule files and Grafana's provisioning, generated from the metric
//! catalog.
//!
//! Boards are written as Rust (`boards`) with expressions that the catalog checks, become a neutral
//! form (`ir`), get places (`layout`) and lasting ids (`ids`), and are written by a back end for
//! each format (`backend`). `lint` checks the result, `coverage` says what no board reads, `tree`
//! compares with the files of a checkout and `bundle` puts together what goes elsewhere. With the
//! feature `live` it talks to a Prometheus that runs (`live`,
//! `doctor`) and to a Grafana (`push`). It measures
//! nothing and serves nothing.
#![forbid(unsafe_code)]

pub mod backend;
pub mod boards;
pub mod build;
pub mod bundle;
pub mod cli;
#[cfg(feature = "live")]
pub mod client;
pub mod coverage;
pub mod diff;
#[cfg(feature = "live")]
pub mod doctor;
pub mod ids;
pub mod ir;
pub mod layout;
pub mod links;
pub mod lint;
#[cfg(feature = "live")]
pub mod live;
pub mod manifest;
pub mod model;
pub mod output;
pub mod provision;
#[cfg(feature = "live")]
pub mod push;
pub mod rules;
pub mod selectors;
pub mod targets;
pub mod tree;
pub mod unit;
pub mod usage;
pub mod variables;
pub mod write;
