//! `sightline-server plan`: what `serve` would do with the same flags, without doing it.

pub(crate) mod live;
mod offline;
mod remote;
mod sglang;
mod shape;
mod table;
pub(crate) mod tier;
mod ways;

use std::fmt::Write;
use std::path::PathBuf;

use clap::ValueEnum;
use serde_json::{Value, json};
use types::Bytes;

use self::ways::{Way, Words};
use crate::app;
use crate::cli::{ByteSize, Format, NumaChoice, PlanArgs, Ratio, Role, Span, Switch};
use crate::config::{self, Finding, Findings, Resolved, RolePlan, StorePlan, ports};
use program::exit::Exit;
use program::out;

/// Prints every value, the pools and the memory ledger, or what is wrong.
#[must_use]
pub(crate) fn run(args: &PlanArgs) -> Exit {
    if let Some(url) = &args.live {
        return remote::run(url, args.format);
    }
    if let Some(engine) = &args.engine.engine {
        return sglang::run(args, engine);
    }
    let checked = if offline::wanted(args) {
        offline::check(args).map(|resolved| (resolved, Findings::default()))
    } else {
        app::check(&args.settings).map(|app::Checked { resolved, .. }| {
            let ports = ports::check(&resolved);
            (resolved, ports)
        })
    };
    let (resolved, findings) = match checked {
        Ok((resolved, others)) => {
            let mut findings = resolved.advice.clone();
            findings.append(others);
            (Some(resolved), findings)
        }
        Err(findings) => (None, findings),
    };
    let elsewhere = args.assume.assume_device_tokens.is_some();
    let ways = side_by_side(elsewhere, resolved.as_ref(), &findings);
    let report = match args.format {
        Format::Text => text(resolved.as_ref(), &findings, &ways),
        Format::Json => json(resolved.as_ref(), &findings, &ways).to_string(),
    };
    match out::line(&report) {
        Ok(()) => findings.exit(),
        Err(error) => Exit::of_io(&error),
    }
}

/// Every value by its flag, in the words of the command line.
fn values(resolved: &Resolved) -> Vec<(&'static str, String)> {
    let settings = &resolved.settings;
    let (load, machine, order) = (&settings.load, &settings.machine, &settings.order);
    let named = |value: Option<clap::builder::PossibleValue>| {
        value.map(|value| value.get_name().to_owned()).unwrap_or_default()
    };
    let limit = |span: Span| match span.0.is_zero() {
        true => "no limit".to_owned(),
        false => span.to_string(),
    };
    let pool: u64 = resolved.pools.iter().map(config::PoolPlan::bytes).sum();
    let tokens = match load.max_queued_tokens {
        Some(0) => "no limit".to_owned(),
        Some(tokens) => tokens.to_string(),
        None => "objective x measured prefill rate".to_owned(),
    };
    let queued = match load.max_queued_requests {
        0 => "no limit".to_owned(),
        requests => requests.to_string(),
    };
    let mut values = vec![
        ("model", settings.model.clone()),
        ("served-model-name", resolved.model_name.clone()),
        ("host", settings.host.to_string()),
        ("port", resolved.api.port().to_string()),
        ("probe-port", resolved.probes.port().to_string()),
        ("max-body-bytes", settings.max_body_bytes.to_string()),
        ("body-timeout", settings.body_timeout.to_string()),
        ("max-connections", resolved.connections.to_string()),
        ("write-timeout", settings.write_timeout.to_string()),
        ("max-unsent-tokens", settings.max_unsent_tokens.to_string()),
        ("drain-deadline", settings.drain_deadline.to_string()),
        ("max-running-requests", load.max_running_requests.to_string()),
        ("max-queued-requests", queued),
        ("max-queued-tokens", tokens),
        ("priority-order", named(order.priority_order.to_possible_value())),
        ("preemption-threshold", order.preemption_threshold.to_string()),
        ("fair-share", named(order.fair_share.to_possible_value())),
        ("tenant-header", order.tenant_header.to_string()),
        ("queue-timeout", limit(order.queue_timeout)),
        ("request-timeout", limit(order.request_timeout)),
        ("ttft-objective", Span(load.ttft_objective.0).to_string()),
        ("itl-objective", load.itl_objective.to_string()),
        ("e2e-objective", load.e2e_objective.to_string()),
        ("max-batch-tokens", load.max_batch_tokens.to_string()),
        ("prefill-chunk", resolved.prefill_chunk.to_string()),
        ("prefix-cache", spelled(load.prefix_cache)),
        ("prefix-cache-scope", spelled(load.prefix_cache_scope)),
        ("max-context", resolved.max_context.to_string()),
        ("threads", resolved.threads.to_string()),
        ("http-threads", machine.http_threads.to_string()),
        ("max-tokenize-requests", machine.max_tokenize_requests.to_string()),
        ("tokenizer-threads", machine.tokenizer_threads.to_string()),
        ("page-tokens", resolved.page_tokens.to_string()),
        ("tp-size", resolved.tp_size.to_string()),
        ("kv-pool-bytes", ByteSize(pool.saturating_mul(resolved.tp_size as u64)).to_string()),
    ];
    values.extend(cache_values(resolved));
    values.extend(role_values(&resolved.roles));
    values
}

/// Those about prefill and decode apart.
fn role_values(roles: &RolePlan) -> Vec<(&'static str, String)> {
    let named = |secret: bool| if secret { "from the file" } else { "none" }.to_owned();
    let joined = |names: Vec<String>| {
        if names.is_empty() { "none".to_owned() } else { names.join(",") }
    };
    let mut values = vec![
        ("role", roles.role.as_str().to_owned()),
        ("admin-token-file", named(roles.admin_token.is_some())),
    ];
    if roles.role == Role::Unified {
        return values;
    }
    let own = roles.advertise.as_ref().map(ToString::to_string);
    values.push(("advertise", own.unwrap_or_else(|| "the address of the API".to_owned())));
    values.push(("pd-secret-file", named(roles.secret.is_some())));
    let file = |path: &Option<PathBuf>| {
        path.as_ref().map_or("none".to_owned(), |path| path.display().to_string())
    };
    values.extend([
        ("pd-tls-cert", file(&roles.tls.cert)),
        ("pd-tls-key", file(&roles.tls.key)),
        ("pd-tls-ca", file(&roles.tls.ca)),
    ]);
    match roles.role {
        Role::Unified => {}
        Role::Prefill => values.extend([
            ("transfer-host", roles.transfer.ip().to_string()),
            ("transfer-port", roles.transfer.port().to_string()),
            ("decode-peer", joined(roles.decode_peers.iter().map(ToString::to_string).collect())),
            ("pd-bootstrap-timeout", Span(roles.bootstrap_timeout).to_string()),
        ]),
        Role::Decode => values.extend([
            ("prefill-peer", joined(roles.prefill_peers.iter().map(ToString::to_string).collect())),
            ("pd-local-tokens", roles.local_tokens.to_string()),
            ("pd-waiting-timeout", Span(roles.waiting_timeout).to_string()),
        ]),
    }
    values
}

/// Those about what is kept for later requests.
fn cache_values(resolved: &Resolved) -> Vec<(&'static str, String)> {
    let cache = &resolved.settings.cache;
    let mut values = vec![
        ("swa-retention", resolved.retention.to_string()),
        ("hit-curve", spelled(if resolved.curve.is_some() { Switch::On } else { Switch::Off })),
    ];
    if let Some(curve) = resolved.curve {
        values.push(("hit-curve-max-pages", curve.max_pages.to_string()));
    }
    values.push(("enable-hierarchical-cache", spelled(cache.enable_hierarchical_cache)));
    let Some(tier) = &resolved.hierarchy else { return values };
    let lock = if tier.lock { Switch::On } else { Switch::Off };
    values.extend([
        ("hicache-ratio", Ratio(tier.plan.ratio).to_string()),
        ("hicache-write-policy", spelled(tier.policy)),
        ("hicache-mem-layout", spelled(tier.layout)),
        ("hicache-load-back-threshold", tier.load_back_threshold.to_string()),
        ("hicache-numa", cache.hicache_numa.unwrap_or(NumaChoice::Auto).to_string()),
        ("hicache-huge-pages", spelled(tier.huge_pages)),
        ("hicache-lock-memory", spelled(lock)),
    ]);
    if let Some(requested) = tier.requested {
        values.push(("hicache-budget", ByteSize(requested.0).to_string()));
    }
    if let Some(target) = tier.target {
        values.push(("hicache-target", ByteSize(target.0).to_string()));
    }
    if let Some(store) = &resolved.store {
        values.extend(store_values(store));
    }
    values
}

/// Those about the store behind the host tier.
fn store_values(store: &StorePlan) -> Vec<(&'static str, String)> {
    let mut values = vec![
        ("kv-store", store.url.to_string()),
        ("kv-store-size", ByteSize(store.max_bytes.0).to_string()),
        ("kv-store-prefetch", store.policy.as_str().to_owned()),
    ];
    if let Some(longest) = config::store::longest_wait(&store.policy) {
        values.push(("kv-store-prefetch-timeout", Span(longest).to_string()));
    }
    values
}

/// A choice as it is given on the command line.
fn spelled(choice: impl ValueEnum) -> String {
    choice.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

/// Ways to a larger cache where a host tier is asked for, whether there is room for that or not.
/// `elsewhere`: whether the device has memory of its own.
fn side_by_side(elsewhere: bool, resolved: Option<&Resolved>, findings: &Findings) -> Vec<Way> {
    let planned = resolved
        .and_then(|resolved| Some((resolved.tier.as_ref()?, &resolved.hierarchy.as_ref()?.plan)));
    let Some((input, plan)) = planned.or_else(|| findings.planned()) else { return Vec::new() };
    let words = Words {
        pool: if elsewhere { "--assume-device-tokens" } else { "--kv-pool-bytes" },
        nodes: "--hicache-numa auto",
        shared: !elsewhere,
        device_bytes: &ways::pool_bytes,
    };
    ways::ways(input, plan, &words)
}

fn text(resolved: Option<&Resolved>, findings: &Findings, ways: &[Way]) -> String {
    let mut page = String::new();
    if let Some(resolved) = resolved {
        tables(resolved, &mut page).expect("writing to a string cannot fail");
    }
    if let Some(tier) = findings.tier() {
        page.push_str(&tier::text(tier));
        page.push('\n');
    }
    if !ways.is_empty() {
        page.push_str(&ways::text(ways));
        page.push('\n');
    }
    for finding in findings.iter() {
        page.push_str(&finding.to_string());
        page.push('\n');
    }
    page.push_str(&verdict(findings));
    page
}

fn verdict(findings: &Findings) -> String {
    let count = |severity: &str| {
        let found = findings.iter().filter(|finding| finding.class.severity() == severity).count();
        match found {
            0 => None,
            1 => Some(format!("1 {severity}")),
            found => Some(format!("{found} {severity}s")),
        }
    };
    let (errors, warnings) = (count("error"), count("warning"));
    let first = errors.unwrap_or_else(|| "valid".to_owned());
    match warnings {
        Some(warnings) => format!("plan: {first}, {warnings}"),
        None => format!("plan: {first}"),
    }
}

fn tables(resolved: &Resolved, page: &mut String) -> std::fmt::Result {
    for (flag, value) in values(resolved) {
        writeln!(page, "{flag:<28}{value}")?;
    }
    writeln!(
        page,
        "\n{:<10}{:>8}{:>8}{:>8}{:>10}{:>14}{:>12}",
        "pool", "layers", "window", "pages", "tokens", "page bytes", "size"
    )?;
    for pool in &resolved.pools {
        let size = Bytes(pool.bytes()).to_string();
        writeln!(
            page,
            "{:<10}{:>8}{:>8}{:>8}{:>10}{:>14}{size:>12}",
            pool.name,
            pool.layers,
            pool.window.map_or("all".to_owned(), |window| window.to_string()),
            pool.pages,
            pool.tokens(),
            pool.page_bytes
        )?;
    }
    writeln!(page, "\n{:<22}{:>14}", "memory", "size")?;
    for row in &resolved.ledger.rows {
        writeln!(page, "{:<22}{:>14}", row.what, row.bytes.to_string())?;
    }
    writeln!(page, "{:<22}{:>14}", "total", resolved.ledger.total().to_string())?;
    let usable = resolved.ledger.usable.map_or("unknown".to_owned(), |usable| usable.to_string());
    writeln!(page, "{:<22}{usable:>14}\n", "usable on this host")?;
    if let Some(tier) = &resolved.hierarchy {
        writeln!(page, "{}", tier::text(&tier.plan))?;
    }
    Ok(())
}

fn json(resolved: Option<&Resolved>, findings: &Findings, ways: &[Way]) -> Value {
    let settled = resolved.map(|resolved| {
        let values: serde_json::Map<String, Value> = values(resolved)
            .into_iter()
            .map(|(flag, value)| (flag.to_owned(), Value::String(value)))
            .collect();
        let pools: Vec<Value> = resolved
            .pools
            .iter()
            .map(|pool| {
                json!({
                    "name": pool.name, "layers": pool.layers, "window": pool.window,
                    "pages": pool.pages,
                    "page_tokens": pool.page_tokens, "page_bytes": pool.page_bytes,
                    "tokens": pool.tokens(), "bytes": pool.bytes(),
                })
            })
            .collect();
        let rows = resolved.ledger.rows.iter();
        let rows: Vec<Value> =
            rows.map(|row| json!({"what": row.what, "bytes": row.bytes.0})).collect();
        json!({
            "values": values,
            "pools": pools,
            "memory": {
                "rows": rows,
                "total_bytes": resolved.ledger.total().0,
                "usable_bytes": resolved.ledger.usable.map(|usable| usable.0),
            },
            "host_tier": resolved.hierarchy.as_ref().map(|tier| tier::json(&tier.plan)),
        })
    });
    let found: Vec<Value> = findings.iter().map(finding_json).collect();
    json!({"valid": !findings.has_errors(), "resolved": settled, "findings": found,
        "refused_host_tier": findings.tier().map(tier::json), "ways": ways::json(ways)})
}

fn finding_json(finding: &Finding) -> Value {
    json!({
        "id": finding.id, "severity": finding.class.severity(),
        "flag": finding.flag, "value": finding.value,
        "reason": finding.reason, "fix": finding.fix,
    })
}
