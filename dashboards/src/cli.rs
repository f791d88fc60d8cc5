//! The command line. Reads arguments, calls the library, prints, answers with an exit code.
//!
//! Written by hand: four commands and three flags need no parser, and the generator starts fast.

mod args;
mod listing;

use crate::ids::PanelsLock;
use crate::lint;
use crate::output::{self, Output};
use crate::tree::{self, TreeError};
use args::{Args, Command, Format};
use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

/// Findings or differences: the answer is no.
const FOUND: u8 = 1;
/// The command line is wrong.
const USAGE: u8 = 64;
/// A defect of the program, or a file cannot be read or written.
const INTERNAL: u8 = 70;

/// Runs `sightline-dashboards`. `args` begins with the name of the program.
///
/// Exit codes: 0 done, or nothing found; 1 `check` or `lint` found something; 64 the command line
/// is wrong; 70 a file cannot be read or written.
#[must_use]
pub fn run(args: Vec<OsString>) -> ExitCode {
    let args = match Args::parse(args.into_iter().skip(1)) {
        Ok(args) => args,
        Err(problem) => {
            complain(&format!("error: {problem}\n\n{}", args::USAGE.trim_end()));
            return ExitCode::from(USAGE);
        }
    };
    match execute(&args) {
        Ok(code) => code,
        Err(problem) => {
            complain(&format!("error: {problem}"));
            ExitCode::from(INTERNAL)
        }
    }
}

fn execute(args: &Args) -> Result<ExitCode, Problem> {
    match args.command {
        Command::Help => print(args::USAGE.trim_end())?,
        Command::Version => print(concat!("sightline-dashboards ", env!("CARGO_PKG_VERSION")))?,
        Command::Generate => {
            // The first run in a checkout makes the lock file, so a root without one is fine.
            let root = root(args)?;
            let output = output::all(&tree::read_lock(&root)?)?;
            for change in tree::generate(&root, &output)? {
                print(&change)?;
            }
        }
        Command::Check => {
            let root = root(args)?;
            let output = output::all(&tree::read_lock(&root)?)?;
            let differences = tree::check(&root, &output)?;
            for difference in &differences {
                print(difference)?;
            }
            if !differences.is_empty() {
                complain("generated files are stale: run `sightline-dashboards generate`");
                return Ok(ExitCode::from(FOUND));
            }
        }
        Command::Lint(format) => return lint(&read(args)?, format),
        Command::ListMetrics(format) => print(&listing::render(&read(args)?, format))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Everything, with the numbers of the checkout where there is one: `lint` runs without, too.
fn read(args: &Args) -> Result<Output, Problem> {
    let lock = match root(args) {
        Ok(root) => tree::read_lock(&root)?,
        Err(Problem::Tree(TreeError::NoRoot)) => PanelsLock::default(),
        Err(problem) => return Err(problem),
    };
    Ok(output::all(&lock)?)
}

fn root(args: &Args) -> Result<PathBuf, Problem> {
    match &args.root {
        Some(root) => Ok(root.clone()),
        None => Ok(tree::find_root(&std::env::current_dir()?)?),
    }
}

fn lint(output: &Output, format: Format) -> Result<ExitCode, Problem> {
    let report = lint::run(&output.boards);
    match format {
        Format::Text => print(&report.to_text())?,
        Format::Json => print(report.to_json().trim_end())?,
    }
    Ok(if report.findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(FOUND) })
}

#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error(transparent)]
    Tree(#[from] TreeError),
    #[error(transparent)]
    Placement(#[from] crate::backend::PlacementError),
    #[error("standard output: {0}")]
    Io(#[from] io::Error),
}

fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.write_all(b"\n")
}

fn complain(text: &str) {
    // Nobody is left to tell when standard error is closed.
    drop(writeln!(io::stderr().lock(), "{text}"));
}
