//! Serde models of the dashboard formats that Grafana reads.
//!
//! A model knows a format's fields and nothing else: it places no panel, gives no id and has no
//! opinion about queries. `backend` fills it from the neutral `ir`.

pub mod classic;
mod number;
pub mod shared;
pub mod v2;

pub use number::Number;
