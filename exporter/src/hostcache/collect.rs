//! Collects the sizes of every service, each source of each service on its own: a page by a task, a
//! journal by a task, files by a thread. One that hangs is missing, and costs nobody else anything.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio_util::task::TaskTracker;

use super::expo::PAGE_MAX;
use super::follow::{Follower, STEP, read_whole};
use super::journal::Journal;
use super::start_log::StartLog;
use super::{Cache, CacheSource, ours, plan_file};
use crate::config::{Config, LogSource, Service, Url};
use crate::facts::Slots;
use crate::service::fetch::Client;
use crate::service::restarts::Restarts;
use crate::service::unit::UnitFacts;
use crate::slot::{CollectError, ErrorKind, FRESH_INTERVALS, Now, Slot, Stop, run_async};

/// How long a page of metrics may take.
const DEADLINE: Duration = Duration::from_secs(3);

/// Stack of a thread that reads files.
const STACK_BYTES: usize = 256 << 10;

/// What is known of the host tiers of services, by name; one is missing for which no source is
/// configured.
#[derive(Debug, Clone, Default)]
pub struct CacheFacts(pub BTreeMap<String, Found>);

/// What is known of the host tier of one service.
#[derive(Debug, Clone, Default)]
pub struct Found {
    /// Sizes from the best source that has any.
    pub cache: Option<Cache>,
    /// When its process started, as its page says, in seconds since 1970.
    pub started: Option<f64>,
    /// Restarts as its page shows them.
    pub restarts: Restarts,
    /// Why better sources, or all of them, say nothing.
    pub problems: Vec<(CacheSource, CollectError)>,
}

/// Where one source leaves what it read last.
type Place<T> = Arc<Mutex<Option<(Now, Result<T, CollectError>)>>>;

fn put<T>(place: &Place<T>, result: Result<T, CollectError>) {
    *place.lock().unwrap_or_else(PoisonError::into_inner) = Some((Now::read(), result));
}

/// What a source read last. Nothing before it first has, and an error for what is too old.
fn take<T: Clone>(place: &Place<T>, oldest: Duration) -> Option<Result<T, CollectError>> {
    let place = place.lock().unwrap_or_else(PoisonError::into_inner);
    let (at, result) = place.as_ref()?;
    let age = Now::read().since(*at);
    let late = || CollectError::new(ErrorKind::Timeout, format!("nothing new for {age:?}"));
    Some(if age > oldest { Err(late()) } else { result.clone() })
}

/// The sources of one service.
#[derive(Debug, Clone)]
struct Sources {
    name: String,
    page: Option<Place<ours::Page>>,
    log: Option<Place<Cache>>,
    plan: Option<Place<Cache>>,
}

/// Starts the collector.
///
/// # Errors
/// The system gives no thread.
pub fn start(
    config: &Config,
    slots: &Slots,
    client: &Client,
    tasks: &TaskTracker,
    stop: &Stop,
) -> io::Result<()> {
    let interval = slots.hostcache.interval();
    let starter = Starter { interval, client, tasks, stop, units: &slots.systemd, config };
    let sources = config.services.iter().map(|service| starter.service(service));
    let sources: Vec<Sources> = sources.collect::<io::Result<_>>()?;
    let mut remembered = BTreeMap::new();
    let oldest = (interval * FRESH_INTERVALS).max(DEADLINE * 2);
    let (slot, units) = (slots.hostcache.clone(), slots.systemd.clone());
    let mut said = BTreeMap::new();
    let gather = async move || {
        let found = gather(&sources, &mut remembered, oldest)?;
        let units = units.view(Now::read()).facts;
        let is_down = |name: &str| {
            let unit = units.as_ref().and_then(|units| units.unit(name));
            unit.is_some_and(|unit| unit.is_running() == Some(false))
        };
        // A better source that fails while another answers is no failure, nor is one of a service
        // that does not run.
        for (name, found) in &found.0 {
            found.say(name, &mut said);
            if found.cache.is_none() && !is_down(name) {
                let failed = |error: &&CollectError| matches!(error, CollectError::Failed { .. });
                let first = found.problems.iter().map(|(_, error)| error).find(failed);
                first.into_iter().for_each(|error| slot.incomplete(error.clone()));
            }
        }
        Ok(found)
    };
    run_async(slots.hostcache.clone(), tasks, stop.clone(), interval, gather);
    Ok(())
}

/// What starting the sources of a service takes.
struct Starter<'a> {
    interval: Duration,
    client: &'a Client,
    tasks: &'a TaskTracker,
    stop: &'a Stop,
    units: &'a Slot<UnitFacts>,
    config: &'a Config,
}

impl Starter<'_> {
    fn service(&self, service: &Service) -> io::Result<Sources> {
        let page = service.metrics_url.as_ref().map(|url| self.page(url.clone()));
        let mut log = None;
        let mut follower = None;
        match &service.log {
            Some(LogSource::Journal(unit)) => {
                let place = Place::default();
                self.journal(&service.name, unit, &place);
                log = Some(place);
            }
            Some(LogSource::File(path)) => {
                let place = Place::default();
                let path = self.config.paths.on_host(path);
                follower = Some((Follower::new(path), Arc::clone(&place)));
                log = Some(place);
            }
            None => {}
        }
        let plan =
            service.plan.as_ref().map(|path| (self.config.paths.on_host(path), Place::default()));
        let plan_place = plan.as_ref().map(|(_, place)| Arc::clone(place));
        if follower.is_some() || plan.is_some() {
            let (stop, interval) = (self.stop.clone(), self.interval);
            let thread = std::thread::Builder::new().name("hostcache-files".to_owned());
            // Never joined: a file may hang.
            drop(thread.stack_size(STACK_BYTES).spawn(move || {
                loop {
                    if let Some((follower, place)) = &mut follower {
                        put(place, of_log(follower.step(STEP)));
                    }
                    if let Some((path, place)) = &plan {
                        put(place, of_plan(path));
                    }
                    if stop.wait(interval) {
                        return;
                    }
                }
            })?);
        }
        Ok(Sources { name: service.name.clone(), page, log, plan: plan_place })
    }

    fn page(&self, url: Url) -> Place<ours::Page> {
        let place = Place::default();
        let (client, stop, interval) = (self.client.clone(), self.stop.clone(), self.interval);
        let left = Arc::clone(&place);
        let work = async move {
            loop {
                let page = tokio::select! {
                    () = stop.stopped() => return,
                    page = fetch(&client, &url) => page,
                };
                put(&left, page);
                tokio::select! {
                    () = stop.stopped() => return,
                    () = tokio::time::sleep(interval) => {}
                }
            }
        };
        drop(self.tasks.spawn_local(work));
        place
    }

    fn journal(&self, service: &str, unit: &str, place: &Place<Cache>) {
        let (stop, interval, units) = (self.stop.clone(), self.interval, self.units.clone());
        let (service, left) = (service.to_owned(), Arc::clone(place));
        let mut journal = Journal::new(unit.to_owned());
        let work = async move {
            loop {
                let cache = tokio::select! {
                    () = stop.stopped() => return,
                    cache = of_journal(&mut journal, &units, &service) => cache,
                };
                put(&left, cache);
                tokio::select! {
                    () = stop.stopped() => return,
                    () = tokio::time::sleep(interval) => {}
                }
            }
        };
        drop(self.tasks.spawn_local(work));
    }
}

async fn fetch(client: &Client, url: &Url) -> Result<ours::Page, CollectError> {
    let failed = |kind, why: String| CollectError::new(kind, format!("{url}: {why}"));
    let answer = client.get(url, DEADLINE, PAGE_MAX).await;
    let answer = answer.map_err(|error| failed(error.kind(), error.to_string()))?;
    if answer.status != 200 {
        return Err(failed(ErrorKind::Protocol, format!("it answered {}", answer.status)));
    }
    if answer.cut {
        return Err(failed(ErrorKind::Malformed, format!("more than {PAGE_MAX} bytes")));
    }
    let malformed = |why: String| failed(ErrorKind::Malformed, why);
    let text = str::from_utf8(&answer.body).map_err(|error| malformed(error.to_string()))?;
    ours::read(text).map_err(|error| malformed(error.to_string()))
}

fn of_log(log: Result<Option<&StartLog>, CollectError>) -> Result<Cache, CollectError> {
    let missing = |why: &str| CollectError::new(ErrorKind::Missing, format!("the log: {why}"));
    let log = log?.ok_or_else(|| missing("it is long, and still being read"))?;
    log.cache().ok_or_else(|| missing(log.why_not()))
}

async fn of_journal(
    journal: &mut Journal,
    units: &Slot<UnitFacts>,
    service: &str,
) -> Result<Cache, CollectError> {
    let units = units.view(Now::read()).facts;
    let unit = units.as_ref().and_then(|units| units.unit(service));
    let invocation = unit.and_then(|unit| unit.invocation.as_deref()).ok_or_else(|| {
        let detail = "the journal: which start of the unit is meant is not known";
        CollectError::new(ErrorKind::Missing, detail)
    })?;
    of_log(journal.step(invocation).await.map(Some))
}

fn of_plan(path: &std::path::Path) -> Result<Cache, CollectError> {
    let text = read_whole(path, plan_file::FILE_MAX)?;
    plan_file::read(&text).map_err(|error| {
        CollectError::new(ErrorKind::Malformed, format!("{}: {error}", path.display()))
    })
}

/// The best of what all sources say now.
fn gather(
    services: &[Sources],
    remembered: &mut BTreeMap<String, Restarts>,
    oldest: Duration,
) -> Result<CacheFacts, CollectError> {
    let mut facts = BTreeMap::new();
    for service in services {
        if service.page.is_none() && service.log.is_none() && service.plan.is_none() {
            continue;
        }
        let mut found = Found::default();
        let restarts = remembered.entry(service.name.clone()).or_default();
        match service.page.as_ref().and_then(|page| take(page, oldest)) {
            Some(Ok(page)) => {
                if let Some(time) = page.started {
                    restarts.started(time, Now::read());
                }
                found.started = page.started;
                found.consider(CacheSource::Metrics, page.cache.ok_or_else(foreign));
            }
            Some(Err(error)) => found.problems.push((CacheSource::Metrics, error)),
            None => {}
        }
        found.restarts = restarts.clone();
        for (source, place) in
            [(CacheSource::Log, &service.log), (CacheSource::Plan, &service.plan)]
        {
            if found.cache.is_some() {
                break;
            }
            if let Some(result) = place.as_ref().and_then(|place| take(place, oldest)) {
                found.consider(source, result);
            }
        }
        facts.insert(service.name.clone(), found);
    }
    if facts.is_empty() {
        return Err(CollectError::unsupported("no service has metrics, a log or a plan"));
    }
    Ok(CacheFacts(facts))
}

fn foreign() -> CollectError {
    CollectError::unsupported("the page has no sizes of a host tier; give a log or a plan")
}

impl Found {
    /// Logs once from which source sizes of a service come now, and why not from a better one.
    fn say(&self, name: &str, said: &mut BTreeMap<String, Option<CacheSource>>) {
        let source = self.cache.as_ref().map(|cache| cache.source);
        // Nothing was read yet: that is the start, and no news.
        if said.get(name) == Some(&source) || (source.is_none() && self.problems.is_empty()) {
            return;
        }
        said.insert(name.to_owned(), source);
        let why: Vec<String> = self.problems.iter().map(|(_, error)| error.to_string()).collect();
        let source = source.map_or("none", CacheSource::as_str);
        tracing::info!(service = name, source, why = why.join("; "), "Sizes of a host cache.");
    }

    fn consider(&mut self, source: CacheSource, result: Result<Cache, CollectError>) {
        match result {
            Ok(cache) => self.cache = Some(cache),
            Err(error) => self.problems.push((source, error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hostcache::Pools;

    const SECOND: Duration = Duration::from_secs(1);

    fn cache(source: CacheSource) -> Cache {
        let pools = Pools::default();
        Cache { source, pools, ratio: None, unit_bytes: None, target: None, placed: None }
    }

    fn place<T>(result: Result<T, CollectError>) -> Option<Place<T>> {
        let place = Place::default();
        put(&place, result);
        Some(place)
    }

    fn bad() -> CollectError {
        CollectError::new(ErrorKind::Gone, "x")
    }

    fn sources() -> Sources {
        let page = ours::Page { started: Some(9.0), cache: Some(cache(CacheSource::Metrics)) };
        Sources {
            name: "a".to_owned(),
            page: place(Ok(page)),
            log: place(Ok(cache(CacheSource::Log))),
            plan: place(Ok(cache(CacheSource::Plan))),
        }
    }

    fn best(sources: Sources) -> (Option<CacheSource>, Vec<CacheSource>) {
        let facts = gather(&[sources], &mut BTreeMap::new(), SECOND * 60).expect("facts");
        let found = &facts.0["a"];
        let problems = found.problems.iter().map(|(source, _)| *source).collect();
        (found.cache.as_ref().map(|cache| cache.source), problems)
    }

    #[test]
    fn one_source_at_a_time_the_best_that_has_it() {
        use CacheSource::{Log, Metrics, Plan};
        assert_eq!(best(sources()), (Some(Metrics), vec![]));
        let foreign = Ok(ours::Page { started: None, cache: None });
        assert_eq!(best(Sources { page: place(foreign), ..sources() }), (Some(Log), vec![Metrics]));
        let down = || Sources { page: place(Err(bad())), ..sources() };
        assert_eq!(best(down()), (Some(Log), vec![Metrics]));
        let quiet = || Sources { log: place(Err(bad())), ..down() };
        assert_eq!(best(quiet()), (Some(Plan), vec![Metrics, Log]));
        let nothing = Sources { plan: place(Err(bad())), ..quiet() };
        assert_eq!(best(nothing), (None, vec![Metrics, Log, Plan]));
        // One that has not read anything yet is no problem.
        assert_eq!(
            best(Sources { page: Some(Place::default()), ..sources() }),
            (Some(Log), vec![])
        );
    }

    #[test]
    fn a_source_that_hangs_is_too_old_after_a_while() {
        let place = place(Ok(1)).expect("a place");
        assert!(matches!(take(&place, SECOND * 60), Some(Ok(1))));
        let error = take(&place, Duration::ZERO).expect("something").expect_err("too old");
        assert!(error.to_string().contains("timeout"), "{error}");
        assert!(take(&Place::<u32>::default(), SECOND).is_none());
    }

    #[test]
    fn a_start_time_that_moves_is_a_restart() {
        let mut remembered = BTreeMap::new();
        let started = |time| {
            let page = ours::Page { started: Some(time), cache: None };
            Sources { page: place(Ok(page)), log: None, plan: None, ..sources() }
        };
        let seen: Vec<u64> = [100.0, 100.0, 160.0, 220.0]
            .map(|time| {
                let facts = gather(&[started(time)], &mut remembered, SECOND * 60).expect("facts");
                facts.0["a"].restarts.seen()
            })
            .to_vec();
        assert_eq!(seen, [0, 0, 1, 2]);
    }

    #[test]
    fn without_sources_there_is_nothing_to_collect() {
        let bare = Sources { page: None, log: None, plan: None, ..sources() };
        let result = gather(&[bare], &mut BTreeMap::new(), SECOND);
        assert!(matches!(result, Err(CollectError::Unsupported(_))), "{result:?}");
    }
}
