//! Plausible values: by what a name says, spread over processes and label values by a hash.

use super::super::signals::Family;

/// A series.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    /// Of the process.
    pub(super) seed: u64,
    /// Its family.
    pub(super) family: &'a Family,
    /// Its labels.
    pub(super) labels: &'a [(String, String)],
}

/// Labels that tell copies of one value apart, where the scheduler has them.
const COPIES: &[&str] = &["tp_rank", "pp_rank", "moe_ep_rank"];

impl Place<'_> {
    /// A number from 0 to 1 that is the same for copies of one value.
    fn spread(&self) -> f64 {
        let copied = self.family.page == "scheduler";
        let labels = self.labels.iter().filter(|(name, _)| !(copied && COPIES.contains(&&**name)));
        let words = labels.flat_map(|(name, value)| [name.as_str(), value.as_str()]);
        let mut hash = 0xcbf2_9ce4_8422_2325 ^ self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for byte in std::iter::once(self.family.name.as_str()).chain(words).flat_map(str::bytes) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        // The low bits of this hash mix well enough for 16 of them.
        let low = u16::try_from((hash >> 24) & 0xffff).expect("16 bits");
        f64::from(low) / f64::from(u16::MAX)
    }

    fn has(&self, value: &str) -> bool {
        self.labels.iter().any(|(_, known)| known == value)
    }

    fn is_any(&self, words: &[&str]) -> bool {
        words.iter().any(|word| self.family.name.contains(word))
    }
}

/// Growth of a counter, or of the count of a histogram, by the second.
pub(super) fn rate(place: &Place<'_>) -> f64 {
    let near = |value: f64| value * (0.75 + 0.5 * place.spread());
    let rare = ["503", "400", "4xx", "5xx", "abort", "error", "repetition"];
    let seldom = if rare.iter().any(|value| place.has(value)) { 0.02 } else { 1.0 };
    if place.family.kind == super::Kind::Histogram {
        return near(4.0);
    }
    let failures =
        ["failed", "aborted", "retracted_req", "retries", "reject", "preempt", "expired", "skip"];
    seldom
        * if place.is_any(&failures) {
            near(0.05)
        } else if place.is_any(&["bytes"]) {
            near(5e7)
        } else if place.is_any(&["seconds", "_time_total"]) {
            near(0.1)
        } else if place.is_any(&["hits"]) {
            near(400.0)
        } else if place.is_any(&["token"]) {
            near(1000.0)
        } else {
            near(3.0)
        }
}

/// The value of a counter: whole, but for times.
pub(super) fn whole(name: &str, value: f64) -> f64 {
    let is_time = name.contains("seconds") || name.contains("_time_total");
    if is_time { value } else { value.floor() }
}

/// The value of a gauge, which swings around its mean once a minute.
pub(super) fn gauge(place: &Place<'_>, seconds: f64) -> f64 {
    let phase = place.spread() * std::f64::consts::TAU;
    let wave = 1.0 + 0.3 * (seconds / 60.0 * std::f64::consts::TAU + phase).sin();
    let stem = place.family.name.trim_start_matches(|c| c != ':' && c != '_');
    match stem.trim_start_matches([':', '_']) {
        "total_prefill_uncached_tokens" => (3300.0 * seconds).floor(),
        "total_prefill_busy_us" => (600_000.0 * seconds).floor(),
        "timestamp" => 1.7e9 + seconds,
        "max_total_num_tokens" => 1e6,
        "kv_used_tokens" | "num_used_tokens" => (500_000.0 * wave).floor(),
        "kv_available_tokens" => 1e6 - (500_000.0 * wave).floor() - 200_000.0,
        "kv_evictable_tokens" => 200_000.0,
        "hicache_host_total_tokens" => 4e6,
        "hicache_host_used_tokens" => (2_500_000.0 * wave).floor(),
        "num_waiting_uncached_tokens" => (20_000.0 * wave).floor(),
        "engine_sleep_state" => f64::from(u8::from(place.has("awake"))),
        stem if stem.ends_with("info") => 1.0,
        _ if place.is_any(&["usage", "_rate", "utilization", "ratio", "perc", "occupancy"]) => {
            0.5 * wave
        }
        _ if place.is_any(&["req", "queue", "active", "jobs"]) => (8.0 * wave).round(),
        _ if place.is_any(&["token"]) => (100_000.0 * wave).floor(),
        _ => 20.0 * wave,
    }
}

/// The share of observations up to each edge, and the mean that goes with it.
pub(super) fn distribution(place: &Place<'_>, edges: &[f64]) -> (Vec<f64>, f64) {
    let count = f64::from(u32::try_from(edges.len()).unwrap_or(u32::MAX));
    let centre = count * (0.3 + 0.2 * place.spread());
    let width = (count / 12.0).max(0.5);
    let mut shares = Vec::with_capacity(edges.len());
    let (mut mean, mut below, mut before) = (0.0, 0.0, 0.0);
    for (at, edge) in (0_u32..).zip(edges) {
        let share = 1.0 / (1.0 + (-(f64::from(at) - centre) / width).exp());
        mean += (share - below) * (before + edge) / 2.0;
        (below, before) = (share, *edge);
        shares.push(share);
    }
    (shares, mean + (1.0 - below) * before)
}
