//! What size the host tier should have, from the hit-ratio curve and the memory that there is.
//!
//! A pure function over counts of a window of time. It is silent rather than wrong: it advises a
//! change only when that gains enough, or frees much memory for little. What a ratio costs is what
//! the planner says, so that advice, plan and allocation name the same bytes.

mod say;

#[cfg(test)]
mod tests;

use crate::plan::{Largest, Limit, NodeShare, PlanInput, Shortage};

/// The shortest window that says anything, in seconds.
const WINDOW_SECONDS: u64 = 3_600;
/// The fewest requests that say anything.
const WINDOW_REQUESTS: u64 = 1_000;
/// How far the prediction for the ratio in force may be from what was found.
const TRUST: f64 = 0.05;
/// The share of requests that the curve may have missed.
const MOST_DROPPED: f64 = 0.01;
/// The share of tokens that the window pool may lose before it is what should change.
const MOST_WINDOW_LOSS: f64 = 0.05;
/// A change must gain so much of all prompt tokens ...
const WORTH: f64 = 0.02;
/// ... or free this share of the tier's bytes ...
const FREES: f64 = 0.2;
/// ... for a loss of at most so much.
const LOSES: f64 = 0.005;

/// Counts of one ratio over the window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdviceRatio {
    /// Host to device; 0 is the device alone.
    pub ratio: f64,
    /// Prompt tokens that would have been found.
    pub hit_tokens: u64,
    /// Prompt tokens that only the window pool had lost.
    pub window_loss_tokens: u64,
    /// Whether the curve has seen enough for it.
    pub warm: bool,
}

/// What is known.
#[derive(Debug, Clone, PartialEq)]
pub struct AdviseInput {
    /// Length of the window.
    pub seconds: u64,
    /// Requests that the curve has seen in it.
    pub requests: u64,
    /// Requests that it has missed.
    pub dropped_requests: u64,
    /// Prompt tokens of the requests seen.
    pub lookup_tokens: u64,
    /// By ascending ratio, the first one 0, each once.
    pub ratios: Vec<AdviceRatio>,
    /// Pools, ranks, and the room that the tier may take in all, what it has now included. What it
    /// [wants](PlanInput::want) is not looked at.
    pub tier: PlanInput,
    /// The ratio in force; 0: no host tier.
    pub current: f64,
    /// The hit ratio that was found in the window, 0 to 1.
    pub actual: f64,
    /// Hit ratios closer than this are the same; 0.01 is usual.
    pub epsilon: f64,
}

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Action {
    /// Nothing.
    Keep,
    /// Run without a host tier.
    Off,
    /// Run with this ratio.
    Set(f64),
}

/// Why.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Reason {
    /// The window is too short, or no ratio has seen enough.
    NotWarm,
    /// The curve is not what happens: too many requests missed, or a prediction that was wrong.
    Untrusted,
    /// No size of the tier finds more than the device alone.
    Flat,
    /// The window pool loses what the other one has: retention or its share comes first.
    WindowPoolBound,
    /// More memory than this brings next to nothing.
    Knee,
    /// More memory would bring more, and is not there.
    MemoryBound {
        /// The next larger ratio that does not fit.
        next: f64,
        /// Bytes that are missing for it: over all nodes, or of another limit where that is more.
        missing: u64,
    },
}

/// One ratio, in numbers and in a sentence.
#[derive(Debug, Clone, PartialEq)]
pub struct AdviceRow {
    /// Host to device.
    pub ratio: f64,
    /// Tokens found of tokens asked for, 0 to 1.
    pub hit_ratio: f64,
    /// What that is more than with the ratio in force.
    pub gain: f64,
    /// Tokens of all asked for that only the window pool would have lost.
    pub window_loss: f64,
    /// Whether the curve has seen enough for it.
    pub warm: bool,
    /// Memory of all ranks.
    pub bytes: u64,
    /// The same by node.
    pub nodes: Vec<NodeShare>,
    /// Limits that it exceeds; empty where it fits.
    pub shortages: Vec<Shortage>,
    /// What it would bring and cost, compared with the ratio in force. Empty until [`advise`] says
    /// it.
    pub text: String,
}

impl AdviceRow {
    /// Whether every limit has room for it.
    #[must_use]
    pub fn fits(&self) -> bool {
        self.shortages.is_empty()
    }

    /// Whether one could run with it: a host tier that holds more than copies, warm, and room.
    #[must_use]
    pub fn feasible(&self) -> bool {
        self.ratio > 1.0 && self.warm && self.fits()
    }
}

/// The advice.
#[derive(Debug, Clone, PartialEq)]
pub struct Advice {
    /// What to do.
    pub action: Action,
    /// Why, or why nothing.
    pub reason: Reason,
    /// The same in a sentence.
    pub text: String,
    /// By ascending ratio: those of the input, and the largest that fits where it lies between.
    pub rows: Vec<AdviceRow>,
}

/// What size the host tier should have.
///
/// # Panics
/// When there is no ratio, or the tier has no pool or no rank.
#[must_use]
pub fn advise(input: &AdviseInput) -> Advice {
    assert!(!input.ratios.is_empty() && !input.tier.pools.is_empty(), "a curve of something");
    assert!(!input.tier.ranks.is_empty(), "somebody holds the tier");
    let mut rows: Vec<_> = input.ratios.iter().map(|point| row(input, point)).collect();
    if let Some(largest) = largest_between(input) {
        let at = rows.partition_point(|row| row.ratio < largest);
        rows.insert(at, row(input, &interpolated(input, largest)));
    }
    let (action, reason) = decide(input, &rows);
    let text = say::advice(input, &rows, action, reason);
    let now = row(input, &interpolated(input, input.current));
    for row in &mut rows {
        row.text = say::candidate(input, &now, row);
    }
    Advice { action, reason, text, rows }
}

fn decide(input: &AdviseInput, rows: &[AdviceRow]) -> (Action, Reason) {
    let short = input.seconds < WINDOW_SECONDS || input.requests < WINDOW_REQUESTS;
    let warm = |row: &&AdviceRow| row.warm && row.ratio > 1.0;
    if short || !rows.iter().any(|row| warm(&row)) {
        return (Action::Keep, Reason::NotWarm);
    }
    let current = row(input, &interpolated(input, input.current));
    let seen = (input.requests + input.dropped_requests) as f64;
    let dropped = input.dropped_requests as f64 > MOST_DROPPED * seen;
    if dropped || (current.hit_ratio - input.actual).abs() > TRUST {
        return (Action::Keep, Reason::Untrusted);
    }
    let most = |rows: &mut dyn Iterator<Item = &AdviceRow>| {
        rows.map(|row| row.hit_ratio).fold(f64::NEG_INFINITY, f64::max)
    };
    let device = rows[0].hit_ratio;
    let ceiling = most(&mut rows.iter().filter(warm));
    if ceiling - device < input.epsilon {
        return (worthwhile(input, &current, &rows[0]), Reason::Flat);
    }
    let best = most(&mut rows.iter().filter(|row| row.feasible()));
    let enough = |hits: f64| move |row: &&AdviceRow| row.hit_ratio >= hits - input.epsilon;
    let feasible = rows.iter().filter(|row| row.feasible());
    let bound = short_of(rows);
    // Without a feasible one, or with none that helps, memory is what is missing.
    let Some(knee) = feasible.clone().find(enough(best)).filter(|_| best - device >= input.epsilon)
    else {
        let reason = bound.unwrap_or(Reason::Flat);
        return (worthwhile(input, &current, &rows[0]), reason);
    };
    let most_hits = feasible.clone().find(|row| row.hit_ratio >= best).unwrap_or(knee);
    if most_hits.window_loss > MOST_WINDOW_LOSS {
        return (Action::Keep, Reason::WindowPoolBound);
    }
    let free = rows.iter().filter(warm).find(enough(ceiling));
    let beyond = free.is_some_and(|row| !row.fits());
    let reason = bound.filter(|_| beyond).unwrap_or(Reason::Knee);
    (worthwhile(input, &current, knee), reason)
}

/// The next larger warm ratio that does not fit, and what is missing for it.
fn short_of(rows: &[AdviceRow]) -> Option<Reason> {
    let next = rows.iter().find(|row| row.ratio > 1.0 && row.warm && !row.fits())?;
    let is_node = |short: &&Shortage| matches!(short.limit, Limit::Node(_));
    let (nodes, others): (Vec<&Shortage>, Vec<_>) = next.shortages.iter().partition(is_node);
    let nodes = nodes.into_iter().map(Shortage::missing).fold(0, u64::saturating_add);
    let others = others.into_iter().map(Shortage::missing).max().unwrap_or(0);
    Some(Reason::MemoryBound { next: next.ratio, missing: nodes.max(others) })
}

/// The change from `now` to `then`, if it is worth one.
fn worthwhile(input: &AdviseInput, now: &AdviceRow, then: &AdviceRow) -> Action {
    let gain = then.hit_ratio - now.hit_ratio;
    let frees = now.bytes > 0 && then.bytes as f64 <= (1.0 - FREES) * now.bytes as f64;
    // A tier that fits no longer has to shrink, whatever that costs.
    let must = input.current > 0.0 && !now.fits();
    if !must && gain < WORTH && !(frees && gain >= -LOSES) {
        return Action::Keep;
    }
    match then.ratio {
        ratio if ratio == input.current => Action::Keep,
        0.0 => Action::Off,
        ratio => Action::Set(ratio),
    }
}

fn row(input: &AdviseInput, point: &AdviceRatio) -> AdviceRow {
    let share = |tokens: u64| tokens as f64 / input.lookup_tokens.max(1) as f64;
    let current = interpolated(input, input.current);
    // Without a tier there is nothing, not even the copies of the device's pages.
    let is_none = point.ratio == 0.0;
    let (tier, ratio) = (&input.tier, point.ratio);
    let mut nodes = tier.nodes(ratio);
    if is_none {
        nodes.iter_mut().for_each(|node| node.bytes = 0);
    }
    AdviceRow {
        ratio,
        hit_ratio: share(point.hit_tokens),
        gain: share(point.hit_tokens) - share(current.hit_tokens),
        window_loss: share(point.window_loss_tokens),
        warm: point.warm,
        bytes: if is_none { 0 } else { tier.total_bytes(ratio) },
        nodes,
        shortages: if is_none { Vec::new() } else { tier.shortages(ratio) },
        text: String::new(),
    }
}

/// The largest ratio that fits, in tenths, where it is between two of the input and more than 1.
fn largest_between(input: &AdviseInput) -> Option<f64> {
    let Largest::Ratio(largest) = input.tier.largest() else { return None };
    // Of two decimals; the second is false precision.
    let ratio = (largest * 10.0 + 1e-9).floor() / 10.0;
    let last = input.ratios.last()?.ratio;
    let new = input.ratios.iter().all(|point| point.ratio != ratio);
    (ratio > 1.0 && ratio < last && new).then_some(ratio)
}

/// The counts at any ratio: linear in pages between the two ratios beside it, both of which must be
/// warm for it to be.
fn interpolated(input: &AdviseInput, ratio: f64) -> AdviceRatio {
    let points = &input.ratios;
    let at = points.partition_point(|point| point.ratio < ratio).min(points.len() - 1);
    let above = points[at];
    if at == 0 || above.ratio <= ratio {
        return AdviceRatio { ratio, ..above };
    }
    let below = points[at - 1];
    // A tier up to the device's size holds copies alone: there the curve is level.
    let pages = |ratio: f64| ratio.max(1.0);
    let span = pages(above.ratio) - pages(below.ratio);
    let share = if span > 0.0 { (pages(ratio) - pages(below.ratio)) / span } else { 0.0 };
    let between = |low: u64, high: u64| (low as f64 + share * (high as f64 - low as f64)) as u64;
    AdviceRatio {
        ratio,
        hit_tokens: between(below.hit_tokens, above.hit_tokens),
        window_loss_tokens: between(below.window_loss_tokens, above.window_loss_tokens),
        warm: below.warm && above.warm,
    }
}
