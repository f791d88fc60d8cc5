//! What is marked on a board beside alerts: starts, builds, settings, limits.

use crate::ir::{Annotation, Color};
use metric_catalog::{node, process, server};

/// How far back a build, or a value, counts as the one before.
const BEFORE: &str = "1h";

fn mark(name: &str, color: Color, expr: String, title: &str, text: &str) -> Annotation {
    Annotation {
        name: name.to_owned(),
        enabled: true,
        color,
        expr,
        title: title.to_owned(),
        text: text.to_owned(),
    }
}

/// Processes that started anew. The first start that is seen is none: nothing changed.
fn restarts(scope: &str) -> Annotation {
    let start = process::START_TIME.name();
    let expr = format!("changes({start}{{{scope}}}[1m]) > 0");
    mark("Restarts", Color::Orange, expr, "Restarted", "{{job}} {{instance}}")
}

/// Where a series with other labels has taken the place of one of the same process or host.
fn replaced(series: &str, scope: &str, place: &str) -> String {
    let now = format!("{series}{{{scope}}}");
    let before = format!("last_over_time({now}[{BEFORE}] offset 1m)");
    format!("({now} unless {before}) and on ({place}) {before}")
}

/// Where the limit of waiting requests has changed, or that of waiting tokens has jumped: without a
/// flag it follows the measured rate, and a jump is a rate that collapsed or recovered.
fn limits(scope: &str) -> String {
    let requests = format!("{}{{{scope}}}", server::ADMISSION_QUEUE_LIMIT_REQUESTS.name());
    let tokens = format!("{}{{{scope}}}", server::ADMISSION_QUEUE_LIMIT_TOKENS.name());
    format!(
        "changes({requests}[1m]) > 0 or \
         abs({tokens} - {tokens} offset 1m) > 0.5 * ({tokens} offset 1m)"
    )
}

/// Marks of serving processes.
pub(super) fn of_processes(scope: &str) -> Vec<Annotation> {
    let ready = format!("changes({}{{{scope}}}[1m]) > 0", server::READY_TIMESTAMP.name());
    let reload = server::CONFIG_LAST_RELOAD_SUCCESS_TIMESTAMP.name();
    let settings = format!("changes({reload}{{{scope}}}[1m]) > 0");
    let limits = limits(scope);
    let build = replaced(server::BUILD_INFO.name(), scope, "instance");
    let configuration = replaced(server::CONFIG_INFO.name(), scope, "instance");
    vec![
        restarts(scope),
        mark("Starts", Color::Blue, ready, "Ready", "{{instance}} became ready"),
        mark(
            "Builds",
            Color::Purple,
            build,
            "Another build",
            "{{instance}} {{version}} {{git_sha}}",
        ),
        mark(
            "Configuration",
            Color::Purple,
            configuration,
            "Started with another configuration",
            "{{instance}} KV {{kv_dtype}}, host cache {{hicache_mode}}",
        ),
        mark("Settings", Color::Yellow, settings, "Settings changed", "{{instance}}"),
        mark("Limits", Color::Yellow, limits, "Another admission limit", "{{instance}}"),
    ]
}

/// Marks of everything that is scraped.
pub(super) fn of_targets(scope: &str) -> Vec<Annotation> {
    vec![restarts(scope)]
}

/// Marks of hosts.
pub(super) fn of_hosts(scope: &str) -> Vec<Annotation> {
    let started = format!("changes({}{{{scope}}}[1m]) > 0", node::SERVICE_START.name());
    let build = replaced(node::BUILD_INFO.name(), scope, "node");
    vec![
        mark("Starts", Color::Blue, started, "Started", "{{service}} on {{node}} was started"),
        mark(
            "Builds",
            Color::Purple,
            build,
            "Another build of the exporter",
            "{{node}} {{version}} {{git_sha}}",
        ),
    ]
}
