//! How many requests are sent again: a share of those that come, so that retries cannot become the
//! load that they are the answer to.

use crate::config::RetryConfig;

/// A bucket: each request puts its share in, each retry takes one out.
#[derive(Debug)]
pub(crate) struct RetryBudget {
    saved: f64,
}

impl RetryBudget {
    /// A full one.
    pub(crate) fn new(config: &RetryConfig) -> Self {
        Self { saved: config.budget_burst.max(0.0) }
    }

    /// A request has come.
    pub(crate) fn deposit(&mut self, config: &RetryConfig) {
        let share = config.budget_share.clamp(0.0, 1.0);
        self.saved = (self.saved + share).min(config.budget_burst.max(0.0));
    }

    /// Is there one left?
    pub(crate) fn has(&self) -> bool {
        self.saved >= 1.0
    }

    /// Takes one, where [`has`](Self::has) says so.
    pub(crate) fn take(&mut self) {
        debug_assert!(self.has());
        self.saved -= 1.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn over_the_long_run_retries_are_a_share_of_the_requests() {
        let config = RetryConfig { budget_share: 0.25, budget_burst: 4.0, ..Default::default() };
        let mut budget = RetryBudget::new(&config);
        let mut retries = 0;
        for _ in 0..1000 {
            budget.deposit(&config);
            while budget.has() {
                budget.take();
                retries += 1;
            }
        }
        assert_eq!(retries, 4 + 1000 / 4 - 1, "the burst, whose first deposit was lost, and 1/4");
    }
}
