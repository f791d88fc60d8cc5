//! `/sys/bus/pci/devices`: cards, where they sit, and how their link is.

use std::path::Path;

use crate::read::{self, Bad, Found, Problem};
use crate::{FactError, Root};

/// Base class of what shows or computes: VGA, 3D and other display controllers.
const DISPLAY: u32 = 0x03;
/// Lanes of the widest link there is; a device that has fallen off the bus answers with more.
const MOST_LANES: u64 = 32;

/// A PCI device.
#[derive(Debug, Clone, PartialEq)]
pub struct Card {
    /// Its address: `0000:17:00.0`, lower case.
    pub address: String,
    /// The device id that its vendor gave it.
    pub device: Option<u16>,
    /// The NUMA node it is attached to; `None` where the firmware does not say.
    pub numa_node: Option<u32>,
    /// Its link as it is now; it slows down when idle.
    pub link: Link,
    /// What the link could be.
    pub link_max: Link,
    /// Errors on the link; `None` where the port does not report all of them.
    pub aer: Option<Aer>,
}

/// A PCI Express link. `None` where it has none or where the device does not answer.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Link {
    /// Lanes.
    pub width: Option<u32>,
    /// Speed of a lane, in 10^9 transfers a second.
    pub gigatransfers: Option<f64>,
}

impl Link {
    /// The generation of PCI Express that has this speed; `None` where it is unknown.
    #[must_use]
    pub fn generation(&self) -> Option<u32> {
        let speeds = [2.5, 5.0, 8.0, 16.0, 32.0, 64.0, 128.0];
        let speed = self.gigatransfers?;
        let index = speeds.iter().position(|known| (known - speed).abs() < 0.1)?;
        u32::try_from(index + 1).ok()
    }
}

/// Errors that a device reported since the start of the machine (advanced error reporting).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Aer {
    /// The link put them right.
    pub correctable: u64,
    /// A transaction was lost.
    pub nonfatal: u64,
    /// The link was lost.
    pub fatal: u64,
}

pub(crate) fn read(root: &Root, vendor: u16) -> Result<Option<Found<Card>>, FactError> {
    let folder = root.sys("bus/pci/devices");
    let Some(names) = read::names(&folder)? else { return Ok(None) };
    let mut found = Found::default();
    for name in names {
        let device = folder.join(&name);
        match shows(&device, vendor) {
            Ok(true) => {
                let card = card(&device, name, &mut found.problems);
                found.entries.push(card);
            }
            Ok(false) => {}
            Err(error) => found.problems.push(error.into()),
        }
    }
    Ok(Some(found))
}

/// Whether the device is of `vendor` and of a class that shows or computes.
fn shows(device: &Path, vendor: u16) -> Result<bool, FactError> {
    let hexadecimal =
        |name: &'static str| read::required_with(&device.join(name), |text| hex(text, name));
    Ok(hexadecimal("vendor")? == u32::from(vendor) && hexadecimal("class")? >> 16 == DISPLAY)
}

/// A card is there whatever of it can be read: one that has fallen off the bus answers none of its
/// files, and must not vanish from the count because of that.
fn card(device: &Path, name: String, problems: &mut Vec<Problem>) -> Card {
    let mut link = |width: &'static str, speed: &'static str| Link {
        width: fact(&device.join(width), |text| lanes(text, width), problems).flatten(),
        gigatransfers: fact(&device.join(speed), speed_of, problems).flatten(),
    };
    let now = link("current_link_width", "current_link_speed");
    let most = link("max_link_width", "max_link_speed");
    let mut errors = |file: &str| fact(&device.join(file), aer, problems);
    let counted =
        (errors("aer_dev_correctable"), errors("aer_dev_nonfatal"), errors("aer_dev_fatal"));
    let id = fact(&device.join("device"), |text| hex(text, "device"), problems);
    Card {
        device: id.and_then(|id| u16::try_from(id).ok()),
        numa_node: fact(&device.join("numa_node"), node, problems).flatten(),
        link: now,
        link_max: most,
        aer: match counted {
            (Some(correctable), Some(nonfatal), Some(fatal)) => {
                Some(Aer { correctable, nonfatal, fatal })
            }
            _ => None,
        },
        address: name,
    }
}

/// What a file of a card says; `None` where there is no such file, and where it is a problem.
fn fact<T>(
    path: &Path,
    parse: impl FnOnce(&str) -> Result<T, Bad>,
    problems: &mut Vec<Problem>,
) -> Option<T> {
    read::optional_with(path, parse).unwrap_or_else(|error| {
        problems.push(error.into());
        None
    })
}

/// `0x10de`.
pub(crate) fn hex(text: &str, field: &'static str) -> Result<u32, Bad> {
    let text = text.trim();
    let digits = text.strip_prefix("0x").filter(|digits| !digits.starts_with('+'));
    let number = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
    number.ok_or_else(|| Bad::new(field, text))
}

/// `0`, or `-1` where nobody knows.
pub(crate) fn node(text: &str) -> Result<Option<u32>, Bad> {
    let text = text.trim();
    match text {
        "-1" => Ok(None),
        node => read::digits(node).map(Some).ok_or_else(|| Bad::new("numa_node", text)),
    }
}

/// `16`; 0 and what no link has mean that the device does not answer.
pub(crate) fn lanes(text: &str, field: &'static str) -> Result<Option<u32>, Bad> {
    let lanes = read::number(text, field)?;
    Ok(u32::try_from(lanes).ok().filter(|_| (1..=MOST_LANES).contains(&lanes)))
}

/// `32.0 GT/s PCIe`, or `Unknown`; older kernels leave `PCIe` out, and write `8 GT/s`.
pub(crate) fn speed_of(text: &str) -> Result<Option<f64>, Bad> {
    let text = text.trim();
    if text.starts_with("Unknown") {
        return Ok(None);
    }
    let bad = || Bad::new("speed of a link", text);
    let (number, _) = text.split_once(" GT/s").ok_or_else(bad)?;
    let speed: f64 = number.parse().map_err(|_| bad())?;
    if speed.is_finite() && speed > 0.0 { Ok(Some(speed)) } else { Err(bad()) }
}

/// `RxErr 0`, a counter a line, and `TOTAL_ERR_COR 0` in the last one.
pub(crate) fn aer(text: &str) -> Result<u64, Bad> {
    let mut sum = 0_u64;
    let mut lines = 0;
    for line in text.lines() {
        let (name, count) = line.rsplit_once(' ').ok_or_else(|| Bad::new("counter", line))?;
        let count = read::number(count, "counter")?;
        if name.starts_with("TOTAL_ERR") {
            return Ok(count);
        }
        sum = sum.saturating_add(count);
        lines += 1;
    }
    if lines > 0 { Ok(sum) } else { Err(Bad::missing("counter")) }
}
