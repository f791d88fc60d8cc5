//! RDMA devices.

use crate::Tree;

pub(crate) fn write(tree: &Tree) {
    for index in 0..tree.shape.hcas {
        let device = format!("sys/class/infiniband/mlx5_{index}");
        let node = tree.node_of(index, tree.shape.hcas);
        tree.write(format!("{device}/device/numa_node"), format!("{node}\n"));
        tree.write(format!("{device}/fw_ver"), "28.39.1002\n");
        tree.write(format!("{device}/board_id"), "FAKE000001\n");
        tree.write(format!("{device}/hca_type"), "MT4129\n");
        let port = Tree::port_path(index);
        let file = |name: &str, text: &str| tree.write(format!("{port}/{name}"), text);
        file("state", "4: ACTIVE\n");
        file("phys_state", "5: LinkUp\n");
        file("link_layer", "InfiniBand\n");
        file("rate", "400 Gb/sec (4X NDR)\n");
        for (counter, value) in [
            ("port_xmit_data", 1_000_000 + index),
            ("port_rcv_data", 2_000_000 + index),
            ("symbol_error", 3),
            ("link_downed", 1),
        ] {
            file(&format!("counters/{counter}"), &format!("{value}\n"));
        }
        for (counter, value) in [
            ("out_of_sequence", 5),
            ("packet_seq_err", 6),
            ("local_ack_timeout_err", 7),
            ("rnr_nak_retry_err", 8),
            ("np_cnp_sent", 9),
            ("rp_cnp_handled", 10),
        ] {
            file(&format!("hw_counters/{counter}"), &format!("{value}\n"));
        }
    }
}

impl Tree {
    /// The folder of the port of a device, relative to the root.
    #[must_use]
    pub fn port_path(index: usize) -> String {
        format!("sys/class/infiniband/mlx5_{index}/ports/1")
    }

    /// Sets the state of a port: `4: ACTIVE`, `1: DOWN`.
    pub fn set_port_state(&self, index: usize, state: &str) {
        self.write(format!("{}/state", Self::port_path(index)), format!("{state}\n"));
    }

    /// Sets a counter of a port: `counters/port_xmit_data`.
    pub fn set_port_counter(&self, index: usize, counter: &str, value: u64) {
        self.write(format!("{}/{counter}", Self::port_path(index)), format!("{value}\n"));
    }
}
