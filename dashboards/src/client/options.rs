//! Options of the commands that talk to a server.

use std::ffi::OsString;
use std::path::PathBuf;

use super::{Access, Bounds, duration};

/// An option: its name, and what its value is; none for a switch.
pub type Opt = (&'static str, Option<&'static str>);

/// Who asks, whom to trust, how long to wait.
pub const ACCESS: &[Opt] = &[
    ("--user", Some("a name")),
    ("--password-file", Some("a file")),
    ("--token-file", Some("a file")),
    ("--ca-file", Some("a file")),
    ("--timeout", Some("a duration, as 30s")),
];

/// What stands in a help text for [`ACCESS`].
pub const ACCESS_USAGE: &str = "\
  --user NAME --password-file F   basic authentication; also http://NAME:PASSWORD@HOST
  --token-file F                  a bearer token
  --ca-file F                     certificates of your authority (PEM), for https
  --timeout D                     of each request; 30s without
";

/// A command line, taken apart.
#[derive(Debug, Default)]
pub struct Options {
    /// What is no option.
    pub words: Vec<OsString>,
    given: Vec<(&'static str, OsString)>,
}

impl Options {
    /// Takes arguments apart. None when help is asked for. Options may come more than once;
    /// [`one`](Self::one) refuses that.
    ///
    /// # Errors
    /// One sentence.
    pub fn parse(
        args: impl Iterator<Item = OsString>,
        known: &[&[Opt]],
    ) -> Result<Option<Self>, String> {
        let mut options = Self::default();
        let mut args = args;
        while let Some(arg) = args.next() {
            let text = arg.to_string_lossy().into_owned();
            if matches!(text.as_str(), "--help" | "-h" | "help") {
                return Ok(None);
            }
            if !text.starts_with('-') {
                options.words.push(arg);
                continue;
            }
            let (name, inline) = match text.split_once('=') {
                Some((name, value)) => (name, Some(OsString::from(value))),
                None => (text.as_str(), None),
            };
            let mut all = known.iter().copied().flatten();
            let Some((name, takes)) = all.find(|(other, _)| *other == name) else {
                let names: Vec<&str> = known.iter().copied().flatten().map(|opt| opt.0).collect();
                return Err(format!("unknown option {name}; there are {}", names.join(", ")));
            };
            let value = match (takes, inline) {
                (None, None) => OsString::new(),
                (None, Some(_)) => return Err(format!("{name} is a switch and takes no value")),
                (Some(_), Some(value)) => value,
                (Some(what), None) => args.next().ok_or(format!("{name} needs {what}"))?,
            };
            options.given.push((name, value));
        }
        Ok(Some(options))
    }

    /// Every value of an option.
    pub fn every(&self, name: &str) -> impl Iterator<Item = String> {
        let of = self.given.iter().filter(move |(other, _)| *other == name);
        of.map(|(_, value)| value.to_string_lossy().into_owned())
    }

    /// The value of an option.
    ///
    /// # Errors
    /// It is given twice.
    pub fn one(&self, name: &str) -> Result<Option<String>, String> {
        let mut values = self.every(name);
        let first = values.next();
        if values.next().is_some() { Err(format!("{name} is given twice")) } else { Ok(first) }
    }

    /// Whether a switch is there.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.given.iter().any(|(other, _)| *other == name)
    }

    /// The value of an option, read as a duration, in seconds; more than 0.
    ///
    /// # Errors
    /// It is none, 0, or given twice.
    pub fn seconds(&self, name: &str) -> Result<Option<f64>, String> {
        let Some(text) = self.one(name)? else { return Ok(None) };
        let time = duration::parse(&text).map_err(|error| format!("{name}: {error}"))?;
        if time.is_zero() {
            Err(format!("{name} must be more than 0"))
        } else {
            Ok(Some(time.as_secs_f64()))
        }
    }

    /// Who asks, whom to trust, and the bounds.
    ///
    /// # Errors
    /// One sentence.
    pub fn access(&self) -> Result<(Access, Bounds), String> {
        let file = |name| Ok::<_, String>(self.one(name)?.map(PathBuf::from));
        let access = Access {
            user: self.one("--user")?,
            password_file: file("--password-file")?,
            token_file: file("--token-file")?,
            ca_file: file("--ca-file")?,
        };
        let mut bounds = Bounds::default();
        if let Some(seconds) = self.seconds("--timeout")? {
            bounds.timeout = std::time::Duration::from_secs_f64(seconds);
        }
        Ok((access, bounds))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Option<Options>, String> {
        let own: &[Opt] = &[("--force", None), ("--var", Some("a pair"))];
        Options::parse(line.split_whitespace().map(OsString::from), &[own, ACCESS])
    }

    #[test]
    fn options_words_and_help() {
        let options =
            parse("a --var x=1 --user=me --force b --var=y=2 --timeout 1m").expect("valid");
        let options = options.expect("no help");
        assert_eq!(options.words, ["a", "b"]);
        assert_eq!(options.every("--var").collect::<Vec<_>>(), ["x=1", "y=2"]);
        let (access, bounds) = options.access().expect("valid");
        assert_eq!((access.user.as_deref(), bounds.timeout.as_secs()), (Some("me"), 60));
        assert!(options.has("--force") && !options.has("--user2"));
        assert!(options.one("--var").expect_err("two").contains("twice"));
        assert!(parse("--force -h").expect("valid").is_none());
    }

    #[test]
    fn every_mistake_is_one_clear_sentence() {
        for (line, problem) in [
            ("--fast", "unknown option --fast; there are --force, --var, --user"),
            ("--force=1", "takes no value"),
            ("--user", "--user needs a name"),
        ] {
            let error = parse(line).expect_err(line);
            assert!(error.contains(problem), "{error}");
        }
        let wrong = parse("--timeout 0s").expect("parses").expect("no help");
        assert!(wrong.access().expect_err("0").contains("more than 0"));
    }
}
