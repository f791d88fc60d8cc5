//! What is seen while a load runs: one moving line on a terminal, a line now and then elsewhere.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use super::drive;
use super::report::time;
use crate::complain;

/// Between two lines that stay.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// Shows the progress of a run; clears its line when dropped.
pub(crate) struct Progress {
    name: String,
    bar: Option<ProgressBar>,
    quiet: bool,
    next_line: Duration,
    /// Output tokens when last told, and when.
    last: (u64, Duration),
}

impl Progress {
    pub(crate) fn new(name: String, quiet: bool) -> Self {
        let moving = !quiet && std::io::stderr().is_terminal();
        let bar = moving.then(|| {
            let bar = ProgressBar::new_spinner();
            if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg}") {
                bar.set_style(style);
            }
            bar
        });
        Self { name, bar, quiet, next_line: LINE_EVERY, last: (0, Duration::ZERO) }
    }

    /// Shows the state of the run, if it is time.
    pub(crate) fn show(&mut self, state: &drive::Progress<'_>) {
        if self.quiet {
            return;
        }
        match &self.bar {
            Some(bar) => {
                let line = self.line(state);
                bar.set_message(line);
                bar.tick();
            }
            None if state.elapsed >= self.next_line => {
                complain(&self.line(state));
                self.next_line = state.elapsed + LINE_EVERY;
            }
            None => return,
        }
        self.last = (state.tally.events, state.elapsed);
    }

    fn line(&self, state: &drive::Progress<'_>) -> String {
        let tally = state.tally;
        let passed = state.elapsed.saturating_sub(self.last.1).as_secs_f64();
        let pieces = (tally.events - self.last.0) as f64 / passed.max(1e-3);
        let ttft = match tally.ttft.count() {
            0 => "-".to_owned(),
            _ => {
                let [half, most] = [0.5, 0.99].map(|quantile| time(tally.ttft.quantile(quantile)));
                format!("p50 {half} p99 {most}")
            }
        };
        format!(
            "{} {:.0} s: sent {}, in flight {}, complete {}, refused {}, failed {}, \
             {pieces:.0} events/s of ended requests, TTFT {ttft}",
            self.name,
            state.elapsed.as_secs_f64(),
            state.sent,
            state.in_flight,
            tally.completed,
            tally.refused,
            tally.failed
        )
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::tally::Tally;
    use crate::bench::tally::tests::complete;

    #[test]
    fn the_line_tells_where_the_run_is() {
        let mut tally = Tally::default();
        tally.add(&complete(0));
        let progress = Progress::new("4/s".to_owned(), true);
        let elapsed = Duration::from_secs(5);
        let line =
            progress.line(&drive::Progress { tally: &tally, elapsed, sent: 3, in_flight: 2 });
        assert_eq!(
            line,
            "4/s 5 s: sent 3, in flight 2, complete 1, refused 0, failed 0, 1 events/s of ended \
             requests, TTFT p50 100 ms p99 100 ms"
        );
    }
}
