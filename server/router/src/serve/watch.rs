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
use super::listing::{self, Order};
use super::{Gateway, poll};
use crate::worker::{DrainBy, EventKind, Source, WorkerName, WorkerSpec};

/// Between two looks at a file.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How long a name server may take.
const RESOLVE_TIME: Duration = Duration::from_secs(5);

/// Whatever events were missed, every list is told anew after so long.
const RELIST_EVERY: Duration = Duration::from_secs(60);

/// Between two looks whether something is still open at a worker that is to be removed.
const LOOK_IF_OPEN: Duration = Duration::from_millis(100);

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
    /// What flags list, less what was removed.
    flags: Vec<WorkerSpec>,
    /// What operators have added.
    added: Vec<WorkerSpec>,
    /// Those that are to be removed; cancelled when they are to stay after all.
    leaving: HashMap<WorkerName, CancellationToken>,
}

/// Runs until `stop`.
pub(super) async fn run(gateway: Arc<Gateway>, stop: CancellationToken) {
    let settings = gateway.settings();
    let Some(mut orders) = gateway.orders.take() else { return };
    let mut keeper = Keeper {
        gateway: Arc::clone(&gateway),
        tasks: TaskTracker::new(),
        stop: stop.clone(),
        workers: HashMap::new(),
        flags: settings.workers.clone(),
        added: Vec::new(),
        leaving: HashMap::new(),
    };
    let mut file = settings.file.clone().map(Watched::new);
    let mut names = Names::new(settings.groups.clone());
    let mut look = ticks(LOOK_EVERY);
    let mut resolve = ticks(settings.resolve_every);
    let mut again = ticks(RELIST_EVERY);
    let mut tidy = ticks(Duration::from_secs(10));
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            _ = again.tick() => {
                if !settings.workers.is_empty() {
                    keeper.list(Source::Flags, keeper.flags.clone());
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
            Some(order) = orders.recv() => keeper.obey(order),
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
        self.gateway.telemetry.not_listed(source);
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
        if let Err(error) = self.told(source, &workers) {
            self.complain(source, error);
            return;
        }
        match source {
            // Had they listed it before, it could not have been removed: they do anew.
            Source::File | Source::Dns => workers.iter().for_each(|spec| self.stays(&spec.name)),
            Source::Flags | Source::Admin => {}
        }
    }

    /// A worker that was to be removed is to stay after all.
    fn stays(&mut self, name: &WorkerName) {
        if let Some(stays) = self.leaving.remove(name) {
            stays.cancel();
            self.drain(name, false);
            tracing::info!(worker = %name, "A worker is listed again and is not removed.");
        }
    }

    /// The same, where somebody else is told of errors.
    fn told(&mut self, source: Source, workers: &[WorkerSpec]) -> Result<(), String> {
        let gateway = Arc::clone(&self.gateway);
        let now = gateway.clock.now();
        let told = gateway.core().relist(source, workers);
        let events = told.map_err(|error| error.to_string())?;
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
        Ok(())
    }

    /// Does what an operator wants.
    fn obey(&mut self, order: Order) {
        match order {
            // Who does not wait for the answer any more finds it in the list.
            Order::Add(spec, answer) => drop(answer.send(self.add(spec))),
            Order::Remove(name, deadline, answer) => {
                drop(answer.send(self.remove(&name, deadline)));
            }
            Order::Gone(name) => self.gone(&name),
        }
    }

    /// One more worker; says whether it was listed by nobody before.
    fn add(&mut self, spec: WorkerSpec) -> Result<bool, String> {
        let name = spec.name.clone();
        let listed = self.gateway.view(&name);
        if let Some(view) = &listed {
            let role = view.role.declared();
            if role != spec.role {
                let by: Vec<_> = view.sources.iter().map(|source| source.as_str()).collect();
                return Err(format!(
                    "{name} is listed as {} by {}, and a worker has one role; remove it first, \
                     or add it as what it is",
                    role.as_str(),
                    by.join(", ")
                ));
            }
        }
        self.stays(&name);
        if listed.is_some() {
            return Ok(false);
        }
        let mut added = self.added.clone();
        added.push(spec);
        self.told(Source::Admin, &added)?;
        self.added = added;
        tracing::info!(worker = %name, "An operator has added a worker.");
        Ok(true)
    }

    /// One worker less, after what is open there. Doing it twice is doing it once, with the later
    /// deadline.
    fn remove(&mut self, name: &WorkerName, deadline: Duration) -> Result<(), String> {
        let view = self.gateway.view(name);
        let view = view.ok_or_else(|| format!("there is no worker {name} any more"))?;
        if let Some(kept) = listing::kept_by(&view) {
            return Err(kept);
        }
        self.drain(name, true);
        let stays = self.stop.child_token();
        if let Some(before) = self.leaving.insert(name.clone(), stays.clone()) {
            before.cancel();
        }
        let deadline_seconds = deadline.as_secs_f64();
        tracing::info!(worker = %name, deadline_seconds, "An operator removes a worker.");
        let (gateway, name) = (Arc::clone(&self.gateway), name.clone());
        self.tasks.spawn(async move {
            let ended = async {
                while gateway.view(&name).is_some_and(|view| view.own.requests > 0) {
                    tokio::time::sleep(LOOK_IF_OPEN).await;
                }
            };
            tokio::select! {
                _ = timeout(deadline, ended) => {}
                () = stays.cancelled() => return,
            }
            // The router stops otherwise.
            drop(gateway.orders.sender().send(Order::Gone(name)).await);
        });
        Ok(())
    }

    /// A worker that was to be removed has nothing open, or its time is over.
    fn gone(&mut self, name: &WorkerName) {
        if self.leaving.remove(name).is_none() {
            return;
        }
        let open = self.gateway.view(name).map_or(0, |view| view.own.requests);
        if open > 0 {
            tracing::warn!(worker = %name, open, "The time of a worker is over.");
            let ways = self.gateway.ways.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(way) = ways.get(name) {
                way.cut().cancel();
            }
        }
        self.flags.retain(|spec| spec.name != *name);
        self.added.retain(|spec| spec.name != *name);
        self.list(Source::Flags, self.flags.clone());
        self.list(Source::Admin, self.added.clone());
    }

    fn drain(&self, name: &WorkerName, on: bool) {
        let now = self.gateway.clock.now();
        let mut core = self.gateway.core();
        let told = match on {
            true => core.drain(name, DrainBy::Operator, now),
            false => core.undrain(name, DrainBy::Operator, now),
        };
        drop(core);
        // It may have left just now.
        self.gateway.log(&told.unwrap_or_default());
    }

    fn join(&mut self, name: &WorkerName, role: crate::worker::WorkerRole) {
        self.leave(name);
        let gateway = Arc::clone(&self.gateway);
        let upstream = gateway.new_way(name);
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
