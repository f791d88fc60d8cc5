//! Waiting of a request for which nobody can be asked for a moment.

use std::time::Duration;

use metric_catalog::labels::HoldOutcome;
use types::Time;

use super::Gateway;
use super::telemetry::Model;
use super::trip::Trip;
use crate::request::{OverloadReason, Refusal, Route};
use crate::{Attempt, Hold, Place};

/// Who waits looks again after so long, whatever happened: a breaker that is half open, and a
/// worker that is missing but not missed yet, tell nobody.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// How a wait ended.
pub(super) enum Found {
    /// Somebody can be asked.
    Route(Box<Route>),
    /// Nobody came in time, or who came refuses it.
    Refused(Refusal),
    /// This router stops.
    Draining,
}

/// One request while it waits. Dropped without a word, it was given up by its client.
struct Waits<'a> {
    gateway: &'a Gateway,
    model: Option<&'a Model>,
    place: Place,
    since: Time,
    outcome: HoldOutcome,
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        if let Some(model) = self.model {
            let waited = self.gateway.clock.now().since(self.since);
            model.held(self.outcome, Some(waited));
        }
    }
}

impl Gateway {
    /// Waits until somebody can be asked, over all waits of a request no longer than `until`,
    /// which the first one sets. `None` where it may not wait. With `ask` somebody is looked for
    /// before it waits.
    pub(super) async fn hold(
        &self,
        trip: &Trip,
        attempt: &mut Attempt,
        until: &mut Option<Time>,
        ask: bool,
    ) -> Option<Found> {
        let (request, since) = (trip.asked.request(), self.clock.now());
        let hold = self.core().hold(&request, since);
        let place = match hold {
            Hold::Wait(place) => place,
            Hold::Full => {
                if let Some(model) = trip.model() {
                    model.held(HoldOutcome::Full, None);
                }
                return None;
            }
            Hold::Pointless => return None,
        };
        let until = *until.get_or_insert(place.until());
        if since >= until {
            return None;
        }
        attempt.again();
        let outcome = HoldOutcome::ClientGone;
        let mut waits = Waits { gateway: self, model: trip.model(), place, since, outcome };
        tracing::debug!(tokens = waits.place.tokens(), "A request waits for a worker.");
        let mut look = ask;
        loop {
            let woken = self.woken.notified();
            let mut woken = std::pin::pin!(woken);
            // From here on nothing is missed.
            woken.as_mut().enable();
            let now = self.clock.now();
            if std::mem::replace(&mut look, true) || now >= until {
                let (outcome, found) = match self.route(&request, attempt) {
                    Ok(route) => (HoldOutcome::Routed, Found::Route(Box::new(route))),
                    Err(refusal) if !is_absence(&refusal) => {
                        (HoldOutcome::Refused, Found::Refused(refusal))
                    }
                    Err(refusal) if now >= until => (HoldOutcome::Expired, Found::Refused(refusal)),
                    Err(_) => (HoldOutcome::ClientGone, Found::Draining),
                };
                if outcome != HoldOutcome::ClientGone {
                    waits.outcome = outcome;
                    return Some(found);
                }
            }
            tokio::select! {
                () = woken => {}
                () = tokio::time::sleep(until.since(now).min(LOOK_AGAIN)) => {}
                () = self.draining.cancelled() => {
                    waits.outcome = HoldOutcome::Draining;
                    return Some(Found::Draining);
                }
            }
        }
    }
}

/// Is it nobody's refusal, but that somebody is away? Who has just said that it stops is left alone
/// for a while before it is gone; who has said that it is full is there.
fn is_absence(refusal: &Refusal) -> bool {
    match refusal {
        Refusal::NoWorker { .. } => true,
        Refusal::Overloaded { reason, .. } => *reason == OverloadReason::Closed,
        Refusal::UnknownModel { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_full_is_there_and_who_takes_nothing_is_not() {
        let away = |reason: &OverloadReason| {
            let retry_after = Duration::from_secs(1);
            is_absence(&Refusal::Overloaded { reason: *reason, retry_after, value: 0, limit: 0 })
        };
        let all: Vec<_> = OverloadReason::ALL.into_iter().filter(away).collect();
        assert_eq!(all, [OverloadReason::Closed]);
    }
}
