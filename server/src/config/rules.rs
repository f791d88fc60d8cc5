//! Rules on single values and pairs of values: neither the host nor the pools take part.

use model::{ModelSpec, TpError};

use super::findings::{Class, Finding, Findings};
use super::{hierarchy, roles, store};
use crate::cli::{CacheSettings, PrefixCache, Settings, SwaRetention, Switch};
use crate::source::Facts;

/// More tokens in a page would leave most of a page empty.
const PAGE_TOKENS_MAX: usize = 1024;
/// Label values stay readable.
const NAME_CHARS_MAX: usize = 80;
/// More threads than any machine has cores is a typing error.
const THREADS_MAX: usize = 1024;

/// More of anything that is held in memory is a typing error.
const COUNT_MAX: usize = 1 << 20;

/// Adds a finding for every rule that `settings` break.
pub(super) fn check(settings: &Settings, facts: &Facts, findings: &mut Findings) {
    let spec = &facts.spec;
    at_least_one(settings, findings);
    not_countless(settings, findings);
    pages(settings, facts, findings);
    ranks(settings, facts, findings);
    hierarchy::rules(settings, facts, findings);
    store::rules(settings, findings);
    roles::rules(settings, findings);
    batch(settings, findings);
    model(settings, spec, findings);
    name(settings, spec, findings);
    if findings.is_empty() {
        without_effect(settings, spec, findings);
        roles::advice(settings, findings);
    }
}

fn finding(
    id: &'static str,
    flag: &'static str,
    value: impl ToString,
    reason: impl Into<String>,
    fix: impl Into<String>,
) -> Finding {
    let (value, reason, fix) = (value.to_string(), reason.into(), fix.into());
    Finding { id, class: Class::Configuration, flag, value, reason, fix }
}

fn at_least_one(settings: &Settings, findings: &mut Findings) {
    let (load, machine) = (&settings.load, &settings.machine);
    let counts = [
        ("--max-running-requests", load.max_running_requests, "32"),
        ("--max-batch-tokens", load.max_batch_tokens, "512"),
        ("--prefill-chunk", load.prefill_chunk.unwrap_or(1), "256"),
        ("--max-context", load.max_context.unwrap_or(1), "2048"),
        ("--max-connections", settings.max_connections, "1024"),
        ("--max-unsent-tokens", settings.max_unsent_tokens, "2048"),
        ("--write-timeout", usize::from(!settings.write_timeout.0.is_zero()), "60s"),
        ("--max-tokenize-requests", machine.max_tokenize_requests, "32"),
        ("--page-tokens", machine.page_tokens.unwrap_or(1), "16"),
        ("--tp-size", machine.tp_size, "1"),
        ("--hit-curve-max-pages", settings.cache.hit_curve_max_pages, "1000000"),
        ("--max-body-bytes", usize::from(settings.max_body_bytes.0 > 0), "4MiB"),
        ("--threads", machine.threads.unwrap_or(1), "1"),
        ("--http-threads", machine.http_threads, "2"),
        ("--tokenizer-threads", machine.tokenizer_threads, "2"),
    ];
    for (flag, value, works) in counts {
        if value == 0 {
            let fix = format!("{flag} {works}");
            findings.add(finding("CFG001", flag, 0, "there must be at least one", fix));
        }
    }
    let threads = [
        ("--threads", machine.threads.unwrap_or(1)),
        ("--http-threads", machine.http_threads),
        ("--tokenizer-threads", machine.tokenizer_threads),
    ];
    for (flag, value) in threads {
        if value > THREADS_MAX {
            let reason = format!("no machine has that many cores; the limit is {THREADS_MAX}");
            findings.add(finding("CFG002", flag, value, reason, format!("{flag} {THREADS_MAX}")));
        }
    }
}

fn not_countless(settings: &Settings, findings: &mut Findings) {
    let counts = [
        ("--max-running-requests", settings.load.max_running_requests),
        ("--max-batch-tokens", settings.load.max_batch_tokens),
        ("--max-connections", settings.max_connections),
        ("--max-unsent-tokens", settings.max_unsent_tokens),
        ("--max-tokenize-requests", settings.machine.max_tokenize_requests),
    ];
    for (flag, value) in counts {
        if value > COUNT_MAX {
            let reason = format!("no machine holds that many; the limit is {COUNT_MAX}");
            findings.add(finding("CFG007", flag, value, reason, format!("{flag} {COUNT_MAX}")));
        }
    }
}

fn pages(settings: &Settings, facts: &Facts, findings: &mut Findings) {
    let unit = facts.page_multiple;
    let fix = format!("--page-tokens {}", unit.max(16).next_multiple_of(unit));
    let tokens = settings.machine.page_tokens.unwrap_or(unit);
    if tokens > PAGE_TOKENS_MAX {
        let reason = format!("a page is the unit of allocation; the limit is {PAGE_TOKENS_MAX}");
        findings.add(finding("CFG003", "--page-tokens", tokens, reason, fix));
    } else if !tokens.is_multiple_of(unit) {
        let reason = format!(
            "{} joins up to {unit} tokens into one entry, and a page holds whole entries",
            facts.spec.architecture
        );
        findings.add(finding("CFG008", "--page-tokens", tokens, reason, fix));
    }
    let page = facts.spec.pools.first().map_or(1, |pool| pool.page_tokens);
    if let SwaRetention::TailEvery(every) = settings.cache.swa_retention
        && page > 0
        && !every.is_multiple_of(page)
    {
        let reason = format!("what is kept are whole pages of {page} tokens");
        let fix = SwaRetention::TailEvery(every.next_multiple_of(page));
        let (value, fix) = (settings.cache.swa_retention, format!("--swa-retention {fix}"));
        findings.add(finding("CFG009", "--swa-retention", value, reason, fix));
    }
}

/// Flags about what is kept, where nothing is.
fn without_effect(settings: &Settings, spec: &ModelSpec, findings: &mut Findings) {
    let cache = &settings.cache;
    let cached = settings.load.prefix_cache == PrefixCache::On;
    let mut add = |flag, value: String, reason: &str| {
        let (class, fix) = (Class::Advice, format!("no {flag}"));
        let reason = reason.to_owned();
        findings.add(Finding { id: "CFG010", class, flag, value, reason, fix });
    };
    if cache.swa_retention != SwaRetention::DEFAULT {
        let value = cache.swa_retention.to_string();
        if spec.pools.iter().all(|pool| pool.window.is_none()) {
            add("--swa-retention", value, "no pool of this model has a window");
        } else if !cached {
            add("--swa-retention", value, "nothing is kept with --prefix-cache off");
        }
    }
    if cache.hit_curve_max_pages != CacheSettings::CURVE_PAGES {
        let value = cache.hit_curve_max_pages.to_string();
        if cache.hit_curve == Switch::Off {
            add("--hit-curve-max-pages", value, "nothing is estimated with --hit-curve off");
        } else if !cached {
            add("--hit-curve-max-pages", value, "nothing is estimated with --prefix-cache off");
        }
    }
}

/// Every rank has its share of the model.
fn ranks(settings: &Settings, facts: &Facts, findings: &mut Findings) {
    // No ranks at all are refused by another rule.
    let ranks = settings.machine.tp_size.max(1);
    if let Some(Err(TpError { what, works, .. })) = facts.tp.as_ref().map(|tp| tp.check(ranks)) {
        let reason = format!("{ranks} ranks of {}: {what}", facts.spec.name);
        findings.add(finding("TP001", "--tp-size", ranks, reason, format!("--tp-size {works}")));
    }
}

fn batch(settings: &Settings, findings: &mut Findings) {
    let load = &settings.load;
    let (running, tokens) = (load.max_running_requests, load.max_batch_tokens);
    if tokens < running && running <= COUNT_MAX {
        findings.add(finding(
            "CFG004",
            "--max-batch-tokens",
            tokens,
            format!("each of {running} running requests takes a token of every step"),
            format!("--max-batch-tokens {}", running.next_power_of_two()),
        ));
    }
    if let Some(chunk) = load.prefill_chunk
        && chunk > tokens
    {
        findings.add(finding(
            "CFG005",
            "--prefill-chunk",
            chunk,
            format!("a step holds {tokens} tokens (--max-batch-tokens)"),
            format!("--prefill-chunk {tokens}"),
        ));
    }
}

fn model(settings: &Settings, spec: &ModelSpec, findings: &mut Findings) {
    if let Some(context) = settings.load.max_context
        && context > spec.max_context
    {
        findings.add(finding(
            "MODEL001",
            "--max-context",
            context,
            format!("the model was made for {} positions", spec.max_context),
            format!("--max-context {}", spec.max_context),
        ));
    }
}

fn name(settings: &Settings, spec: &ModelSpec, findings: &mut Findings) {
    let name = settings.served_model_name.as_ref().unwrap_or(&spec.name);
    let plain = name.chars().all(|c| !c.is_control() && !c.is_whitespace());
    if name.is_empty() || !plain || name.chars().count() > NAME_CHARS_MAX {
        findings.add(finding(
            "CFG006",
            "--served-model-name",
            format!("{name:?}"),
            format!("a name has 1 to {NAME_CHARS_MAX} characters and no blanks"),
            "--served-model-name model",
        ));
    }
}
