//! Flags of the host tier: what they lead to, and what each wrong combination says.

use kv_cache::NodeRoom;

use super::{GIB, finding, host, resolved};
use crate::cli::{MemLayout, SwaRetention, WritePolicy};
use crate::config::{Class, Host, Resolved};

const ON: &str = "--enable-hierarchical-cache";

fn two_nodes(each: u64) -> Host {
    Host {
        numa_nodes: 2,
        nodes: [0, 1].map(|node| NodeRoom { node, bytes: each }).to_vec(),
        ..host(2 * each)
    }
}

fn with(flags: &str, host: Host) -> Resolved {
    resolved(&format!("{ON} {flags}"), host).unwrap_or_else(|found| panic!("{flags}: {found}"))
}

/// Ids of the advice that these flags lead to.
fn advice(resolved: &Resolved) -> Vec<&'static str> {
    resolved.advice.iter().map(|finding| finding.id).collect()
}

#[test]
fn without_the_flag_there_is_no_tier_and_with_it_the_defaults_hold() {
    let plain = resolved("", host(8 * GIB)).expect("defaults work");
    assert_eq!((&plain.hierarchy, plain.tp_size, plain.page_tokens), (&None, 1, 16));
    assert_eq!(plain.retention, SwaRetention::TailBranch);
    assert_eq!(plain.curve.map(|curve| curve.max_pages), Some(1_000_000));
    assert!(resolved("--hit-curve off", host(8 * GIB)).is_ok_and(|off| off.curve.is_none()));
    let off = resolved("--prefix-cache off", host(8 * GIB)).expect("it works");
    assert_eq!(off.curve, None, "nothing is kept, so nothing can be estimated");

    let tier = with("", host(8 * GIB));
    let plan = tier.hierarchy.as_ref().expect("a tier");
    assert_eq!(plan.host_pages(), [2 * tier.pages()]);
    assert_eq!((plan.policy, plan.layout), (WritePolicy::WriteThrough, MemLayout::PageFirst));
    assert_eq!(
        (plan.load_back_threshold, plan.lock, plan.nodes.as_slice()),
        (10, false, &[None][..])
    );
    assert_eq!(advice(&tier), Vec::<&str>::new());
    let row = tier.ledger.rows.iter().find(|row| row.what == "host tier").expect("a row");
    assert_eq!(row.bytes.0, plan.plan.total_bytes);
    assert!(tier.ledger.total().0 < 8 * GIB);
}

#[test]
fn by_default_the_pools_leave_room_for_the_tier() {
    for flags in ["", "--hicache-ratio 7.5", "--hicache-budget 60MiB", "--hicache-size 0.06"] {
        let tier = with(flags, host(300 << 20));
        let plan = &tier.hierarchy.as_ref().expect("a tier").plan;
        assert!(plan.fits() && tier.ledger.total().0 <= 300 << 20, "{flags}: {plan:?}");
    }
}

#[test]
fn bytes_are_shared_out_over_pools_and_ranks() {
    let pool = "--kv-pool-bytes 16MiB --model fake:window=100 --prefill-chunk 64";
    let flags = format!("{ON} --tp-size 2 --hicache-budget 64MiB {pool}");
    let found = crate::tests::rig::settings(&flags.replace("--model fake ", ""));
    let facts = crate::source::Source::parse(&found).and_then(|source| source.inspect(&found));
    let both = crate::config::resolve(&found, &facts.expect("facts"), &host(8 * GIB));
    let both = both.expect("it fits");
    let tier = both.hierarchy.as_ref().expect("a tier");
    assert_eq!(tier.host_pages().len(), 2);
    assert!(tier.plan.total_bytes <= 64 << 20 && tier.plan.total_bytes > 63 << 20);
    assert_eq!(tier.plan.total_bytes, 2 * tier.plan.rank_bytes);
    assert_eq!(tier.requested.map(|bytes| bytes.0), Some(64 << 20));
}

#[test]
fn ranks_are_spread_over_the_nodes_that_may_be_used() {
    let nodes = |flags: &str, host: Host| with(flags, host).hierarchy.expect("a tier").nodes;
    let four = |flags: &str| nodes(&format!("--tp-size 4 {flags}"), two_nodes(4 * GIB));
    assert_eq!(four(""), [Some(0), Some(0), Some(1), Some(1)]);
    assert_eq!(four("--hicache-numa 1"), [Some(1); 4]);
    assert_eq!(four("--hicache-numa off"), [None; 4]);
    let bound = Host { numa_nodes: 2, ..host(4 * GIB) };
    assert_eq!(nodes("", bound), [Some(0)]);
}

#[test]
fn each_wrong_combination_is_one_line_with_a_value_that_works() {
    let check = |flags: &str, machine: Host, id: &str, class: Class, fix: &str| {
        let found = finding(flags, machine);
        assert_eq!((found.id, found.class), (id, class), "{flags}: {found}");
        assert!(found.fix.starts_with(fix), "{flags}: {found}");
        let line = found.to_string();
        assert_eq!(line.lines().count(), 1);
        assert!(line.contains(found.flag) && line.contains(&found.value), "{line}");
    };
    let (config, big) = (Class::Configuration, || host(8 * GIB));
    let on = |flags: &str| format!("{ON} --kv-pool-bytes 16MiB {flags}");
    check(
        &on("--hicache-ratio 2 --hicache-budget 1GB"),
        big(),
        "HIC002",
        config,
        "--hicache-budget",
    );
    check(
        &on("--hicache-ratio 2 --hicache-size 1"),
        big(),
        "HIC002",
        config,
        "--hicache-size 1 alone",
    );
    let fix = "--enable-hierarchical-cache --hicache-ratio 3";
    check("--hicache-ratio 3", big(), "HIC003", config, fix);
    check("--hicache-write-policy write_back", big(), "HIC003", config, ON);
    check("--hicache-target 1GB", big(), "HIC003", config, ON);
    check(&on("--prefix-cache off"), big(), "HIC004", config, "--prefix-cache on");
    check(&on("--hicache-ratio 0.5"), big(), "HIC005", config, "--hicache-ratio 2");
    check(&on("--hicache-budget 1MiB"), big(), "HIC005", config, "--hicache-budget 17MB");
    check(&on("--hicache-size 0.001"), big(), "HIC005", config, "--hicache-size 0.017");
    check(&on("--hicache-ratio 1e12"), big(), "HIC005", config, "--hicache-ratio ");
    check(&on("--hicache-numa 7"), big(), "HIC007", config, "--hicache-numa 0");
    let none = Host { nodes: Vec::new(), numa_nodes: 0, ..big() };
    check(&on("--hicache-numa 0"), none, "HIC007", config, "--hicache-numa off");
    check(&on("--hicache-ratio 1000"), big(), "HIC008", Class::Host, "--hicache-ratio ");
    check(&on("--hicache-budget 20GiB"), big(), "HIC008", Class::Host, "--hicache-budget ");
    check(&on("--hicache-size 20"), big(), "HIC008", Class::Host, "--hicache-size ");
    let locked = Host { lockable: Some(8 << 20), ..big() };
    let fix = "smaller pools of the device";
    check(&on("--hicache-lock-memory"), locked, "HIC008", Class::Host, fix);
    check("--tp-size 0", big(), "CFG001", config, "--tp-size 1");
    check("--hit-curve-max-pages 0", big(), "CFG001", config, "--hit-curve-max-pages 1000000");
    check(
        "--swa-retention tail_every_100",
        big(),
        "CFG009",
        config,
        "--swa-retention tail_every_112",
    );
}

#[test]
fn what_the_fixes_say_works() {
    let base = format!("{ON} --kv-pool-bytes 16MiB");
    for flags in ["--hicache-ratio 1000", "--hicache-budget 20GiB", "--hicache-size 20"] {
        let found = finding(&format!("{base} {flags}"), host(8 * GIB));
        let fix = found.fix.split(", the largest").next().expect("a fix");
        with(&format!("--kv-pool-bytes 16MiB {fix}"), host(8 * GIB));
    }
    for flags in ["--hicache-budget 1MiB", "--hicache-size 0.001"] {
        let found = finding(&format!("{base} {flags}"), host(8 * GIB));
        let fix = found.fix.split(" (as much").next().expect("a fix");
        with(&format!("--kv-pool-bytes 16MiB {fix}"), host(8 * GIB));
    }
}

#[test]
fn the_node_decides_where_the_host_has_room() {
    // 1 GiB on each of two nodes: what fits on the host does not fit on one of them.
    let flags = format!("{ON} --kv-pool-bytes 16MiB --hicache-budget 1200MiB");
    let found = finding(&format!("{flags} --hicache-numa 1"), two_nodes(GIB));
    assert!(found.id == "HIC008" && found.reason.contains("NUMA node 1 has room for"), "{found}");
    assert!(resolved(&format!("{flags} --hicache-numa off"), two_nodes(GIB)).is_ok());
    let group = Host { group: Some(types::Bytes(400 << 20)), ..host(8 * GIB) };
    let found = finding(&flags, group);
    assert!(found.reason.contains("the control group has room for"), "{found}");
}

#[test]
fn what_works_but_is_of_no_use_is_advice() {
    let base = "--kv-pool-bytes 16MiB";
    let one = with(&format!("{base} --hicache-ratio 1"), host(8 * GIB));
    assert_eq!(advice(&one), ["HIC006"]);
    let found = one.advice.iter().next().expect("advice").to_string();
    assert!(found.starts_with("warning HIC006: --hicache-ratio 1: "), "{found}");
    assert_eq!(one.advice.exit(), program::exit::Exit::Ok);

    let far = with(&format!("{base} --hicache-target 1GB"), host(8 * GIB));
    let found = far.advice.iter().next().expect("advice");
    assert!(found.id == "HIC009" && found.fix.starts_with("--hicache-ratio 59.6"), "{found}");
    let beyond = with(&format!("{base} --hicache-target 300GB"), host(8 * GIB));
    let found = beyond.advice.iter().next().expect("advice");
    assert!(found.fix.contains("the largest that fits"), "{found}");
    let below = with(&format!("{base} --hicache-target 1MB"), host(8 * GIB));
    assert!(below.advice.iter().next().is_some_and(|found| found.reason.contains("at least")));
    let met = with(&format!("{base} --hicache-target 32MiB"), host(8 * GIB));
    assert_eq!(advice(&met), Vec::<&str>::new());
    assert_eq!(met.hierarchy.and_then(|tier| tier.target).map(|bytes| bytes.0), Some(32 << 20));
}
