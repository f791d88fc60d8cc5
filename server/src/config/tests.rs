mod hierarchy;
mod pairs;
mod ranks;
mod roles;
mod store;

use super::*;
use crate::source::Source;
use crate::tests::rig::settings;

const GIB: u64 = 1 << 30;

fn host(usable: u64) -> Host {
    Host {
        cores: 4,
        usable: Some(Bytes(usable)),
        available: Some(Bytes(usable)),
        group: None,
        files: 1 << 20,
        numa_nodes: 1,
        nodes: vec![NodeRoom { node: 0, bytes: usable }],
        lockable: None,
        assumed: None,
    }
}

fn resolved(flags: &str, host: Host) -> Result<Resolved, Findings> {
    resolved_of("fake", flags, host)
}

fn resolved_of(model: &str, flags: &str, host: Host) -> Result<Resolved, Findings> {
    let settings = settings(&format!("--model {model} {flags}"));
    let facts = Source::parse(&settings)?.inspect(&settings)?;
    resolve(&settings, &facts, &host)
}

/// The one finding of these flags.
fn finding(flags: &str, host: Host) -> Finding {
    let findings = resolved(flags, host).expect_err("an impossible setting");
    let mut found = findings.iter().cloned();
    let first = found.next().expect("a finding");
    assert_eq!(found.next(), None, "{findings}");
    first
}

#[test]
fn defaults_follow_the_model_and_the_host() {
    let resolved = resolved("", host(8 * GIB)).expect("defaults work");
    assert_eq!(resolved.max_context, 4096);
    assert_eq!((resolved.threads, resolved.prefill_chunk), (4, 512));
    assert_eq!((resolved.api.port(), resolved.probes.port()), (8000, 8100));
    // 32 requests of 4096 tokens, which is all that can be of use.
    assert_eq!(resolved.pages(), 32 * 4096 / 16);
    assert!(resolved.ledger.total() < Bytes(8 * GIB));
    assert_eq!(resolved.model_name, "fake");
    let promised = metric_catalog::slo::TTFT_OBJECTIVE_SECONDS;
    assert_eq!(resolved.limits.ttft_objective.as_secs_f64(), promised, "what the alerts judge by");
}

#[test]
fn a_small_host_gets_a_small_pool_and_a_short_context() {
    let resolved = resolved("", host(132 << 20)).expect("there is room for something");
    assert!(resolved.max_context < 4096, "{}", resolved.max_context);
    assert_eq!(resolved.max_context, resolved.pages() * 16);
}

#[test]
fn each_impossible_setting_is_one_line_with_a_value_that_works() {
    let check = |flags: &str, id: &str, fix: &str, class: Class| {
        let found = finding(flags, host(8 * GIB));
        assert_eq!((found.id, found.class), (id, class), "{found}");
        assert!(found.fix.starts_with(fix), "{found}");
        let line = found.to_string();
        assert_eq!(line.lines().count(), 1);
        assert!(line.contains(found.flag) && line.contains(&found.value), "{line}");
    };
    let config = Class::Configuration;
    check("--max-running-requests 0", "CFG001", "--max-running-requests 32", config);
    check("--threads 5000", "CFG002", "--threads 1024", config);
    check("--page-tokens 4096", "CFG003", "--page-tokens 16", config);
    check("--max-batch-tokens 20", "CFG004", "--max-batch-tokens 32", config);
    check("--prefill-chunk 600", "CFG005", "--prefill-chunk 512", config);
    check("--max-context 5000", "MODEL001", "--max-context 4096", config);
    check("--kv-pool-bytes 1KiB", "KV002", "--kv-pool-bytes 512KiB", config);
    check("--kv-pool-bytes 1MiB --max-context 4096", "KV001", "--max-context 2048", config);
    check("--port 65500", "NET001", "--probe-port 65400", config);
    check("--port 9000 --probe-port 9000", "NET002", "--probe-port 9100", config);
    check("--kv-pool-bytes 9GiB", "MEM002", "--kv-pool-bytes ", Class::Host);
}

#[test]
fn what_the_fixes_say_works() {
    for flags in ["--max-batch-tokens 32", "--prefill-chunk 512", "--kv-pool-bytes 512KiB"] {
        assert!(resolved(flags, host(8 * GIB)).is_ok(), "{flags}");
    }
    let found = finding("--kv-pool-bytes 2GiB", host(GIB));
    assert!(resolved(&found.fix, host(GIB)).is_ok(), "{found}");
}

#[test]
fn all_findings_are_told_at_once_and_the_worst_decides() {
    let flags = "--port 9000 --probe-port 9000 --kv-pool-bytes 9GiB";
    let findings = resolved(flags, host(8 * GIB)).expect_err("two impossible settings");
    assert_eq!(findings.iter().count(), 2);
    assert_eq!(findings.exit(), program::exit::Exit::Configuration);
    let host_only = resolved("--kv-pool-bytes 9GiB", host(8 * GIB)).expect_err("too large");
    assert_eq!(host_only.exit(), program::exit::Exit::Host);
}

#[test]
fn ports_in_use_are_found_and_explained() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("an address");
    let free = SocketAddr::from(([127, 0, 0, 1], 0));
    let probing =
        Resolved { api: address, probes: free, ..resolved("", host(8 * GIB)).expect("works") };
    let findings = ports::check(&probing);
    assert_eq!(findings.exit(), program::exit::Exit::Temporary);
    let line = findings.to_string();
    assert!(line.contains(&format!("--port {}", address.port())), "{line}");
    let denied = std::io::Error::from(std::io::ErrorKind::PermissionDenied);
    let found = ports::finding("--port", SocketAddr::from(([127, 0, 0, 1], 80)), &denied);
    assert_eq!((found.class, found.fix.as_str()), (Class::Permission, "--port 8080"));
    let absent = std::io::Error::from(std::io::ErrorKind::AddrNotAvailable);
    assert_eq!(ports::finding("--port", free, &absent).flag, "--host");
    assert_eq!(ports::finding("--transfer-port", free, &absent).flag, "--transfer-host");
    let roles =
        RolePlan { role: crate::cli::Role::Prefill, transfer: address, ..probing.roles.clone() };
    let findings = ports::check(&Resolved { api: free, roles, ..probing });
    assert!(findings.to_string().contains("--transfer-port"), "{findings}");
}

#[test]
fn models_that_are_none_are_named() {
    let inspect = |model: &str| {
        let settings = settings(&format!("--model {model}"));
        Source::parse(&settings).and_then(|source| source.inspect(&settings).map(drop))
    };
    let missing = inspect("/nowhere/model.gguf").expect_err("there is none");
    assert!(missing.to_string().contains("/nowhere/model.gguf"), "{missing}");
    let option = inspect("fake:speed=9").expect_err("no such option");
    assert!(option.reason.contains("step, prefill-token"), "{option}");
    assert!(inspect("fake:step=3").is_err_and(|found| found.reason.contains("unit")));
}

/// Name, window and pages of each pool.
fn pools(resolved: &Resolved) -> Vec<(&str, Option<usize>, usize)> {
    resolved.pools.iter().map(|pool| (pool.name, pool.window, pool.pages)).collect()
}

#[test]
fn a_window_pool_holds_what_running_requests_can_use() {
    let window = |flags: &str, usable| {
        let settings = settings(&format!("--model fake:window=100 --prefill-chunk 64 {flags}"));
        let facts =
            Source::parse(&settings).and_then(|source| source.inspect(&settings)).expect("facts");
        resolve(&settings, &facts, &host(usable))
    };
    // A request holds at most 13 pages of the window's pool: 100 tokens behind, 64 ahead.
    let roomy = window("", 64 * GIB).expect("defaults work");
    assert_eq!(pools(&roomy), [("kv", None, 32 * 256), ("swa", Some(100), 13 + 31 * 14)]);
    assert_eq!(roomy.max_context, 4096);
    // One request of 4096 tokens and not a page more.
    let page = roomy.pools[0].page_bytes;
    let bytes = page * (256 + 13);
    let flags = format!("--kv-pool-bytes {} --max-context 4096", ByteSize(bytes));
    let one = window(&flags, 64 * GIB).expect("it fits");
    assert_eq!(pools(&one), [("kv", None, 256), ("swa", Some(100), 13)]);
    // Beyond that, both pools get something.
    let flags = format!("--kv-pool-bytes {}", ByteSize(bytes + 100 * page));
    let more = window(&flags, 64 * GIB).expect("it fits");
    assert_eq!(pools(&more), [("kv", None, 306), ("swa", Some(100), 63)]);
    // Less than one full request: what both pools hold, and the fix that is named works.
    let flags = format!("--kv-pool-bytes {}", ByteSize(20 * page));
    let less = window(&flags, 64 * GIB).expect("it fits");
    assert_eq!(pools(&less), [("kv", None, 10), ("swa", Some(100), 10)]);
    assert_eq!(less.max_context, 160);
    let flags = format!("--kv-pool-bytes {} --max-context 4096", ByteSize(40 * page));
    let found = window(&flags, 64 * GIB).expect_err("too small");
    let fix = found.iter().next().expect("a finding").fix.clone();
    assert!(fix.starts_with("--max-context 432, or --kv-pool-bytes "), "{fix}");
    let flags = fix.split(" or ").nth(1).expect("another fix");
    assert!(window(&format!("{flags} --max-context 4096"), 64 * GIB).is_ok(), "{fix}");
    let tiny = window("--kv-pool-bytes 1KiB", 64 * GIB).expect_err("not a page");
    assert_eq!(tiny.iter().next().map(|found| found.id), Some("KV002"));
}
