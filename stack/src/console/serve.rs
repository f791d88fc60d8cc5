//! `sightline console`: the pages over a Prometheus elsewhere.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use dashboards::client::Access;
use tokio::net::TcpListener;

use super::upstream::{self, Upstream};
use super::{Guard, Source, boards, with_pages};
use crate::cli::ConsoleArgs;
use crate::up::{Failure, Stops, exit};
use crate::{complain, say};

/// Open connections get this long after a signal.
const FAREWELL: Duration = Duration::from_millis(500);

/// The longest time that one question may be given.
const TIMEOUT_MAX: Duration = Duration::from_secs(600);

/// Runs until a signal.
pub(crate) fn run(args: &ConsoleArgs) -> ExitCode {
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
    let ended = runtime.block_on(live(args));
    runtime.shutdown_background();
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            complain(&format!("error: {failure}"));
            ExitCode::from(failure.code)
        }
    }
}

/// Seconds of a duration such as `30s`, within bounds.
fn seconds(option: &str, text: &str, most: Duration) -> Result<Duration, Failure> {
    let ms = crate::promql::parse_duration(text).and_then(|ms| u64::try_from(ms).ok());
    ms.map(Duration::from_millis).filter(|time| !time.is_zero() && *time <= most).ok_or_else(|| {
        let most = most.as_secs();
        let message = format!("{option} {text:?}: give a duration above 0 and at most {most}s");
        Failure::new(exit::CONFIGURATION, message)
    })
}

/// The options checked; connects to nothing.
fn upstream_of(args: &ConsoleArgs) -> Result<Upstream, Failure> {
    let timeout = seconds("--timeout", &args.timeout, TIMEOUT_MAX)?;
    let day = Duration::from_secs(86_400);
    let interval = args.scrape_interval.as_deref();
    let interval = interval.map(|text| seconds("--scrape-interval", text, day)).transpose()?;
    let mut targets: Vec<&'static str> = [boards::OWN].into_iter().chain(boards::FOREIGN).collect();
    targets.retain(|target| args.targets.iter().any(|wanted| wanted == target));
    let options = upstream::Options {
        url: &args.prometheus,
        access: Access {
            user: args.user.clone(),
            password_file: args.password_file.clone(),
            token_file: args.token_file.clone(),
            ca_file: args.ca_file.clone(),
        },
        timeout,
        targets,
        scrape_interval: interval.map(|interval| interval.as_secs_f64()),
    };
    Upstream::new(options).map_err(|error| Failure::new(exit::CONFIGURATION, error.to_string()))
}

async fn live(args: &ConsoleArgs) -> Result<(), Failure> {
    let mut stops = Stops::new()?;
    let upstream = Arc::new(upstream_of(args)?);
    let unusable = |error: std::io::Error| {
        let code = program::exit::Exit::of_io(&error) as u8;
        let listen = args.listen;
        let message =
            format!("{listen} cannot be listened on: {error}; choose another with --listen");
        Failure::new(code, message)
    };
    let listener = TcpListener::bind(args.listen).await.map_err(unusable)?;
    let address = listener.local_addr().map_err(unusable)?;
    let told = upstream.version().await;
    warn(args, &told);
    let guard = Guard::new(address.ip(), &args.allowed_hosts);
    let pages = with_pages(
        upstream::routes(Arc::clone(&upstream)),
        Source::Upstream(Arc::clone(&upstream)),
        guard,
    );
    let version = told.map_or_else(|_| String::new(), |version| format!(" ({version})"));
    say("");
    say(&format!("    console     http://{}/", shown(address)));
    say(&format!("    Prometheus  {}{version}", upstream.address()));
    say("");
    say("  Ctrl-C stops.");
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let served = axum::serve(listener, pages).with_graceful_shutdown(async {
        // Both ends of it mean the same.
        drop(stopped.await);
    });
    let mut served = std::pin::pin!(served.into_future());
    let ended = |outcome: std::io::Result<()>| {
        outcome.map_err(|error| Failure::new(exit::INTERNAL, error.to_string()))
    };
    tokio::select! {
        outcome = &mut served => return ended(outcome),
        () = stops.next() => drop(stop),
    }
    tokio::time::timeout(FAREWELL, served).await.map_or(Ok(()), ended)
}

/// An address that a browser on this machine opens.
fn shown(address: std::net::SocketAddr) -> String {
    if address.ip().is_unspecified() {
        return format!("127.0.0.1:{}", address.port());
    }
    address.to_string()
}

fn warn(args: &ConsoleArgs, told: &Result<String, String>) {
    if let Err(error) = told {
        complain(&format!("warning: {error}"));
        complain("warning: the console starts all the same and asks again when a page does");
    }
    if !args.listen.ip().is_loopback() {
        complain(
            "warning: whoever reaches this address reads what that Prometheus has; the console \
             asks nobody for a password",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(more: &[&str]) -> ConsoleArgs {
        use clap::Parser;
        let all = ["sightline", "console"].iter().chain(more);
        let parsed = crate::cli::Cli::try_parse_from(all).expect("valid");
        let crate::cli::Command::Console(args) = parsed.command else { panic!("not console") };
        *args
    }

    #[test]
    fn what_cannot_be_used_is_told_before_anything_listens() {
        for (more, told) in [
            (&["--prometheus", "prom:9090"][..], "no scheme"),
            (&["--prometheus", "http://p", "--timeout", "0s"], "--timeout \"0s\""),
            (&["--prometheus", "http://p", "--timeout", "1h"], "at most 600s"),
            (&["--prometheus", "http://p", "--scrape-interval", "x"], "--scrape-interval"),
            (&["--prometheus", "http://p", "--token-file", "/no/such"], "/no/such"),
            (&["--prometheus", "http://p", "--user", "u"], "--password-file"),
        ] {
            let failure = upstream_of(&args(more)).expect_err(told);
            assert_eq!(failure.code, exit::CONFIGURATION);
            assert!(failure.to_string().contains(told), "{failure}");
        }
    }

    #[test]
    fn it_listens_on_loopback_unless_told() {
        let args = args(&["--prometheus", "http://p", "--target", "vllm", "--target", "sglang"]);
        assert!(args.listen.ip().is_loopback());
        assert!(upstream_of(&args).is_ok());
    }
}
