//! `/proc/zoneinfo`, and the size of a page.

use crate::read::{self, Bad};
use crate::{FactError, Root};

/// 192 CPUs in four zones on two nodes write 300 kB.
const ZONEINFO_BYTES: u64 = 16 << 20;
/// `AT_PAGESZ` in `/proc/self/auxv`.
const PAGE_SIZE_KEY: u64 = 6;
const USUAL_PAGE: u64 = 4096;

/// Watermarks of the zones of a NUMA node, added up, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Watermarks {
    /// The node.
    pub node: u32,
    /// Below it, only the kernel itself is given memory.
    pub min: u64,
    /// Below it, the kernel reclaims in the background.
    pub low: u64,
    /// Up to it, it reclaims once it has begun.
    pub high: u64,
    /// Memory that the allocator manages.
    pub managed: u64,
}

pub(crate) fn read(root: &Root) -> Result<Vec<Watermarks>, FactError> {
    let path = root.proc("zoneinfo");
    let text = read::text_within(&path, ZONEINFO_BYTES)?;
    let parse = |text: &str| parse(text, root.page_bytes());
    read::whole(&text).and_then(parse).map_err(|bad| bad.at(&path))
}

/// `Node 0, zone   Normal` begins a zone; its watermarks follow, in pages, a line each.
pub(crate) fn parse(text: &str, page_bytes: u64) -> Result<Vec<Watermarks>, Bad> {
    let mut nodes: Vec<Watermarks> = Vec::new();
    let mut zone: Option<Zone> = None;
    for line in text.lines() {
        if let Some(header) = line.strip_prefix("Node ") {
            finish(&mut nodes, zone.take(), page_bytes)?;
            let node = header.split_once(", zone").and_then(|(node, _)| read::digits(node));
            zone = Some(Zone::new(node.ok_or_else(|| Bad::new("zone", line))?));
        } else if let Some(zone) = &mut zone {
            zone.line(line)?;
        }
    }
    finish(&mut nodes, zone, page_bytes)?;
    if nodes.is_empty() {
        return Err(Bad::missing("zone"));
    }
    Ok(nodes)
}

/// Watermarks of one zone, in pages, as far as its lines were read.
struct Zone {
    node: u32,
    pages: [Option<u64>; FIELDS.len()],
}

const FIELDS: [&str; 4] = ["min", "low", "high", "managed"];

impl Zone {
    const fn new(node: u32) -> Self {
        Self { node, pages: [None; FIELDS.len()] }
    }

    fn line(&mut self, line: &str) -> Result<(), Bad> {
        let mut words = line.split_whitespace();
        // Those of the lists per CPU have a colon: `high:`.
        let name = words.next().and_then(|word| FIELDS.iter().position(|field| *field == word));
        let Some(index) = name else { return Ok(()) };
        let value = words.next().unwrap_or_default();
        self.pages[index] = Some(read::number(value, FIELDS[index])?);
        Ok(())
    }
}

/// Adds a zone to its node. The kernel writes the zones of a node one after the other.
fn finish(nodes: &mut Vec<Watermarks>, zone: Option<Zone>, page_bytes: u64) -> Result<(), Bad> {
    let Some(zone) = zone else { return Ok(()) };
    let mut bytes = [0; FIELDS.len()];
    for ((bytes, pages), field) in bytes.iter_mut().zip(zone.pages).zip(FIELDS) {
        let pages = pages.ok_or_else(|| Bad::missing(field))?;
        *bytes =
            pages.checked_mul(page_bytes).ok_or_else(|| Bad::new(field, &pages.to_string()))?;
    }
    let index = match nodes.binary_search_by_key(&zone.node, |marks| marks.node) {
        Ok(index) => index,
        Err(index) => {
            nodes.insert(index, Watermarks { node: zone.node, ..Watermarks::default() });
            index
        }
    };
    let marks = &mut nodes[index];
    let [min, low, high, managed] = bytes;
    for (sum, value) in [
        (&mut marks.min, min),
        (&mut marks.low, low),
        (&mut marks.high, high),
        (&mut marks.managed, managed),
    ] {
        *sum = sum.saturating_add(value);
    }
    Ok(())
}

pub(crate) fn page_bytes(root: &Root) -> u64 {
    let mut bytes = [0; 1024];
    let length = read::head(&root.proc("self/auxv"), &mut bytes).unwrap_or(0);
    let word = |bytes: &[u8]| bytes.try_into().map(u64::from_ne_bytes).unwrap_or(0);
    let mut pairs = bytes[..length].chunks_exact(16).map(|pair| pair.split_at(8));
    let value = pairs.find(|(key, _)| word(key) == PAGE_SIZE_KEY).map(|(_, value)| word(value));
    value.filter(|size| size.is_power_of_two()).unwrap_or(USUAL_PAGE)
}
