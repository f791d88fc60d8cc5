//! Refusals of prompts whose tokens are not counted yet: by what they have at least.
//!
//! What is refused so would be refused when its tokens are counted, too: the same bounds are asked
//! with fewer tokens. Prompts that are still being counted count with what they have at least, and
//! only for those that come behind them, so that how a counted prompt is judged does not depend on
//! it.

use std::sync::Arc;

use types::{Priority, Time};

use super::{AdmissionController, State};
use crate::queue::Lack;
use crate::rank::Rank;
use crate::reject::Rejected;

/// What is known of a prompt before its tokens are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Uncounted {
    /// It has so many uncached tokens, or more.
    pub least: u64,
    /// So many more or less; says when to come back, and refuses nobody.
    pub about: u64,
}

/// A permit that is not charged yet, as others see it. Outlives the permit, and is of no use then.
#[derive(Debug, Clone)]
pub struct Outlook {
    controller: Arc<AdmissionController>,
    rank: Rank,
    priority: Priority,
}

impl Outlook {
    pub(crate) const fn new(
        controller: Arc<AdmissionController>,
        rank: Rank,
        priority: Priority,
    ) -> Self {
        Self { controller, rank, priority }
    }

    /// Could the prompt be charged with `least` uncached tokens or more? Changes nothing.
    #[must_use]
    pub fn may_have(&self, least: u64, now: Time) -> bool {
        let state = self.controller.lock();
        let ahead = state.uncached + state.places.expected_before(self.rank);
        state.lacks_early(self.priority, ahead, least, now).is_none()
    }

    /// The prompt has so many uncached tokens at least, and is still to be charged: refused where
    /// it would be refused then all the same. Else those that come behind it are told so early as
    /// if it was charged with as many, until it is, or gives its place back. The latest word holds.
    ///
    /// # Errors
    /// The refusal, or the eviction.
    pub fn expect(&self, prompt: Uncounted, now: Time) -> Result<(), Rejected> {
        let mut state = self.controller.lock();
        if let Some(refusal) = state.places.evicted(self.rank) {
            return Err(refusal);
        }
        let ahead = state.uncached + state.places.expected_before(self.rank);
        if let Some(refusal) = state.lacks_early(self.priority, ahead, prompt.least, now) {
            let about = prompt.about.max(prompt.least);
            // More tokens are no better than fewer.
            let as_told = state.tokens_lacked(ahead, about, now).map(|(refusal, _)| refusal);
            return Err(state.tell_when(as_told.unwrap_or(refusal), Some(about), now));
        }
        // Room that somebody else is to leave first is no room that it takes from others.
        let fits = state.tokens_lacked(ahead, prompt.least, now).is_none();
        if let Some(place) = state.places.get_mut(self.rank) {
            place.expected = if fits { prompt.least } else { 0 };
        }
        Ok(())
    }
}

impl State {
    /// How `least` tokens behind those `ahead` would be refused, where worse requests that wait
    /// could not make room.
    fn lacks_early(
        &self,
        priority: Priority,
        ahead: u64,
        least: u64,
        now: Time,
    ) -> Option<Rejected> {
        let (refusal, tokens) = self.tokens_lacked(ahead, least, now)?;
        // As `charge` asks: the evictable are those that are charged already.
        let newcomer = Rank::new(now, priority, u64::MAX);
        let victims = self.places.victims(newcomer, Lack { places: 0, tokens });
        victims.is_none().then_some(refusal)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::{Limits, QueuePermit, RejectReason};

    fn controller(tokens: u64, objective: u64) -> Arc<AdmissionController> {
        let limits = Limits {
            max_queued_requests: 0,
            max_queued_tokens: Some(tokens),
            ttft_objective: Duration::from_secs(objective),
        };
        AdmissionController::new(limits, 100.0)
    }

    /// A place; `None` where the tokens ahead alone are too many.
    fn admit(controller: &Arc<AdmissionController>, level: i64, now: Time) -> Option<QueuePermit> {
        let priority = Priority::new(level).expect("small");
        controller.try_admit(priority, now).ok()
    }

    fn about(least: u64) -> Uncounted {
        Uncounted { least, about: least }
    }

    proptest! {
        /// Those that wait are charged in the order in which they came, with so many tokens more
        /// than was known. Whoever is refused early is refused as well where nobody is.
        #[test]
        fn an_early_refusal_refuses_nobody_else(
            charged in prop::collection::vec((-1..=1_i64, 1..400_u64), 0..6),
            waiting in prop::collection::vec((1..400_u64, 0..100_u64), 0..6),
            newcomer in (1..400_u64, 0..100_u64),
            level in -1..=1_i64,
            bounds in (200..1500_u64, prop::sample::select(vec![0, 5, 9])),
        ) {
            let now = Time(1);
            let [early, late] = [0, 1].map(|_| controller(bounds.0, bounds.1));
            let mut held = Vec::new();
            for (level, tokens) in charged {
                for of in [&early, &late] {
                    held.extend(admit(of, level, now).and_then(|p| p.charge(tokens, now).ok()));
                }
            }
            // One that was refused early is not there for the others either.
            let mut line = Vec::new();
            let mut expect = |level: i64, (least, more): (u64, u64)| {
                let permit = admit(&early, level, now)?;
                let outlook = permit.outlook();
                let may = outlook.may_have(least, now);
                let taken = outlook.expect(about(least), now);
                assert_eq!(may, taken.is_ok(), "asking is as good as being told");
                if taken.is_ok() {
                    let other = admit(&late, level, now).expect("nobody was charged since");
                    line.push((permit, other, least + more));
                }
                taken.err()
            };
            // Who is better may drive somebody out, and leave more room than there was.
            let level = if waiting.is_empty() { level } else { 0 };
            for prompt in waiting {
                let _refusal = expect(level, prompt);
            }
            let Some(refusal) = expect(level, newcomer) else { return Ok(()) };
            prop_assert!(refusal.retry_after >= Duration::from_secs(1));
            let (least, more) = newcomer;
            let last = admit(&late, level, now).expect("nobody was charged since");
            for (permit, other, tokens) in line {
                drop(permit);
                // Were it refused itself, there would be room that nobody could foresee.
                match other.charge(tokens, now) {
                    Ok(other) => held.push(other),
                    Err(_) => return Ok(()),
                }
            }
            let exact = last.charge(least + more, now);
            prop_assert!(exact.is_err(), "{refusal} and then it is taken");
        }
    }

    #[test]
    fn what_is_expected_counts_until_it_is_charged_and_only_for_those_behind() {
        let (controller, now) = (controller(100, 0), Time(1));
        let [first, one, two, three] =
            [0; 4].map(|level| admit(&controller, level, now).expect("nothing is ahead"));
        let first = first.charge(10, now).expect("nothing is ahead");
        one.outlook().expect(about(60), now).expect("60 are free");
        let refusal =
            two.outlook().expect(Uncounted { least: 31, about: 40 }, now).expect_err("30 are");
        assert_eq!((refusal.reason, refusal.value), (RejectReason::QueueTokensFull, 110));
        two.outlook().expect(about(30), now).expect("30 are");
        assert!(
            !three.outlook().may_have(1, now) && one.outlook().may_have(90, now),
            "two is behind one"
        );
        let one = one.charge(70, now).expect("two does not count for it");
        assert!(two.outlook().expect(about(30), now).is_err(), "one has more than was expected");
        drop((one, first));
        assert!(three.outlook().may_have(70, now) && !three.outlook().may_have(71, now));
        drop(two);
        assert!(three.outlook().may_have(1000, now), "nothing is ahead");
        assert_eq!(controller.snapshot(now).pending_tokens, 0, "what is expected does not wait");
    }
}
