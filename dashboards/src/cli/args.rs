//! Arguments of the command line: one table of commands and one of options.

mod usage;

use super::Format;
use crate::backend::Flavor;
use metric_catalog::target::Target;
use std::ffi::OsString;
use std::path::PathBuf;
pub(super) use usage::USAGE;

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Command {
    /// Print the help text.
    Help,
    /// Print the version.
    Version,
    /// Write files: into the checkout, or into a folder of their own.
    Generate(Vec<Target>, Option<Bundle>),
    /// Compare files.
    Check(Vec<Target>),
    /// Check dashboards.
    Lint(Vec<Target>, Format),
    /// Say what changed between two files or folders.
    Diff(PathBuf, PathBuf),
    /// Say which metrics nothing reads, and which are read and not declared.
    Coverage(Vec<Target>, Format),
    /// List metrics.
    ListMetrics(Format),
    /// Print the rule files, or write them into a folder.
    Rules(Vec<Target>, Option<PathBuf>),
    /// Print Grafana's provisioning files, or write them into a folder.
    Provision(Option<PathBuf>),
}

/// Files for elsewhere than the checkout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Bundle {
    /// Folder.
    pub(super) out: PathBuf,
    /// Formats of the dashboards.
    pub(super) flavors: Vec<Flavor>,
    /// Whether a dashboard is one line.
    pub(super) compact: bool,
}

/// A parsed command line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Args {
    /// What to do.
    pub(super) command: Command,
    /// Root of the repository, where it is given.
    pub(super) root: Option<PathBuf>,
}

/// Commands, with the number of operands and what these are.
const COMMANDS: &[(&str, usize, &str)] = &[
    ("generate", 0, ""),
    ("check", 0, ""),
    ("lint", 0, ""),
    ("diff", 2, "two dashboards or two folders of them: OLD NEW"),
    ("coverage", 0, ""),
    ("list-metrics", 0, ""),
    ("rules", 0, ""),
    ("provision", 0, ""),
];

/// An option: its name, what its value is (none for a switch), and the commands that take it.
type Opt = (&'static str, Option<&'static str>, &'static [&'static str]);

const OPTIONS: &[Opt] = &[
    (
        "--root",
        Some("a folder"),
        &["generate", "check", "lint", "coverage", "list-metrics", "rules", "provision"],
    ),
    ("--out", Some("a folder"), &["generate", "rules", "provision"]),
    ("--flavor", Some("classic, shared, v2 or all"), &["generate"]),
    ("--compact", None, &["generate"]),
    (
        "--target",
        Some("sightline, sglang, vllm or all"),
        &["generate", "check", "lint", "coverage", "rules"],
    ),
    ("--format", Some("text, json or sarif"), &["lint", "coverage", "list-metrics"]),
];

impl Args {
    /// Parses arguments without the name of the program. The error is one sentence.
    pub(super) fn parse(args: impl Iterator<Item = OsString>) -> Result<Self, String> {
        let mut given = Given::default();
        let mut args = args;
        while let Some(arg) = args.next() {
            let text = arg.to_string_lossy().into_owned();
            match text.as_str() {
                "--help" | "-h" | "help" => return Ok(Self { command: Command::Help, root: None }),
                "--version" | "-V" => return Ok(Self { command: Command::Version, root: None }),
                _ if text.starts_with('-') => given.option(&text, &mut args)?,
                _ => given.words.push(arg),
            }
        }
        given.command()
    }
}

/// What stands on the command line, before it is known whether it fits together.
#[derive(Debug, Default)]
struct Given {
    words: Vec<OsString>,
    options: Vec<(&'static Opt, OsString)>,
}

impl Given {
    fn option(
        &mut self,
        text: &str,
        rest: &mut dyn Iterator<Item = OsString>,
    ) -> Result<(), String> {
        let (name, inline) = match text.split_once('=') {
            Some((name, value)) => (name, Some(OsString::from(value))),
            None => (text, None),
        };
        let Some(option) = OPTIONS.iter().find(|option| option.0 == name) else {
            let known: Vec<&str> = OPTIONS.iter().map(|option| option.0).collect();
            return Err(format!("unknown option {name}; there are {}", known.join(", ")));
        };
        if self.options.iter().any(|(other, _)| other.0 == name) {
            return Err(format!("{name} is given twice"));
        }
        let value = match (option.1, inline) {
            (None, Some(value)) => {
                return Err(format!("{name} is a switch and takes no value: {}", value.display()));
            }
            (None, None) => OsString::new(),
            (Some(_), Some(value)) => value,
            (Some(what), None) => rest.next().ok_or_else(|| format!("{name} needs {what}"))?,
        };
        self.options.push((option, value));
        Ok(())
    }

    fn command(mut self) -> Result<Args, String> {
        let names = || COMMANDS.iter().map(|(name, _, _)| *name).collect::<Vec<_>>().join(", ");
        if self.words.is_empty() {
            return Err(format!("no command; there are {}", names()));
        }
        let word = self.words.remove(0).to_string_lossy().into_owned();
        let Some((word, operands, what)) = COMMANDS.iter().find(|(name, _, _)| *name == word)
        else {
            return Err(format!("unknown command {word}; there are {}", names()));
        };
        if let Some(extra) = self.words.get(*operands) {
            return Err(format!("unexpected argument {} after {word}", extra.display()));
        }
        if self.words.len() < *operands {
            return Err(format!("{word} needs {what}"));
        }
        for ((name, _, takers), _) in &self.options {
            if !takers.contains(word) {
                let takers = takers.join(", ");
                return Err(format!("{name} does not apply to {word}; it goes with {takers}"));
            }
        }
        let root = self.take("--root").map(PathBuf::from);
        let command = match *word {
            "generate" => Command::Generate(self.targets()?, self.bundle()?),
            "check" => Command::Check(self.targets()?),
            "lint" => Command::Lint(self.targets()?, self.format(true)?),
            "diff" => {
                let mut word = || PathBuf::from(self.words.remove(0));
                Command::Diff(word(), word())
            }
            "coverage" => Command::Coverage(self.targets()?, self.format(false)?),
            "list-metrics" => Command::ListMetrics(self.format(false)?),
            "rules" => Command::Rules(self.targets()?, self.take("--out").map(PathBuf::from)),
            "provision" => Command::Provision(self.take("--out").map(PathBuf::from)),
            other => unreachable!("{other} is in the table of commands"),
        };
        Ok(Args { command, root })
    }

    fn take(&mut self, name: &str) -> Option<OsString> {
        let at = self.options.iter().position(|(option, _)| option.0 == name)?;
        Some(self.options.remove(at).1)
    }

    fn targets(&mut self) -> Result<Vec<Target>, String> {
        choose("--target", self.take("--target"), Target::ALL, |target| target.as_str())
    }

    fn bundle(&mut self) -> Result<Option<Bundle>, String> {
        let compact = self.take("--compact").is_some();
        let flavor = self.take("--flavor");
        let all = flavor.clone().unwrap_or_else(|| Flavor::Classic.as_str().into());
        let flavors = choose("--flavor", Some(all), Flavor::ALL, Flavor::as_str)?;
        let Some(out) = self.take("--out") else {
            let refused = |what: &str| Err(format!("{what} needs --out DIR: {IN_THE_CHECKOUT}"));
            return match flavor {
                Some(flavor) if flavors != [Flavor::Classic] => {
                    refused(&format!("--flavor {}", flavor.display()))
                }
                Some(_) | None if compact => refused("--compact"),
                Some(_) | None => Ok(None),
            };
        };
        Ok(Some(Bundle { out: out.into(), flavors, compact }))
    }

    fn format(&mut self, sarif: bool) -> Result<Format, String> {
        let Some(value) = self.take("--format") else { return Ok(Format::Text) };
        let known: &[Format] = if sarif { &Format::ALL } else { &Format::ALL[..2] };
        let one = known.iter().find(|format| value == format.as_str());
        one.copied().ok_or_else(|| wrong("--format", &value, known.iter().map(|f| f.as_str())))
    }
}

/// Why the checkout has one format.
const IN_THE_CHECKOUT: &str = "the checkout holds Classic, one field a line";

/// One of the known, or all of them.
fn choose<T: Copy>(
    option: &str,
    value: Option<OsString>,
    known: &[T],
    name: fn(T) -> &'static str,
) -> Result<Vec<T>, String> {
    let Some(value) = value.filter(|value| value != "all") else { return Ok(known.to_vec()) };
    let one = known.iter().copied().find(|&one| value == name(one));
    let names = known.iter().map(|&one| name(one)).chain(["all"]);
    one.map(|one| vec![one]).ok_or_else(|| wrong(option, &value, names))
}

fn wrong<'a>(option: &str, value: &OsString, known: impl Iterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.collect();
    let (last, first) = known.split_last().expect("every option has values");
    format!("{option} takes {} or {last}, not {}", first.join(", "), value.display())
}

#[cfg(test)]
mod tests;
