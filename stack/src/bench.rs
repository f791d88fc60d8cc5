//! `sightline bench`: a load generator that cannot hide a server's queue.
//!
//! The pure parts (schedules, workloads, sums, judgement, comparison) take times as values; `drive`
//! sends on the runtime's clock, `client` speaks HTTP. It works against any OpenAI-compatible
//! server and knows the insides of none: of Sightline's own it knows the counters.

pub(crate) mod args;
mod client;
mod compare;
mod drive;
mod incident;
mod judge;
mod length;
mod peer;
mod progress;
mod record;
mod report;
mod results;
mod schedule;
mod sse;
mod tally;
mod text;
mod trace;
mod wire;
mod workload;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use hyper::header::HeaderValue;
use program::exit::Exit;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::clock::now_ms;
use crate::{complain, say};
use args::{BadPlan, BenchArgs, Load, Plan, Scenario};
use client::Client;
use compare::Counters;
use peer::{Meters, Peer, PeerError};
use progress::Progress;
use report::{Header, Run};
use tally::Tally;
use workload::{Source, Template, Workload};

/// A condition of `--require` does not hold.
const UNMET: u8 = 1;
/// Stopped by Ctrl-C, as a shell reports it.
const INTERRUPTED: u8 = 130;
/// Threads that read answers; the arrivals have one of their own.
const THREADS: usize = 2;
/// Files open besides the connections.
const FILES_BESIDES: u64 = 64;

/// A reason not to run: one line, and an exit code.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
struct Failure {
    exit: Exit,
    message: String,
}

impl Failure {
    fn new(exit: Exit, message: impl std::fmt::Display) -> Self {
        Self { exit, message: message.to_string() }
    }
}

impl From<BadPlan> for Failure {
    fn from(error: BadPlan) -> Self {
        let exit = match &error {
            BadPlan::NoArrivals | BadPlan::NoTrace { .. } => Exit::Usage,
            BadPlan::Value { .. } | BadPlan::Trace { .. } => Exit::Configuration,
            BadPlan::File { source, .. } => Exit::of_io(source),
        };
        Self::new(exit, error)
    }
}

impl From<PeerError> for Failure {
    fn from(error: PeerError) -> Self {
        let exit = match &error {
            PeerError::Resolve { .. } | PeerError::Silent { .. } => Exit::Temporary,
            PeerError::Models { .. } | PeerError::NoModel { .. } => Exit::Peer,
            PeerError::Header(_) => Exit::Usage,
        };
        Self::new(exit, error)
    }
}

/// Runs all loads; returns when the results are told.
pub(crate) fn run(args: &BenchArgs) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .thread_name("bench")
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            complain(&format!("error: no threads could be started: {error}"));
            return Exit::Internal.into();
        }
    };
    if let Some(Scenario::Incident(args)) = &args.scenario {
        return incident::run(args, runtime);
    }
    let ended = runtime.block_on(bench(args));
    runtime.shutdown_background();
    match ended {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            complain(&format!("error: {failure}"));
            failure.exit.into()
        }
    }
}

async fn bench(args: &BenchArgs) -> Result<u8, Failure> {
    let plan = args::plan(args)?;
    open_files(args.arrival.max_clients as u64);
    let stop = CancellationToken::new();
    let _signals = stop_on_signals(stop.clone())?;
    let peer = Peer {
        url: args.base_url.clone().without_version(),
        headers: peer::headers(&args.header, args.api_key.as_deref())?,
    };
    let address = peer.address().await?;
    let listed = peer.model().await;
    let model = match (&args.model, listed) {
        (None, listed) => listed?,
        (Some(_), Err(error @ PeerError::Silent { .. })) => return Err(error.into()),
        // Some servers list nothing.
        (Some(named), Ok(_) | Err(_)) => named.clone(),
    };
    let vocabulary = peer.vocabulary(&model, args.endpoint).await;
    let seed = args.shape.seed.unwrap_or_else(|| now_ms().cast_unsigned() % 1_000_000_000);
    let header = Header {
        url: peer.url.to_string(),
        model: model.clone(),
        endpoint: args.endpoint.path(),
        streaming: !args.behaviour.no_stream,
        seed,
        requests: requests_in_words(&plan.source),
        calibration: vocabulary.source().as_str(),
    };
    let workload = Workload {
        seed,
        template: template(args, model),
        vocabulary,
        source: plan.source.clone(),
        abort_rate: args.behaviour.abort_rate,
    };
    let host = HeaderValue::from_str(&peer.url.authority)
        .map_err(|error| Failure::new(Exit::Usage, error))?;
    let path = peer.url.path.clone();
    let client = Arc::new(Client::new(address, host, path, peer.headers.clone()));
    let meters = Meters { peer, urls: args.metrics_url.clone() };
    let table = args.output.json.as_deref() != Some(Path::new("-"));
    if table {
        say(report::header(&header).trim_end());
    }
    let mut runs = Vec::new();
    for (number, load) in plan.loads.iter().enumerate() {
        let bench = Bench { args, plan: &plan, client: &client, meters: &meters, stop: &stop };
        let run = bench.one(load, &workload, number as u64).await;
        if table {
            say(report::run(&run).trim_end());
        }
        runs.push(run);
        if stop.is_cancelled() {
            break;
        }
    }
    if table && runs.len() > 1 {
        say(report::summary(&runs).trim_end());
    }
    tell_programs(args, &header, &runs)?;
    Ok(code(&runs))
}

/// What one load needs.
struct Bench<'a> {
    args: &'a BenchArgs,
    plan: &'a Plan,
    client: &'a Arc<Client>,
    meters: &'a Meters,
    stop: &'a CancellationToken,
}

impl Bench<'_> {
    async fn one(&self, load: &Load, workload: &Workload, number: u64) -> Run {
        // Another rate asks other things: the same would come out of a cache.
        let seed = workload.seed.wrapping_add(number << 32);
        let workload = Arc::new(Workload { seed, ..workload.clone() });
        let mut tally = Tally::new(self.args.output.slo.unwrap_or_default(), self.plan.warmup);
        let before = self.meters.read().await;
        let mut progress = Progress::new(load.name(), self.args.output.quiet);
        drive::run(
            Arc::clone(self.client),
            workload,
            load.feed(seed),
            self.plan.limits.clone(),
            &mut tally,
            self.stop.clone(),
            |state| progress.show(state),
        )
        .await;
        drop(progress);
        self.client.rest();
        let counters = match before {
            Ok(before) => self.compare(&tally, &before).await,
            Err(reason) => Err(reason),
        };
        let interrupted = self.stop.is_cancelled();
        let mut run = Run { name: load.name(), tally, counters, unmet: Vec::new(), interrupted };
        let differences = run.differences();
        let conditions = self.args.output.require.iter();
        run.unmet = conditions.filter_map(|c| c.unmet(&run.tally, differences)).collect();
        run
    }

    async fn compare(&self, tally: &Tally, before: &Counters) -> Result<Vec<compare::Row>, String> {
        let after = self.meters.settled().await?;
        Ok(compare::compare(&tally.ours, before, &after))
    }
}

fn code(runs: &[Run]) -> u8 {
    if runs.iter().any(|run| run.interrupted) {
        INTERRUPTED
    } else if runs.iter().any(|run| !run.unmet.is_empty()) {
        UNMET
    } else {
        0
    }
}

fn template(args: &BenchArgs, model: String) -> Template {
    Template {
        endpoint: args.endpoint,
        model,
        stream: !args.behaviour.no_stream,
        ignore_eos: args.shape.ignore_eos,
        temperature: args.shape.temperature,
        extra: args.shape.extra_body.clone().unwrap_or_default(),
    }
}

fn requests_in_words(source: &Source) -> String {
    match source {
        Source::Replay(replay) => {
            let count = replay.trace.entries.len();
            let scale = replay.length_scale;
            let scaled = if scale == 1.0 { String::new() } else { format!(", lengths x {scale}") };
            format!("trace of {count} requests{scaled}")
        }
        Source::Synthetic(made) => {
            let mut text = format!("prompts of {} tokens", made.prompt);
            if let Some(prefix) = made.prefix {
                text += &format!(" after {} prefixes of {}", prefix.groups, prefix.tokens);
            }
            text += &format!(", answers of {}", made.output);
            if made.turns.max() > 1 {
                text += &format!(", {} turns", made.turns);
            }
            text
        }
    }
}

/// Stops at Ctrl-C and SIGTERM for as long as the result lives.
#[expect(clippy::disallowed_methods, reason = "the task is owned by the caller")]
fn stop_on_signals(stop: CancellationToken) -> Result<AbortOnDropHandle<()>, Failure> {
    let listen = |kind| signal(kind).map_err(|error| Failure::new(Exit::Internal, error));
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut terminate = listen(SignalKind::terminate())?;
    Ok(AbortOnDropHandle::new(tokio::spawn(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        complain("Stopping: what was measured so far follows.");
        stop.cancel();
    })))
}

/// Allows as many connections as there may be clients, where the system lets us.
fn open_files(clients: u64) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let wanted = clients + FILES_BESIDES;
    let current = limit.current.unwrap_or(u64::MAX);
    if current >= wanted {
        return;
    }
    let most = limit.maximum.unwrap_or(u64::MAX).min(wanted);
    let raised = Rlimit { current: Some(most), maximum: limit.maximum };
    if most < wanted || setrlimit(Resource::Nofile, raised).is_err() {
        complain(&format!(
            "warning: the system allows {most} open files, fewer than --max-clients {clients}; \
             connections beyond fail and are counted as such"
        ));
    }
}

fn tell_programs(args: &BenchArgs, header: &Header, runs: &[Run]) -> Result<(), Failure> {
    let Some(path) = args.output.json.as_deref() else { return Ok(()) };
    let mut text = serde_json::to_string_pretty(&results::json(header, runs))
        .map_err(|error| Failure::new(Exit::Internal, error))?;
    text.push('\n');
    if path == Path::new("-") {
        say(text.trim_end());
        return Ok(());
    }
    std::fs::write(path, text)
        .map_err(|error| Failure::new(Exit::of_io(&error), format!("{}: {error}", path.display())))
}
