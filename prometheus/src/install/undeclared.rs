//! A series that the role never has: its metric is exported, but not with this value.

use metrics::{CounterFn, GaugeFn, HistogramFn};

/// Records nothing. Anything but 0 is a mistake of ours, found by tests.
#[derive(Debug)]
pub(super) struct Undeclared(pub(super) &'static str);

impl Undeclared {
    fn expect(&self, nothing: bool) {
        debug_assert!(nothing, "{} is recorded with a value that its role never has", self.0);
    }
}

impl CounterFn for Undeclared {
    fn increment(&self, value: u64) {
        self.expect(value == 0);
    }

    fn absolute(&self, value: u64) {
        self.expect(value == 0);
    }
}

impl GaugeFn for Undeclared {
    fn increment(&self, value: f64) {
        self.expect(value == 0.0);
    }

    fn decrement(&self, value: f64) {
        self.expect(value == 0.0);
    }

    fn set(&self, value: f64) {
        self.expect(value == 0.0);
    }
}

impl HistogramFn for Undeclared {
    fn record(&self, _value: f64) {
        self.expect(false);
    }
}
