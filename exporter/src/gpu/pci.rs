//! Cards as the bus shows them: how many there should be, and which NUMA node each is near to.
//! NVML's own answer to that question means something else.

use std::io;

use node_info::{Found, Root};

use crate::config::Config;
use crate::facts::Slots;
use crate::slot::{CollectError, Slot, Stop, View, run_blocking};

/// NVIDIA's number among vendors.
const NVIDIA: u16 = 0x10de;

/// The cards that the bus has.
pub type PciFacts = Found<node_info::Card>;

pub(super) fn start(config: &Config, slots: &Slots, stop: &Stop) -> io::Result<()> {
    let (root, slot) = (config.root(), slots.pci.clone());
    run_blocking(slots.pci.clone(), stop.clone(), move || read(&root, &slot))
}

fn read(root: &Root, slot: &Slot<PciFacts>) -> Result<PciFacts, CollectError> {
    let none = "this node has no PCI bus";
    let found = root.cards(NVIDIA)?.ok_or_else(|| CollectError::unsupported(none))?;
    for problem in &found.problems {
        slot.incomplete(problem.clone().into());
    }
    Ok(found)
}

/// How many cards the bus has: as it was counted last, whatever became of the collection since; 0
/// where there is no bus, `None` while nobody knows.
#[must_use]
pub fn on_bus(view: &View<PciFacts>) -> Option<u32> {
    match (&view.last_good, &view.status.unsupported) {
        (Some(found), _) => u32::try_from(found.entries.len()).ok(),
        (None, Some(_)) => Some(0),
        (None, None) => None,
    }
}

/// The NUMA node of the card with this address.
#[must_use]
pub fn numa_node(facts: &PciFacts, address: &str) -> Option<u32> {
    facts.entries.iter().find(|card| card.address == address)?.numa_node
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slot::{CollectorName, Now};
    use std::time::Duration;

    fn slot() -> Slot<PciFacts> {
        Slot::new(CollectorName::Pci, Duration::from_secs(10))
    }

    #[test]
    fn cards_of_the_bus_are_counted_and_placed() {
        let tree = fake_node::Tree::two_socket();
        let found = read(&Config { paths: paths(&tree), ..Config::default() }.root(), &slot());
        let found = found.expect("a whole tree");
        assert_eq!(found.entries.len(), 8);
        let nodes: Vec<_> = found.entries.iter().map(|card| card.numa_node).collect();
        assert_eq!(nodes.iter().filter(|node| **node == Some(1)).count(), 4);
        let first = &found.entries[0];
        assert_eq!(numa_node(&found, &first.address), first.numa_node);
        assert_eq!(numa_node(&found, "0000:ff:00.0"), None);
    }

    #[test]
    fn a_bad_file_costs_a_value_and_no_card() {
        let tree = fake_node::Tree::two_socket();
        let slot = slot();
        let config = Config { paths: paths(&tree), ..Config::default() };
        let address = read(&config.root(), &slot).expect("a whole tree").entries[3].address.clone();
        let file = tree.sysfs().join("bus/pci/devices").join(address).join("numa_node");
        std::fs::write(file, "near\n").expect("the tree is writable");
        slot.begin(Now::read());
        let found = read(&config.root(), &slot);
        assert_eq!(found.as_ref().map(|found| found.entries.len()), Ok(8));
        slot.finish(Now::read(), found);
        let status = slot.view(Now::read()).status;
        assert!(!status.success, "a part is missing");
        assert!(status.error.expect("and why").to_string().contains("numa_node"));
        assert_eq!(on_bus(&slot.view(Now::read())), Some(8), "nobody misses fewer cards");
    }

    #[test]
    fn what_was_counted_last_stays_and_no_bus_has_no_card() {
        let now = Now::read();
        let counted = slot();
        assert_eq!(on_bus(&counted.view(now)), None);
        counted.finish(now, Err(CollectError::unsupported("no bus")));
        assert_eq!(on_bus(&counted.view(now)), Some(0));
        let tree = fake_node::Tree::two_socket();
        let config = Config { paths: paths(&tree), ..Config::default() };
        counted.finish(now, read(&config.root(), &counted));
        counted.finish(now, Err(CollectError::unsupported("no bus")));
        assert_eq!(on_bus(&counted.view(now)), Some(8));
    }

    fn paths(tree: &fake_node::Tree) -> crate::config::Paths {
        crate::config::Paths {
            procfs: tree.procfs(),
            sysfs: tree.sysfs(),
            cgroupfs: tree.cgroupfs(),
            rootfs: "/".into(),
        }
    }
}
