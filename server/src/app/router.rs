//! Starts a router, waits for the signal to stop, and lets it finish.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::middleware::from_fn_with_state;
use metric_catalog::install::Registry;
use router::serve::{self, Gateway};
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use types::Clock;

use super::{Addresses, FLUSH_TIME, Signals, hangup, listen, refuse, reload, say};
use crate::cli::{Metrics, RouterArgs};
use crate::config::files;
use crate::config::router::{RouterPlan, resolve};
use crate::http::guard;
use crate::http::listener::Bounds;
use crate::http::settings::{self, RouterSettings};
use crate::lifecycle::{Lifecycle, Needs, Phase};
use crate::live::{Live, RouterValues};
use crate::telemetry::settings::SettingsMetrics;
use crate::{probes, telemetry};
use program::exit::Exit;

/// Routes until a signal; returns how it ended.
#[must_use]
pub fn run(args: &RouterArgs) -> Exit {
    telemetry::install_logs(&args.observe);
    let clock = Clock::start();
    let plan = match resolve(args, files::most()) {
        Ok(plan) => plan,
        Err(findings) => return refuse(&findings),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(args.http_threads)
        .thread_name("http")
        .enable_all()
        .build();
    match runtime {
        Ok(runtime) => {
            let exit = runtime.block_on(route(args, plan, clock));
            // A look-up of a name cannot be interrupted; the process ends anyway.
            runtime.shutdown_background();
            exit
        }
        Err(error) => {
            tracing::error!(%error, "No threads could be started.");
            Exit::Internal
        }
    }
}

async fn route(args: &RouterArgs, plan: RouterPlan, clock: Clock) -> Exit {
    let (mut signals, hangup) = match Signals::new().and_then(|signals| Ok((signals, hangup()?))) {
        Ok(signals) => signals,
        Err(error) => {
            tracing::error!(%error, "Signals cannot be received.");
            return Exit::Internal;
        }
    };
    let registry = match args.observe.metrics {
        Metrics::Off => Registry::disabled(),
        Metrics::On => match Registry::router() {
            Ok(registry) => registry,
            Err(error) => {
                tracing::error!(%error, "Metrics cannot be recorded.");
                return Exit::Internal;
            }
        },
    };
    telemetry::record_program(&registry);
    let gateway = Gateway::new(plan.settings, &registry, clock);
    let life = lifecycle(&gateway);
    let (probes_stop, stop) = (CancellationToken::new(), CancellationToken::new());
    let (probes, bound) = match listen(plan.api, plan.probes, &life, &probes_stop).await {
        Ok(listening) => listening,
        Err(finding) => return refuse(&finding.into()),
    };
    let addresses = Addresses { api: bound.address(), probes: probes.address };
    gateway.listens(bound.address());
    let settings = Arc::new(RouterSettings {
        live: Live::new(
            RouterValues::new(args),
            args.config.is_some().then(|| args.given.clone()),
            SettingsMetrics::new(&registry, clock),
        ),
        gateway: Arc::clone(&gateway),
    });
    let admin = serve::admin(&gateway).merge(settings::of_router(&settings));
    let admin = admin.layer(from_fn_with_state(plan.admin_token, guard::router));
    let admin = serve::recorded(&gateway, admin);
    let api: Router = serve::api(&gateway, probes::routes(&life)).merge(admin);
    let wanted = args.max_connections;
    let connections = files::make_room(plan.connections);
    if connections < wanted {
        tracing::warn!(max_connections = wanted, connections, "Fewer connections can be open.");
    }
    let bounds = Bounds { connections, write_timeout: args.write_timeout.0 };
    let tasks = TaskTracker::new();
    tasks.spawn(telemetry::upkeep(registry.clone(), stop.clone()));
    tasks.spawn(telemetry::canary(registry, clock, stop.clone()));
    tasks.spawn(Arc::clone(&gateway).run(stop.clone()));
    tasks.spawn(bound.serve(api, bounds, stop.clone()));
    let again = Arc::clone(&settings);
    tasks.spawn(reload(move || again.reload(), hangup, stop.clone()));
    tasks.close();

    say(addresses, json!({"role": "router"}));
    signals.next().await;
    let deadline = settings.live.values().drain_deadline();
    drain(&gateway, &life, &mut signals, deadline).await;

    stop.cancel();
    if tokio::time::timeout(FLUSH_TIME, tasks.wait()).await.is_err() {
        tracing::warn!("Some clients did not read their answers in time.");
    }
    probes_stop.cancel();
    probes.join();
    tracing::info!(code = Exit::Ok as u8, "The router has stopped.");
    Exit::Ok
}

/// Ready while a worker has answered that it is, for every role that requests need.
fn lifecycle(gateway: &Arc<Gateway>) -> Arc<Lifecycle> {
    let life = Arc::new(Lifecycle::new(Phase::Ready));
    let asked = Arc::downgrade(gateway);
    life.watch(Box::new(move || {
        let Some(gateway) = asked.upgrade() else { return Needs::default() };
        let missing = gateway.readiness().err().map(|missing| missing.roles).unwrap_or_default();
        let can_serve = gateway.readiness().is_ok();
        let peer =
            |(role, states): (router::WorkerRole, String)| (role.as_str().to_owned(), states);
        let missing_peers = missing.into_iter().map(peer).collect();
        Needs { missing_peers, can_serve, in_flight: gateway.in_flight(), ..Needs::default() }
    }));
    life
}

/// Finishes what is open, at most until the deadline or a second signal.
async fn drain(gateway: &Gateway, life: &Lifecycle, signals: &mut Signals, deadline: Duration) {
    tracing::info!(deadline_seconds = deadline.as_secs(), "Draining.");
    life.advance(Phase::Draining);
    gateway.drain();
    tokio::select! {
        () = gateway.finished() => return,
        () = tokio::time::sleep(deadline) => {
            tracing::warn!(open = gateway.in_flight(), "The time to drain is over.");
        }
        () = signals.next() => {
            tracing::warn!("A second signal: what is still open is given up.");
        }
    }
    gateway.cut();
    if tokio::time::timeout(FLUSH_TIME, gateway.finished()).await.is_err() {
        tracing::warn!(open = gateway.in_flight(), "Some answers could not be ended in time.");
    }
}
