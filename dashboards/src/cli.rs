//! The command line. Reads arguments, calls the library, prints, answers with an exit code.
//!
//! Written by hand: a few commands and flags need no parser, and the generator starts fast.

mod args;
mod compare;
mod listing;

use crate::ids::PanelsLock;
use crate::output::{self, Artifact, Output};
use crate::tree::{self, TreeError};
use crate::{bundle, coverage, lint};
use args::{Args, Bundle, Command};
use metric_catalog::target::Target;
use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Findings or differences: the answer is no.
const FOUND: u8 = 1;
/// The command line is wrong.
const USAGE: u8 = 64;
/// A defect of the program, or a file cannot be read or written.
const INTERNAL: u8 = 70;

/// Runs `sightline-dashboards`. `args` begins with the name of the program.
///
/// Exit codes: 0 done, or nothing found; 1 `check`, `lint`, `diff` or `coverage` found something;
/// 64 the command line is wrong; 70 a file cannot be read or written.
#[must_use]
pub fn run(args: Vec<OsString>) -> ExitCode {
    // These talk to servers, and have options of their own.
    #[cfg(feature = "live")]
    match args.get(1).and_then(|word| word.to_str()) {
        Some("live") => return crate::live::cli::run(args.into_iter().skip(2)),
        Some("doctor") => return crate::doctor::cli::run(args.into_iter().skip(2)),
        Some("push") => return crate::push::cli::run(args.into_iter().skip(2)),
        Some(_) | None => {}
    }
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
    match &args.command {
        Command::Help => print(args::USAGE.trim_end())?,
        Command::Version => print(concat!("sightline-dashboards ", env!("CARGO_PKG_VERSION")))?,
        Command::Generate(targets, to) => generate(args, targets, to.as_ref())?,
        Command::Check(targets) => return check(args, targets),
        Command::Lint(targets, format) => return lint(args, targets, *format),
        Command::Diff(old, new) => {
            let differences = compare::paths(old, new)?;
            print_all(&differences)?;
            return Ok(found(!differences.is_empty()));
        }
        Command::Coverage(targets, format) => return coverage(&read(args)?, targets, *format),
        Command::ListMetrics(format) => print(&listing::render(&read(args)?, *format))?,
        Command::Rules(targets, out) => {
            let files = bundle::rules(&read(args)?, targets, ".");
            files_or_text(&files, out.as_deref())?;
        }
        Command::Provision(out) => {
            let files = bundle::provisioning(&read(args)?, ".");
            files_or_text(&files, out.as_deref())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn generate(args: &Args, targets: &[Target], to: Option<&Bundle>) -> Result<(), Problem> {
    let changes = if let Some(to) = to {
        let files = bundle::artifacts(&read(args)?, targets, &to.flavors, to.compact);
        tree::write(&to.out, &files)?
    } else {
        // The first run in a checkout makes the lock file, so a root without one is fine.
        let root = root(args)?;
        tree::generate(&root, &output::all(&tree::read_lock(&root)?)?, targets)?
    };
    Ok(print_all(&changes)?)
}

fn check(args: &Args, targets: &[Target]) -> Result<ExitCode, Problem> {
    let root = root(args)?;
    let output = output::all(&tree::read_lock(&root)?)?;
    let differences = tree::check(&root, &output, targets)?;
    print_all(&differences)?;
    if !differences.is_empty() {
        complain("generated files are stale: run `sightline-dashboards generate`");
    }
    Ok(found(!differences.is_empty()))
}

/// Everything, with the numbers of the checkout where there is one, else with those that this
/// program was built with.
fn read(args: &Args) -> Result<Output, Problem> {
    let lock = match root(args) {
        Ok(root) => tree::read_lock(&root)?,
        Err(Problem::Tree(TreeError::NoRoot)) => PanelsLock::built_in(),
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

fn lint(args: &Args, targets: &[Target], format: Format) -> Result<ExitCode, Problem> {
    let output = read(args)?;
    let report = lint::run_for(&output.boards, targets);
    match format {
        Format::Text => print(&report.to_text())?,
        Format::Json => print(report.to_json().trim_end())?,
        Format::Sarif => print(lint::sarif(&report, &output.boards).trim_end())?,
    }
    Ok(found(!report.findings.is_empty()))
}

fn coverage(output: &Output, targets: &[Target], format: Format) -> Result<ExitCode, Problem> {
    let report = coverage::of(&output.boards, targets);
    match format {
        Format::Text => print(&report.to_text())?,
        Format::Json => print(report.to_json().trim_end())?,
        Format::Sarif => unreachable!("the arguments allow it for lint alone"),
    }
    Ok(found(!report.is_complete()))
}

fn found(anything: bool) -> ExitCode {
    if anything { ExitCode::from(FOUND) } else { ExitCode::SUCCESS }
}

/// Writes files into the folder, or prints each below a line with its name.
fn files_or_text(files: &[Artifact], out: Option<&Path>) -> Result<(), Problem> {
    if let Some(folder) = out {
        print_all(&tree::write(folder, files)?)?;
        return Ok(());
    }
    for file in files {
        print(&format!("# {}\n{}", file.path, file.text.trim_end()))?;
    }
    Ok(())
}

/// Form of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    /// Lines.
    Text,
    /// JSON.
    Json,
    /// SARIF 2.1.0, which code hosts and editors read.
    Sarif,
}

impl Format {
    /// All of them; those of every report come first.
    const ALL: [Self; 3] = [Self::Text, Self::Json, Self::Sarif];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
            Self::Sarif => "sarif",
        }
    }
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

fn print_all(lines: &[String]) -> io::Result<()> {
    lines.iter().try_for_each(|line| print(line))
}

fn complain(text: &str) {
    // Nobody is left to tell when standard error is closed.
    drop(writeln!(io::stderr().lock(), "{text}"));
}
