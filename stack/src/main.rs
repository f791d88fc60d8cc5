//! Entry point: `up` and `bench` run here, the other programs are called as libraries.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;
use stack::cli::{Cli, Command};

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    // The exporter starts the running program again to read the cards.
    if exporter::gpu::is_worker(&arguments) {
        return exporter::gpu::work();
    }
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => return stack::usage(&error),
    };
    match cli.command {
        Command::Up(args) => stack::up(*args),
        Command::Console(args) => stack::console(&args),
        Command::Bench(args) => stack::bench(&args),
        Command::Server(passed) => {
            stack::end_with_parent();
            server::cli::run(program("sightline server", None, passed.args))
        }
        Command::Plan(passed) => {
            server::cli::run(program("sightline server", Some("plan"), passed.args))
        }
        Command::Exporter(passed) => {
            stack::end_with_parent();
            exporter::cli::run(program("sightline exporter", None, passed.args))
        }
        Command::Doctor(passed) => dashboards::doctor::cli::run(passed.args.into_iter()),
        Command::Dashboards(passed) => {
            dashboards::cli::run(program("sightline dashboards", None, passed.args))
        }
    }
}

fn program(name: &str, command: Option<&str>, args: Vec<OsString>) -> Vec<OsString> {
    let head = [Some(name), command].into_iter().flatten().map(OsString::from);
    head.chain(args).collect()
}
