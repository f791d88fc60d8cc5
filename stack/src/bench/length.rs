//! Distributions of lengths in tokens.

use std::fmt;
use std::str::FromStr;

use crate::dice::Dice;

/// A lognormal length is cut at this multiple of its median, unless a bound is given.
const LOGNORMAL_CUT: u64 = 16;

/// Longest length that is accepted: far above any context, far below what would fill a host.
const LENGTH_MAX: u64 = 4_000_000;

/// How long things are: `128`, `64..256`, `lognormal:MEDIAN,SIGMA[,MAX]`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Length {
    /// Always the same.
    Fixed(u64),
    /// Uniform, both ends included.
    Uniform {
        /// Shortest.
        low: u64,
        /// Longest.
        high: u64,
    },
    /// The logarithm is normal.
    Lognormal {
        /// Half are shorter.
        median: u64,
        /// Deviation of the logarithm: 0.5 is mild, 1 is what chat traffic looks like.
        sigma: f64,
        /// Longer ones are cut to this.
        max: u64,
    },
}

impl Length {
    /// One length.
    pub(crate) fn draw(&self, dice: &mut Dice) -> u64 {
        match *self {
            Self::Fixed(length) => length,
            Self::Uniform { low, high } => dice.range(low, high + 1),
            Self::Lognormal { median, sigma, max } => {
                let length = (median as f64 * (sigma * dice.normal()).exp()).round();
                // Saturates; a length is never negative.
                (length as u64).clamp(1, max)
            }
        }
    }

    /// The longest that can be drawn.
    pub(crate) const fn max(&self) -> u64 {
        match *self {
            Self::Fixed(length) => length,
            Self::Uniform { high, .. } => high,
            Self::Lognormal { max, .. } => max,
        }
    }

    /// The shortest that can be drawn.
    pub(crate) const fn min(&self) -> u64 {
        match *self {
            Self::Fixed(length) => length,
            Self::Uniform { low, .. } => low,
            Self::Lognormal { .. } => 1,
        }
    }
}

impl Length {
    /// Whether it can be drawn from; `text` is how it was written.
    fn check(&self, text: &str) -> Result<(), String> {
        match *self {
            Self::Uniform { low, high } if low > high => {
                return Err(format!("{text:?} ends before it starts"));
            }
            Self::Lognormal { median: 0, .. } => {
                return Err("a lognormal median is at least 1".to_owned());
            }
            Self::Lognormal { sigma, .. } if !(0.0..=5.0).contains(&sigma) => {
                return Err(format!("a lognormal sigma is from 0 to 5, not {sigma}"));
            }
            Self::Lognormal { median, max, .. } if max < median => {
                return Err(format!("the bound {max} is below the median {median}"));
            }
            Self::Fixed(_) | Self::Uniform { .. } | Self::Lognormal { .. } => {}
        }
        if self.max() > LENGTH_MAX {
            return Err(format!("{} is more than the longest length, {LENGTH_MAX}", self.max()));
        }
        Ok(())
    }
}

impl FromStr for Length {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let length = parse(text).ok_or_else(|| {
            format!("{text:?} is no length; write 128, 64..256 or lognormal:MEDIAN,SIGMA[,MAX]")
        })?;
        length.check(text)?;
        Ok(length)
    }
}

fn parse(text: &str) -> Option<Length> {
    if let Some(rest) = text.strip_prefix("lognormal:") {
        let mut parts = rest.split(',').map(str::trim);
        let median: u64 = parts.next()?.parse().ok()?;
        let sigma = parts.next()?.parse().ok()?;
        let max = match parts.next() {
            Some(max) => max.parse().ok()?,
            None => median.saturating_mul(LOGNORMAL_CUT).min(LENGTH_MAX),
        };
        return parts.next().is_none().then_some(Length::Lognormal { median, sigma, max });
    }
    match text.split_once("..") {
        Some((low, high)) => {
            Some(Length::Uniform { low: low.trim().parse().ok()?, high: high.trim().parse().ok()? })
        }
        None => text.trim().parse().ok().map(Length::Fixed),
    }
}

impl fmt::Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(length) => write!(f, "{length}"),
            Self::Uniform { low, high } => write!(f, "{low}..{high}"),
            Self::Lognormal { median, sigma, max } => write!(f, "lognormal:{median},{sigma},{max}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_read_and_drawn_within_their_bounds() {
        for (text, low, high, median) in [
            ("128", 128, 128, 128.0),
            ("64..256", 64, 256, 160.0),
            ("lognormal:512,0.8", 1, 8192, 512.0),
            ("lognormal:100, 1, 120", 1, 120, 100.0),
        ] {
            let length: Length = text.parse().expect(text);
            assert_eq!(length.to_string().parse::<Length>().expect("prints what it reads"), length);
            let mut dice = Dice::new(5);
            let mut drawn: Vec<u64> = (0..2_001).map(|_| length.draw(&mut dice)).collect();
            drawn.sort_unstable();
            assert!(drawn[0] >= low && drawn[2_000] <= high, "{text}: {drawn:?}");
            let found = drawn[1_000] as f64;
            assert!((found / median - 1.0).abs() < 0.1, "{text}: median {found}");
        }
    }

    #[test]
    fn a_wrong_length_says_what_would_work() {
        for (text, reason) in [
            ("many", "64..256"),
            ("9..3", "ends before"),
            ("lognormal:5", "MEDIAN,SIGMA"),
            ("lognormal:0,1", "at least 1"),
            ("lognormal:5,9", "from 0 to 5"),
            ("lognormal:5,1,2", "below the median"),
            ("5000000", "longest length"),
            ("-3", "64..256"),
        ] {
            let error = text.parse::<Length>().expect_err(text);
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
