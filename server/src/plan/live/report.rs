//! The answer as JSON.

use kv_cache::{Action, Advice, AdviceRow, AdviseInput, Reason};
use serde_json::{Value, json};

use super::history::Window;
use super::room::Process;
use super::{FORM, Silence};
use crate::lifecycle::Phase;

/// Who answers.
pub(super) struct Server<'a> {
    pub(super) model: &'a str,
    pub(super) phase: Phase,
}

pub(super) fn json(
    server: &Server<'_>,
    current: f64,
    process: &Process,
    window: Option<&Window>,
    advised: Option<(AdviseInput, Advice)>,
    silence: Option<Silence>,
) -> Value {
    let (input, advice) = advised.unzip();
    let rows = advice.iter().flat_map(|advice| &advice.rows);
    // A window of nothing has no ratios.
    let known = silence.is_none() && window.is_some_and(|window| window.counts.lookup_tokens > 0);
    let candidates: Vec<Value> = rows.map(|row| candidate(row, known)).collect();
    json!({
        "server": "sightline",
        "version": env!("CARGO_PKG_VERSION"),
        "form": FORM,
        "model": server.model,
        "state": server.phase.as_str(),
        "window": window.map(window_json),
        "tier": {
            "enabled": current > 0.0,
            "ratio": current,
            "bytes": process.held.iter().map(|share| share.bytes).sum::<u64>(),
            "unit_bytes": input.as_ref().map(|input| input.tier.unit_bytes()),
        },
        "room": input.as_ref().map(room),
        "candidates": candidates,
        "advice": advised_json(advice.as_ref(), silence),
    })
}

fn window_json(window: &Window) -> Value {
    let counts = &window.counts;
    json!({
        "seconds": window.seconds,
        "since_start": window.since_start,
        "requests": counts.requests,
        "dropped": counts.dropped,
        "prompt_tokens": counts.lookup_tokens,
        "queried_tokens": counts.queried_tokens,
        "found_tokens": counts.found_tokens,
        "hit_ratio": counts.hit_ratio(),
    })
}

/// What the tier may have in all, what it has included.
fn room(input: &AdviseInput) -> Value {
    let room = &input.tier.room;
    let nodes = input.tier.nodes(1.0).into_iter().filter(|share| share.node.is_some());
    let nodes =
        nodes.map(|share| json!({"node": share.node, "ranks": share.ranks, "bytes": share.room}));
    json!({
        "nodes": nodes.collect::<Vec<_>>(),
        "host_bytes": room.host,
        "group_bytes": room.group,
        "locked_bytes": room.locked,
    })
}

fn candidate(row: &AdviceRow, known: bool) -> Value {
    let of = |share: f64| if known { json!(share) } else { Value::Null };
    let nodes = row.nodes.iter().map(|share| json!({"node": share.node, "bytes": share.bytes}));
    let shortages = row.shortages.iter().map(|short| {
        json!({
            "limit": short.limit.to_string(), "wanted_bytes": short.wanted,
            "room_bytes": short.room, "missing_bytes": short.missing(),
        })
    });
    json!({
        "ratio": row.ratio,
        "warm": row.warm,
        "hit_ratio": of(row.hit_ratio),
        "gain": of(row.gain),
        "window_loss": of(row.window_loss),
        "bytes": row.bytes,
        "nodes": nodes.collect::<Vec<_>>(),
        "fits": row.fits(),
        "shortages": shortages.collect::<Vec<_>>(),
        "text": row.text,
    })
}

fn advised_json(advice: Option<&Advice>, silence: Option<Silence>) -> Value {
    if let Some(silence) = silence {
        return json!({
            "action": "keep", "ratio": null, "reason": silence.id(), "text": silence.text(),
        });
    }
    let Some(advice) = advice else { return Value::Null };
    let (action, ratio) = match advice.action {
        Action::Keep => ("keep", None),
        Action::Off => ("off", Some(0.0)),
        Action::Set(ratio) => ("set", Some(ratio)),
    };
    let reason = match advice.reason {
        Reason::NotWarm => "not_warm",
        Reason::Untrusted => "untrusted",
        Reason::Flat => "flat",
        Reason::WindowPoolBound => "window_pool_bound",
        Reason::Knee => "knee",
        Reason::MemoryBound { .. } => "memory_bound",
    };
    json!({"action": action, "ratio": ratio, "reason": reason, "text": advice.text})
}
