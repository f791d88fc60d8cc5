//! Panels of dashboards whose KV pools can be chosen: those of [`super`], restricted by `$pool` as
//! well where a series has the label.

use super::Blank;
use crate::variables::POOLS;

macro_rules! panels {
    ($($(#[$doc:meta])+ $name:ident($($argument:ident: $kind:ty),*);)+) => {$(
        $(#[$doc])+
        #[must_use]
        pub fn $name(slug: &str, $($argument: $kind),*) -> Blank {
            super::$name(slug, $($argument),*).within(POOLS)
        }
    )+};
}

panels! {
    /// One large value with a sparkline.
    stat();
    /// Values as bars.
    bar_gauge();
    /// A bar for each value of a label, at one moment.
    bar_chart(along: &str);
    /// Lines over time.
    time_series();
    /// States over time.
    state_timeline();
    /// Labels of the result, and values, as columns.
    table(columns: &[(&str, &str)]);
}
