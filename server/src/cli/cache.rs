//! Flags about what is kept for later requests: the host tier, windows, the hit-ratio curve.

use std::fmt;
use std::str::FromStr;

use clap::{Args, ValueEnum};

use super::order::Switch;
use program::units::ByteSize;

/// How much larger than a pool of the device its part of the host tier is.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Ratio(pub f64);

impl FromStr for Ratio {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        /// Beyond, a float counts no decimals, and no line holds its digits.
        const MOST: f64 = 1e15;
        match text.parse::<f64>() {
            Ok(ratio) if ratio > 0.0 && ratio <= MOST => Ok(Self(ratio)),
            Ok(_) => Err("a ratio is above 0 and at most 1e15, for example 2.0".to_owned()),
            Err(_) => Err(format!("{text:?} is no number; a ratio is one, for example 2.0")),
        }
    }
}

impl fmt::Display for Ratio {
    /// At most four decimals, without trailing zeros.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{:.4}", self.0);
        f.write_str(text.trim_end_matches('0').trim_end_matches('.'))
    }
}

/// Decimal gigabytes without a unit, as engines before this one took them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GigaBytes(pub u64);

impl FromStr for GigaBytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        /// Bytes of one.
        const GB: f64 = 1e9;
        /// Above 2^53 a float no longer counts single bytes.
        const MOST: f64 = 9_007_199.0;
        match text.parse::<f64>() {
            Ok(number) if (0.0..MOST).contains(&number) => Ok(Self((number * GB) as u64)),
            Ok(_) => Err("a size is 0 or more decimal gigabytes, below 9007199".to_owned()),
            Err(_) => Err(format!(
                "{text:?} is no bare number: this flag takes decimal gigabytes of each rank, for \
                 example 40; --hicache-budget takes bytes with a unit for the whole process"
            )),
        }
    }
}

impl fmt::Display for GigaBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0 as f64 / 1e9)
    }
}

/// When a page of the device is copied to the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum WritePolicy {
    /// As soon as it is computed.
    #[value(name = "write_through")]
    WriteThrough,
    /// When a second request has used it.
    #[value(name = "write_through_selective")]
    WriteThroughSelective,
    /// When the device needs its room.
    #[value(name = "write_back")]
    WriteBack,
}

/// How the rows of a page lie in host memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum MemLayout {
    /// All pages of a layer together.
    #[value(name = "layer_first")]
    LayerFirst,
    /// All layers of a page together.
    #[value(name = "page_first")]
    PageFirst,
    /// The same, in blocks that are copied without gathering.
    #[value(name = "page_first_direct")]
    PageFirstDirect,
}

/// Which NUMA nodes hold the host tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NumaChoice {
    /// The nodes this process may use, its ranks spread over them.
    Auto,
    /// This one.
    Node(u32),
    /// Wherever the system puts it.
    Off,
}

impl FromStr for NumaChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "off" => Ok(Self::Off),
            _ => text.parse().map(Self::Node).map_err(|_| {
                format!("{text:?} is neither auto, off nor the number of a node, for example 0")
            }),
        }
    }
}

impl fmt::Display for NumaChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Node(node) => write!(f, "{node}"),
            Self::Off => f.write_str("off"),
        }
    }
}

/// Size of the pages in which the system maps the host tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum HugePageSize {
    /// The usual ones.
    #[value(name = "off")]
    Off,
    /// 2 MiB.
    #[value(name = "2MiB", alias = "2MB")]
    TwoMiB,
    /// 1 GiB.
    #[value(name = "1GiB", alias = "1GB")]
    OneGiB,
}

/// Of which computed pages the part of a sliding window is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SwaRetention {
    /// Of all.
    All,
    /// Of the last page of a prompt or answer.
    Tail,
    /// Of the last one, and of one every so many tokens.
    TailEvery(usize),
    /// Of the last one, and of the one where an earlier prompt was left.
    TailBranch,
}

impl SwaRetention {
    /// Where none is given.
    pub const DEFAULT: Self = Self::TailBranch;
}

/// The prefix of a retention with a distance.
const EVERY: &str = "tail_every_";
/// No context is longer.
const TOKENS_MAX: usize = 1 << 30;

impl FromStr for SwaRetention {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "all" => Ok(Self::All),
            "tail" => Ok(Self::Tail),
            "tail_branch" => Ok(Self::TailBranch),
            _ => match text.strip_prefix(EVERY).map(str::parse) {
                Some(Ok(tokens)) if (1..=TOKENS_MAX).contains(&tokens) => {
                    Ok(Self::TailEvery(tokens))
                }
                Some(_) => {
                    Err(format!("{EVERY} takes 1 to {TOKENS_MAX} tokens, for example {EVERY}4096"))
                }
                None => Err(format!("use all, tail, tail_branch, or for example {EVERY}4096")),
            },
        }
    }
}

impl fmt::Display for SwaRetention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Tail => f.write_str("tail"),
            Self::TailEvery(tokens) => write!(f, "{EVERY}{tokens}"),
            Self::TailBranch => f.write_str("tail_branch"),
        }
    }
}

/// Flags about what is kept for later requests.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Host tier")]
pub struct CacheSettings {
    /// Whether KV that the device has no room for is kept in host memory.
    #[arg(
        long,
        value_enum,
        default_value_t = Switch::Off,
        default_missing_value = "on",
        num_args = 0..=1,
        require_equals = true,
        alias = "enable-hicache",
        env = "SIGHTLINE_ENABLE_HIERARCHICAL_CACHE"
    )]
    pub enable_hierarchical_cache: Switch,
    /// Host pages of each pool as a multiple of its device pages; 2 where no size is given.
    #[arg(long, value_name = "RATIO", env = "SIGHTLINE_HICACHE_RATIO")]
    pub hicache_ratio: Option<Ratio>,
    /// Size of the tier in decimal gigabytes, without a unit, of each rank; 0 means not given.
    #[arg(long, value_name = "GB", env = "SIGHTLINE_HICACHE_SIZE")]
    pub hicache_size: Option<GigaBytes>,
    /// Size of the tier, all pools and ranks of this process together.
    #[arg(long, value_name = "BYTES", env = "SIGHTLINE_HICACHE_BUDGET")]
    pub hicache_budget: Option<ByteSize>,
    /// What the tier should have: reported beside what it has, and changes nothing.
    #[arg(long, value_name = "BYTES", env = "SIGHTLINE_HICACHE_TARGET")]
    pub hicache_target: Option<ByteSize>,
    /// When pages are copied to the host; by default write_through.
    #[arg(long, value_enum, value_name = "POLICY", env = "SIGHTLINE_HICACHE_WRITE_POLICY")]
    pub hicache_write_policy: Option<WritePolicy>,
    /// How the rows of a page lie in host memory; by default page_first.
    #[arg(long, value_enum, value_name = "LAYOUT", env = "SIGHTLINE_HICACHE_MEM_LAYOUT")]
    pub hicache_mem_layout: Option<MemLayout>,
    /// Fewer tokens than these are computed again instead of loaded from the host; by default 10.
    #[arg(long, value_name = "TOKENS", env = "SIGHTLINE_HICACHE_LOAD_BACK_THRESHOLD")]
    pub hicache_load_back_threshold: Option<usize>,
    /// NUMA node of the tier: `auto` (those this process may use, the default), a number, or `off`.
    #[arg(long, value_name = "NODE", env = "SIGHTLINE_HICACHE_NUMA")]
    pub hicache_numa: Option<NumaChoice>,
    /// Size of the pages in which the system maps the tier; by default off, the usual ones.
    #[arg(long, value_enum, value_name = "SIZE", env = "SIGHTLINE_HICACHE_HUGE_PAGES")]
    pub hicache_huge_pages: Option<HugePageSize>,
    /// Whether the tier is locked in memory; by default off.
    #[arg(
        long,
        value_enum,
        value_name = "on|off",
        default_missing_value = "on",
        num_args = 0..=1,
        require_equals = true,
        env = "SIGHTLINE_HICACHE_LOCK_MEMORY"
    )]
    pub hicache_lock_memory: Option<Switch>,

    /// Of which pages the part of a sliding window is kept: all, tail, tail_every_TOKENS,
    /// tail_branch.
    #[arg(
        long,
        default_value_t = SwaRetention::DEFAULT,
        value_name = "RULE",
        env = "SIGHTLINE_SWA_RETENTION"
    )]
    pub swa_retention: SwaRetention,
    /// Whether the hit ratio of other sizes of the host tier is estimated while serving.
    #[arg(long, value_enum, default_value_t = Switch::On, env = "SIGHTLINE_HIT_CURVE")]
    pub hit_curve: Switch,
    /// Pages that the estimate remembers; with more in use it samples. About 64 bytes each.
    #[arg(
        long,
        default_value_t = CacheSettings::CURVE_PAGES,
        value_name = "N",
        env = "SIGHTLINE_HIT_CURVE_MAX_PAGES"
    )]
    pub hit_curve_max_pages: usize,
}

impl CacheSettings {
    /// Pages that the estimate remembers where nothing else is said.
    pub const CURVE_PAGES: usize = 1_000_000;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_without_a_unit_are_decimal_gigabytes() {
        let bytes = |text: &str| text.parse::<GigaBytes>().map(|size| size.0);
        assert_eq!(bytes("150"), Ok(150_000_000_000));
        assert_eq!(bytes("37.5"), Ok(37_500_000_000));
        assert_eq!(bytes("0"), Ok(0));
        assert!(bytes("150GB").is_err_and(|reason| reason.contains("--hicache-budget")));
        for wrong in ["-1", "NaN", "inf", "1e30", ""] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
        assert_eq!(GigaBytes(37_500_000_000).to_string(), "37.5");
    }

    #[test]
    fn ratios_and_choices_print_as_they_are_read() {
        for text in ["2", "1.5", "0.25", "4.9"] {
            assert_eq!(text.parse::<Ratio>().expect(text).to_string(), text);
        }
        for wrong in ["0", "-1", "nan", "inf", "1e308", "two"] {
            assert!(wrong.parse::<Ratio>().is_err(), "{wrong}");
        }
        for text in ["auto", "off", "3"] {
            assert_eq!(text.parse::<NumaChoice>().expect(text).to_string(), text);
        }
        assert!("node0".parse::<NumaChoice>().is_err());
        for text in ["all", "tail", "tail_every_4096", "tail_branch"] {
            assert_eq!(text.parse::<SwaRetention>().expect(text).to_string(), text);
        }
        for wrong in ["tail_every_", "tail_every_0", "tail_every_99999999999", "branch"] {
            assert!(wrong.parse::<SwaRetention>().is_err(), "{wrong}");
        }
    }
}
