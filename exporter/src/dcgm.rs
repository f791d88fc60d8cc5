//! Cards under the names of NVIDIA's own exporter, for dashboards made for it. Off unless asked
//! for.
//!
//! Only what is known is shown, in that exporter's labels and units: a value that a card does not
//! tell is absent, never 0, and so is everything of a card that does not answer.

use std::fs;
use std::path::Path;

use metric_catalog::dcgm::{self, Family, Labels};
use metric_catalog::page::Page;
use nvml_worker::protocol::{Fast, Fixed, Slow};

use crate::facts::Facts;
use crate::gpu::{Card, GpuFacts};

const MIB: u64 = 1 << 20;

/// What stands where a driver says nothing.
const UNKNOWN: &str = "unknown";

/// The name of the host, as its kernel has it.
#[must_use]
pub fn hostname(procfs: &Path) -> String {
    let name = fs::read_to_string(procfs.join("sys/kernel/hostname")).unwrap_or_default();
    let name = name.trim();
    if name.is_empty() { UNKNOWN.to_owned() } else { name.to_owned() }
}

/// Puts every card that answers on the page.
pub fn page(facts: &Facts, hostname: &str, page: &mut Page) {
    let Some(cards) = facts.gpu.last_good.as_deref() else { return };
    let driver = cards.hello.as_ref().and_then(|hello| hello.driver_version.as_deref());
    for card in &cards.cards {
        let Some(fixed) = card.fixed.as_ref().map(|fixed| &*fixed.value) else { continue };
        let Some(fast) = cards.fast(card, facts.now) else { continue };
        let text = Text::of(card, fixed);
        let labels = text.labels(fixed, hostname, driver.unwrap_or(UNKNOWN));
        let mut put = |family: Family, value: Option<f64>| {
            if let Some(value) = value {
                page.foreign(&family, &labels, value);
            }
        };
        by_the_second(fast, &mut put);
        put(dcgm::XID_ERRORS, last_xid(card));
        if let Some(slow) = slow(cards, card, facts) {
            by_the_minute(slow, &mut put);
        }
    }
}

fn slow<'a>(cards: &'a GpuFacts, card: &'a Card, facts: &Facts) -> Option<&'a Slow> {
    cards.slow(card, facts.now)
}

fn by_the_second(fast: &Fast, put: &mut impl FnMut(Family, Option<f64>)) {
    let number = |value: Option<u64>| value.map(|value| value as f64);
    put(dcgm::SM_CLOCK, number(fast.sm_clock_megahertz));
    put(dcgm::MEM_CLOCK, number(fast.memory_clock_megahertz));
    put(dcgm::GPU_TEMP, number(fast.temperature_celsius));
    put(dcgm::MEMORY_TEMP, number(fast.memory_temperature_celsius));
    put(dcgm::POWER_USAGE, fast.power_milliwatts.map(|milli| milli as f64 / 1000.0));
    put(dcgm::TOTAL_ENERGY_CONSUMPTION, number(fast.energy_millijoules));
    put(dcgm::GPU_UTIL, fast.utilization_percent.map(f64::from));
    put(dcgm::MEM_COPY_UTIL, fast.memory_utilization_percent.map(f64::from));
    let mib = |bytes: Option<u64>| number(bytes.map(|bytes| bytes / MIB));
    let memory = fast.memory.as_ref();
    put(dcgm::FB_FREE, mib(memory.map(|memory| memory.free)));
    put(dcgm::FB_USED, mib(memory.map(|memory| memory.used)));
    put(dcgm::FB_RESERVED, mib(memory.and_then(|memory| memory.reserved)));
}

fn by_the_minute(slow: &Slow, put: &mut impl FnMut(Family, Option<f64>)) {
    let number = |value: Option<u64>| value.map(|value| value as f64);
    put(dcgm::PCIE_REPLAY_COUNTER, number(slow.pcie_replays));
    put(dcgm::UNCORRECTABLE_REMAPPED_ROWS, number(slow.rows.uncorrected));
    put(dcgm::CORRECTABLE_REMAPPED_ROWS, number(slow.rows.corrected));
    put(dcgm::ROW_REMAP_FAILURE, slow.rows.failed.map(|failed| f64::from(u8::from(failed))));
}

/// The code of the last error; 0 only where errors are listened for and there was none.
fn last_xid(card: &Card) -> Option<f64> {
    let last = card.xids.codes().max_by_key(|(_, seen)| seen.last);
    match (last, &card.listening) {
        (Some((code, _)), _) => Some(code as f64),
        (None, Some(Ok(()))) => Some(0.0),
        (None, Some(Err(_)) | None) => None,
    }
}

/// Labels that are spelled differently here.
struct Text {
    gpu: String,
    address: String,
    device: String,
}

impl Text {
    fn of(card: &Card, fixed: &Fixed) -> Self {
        let address = fixed.pci_bus_id.as_deref().map(driver_address);
        let minor = fixed.minor.map(|minor| format!("nvidia{minor}"));
        Self {
            gpu: card.index.to_string(),
            address: address.unwrap_or_else(|| UNKNOWN.to_owned()),
            device: minor.unwrap_or_else(|| UNKNOWN.to_owned()),
        }
    }

    fn labels<'a>(&'a self, fixed: &'a Fixed, hostname: &'a str, driver: &'a str) -> Labels<'a> {
        Labels {
            gpu: &self.gpu,
            uuid: &fixed.uuid,
            pci_bus_id: &self.address,
            device: &self.device,
            model_name: fixed.name.as_deref().unwrap_or(UNKNOWN),
            hostname,
            driver_version: driver,
        }
    }
}

/// From `0000:17:00.0` to `00000000:17:00.0`, in capitals, as the driver writes it.
fn driver_address(kernel: &str) -> String {
    match kernel.split_once(':') {
        Some((domain, rest)) => format!("{domain:0>8}:{rest}").to_uppercase(),
        None => kernel.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use nvml_worker::protocol::Memory;

    use super::*;
    use crate::config::Config;
    use crate::facts::Slots;
    use crate::gpu::Library;
    use crate::gpu::facts::Stamped;
    use crate::slot::Now;

    fn shown(change: impl FnOnce(&mut Card, Now)) -> String {
        let slots = Slots::new(&Config::default());
        let now = Now::read();
        let mut card = Card::new(3);
        let fixed = Fixed {
            uuid: "GPU-a".to_owned(),
            name: Some("NVIDIA H200".to_owned()),
            pci_bus_id: Some("0000:ab:00.0".to_owned()),
            minor: Some(5),
            ..Fixed::default()
        };
        card.fixed = Some(Stamped { value: Arc::new(fixed), at: now });
        let memory = Memory { total: 100 * MIB, used: 30 * MIB, free: 60 * MIB, reserved: None };
        let fast = Fast {
            utilization_percent: Some(50),
            power_milliwatts: Some(700_500),
            memory: Some(memory),
            ..Fast::default()
        };
        card.fast = Some(Stamped { value: Arc::new(fast), at: now });
        change(&mut card, now);
        let cards = GpuFacts {
            library: Library::Open,
            hello: None,
            cards: vec![card],
            interval: std::time::Duration::from_secs(1),
            slow_interval: std::time::Duration::from_secs(10),
        };
        slots.gpu.finish(now, Ok(cards));
        let mut out = Page::new();
        page(&slots.view(now), "node-1", &mut out);
        out.render()
    }

    #[test]
    fn names_labels_and_units_are_those_of_the_other_exporter() {
        let text = shown(|_, _| {});
        let labels = "{gpu=\"3\",UUID=\"GPU-a\",pci_bus_id=\"00000000:AB:00.0\",\
                      device=\"nvidia5\",modelName=\"NVIDIA H200\",hostname=\"node-1\",\
                      DCGM_FI_DRIVER_VERSION=\"unknown\"}";
        for (family, value) in
            [("GPU_UTIL", "50"), ("POWER_USAGE", "700.5"), ("FB_FREE", "60"), ("FB_USED", "30")]
        {
            let line = format!("DCGM_FI_DEV_{family}{labels} {value}\n");
            assert!(text.contains(&line), "{line}{text}");
        }
    }

    #[test]
    fn what_is_not_known_is_absent_and_never_zero() {
        let text = shown(|_, _| {});
        for family in ["FB_RESERVED", "GPU_TEMP", "XID_ERRORS", "ROW_REMAP", "ENC_UTIL", "REPLAY"] {
            assert!(!text.contains(family), "{family}: {text}");
        }
        assert!(!text.contains(" 0\n"), "{text}");
        let heard = shown(|card, _| card.listening = Some(Ok(())));
        assert!(heard.contains("DCGM_FI_DEV_XID_ERRORS{"), "{heard}");
        let error = shown(|card, now| {
            card.xids.count(48, now.wall);
            card.xids.count(79, now.wall + std::time::Duration::from_secs(1));
        });
        assert!(error.lines().any(|l| l.contains("XID_ERRORS{") && l.ends_with(" 79")), "{error}");
        assert_eq!(shown(|card, _| card.fast = None), "", "it does not answer");
    }

    #[test]
    fn the_host_has_the_name_that_its_kernel_has() {
        assert_eq!(hostname(Path::new("/nowhere")), UNKNOWN);
        assert_ne!(hostname(Path::new("/proc")), "");
    }
}
