//! The store behind the host tier: which flags fit together, and whether a page fits into it.

use std::time::Duration;

use engine::{PrefetchPolicy, PrefetchTimeout};
use kv_store::{Credentials, StoreUrl};
use types::Bytes;

use super::findings::{Class, Finding, Findings};
use super::hierarchy::enabled;
use crate::cli::{ByteSize, Settings, StorePrefetch, StoreSettings};
use crate::source::Facts;

/// The bound where none is given.
const SIZE: ByteSize = ByteSize(16 << 30);
/// A place that works on every system that has it.
const EXAMPLE: &str = "file:///var/cache/sightline";
/// What the objects of a page take beside its bytes, at most: header, tokens, names, checksum.
const OVERHEAD: u64 = 64 << 10;

/// The store as it will be opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorePlan {
    /// Where it is.
    pub url: StoreUrl,
    /// The most bytes of objects.
    pub max_bytes: Bytes,
    /// Who waits for pages, and how long.
    pub policy: PrefetchPolicy,
    /// For `s3://`, from the environment.
    pub credentials: Option<Credentials>,
}

fn finding(id: &'static str, flag: &'static str, value: &str, reason: &str, fix: &str) -> Finding {
    let [value, reason, fix] = [value, reason, fix].map(str::to_owned);
    Finding { id, class: Class::Configuration, flag, value, reason, fix }
}

/// Adds a finding for every flag that does not fit the others.
pub(super) fn rules(settings: &Settings, findings: &mut Findings) {
    let store = &settings.store;
    let Some(url) = &store.kv_store else {
        if let Some((flag, value)) = given(store).into_iter().next() {
            let reason = "there is no store without --kv-store";
            let fix = format!("--kv-store {EXAMPLE} {flag} {value}");
            findings.add(finding("KVS001", flag, &value, reason, &fix));
        }
        return;
    };
    if !enabled(settings) {
        let reason = "pages reach the store through the host tier, which is off";
        let fix = format!("--enable-hierarchical-cache --kv-store {url}");
        findings.add(finding("KVS002", "--kv-store", url, reason, &fix));
    }
    if let Err(error) = url.parse::<StoreUrl>() {
        // An address may hold a secret by mistake, so only what the error says of it is shown.
        let fix = format!("--kv-store {EXAMPLE}");
        findings.add(finding("KVS003", "--kv-store", "(as given)", &error.to_string(), &fix));
    }
    let Some(span) = store.kv_store_prefetch_timeout else { return };
    let (flag, value) = ("--kv-store-prefetch-timeout", span.to_string());
    match store.kv_store_prefetch.unwrap_or(StorePrefetch::Timeout) {
        StorePrefetch::Timeout if span.0.is_zero() => {
            let reason = "a request that waits for no time takes what is there";
            let fix = "--kv-store-prefetch best_effort";
            findings.add(finding("KVS004", flag, &value, reason, fix));
        }
        StorePrefetch::Timeout => {}
        StorePrefetch::BestEffort | StorePrefetch::WaitComplete => {
            let reason = "only --kv-store-prefetch timeout has a limit";
            let fix = format!("--kv-store-prefetch timeout {flag} {value}");
            findings.add(finding("KVS005", flag, &value, reason, &fix));
        }
    }
}

/// The flags about the store that were given, with their values.
fn given(store: &StoreSettings) -> Vec<(&'static str, String)> {
    let flags = [
        ("--kv-store-size", store.kv_store_size.map(|size| size.to_string())),
        ("--kv-store-prefetch", store.kv_store_prefetch.map(|policy| policy_name(policy).into())),
        ("--kv-store-prefetch-timeout", store.kv_store_prefetch_timeout.map(|v| v.to_string())),
    ];
    flags.into_iter().filter_map(|(flag, value)| Some((flag, value?))).collect()
}

/// As it is given on the command line.
pub(crate) const fn policy_name(policy: StorePrefetch) -> &'static str {
    match policy {
        StorePrefetch::BestEffort => "best_effort",
        StorePrefetch::Timeout => "timeout",
        StorePrefetch::WaitComplete => "wait_complete",
    }
}

/// The store that the flags, which fit together, ask for.
pub(super) fn plan(
    settings: &Settings,
    facts: &Facts,
    findings: &mut Findings,
) -> Option<StorePlan> {
    let store = &settings.store;
    let text = store.kv_store.as_deref()?;
    let url: StoreUrl = text.parse().ok()?;
    if facts.spec.architecture == "fake" {
        let reason = "the fake model has no bytes to keep";
        findings.add(finding("KVS006", "--kv-store", text, reason, "a model of files"));
        return None;
    }
    let size = store.kv_store_size.unwrap_or(SIZE);
    let least = page_bytes(settings, facts).saturating_add(OVERHEAD);
    if size.0 < least {
        let reason = format!("one page of all pools and ranks takes {}", Bytes(least));
        let fix = format!("--kv-store-size {}", ByteSize(least.next_multiple_of(1 << 20)));
        findings.add(finding("KVS007", "--kv-store-size", &size.to_string(), &reason, &fix));
    }
    let credentials = match &url {
        StoreUrl::File(_) => None,
        StoreUrl::S3 { .. } => match Credentials::from_environment(variable) {
            Ok(credentials) => Some(credentials),
            Err(error) => {
                let fix = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment";
                findings.add(finding("KVS008", "--kv-store", text, &error.to_string(), fix));
                None
            }
        },
    };
    Some(StorePlan { url, max_bytes: Bytes(size.0), policy: policy(store), credentials })
}

#[expect(clippy::disallowed_methods, reason = "secrets are no flags: others can read a command")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Bytes of a page in all mirrored parts of all ranks.
pub(crate) fn page_bytes(settings: &Settings, facts: &Facts) -> u64 {
    let rank: u64 = facts.spec.pools.iter().map(model::PoolSpec::host_page_bytes).sum();
    rank.saturating_mul(settings.machine.tp_size as u64)
}

fn policy(store: &StoreSettings) -> PrefetchPolicy {
    match store.kv_store_prefetch.unwrap_or(StorePrefetch::Timeout) {
        StorePrefetch::BestEffort => PrefetchPolicy::BestEffort,
        StorePrefetch::WaitComplete => PrefetchPolicy::WaitComplete,
        StorePrefetch::Timeout => {
            let default = PrefetchTimeout::default();
            let max = store.kv_store_prefetch_timeout.map_or(default.max, |span| span.0);
            PrefetchPolicy::Timeout(PrefetchTimeout { max, ..default })
        }
    }
}

/// The longest a request waits for the store, where that has a limit.
pub(crate) const fn longest_wait(policy: &PrefetchPolicy) -> Option<Duration> {
    match policy {
        PrefetchPolicy::Timeout(timeout) => Some(timeout.max),
        PrefetchPolicy::BestEffort | PrefetchPolicy::WaitComplete => None,
    }
}
