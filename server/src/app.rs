//! Starts the parts in order, waits for the signal to stop, and stops them in reverse.
//!
//! Order of the start: flags and model headers are checked, ports are bound, probes answer, the
//! host tier gets its memory, the model loads and warms up, the API serves. Order of the stop: the
//! front door closes, the engine finishes, connections end, probes end.

mod host_tier;
pub mod router;
pub(crate) mod startup;

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use metric_catalog::install::Registry;
use model::ModelSpec;
use serde_json::json;
use tokenizer::Tokenizer;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use types::Clock;

use crate::cli::{KvDtype, Metrics, Settings};
use crate::config::{Class, Finding, Findings, Host, Resolved, RolePlan, files, ports, resolve};
use crate::http::listener::{Bound, Bounds};
use crate::http::{Api, router};
use crate::lifecycle::{Lifecycle, Phase};
use crate::pd::{self, Link};
use crate::probes::Probes;
use crate::source::Source;
use crate::{plan, telemetry};
use program::exit::Exit;
use program::out;

/// How long answers that are complete may take to leave once the engine has stopped.
const FLUSH_TIME: Duration = Duration::from_secs(5);

/// Serves until a signal; returns how it ended.
#[must_use]
pub fn run(settings: Settings) -> Exit {
    telemetry::install_logs(&settings.observe);
    let clock = Clock::start();
    let checked = match check(&settings) {
        Ok(checked) => checked,
        Err(findings) => return refuse(&findings),
    };
    for advice in checked.resolved.advice.iter() {
        tracing::warn!(id = advice.id, "{advice}");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(settings.machine.http_threads)
        .thread_name("http")
        .enable_all()
        .build();
    match runtime {
        Ok(runtime) => {
            let exit = runtime.block_on(serve(checked, clock));
            // A model that is still loading cannot be interrupted; the process ends anyway.
            runtime.shutdown_background();
            exit
        }
        Err(error) => {
            tracing::error!(%error, "No threads could be started.");
            Exit::Internal
        }
    }
}

/// A model and settings that can work together.
pub struct Checked {
    /// Where the weights come from.
    pub source: Source,
    /// What its headers say; the pools are those of one rank.
    pub spec: ModelSpec,
    /// The model's text.
    pub tokenizer: Arc<Tokenizer>,
    /// Every value to run with.
    pub resolved: Resolved,
}

impl Checked {
    /// What a server does first.
    #[must_use]
    pub const fn first_phase(&self) -> Phase {
        if self.resolved.hierarchy.is_some() { Phase::HostPools } else { Phase::Loading }
    }
}

/// Everything that can be known before a weight is loaded.
///
/// # Errors
/// What cannot work, with what would.
pub fn check(settings: &Settings) -> Result<Checked, Findings> {
    let source = Source::parse(settings)?;
    if let Some(dtype) = settings.machine.kv_dtype.filter(|dtype| *dtype != KvDtype::F32) {
        return Err(Findings::from(Finding {
            id: "KV003",
            class: Class::Configuration,
            flag: "--kv-dtype",
            value: dtype.to_string(),
            reason: "this server computes on the CPU, in 32 bits".to_owned(),
            fix: "--kv-dtype f32".to_owned(),
        }));
    }
    let facts = source.inspect(settings)?;
    let resolved = resolve(settings, &facts, &Host::read(&node_info::Root::default()))?;
    let tokenizer = facts.tokenizer(settings)?;
    Ok(Checked { source, spec: facts.spec, tokenizer, resolved })
}

/// Prints what was found, one line each, behind the table of a host tier that cannot be, and gives
/// the exit code.
pub fn refuse(findings: &Findings) -> Exit {
    if let Some(tier) = findings.tier() {
        out::complain(&plan::tier::text(tier));
    }
    out::complain(&findings.to_string());
    findings.exit()
}

async fn serve(checked: Checked, clock: Clock) -> Exit {
    let resolved = &checked.resolved;
    let (mut signals, hangup) = match Signals::new().and_then(|signals| Ok((signals, hangup()?))) {
        Ok(signals) => signals,
        Err(error) => {
            tracing::error!(%error, "Signals cannot be received.");
            return Exit::Internal;
        }
    };
    let life = Arc::new(Lifecycle::new(checked.first_phase()));
    let (probes_stop, stop) = (CancellationToken::new(), CancellationToken::new());
    let (probes, bound) = match listen(resolved.api, resolved.probes, &life, &probes_stop).await {
        Ok(listening) => listening,
        Err(finding) => return refuse(&finding.into()),
    };
    let registry = match resolved.settings.observe.metrics {
        Metrics::Off => Registry::disabled(),
        Metrics::On => {
            match Registry::new(telemetry::role(resolved.roles.role), &resolved.model_name) {
                Ok(registry) => registry,
                Err(error) => {
                    tracing::error!(%error, "Metrics cannot be recorded.");
                    return Exit::Internal;
                }
            }
        }
    };
    let addresses = Addresses { api: bound.address(), probes: probes.address };
    let api = Api::new(resolved, registry.clone(), Arc::clone(&life), clock);
    let tasks = TaskTracker::new();
    let again = Arc::clone(&api);
    tasks.spawn(reload(move || again.reload(), hangup, stop.clone()));
    tasks.spawn(telemetry::upkeep(registry.clone(), stop.clone()));
    tasks.spawn(telemetry::canary(registry, clock, stop.clone()));
    tasks.spawn(plan::live::keep(Arc::clone(&api), stop.clone()));
    tasks.spawn(bound.serve(router(&api), bounds(resolved), stop.clone()));
    tasks.close();

    let exit = live(checked, &api, &mut signals, addresses).await;

    stop.cancel();
    if tokio::time::timeout(FLUSH_TIME, tasks.wait()).await.is_err() {
        tracing::warn!("Some clients did not read their answers in time.");
    }
    probes_stop.cancel();
    probes.join();
    tracing::info!(code = exit as u8, "The server has stopped.");
    exit
}

/// What connections may take. Fewer than asked for are better than none for the probes.
fn bounds(resolved: &Resolved) -> Bounds {
    let wanted = resolved.settings.max_connections;
    let connections = files::make_room(resolved.connections);
    if connections < wanted {
        tracing::warn!(
            max_connections = wanted,
            connections,
            open_files = connections as u64 + files::RESERVED,
            reserved = files::RESERVED,
            "The limit of open files allows fewer connections than --max-connections."
        );
    }
    Bounds { connections, write_timeout: resolved.settings.write_timeout.0 }
}

#[derive(Debug, Clone, Copy)]
struct Addresses {
    api: SocketAddr,
    probes: SocketAddr,
}

/// Binds both ports before anything slow is done; the probes answer from here on.
async fn listen(
    api: SocketAddr,
    address: SocketAddr,
    life: &Arc<Lifecycle>,
    stop: &CancellationToken,
) -> Result<(Probes, Bound), Finding> {
    let bound = Bound::new(api).await;
    let bound = bound.map_err(|error| ports::finding("--port", api, &error))?;
    let (life, stop) = (Arc::clone(life), stop.clone());
    // Starting the thread runs a second runtime for a moment, which must not be inside this one.
    let probes = tokio::task::spawn_blocking(move || Probes::start(address, &life, stop)).await;
    let probes = probes.unwrap_or_else(|error| Err(std::io::Error::other(error)));
    let probes = probes.map_err(|error| ports::finding("--probe-port", address, &error))?;
    Ok((probes, bound))
}

/// From loading to the end of the engine.
async fn live(
    checked: Checked,
    api: &Arc<Api>,
    signals: &mut Signals,
    addresses: Addresses,
) -> Exit {
    let roles = checked.resolved.roles.clone();
    let starting = {
        let api = Arc::clone(api);
        tokio::task::spawn_blocking(move || startup::start(checked, &api))
    };
    let started = tokio::select! {
        started = starting => started,
        () = signals.next() => {
            tracing::info!("Stopped before the model was loaded.");
            return Exit::Ok;
        }
    };
    let startup::Started { thread, cargo } = match started {
        Ok(Ok(started)) => started,
        Ok(Err(startup::StartError::Refused(findings))) => return refuse(&findings),
        Ok(Err(startup::StartError::Engine(error))) => {
            tracing::error!(%error, "The engine cannot start.");
            return Exit::Internal;
        }
        Err(error) => {
            tracing::error!(%error, "Loading the model failed.");
            return Exit::Internal;
        }
    };
    if let Some(cargo) = cargo {
        let own = own_name(&roles, addresses.api);
        if let Err(finding) = pd::start::open(api, &roles, own, cargo).await {
            return refuse(&finding.into());
        }
    }
    let mut ended = watch(thread);
    api.ready();
    announce(api, addresses);
    tokio::select! {
        () = signals.next() => {}
        _ = &mut ended => return fail(api, signals).await,
    }
    let exit = drain(api, signals, api.live.values().drain_deadline.0, ended).await;
    if let Some(link) = api.link()
        && tokio::time::timeout(FLUSH_TIME, link.shut_down()).await.is_err()
    {
        tracing::warn!("The link did not close in time.");
    }
    exit
}

/// How this worker calls itself to its peers.
fn own_name(roles: &RolePlan, api: SocketAddr) -> String {
    roles.advertise.as_ref().map_or_else(|| reachable(api).to_string(), ToString::to_string)
}

/// The address, or that of this host where it stands for all of the host's.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(std::net::Ipv4Addr::LOCALHOST.into());
    }
    address
}

/// Tells the supervisor, and people, where everything is.
fn announce(api: &Api, addresses: Addresses) {
    let mut more = json!({"model": api.model_name});
    if let Some(transfer) = api.link().and_then(Link::address) {
        more["transfer"] = reachable(transfer).to_string().into();
    }
    say(addresses, more);
}

/// The line on standard output that says where everything is, with what is `more`.
fn say(addresses: Addresses, more: serde_json::Value) {
    let url = |address: SocketAddr| format!("http://{}", reachable(address));
    let mut line = json!({
        "event": "ready",
        "api": url(addresses.api),
        "probes": url(addresses.probes),
        "pid": std::process::id(),
    });
    if let (Some(line), serde_json::Value::Object(more)) = (line.as_object_mut(), more) {
        line.extend(more);
    }
    if let Err(error) = out::line(&line.to_string()) {
        tracing::debug!(%error, "Nobody reads standard output.");
    }
    tracing::info!(api = %addresses.api, probes = %addresses.probes, "The server is ready.");
}

/// Resolves when the engine's thread has ended, for whatever reason.
fn watch(engine: JoinHandle<()>) -> oneshot::Receiver<()> {
    let (sender, receiver) = oneshot::channel();
    drop(tokio::task::spawn_blocking(move || {
        if engine.join().is_err() {
            tracing::error!("The engine's thread panicked.");
        }
        if sender.send(()).is_err() {
            tracing::debug!("Nobody waited for the engine any more.");
        }
    }));
    receiver
}

/// The engine has failed: say so to probes and scrapers until somebody stops the process.
async fn fail(api: &Api, signals: &mut Signals) -> Exit {
    api.life.advance(Phase::Failed);
    let snapshot = api.snapshot().engine;
    let reason = snapshot.and_then(|engine| engine.failure).unwrap_or_default();
    tracing::error!(reason, "The engine has failed; only a restart helps.");
    signals.next().await;
    Exit::Internal
}

/// Finishes what runs, at most until the deadline or a second signal.
async fn drain(
    api: &Api,
    signals: &mut Signals,
    deadline: Duration,
    mut ended: oneshot::Receiver<()>,
) -> Exit {
    let Some(serving) = api.serving() else { return Exit::Ok };
    tracing::info!(deadline_seconds = deadline.as_secs(), "Draining.");
    api.life.advance(Phase::Draining);
    serving.engine.drain(api.clock.now() + deadline);
    tokio::select! {
        _ = &mut ended => {}
        () = signals.next() => {
            tracing::warn!("A second signal: what still runs is given up.");
            serving.engine.shutdown();
            drop(ended.await);
        }
    }
    match serving.engine.snapshot().failure {
        None => Exit::Ok,
        Some(reason) => {
            tracing::error!(reason, "The engine failed while it drained.");
            Exit::Internal
        }
    }
}

fn hangup() -> std::io::Result<Signal> {
    signal(SignalKind::hangup())
}

/// Reads the file of `--config` again at every SIGHUP.
async fn reload(again: impl Fn(), mut hangup: Signal, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            received = hangup.recv() => match received {
                Some(()) => again(),
                None => return,
            },
        }
    }
}

/// SIGTERM and SIGINT, counted.
#[derive(Debug)]
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        let terminate = signal(SignalKind::terminate())?;
        Ok(Self { terminate, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
