//! Grafana's ids for the units of the metric catalog.

use metric_catalog::def::Unit;

/// Grafana's id of a unit.
#[must_use]
pub const fn grafana_id(unit: Unit) -> &'static str {
    match unit {
        Unit::Count | Unit::Requests | Unit::Tokens | Unit::Slots => "short",
        Unit::Bytes => "bytes",
        Unit::Seconds => "s",
        Unit::Timestamp => "dateTimeAsIso",
        Unit::Celsius => "celsius",
        Unit::Joules => "joule",
        Unit::Watts => "watt",
        Unit::Hertz => "hertz",
        Unit::Ratio => "percentunit",
        Unit::Flag => "none",
        Unit::CountPerSecond => "ops",
        Unit::RequestsPerSecond => "reqps",
        Unit::TokensPerSecond => "count:tok/s",
        Unit::SlotsPerSecond => "count:slots/s",
        Unit::BytesPerSecond => "binBps",
        Unit::Milliseconds => "ms",
        Unit::Microseconds => "µs",
        Unit::Mebibytes => "mbytes",
        Unit::Gibibytes => "gbytes",
        Unit::MebibytesPerSecond => "MiBs",
        Unit::GibibytesPerSecond => "GiBs",
    }
}

/// Lower end of the axis; a moment has none.
#[must_use]
pub const fn axis_min(unit: Unit) -> Option<f64> {
    match unit {
        Unit::Timestamp => None,
        Unit::Count
        | Unit::Requests
        | Unit::Tokens
        | Unit::Slots
        | Unit::Bytes
        | Unit::Seconds
        | Unit::Celsius
        | Unit::Joules
        | Unit::Watts
        | Unit::Hertz
        | Unit::Ratio
        | Unit::Flag
        | Unit::CountPerSecond
        | Unit::RequestsPerSecond
        | Unit::TokensPerSecond
        | Unit::SlotsPerSecond
        | Unit::BytesPerSecond
        | Unit::Milliseconds
        | Unit::Microseconds
        | Unit::Mebibytes
        | Unit::Gibibytes
        | Unit::MebibytesPerSecond
        | Unit::GibibytesPerSecond => Some(0.0),
    }
}
