//! What is counted of a card: errors, bytes, energy, times. Counters stay as they were last.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use metric_catalog::labels::{
    EccKind, Nvlink, NvlinkError, RetireCause, ThrottleTime, Xid, XidSource,
};
use metric_catalog::node as catalog;
use metric_catalog::page::Page;
use nvml_worker::protocol::{Fast, Slow};

use super::labels;
use crate::config::Config;
use crate::gpu::facts::{Card, Seen, XIDS_MAX, Xids};
use crate::gpu::kmsg::KmsgFacts;

/// The counters of a card. `log` is `None` where nobody may read it: then nothing is said for it.
pub(super) fn of_card(card: &Card, log: Option<&KmsgFacts>, config: &Config, page: &mut Page) {
    if let Some(fast) = &card.fast {
        of_fast(card, &fast.value, page);
    }
    if let Some(slow) = &card.slow {
        of_slow(card, &slow.value, page);
    }
    xids(card, log, config, page);
}

fn of_fast(card: &Card, fast: &Fast, page: &mut Page) {
    if let Some(energy) = fast.energy_millijoules {
        page.quantity(catalog::GPU_ENERGY, labels(card), energy as f64 / 1000.0);
    }
    for (counter, bytes) in [
        (catalog::GPU_PCIE_TRANSMIT, fast.pcie_transmit_bytes),
        (catalog::GPU_PCIE_RECEIVE, fast.pcie_receive_bytes),
    ] {
        if let Some(bytes) = bytes {
            page.counter(counter, labels(card), bytes);
        }
    }
    let times = &fast.throttle_times;
    for reason in ThrottleTime::ALL {
        let nanoseconds = match reason {
            ThrottleTime::SwPowerCap => times.sw_power_cap,
            ThrottleTime::SyncBoost => times.sync_boost,
            ThrottleTime::SwThermal => times.sw_thermal,
            ThrottleTime::HwThermal => times.hw_thermal,
            ThrottleTime::HwPowerBrake => times.hw_power_brake,
            ThrottleTime::Thermal => times.thermal,
            ThrottleTime::BoardLimit => times.board_limit,
            ThrottleTime::LowUtilization => times.low_utilization,
            ThrottleTime::Reliability => times.reliability,
        };
        if let Some(nanoseconds) = nanoseconds {
            let (gpu, uuid) = labels(card);
            let time = Duration::from_nanos(nanoseconds);
            page.time(catalog::GPU_THROTTLE_SECONDS, (gpu, uuid, *reason), time);
        }
    }
}

fn of_slow(card: &Card, slow: &Slow, page: &mut Page) {
    if let Some(replays) = slow.pcie_replays {
        page.counter(catalog::GPU_PCIE_REPLAYS, labels(card), replays);
    }
    for kind in EccKind::ALL {
        let count = match kind {
            EccKind::Corrected => slow.ecc_volatile.corrected,
            EccKind::Uncorrected => slow.ecc_volatile.uncorrected,
        };
        if let Some(count) = count {
            let (gpu, uuid) = labels(card);
            page.counter(catalog::GPU_ECC_ERRORS, (gpu, uuid, *kind), count);
        }
    }
    for link in &slow.links {
        for kind in NvlinkError::ALL {
            let count = match kind {
                NvlinkError::CrcFlit => link.errors.crc_flit,
                NvlinkError::CrcData => link.errors.crc_data,
                NvlinkError::Replay => link.errors.replay,
                NvlinkError::Recovery => link.errors.recovery,
                NvlinkError::EccData => link.errors.ecc_data,
            };
            if let Some(count) = count {
                let (gpu, uuid) = labels(card);
                let name = Nvlink::new(link.link.to_string());
                page.counter(catalog::GPU_NVLINK_ERRORS, (gpu, uuid, name, *kind), count);
            }
        }
    }
}

/// What a card remembers of its memory's errors: gauges, because it forgets when it is replaced.
pub(super) fn of_memory(card: &Card, slow: &Slow, page: &mut Page) {
    let (lifetime, rows) = (&slow.ecc_lifetime, &slow.rows);
    for (gauge, kind, count) in [
        (catalog::GPU_ECC_LIFETIME_ERRORS, EccKind::Corrected, lifetime.corrected),
        (catalog::GPU_ECC_LIFETIME_ERRORS, EccKind::Uncorrected, lifetime.uncorrected),
        (catalog::GPU_ROW_REMAPS, EccKind::Corrected, rows.corrected),
        (catalog::GPU_ROW_REMAPS, EccKind::Uncorrected, rows.uncorrected),
    ] {
        if let Some(count) = count {
            let (gpu, uuid) = labels(card);
            page.gauge(gauge, (gpu, uuid, kind), count as f64);
        }
    }
    for cause in RetireCause::ALL {
        let count = match cause {
            RetireCause::MultipleSingleBit => slow.retired_single_bit,
            RetireCause::DoubleBit => slow.retired_double_bit,
        };
        if let Some(count) = count {
            let (gpu, uuid) = labels(card);
            page.gauge(catalog::GPU_RETIRED_PAGES, (gpu, uuid, *cause), count as f64);
        }
    }
}

fn xids(card: &Card, log: Option<&KmsgFacts>, config: &Config, page: &mut Page) {
    let of_log = Xids::new();
    let logged = log.map(|log| card.address().and_then(|card| log.of(card)).unwrap_or(&of_log));
    let sources = [(XidSource::Nvml, Some(&card.xids)), (XidSource::Kmsg, logged)];
    let watched: BTreeSet<u64> =
        config.xids.critical.iter().chain(&config.xids.warn).map(|code| u64::from(*code)).collect();
    // What is watched for comes first, so that nothing else can take its place.
    let seen = sources.iter().filter_map(|(_, xids)| *xids).flat_map(Xids::codes);
    let seen: BTreeSet<u64> = seen.map(|(code, _)| code).collect();
    let codes: BTreeSet<u64> =
        watched.iter().chain(seen.difference(&watched)).copied().take(XIDS_MAX).collect();
    let mut last: Vec<(Xid, SystemTime)> = Vec::new();
    for (source, xids) in sources {
        let Some(xids) = xids else { continue };
        let mut count = |xid: Xid, count: u64| {
            let (gpu, uuid) = labels(card);
            page.counter(catalog::GPU_XID_ERRORS, (gpu, uuid, xid, source), count);
        };
        for code in &codes {
            let seen = xids.get(*code);
            count(name(*code), seen.map_or(0, |seen| seen.count));
            last.extend(seen.map(|seen| (name(*code), seen.last)));
        }
        let rest = xids.codes().filter(|(code, _)| !codes.contains(code)).map(|(_, seen)| seen);
        let rest: Vec<Seen> = rest.chain(xids.other()).collect();
        if let Some(latest) = rest.iter().map(|seen| seen.last).max() {
            count(other(), rest.iter().map(|seen| seen.count).sum());
            last.push((other(), latest));
        }
    }
    // Of two sources that tell of the same event, the later word counts.
    last.sort_by_key(|(_, at)| std::cmp::Reverse(*at));
    let mut said = Vec::new();
    for (xid, at) in last {
        if !said.contains(&xid) {
            said.push(xid.clone());
            let (gpu, uuid) = labels(card);
            let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            page.gauge(catalog::GPU_XID_LAST, (gpu, uuid, xid), since.as_secs_f64());
        }
    }
}

fn name(code: u64) -> Xid {
    Xid::new(code.to_string())
}

fn other() -> Xid {
    Xid::new("other")
}
