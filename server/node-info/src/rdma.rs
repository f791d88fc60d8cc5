//! `/sys/class/infiniband`: ports that move memory between nodes.

use std::path::Path;

use crate::read::{self, Bad, Found};
use crate::{FactError, Root, pci};

/// "Invalid argument": drivers answer a counter that their hardware lacks with it.
const EINVAL: i32 = 22;
/// Data counters of the standard count words of this many bytes.
const WORD: u64 = 4;

/// A port of an RDMA device. What device or kernel does not tell is `None`.
#[derive(Debug, Clone, PartialEq)]
pub struct Port {
    /// The device: `mlx5_0`.
    pub device: String,
    /// Its number, from 1.
    pub port: u32,
    /// The NUMA node the device is attached to; `None` where the firmware does not say.
    pub numa_node: Option<u32>,
    /// Whether it carries traffic.
    pub state: PortState,
    /// What it carries each way, in bytes a second.
    pub rate: f64,
    /// Bytes sent.
    pub transmitted: Option<u64>,
    /// Bytes received.
    pub received: Option<u64>,
    /// What went wrong.
    pub errors: PortErrors,
}

/// The state of a port, as the standard names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PortState {
    /// Nothing changed yet (0).
    Nop,
    /// No link (1).
    Down,
    /// A link, and no address yet (2).
    Init,
    /// Configured, not yet active (3).
    Armed,
    /// Carries traffic (4).
    Active,
    /// Active, and the link has just failed (5).
    ActiveDefer,
}

/// Counters of a port since its driver was loaded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PortErrors {
    /// Errors on the wire.
    pub symbol_error: Option<u64>,
    /// The link went down.
    pub link_downed: Option<u64>,
    /// Packets out of order.
    pub out_of_sequence: Option<u64>,
    /// Negative answers to packets out of order.
    pub packet_seq_err: Option<u64>,
    /// The other side did not answer in time.
    pub local_ack_timeout: Option<u64>,
    /// The other side was not ready to receive.
    pub rnr_nak_retry: Option<u64>,
    /// Congestion notifications sent.
    pub cnp_sent: Option<u64>,
    /// Congestion notifications obeyed.
    pub cnp_handled: Option<u64>,
}

pub(crate) fn read(root: &Root) -> Result<Option<Found<Port>>, FactError> {
    let folder = root.sys("class/infiniband");
    let Some(devices) = read::names(&folder)? else { return Ok(None) };
    let mut found = Found::default();
    for device in devices {
        let path = folder.join(&device);
        let ports = match read::names(&path.join("ports")) {
            Ok(ports) => ports.unwrap_or_default(),
            Err(error) => {
                found.problems.push(error.into());
                continue;
            }
        };
        let mut ports: Vec<u32> = ports.iter().filter_map(|name| read::digits(name)).collect();
        ports.sort_unstable();
        ports.dedup();
        for number in ports {
            found.push(port(&path, &device, number));
        }
    }
    Ok(Some(found))
}

fn port(device: &Path, name: &str, number: u32) -> Result<Port, FactError> {
    let folder = device.join("ports").join(number.to_string());
    let standard = |file: &'static str| counter(&folder.join("counters").join(file), file);
    let hardware = |file: &'static str| counter(&folder.join("hw_counters").join(file), file);
    let bytes = |words: Option<u64>| words.map(|words| words.saturating_mul(WORD));
    Ok(Port {
        device: name.to_owned(),
        port: number,
        numa_node: read::optional_with(&device.join("device/numa_node"), pci::node)?.flatten(),
        state: read::required_with(&folder.join("state"), state)?,
        rate: read::required_with(&folder.join("rate"), rate)?,
        transmitted: bytes(standard("port_xmit_data")?),
        received: bytes(standard("port_rcv_data")?),
        errors: PortErrors {
            symbol_error: standard("symbol_error")?,
            link_downed: standard("link_downed")?,
            out_of_sequence: hardware("out_of_sequence")?,
            packet_seq_err: hardware("packet_seq_err")?,
            local_ack_timeout: hardware("local_ack_timeout_err")?,
            rnr_nak_retry: hardware("rnr_nak_retry_err")?,
            cnp_sent: hardware("np_cnp_sent")?,
            cnp_handled: hardware("rp_cnp_handled")?,
        },
    })
}

fn counter(path: &Path, field: &'static str) -> Result<Option<u64>, FactError> {
    match read::optional_with(path, |text| count(text, field)) {
        Ok(count) => Ok(count.flatten()),
        Err(error) if lacks(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether the hardware has no such counter.
fn lacks(error: &FactError) -> bool {
    matches!(error, FactError::Read { source, .. } if source.raw_os_error() == Some(EINVAL))
}

/// A number, or `N/A (no PMA)` where the device does not count.
pub(crate) fn count(text: &str, field: &'static str) -> Result<Option<u64>, Bad> {
    if text.starts_with("N/A") { Ok(None) } else { read::number(text, field).map(Some) }
}

/// `4: ACTIVE`.
pub(crate) fn state(text: &str) -> Result<PortState, Bad> {
    let text = text.trim();
    let number = text.split(':').next().unwrap_or_default();
    Ok(match number {
        "0" => PortState::Nop,
        "1" => PortState::Down,
        "2" => PortState::Init,
        "3" => PortState::Armed,
        "4" => PortState::Active,
        "5" => PortState::ActiveDefer,
        _ => return Err(Bad::new("state of a port", text)),
    })
}

/// `400 Gb/sec (4X NDR)` as bytes a second.
pub(crate) fn rate(text: &str) -> Result<f64, Bad> {
    let text = text.trim();
    let bad = || Bad::new("rate of a port", text);
    let (number, _) = text.split_once(" Gb/sec").ok_or_else(bad)?;
    let gigabits: f64 = number.parse().map_err(|_| bad())?;
    if gigabits.is_finite() && gigabits >= 0.0 { Ok(gigabits * 1e9 / 8.0) } else { Err(bad()) }
}
