//! Keeps the list of workers: runs the sources, starts and ends what belongs to one worker.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use types::Time;

use super::discovery::dns::{self, Group};
use super::discovery::file::Watched;
use super::{Gateway, poll, upstream::Upstream};
use crate::worker::{EventKind, Source, WorkerName, WorkerSpec};

/// Between two looks at a file.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How long a name server may take.
const RESOLVE_TIME: Duration = Duration::from_secs(5);

/// Whatever events were missed, every list is told anew after so long.
const RELIST_EVERY: Duration = Duration::from_secs(60);

/// What became of the last look at a source.
#[derive(Debug, Default)]
pub(super) struct Discovered {
    pub(super) sources: HashMap<Source, Look>,
}

/// Looks at one source.
#[derive(Debug, Clone, Default)]
pub(super) struct Look {
    /// Workers on its last good list.
    pub(super) listed: usize,
    /// When that was.
    pub(super) good: Option<Time>,
    /// Looks that gave no list.
    pub(super) failures: u64,
    /// Why the last look gave none, where it did not.
    pub(super) error: Option<String>,
}

/// The tasks of workers, each ended when its worker leaves.
struct Keeper {
    gateway: Arc<Gateway>,
    tasks: TaskTracker,
    stop: CancellationToken,
    workers: HashMap<WorkerName, CancellationToken>,
}

/// Runs until `stop`.
pub(super) async fn run(gateway: Arc<Gateway>, stop: CancellationToken) {
    let settings = &gateway.settings;
    let mut keeper = Keeper {
        gateway: Arc::clone(&gateway),
        tasks: TaskTracker::new(),
        stop: stop.clone(),
        workers: HashMap::new(),
    };
    let mut file = settings.file.clone().map(Watched::new);
    let mut names = Names::new(settings.groups.clone());
    let mut look = ticks(LOOK_EVERY);
    let mut resolve = ticks(settings.resolve_every);
    let mut again = ticks(RELIST_EVERY);
    let mut tidy = ticks(Duration::from_secs(10));
    gateway.say_readiness();
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            _ = again.tick() => {
                if !settings.workers.is_empty() {
                    keeper.list(Source::Flags, settings.workers.clone());
                }
                if file.is_some() {
                    file = keeper.read(file, true).await;
                }
            }
            _ = look.tick(), if file.is_some() => file = keeper.read(file, false).await,
            _ = resolve.tick(), if !settings.groups.is_empty() => {
                let (workers, errors) = names.resolve().await;
                if !workers.is_empty() || errors.is_empty() {
                    keeper.list(Source::Dns, workers);
                }
                errors.into_iter().for_each(|error| keeper.complain(Source::Dns, error));
            }
            _ = tidy.tick() => gateway.tidy(),
        }
    }
    keeper.workers.values().for_each(CancellationToken::cancel);
    keeper.tasks.close();
    keeper.tasks.wait().await;
}

fn ticks(every: Duration) -> tokio::time::Interval {
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

impl Keeper {
    /// Looks at the file, where it may block.
    async fn read(&mut self, file: Option<Watched>, again: bool) -> Option<Watched> {
        let mut file = file?;
        let path: PathBuf = file.path().to_owned();
        let looked = tokio::task::spawn_blocking(move || {
            let changed = file.changed(again);
            (file, changed)
        });
        match looked.await {
            Ok((file, changed)) => {
                match changed {
                    Ok(None) => {}
                    Ok(Some(workers)) => self.list(Source::File, workers),
                    Err(error) => {
                        self.complain(Source::File, format!("{}: {error}", path.display()));
                    }
                }
                Some(file)
            }
            Err(error) => {
                tracing::error!(%error, "The file of workers could not be looked at.");
                Some(Watched::new(path))
            }
        }
    }

    /// A look at a source gave no list: it keeps the one it had.
    fn complain(&mut self, source: Source, error: String) {
        let mut discovered = self.gateway.discovered();
        let look = discovered.sources.entry(source).or_default();
        look.failures += 1;
        // A name server that is down is told of once, not every few seconds.
        if look.error.as_ref() != Some(&error) {
            tracing::warn!(
                source = source.as_str(),
                kept = look.listed,
                "A list of workers cannot be used and the last one is kept: {error}."
            );
        }
        look.error = Some(error);
    }

    /// A source has told its list.
    fn list(&mut self, source: Source, workers: Vec<WorkerSpec>) {
        let gateway = Arc::clone(&self.gateway);
        let now = gateway.clock.now();
        let told = gateway.core().relist(source, &workers);
        let events = match told {
            Ok(events) => events,
            Err(error) => return self.complain(source, error.to_string()),
        };
        let mut discovered = gateway.discovered();
        let look = discovered.sources.entry(source).or_default();
        (look.listed, look.good, look.error) = (workers.len(), Some(now), None);
        drop(discovered);
        for event in &events {
            match event.kind {
                EventKind::Joined => self.join(&event.name, event.role),
                EventKind::Left => self.leave(&event.name),
                EventKind::Restarted | EventKind::State(..) | EventKind::Circuit(_) => {}
            }
        }
        gateway.log(&events);
    }

    fn join(&mut self, name: &WorkerName, role: crate::worker::WorkerRole) {
        self.leave(name);
        let gateway = Arc::clone(&self.gateway);
        let upstream = Upstream::new(Arc::from(name.as_str()));
        let mut ways = gateway.ways.write().unwrap_or_else(PoisonError::into_inner);
        ways.insert(name.clone(), Arc::clone(&upstream));
        drop(ways);
        gateway.telemetry.workers.join(name, role);
        let stop = self.stop.child_token();
        self.workers.insert(name.clone(), stop.clone());
        self.tasks.spawn(poll::keep_asking(gateway, name.clone(), upstream, stop));
    }

    fn leave(&mut self, name: &WorkerName) {
        let Some(stop) = self.workers.remove(name) else { return };
        stop.cancel();
        let mut ways = self.gateway.ways.write().unwrap_or_else(PoisonError::into_inner);
        let gone = ways.remove(name);
        drop(ways);
        if let Some(upstream) = gone {
            upstream.close();
        }
        self.gateway.telemetry.workers.leave(name, self.gateway.uptime());
    }
}

impl Gateway {
    pub(super) fn discovered(&self) -> MutexGuard<'_, Discovered> {
        self.discovered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes connections that nobody needs.
    fn tidy(&self) {
        let ways = self.ways.read().unwrap_or_else(PoisonError::into_inner);
        ways.values().for_each(|upstream| upstream.tidy());
    }
}

/// Names with the workers that they last resolved to.
struct Names(Vec<(Group, Vec<WorkerSpec>)>);

impl Names {
    fn new(groups: Vec<Group>) -> Self {
        Self(groups.into_iter().map(|group| (group, Vec::new())).collect())
    }

    /// The workers behind all names, and what went wrong: those behind a name that does not resolve
    /// are what they were.
    async fn resolve(&mut self) -> (Vec<WorkerSpec>, Vec<String>) {
        let mut errors = Vec::new();
        for (group, workers) in &mut self.0 {
            let name = &group.name;
            match timeout(RESOLVE_TIME, dns::resolve(name)).await {
                Ok(Ok(addresses)) => *workers = group.workers(addresses),
                Ok(Err(error)) => errors.push(format!("{name}: {error}")),
                Err(_) => {
                    errors.push(format!("{name}: no answer within {} s", RESOLVE_TIME.as_secs()));
                }
            }
        }
        let mut all: Vec<WorkerSpec> = Vec::new();
        for worker in self.0.iter().flat_map(|(_, workers)| workers) {
            if !all.iter().any(|other| other.name == worker.name) {
                all.push(worker.clone());
            }
        }
        (all, errors)
    }
}
