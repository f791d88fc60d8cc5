//! Cards and ports.

use fake_node::Tree;

use super::nodes::root;
use crate::{Aer, FactKind, Link, Port, PortState, pci, rdma};

const NVIDIA: u16 = 0x10de;

#[test]
fn cards_are_found_where_they_sit() {
    let tree = Tree::two_socket();
    let found = root(&tree).cards(NVIDIA).expect("readable").expect("a bus");
    assert_eq!(found.problems, []);
    let nodes: Vec<_> = found.entries.iter().map(|card| card.numa_node).collect();
    assert_eq!(nodes, [0, 0, 0, 0, 1, 1, 1, 1].map(Some));
    let card = &found.entries[0];
    assert_eq!((card.address.as_str(), card.device), ("0000:17:00.0", Some(0x2330)));
    let link = Link { width: Some(16), gigatransfers: Some(32.0) };
    assert_eq!((card.link, card.link_max, link.generation()), (link, link, Some(5)));
    assert_eq!(card.aer, Some(Aer { correctable: 3, nonfatal: 0, fatal: 0 }));
    let others = root(&tree).cards(0x15b3).expect("readable").expect("a bus");
    assert_eq!(others.entries, [], "a network card shows nothing");
    assert_eq!(root(&Tree::small()).cards(NVIDIA).expect("no bus is no error"), None);
}

#[test]
fn a_card_that_does_not_answer_has_no_link() {
    let tree = Tree::two_socket();
    let card = Tree::card_path(2);
    tree.write(format!("{card}/current_link_width"), "63\n");
    tree.write(format!("{card}/current_link_speed"), "Unknown\n");
    tree.write(format!("{card}/numa_node"), "-1\n");
    tree.remove(format!("{card}/aer_dev_fatal"));
    let found = root(&tree).cards(NVIDIA).expect("readable").expect("a bus");
    let card = &found.entries[2];
    assert_eq!((card.link, card.link.generation()), (Link::default(), None));
    assert_eq!((card.numa_node, card.aer), (None, None));
    assert_eq!(card.link_max.width, Some(16));
}

#[test]
fn a_bad_file_costs_a_value_and_no_card() {
    let tree = Tree::two_socket();
    tree.write(format!("{}/numa_node", Tree::card_path(3)), "-2\n");
    tree.write(format!("{}/vendor", Tree::card_path(4)), "10de\n");
    tree.remove(Tree::card_path(5));
    let found = root(&tree).cards(NVIDIA).expect("readable").expect("a bus");
    assert_eq!((found.entries.len(), found.problems.len()), (6, 2));
    assert_eq!((found.entries[3].numa_node, found.entries[3].link.width), (None, Some(16)));
    assert!(found.problems[0].reason.contains("numa_node is \"-2\""), "{:?}", found.problems);
    assert!(found.problems[1].reason.contains("vendor is \"10de\""), "{:?}", found.problems);
}

#[test]
fn a_card_that_fell_off_the_bus_is_still_counted() {
    let tree = Tree::two_socket();
    let files = ["current_link_width", "current_link_speed", "numa_node", "aer_dev_correctable"];
    for file in files {
        // What cannot be read although it is there, as what the kernel answers with EINVAL.
        let path = format!("{}/{file}", Tree::card_path(2));
        tree.remove(&path);
        tree.write(format!("{path}/x"), "");
    }
    let found = root(&tree).cards(NVIDIA).expect("readable").expect("a bus");
    assert_eq!(found.entries.len(), 8);
    let card = &found.entries[2];
    assert_eq!((card.link, card.numa_node, card.aer), (Link::default(), None, None));
    assert_eq!((card.device, card.link_max.width), (Some(0x2330), Some(16)));
    assert_eq!(found.problems.len(), files.len());
    for (problem, file) in found.problems.iter().zip([0, 1, 3, 2].map(|at| files[at])) {
        assert!(problem.path.ends_with(file) && problem.kind == FactKind::Failed, "{problem:?}");
    }
}

#[test]
fn numbers_of_links_and_errors() {
    assert_eq!(pci::speed_of("8 GT/s\n"), Ok(Some(8.0)));
    assert_eq!(pci::speed_of("2.5 GT/s PCIe\n"), Ok(Some(2.5)));
    for bad in ["8\n", "fast GT/s\n", "inf GT/s\n", "-8 GT/s\n", "NaN GT/s\n"] {
        assert!(pci::speed_of(bad).is_err(), "{bad:?}");
    }
    let slow = Link { width: Some(1), gigatransfers: Some(3.0) };
    assert_eq!(slow.generation(), None);
    assert_eq!(pci::aer("RxErr 2\nBadTLP 3\n"), Ok(5), "kernels without a total");
    assert!(pci::aer("RxErr two\n").is_err() && pci::aer("\n").is_err());
    assert!(pci::hex("0x+1", "class").is_err() && pci::hex("0x", "class").is_err());
}

fn ports(tree: &Tree) -> Vec<Port> {
    let found = root(tree).ports().expect("readable").expect("devices");
    assert_eq!(found.problems, []);
    found.entries
}

#[test]
fn ports_count_words_and_say_bytes() {
    let tree = Tree::two_socket();
    let [first, second] = &ports(&tree)[..] else { panic!("two ports") };
    assert_eq!((first.device.as_str(), first.port, first.numa_node), ("mlx5_0", 1, Some(0)));
    assert_eq!((second.device.as_str(), second.numa_node), ("mlx5_1", Some(1)));
    assert_eq!((first.state, first.rate), (PortState::Active, 50e9));
    assert_eq!((first.transmitted, first.received), (Some(4_000_000), Some(8_000_000)));
    let errors = first.errors;
    assert_eq!((errors.symbol_error, errors.link_downed), (Some(3), Some(1)));
    assert_eq!((errors.out_of_sequence, errors.packet_seq_err), (Some(5), Some(6)));
    assert_eq!((errors.local_ack_timeout, errors.rnr_nak_retry), (Some(7), Some(8)));
    assert_eq!((errors.cnp_sent, errors.cnp_handled), (Some(9), Some(10)));
    assert_eq!(root(&Tree::small()).ports().expect("no device is no error"), None);
}

#[test]
fn what_a_port_does_not_count_is_absent() {
    let tree = Tree::two_socket();
    tree.remove(format!("{}/hw_counters", Tree::port_path(0)));
    tree.write(format!("{}/counters/symbol_error", Tree::port_path(0)), "N/A (no PMA)\n");
    tree.set_port_state(0, "1: DOWN");
    tree.set_port_counter(1, "counters/port_xmit_data", u64::MAX);
    let ports = ports(&tree);
    assert_eq!(ports[0].state, PortState::Down);
    assert_eq!((ports[0].errors.symbol_error, ports[0].errors.cnp_sent), (None, None));
    assert_eq!(ports[0].errors.link_downed, Some(1));
    assert_eq!(ports[1].transmitted, Some(u64::MAX));
}

#[test]
fn a_bad_file_costs_one_port() {
    for (file, text) in [
        ("state", "9: LOST\n"),
        ("rate", "fast\n"),
        ("rate", "NaN Gb/sec (4X)\n"),
        ("counters/port_rcv_data", "many\n"),
        ("hw_counters/np_cnp_sent", "-1\n"),
    ] {
        let tree = Tree::two_socket();
        tree.write(format!("{}/{file}", Tree::port_path(0)), text);
        let found = root(&tree).ports().expect("readable").expect("devices");
        assert_eq!((found.entries.len(), found.problems.len()), (1, 1), "{file}");
        assert_eq!(found.problems[0].kind, FactKind::Malformed);
        assert!(found.problems[0].path.ends_with(file));
    }
    for (text, bytes) in [("2.5 Gb/sec (1X SDR)\n", 312.5e6), ("0 Gb/sec\n", 0.0)] {
        assert_eq!(rdma::rate(text), Ok(bytes));
    }
}
