//! Time at the borders of the loop's stages.

use std::time::Duration;

use types::{Clock, Time};

use crate::stats::{LoopStage, StageTimes};

/// Tells the core what time it is. Monotonic.
pub trait TimeSource: Send {
    /// Now.
    fn now(&mut self) -> Time;

    /// The step that just ran takes this long by its model's own account. Real clocks ignore it,
    /// virtual ones advance.
    fn modelled(&mut self, _busy: Duration) {}
}

impl TimeSource for Clock {
    fn now(&mut self) -> Time {
        Self::now(self)
    }
}

/// Splits elapsed time into exclusive stages: what lies between two marks belongs to the stage
/// that the second one names.
#[derive(Debug)]
pub(crate) struct StageClock {
    last: Time,
    since_report: StageTimes,
}

impl StageClock {
    pub(crate) fn new(start: Time) -> Self {
        Self { last: start, since_report: StageTimes::default() }
    }

    /// The stage ends `now`; returns its length.
    pub(crate) fn mark(&mut self, stage: LoopStage, now: Time) -> Duration {
        let spent = now.since(self.last);
        self.last = self.last.max(now);
        self.since_report.add(stage, spent);
        spent
    }

    /// The time of the last mark.
    pub(crate) const fn last(&self) -> Time {
        self.last
    }

    /// What was marked since the last call.
    pub(crate) fn report(&mut self) -> StageTimes {
        std::mem::take(&mut self.since_report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_add_up_to_elapsed_time() {
        let mut clock = StageClock::new(Time(100));
        clock.mark(LoopStage::Wait, Time(400));
        clock.mark(LoopStage::Forward, Time(450));
        clock.mark(LoopStage::Commit, Time(440));
        clock.mark(LoopStage::Forward, Time(470));
        let times = clock.report();
        assert_eq!(times.of(LoopStage::Wait).as_nanos(), 300);
        assert_eq!(times.of(LoopStage::Forward).as_nanos(), 70);
        assert_eq!(times.total(), clock.last().since(Time(100)));
        assert_eq!(clock.report().total(), Duration::ZERO);
    }
}
