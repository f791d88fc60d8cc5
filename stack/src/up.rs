//! `sightline up`: preflight, start, watch, drain.
//!
//! Nothing is started before everything that can be checked is checked. The parts: one server
//! process or three ([`topology`]), the node exporter ([`node`]), the scrapers, the rules, the
//! console, and the demo load. It restarts nothing: a child that dies ends the program with the
//! child's exit code.

pub(crate) mod child;
mod model;
mod node;
mod ports;
mod progress;
pub(crate) mod topology;

use std::future::{Future, poll_fn};
use std::process::ExitCode;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use metric_catalog::alerts::NODE_JOB;
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::cli::UpArgs;
use crate::console::{self, Guard};
use crate::demo;
use crate::promapi::Api;
use crate::rules::Rules;
use crate::scrape::{Knowledge, Scraper, Target};
use crate::store::{Bounds, Store};
use crate::{complain, say};
use child::{Child, Ready};
use topology::Started;

pub(crate) use child::end_with_parent;

/// After the server has drained, open console connections get this long.
const FAREWELL: Duration = Duration::from_millis(500);

/// A reason to stop before or while running: one line, and an exit code.
#[derive(Debug, Error)]
#[error("{message}")]
pub(crate) struct Failure {
    pub(crate) code: u8,
    message: String,
}

impl Failure {
    pub(crate) fn new(code: u8, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

/// Exit codes, those of all programs and one more.
pub(crate) mod exit {
    use program::exit::Exit;

    pub(crate) const INTERNAL: u8 = Exit::Internal as u8;
    pub(crate) const TEMPORARY: u8 = Exit::Temporary as u8;
    pub(crate) const PERMISSION: u8 = Exit::Permission as u8;
    pub(crate) const CONFIGURATION: u8 = Exit::Configuration as u8;
    /// Ended at once by a signal, as a shell reports Ctrl-C.
    pub(crate) const INTERRUPTED: u8 = 130;
}

/// Runs until a signal or the death of a child.
pub(crate) fn run(args: &UpArgs) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("console")
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            complain(&format!("error: no threads could be started: {error}"));
            return ExitCode::from(exit::INTERNAL);
        }
    };
    // The child's life is tied to the thread that starts it: this one, which lives to the end.
    let ended = runtime.block_on(live(args));
    runtime.shutdown_background();
    match ended {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            complain(&format!("error: {failure}"));
            ExitCode::from(failure.code)
        }
    }
}

/// Ctrl-C and SIGTERM.
pub(crate) struct Stops {
    interrupt: Signal,
    terminate: Signal,
}

impl Stops {
    pub(crate) fn new() -> Result<Self, Failure> {
        let listen = |kind| {
            signal(kind).map_err(|e| Failure::new(exit::INTERNAL, format!("no signals: {e}")))
        };
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
        })
    }

    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

async fn live(args: &UpArgs) -> Result<u8, Failure> {
    let mut stops = Stops::new()?;
    let model = model::choose(args)?;
    let console = ports::listen("console", "--console-port", args.host, args.console_port).await?;
    for (what, host, port) in topology::ports(args) {
        ports::check(what, host, port).await?;
    }
    node::check(args).await?;
    if let Some(warning) = &model.warning {
        complain(&format!("warning: {warning}"));
    }
    topology::check(args, &model).await?;

    let started = tokio::select! {
        started = topology::start(args, &model) => started?,
        // What has started ends with what holds it.
        () = stops.next() => return Ok(0),
    };
    let Started { mut children, front, model, mut targets } = started;
    let node = match &args.node_exporter {
        Some(address) => address.clone(),
        None => {
            let mut exporter = Child::start(&node::exporter(args, &targets))?;
            let address = exporter.ready().await?.address;
            children.push(exporter);
            address
        }
    };
    targets.push((NODE_JOB, node.clone()));
    let stop = CancellationToken::new();
    let tasks = TaskTracker::new();
    // The demo load goes first: it would only be refused while its server drains.
    let load = stop.child_token();
    if args.wants_demo_load() {
        tasks.spawn(demo::run(front.address.clone(), model.clone(), load.clone()));
    }
    let guard = Guard::new(args.host, &args.allowed_hosts);
    let address = start_parts(&targets, console, guard, &stop, &tasks)?;
    announce(args, &front, &model, &address, &node);

    tokio::select! {
        cause = first_to_end(&mut children) => {
            stop.cancel();
            return Err(cause);
        }
        () = stops.next() => {}
    }
    load.cancel();
    let outcome = drain(&mut children, &mut stops, &stop).await;
    tasks.close();
    drop(tokio::time::timeout(FAREWELL, tasks.wait()).await);
    outcome
}

/// Waits until one of them ends by itself, which none should: the reason.
pub(crate) async fn first_to_end(children: &mut [Child]) -> Failure {
    let mut ends: Vec<_> = children.iter_mut().map(|child| Box::pin(child.wait())).collect();
    poll_fn(|cx| {
        let mut polled = ends.iter_mut().map(|end| end.as_mut().poll(cx));
        polled.find(Poll::is_ready).unwrap_or(Poll::Pending)
    })
    .await
}

/// Starts scrapers, rules and console; the address of the console.
fn start_parts(
    targets: &[(&str, String)],
    console: TcpListener,
    guard: Guard,
    stop: &CancellationToken,
    tasks: &TaskTracker,
) -> Result<String, Failure> {
    let internal = |e: &dyn std::fmt::Display| Failure::new(exit::INTERNAL, e.to_string());
    let address = console.local_addr().map_err(|e| internal(&e))?.to_string();
    let store = Arc::new(Store::new(Bounds::default()));
    let knowledge = Arc::new(Knowledge::default());
    let rules = Rules::parse(&console::rule_files()).map_err(|e| internal(&e))?;
    let rules = Arc::new(rules);
    for (job, address) in targets {
        let target = Target {
            address: address.clone(),
            job: (*job).to_owned(),
            cluster: "local".to_owned(),
            node: node_name(),
        };
        let scraper = Scraper::new(target, Arc::clone(&store), Arc::clone(&knowledge));
        tasks.spawn(scraper.run(stop.clone()));
    }
    tasks.spawn(Arc::clone(&rules).run(Arc::clone(&store), stop.clone()));
    let routes = console::routes(Arc::new(Api::new(store, rules, knowledge)), guard);
    let until = stop.clone().cancelled_owned();
    tasks.spawn(async move {
        let served = axum::serve(console, routes).with_graceful_shutdown(until).await;
        if let Err(error) = served {
            complain(&format!("error: the console ended: {error}"));
        }
    });
    Ok(address)
}

pub(crate) fn node_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Says where everything is.
fn announce(args: &UpArgs, front: &Ready, model: &str, console: &str, node: &str) {
    let console = console.replace("0.0.0.0", "127.0.0.1");
    let load = if args.wants_demo_load() { "on; DEMO_LOAD=0 turns it off" } else { "off" };
    say("");
    say(&format!("  Sightline serves {model}"));
    say("");
    say(&format!("    console   http://{console}/"));
    say(&format!("    API       http://{}/v1", front.address));
    say(&format!("    metrics   http://{}/metrics", front.address));
    say(&format!("    node      http://{node}/health"));
    say(&format!("    PromQL    http://{console}/api/v1/query?query=up"));
    say(&format!("    demo load {load}"));
    say("");
    say("  Ask it something:");
    say("");
    say(&format!(
        "    curl http://{}/v1/chat/completions -H 'content-type: application/json' \\\n      \
         -d '{{\"model\":\"{}\",\"messages\":[{{\"role\":\"user\",\"content\":\"Why is the sky \
         blue?\"}}],\"max_tokens\":48}}'",
        front.address, model
    ));
    say("");
    say("  Ctrl-C drains and stops.");
}

/// Lets running requests end, the front first; a second signal ends everything now.
async fn drain(
    children: &mut [Child],
    stops: &mut Stops,
    stop: &CancellationToken,
) -> Result<u8, Failure> {
    say("");
    say("Draining: running requests may end. Ctrl-C again stops now.");
    let stopped = async {
        for child in &mut *children {
            child.stop().await;
        }
    };
    let code = tokio::select! {
        () = stopped => 0,
        () = stops.next() => exit::INTERRUPTED,
    };
    if code == exit::INTERRUPTED {
        children.iter_mut().for_each(Child::kill);
    }
    stop.cancel();
    if code == 0 {
        say("Stopped.");
    }
    Ok(code)
}
