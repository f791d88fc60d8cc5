//! When requests are planned to arrive: pure functions of a seed.
//!
//! A plan never waits for an answer: what the server is late with must show in the latencies, not
//! in fewer arrivals.

use std::time::Duration;

use crate::dice::Dice;

/// The distribution of the gaps between arrivals.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Gaps {
    /// All the same.
    Constant,
    /// Gamma with this shape: 1 is a Poisson process, less comes in clumps, more is steadier.
    Gamma(f64),
}

/// Arrivals at a mean rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Steady {
    /// Arrivals a second; above 0.
    pub(crate) rate: f64,
    pub(crate) gaps: Gaps,
}

/// Arrivals all at once, again and again; the first after half of the interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Bursts {
    pub(crate) size: u64,
    pub(crate) every: Duration,
}

/// What a run's arrivals are made of.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Pattern {
    /// One or both of them.
    Open { steady: Option<Steady>, bursts: Option<Bursts> },
    /// At these times.
    Times(Vec<Duration>),
}

/// Planned arrivals since the start of the run, in order; endless except for a list of times.
#[derive(Debug)]
pub(crate) struct Arrivals {
    dice: Dice,
    steady: Option<(Steady, f64)>,
    bursts: Option<(Bursts, u64)>,
    times: std::vec::IntoIter<Duration>,
}

impl Arrivals {
    pub(crate) fn new(pattern: Pattern, seed: u64) -> Self {
        let mut arrivals = Self {
            dice: Dice::new(seed),
            steady: None,
            bursts: None,
            times: Vec::new().into_iter(),
        };
        match pattern {
            Pattern::Times(times) => arrivals.times = times.into_iter(),
            Pattern::Open { steady, bursts } => {
                arrivals.bursts = bursts.map(|bursts| (bursts, 0));
                arrivals.steady = steady.map(|steady| (steady, 0.0));
                arrivals.advance();
            }
        }
        arrivals
    }

    /// Draws the next arrival of the steady part.
    fn advance(&mut self) {
        if let Some((steady, at)) = &mut self.steady {
            let gap = match steady.gaps {
                Gaps::Constant => 1.0,
                Gaps::Gamma(shape) => self.dice.gamma(shape) / shape,
            };
            *at += gap / steady.rate;
        }
    }
}

/// A time in seconds, as late as a duration can be told.
fn seconds(at: f64) -> Duration {
    Duration::try_from_secs_f64(at).unwrap_or(Duration::MAX)
}

impl Iterator for Arrivals {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let steady = self.steady.map(|(_, at)| seconds(at));
        let burst = self.bursts.as_ref().map(|(bursts, sent)| {
            let number = (sent / bursts.size.max(1)) as f64;
            seconds(bursts.every.as_secs_f64() * (number + 0.5))
        });
        match (steady, burst) {
            (Some(steady), burst) if burst.is_none_or(|burst| steady <= burst) => {
                self.advance();
                Some(steady)
            }
            (_, Some(burst)) => {
                if let Some((_, sent)) = &mut self.bursts {
                    *sent += 1;
                }
                Some(burst)
            }
            (Some(_), None) | (None, None) => self.times.next(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(rate: f64, gaps: Gaps) -> Pattern {
        Pattern::Open { steady: Some(Steady { rate, gaps }), bursts: None }
    }

    fn until(pattern: Pattern, seed: u64, seconds: f64) -> Vec<f64> {
        let all = Arrivals::new(pattern, seed).map(|at| at.as_secs_f64());
        all.take_while(|at| *at <= seconds).collect()
    }

    #[test]
    fn a_rate_is_kept_whatever_the_clumps() {
        for (gaps, dispersion) in [
            (Gaps::Gamma(1.0), 1.0),
            (Gaps::Gamma(0.25), 4.0),
            (Gaps::Gamma(4.0), 0.25),
            (Gaps::Constant, 0.0),
        ] {
            let times = until(open(20.0, gaps), 3, 2_000.0);
            let rate = times.len() as f64 / 2_000.0;
            assert!((rate / 20.0 - 1.0).abs() < 0.03, "{gaps:?}: {rate}");
            // Variance of the number of arrivals in windows of 5 s, by their mean.
            let mut counts = vec![0.0; 400];
            for at in &times {
                counts[(*at / 5.0).min(399.0) as usize] += 1.0;
            }
            let mean = counts.iter().sum::<f64>() / 400.0;
            let variance = counts.iter().map(|n: &f64| (n - mean).powi(2)).sum::<f64>() / 400.0;
            let found = variance / mean;
            assert!((found - dispersion).abs() <= 0.25 * dispersion + 0.05, "{gaps:?}: {found}");
        }
    }

    #[test]
    fn a_poisson_process_has_exponential_gaps() {
        let times = until(open(10.0, Gaps::Gamma(1.0)), 8, 3_000.0);
        let mut gaps: Vec<f64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        gaps.sort_by(f64::total_cmp);
        // Largest distance between the measured and the true distribution (Kolmogorov, Smirnov).
        let n = gaps.len() as f64;
        let distance = gaps.iter().enumerate().map(|(rank, gap)| {
            let expect = 1.0 - (-10.0 * gap).exp();
            (expect - (rank as f64 + 0.5) / n).abs()
        });
        let distance = distance.fold(0.0, f64::max);
        assert!(distance < 1.63 / n.sqrt(), "distance {distance} of {n} gaps");
    }

    #[test]
    fn a_seed_replays_and_another_does_not() {
        let times = |seed| until(open(5.0, Gaps::Gamma(1.0)), seed, 20.0);
        assert_eq!(times(1), times(1));
        assert_ne!(times(1), times(2));
    }

    #[test]
    fn bursts_come_all_at_once_among_the_others() {
        let bursts = Some(Bursts { size: 3, every: Duration::from_secs(4) });
        let alone = Pattern::Open { steady: None, bursts };
        assert_eq!(until(alone, 1, 7.0), [2.0, 2.0, 2.0, 6.0, 6.0, 6.0]);
        let steady = Some(Steady { rate: 1.0, gaps: Gaps::Constant });
        let both = Pattern::Open { steady, bursts };
        assert_eq!(until(both, 1, 4.5), [1.0, 2.0, 2.0, 2.0, 2.0, 3.0, 4.0]);
    }

    #[test]
    fn a_list_of_times_ends() {
        let times = vec![Duration::ZERO, Duration::from_secs(2)];
        assert_eq!(until(Pattern::Times(times), 1, 9.0), [0.0, 2.0]);
    }
}
