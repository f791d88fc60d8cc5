//! Starts the parts in order, waits for the signal to stop, and ends.
//!
//! Order of the start: the port is bound, the process confines itself, threads of collectors start,
//! the first page is painted, requests are answered. Everything asynchronous is on one thread, so
//! that memory stays small; what may block has a thread of its own.

mod collect;
mod logs;

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;
use tokio::task::LocalSet;
use tokio_util::task::TaskTracker;

use crate::cli::LogFormat;
use crate::config::{Config, Timer, Url};
use crate::facts::Slots;
use crate::http::auth::Checker;
use crate::http::web_config::WebConfig;
use crate::http::{Bound, Door, InForce, serve};
use crate::notify::Manager;
use crate::paint::{Board, Painter};
use crate::service::fetch::{Client, is_looked_up};
use crate::slot::{Now, Stop};
use crate::{gpu, sandbox};
use program::exit::Exit;
use program::out;

/// How long answers and children may take to end.
const END: Duration = Duration::from_secs(5);

/// Threads for what may block, besides one for each name that services are asked by.
const BLOCKING_THREADS: usize = 4;
const BLOCKING_STACK: usize = 512 << 10;

/// Serves until a signal; returns how it ended.
#[must_use]
pub fn run(config: Config, format: LogFormat, level: tracing::Level) -> Exit {
    logs::install(format, level);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .max_blocking_threads(BLOCKING_THREADS + names(&config))
        .thread_stack_size(BLOCKING_STACK)
        .thread_name("blocking")
        .enable_all()
        .build();
    match runtime {
        Ok(runtime) => {
            let exit = LocalSet::new().block_on(&runtime, live(Arc::new(config)));
            // A name that is being looked up cannot be interrupted; the process ends anyway.
            runtime.shutdown_background();
            exit
        }
        Err(error) => {
            tracing::error!(%error, "The runtime could not be started.");
            Exit::Internal
        }
    }
}

/// How many names of hosts are looked up. A look-up may take a thread for minutes, and must not
/// hold up those of the other names.
fn names(config: &Config) -> usize {
    let urls = config.services.iter().flat_map(|s| s.health_url.iter().chain(&s.metrics_url));
    let hosts: BTreeSet<&str> = urls.map(Url::host).filter(|host| is_looked_up(host)).collect();
    hosts.len()
}

async fn live(config: Arc<Config>) -> Exit {
    let bound = match Bound::new(config.listen).await {
        Ok(bound) => bound,
        Err(error) => {
            let fix = "choose another with --listen, or 127.0.0.1:0 for a free port";
            out::complain(&format!("error: --listen {}: {error}; {fix}", config.listen));
            return Exit::of_io(&error);
        }
    };
    let web = match config.web_config.as_deref().map(WebConfig::read).transpose() {
        Ok(web) => web.unwrap_or_default(),
        Err(error) => {
            out::complain(&format!("error: --web.config.file: {error}; {}", error.fix()));
            return Exit::Configuration;
        }
    };
    if !config.listen.ip().is_loopback() && web.users.is_empty() && web.tls.is_none() {
        tracing::warn!(
            listen = %config.listen,
            "Whoever reaches this address can read it; --web.config.file sets passwords and TLS."
        );
    }
    match start(config, bound, web) {
        Ok(running) => running.until_signalled().await,
        Err(error) => {
            tracing::error!(%error, "The exporter could not be started.");
            Exit::of_io(&error)
        }
    }
}

/// Everything that runs.
struct Running {
    config: Arc<Config>,
    bound: Bound,
    door: Arc<Door>,
    painter: Painter,
    manager: Manager,
    cards: gpu::Handle,
    tasks: TaskTracker,
    stop: Stop,
}

fn start(config: Arc<Config>, bound: Bound, web: WebConfig) -> io::Result<Running> {
    let manager = Manager::of_environment();
    let client = Client::of_host(&config.services);
    // Rules hold for the thread that sets them and those it starts: there are no others yet.
    let sandboxed = config.sandbox && confine(&sandbox::Rules::of(&config, &web));
    let (tasks, stop, slots) = (TaskTracker::new(), Stop::new(), Slots::new(&config));
    let checker = Checker::start()?;
    let web = InForce::new(web);
    let parts = collect::Parts {
        config: &config,
        slots: &slots,
        web: &web,
        checker: &checker,
        client: &client,
        tasks: &tasks,
        stop: &stop,
    };
    let cards = parts.start()?;
    let release = cards.clone();
    let door = Door {
        board: Board::default(),
        web,
        checker,
        release: Arc::new(move || {
            let cards = release.clone();
            Box::pin(async move { cards.release().await })
        }),
        answers: Arc::new(Semaphore::new(config.max_requests)),
        connections: config.max_requests * 2 + 16,
        timeout: config.client_timeout,
    };
    let painter = Painter::new(Arc::clone(&config), slots, sandboxed);
    let door = Arc::new(door);
    Ok(Running { config, bound, door, painter, manager, cards, tasks, stop })
}

fn confine(rules: &sandbox::Rules) -> bool {
    match sandbox::confine(rules) {
        Ok(true) => true,
        Ok(false) => {
            tracing::info!("This kernel has no Landlock; the process is not confined.");
            false
        }
        Err(error) => {
            tracing::warn!(%error, "The process could not be confined.");
            false
        }
    }
}

/// What this process takes; the kernel always answers about the asker. Nothing where it may not be
/// read.
fn own_process() -> Option<node_info::Process> {
    node_info::Root::default().process().ok()
}

impl Running {
    async fn until_signalled(mut self) -> Exit {
        let signals = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()));
        let users = (signal(SignalKind::user_defined1()), signal(SignalKind::user_defined2()));
        let (Ok(mut terminate), Ok(mut interrupt)) = signals else {
            tracing::error!("Signals cannot be received.");
            return Exit::Internal;
        };
        let (Ok(mut free), Ok(mut back)) = users else {
            tracing::error!("Signals cannot be received.");
            return Exit::Internal;
        };
        self.painter.paint(Now::read(), own_process(), &self.door.board);
        let address = self.bound.address;
        let serving =
            serve(self.bound, Arc::clone(&self.door), self.tasks.clone(), self.stop.clone());
        drop(self.tasks.spawn_local(serving));
        announce(address, self.door.web.get().tls.is_some());
        self.manager.ready();
        let mut every = tokio::time::interval(self.config.intervals.of(Timer::Page));
        every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = every.tick() => {
                    self.painter.paint(Now::read(), own_process(), &self.door.board);
                    self.manager.alive();
                }
                _ = free.recv() => drop(self.tasks.spawn_local(release(self.cards.clone()))),
                _ = back.recv() => match self.cards.attach() {
                    Ok(()) => tracing::info!("The cards are taken back on a signal."),
                    Err(error) => tracing::warn!(%error, "The cards cannot be taken back."),
                },
                _ = terminate.recv() => break,
                _ = interrupt.recv() => break,
            }
        }
        tracing::info!("Stopping.");
        self.manager.stopping();
        self.stop.stop();
        self.tasks.close();
        if tokio::time::timeout(END, self.tasks.wait()).await.is_err() {
            tracing::warn!("Not everything ended in time.");
        }
        Exit::Ok
    }
}

async fn release(cards: gpu::Handle) {
    match cards.release().await {
        Ok(time) => tracing::warn!(?time, "The cards are released on a signal."),
        Err(error) => tracing::warn!(%error, "The cards cannot be released."),
    }
}

/// Tells the supervisor, and people, where it answers.
fn announce(mut address: std::net::SocketAddr, tls: bool) {
    tracing::info!(%address, tls, "The exporter answers.");
    if address.ip().is_unspecified() {
        address.set_ip(std::net::Ipv4Addr::LOCALHOST.into());
    }
    let scheme = if tls { "https" } else { "http" };
    let line = serde_json::json!({
        "event": "ready",
        "address": format!("{scheme}://{address}"),
        "pid": std::process::id(),
    });
    if let Err(error) = out::line(&line.to_string()) {
        tracing::debug!(%error, "Nobody reads standard output.");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_that_is_looked_up_has_a_thread() {
        let service = |text: &str| text.parse().expect(text);
        let services = vec![
            service("a,url=http://one.example/health,metrics=http://one.example:1/metrics"),
            service("b,url=http://localhost:1/health,metrics=http://two.example/metrics"),
            service("c,url=http://127.0.0.1:2/health,metrics=http://[::1]:2/metrics"),
        ];
        assert_eq!(names(&Config { services, ..Config::default() }), 2);
    }
}
