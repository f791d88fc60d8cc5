//! A page in the Prometheus text format 0.0.4, made at once from declarations and values.
//!
//! For a process that learns its values elsewhere and keeps no counters of its own: what is not
//! put on the page is not there. It holds no state between pages and reads no clock; a process that
//! counts things itself records through `install`.
//!
//! A label that the metric lacks, or one too few, does not compile:
//!
//! ```compile_fail,E0308
//! use metric_catalog::{labels::Gpu, node, page::Page};
//! Page::new().gauge(node::GPU_UP, (Gpu::new("0"),), 1.0);
//! ```
//!
//! Nor does a value of the wrong kind:
//!
//! ```compile_fail,E0308
//! use metric_catalog::{labels::{Gpu, Uuid}, node, page::Page};
//! Page::new().gauge(node::GPU_ENERGY, (Gpu::new("0"), Uuid::new("GPU-a")), 1.0);
//! ```

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::sync::LazyLock;
use std::time::Duration;

use crate::dcgm;
use crate::def::{Counter, Gauge, Info, Kind, LabelSet, TimeCounter};

/// Place of a family on the page: those of the catalog in its order, then others by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Catalog(usize),
    Foreign(&'static str),
}

static PLACES: LazyLock<HashMap<&'static str, usize>> =
    LazyLock::new(|| crate::all().enumerate().map(|(place, info)| (info.name, place)).collect());

#[derive(Debug)]
struct Family {
    name: &'static str,
    help: &'static str,
    kind: Kind,
    /// Labels in braces, or nothing, and the value.
    series: Vec<(String, String)>,
}

/// A page that is being made.
#[derive(Debug, Default)]
pub struct Page {
    families: BTreeMap<Place, Family>,
}

impl Page {
    /// An empty page.
    pub fn new() -> Self {
        Self::default()
    }

    /// A counter of whole things.
    pub fn counter<L: LabelSet>(&mut self, metric: Counter<L>, labels: L, value: u64) {
        self.put(metric.info, &labels, value.to_string());
    }

    /// A counter of what comes in parts of its unit. One that is not finite is not known, and left
    /// off.
    pub fn quantity<L: LabelSet>(&mut self, metric: Counter<L>, labels: L, value: f64) {
        if value.is_finite() {
            self.put(metric.info, &labels, value.to_string());
        }
    }

    /// A counter of time, to the nanosecond.
    pub fn time<L: LabelSet>(&mut self, metric: TimeCounter<L>, labels: L, value: Duration) {
        self.put(metric.info, &labels, seconds(value));
    }

    /// A gauge. One that is not finite is not known, and left off.
    pub fn gauge<L: LabelSet>(&mut self, metric: Gauge<L>, labels: L, value: f64) {
        if value.is_finite() {
            self.put(metric.info, &labels, value.to_string());
        }
    }

    /// A gauge that is 1 or 0.
    pub fn flag<L: LabelSet>(&mut self, metric: Gauge<L>, labels: L, value: bool) {
        self.put(metric.info, &labels, u8::from(value).to_string());
    }

    /// A series of a family that is not ours. One that is not finite is not known, and left off.
    pub fn foreign(&mut self, family: &dcgm::Family, labels: &dcgm::Labels<'_>, value: f64) {
        if value.is_finite() {
            let place = Place::Foreign(family.name);
            let family = self.families.entry(place).or_insert_with(|| Family {
                name: family.name,
                help: family.help,
                kind: family.kind,
                series: Vec::new(),
            });
            family.series.push((braces(labels.pairs()), value.to_string()));
        }
    }

    fn put<L: LabelSet>(&mut self, info: &'static Info, labels: &L, value: String) {
        let place = *PLACES.get(info.name).expect("declarations are part of the catalog");
        let family = self.families.entry(Place::Catalog(place)).or_insert_with(|| Family {
            name: info.name,
            help: info.help,
            kind: info.kind,
            series: Vec::new(),
        });
        let values = labels.values();
        let names = L::LABELS.iter().map(|label| label.name);
        let text = braces(names.zip(values.iter().map(Cow::as_ref)));
        family.series.push((text, value));
    }

    /// Series on the page.
    pub fn series(&self) -> usize {
        self.families.values().map(|family| family.series.len()).sum()
    }

    /// The text: families in the order of the catalog, each with its help and kind once, and its
    /// series in the order of their labels. A label without a value is left out.
    ///
    /// Of a series that was put twice, which is a mistake, the last value counts.
    pub fn render(&self) -> String {
        let mut out = String::with_capacity(self.series() * 96);
        for family in self.families.values() {
            let (name, kind) = (family.name, family.kind.as_str());
            write!(out, "# HELP {name} {}\n# TYPE {name} {kind}\n", family.help)
                .expect("writing to a String cannot fail");
            let mut series: Vec<_> = family.series.iter().collect();
            // Stable, so the last of equal ones stays the last.
            series.sort_by(|a, b| a.0.cmp(&b.0));
            for (at, (labels, value)) in series.iter().enumerate() {
                let again = series.get(at + 1).is_some_and(|(next, _)| next == labels);
                debug_assert!(!again, "{name}{labels} is put twice");
                if !again {
                    writeln!(out, "{name}{labels} {value}")
                        .expect("writing to a String cannot fail");
                }
            }
        }
        out
    }
}

/// Labels as they stand on a page; nothing where there are none.
fn braces<'a>(labels: impl IntoIterator<Item = (&'static str, &'a str)>) -> String {
    let mut text = String::new();
    for (name, value) in labels.into_iter().filter(|(_, value)| !value.is_empty()) {
        text.push(if text.is_empty() { '{' } else { ',' });
        text.push_str(name);
        text.push_str("=\"");
        for char in value.chars() {
            match char {
                '\\' => text.push_str("\\\\"),
                '"' => text.push_str("\\\""),
                '\n' => text.push_str("\\n"),
                other => text.push(other),
            }
        }
        text.push('"');
    }
    if !text.is_empty() {
        text.push('}');
    }
    text
}

/// Seconds with as many digits as there are.
fn seconds(value: Duration) -> String {
    let mut text = value.as_secs().to_string();
    if value.subsec_nanos() != 0 {
        write!(text, ".{:09}", value.subsec_nanos()).expect("writing to a String cannot fail");
        text.truncate(text.trim_end_matches('0').len());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::labels::*;
    use crate::{node, process};

    fn card(number: &'static str) -> (Gpu, Uuid) {
        (Gpu::new(number), Uuid::new(format!("GPU-{number}")))
    }

    #[test]
    fn values_are_exact_and_series_in_order() {
        let mut page = Page::new();
        page.time(process::CPU_SECONDS, (), Duration::new(3, 20_000_000));
        page.time(node::PRESSURE_WAITING, (PressureResource::Io,), Duration::from_secs(7));
        page.flag(node::GPU_UP, card("1"), false);
        page.flag(node::GPU_UP, card("0"), true);
        page.quantity(node::GPU_ENERGY, card("0"), 1.5);
        page.counter(node::GPU_PCIE_REPLAYS, card("0"), u64::MAX);
        page.gauge(node::NUMA_HEADROOM, (NumaNode::new("0"),), -2.0);
        page.gauge(node::GPU_UTILIZATION, card("0"), f64::NAN);
        assert_eq!(page.series(), 7);
        let text = page.render();
        let samples: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            samples,
            [
                "sightline_node_gpu_up{gpu=\"0\",uuid=\"GPU-0\"} 1",
                "sightline_node_gpu_up{gpu=\"1\",uuid=\"GPU-1\"} 0",
                "sightline_node_gpu_energy_joules_total{gpu=\"0\",uuid=\"GPU-0\"} 1.5",
                "sightline_node_gpu_pcie_replays_total{gpu=\"0\",uuid=\"GPU-0\"} \
                 18446744073709551615",
                "sightline_node_numa_headroom_bytes{numa_node=\"0\"} -2",
                "sightline_node_pressure_waiting_seconds_total{resource=\"io\"} 7",
                "process_cpu_seconds_total 3.02",
            ]
        );
        assert_eq!(text.matches("# TYPE sightline_node_gpu_up gauge\n").count(), 1);
        assert_eq!(text.matches("# HELP sightline_node_gpu_up ").count(), 1);
        assert!(!text.contains("gpu_utilization"), "a value that is not known is not there");
    }

    #[test]
    fn labels_are_escaped_and_left_out_where_empty() {
        let mut page = Page::new();
        let whole = (GpuInstance::WHOLE, ComputeInstance::WHOLE);
        let (gpu, uuid) = card("0");
        page.gauge(node::GPU_MEMORY_USED, (gpu, uuid, whole.0, whole.1), 1e15);
        let name = Service::new("a \"b\"\\\n");
        page.gauge(node::SERVICE_LOCKED, (name,), 0.25);
        let text = page.render();
        let used =
            "sightline_node_gpu_memory_used_bytes{gpu=\"0\",uuid=\"GPU-0\"} 1000000000000000";
        assert!(text.contains(used), "{text}");
        let locked = "sightline_node_service_locked_bytes{service=\"a \\\"b\\\"\\\\\\n\"} 0.25\n";
        assert!(text.contains(locked), "{text}");
    }

    #[test]
    fn families_that_are_not_ours_come_last() {
        let labels = dcgm::Labels {
            gpu: "0",
            uuid: "GPU-0",
            pci_bus_id: "00000000:17:00.0",
            device: "nvidia0",
            model_name: "NVIDIA H200",
            hostname: "h0",
            driver_version: "590.48.01",
        };
        let mut page = Page::new();
        page.foreign(&dcgm::GPU_TEMP, &labels, 41.0);
        page.flag(node::HEALTHY, (), true);
        let text = page.render();
        let expect = "# HELP sightline_node_healthy The verdict: 1 when no critical check fails or \
                      stays unknown beyond its grace period.\n\
                      # TYPE sightline_node_healthy gauge\nsightline_node_healthy 1\n\
                      # HELP DCGM_FI_DEV_GPU_TEMP Temperature of the chip, in C.\n\
                      # TYPE DCGM_FI_DEV_GPU_TEMP gauge\n\
                      DCGM_FI_DEV_GPU_TEMP{gpu=\"0\",UUID=\"GPU-0\",\
                      pci_bus_id=\"00000000:17:00.0\",device=\"nvidia0\",\
                      modelName=\"NVIDIA H200\",hostname=\"h0\",\
                      DCGM_FI_DRIVER_VERSION=\"590.48.01\"} 41\n";
        assert_eq!(text, expect);
    }

    #[cfg(debug_assertions)]
    #[test]
    fn a_series_that_is_put_twice_is_a_mistake() {
        let mut page = Page::new();
        page.flag(node::HEALTHY, (), true);
        page.flag(node::HEALTHY, (), false);
        assert!(std::panic::catch_unwind(|| page.render()).is_err());
    }
}
