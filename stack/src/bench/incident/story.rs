//! The incident's time. Where everything is so many times as short, what the processes tell is
//! stored as if it had not been: stamps and seconds are multiplied, so that rules and thresholds
//! are the generated ones to the letter.
//!
//! Names say what is to be multiplied, as units come last in them.

use std::fmt::Write;
use std::time::Duration;

use crate::clock::now_ms;

/// How often processes are scraped, and rules evaluated, in the incident's time.
const SCRAPE_EVERY: Duration = Duration::from_secs(1);
pub(super) const RULES_EVERY: Duration = Duration::from_secs(15);
/// Pages take the machine some time: no oftener than this, in its own.
const SCRAPE_LEAST: Duration = Duration::from_millis(200);

/// When the incident began, and how many times as fast it goes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Story {
    scale: f64,
    zero_ms: i64,
}

impl Story {
    /// It begins now.
    pub(super) fn begin(scale: f64) -> Self {
        Self::new(scale, now_ms())
    }

    const fn new(scale: f64, zero_ms: i64) -> Self {
        Self { scale, zero_ms }
    }

    /// Now, in the incident's time; Unix milliseconds.
    pub(super) fn now_ms(&self) -> i64 {
        self.at_ms(now_ms())
    }

    fn at_ms(&self, real_ms: i64) -> i64 {
        self.zero_ms + ((real_ms - self.zero_ms) as f64 * self.scale) as i64
    }

    /// Seconds since it began.
    pub(super) fn seconds(&self, story_ms: i64) -> f64 {
        (story_ms - self.zero_ms) as f64 / 1000.0
    }

    /// Between two scrapes, in the machine's time.
    pub(super) fn scrape_every(&self) -> Duration {
        SCRAPE_EVERY.div_f64(self.scale).max(SCRAPE_LEAST)
    }

    /// Between two evaluations of the rules, in the machine's time.
    pub(super) fn rules_every(&self) -> Duration {
        RULES_EVERY.div_f64(self.scale)
    }

    /// A page of metrics in the incident's time.
    pub(super) fn tell(&self, page: String) -> String {
        if self.scale == 1.0 {
            return page;
        }
        let mut out = String::with_capacity(page.len() + page.len() / 8);
        for line in page.lines() {
            match self.sample(line) {
                Some(told) => out.push_str(&told),
                None => out.push_str(line),
            }
            out.push('\n');
        }
        out
    }

    /// A sample that has to do with time; `None` for all other lines.
    fn sample(&self, line: &str) -> Option<String> {
        if line.starts_with('#') {
            return None;
        }
        let (series, value) = line.rsplit_once(' ')?;
        let name = series.split('{').next().unwrap_or(series);
        if let Some(base) = name.strip_suffix("_bucket") {
            let told = base.ends_with("_seconds").then(|| self.bucket(series))?;
            return Some(format!("{} {value}", told?));
        }
        let value: f64 = value.parse().ok()?;
        let unit = name.strip_suffix("_total").or(name.strip_suffix("_sum")).unwrap_or(name);
        let told = if unit.ends_with("_timestamp_seconds") || unit.ends_with("_time_seconds") {
            let zero = self.zero_ms as f64 / 1000.0;
            // Nothing happened yet where it is 0.
            if value == 0.0 { value } else { zero + (value - zero) * self.scale }
        } else if unit.ends_with("_per_second") {
            value / self.scale
        } else if unit.ends_with("_seconds") {
            value * self.scale
        } else {
            return None;
        };
        Some(format!("{series} {told}"))
    }

    /// The series of a bucket with the edge multiplied; `None` for the last one, which has none.
    fn bucket(&self, series: &str) -> Option<String> {
        // Other labels may end in the same letters.
        let edge = ["{le=\"", ",le=\""].into_iter().find_map(|edge| series.find(edge));
        let start = edge? + "{le=\"".len();
        let end = start + series[start..].find('"')?;
        let edge: f64 = series[start..end].parse().ok()?;
        if edge.is_infinite() {
            return None;
        }
        // No edge has so many digits: what is beyond them is the multiplication's.
        let told = format!("{:.9}", edge * self.scale);
        let told = told.trim_end_matches('0').trim_end_matches('.');
        let mut out = series[..start].to_owned();
        write!(out, "{told}{}", &series[end..]).expect("writing to a String cannot fail");
        Some(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exposition;

    #[test]
    fn seconds_and_stamps_are_multiplied_and_nothing_else() {
        let story = Story::new(10.0, 1_700_000_000_000);
        let page = "\
# HELP a_seconds Time, 3 seconds of it.
# TYPE a_seconds histogram
a_seconds_bucket{role=\"x\",le=\"0.025\"} 3
a_seconds_bucket{role=\"x\",le=\"+Inf\"} 4
a_seconds_sum{role=\"x\"} 1.5
a_seconds_count{role=\"x\"} 4
b_tokens_bucket{le=\"16\"} 2
busy_seconds_total{what=\"one two\"} 2
up_timestamp_seconds 1700000002
never_timestamp_seconds 0
x_tokens_per_second 50
requests_total{reason=\"x_seconds\"} 7
";
        let told = story.tell(page.to_owned());
        let samples = exposition::parse(&told).expect("a page").samples;
        let found: Vec<(&str, f64)> = samples.iter().map(|s| (s.series, s.value)).collect();
        let expected = [
            ("a_seconds_bucket{role=\"x\",le=\"0.25\"}", 3.0),
            ("a_seconds_bucket{role=\"x\",le=\"+Inf\"}", 4.0),
            ("a_seconds_sum{role=\"x\"}", 15.0),
            ("a_seconds_count{role=\"x\"}", 4.0),
            ("b_tokens_bucket{le=\"16\"}", 2.0),
            ("busy_seconds_total{what=\"one two\"}", 20.0),
            ("up_timestamp_seconds", 1_700_000_020.0),
            ("never_timestamp_seconds", 0.0),
            ("x_tokens_per_second", 5.0),
            ("requests_total{reason=\"x_seconds\"}", 7.0),
        ];
        assert_eq!(found, expected);
        assert_eq!(Story::new(1.0, 0).tell(page.to_owned()), page);
    }

    #[test]
    fn the_time_of_the_story_runs_as_fast_as_the_scale_says() {
        let story = Story::new(20.0, 1_000_000);
        assert_eq!(story.at_ms(1_003_000), 1_060_000);
        assert_eq!(story.seconds(1_060_000), 60.0);
        assert_eq!(story.rules_every(), Duration::from_millis(750));
        assert_eq!(story.scrape_every(), SCRAPE_LEAST);
    }
}
