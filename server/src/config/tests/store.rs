//! Flags about the store behind the host tier.

use engine::{PrefetchPolicy, PrefetchTimeout};

use super::*;

/// The findings of these flags with a model that keeps bytes.
fn outcome(flags: &str) -> Result<Resolved, Findings> {
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/models/tiny-llama");
    let settings = settings(&format!("--model {model} --kv-pool-bytes 4MiB {flags}"));
    let facts = Source::parse(&settings)?.inspect(&settings)?;
    resolve(&settings, &facts, &host(8 * GIB))
}

const TIER: &str = "--enable-hierarchical-cache";
const STORE: &str = "--enable-hierarchical-cache --kv-store file:///var/cache/kv";

#[test]
fn each_wrong_combination_is_one_line_with_a_value_that_works() {
    let check = |flags: &str, id: &str, flag: &str, fix: &str| {
        let findings = outcome(flags).expect_err("an impossible setting");
        let mut found = findings.iter();
        let first = found.next().expect("a finding");
        assert_eq!(found.next(), None, "{findings}");
        assert_eq!((first.id, first.flag), (id, flag), "{first}");
        assert!(first.fix.contains(fix), "{first}");
        assert_eq!(findings.exit(), program::exit::Exit::Configuration);
        first.clone()
    };
    // The fix of each, with what it leaves as it is, works.
    let works = |flags: &str| {
        let outcome = outcome(flags).map(drop);
        assert_eq!(outcome.map_err(|found| found.to_string()), Ok(()), "{flags}");
    };
    let found = check("--kv-store-size 1GiB", "KVS001", "--kv-store-size", "--kv-store file://");
    works(&format!("{TIER} {}", found.fix));
    let found = check("--kv-store file:///a", "KVS002", "--kv-store", TIER);
    works(&found.fix);
    for url in ["http://a/b", "file://relative", "s3://B/x", "s3://bucket/x"] {
        let found = check(&format!("{TIER} --kv-store {url}"), "KVS003", "--kv-store", "file://");
        works(&format!("{TIER} {}", found.fix));
    }
    let zero = format!("{STORE} --kv-store-prefetch-timeout 0s");
    let found = check(&zero, "KVS004", "--kv-store-prefetch-timeout", "best_effort");
    works(&format!("{STORE} {}", found.fix));
    let policy =
        format!("{STORE} --kv-store-prefetch wait_complete --kv-store-prefetch-timeout 1s");
    let found = check(&policy, "KVS005", "--kv-store-prefetch-timeout", "timeout");
    works(&format!("{STORE} {}", found.fix));
    let small = format!("{STORE} --kv-store-size 1KiB");
    let found = check(&small, "KVS007", "--kv-store-size", "--kv-store-size ");
    works(&format!("{STORE} {}", found.fix));
}

#[test]
fn a_secret_in_an_address_is_not_repeated() {
    let flags = format!("{TIER} --kv-store s3://key:secret@bucket/x?region=eu");
    let text = outcome(&flags).expect_err("credentials in the address").to_string();
    assert!(text.contains("AWS_ACCESS_KEY_ID") && !text.contains("secret@"), "{text}");
}

#[test]
fn a_model_without_bytes_has_no_store() {
    let found = finding(STORE, host(8 * GIB));
    assert_eq!((found.id, found.class), ("KVS006", Class::Configuration), "{found}");
}

#[test]
fn defaults_bound_size_and_waiting() {
    let resolved = outcome(STORE).expect("it works");
    let store = resolved.store.expect("there is one");
    assert_eq!(store.max_bytes, Bytes(16 * GIB));
    assert_eq!(store.url.to_string(), "file:///var/cache/kv");
    assert_eq!(store.policy, PrefetchPolicy::Timeout(PrefetchTimeout::default()));
    let flags = format!("{STORE} --kv-store-prefetch-timeout 5s --kv-store-size 1GiB");
    let store = outcome(&flags).expect("it works").store.expect("there is one");
    let timeout = PrefetchTimeout { max: Duration::from_secs(5), ..PrefetchTimeout::default() };
    assert_eq!((store.max_bytes, store.policy), (Bytes(GIB), PrefetchPolicy::Timeout(timeout)));
    assert_eq!(outcome(TIER).expect("it works").store, None);
}
