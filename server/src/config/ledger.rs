//! What takes memory, and how large the KV pools can be.

use types::Bytes;

use super::findings::{Class, Finding, Findings};
use super::pools::{PoolPlan, Shares};
use super::{Host, hierarchy, reserve};
use crate::cli::{ByteSize, Settings};
use crate::source::Facts;

/// By default the pools take at most one part in this many of what is left.
const POOL_SHARE: u64 = 2;
/// At least one part in this many of that stays for the pools, however large the host tier is.
const LEAST_SHARE: u64 = 8;
/// Bytes of a number in logits and activations.
const F32: u64 = 4;

/// One line of the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LedgerRow {
    /// What takes the memory.
    pub what: &'static str,
    /// How much.
    pub bytes: Bytes,
}

/// All that takes memory, against what there is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ledger {
    /// The parts.
    pub rows: Vec<LedgerRow>,
    /// What the host gives; `None` where it does not say.
    pub usable: Option<Bytes>,
}

impl Ledger {
    /// The sum of the rows.
    #[must_use]
    pub fn total(&self) -> Bytes {
        self.rows.iter().map(|row| row.bytes).sum()
    }
}

pub(super) struct Memory {
    pub(super) pools: Vec<PoolPlan>,
    pub(super) ledger: Ledger,
}

/// Sizes the pools and adds up the ledger. `settings` have passed the static rules.
pub(super) fn plan(
    settings: &Settings,
    facts: &Facts,
    host: &Host,
    findings: &mut Findings,
) -> Memory {
    let ranks = settings.machine.tp_size.max(1) as u64;
    let mut shares = Shares::new(settings, &facts.spec);
    if let Some(assumed) = host.assumed {
        // Only the host tier takes this memory.
        shares.assume(assumed, findings);
        let bytes = Bytes(reserve(host.usable.unwrap_or_default()));
        let rows = vec![LedgerRow { what: "reserve", bytes }];
        return Memory { pools: shares.pools, ledger: Ledger { rows, usable: host.usable } };
    }
    let fixed = fixed_rows(settings, facts, host);
    let taken: Bytes = fixed.iter().map(|row| row.bytes).sum();
    let left = host.usable.map(|usable| usable.saturating_sub(taken));
    shares.share_out(match (settings.machine.kv_pool_bytes, left) {
        (Some(ByteSize(bytes)), _) => bytes / ranks,
        // A share of what is left, and never more than the running requests could use.
        (None, Some(left)) => {
            let share = left.0 / POOL_SHARE;
            let tier = hierarchy::share(settings, share);
            // A tier that leaves nothing is refused for its own size, not for the pools'.
            let share = share.saturating_sub(tier).max(share / LEAST_SHARE);
            shares.useful().min(share / ranks)
        }
        // The system does not say: one full request is what a server needs at least.
        (None, None) => shares.one_request(),
    });
    judge(settings, &shares, left, findings);
    let mut rows = fixed;
    rows.extend(shares.pools.iter().map(|pool| LedgerRow {
        what: if pool.window.is_some() { "KV pool, window" } else { "KV pool" },
        bytes: Bytes(pool.bytes().saturating_mul(ranks)),
    }));
    Memory { pools: shares.pools, ledger: Ledger { rows, usable: host.usable } }
}

fn fixed_rows(settings: &Settings, facts: &Facts, host: &Host) -> Vec<LedgerRow> {
    let (load, spec) = (&settings.load, &facts.spec);
    let logits = load.max_running_requests as u64 * spec.vocab as u64 * F32;
    let activations = load.max_batch_tokens as u64 * facts.floats_per_token as u64 * F32;
    let reserve = reserve(host.usable.unwrap_or_default());
    vec![
        LedgerRow { what: "weights", bytes: Bytes(spec.weight_bytes) },
        LedgerRow { what: "logits", bytes: Bytes(logits) },
        LedgerRow { what: "activations", bytes: Bytes(activations) },
        LedgerRow { what: "reserve", bytes: Bytes(reserve) },
    ]
}

fn judge(settings: &Settings, shares: &Shares, left: Option<Bytes>, findings: &mut Findings) {
    let given = settings.machine.kv_pool_bytes;
    let ranks = settings.machine.tp_size.max(1) as u64;
    let page_bytes = shares.page_bytes().saturating_mul(ranks);
    if shares.pools.iter().any(|pool| pool.pages == 0) {
        let page = ByteSize(page_bytes);
        findings.add(match given {
            Some(given) => Finding {
                id: "KV002",
                class: Class::Configuration,
                flag: "--kv-pool-bytes",
                value: given.to_string(),
                reason: format!("a single page takes {page}"),
                fix: format!("--kv-pool-bytes {}", ByteSize(page_bytes * 64)),
            },
            None => Finding {
                id: "MEM001",
                class: Class::Host,
                flag: "--model",
                value: settings.model.clone(),
                reason: format!(
                    "after weights and reserve {} are left, not one page of {page}",
                    left.unwrap_or_default()
                ),
                fix: "a smaller model or a larger host".to_owned(),
            },
        });
        return;
    }
    let Some(left) = left else { return };
    let pool = shares.pools.iter().fold(0, |sum: u64, pool| sum.saturating_add(pool.bytes()));
    let pool = Bytes(pool.saturating_mul(ranks));
    if pool > left {
        let fits = left.0 / page_bytes * page_bytes;
        findings.add(Finding {
            id: "MEM002",
            class: Class::Host,
            flag: "--kv-pool-bytes",
            value: given.map_or_else(|| pool.to_string(), |given| given.to_string()),
            reason: format!("after weights, buffers and reserve {left} are left on this host"),
            fix: if fits > 0 {
                format!("--kv-pool-bytes {}", ByteSize(fits))
            } else {
                "a smaller model or a larger host".to_owned()
            },
        });
    }
}
