//! `sightline bench incident`: fifteen or more clients with long prompts on a prefill worker of a
//! few thousand tokens a second, without limits and with the default ones.
//!
//! Real processes on this machine; only the time of a forward pass is modelled. The alert rules
//! are the generated ones, evaluated over what the processes tell. The parts: the script
//! (`args`), the processes (`cluster`), the clients, what watches (`watch`, in the time of
//! `story`), and what came of it (`result`, `table`).

pub(crate) mod args;
mod clients;
mod cluster;
mod result;
mod story;
mod table;
mod watch;

use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use hyper::header::{HeaderMap, HeaderValue};
use program::exit::Exit;

use super::UNMET;
use super::client::Client;
use crate::up::{Failure, Stops, exit, first_to_end};
use crate::{complain, say};
use args::{IncidentArgs, Limits, Script};
use clients::Crowd;
use cluster::Cluster;
use result::Report;
use story::Story;
use watch::Watch;

/// How often is told how far it is.
const TELL_EVERY: Duration = Duration::from_secs(15);

/// Runs all runs on `runtime`, whose thread the processes are tied to.
pub(super) fn run(args: &IncidentArgs, runtime: tokio::runtime::Runtime) -> ExitCode {
    let script = match Script::new(args) {
        Ok(script) => Arc::new(script),
        Err(error) => {
            complain(&format!("error: {error}"));
            return Exit::Configuration.into();
        }
    };
    let ended = runtime.block_on(async {
        let mut stops = Stops::new()?;
        // What has started ends with what holds it.
        tokio::select! {
            ended = all(args, &script) => ended,
            () = stops.next() => {
                complain("Stopped: a run that did not end tells nothing.");
                Ok(exit::INTERRUPTED)
            }
        }
    });
    runtime.shutdown_background();
    match ended {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            complain(&format!("error: {failure}"));
            ExitCode::from(failure.code)
        }
    }
}

async fn all(args: &IncidentArgs, script: &Arc<Script>) -> Result<u8, Failure> {
    let as_table = args.json.as_deref() != Some(Path::new("-"));
    if as_table {
        say(table::header(script).trim_end());
    }
    let mut reports = Vec::new();
    for limits in args.run.runs() {
        reports.push(one(script, *limits, args.quiet).await?);
    }
    if as_table {
        say(table::table(&reports).trim_end());
    }
    tell_programs(args, script, &reports)?;
    let holds = reports.iter().flat_map(Report::promises).all(|promise| promise.holds);
    Ok(if holds { 0 } else { UNMET })
}

/// One run, with processes of its own.
async fn one(script: &Arc<Script>, limits: Limits, quiet: bool) -> Result<Report, Failure> {
    let mut cluster = Cluster::start(script, limits).await?;
    let watch = Watch::start(Story::begin(script.scale), &cluster.targets)?;
    let crowd = Crowd {
        target: Arc::new(client(&cluster.front)?),
        script: Arc::clone(script),
        model: cluster.model.clone(),
        run: match limits {
            Limits::Off => 0,
            Limits::Default => 1,
        },
    };
    let visits = async {
        let calm = crowd.calm().await;
        let came = watch.seconds();
        let crowd = tokio::select! {
            visits = crowd.come() => visits,
            never = tell(&watch, limits, came, quiet) => match never {},
        };
        (calm, came, crowd)
    };
    let (calm, came, visits) = tokio::select! {
        visits = visits => visits,
        cause = first_to_end(&mut cluster.children) => return Err(cause),
    };
    let seen = watch.end().await;
    cluster.end().await;
    Ok(Report::new(limits, script, (&calm, &visits), came, seen))
}

/// Says now and then how far it is.
async fn tell(watch: &Watch, limits: Limits, came: f64, quiet: bool) -> std::convert::Infallible {
    loop {
        if !quiet {
            let alerts = watch.alerts();
            let names: Vec<&str> = alerts.names().into_iter().map(|(name, _)| name).collect();
            let fired = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            let since = watch.seconds() - came;
            complain(&format!("run {}: {since:.0} s; alerts: {fired}", limits.letter()));
        }
        tokio::time::sleep(TELL_EVERY).await;
    }
}

fn client(front: &str) -> Result<Client, Failure> {
    let internal = |error: &dyn std::fmt::Display| {
        Failure::new(exit::INTERNAL, format!("{front} is no address: {error}"))
    };
    let address: SocketAddr = front.parse().map_err(|error| internal(&error))?;
    let host = HeaderValue::from_str(front).map_err(|error| internal(&error))?;
    Ok(Client::new(address, host, String::new(), HeaderMap::new()))
}

fn tell_programs(args: &IncidentArgs, script: &Script, reports: &[Report]) -> Result<(), Failure> {
    let Some(path) = args.json.as_deref() else { return Ok(()) };
    let text = serde_json::to_string_pretty(&table::json(script, reports))
        .map_err(|error| Failure::new(exit::INTERNAL, error.to_string()))?;
    if path == Path::new("-") {
        say(&text);
        return Ok(());
    }
    std::fs::write(path, text + "\n").map_err(|error| {
        Failure::new(Exit::of_io(&error) as u8, format!("{}: {error}", path.display()))
    })
}
