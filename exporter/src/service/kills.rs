//! Kills for lack of memory, over all groups that a service has had.
//!
//! The kernel counts them in the control group, which goes with the main process: where that is
//! killed, only the service manager tells, by the result of that start.

use std::time::Duration;

use super::unit::Unit;
use crate::slot::Now;

/// A kill that the group has counted so recently is the one that the manager tells of.
const SAME: Duration = Duration::from_secs(30);

/// What the control group of a service shows of its kills.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counted {
    /// So many since it was made.
    So(u64),
    /// There is no group.
    Gone,
    /// Nobody knows now.
    Unknown,
}

/// Counts kills of one service. The sum never falls.
#[derive(Debug, Clone, Default)]
pub struct Kills {
    sum: Option<u64>,
    /// What its group has counted, as far as it is in the sum.
    group: u64,
    grown: Option<Now>,
    /// The start that was seen last, and whether its end is in the sum.
    start: Option<String>,
    told: bool,
}

impl Kills {
    /// Takes in what its unit, if it is known now, and its group say.
    pub fn seen(&mut self, unit: Option<&Unit>, group: Counted, now: Now) {
        if let Some(unit) = unit
            && unit.invocation != self.start
        {
            self.start.clone_from(&unit.invocation);
            (self.told, self.grown) = (false, None);
        }
        match group {
            Counted::So(count) => {
                // One that starts again from less is another group.
                let more = count.checked_sub(self.group).unwrap_or(count);
                if more > 0 && self.sum.is_some() {
                    self.grown = Some(now);
                }
                self.add(more);
                self.group = count;
            }
            Counted::Gone => self.group = 0,
            Counted::Unknown => {}
        }
        let Some(unit) = unit else { return };
        let Some(result) = &unit.result else { return };
        // From now on somebody would tell: the first kill is one more than 0.
        self.add(0);
        let killed = result == "oom-kill";
        if killed && !self.told && self.grown.is_none_or(|grown| now.since(grown) > SAME) {
            self.add(1);
        }
        self.told = killed;
    }

    fn add(&mut self, kills: u64) {
        self.sum = Some(self.sum.unwrap_or_default().saturating_add(kills));
    }

    /// All of them; `None` before anybody has said anything.
    #[must_use]
    pub const fn sum(&self) -> Option<u64> {
        self.sum
    }
}

#[cfg(test)]
mod tests {
    use metric_catalog::labels::ServiceState;

    use super::Counted::{Gone, So, Unknown};
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// A start with a number, and how the last one ended.
    fn unit(start: u32, result: &str) -> Unit {
        Unit {
            state: ServiceState::Active,
            sub_state: String::new(),
            result: Some(result.to_owned()),
            restarts: None,
            main_pid: None,
            exit_status: None,
            started: None,
            group: None,
            invocation: Some(start.to_string()),
        }
    }

    /// The sum after each step of five seconds.
    fn sums(steps: &[(Option<(u32, &str)>, Counted)]) -> Vec<Option<u64>> {
        let (mut kills, mut now) = (Kills::default(), Now::read());
        let step = |(told, group): &(Option<(u32, &str)>, Counted)| {
            let unit = told.map(|(start, result)| unit(start, result));
            kills.seen(unit.as_ref(), *group, now);
            now = now + SECOND * 5;
            kills.sum()
        };
        steps.iter().map(step).collect()
    }

    #[test]
    fn the_main_process_is_killed_and_its_group_goes_with_it() {
        let (well, killed) = ("success", "oom-kill");
        let steps = [
            (Some((1, well)), So(0)),
            (Some((1, killed)), Gone),
            (Some((1, killed)), Gone),
            (Some((2, well)), So(0)),
            // Killed again, and again before the next look.
            (Some((2, killed)), Gone),
            (Some((3, killed)), Gone),
            (Some((4, well)), So(0)),
        ];
        assert_eq!(sums(&steps), [0, 1, 1, 1, 2, 3, 3].map(Some));
    }

    #[test]
    fn a_kill_that_the_group_has_counted_is_not_counted_twice() {
        let (well, killed) = ("success", "oom-kill");
        let mut steps = vec![
            (Some((1, well)), So(0)),
            (Some((1, well)), So(1)),
            (Some((1, killed)), Gone),
            (Some((2, well)), So(0)),
            (Some((2, killed)), So(1)),
            (Some((2, killed)), Gone),
            // A child that is killed long before its parent is another.
            (Some((3, well)), So(1)),
        ];
        assert_eq!(sums(&steps), [0, 1, 1, 1, 2, 2, 3].map(Some));
        steps.extend([(Some((3, well)), So(1)); 7]);
        steps.push((Some((3, killed)), Gone));
        assert_eq!(sums(&steps).last(), Some(&Some(4)));
    }

    #[test]
    fn the_sum_stays_over_groups_and_what_nobody_knows() {
        let steps = [
            (None, Unknown),
            // What was before is there at once.
            (None, So(3)),
            (None, Unknown),
            (None, So(3)),
            (None, So(1)),
            (None, Gone),
            (None, So(2)),
        ];
        let expect = [None, Some(3), Some(3), Some(3), Some(4), Some(4), Some(6)];
        assert_eq!(sums(&steps), expect);
        // A manager that would tell counts, also where no group was ever seen.
        let steps = [(Some((1, "success")), Gone), (Some((1, "oom-kill")), Gone)];
        assert_eq!(sums(&steps), [0, 1].map(Some));
    }
}
