//! `sightline-server plan`: what `serve` would do with the same flags, without doing it.

use std::fmt::Write;

use clap::ValueEnum;
use serde_json::{Value, json};
use types::Bytes;

use crate::app;
use crate::cli::{ByteSize, Format, PlanArgs, Span};
use crate::config::{Findings, Resolved, ports};
use crate::exit::Exit;
use crate::out;

/// Prints every value, the pools and the memory ledger, or what is wrong.
#[must_use]
pub(crate) fn run(args: &PlanArgs) -> Exit {
    let (resolved, findings) = match app::check(&args.settings) {
        Ok(app::Checked { resolved, .. }) => {
            let findings = ports::check(resolved.api, resolved.probes);
            (Some(resolved), findings)
        }
        Err(findings) => (None, findings),
    };
    let report = match args.format {
        Format::Text => text(resolved.as_ref(), &findings),
        Format::Json => json(resolved.as_ref(), &findings).to_string(),
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
    let pool: u64 = resolved.pools.iter().map(crate::config::PoolPlan::bytes).sum();
    let tokens = match load.max_queued_tokens {
        Some(0) => "no limit".to_owned(),
        Some(tokens) => tokens.to_string(),
        None => "objective x measured prefill rate".to_owned(),
    };
    let queued = match load.max_queued_requests {
        0 => "no limit".to_owned(),
        requests => requests.to_string(),
    };
    vec![
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
        ("page-tokens", machine.page_tokens.to_string()),
        ("kv-pool-bytes", ByteSize(pool).to_string()),
    ]
}

/// A choice as it is given on the command line.
fn spelled(choice: impl ValueEnum) -> String {
    choice.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

fn text(resolved: Option<&Resolved>, findings: &Findings) -> String {
    let mut page = String::new();
    if let Some(resolved) = resolved {
        tables(resolved, &mut page).expect("writing to a string cannot fail");
    }
    for finding in findings.iter() {
        page.push_str(&finding.to_string());
        page.push('\n');
    }
    let count = findings.iter().count();
    page.push_str(&match count {
        0 => "plan: valid".to_owned(),
        1 => "plan: 1 error".to_owned(),
        count => format!("plan: {count} errors"),
    });
    page
}

fn tables(resolved: &Resolved, page: &mut String) -> std::fmt::Result {
    for (flag, value) in values(resolved) {
        writeln!(page, "{flag:<22}{value}")?;
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
    writeln!(page, "{:<22}{usable:>14}\n", "usable on this host")
}

fn json(resolved: Option<&Resolved>, findings: &Findings) -> Value {
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
        })
    });
    let found: Vec<Value> = findings
        .iter()
        .map(|finding| {
            json!({
                "id": finding.id, "flag": finding.flag, "value": finding.value,
                "reason": finding.reason, "fix": finding.fix,
            })
        })
        .collect();
    json!({"valid": findings.is_empty(), "resolved": settled, "findings": found})
}
