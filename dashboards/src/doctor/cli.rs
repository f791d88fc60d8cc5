//! `sightline doctor`.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use super::{Settings, bundle, examine};
use crate::client::options::{ACCESS, ACCESS_USAGE, Opt, Options};
use crate::client::{ClientError, Http, Prometheus, block_on};
use crate::ids::PanelsLock;
use crate::live::cli::now;
use crate::output;
use crate::tree::{self, TreeError};

/// The help text, without the options of access.
const USAGE: &str = "\
Says what of the dashboards and alerts works on a cluster of SGLang, vLLM or Sightline that exists,
and what is missing for the rest. Reads only; needs no Sightline server.

usage: sightline doctor --prometheus URL [OPTION]..

Exit codes: 0 an engine was found and reported; 64 the command line is wrong; 70 a file cannot be
written, or a defect; 75 the Prometheus does not answer; 76 it answers, and scrapes no engine; 77 it
does not know you, or you may not.

options:
  --prometheus URL                http://HOST:9090, with the path before /api/v1 if there is one
  --engine-url URL                an engine, asked for its version and pages; any number of them;
                                  credentials are for the Prometheus, not for these
  --out DIR                       write scrape jobs, rules and dashboards for this cluster there
  --window D                      how far back series are looked for; 15m without
  --format F                      text (default) or json
";

const OPTIONS: &[Opt] = &[
    ("--prometheus", Some("a URL")),
    ("--engine-url", Some("a URL")),
    ("--out", Some("a folder")),
    ("--window", Some("a duration, as 15m")),
    ("--format", Some("text or json")),
];

/// Seconds that are looked back.
const WINDOW_SECONDS: f64 = 900.0;

/// Exit codes, those of all programs of the product.
const USAGE_CODE: u8 = 64;
const INTERNAL: u8 = 70;
const TEMPORARY: u8 = 75;
const PEER: u8 = 76;
const PERMISSION: u8 = 77;

#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error("{0}\n\n{USAGE}{ACCESS_USAGE}")]
    Usage(String),
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    Tree(#[from] TreeError),
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
            Self::Client(_) => TEMPORARY,
            Self::Tree(_) | Self::Placement(_) | Self::Io(_) => INTERNAL,
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
    let missing = || usage("--prometheus URL is missing".to_owned());
    let url = options.one("--prometheus").map_err(usage)?.ok_or_else(missing)?;
    let json = match options.one("--format").map_err(usage)?.as_deref() {
        None | Some("text") => false,
        Some("json") => true,
        Some(other) => return Err(usage(format!("--format takes text or json, not {other}"))),
    };
    let window = options.seconds("--window").map_err(usage)?.unwrap_or(WINDOW_SECONDS);
    let out = options.one("--out").map_err(usage)?;
    let (access, bounds) = options.access().map_err(usage)?;
    let prometheus = Prometheus::with(&url, &access, bounds)?;
    let of_engines =
        crate::client::Access { ca_file: access.ca_file.clone(), ..Default::default() };
    let engines = options.every("--engine-url").map(|url| Http::new(&url, &of_engines, bounds));
    let engines: Vec<Http> = engines.collect::<Result<_, _>>()?;
    let output = output::all(&PanelsLock::built_in())?;
    let settings = Settings { at: now(), window };
    let report = block_on(examine(&prometheus, &engines, &output, settings))??;
    let text = if json { report.to_json().trim_end().to_owned() } else { report.to_text() };
    print(&text)?;
    if let Some(folder) = out {
        let files = bundle::artifacts(&report, &output);
        let written = tree::write(Path::new(&folder), &files)?;
        if !json {
            let (all, changed) = (files.len(), written.len());
            print(&format!(
                "{folder}: {all} files, {changed} of them new; its README.md says how"
            ))?;
        }
    }
    let found = !report.cluster.engines.is_empty();
    Ok(if found { ExitCode::SUCCESS } else { ExitCode::from(PEER) })
}
