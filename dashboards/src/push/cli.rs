//! `sightline-dashboards push`.

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

use metric_catalog::target::{Target, UnknownTarget};

use super::{Fate, Settings, push};
use crate::client::options::{ACCESS, ACCESS_USAGE, Opt, Options};
use crate::client::{ClientError, Http, block_on};
use crate::ids::PanelsLock;
use crate::output::{self, Board};

/// The help text, without the options of access.
const USAGE: &str = "\
Puts the dashboards into a Grafana by its HTTP API.

usage: sightline-dashboards push --grafana URL [OPTION]..

A dashboard that was edited by hand since the last push is left alone and told. Where Grafana's
files provide the dashboards already, change those instead: Grafana takes no other.
Exit codes: 0 done; 1 something was edited by hand and left alone; 64 the command line is wrong;
70 the Grafana refuses; 75 it does not answer; 77 it does not know you, or you may not.

options:
  --grafana URL                   http://HOST:3000, with the path before /api if there is one
  --folder NAME                   folder for all of them, made where it is missing; without it, new
                                  ones go to `Sightline` and others stay where they are
  --target T                      whose dashboards: sightline (default), sglang, vllm or all
  --dry-run                       change nothing; say what would be done
  --force                         replace also what was edited by hand
";

const OPTIONS: &[Opt] = &[
    ("--grafana", Some("a URL")),
    ("--folder", Some("a name")),
    ("--target", Some("sightline, sglang, vllm or all")),
    ("--dry-run", None),
    ("--force", None),
];

/// Exit codes.
const REFUSED: u8 = 1;
const USAGE_CODE: u8 = 64;
const INTERNAL: u8 = 70;
const TEMPORARY: u8 = 75;
const PERMISSION: u8 = 77;

#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error("{0}\n\n{USAGE}{ACCESS_USAGE}")]
    Usage(String),
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    Placement(#[from] crate::backend::PlacementError),
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

impl Problem {
    const fn code(&self) -> u8 {
        match self {
            Self::Usage(_) | Self::Client(ClientError::Url { .. } | ClientError::File { .. }) => {
                USAGE_CODE
            }
            Self::Client(ClientError::Status { status: 401 | 403, .. }) => PERMISSION,
            Self::Client(error) if !error.answered() => TEMPORARY,
            Self::Client(_) | Self::Placement(_) | Self::Io(_) => INTERNAL,
        }
    }
}

/// Runs the command. `args` begins after its name; the help text lists the exit codes.
#[must_use]
pub fn run(args: impl Iterator<Item = OsString>) -> ExitCode {
    match execute(args) {
        Ok(code) => code,
        Err(problem) => {
            // Nobody is left to tell when standard error is closed.
            drop(writeln!(std::io::stderr().lock(), "error: {problem}"));
            ExitCode::from(problem.code())
        }
    }
}

fn print(text: &str) -> std::io::Result<()> {
    writeln!(std::io::stdout().lock(), "{text}")
}

fn execute(args: impl Iterator<Item = OsString>) -> Result<ExitCode, Problem> {
    let Some(options) = Options::parse(args, &[OPTIONS, ACCESS]).map_err(Problem::Usage)? else {
        print(&format!("{USAGE}{}", ACCESS_USAGE.trim_end()))?;
        return Ok(ExitCode::SUCCESS);
    };
    let usage = |text: String| Problem::Usage(text);
    if let Some(word) = options.words.first() {
        return Err(usage(format!("unexpected argument {}", word.display())));
    }
    let missing = || usage("--grafana URL is missing".to_owned());
    let url = options.one("--grafana").map_err(usage)?.ok_or_else(missing)?;
    let targets = targets(options.one("--target").map_err(usage)?.as_deref()).map_err(usage)?;
    let settings = Settings {
        folder: options.one("--folder").map_err(usage)?,
        dry_run: options.has("--dry-run"),
        force: options.has("--force"),
    };
    let (access, bounds) = options.access().map_err(usage)?;
    let http = Http::new(&url, &access, bounds)?;
    let output = output::all(&PanelsLock::built_in())?;
    let boards: Vec<&Board> =
        output.boards.iter().filter(|board| targets.contains(&board.target)).collect();
    let mut refused = false;
    let mut written = Ok(());
    let mut told = |uid: &str, fate: &Fate| {
        refused |= fate.is_refused();
        let text = describe(uid, fate, settings.dry_run);
        written = std::mem::replace(&mut written, Ok(())).and_then(|()| print(&text));
    };
    block_on(push(&http, &boards, &settings, &mut told))??;
    written?;
    Ok(if refused { ExitCode::from(REFUSED) } else { ExitCode::SUCCESS })
}

fn targets(word: Option<&str>) -> Result<Vec<Target>, String> {
    match word {
        None => Ok(vec![Target::Sightline]),
        Some("all") => Ok(Target::ALL.to_vec()),
        Some(word) => Ok(vec![word.parse().map_err(|error: UnknownTarget| error.to_string())?]),
    }
}

/// What happened, or would, with a dashboard.
fn describe(uid: &str, fate: &Fate, dry_run: bool) -> String {
    let would = if dry_run { "would be " } else { "" };
    let (what, lines): (String, &[String]) = match fate {
        Fate::Created => (format!("{would}created"), &[]),
        Fate::Unchanged => ("unchanged".to_owned(), &[]),
        Fate::Updated(lines) => (format!("{would}updated"), lines),
        Fate::Overwritten(lines) => (format!("{would}replaced, edits by hand are lost"), lines),
        Fate::Edited(lines) => {
            let why = "edited by hand, or not from here: left alone; --force replaces it";
            (why.to_owned(), lines)
        }
        Fate::Provisioned => {
            let why = "comes from a file of the server, which takes no other: left alone; change \
                       the file, or remove it there";
            (why.to_owned(), &[])
        }
    };
    let shown: Vec<String> = lines.iter().map(|line| format!("  {line}")).collect();
    [vec![format!("{uid}: {what}")], shown].concat().join("\n")
}
