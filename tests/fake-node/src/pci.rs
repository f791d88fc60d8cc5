//! Cards on the PCI bus.

use crate::Tree;

pub(crate) fn write(tree: &Tree) {
    if tree.shape.gpus == 0 {
        return;
    }
    for index in 0..tree.shape.gpus {
        let folder = Tree::card_path(index);
        let file = |name: &str, text: &str| tree.write(format!("{folder}/{name}"), text);
        file("vendor", "0x10de\n");
        file("device", "0x2330\n");
        // A card without a screen: 3D controller.
        file("class", "0x030200\n");
        file("numa_node", &format!("{}\n", tree.node_of(index, tree.shape.gpus)));
        file("current_link_width", "16\n");
        file("max_link_width", "16\n");
        file("current_link_speed", "32.0 GT/s PCIe\n");
        file("max_link_speed", "32.0 GT/s PCIe\n");
        file("aer_dev_correctable", "RxErr 0\nBadTLP 1\nBadDLLP 2\nTOTAL_ERR_COR 3\n");
        file("aer_dev_nonfatal", "Undefined 0\nDLP 0\nTOTAL_ERR_NONFATAL 0\n");
        file("aer_dev_fatal", "Undefined 0\nDLP 0\nTOTAL_ERR_FATAL 0\n");
    }
    // Its switch, and somebody else's network card.
    for (address, vendor, class) in
        [("0000:00:01.0", "0x8086", "0x060400"), ("0000:02:00.0", "0x15b3", "0x020700")]
    {
        let folder = format!("sys/bus/pci/devices/{address}");
        tree.write(format!("{folder}/vendor"), format!("{vendor}\n"));
        tree.write(format!("{folder}/class"), format!("{class}\n"));
        tree.write(format!("{folder}/numa_node"), "0\n");
    }
}

impl Tree {
    /// The PCI address of a card: `0000:17:00.0` is the first, the next are 16 buses on.
    #[must_use]
    pub fn card_address(index: usize) -> String {
        format!("0000:{:02x}:00.0", 0x17 + index * 0x10)
    }

    /// The folder of a card, relative to the root.
    #[must_use]
    pub fn card_path(index: usize) -> String {
        format!("sys/bus/pci/devices/{}", Self::card_address(index))
    }

    /// The node of the one at `index` of `count`, spread over the nodes that have CPUs; -1 where
    /// there is none.
    pub(crate) fn node_of(&self, index: usize, count: usize) -> i64 {
        let nodes: Vec<u32> = self
            .shape
            .nodes
            .iter()
            .filter(|node| !node.cpus.is_empty())
            .map(|node| node.id)
            .collect();
        nodes.get(index * nodes.len() / count.max(1)).map_or(-1, |id| i64::from(*id))
    }
}
