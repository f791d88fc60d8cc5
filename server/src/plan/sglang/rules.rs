//! What a version of SGLang makes of its flags: defaults, sizes, and the check before each pool.

use kv_cache::{PlanPool, Sizing};

/// Kept free by the engine's own check, of each pool and rank.
const RESERVE: u64 = 10 << 30;

/// The rules of a version.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Rules {
    /// The version whose rules they are.
    pub(super) version: [u32; 3],
    /// Layout where no flag says.
    pub(super) layout: &'static str,
    /// Whether a window pool of DeepSeek-V4 is at least a page larger than the device's.
    window_floor: bool,
    /// Whether a tier that is not larger than the device stops the start.
    pub(super) asserts_larger: bool,
    /// Whether the default ratio shrinks to what fits.
    pub(super) shrinks: bool,
    /// Whether a size is given to the pool of everything and to the window's pool in full.
    pub(super) books_twice: bool,
}

/// What is known, oldest first.
pub(super) const KNOWN: [Rules; 2] = [
    Rules {
        version: [0, 5, 13],
        layout: "layer_first",
        window_floor: true,
        asserts_larger: true,
        shrinks: false,
        books_twice: true,
    },
    Rules {
        version: [0, 5, 23],
        layout: "page_first",
        window_floor: false,
        asserts_larger: false,
        shrinks: true,
        books_twice: false,
    },
];

/// Why there are no rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NoRules {
    /// It is no version.
    Malformed,
    /// It is older than the oldest that is known.
    TooOld,
}

/// `0.5.13` and the like, with whatever follows the numbers.
pub(super) fn version(text: &str) -> Option<[u32; 3]> {
    let mut parts = text.trim_start_matches('v').splitn(3, '.');
    let mut next = || {
        let part = parts.next()?;
        let end = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
        part[..end].parse().ok()
    };
    Some([next()?, next()?, next()?])
}

impl Rules {
    /// Those of `text`, else those of the nearest known version, and whether they are exactly its.
    pub(super) fn of(text: &str) -> Result<(Self, bool), NoRules> {
        let wanted = version(text).ok_or(NoRules::Malformed)?;
        let [oldest, newest] = KNOWN;
        if wanted < oldest.version {
            return Err(NoRules::TooOld);
        }
        let near = |rules: &Rules| {
            let [major, minor, patch] = rules.version;
            (wanted[..2] == [major, minor]).then(|| wanted[2].abs_diff(patch))
        };
        let rules = match (near(&oldest), near(&newest)) {
            (Some(old), Some(new)) if old < new => oldest,
            _ => newest,
        };
        Ok((rules, rules.version == wanted))
    }

    /// How a pool's host pages follow from the device's. `compressed`: of DeepSeek-V4.
    pub(super) fn sizing(&self, compressed: bool, window: bool) -> Sizing {
        match (compressed, window && !self.window_floor) {
            (true, false) => Sizing { least_above: Some(1), more: 0 },
            (true, true) => Sizing { least_above: None, more: 0 },
            (false, _) => Sizing { least_above: None, more: 1 },
        }
    }

    /// Pools that the engine's own check refuses, each measured against the whole machine, with
    /// what it asks for and what it thinks it has.
    pub(super) fn refused(
        pools: &[PlanPool],
        ratio: f64,
        available: u64,
    ) -> Vec<(&'static str, u64, u64)> {
        let free = available.saturating_sub(RESERVE);
        let bytes = pools.iter().flat_map(|pool| {
            let pages = pool.sizing.pages(pool.device_pages, ratio) as u64;
            let parts = pool.parts.iter().filter(|part| part.host);
            parts.map(move |part| (part.name, part.page_bytes.saturating_mul(pages)))
        });
        bytes.filter(|(_, bytes)| *bytes > free).map(|(name, bytes)| (name, bytes, free)).collect()
    }

    /// The default ratio, less where the device's bytes, times the ratio, exceed a share of the
    /// memory. `device` and `available` are bytes of one rank and of the machine.
    pub(super) fn default_ratio(
        &self,
        device: u64,
        ranks: usize,
        available: u64,
        share: f64,
    ) -> f64 {
        /// Left free of what was granted, for rounding.
        const MARGIN: f64 = 0.95;
        const RATIO: f64 = 2.0;
        let granted = available as f64 / ranks.max(1) as f64 * share * MARGIN;
        if self.shrinks && device > 0 { RATIO.min(granted / device as f64) } else { RATIO }
    }
}

/// Bytes of the device that a token of history costs on DeepSeek-V4 in FP8, by the engine's own
/// formula: `windows` is the share of tokens that the window's pool has, and layers are those with
/// any attention, with a compressor of 4, and with one of 128. With `drafts` a layer for drafts
/// rides along and rings are twice as long.
pub(super) fn device_bytes_per_token(windows: f64, layers: [u64; 3], drafts: bool) -> f64 {
    /// The window that the formula divides by.
    const WINDOW: f64 = 128.0;
    let [all, four, long] = layers.map(|layers| layers as f64);
    let rings = if drafts { 2.0 } else { 1.0 };
    let (latent, key) = (584.0, 132.0);
    let history = latent * four / 4.0 + latent * long / 128.0 + key * four / 4.0;
    let states = rings * (8.0 / WINDOW * (8192.0 + 2048.0) * four + 128.0 / WINDOW * 4096.0 * long);
    let bytes = windows * (latent * all + states) + history;
    if drafts { bytes * (all + 1.0) / all } else { bytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_known_version_decides() {
        let of = |text: &str| Rules::of(text).map(|(rules, exact)| (rules.version[2], exact));
        assert_eq!(of("0.5.13"), Ok((13, true)));
        assert_eq!(of("v0.5.23.post1"), Ok((23, true)));
        assert_eq!(of("0.5.15"), Ok((13, false)));
        assert_eq!(of("0.5.20"), Ok((23, false)));
        assert_eq!(of("0.6.0"), Ok((23, false)));
        assert_eq!(of("0.5.12"), Err(NoRules::TooOld));
        assert_eq!(of("0.5"), Err(NoRules::Malformed));
        assert_eq!(of("main"), Err(NoRules::Malformed));
    }

    #[test]
    fn a_token_of_history_costs_what_the_engine_logs() {
        let flash = [43, 21, 20];
        let bytes = |windows, drafts| device_bytes_per_token(windows, flash, drafts).round() as u64;
        let of = |windows| bytes(windows, false);
        assert_eq!([of(0.1), of(0.4), of(0.8), of(1.0)], [15_897, 52_039, 100_228, 124_322]);
        assert_eq!(bytes(0.1, true), 26_025);
        // Of the first, the state of the long compressor alone is half.
        assert_eq!((0.1_f64 * 4096.0 * 20.0).round(), 8192.0);
    }

    #[test]
    fn a_default_shrinks_where_the_version_does_that() {
        let [old, new] = KNOWN;
        let of = |rules: &Rules| rules.default_ratio(100 << 30, 4, 400 << 30, 0.8);
        assert!((of(&old) - 2.0).abs() < 1e-12);
        assert!((of(&new) - 0.76).abs() < 1e-12);
        assert!((new.default_ratio(1 << 30, 1, 400 << 30, 0.8) - 2.0).abs() < 1e-12);
    }

    #[test]
    fn the_own_check_looks_at_one_pool_at_a_time() {
        let part = |name, page_bytes| kv_cache::PlanPart { name, page_bytes, host: true };
        let pool = |parts| PlanPool {
            name: "kv",
            page_tokens: 256,
            device_pages: 1000,
            sizing: KNOWN[0].sizing(true, false),
            parts,
        };
        let pools = [pool(vec![part("a", 40_000_000), part("b", 10_000_000)])];
        // 80 GB and 20 GB: together more than there is, by themselves not.
        assert_eq!(Rules::refused(&pools, 2.0, 95_000_000_000), []);
        assert_eq!(
            Rules::refused(&pools, 2.0, 90_000_000_000),
            [("a", 80_000_000_000, 90_000_000_000 - RESERVE)]
        );
    }
}
