//! Arguments of the command line.

use std::ffi::OsString;
use std::path::PathBuf;

/// The help text.
pub(super) const USAGE: &str = "\
Grafana dashboards, Prometheus rules and provisioning, generated from the metric catalog.

usage: sightline-dashboards COMMAND [--root DIR] [--format text|json]

commands:
  generate       write every generated file that differs
  check          compare the tree with what would be generated; 1 when it is stale
  lint           check the dashboards against the catalog; 1 when something is found
  list-metrics   every metric, with the panels that read it

options:
  --root DIR     root of the repository; without it, the folder here or above that holds
                 dashboards/panels.lock
  --format F     text (default) or json; for lint and list-metrics
  --help, --version
";

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Command {
    /// Print the help text.
    Help,
    /// Print the version.
    Version,
    /// Write files.
    Generate,
    /// Compare files.
    Check,
    /// Check dashboards.
    Lint(Format),
    /// List metrics.
    ListMetrics(Format),
}

/// Form of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// Lines.
    Text,
    /// JSON.
    Json,
}

/// A parsed command line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Args {
    /// What to do.
    pub(super) command: Command,
    /// Root of the repository, where it is given.
    pub(super) root: Option<PathBuf>,
}

impl Args {
    /// Parses arguments without the name of the program. The error is one sentence.
    pub(super) fn parse(args: impl Iterator<Item = OsString>) -> Result<Self, String> {
        let (mut word, mut root, mut format) = (None, None, None);
        let mut args = args;
        while let Some(arg) = args.next() {
            let text = arg.to_string_lossy().into_owned();
            let (name, inline) = match text.split_once('=') {
                Some((name, value)) if name.starts_with("--") => (name, Some(value.to_owned())),
                Some(_) | None => (text.as_str(), None),
            };
            let mut value = |what: &str| {
                let inline = inline.clone().map(OsString::from);
                inline.or_else(|| args.next()).ok_or(format!("{name} needs {what}"))
            };
            match name {
                "--help" | "-h" | "help" => return Ok(Self { command: Command::Help, root: None }),
                "--version" | "-V" => return Ok(Self { command: Command::Version, root: None }),
                "--root" => root = Some(PathBuf::from(value("a folder")?)),
                "--format" => format = Some(parse_format(&value("text or json")?)?),
                _ if name.starts_with('-') => return Err(format!("unknown option {text}")),
                _ if word.is_none() => word = Some(text),
                _ => return Err(format!("unexpected argument {text}")),
            }
        }
        let word = word.ok_or("no command")?;
        let command = match word.as_str() {
            "generate" => Command::Generate,
            "check" => Command::Check,
            "lint" => Command::Lint(format.take().unwrap_or(Format::Text)),
            "list-metrics" => Command::ListMetrics(format.take().unwrap_or(Format::Text)),
            _ => return Err(format!("unknown command {word}")),
        };
        if format.is_some() {
            return Err(format!("--format does not apply to {word}"));
        }
        Ok(Self { command, root })
    }
}

fn parse_format(value: &OsString) -> Result<Format, String> {
    match value.to_str() {
        Some("text") => Ok(Format::Text),
        Some("json") => Ok(Format::Json),
        Some(_) | None => Err(format!("--format takes text or json, not {}", value.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Args, String> {
        Args::parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn commands_and_options() {
        let plain = |command| Ok(Args { command, root: None });
        assert_eq!(parse("generate"), plain(Command::Generate));
        assert_eq!(parse("lint --format json"), plain(Command::Lint(Format::Json)));
        assert_eq!(parse("--format=json list-metrics"), plain(Command::ListMetrics(Format::Json)));
        assert_eq!(parse("check --help"), plain(Command::Help));
        let rooted = Args { command: Command::Check, root: Some(PathBuf::from("/x=y")) };
        assert_eq!(parse("check --root=/x=y"), Ok(rooted));
    }

    #[test]
    fn every_mistake_is_one_clear_sentence() {
        for (line, problem) in [
            ("", "no command"),
            ("make", "unknown command make"),
            ("check now", "unexpected argument now"),
            ("check --fast", "unknown option --fast"),
            ("check --root", "--root needs a folder"),
            ("lint --format xml", "--format takes text or json, not xml"),
            ("check --format json", "--format does not apply to check"),
        ] {
            assert_eq!(parse(line), Err(problem.to_owned()), "{line}");
        }
    }
}
