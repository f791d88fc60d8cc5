//! Random sequences of actions against a naive model of the queue.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use types::{Priority, Time};

use crate::{AdmissionController, Limits, PrefillDebt, QueuePermit, RejectReason};

#[derive(Debug, Clone)]
enum Action {
    Admit { level: i64 },
    Charge { pick: usize, tokens: u64 },
    Refund { pick: usize, tokens: u64 },
    Start { pick: usize },
    Compute { pick: usize, tokens: u64 },
    DropPermit { pick: usize },
    DropDebt { pick: usize },
    Observe { tokens: u64, millis: u64 },
}

fn action() -> impl Strategy<Value = Action> {
    let pick = 0..64_usize;
    let tokens = 1..5000_u64;
    let both = (pick.clone(), tokens.clone());
    prop_oneof![
        3 => (-3..=3_i64).prop_map(|level| Action::Admit { level }),
        3 => both.clone().prop_map(|(pick, tokens)| Action::Charge { pick, tokens }),
        1 => both.clone().prop_map(|(pick, tokens)| Action::Refund { pick, tokens }),
        2 => pick.clone().prop_map(|pick| Action::Start { pick }),
        2 => both.prop_map(|(pick, tokens)| Action::Compute { pick, tokens }),
        1 => pick.clone().prop_map(|pick| Action::DropPermit { pick }),
        1 => pick.prop_map(|pick| Action::DropDebt { pick }),
        1 => (tokens, 1..500_u64).prop_map(|(tokens, millis)| Action::Observe { tokens, millis }),
    ]
}

/// A permit with what the model knows of it: charged and refunded tokens, and its time.
struct Waiting {
    permit: QueuePermit,
    tokens: u64,
    cached: u64,
    since: Time,
}

impl Waiting {
    /// The effective priority at any moment, smaller is better: in nanoseconds of waiting.
    fn key(&self) -> i128 {
        key(self.since, self.permit.priority())
    }
}

fn key(since: Time, priority: Priority) -> i128 {
    i128::from(since.0) - i128::from(priority.level()) * 10_000_000_000
}

struct World {
    controller: Arc<AdmissionController>,
    limits: Limits,
    waiting: Vec<Waiting>,
    debts: Vec<(PrefillDebt, u64)>,
    now: Time,
}

impl World {
    fn uncached(&self) -> u64 {
        let waiting: u64 = self.waiting.iter().map(|w| w.tokens - w.cached).sum();
        waiting + self.debts.iter().map(|(_, rest)| rest).sum::<u64>()
    }

    fn take<T>(list: &mut Vec<T>, pick: usize) -> Option<T> {
        (!list.is_empty()).then(|| list.remove(pick % list.len()))
    }

    /// The bound on total tokens that a refusal for tokens must have been about to pass.
    fn tokens_bound(&self) -> u64 {
        let by_time = if self.limits.ttft_objective.is_zero() {
            u64::MAX
        } else {
            (self.limits.ttft_objective.as_secs_f64() * self.controller.prefill_rate()) as u64
        };
        match self.limits.max_queued_tokens {
            None | Some(0) => by_time,
            Some(tokens) => by_time.min(tokens),
        }
    }

    fn check_refusal(&self, refusal: crate::Rejected, own: u64) -> Result<(), TestCaseError> {
        prop_assert!(refusal.retry_after >= Duration::from_secs(1));
        prop_assert_eq!(refusal.retry_after.subsec_nanos(), 0);
        match refusal.reason {
            RejectReason::QueueRequestsFull => {
                prop_assert_eq!(self.waiting.len(), self.limits.max_queued_requests);
                // What a router tells in its place is the same.
                let place = self.controller.snapshot(self.now).next_place;
                let rounded_up = place.max(Duration::from_millis(1)) <= refusal.retry_after
                    && place + Duration::from_secs(1) > refusal.retry_after;
                prop_assert!(rounded_up || refusal.retry_after.as_secs() == 1, "{place:?}");
            }
            RejectReason::QueueTokensFull | RejectReason::DrainTime => {
                prop_assert!(self.uncached() > 0, "an empty queue refuses nothing for tokens");
                prop_assert!(self.uncached() + own > self.tokens_bound());
            }
            RejectReason::Draining
            | RejectReason::Unhealthy
            | RejectReason::PriorityEvicted
            | RejectReason::QueueTimeout => {
                prop_assert!(false, "nothing here leads to {:?}", refusal.reason);
            }
        }
        Ok(())
    }

    fn apply(&mut self, action: Action) -> Result<(), TestCaseError> {
        match action {
            Action::Admit { level } => self.admit(Priority::new(level).expect("small"))?,
            Action::Charge { pick, tokens } => self.charge(pick, tokens)?,
            Action::Refund { pick, tokens } => {
                if !self.waiting.is_empty() {
                    let at = pick % self.waiting.len();
                    let entry = &mut self.waiting[at];
                    entry.permit.refund_cached(tokens);
                    entry.cached = entry.tokens.min(entry.cached + tokens);
                }
            }
            Action::Start { pick } => {
                if let Some(entry) = Self::take(&mut self.waiting, pick) {
                    let debt = entry.permit.start(self.now).expect("nobody is better");
                    self.debts.push((debt, entry.tokens - entry.cached));
                }
            }
            Action::Compute { pick, tokens } => {
                if !self.debts.is_empty() {
                    let at = pick % self.debts.len();
                    let (debt, rest) = &mut self.debts[at];
                    debt.computed(tokens);
                    *rest = rest.saturating_sub(tokens);
                    prop_assert_eq!(debt.rest(), *rest);
                }
            }
            Action::DropPermit { pick } => drop(Self::take(&mut self.waiting, pick)),
            Action::DropDebt { pick } => drop(Self::take(&mut self.debts, pick)),
            Action::Observe { tokens, millis } => {
                self.controller.observe_prefill(tokens, Duration::from_millis(millis));
            }
        }
        Ok(())
    }

    fn admit(&mut self, priority: Priority) -> Result<(), TestCaseError> {
        let full = self.limits.max_queued_requests != 0
            && self.waiting.len() == self.limits.max_queued_requests;
        let victims = self.victims(key(self.now, priority), usize::from(full), 0);
        match self.controller.try_admit(priority, self.now) {
            Ok(permit) => {
                let victims = victims.ok_or_else(|| TestCaseError::fail("nobody is worse"))?;
                self.lose(&victims)?;
                let since = self.now;
                self.waiting.push(Waiting { permit, tokens: 0, cached: 0, since });
            }
            Err(refusal) => {
                prop_assert!(victims.is_none() || self.uncached() > 0, "a place was to be had");
                self.check_refusal(refusal, 1)?;
            }
        }
        Ok(())
    }

    /// The places of those that go for a newcomer of `key`, by the rule in its plainest form.
    fn victims(&self, key: i128, places: usize, tokens: u64) -> Option<Vec<usize>> {
        let mut order: Vec<usize> = (0..self.waiting.len()).collect();
        order.sort_by_key(|at| {
            let entry = &self.waiting[*at];
            std::cmp::Reverse((entry.key(), entry.permit.rank().seq()))
        });
        let (mut victims, mut gained) = (Vec::new(), 0);
        for at in order {
            if victims.len() >= places && gained >= tokens {
                break;
            }
            let entry = &self.waiting[at];
            if entry.key() <= key {
                return None;
            }
            let uncached = entry.tokens - entry.cached;
            if victims.len() < places || uncached > 0 {
                victims.push(at);
                gained += uncached;
            }
        }
        (victims.len() >= places && gained >= tokens).then_some(victims)
    }

    /// Exactly these were evicted.
    fn lose(&mut self, victims: &[usize]) -> Result<(), TestCaseError> {
        for (at, entry) in self.waiting.iter().enumerate() {
            let evicted = entry.permit.evicted().map(|refusal| refusal.reason);
            let expected = victims.contains(&at).then_some(RejectReason::PriorityEvicted);
            prop_assert_eq!(evicted, expected);
        }
        let mut at = 0;
        self.waiting.retain(|_| {
            at += 1;
            !victims.contains(&(at - 1))
        });
        Ok(())
    }

    fn charge(&mut self, pick: usize, tokens: u64) -> Result<(), TestCaseError> {
        let Some(entry) = Self::take(&mut self.waiting, pick) else { return Ok(()) };
        if entry.tokens > 0 {
            self.waiting.push(entry);
            return Ok(());
        }
        let (since, before) = (entry.since, self.uncached());
        let excess = (before + tokens).saturating_sub(self.tokens_bound()).min(before);
        let victims = self.victims(key(self.now, entry.permit.priority()), 0, excess);
        match entry.permit.charge(tokens, self.now) {
            Ok(permit) => {
                let victims = victims.ok_or_else(|| TestCaseError::fail("nobody is worse"))?;
                self.lose(&victims)?;
                let before = self.uncached();
                prop_assert!(before == 0 || before + tokens <= self.tokens_bound());
                self.waiting.push(Waiting { permit, tokens, cached: 0, since });
            }
            Err(refusal) => {
                prop_assert!(victims.is_none(), "{victims:?} would have been enough");
                prop_assert!(refusal.reason != RejectReason::QueueRequestsFull);
                self.check_refusal(refusal, tokens)?;
            }
        }
        Ok(())
    }

    fn check(&self) -> Result<(), TestCaseError> {
        let snapshot = self.controller.snapshot(self.now);
        prop_assert_eq!(snapshot.requests, self.waiting.len(), "permits are the depth");
        let limit = self.limits.max_queued_requests;
        prop_assert!(limit == 0 || snapshot.requests <= limit);
        prop_assert_eq!(snapshot.pending_uncached_tokens, self.uncached());
        let waiting: u64 = self.waiting.iter().map(|w| w.tokens).sum();
        let started: u64 = self.debts.iter().map(|(_, rest)| rest).sum();
        prop_assert_eq!(snapshot.pending_tokens, waiting + started);
        let oldest = self.waiting.iter().map(|w| w.since).min().unwrap_or(self.now);
        prop_assert_eq!(snapshot.oldest_age, self.now.since(oldest));
        prop_assert!(snapshot.prefill_rate >= 1.0);
        let full = limit != 0 && snapshot.requests == limit;
        prop_assert!(full || snapshot.next_place.is_zero(), "{:?}", snapshot.next_place);
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn the_controller_agrees_with_the_model(
        max_queued_requests in 0..6_usize,
        max_queued_tokens in prop_oneof![Just(None), Just(Some(0)), (1..8000_u64).prop_map(Some)],
        objective in prop_oneof![Just(0_u64), 1..20_u64],
        rate in 0.0..2000.0_f64,
        actions in prop::collection::vec(action(), 1..120),
    ) {
        let limits = Limits {
            max_queued_requests,
            max_queued_tokens,
            ttft_objective: Duration::from_secs(objective),
        };
        let mut world = World {
            controller: AdmissionController::new(limits, rate),
            limits,
            waiting: Vec::new(),
            debts: Vec::new(),
            now: Time::ZERO,
        };
        for action in actions {
            world.now = world.now + Duration::from_millis(10);
            world.apply(action)?;
            world.check()?;
        }
        let controller = Arc::clone(&world.controller);
        drop(world);
        let end = controller.snapshot(Time(u64::MAX));
        prop_assert_eq!(end.requests, 0);
        prop_assert_eq!((end.pending_tokens, end.pending_uncached_tokens), (0, 0));
        prop_assert_eq!((end.oldest_age, end.drain), (Duration::ZERO, Duration::ZERO));
    }
}
