//! Every metric, query, threshold and alert of the product, declared once.
//!
//! Processes record through handles made from these declarations (`install`), boards and rules
//! query through expressions made from them (`promql`), and the same thresholds (`slo`) draw the
//! lines on panels and fire the alerts. This crate serves no page, draws no panel and imports
//! nothing else of the workspace.
//!
//! A query of the wrong kind does not compile:
//!
//! ```compile_fail,E0277
//! use metric_catalog::{promql::{rate, Window}, server};
//! let wrong = rate(server::QUEUE_REQUESTS, Window::M5); // a gauge
//! ```
//!
//! Nor does one by a label that the metric lacks:
//!
//! ```compile_fail,E0277
//! use metric_catalog::{def::Label, labels::Pool, promql::{rate, sum, Window}, server};
//! let wrong = sum(rate(server::HTTP_REQUESTS, Window::M5)).by(Pool::KEY);
//! ```
//!
//! These do:
//!
//! ```
//! use metric_catalog::{def::Label, labels::Route, promql::{rate, sum, Window}, server};
//! let query = sum(rate(server::HTTP_REQUESTS, Window::M5)).by(Route::KEY);
//! assert_eq!(query.to_string(), "sum by (route) (rate(sightline_http_requests_total[5m]))");
//! ```
#![forbid(unsafe_code)]

pub mod alerts;
pub mod buckets;
pub mod dcgm;
pub mod def;
pub mod engines;
#[cfg(feature = "install")]
pub mod install;
pub mod labels;
pub mod node;
pub mod page;
pub mod pair;
pub mod process;
pub mod promql;
pub mod roles;
pub mod router;
pub mod server;
pub mod slo;
pub mod target;

/// Every metric of the catalog.
pub fn all() -> impl Iterator<Item = &'static def::Info> {
    [server::ALL, pair::ALL, router::ALL, node::ALL, process::ALL].into_iter().flatten().copied()
}
