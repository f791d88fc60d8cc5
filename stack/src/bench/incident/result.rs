//! What came of a run, and whether it is what was promised. All times are in the incident's time,
//! but for how long refusals took.

use std::time::Duration;

use metric_catalog::labels::{TransferFailure, TransferResult, TransferSide};

use super::args::{Limits, Script};
use super::clients::{End, Visit};
use super::watch::{AlertLog, Counted};

/// The alert that says it in time.
pub(super) const CAUSE: &str = "PrefillQueueDrainCritical";
/// Alerts that a service with bounds may have under such a load: it says so, and nobody is called.
pub(super) const ALLOWED: [&str; 2] = ["QueueNearLimit", "RequestsRejected"];
/// The alert comes at least so many seconds before the first client gives up.
const WARNING: f64 = 10.0;
/// A pile-up is more than this much work.
const PILE_UP: f64 = 60.0;
/// A refusal is an answer, and takes no longer than this on any machine.
const REFUSAL_MAX: Duration = Duration::from_millis(50);

/// Nearest-rank quantiles of some times.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Times(Vec<Duration>);

impl Times {
    pub(super) fn new(times: impl IntoIterator<Item = Duration>) -> Self {
        let mut times: Vec<Duration> = times.into_iter().collect();
        times.sort_unstable();
        Self(times)
    }

    /// `None` where there is none.
    pub(super) fn quantile(&self, quantile: f64) -> Option<Duration> {
        let rank = (quantile * self.0.len() as f64).ceil() as usize;
        self.0.get(rank.max(1) - 1).copied()
    }

    pub(super) fn max(&self) -> Option<Duration> {
        self.0.last().copied()
    }
}

/// One run.
#[derive(Debug, Clone)]
pub(super) struct Report {
    pub(super) limits: Limits,
    pub(super) objective: Duration,
    pub(super) asked: usize,
    pub(super) answered: usize,
    pub(super) gave_up: usize,
    pub(super) failed: usize,
    /// An example of what failed.
    pub(super) failure: Option<String>,
    pub(super) unfinished: usize,
    /// From the attempt that was admitted to the first token.
    pub(super) ttft: Times,
    /// From the first attempt to the first token.
    pub(super) wait: Times,
    /// Attempts that were refused.
    pub(super) refusals: usize,
    pub(super) refusals_without_retry_after: usize,
    pub(super) refusals_not_429: usize,
    /// As measured, whatever the scale.
    pub(super) refusal: Times,
    /// Requests with a refused attempt, and those of them that got in.
    pub(super) sent_away: usize,
    pub(super) got_in: usize,
    pub(super) attempts_max: usize,
    /// When the first client gave up; seconds since the crowd came.
    pub(super) first_gave_up: Option<f64>,
    /// When the crowd came; seconds since the start, which alerts count from.
    pub(super) crowd: f64,
    /// How long it asked, in seconds.
    pub(super) pressure: f64,
    pub(super) counted: Counted,
    /// Prompt tokens by busy second, as the machine had them.
    pub(super) capacity: f64,
    /// Computed prompt tokens that are in no answer.
    pub(super) wasted: f64,
    pub(super) alerts: AlertLog,
}

/// Something that a run shows, or does not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Promise {
    pub(super) what: String,
    pub(super) holds: bool,
    /// What was found.
    pub(super) found: String,
}

impl Report {
    pub(super) fn new(
        limits: Limits,
        script: &Script,
        (calm, crowd): (&[Visit], &[Visit]),
        came: f64,
        (counted, alerts): (Counted, AlertLog),
    ) -> Self {
        let told = |time: Duration| script.told(time);
        let count = |end: &End| crowd.iter().filter(|visit| visit.ended == *end).count();
        let failure = |visit: &Visit| match &visit.ended {
            End::Failed(how) => Some(how.clone()),
            End::Answered | End::GaveUp | End::Unfinished => None,
        };
        let refusals = || crowd.iter().flat_map(|visit| &visit.refusals);
        let sent_away = || crowd.iter().filter(|visit| !visit.refusals.is_empty());
        let given_up = crowd.iter().filter(|visit| visit.ended == End::GaveUp);
        let used = calm.iter().chain(crowd).filter(|visit| visit.ended == End::Answered);
        let used: u64 = used.map(|visit| visit.prompt_tokens).sum();
        Self {
            limits,
            objective: told(script.objective),
            asked: crowd.len(),
            answered: count(&End::Answered),
            gave_up: count(&End::GaveUp),
            failed: crowd.iter().filter_map(failure).count(),
            failure: crowd.iter().find_map(failure),
            unfinished: count(&End::Unfinished),
            ttft: Times::new(crowd.iter().filter_map(Visit::ttft).map(told)),
            wait: Times::new(crowd.iter().filter_map(Visit::wait).map(told)),
            refusals: refusals().count(),
            refusals_without_retry_after: refusals().filter(|r| r.retry_after.is_none()).count(),
            refusals_not_429: refusals().filter(|refused| refused.status != 429).count(),
            refusal: Times::new(refusals().map(|refused| refused.took)),
            sent_away: sent_away().count(),
            got_in: sent_away().filter(|visit| visit.first.is_some()).count(),
            attempts_max: crowd.iter().map(|visit| visit.refusals.len() + 1).max().unwrap_or(0),
            first_gave_up: given_up.map(|visit| told(visit.end).as_secs_f64()).reduce(f64::min),
            crowd: came,
            pressure: told(script.duration).as_secs_f64(),
            capacity: counted.capacity * script.scale,
            wasted: (counted.computed - used as f64).max(0.0),
            counted,
            alerts,
        }
    }

    /// Share of what the prefill worker computed that nobody got.
    pub(super) fn waste(&self) -> f64 {
        if self.counted.computed > 0.0 { self.wasted / self.counted.computed } else { 0.0 }
    }

    /// When an alert fired first; seconds since the crowd came.
    pub(super) fn fired(&self, alert: &str) -> Option<f64> {
        self.alerts.first(alert).map(|seconds| seconds - self.crowd)
    }

    /// Transfers that the prefill worker saw end with `peer_abort`.
    pub(super) fn peer_aborts(&self) -> f64 {
        self.counted.failures(TransferSide::Send, TransferFailure::PeerAbort)
    }

    /// Transfers as the prefill worker saw them end.
    pub(super) fn transfers(&self, result: TransferResult) -> f64 {
        self.counted.transfers.get(result.as_str()).copied().unwrap_or(0.0)
    }

    /// What somebody would have been called for, a name for each page: while clients asked, and
    /// after that, when causes end and what they muted goes on for the windows of its rates.
    pub(super) fn pages(&self) -> (Vec<&str>, Vec<&str>) {
        let of = |late: bool| {
            let pages = self.alerts.pages.iter();
            let pages = pages.filter(|(_, at)| (**at - self.crowd > self.pressure) == late);
            pages.map(|((name, _), _)| name.as_str()).collect()
        };
        (of(false), of(true))
    }

    /// What this run is to show.
    pub(super) fn promises(&self) -> Vec<Promise> {
        match self.limits {
            Limits::Off => self.pile_up(),
            Limits::Default => self.containment(),
        }
    }

    fn pile_up(&self) -> Vec<Promise> {
        let drain = self.counted.drain_max;
        let lead = self.first_gave_up.zip(self.fired(CAUSE)).map(|(left, fired)| left - fired);
        let (pages, _) = self.pages();
        vec![
            promise(
                format!("more than {PILE_UP} s of prefill work waits"),
                drain > PILE_UP,
                format!("{drain:.0} s"),
            ),
            promise("clients give up", self.gave_up > 0, self.gave_up),
            promise("transfers end with peer_abort", self.peer_aborts() > 0.0, self.peer_aborts()),
            promise(
                format!("{CAUSE} fires {WARNING} s or more before the first client gives up"),
                lead.is_some_and(|lead| lead >= WARNING),
                lead.map_or("it did not".to_owned(), |lead| format!("{lead:.0} s")),
            ),
            promise(
                format!("exactly one page goes out while clients ask, for {CAUSE}"),
                pages == [CAUSE],
                if pages.is_empty() { "none".to_owned() } else { pages.join(", ") },
            ),
        ]
    }

    fn containment(&self) -> Vec<Promise> {
        let seconds = |time: Option<Duration>| {
            time.map_or("none".to_owned(), |time| format!("{:.1} s", time.as_secs_f64()))
        };
        let (ttft, refusal) = (self.ttft.quantile(0.99), self.refusal.max());
        let lost = self.gave_up + self.failed + self.unfinished;
        // What comes after the clients have gone is that they have gone.
        let asking = |(_, at): &(&str, f64)| at - self.crowd <= self.pressure;
        let others = self.alerts.names().into_iter().filter(asking).map(|(name, _)| name);
        let others: Vec<&str> = others.filter(|name| !ALLOWED.contains(name)).collect();
        let (errors, given_up) = (self.counted.errors(), self.counted.given_up());
        vec![
            promise(
                format!(
                    "p99 of the time to first token is at most {:.0} s",
                    self.objective.as_secs_f64()
                ),
                ttft.is_some_and(|ttft| ttft <= self.objective),
                seconds(ttft),
            ),
            promise(
                format!("refusals take less than {} ms", REFUSAL_MAX.as_millis()),
                refusal.is_none_or(|refusal| refusal < REFUSAL_MAX),
                refusal.map_or("none".to_owned(), |time| {
                    format!("{:.1} ms at most", time.as_secs_f64() * 1e3)
                }),
            ),
            promise(
                "each refusal is a 429 with Retry-After",
                self.refusals_without_retry_after + self.refusals_not_429 == 0,
                format!(
                    "{} without, {} of another status",
                    self.refusals_without_retry_after, self.refusals_not_429
                ),
            ),
            promise("no transfer fails", errors == 0.0, errors),
            promise("nothing is aborted", given_up + self.counted.aborted == 0.0, {
                format!("{given_up} transfers, {} requests", self.counted.aborted)
            }),
            promise("nobody gives up, and no request fails", lost == 0, lost),
            promise(
                "a client that comes back when it was told to gets in",
                self.got_in == self.sent_away,
                format!("{} of {}", self.got_in, self.sent_away),
            ),
            promise(
                format!("no alert fires while clients ask but {}", ALLOWED.join(", ")),
                others.is_empty(),
                if others.is_empty() { "none".to_owned() } else { others.join(", ") },
            ),
        ]
    }
}

fn promise(what: impl Into<String>, holds: bool, found: impl ToString) -> Promise {
    Promise { what: what.into(), holds, found: found.to_string() }
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::bench::incident::clients::Refused;

    pub(in crate::bench::incident) fn script() -> Script {
        Script {
            scale: 10.0,
            seed: 1,
            clients: 20,
            prompt_tokens: 1500,
            output_tokens: 6,
            rate: 3300.0,
            patience: Duration::from_secs(6),
            objective: Duration::from_secs(3),
            calm: Duration::from_millis(4500),
            calm_pause: Duration::from_millis(200),
            duration: Duration::from_secs(18),
            decode_step: Duration::from_millis(2),
        }
    }

    /// A request at once that ended so after `ms`.
    fn visit(ms: u64, ended: End) -> Visit {
        let end = Duration::from_millis(ms);
        let first = (ended == End::Answered).then_some(end);
        let (asked, sent) = (Duration::ZERO, Duration::ZERO);
        Visit { asked, sent, first, end, ended, prompt_tokens: 1500, refusals: Vec::new() }
    }

    fn refused(ms: u64, retry_after: Option<u64>) -> Refused {
        let reason = "drain_time".to_owned();
        let retry_after = retry_after.map(Duration::from_secs);
        Refused { took: Duration::from_millis(ms), status: 429, reason, retry_after }
    }

    fn fired(names: &[(&str, f64, bool)]) -> AlertLog {
        let mut log = AlertLog::default();
        for (name, seconds, pages) in names {
            let key = ((*name).to_owned(), String::new());
            log.fired.insert(key.clone(), *seconds);
            if *pages {
                log.pages.insert(key, *seconds);
            }
        }
        log
    }

    fn counted(drain_max: f64, failures: &[(&str, &str, f64)]) -> Counted {
        let key =
            |(side, why, n): &(&str, &str, f64)| (((*side).to_owned(), (*why).to_owned()), *n);
        let failures: BTreeMap<_, _> = failures.iter().map(key).collect();
        Counted { drain_max, computed: 6000.0, failures, ..Counted::default() }
    }

    pub(in crate::bench::incident) fn piled_up() -> Report {
        let crowd = [visit(500, End::Answered), visit(6000, End::GaveUp)];
        let alerts = [(CAUSE, 87.0, true), ("AbortCascade", 130.0, false)];
        let seen = (counted(85.0, &[("send", "peer_abort", 1.0)]), fired(&alerts));
        Report::new(Limits::Off, &script(), (&[visit(0, End::Answered)], &crowd), 45.0, seen)
    }

    pub(in crate::bench::incident) fn contained() -> Report {
        let mut late = visit(5000, End::Answered);
        late.sent = Duration::from_millis(2500);
        late.refusals = vec![refused(3, Some(2)), refused(12, Some(1))];
        let crowd = [visit(1000, End::Answered), late];
        let seen = (counted(29.0, &[]), fired(&[("RequestsRejected", 200.0, false)]));
        Report::new(Limits::Default, &script(), (&[], &crowd), 45.0, seen)
    }

    fn unmet(report: &Report) -> Vec<String> {
        let unmet = report.promises().into_iter().filter(|promise| !promise.holds);
        unmet.map(|promise| format!("{}: {}", promise.what, promise.found)).collect()
    }

    #[test]
    fn times_are_told_as_the_incident_had_them_but_for_refusals() {
        let report = contained();
        assert_eq!(report.objective, Duration::from_secs(30));
        assert_eq!(report.ttft.max(), Some(Duration::from_secs(25)));
        assert_eq!(report.wait.max(), Some(Duration::from_secs(50)));
        assert_eq!(report.refusal.max(), Some(Duration::from_millis(12)));
        assert_eq!((report.refusals, report.sent_away, report.got_in), (2, 1, 1));
        assert_eq!(report.attempts_max, 3);
        let report = piled_up();
        assert_eq!(report.first_gave_up, Some(60.0));
        assert_eq!(report.fired(CAUSE), Some(42.0));
        assert_eq!(report.waste(), 0.5, "two prompts of four");
    }

    #[test]
    fn a_pile_up_is_recognised() {
        assert_eq!(unmet(&piled_up()), [""; 0]);
        let mut short = piled_up();
        short.counted.drain_max = 59.0;
        short.gave_up = 0;
        short.counted.failures.clear();
        assert_eq!(unmet(&short).len(), 3);
        let mut late = piled_up();
        late.alerts = fired(&[(CAUSE, 96.0, true)]);
        assert_eq!(unmet(&late).len(), 1, "nine seconds are too few");
        let mut after = piled_up();
        after.alerts = fired(&[(CAUSE, 87.0, true), ("AbortCascade", 226.0, true)]);
        assert_eq!(unmet(&after), [""; 0], "the crowd asked from 45 s to 225 s");
        assert_eq!(after.pages(), (vec![CAUSE], vec!["AbortCascade"]));
        let mut loud = piled_up();
        loud.alerts = fired(&[(CAUSE, 87.0, true), ("AbortCascade", 130.0, true)]);
        assert!(unmet(&loud)[0].ends_with("AbortCascade, PrefillQueueDrainCritical"));
        loud.alerts = AlertLog::default();
        assert_eq!(unmet(&loud).len(), 2, "no page, and no warning");
    }

    #[test]
    fn each_promise_of_bounds_can_be_broken() {
        assert_eq!(unmet(&contained()), [""; 0]);
        type Breaking = (&'static str, fn(&mut Report));
        let broken: [Breaking; 10] = [
            ("time to first token", |r| r.ttft = Times::new([Duration::from_millis(30_001)])),
            ("refusals take", |r| r.refusal = Times::new([REFUSAL_MAX])),
            ("Retry-After", |r| r.refusals_without_retry_after = 1),
            ("Retry-After", |r| r.refusals_not_429 = 1),
            ("no transfer fails", |r| r.counted = counted(9.0, &[("recv", "checksum", 1.0)])),
            ("nothing is aborted", |r| r.counted = counted(9.0, &[("send", "peer_abort", 1.0)])),
            ("nothing is aborted", |r| r.counted.aborted = 1.0),
            ("nobody gives up", |r| r.gave_up = 1),
            ("comes back", |r| r.got_in = 0),
            ("no alert fires while", |r| r.alerts = fired(&[("KVTransferStuck", 9.0, false)])),
        ];
        for (what, change) in broken {
            let mut report = contained();
            change(&mut report);
            let unmet = unmet(&report);
            assert!(unmet.len() == 1 && unmet[0].contains(what), "{what}: {unmet:?}");
        }
    }

    #[test]
    fn quantiles_are_by_nearest_rank() {
        let times = Times::new((1..=200).map(Duration::from_secs));
        assert_eq!(times.quantile(0.99), Some(Duration::from_secs(198)));
        assert_eq!(times.quantile(0.5), Some(Duration::from_secs(100)));
        let few = Times::new([3, 1, 2].map(Duration::from_secs));
        assert_eq!((few.quantile(0.99), few.quantile(0.0)), (few.max(), few.quantile(0.1)));
        assert_eq!(Times::default().quantile(0.5), None);
    }
}
