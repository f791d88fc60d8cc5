//! Advice in sentences.

use super::{Action, AdviceRow, AdviseInput, Reason, WINDOW_REQUESTS, WINDOW_SECONDS};
use crate::plan::Shortage;

/// The whole advice.
pub(super) fn advice(
    input: &AdviseInput,
    rows: &[AdviceRow],
    action: Action,
    reason: Reason,
) -> String {
    let why = match reason {
        Reason::NotWarm => return not_warm(input),
        Reason::Untrusted => {
            return "the curve does not match what was found, or missed requests; no advice".into();
        }
        Reason::WindowPoolBound => {
            return "the window pool loses what the full pool has: change its retention or its \
                    share before the ratio"
                .into();
        }
        Reason::Flat => "no size of the host tier finds more than the device alone".into(),
        Reason::Knee => "more memory would bring next to nothing".into(),
        Reason::MemoryBound { next, missing } => {
            format!("ratio {next} does not fit, {} are missing", size(missing))
        }
    };
    let target = match action {
        Action::Keep => return format!("keep {}; {why}", name(input.current)),
        Action::Off => 0.0,
        Action::Set(ratio) => ratio,
    };
    let row = rows.iter().find(|row| row.ratio == target).expect("advice names a row");
    format!("{} would give {} % hits for {}; {why}", name(target), gain(row), cost(input, row))
}

/// One candidate, compared with `now`, the ratio in force.
pub(super) fn candidate(input: &AdviseInput, now: &AdviceRow, row: &AdviceRow) -> String {
    let known = input.lookup_tokens > 0;
    let name = name(row.ratio);
    if row.ratio == input.current {
        return match known {
            true => format!("{name} is in force: {} % hits expected", percent(row.hit_ratio)),
            false => format!("{name} is in force"),
        };
    }
    let gains = known && row.warm && now.warm;
    if !row.fits() {
        let lacks: Vec<String> = row.shortages.iter().map(lack).collect();
        let lacks = lacks.join(", ");
        return match gains && row.ratio > 1.0 {
            true => format!("{name} does not fit ({lacks}); it would give {} % hits", gain(row)),
            false => format!("{name} does not fit ({lacks})"),
        };
    }
    if row.ratio > 0.0 && row.ratio <= 1.0 {
        return format!("{name} would hold copies of the device's pages and nothing else");
    }
    let cost = cost(input, row);
    match gains {
        true => format!("{name} would give {} % hits for {cost}", gain(row)),
        false => {
            format!("{name} would take {cost}; too few requests were seen to say what it finds")
        }
    }
}

fn name(ratio: f64) -> String {
    if ratio == 0.0 { "no host tier".to_owned() } else { format!("ratio {}", decimals(ratio, 4)) }
}

fn lack(short: &Shortage) -> String {
    format!("{} lacks {}", short.limit.short_name(), size(short.missing()))
}

/// Memory that changes, by node.
fn cost(input: &AdviseInput, row: &AdviceRow) -> String {
    let now = input.tier.nodes(input.current);
    let parts = row.nodes.iter().zip(&now).map(|(then, now)| {
        let now = if input.current == 0.0 { 0 } else { now.bytes };
        let word = if then.bytes >= now { "more" } else { "less" };
        let place = then.node.map_or_else(|| "the host".to_owned(), |node| format!("node {node}"));
        format!("{} {word} on {place}", size(then.bytes.abs_diff(now)))
    });
    parts.collect::<Vec<_>>().join(" and ")
}

/// Points of all prompt tokens, with a sign.
fn gain(row: &AdviceRow) -> String {
    let (gain, text) = (row.gain * 100.0, percent(row.gain.abs()));
    match text.as_str() {
        "0" => "+0".to_owned(),
        _ if gain < 0.0 => format!("-{text}"),
        _ => format!("+{text}"),
    }
}

/// A share in per cent: whole, and below 1 with a decimal.
fn percent(share: f64) -> String {
    let percent = share * 100.0;
    decimals(percent, if percent < 0.95 { 1 } else { 0 })
}

/// At most so many decimals, without trailing zeros.
fn decimals(number: f64, most: usize) -> String {
    let text = format!("{number:.most$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// Decimal bytes, of which two digits count.
fn size(bytes: u64) -> String {
    let (unit, factor) = match bytes {
        0..1_000 => return format!("{bytes} B"),
        1_000..1_000_000 => ("kB", 1e3),
        1_000_000..1_000_000_000 => ("MB", 1e6),
        1_000_000_000.. => ("GB", 1e9),
    };
    let number = bytes as f64 / factor;
    format!("{} {unit}", decimals(number, if number < 9.95 { 1 } else { 0 }))
}

fn not_warm(input: &AdviseInput) -> String {
    let AdviseInput { seconds, requests, .. } = input;
    let takes = format!(
        "advice takes {WINDOW_SECONDS} s, {WINDOW_REQUESTS} requests and a curve that is warm"
    );
    match requests {
        0 => format!("no traffic: no request was seen in {seconds} s; {takes}"),
        _ => format!("too little traffic: {requests} requests were seen in {seconds} s; {takes}"),
    }
}
