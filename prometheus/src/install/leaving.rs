//! Series that can be removed: those with a label whose values leave.
//!
//! The exporter keeps what it was once told; it can forget series that were not touched for a
//! while, but not those of a peer that has left. So these few are kept here.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::def::{Info, Kind};

type Series = BTreeMap<Vec<Cow<'static, str>>, Arc<AtomicU64>>;

/// By name: the declaration, and the series by the values of their labels.
#[derive(Debug, Default)]
pub(super) struct Leaving(Mutex<BTreeMap<&'static str, (&'static Info, Series)>>);

impl Leaving {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<&'static str, (&'static Info, Series)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value of a series, as the handles of `metrics` keep it; 0 where it is new.
    pub(super) fn series(
        &self,
        info: &'static Info,
        values: Vec<Cow<'static, str>>,
    ) -> Arc<AtomicU64> {
        let mut families = self.lock();
        let (_, series) = families.entry(info.name).or_insert((info, Series::new()));
        Arc::clone(series.entry(values).or_default())
    }

    /// Removes every series with this value; handles of them go on, but nobody sees it.
    pub(super) fn remove(&self, label: &str, value: &str) {
        for (info, series) in self.lock().values_mut() {
            if let Some(place) = info.labels.iter().position(|known| known.name == label) {
                series.retain(|values, _| values[place] != value);
            }
        }
    }

    /// Appends the families that have series, as the exporter writes them.
    pub(super) fn render(&self, page: &mut String) {
        for (name, (info, series)) in self.lock().iter() {
            if series.is_empty() {
                continue;
            }
            let (help, kind) = (info.help, info.kind.as_str());
            write!(page, "# HELP {name} {help}\n# TYPE {name} {kind}\n")
                .expect("writing to a String cannot fail");
            for (values, value) in series {
                let labels = info.labels.iter().map(|label| label.name);
                let labels: Vec<_> = labels.zip(values.iter().map(|value| &**value)).collect();
                let labels = super::page::constants(&labels);
                let value = value.load(Ordering::Relaxed);
                let value: &dyn std::fmt::Display = match info.kind {
                    Kind::Counter => &value,
                    Kind::Gauge | Kind::Histogram => &f64::from_bits(value),
                };
                writeln!(page, "{name}{{{labels}}} {value}")
                    .expect("writing to a String cannot fail");
            }
        }
    }
}
