//! The one-command program behind `sightline`.
//!
//! It starts the stack as child processes, keeps their metrics in an embedded store, answers the
//! Prometheus query API from it, evaluates the generated rules and shows the generated dashboards
//! in the browser. It serves no model and records no metric of its own: the children do.

#![forbid(unsafe_code)]

mod bench;
pub mod cli;
mod clock;
mod console;
mod demo;
mod dice;
mod exposition;
mod http;
mod promapi;
#[cfg(test)]
mod prometheus;
mod promql;
mod rules;
mod scrape;
mod store;
mod up;

use std::io::Write;
use std::process::ExitCode;

use clap::error::ErrorKind;

/// Exit codes are those of all programs of the product: 0, 64 usage, 69 host, 70 internal,
/// 75 temporary, 77 permission, 78 configuration.
const USAGE: u8 = 64;

/// Runs `sightline up` until it is told to stop or a child ends.
#[must_use]
pub fn up(args: cli::UpArgs) -> ExitCode {
    up::run(&args)
}

/// Runs `sightline console` until it is told to stop.
#[must_use]
pub fn console(args: &cli::ConsoleArgs) -> ExitCode {
    console::serve::run(args)
}

/// Runs `sightline bench` to its end; its help lists the exit codes.
#[must_use]
pub fn bench(args: &cli::BenchArgs) -> ExitCode {
    bench::run(args)
}

/// Makes this process end when the program that started it ends, however that happens.
///
/// Does nothing for a process that was not started by `sightline up`.
pub fn end_with_parent() {
    up::end_with_parent();
}

/// Prints what is wrong with a command line, or the help that it asked for.
#[must_use]
pub fn usage(error: &clap::Error) -> ExitCode {
    // Nobody is left to tell when the terminal is gone.
    drop(error.print());
    let asked = [ErrorKind::DisplayHelp, ErrorKind::DisplayVersion].contains(&error.kind());
    if asked { ExitCode::SUCCESS } else { ExitCode::from(USAGE) }
}

/// Writes a line to standard output; a closed pipe is no error.
fn say(line: &str) {
    drop(writeln!(std::io::stdout().lock(), "{line}"));
}

/// Writes a line to standard error; a closed pipe is no error.
fn complain(line: &str) {
    drop(writeln!(std::io::stderr().lock(), "{line}"));
}
