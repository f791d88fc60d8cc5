//! `sightline-dashboards live`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use metric_catalog::target::{Target, UnknownTarget};
use serde_json::Value;

use super::board::Board;
use super::{Settings, check, time};
use crate::client::options::{ACCESS, ACCESS_USAGE, Opt, Options};
use crate::client::{ClientError, Prometheus, block_on};
use crate::ids::PanelsLock;
use crate::output::{self, Output};

/// The help text, without the options of access.
const USAGE: &str = "\
Asks a Prometheus every query of every panel, and says which yield nothing.

usage: sightline-dashboards live --prometheus URL [OPTION].. [FILE|FOLDER]..

Checks the dashboards of this program, or the Classic JSON in the given files and folders.
Exit codes: 0 all is well; 1 something is EMPTY or ERROR; 64 the command line is wrong; 70 a file
cannot be read; 75 the Prometheus does not answer.

options:
  --prometheus URL                http://HOST:9090, with the path before /api/v1 if there is one
  --target T                      whose dashboards: sightline (default), sglang, vllm or all
  --at T                          end of the range: Unix seconds or RFC 3339; now without
  --range D                       length of the range; 1h without
  --step D                        between points; as the range asks for without
  --scrape-interval D             as Grafana's data source is told; what most targets have without
  --var NAME=VALUE                a variable that does not stand at All; any number of them
  --format F                      text (default) or json
";

const OPTIONS: &[Opt] = &[
    ("--prometheus", Some("a URL")),
    ("--target", Some("sightline, sglang, vllm or all")),
    ("--at", Some("a time")),
    ("--range", Some("a duration, as 3h")),
    ("--step", Some("a duration, as 15s")),
    ("--scrape-interval", Some("a duration, as 15s")),
    ("--var", Some("NAME=VALUE")),
    ("--format", Some("text or json")),
];

/// Seconds looked at where no range is given.
const RANGE_SECONDS: f64 = 3_600.0;

/// Files of a folder that are looked at.
const FILES_MAX: usize = 1_000;

/// Exit codes: the answer is no; usage; a defect, or a file cannot be read; not now.
const FOUND: u8 = 1;
const USAGE_CODE: u8 = 64;
const INTERNAL: u8 = 70;
const TEMPORARY: u8 = 75;

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error("{0}\n\n{USAGE}{ACCESS_USAGE}")]
    Usage(String),
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("{0}")]
    File(String),
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

impl Problem {
    const fn code(&self) -> u8 {
        match self {
            Self::Usage(_) | Self::Client(ClientError::Url { .. } | ClientError::File { .. }) => {
                USAGE_CODE
            }
            Self::Client(_) => TEMPORARY,
            Self::File(_) | Self::Io(_) => INTERNAL,
        }
    }
}

/// Runs the command. `args` begins after its name.
///
/// Exit codes: 0 all is well; 1 something is empty or fails; 64 the command line is wrong; 70 a
/// file cannot be read; 75 the Prometheus does not answer.
#[must_use]
pub fn run(args: impl Iterator<Item = OsString>) -> ExitCode {
    match execute(args) {
        Ok((text, faults)) => match print(&text) {
            Ok(()) if faults => ExitCode::from(FOUND),
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::from(INTERNAL),
        },
        Err(problem) => {
            // Nobody is left to tell when standard error is closed.
            drop(std::io::Write::write_all(
                &mut std::io::stderr().lock(),
                format!("error: {problem}\n").as_bytes(),
            ));
            ExitCode::from(problem.code())
        }
    }
}

fn print(text: &str) -> std::io::Result<()> {
    use std::io::Write as _;
    writeln!(std::io::stdout().lock(), "{text}")
}

/// The text to print, and whether there are faults.
fn execute(args: impl Iterator<Item = OsString>) -> Result<(String, bool), Problem> {
    let Some(options) = Options::parse(args, &[OPTIONS, ACCESS]).map_err(Problem::Usage)? else {
        return Ok((format!("{}{}", USAGE, ACCESS_USAGE.trim_end()), false));
    };
    let asked = Asked::read(&options).map_err(Problem::Usage)?;
    let boards = match &options.words[..] {
        [] => built_in(&asked.targets)?,
        paths => from_files(paths)?,
    };
    let (access, bounds) = options.access().map_err(Problem::Usage)?;
    let prometheus = Prometheus::with(&asked.url, &access, bounds)?;
    let report = block_on(check(&prometheus, &boards, asked.settings, &asked.chosen))??;
    let text = if asked.json { report.to_json().trim_end().to_owned() } else { report.to_text() };
    Ok((text, report.has_faults()))
}

#[derive(Debug)]
struct Asked {
    url: String,
    targets: Vec<Target>,
    settings: Settings,
    chosen: BTreeMap<String, String>,
    json: bool,
}

impl Asked {
    fn read(options: &Options) -> Result<Self, String> {
        let url = options.one("--prometheus")?.ok_or("--prometheus URL is missing")?;
        let at = match options.one("--at")? {
            Some(text) => time::parse(&text)?,
            None => now(),
        };
        let settings = Settings {
            at,
            range: options.seconds("--range")?.unwrap_or(RANGE_SECONDS),
            step: options.seconds("--step")?,
            scrape_interval: options.seconds("--scrape-interval")?,
        };
        let mut chosen = BTreeMap::new();
        for pair in options.every("--var") {
            let wrong = || format!("--var takes NAME=VALUE, as job=prefill, not {pair}");
            let (name, value) = pair.split_once('=').ok_or_else(wrong)?;
            chosen.insert(name.to_owned(), value.to_owned());
        }
        let json = match options.one("--format")?.as_deref() {
            None | Some("text") => false,
            Some("json") => true,
            Some(other) => return Err(format!("--format takes text or json, not {other}")),
        };
        let target = options.one("--target")?;
        if target.is_some() && !options.words.is_empty() {
            return Err("--target chooses among the dashboards of this program, and files are \
                        given: leave one of them out"
                .to_owned());
        }
        let targets = match target.as_deref() {
            None => vec![Target::Sightline],
            Some("all") => Target::ALL.to_vec(),
            Some(word) => vec![word.parse().map_err(|error: UnknownTarget| error.to_string())?],
        };
        Ok(Self { url, targets, settings, chosen, json })
    }
}

/// Now, in Unix seconds.
#[must_use]
pub fn now() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0.0, |since| since.as_secs_f64())
}

/// The dashboards of this program for these targets.
fn built_in(targets: &[Target]) -> Result<Vec<Board>, Problem> {
    let defect = |error: &dyn std::fmt::Display| Problem::File(error.to_string());
    let output = output::all(&PanelsLock::built_in()).map_err(|error| defect(&error))?;
    let boards = of_output(&output, targets).map_err(|error| defect(&error))?;
    if boards.is_empty() {
        let words: Vec<&str> = targets.iter().map(|target| target.as_str()).collect();
        return Err(Problem::Usage(format!("no dashboard is for {}", words.join(" or "))));
    }
    Ok(boards)
}

/// The dashboards of these targets in an output, as a live check reads them.
///
/// # Errors
/// A dashboard cannot be read back: a defect.
pub fn of_output(output: &Output, targets: &[Target]) -> Result<Vec<Board>, String> {
    let read = |board: &output::Board| {
        let json: Value = serde_json::from_str(&board.json).map_err(|e| e.to_string())?;
        Board::read(&json, &board.slugs())
    };
    output.boards.iter().filter(|board| targets.contains(&board.target)).map(read).collect()
}

fn from_files(paths: &[OsString]) -> Result<Vec<Board>, Problem> {
    let mut boards = Vec::new();
    for path in paths.iter().map(Path::new) {
        let wrong =
            |error: &dyn std::fmt::Display| Problem::File(format!("{}: {error}", path.display()));
        let files = if path.is_dir() {
            let found = json_files(path).map_err(|error| wrong(&error))?;
            if found.is_empty() {
                return Err(wrong(&"no .json file in it"));
            }
            found
        } else {
            vec![path.to_path_buf()]
        };
        for file in files {
            let wrong = |error: &dyn std::fmt::Display| {
                Problem::File(format!("{}: {error}", file.display()))
            };
            let text = std::fs::read_to_string(&file).map_err(|error| wrong(&error))?;
            let json = serde_json::from_str(&text).map_err(|error| wrong(&error))?;
            boards.push(Board::read(&json, &BTreeMap::new()).map_err(|error| wrong(&error))?);
        }
    }
    Ok(boards)
}

/// The `.json` files of a folder, sorted.
fn json_files(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "json") {
            files.push(path);
        }
        if files.len() > FILES_MAX {
            let why = format!("more than {FILES_MAX} dashboards; give them in parts");
            return Err(std::io::Error::other(why));
        }
    }
    files.sort();
    Ok(files)
}
