//! Health URLs, each asked by a task of its own: one that never answers costs nobody else anything.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio_util::task::TaskTracker;

use super::fetch::{Client, FetchError};
use crate::config::{Service, Url};
use crate::slot::{CollectError, Now, Stop};

/// How long an answer may take: what `curl -m 3` gives it.
pub const DEADLINE: Duration = Duration::from_secs(3);

/// Failures in a row after which a service counts as not answering.
pub const TRIES: u32 = 3;

/// Bytes of an answer that are read; the rest is left.
const BODY_MAX: usize = 64 << 10;

/// What probes of one service found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// Status of the last answer; `None` where none came.
    pub status: Option<u16>,
    /// How long the last probe took.
    pub took: Duration,
    /// Why the last probe failed; `None` where it did not.
    pub failure: Option<String>,
    /// When it ended.
    pub at: Now,
    /// Failures in a row.
    pub failures: u32,
    /// When it last answered well.
    pub last_success: Option<Now>,
    /// When probing began.
    pub since: Now,
}

impl Probe {
    /// Whether the last one was answered with 2xx.
    #[must_use]
    pub const fn is_success(&self) -> bool {
        self.failure.is_none()
    }

    /// Whether a failure may still be the start of the service: it began, as far as is known, less
    /// than `start_up` ago and has not answered since.
    #[must_use]
    pub fn is_starting(&self, started: Option<Now>, start_up: Duration, now: Now) -> bool {
        let since = started.unwrap_or(self.since);
        let answered = self.last_success.is_some_and(|success| success.mono >= since.mono);
        !answered && now.since(since) < start_up
    }
}

/// Probes by the name of their service; a service is missing until its first one has ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProbeFacts(pub BTreeMap<String, Probe>);

/// Where the tasks leave what they found.
#[derive(Debug, Clone, Default)]
pub struct Probes {
    found: Arc<Mutex<ProbeFacts>>,
    any: bool,
}

impl Probes {
    /// Starts a task for each service that has a health URL.
    pub fn start(
        services: &[Service],
        client: &Client,
        interval: Duration,
        tasks: &TaskTracker,
        stop: &Stop,
    ) -> Self {
        let with_url = || services.iter().filter(|service| service.health_url.is_some());
        let probes = Self { found: Arc::default(), any: with_url().next().is_some() };
        for service in with_url() {
            let Some(url) = service.health_url.clone() else { continue };
            let (name, found) = (service.name.clone(), Arc::clone(&probes.found));
            let (client, stop) = (client.clone(), stop.clone());
            let work = async move {
                let mut track = Track { since: Now::read(), failures: 0, last_success: None };
                loop {
                    let probe = tokio::select! {
                        () = stop.stopped() => return,
                        probe = track.probe(&client, &url) => probe,
                    };
                    lock(&found).0.insert(name.clone(), probe);
                    tokio::select! {
                        () = stop.stopped() => return,
                        () = tokio::time::sleep(interval) => {}
                    }
                }
            };
            drop(tasks.spawn_local(work));
        }
        probes
    }

    /// What is known now.
    ///
    /// # Errors
    /// Unsupported where no service has a health URL.
    pub fn collect(&self) -> Result<ProbeFacts, CollectError> {
        if !self.any {
            return Err(CollectError::unsupported("no service has a health URL"));
        }
        Ok(lock(&self.found).clone())
    }
}

fn lock(found: &Mutex<ProbeFacts>) -> std::sync::MutexGuard<'_, ProbeFacts> {
    found.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What probes of one service share.
#[derive(Debug)]
struct Track {
    since: Now,
    failures: u32,
    last_success: Option<Now>,
}

impl Track {
    async fn probe(&mut self, client: &Client, url: &Url) -> Probe {
        let begun = Now::read();
        let result = client.get(url, DEADLINE, BODY_MAX).await.map(|answer| answer.status);
        self.ended(begun, Now::read(), &result)
    }

    fn ended(&mut self, begun: Now, at: Now, result: &Result<u16, FetchError>) -> Probe {
        let failure = match result {
            Ok(200..=299) => None,
            Ok(status @ 300..=399) => {
                Some(format!("it answered {status}, a redirect: give the URL it leads to"))
            }
            Ok(status) => Some(format!("it answered {status}")),
            Err(error) => Some(error.to_string()),
        };
        if failure.is_none() {
            (self.failures, self.last_success) = (0, Some(at));
        } else {
            self.failures = self.failures.saturating_add(1);
        }
        Probe {
            status: result.as_ref().ok().copied(),
            took: at.since(begun),
            failure,
            at,
            failures: self.failures,
            last_success: self.last_success,
            since: self.since,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn failures_in_a_row_are_counted_and_redirects_are_failures() {
        let start = Now::read();
        let mut track = Track { since: start, failures: 0, last_success: None };
        let mut probe = |after: u64, result: Result<u16, FetchError>| {
            let begun = start + SECOND * u32::try_from(after).expect("small");
            track.ended(begun, begun + SECOND, &result)
        };
        let first = probe(0, Ok(503));
        assert_eq!((first.status, first.failures, first.is_success()), (Some(503), 1, false));
        assert_eq!(first.took, SECOND);
        let moved = probe(1, Ok(302));
        assert!(moved.failure.as_ref().is_some_and(|why| why.contains("redirect")), "{moved:?}");
        let late = probe(2, Err(FetchError::Timeout(DEADLINE)));
        assert_eq!((late.status, late.failures), (None, 3));
        let well = probe(3, Ok(204));
        assert_eq!((well.failures, well.last_success), (0, Some(start + SECOND * 4)));
        assert_eq!(probe(4, Ok(500)).failures, 1);
    }

    #[test]
    fn a_start_may_take_its_time() {
        let start = Now::read();
        let probe = |last_success| Probe {
            status: None,
            took: SECOND,
            failure: Some("x".to_owned()),
            at: start,
            failures: 9,
            last_success,
            since: start,
        };
        let late = start + SECOND * 50;
        assert!(probe(None).is_starting(None, SECOND * 60, late));
        assert!(!probe(None).is_starting(None, SECOND * 60, start + SECOND * 61));
        // Once it has answered, a failure is one.
        assert!(!probe(Some(start + SECOND)).is_starting(None, SECOND * 60, late));
        // Until it is started again.
        let again = Some(start + SECOND * 40);
        assert!(probe(Some(start + SECOND)).is_starting(again, SECOND * 60, late));
        assert!(!probe(Some(start + SECOND * 45)).is_starting(again, SECOND * 60, late));
    }
}
