//! One moving line on a terminal, a plain line at each step elsewhere.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::complain;

/// Shows that something is being waited for; clears its line when dropped.
pub(super) struct Progress {
    bar: Option<ProgressBar>,
}

impl Progress {
    pub(super) fn new(message: &str) -> Self {
        if !std::io::stderr().is_terminal() {
            complain(message);
            return Self { bar: None };
        }
        let bar = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} ({elapsed})") {
            bar.set_style(style);
        }
        bar.set_message(message.to_owned());
        bar.enable_steady_tick(Duration::from_millis(100));
        Self { bar: Some(bar) }
    }

    /// Shows a line of the child; on a terminal it becomes the moving line.
    pub(super) fn line(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.set_message(line.chars().take(100).collect::<String>()),
            None => complain(line),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
