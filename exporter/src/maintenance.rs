//! Planned work: a file says until when, so that alerts about what is missing keep quiet.
//!
//! An operator or a rollout writes it (`echo "decode $(date +%s -d '+10 min')" > FILE`), renews it
//! while the work goes on, and removes it. A time counts up to 15 minutes after the file was
//! written, so that one that is forgotten silences nothing for long.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::time::{Duration, SystemTime};

use metric_catalog::labels::Role;
use metric_catalog::{node as catalog, page::Page, slo};

use crate::slot::{CollectError, ErrorKind, View};

/// A longer file is not one of these.
const BYTES_MAX: u64 = 4096;

/// Until when work on each role is planned.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Maintenance {
    /// Roles without planned work are missing.
    pub until: BTreeMap<Role, SystemTime>,
}

impl Maintenance {
    /// From the text of a file that was written at `written`.
    ///
    /// # Errors
    /// The first line that is not a role and a time.
    pub fn parse(text: &str, written: SystemTime, now: SystemTime) -> Result<Self, CollectError> {
        let most = Duration::from_secs_f64(slo::MAINTENANCE_SECONDS_MAX);
        let last = written.min(now) + most;
        let mut until = BTreeMap::new();
        for line in text.lines().map(str::trim) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (roles, time) = entry(line).ok_or_else(|| {
                let roles: Vec<_> = Role::ALL.iter().map(|role| role.as_str()).collect();
                let quoted: String = line.chars().take(80).collect();
                CollectError::new(
                    ErrorKind::Malformed,
                    format!(
                        "{quoted:?} is not a role and seconds since 1970; write \"decode \
                         1790000000\"; roles are {} and all",
                        roles.join(", ")
                    ),
                )
            })?;
            for role in roles {
                // Of two lines for one role, the later time.
                let at = until.entry(*role).or_insert(time).to_owned().max(time).min(last);
                until.insert(*role, at);
            }
        }
        Ok(Self { until })
    }
}

fn entry(line: &str) -> Option<(&'static [Role], SystemTime)> {
    let mut words = line.split_whitespace();
    let (role, seconds) = (words.next()?, words.next()?.parse().ok()?);
    if words.next().is_some() {
        return None;
    }
    let roles = match role {
        "all" => Role::ALL,
        name => {
            let at = Role::ALL.iter().position(|role| role.as_str() == name)?;
            &Role::ALL[at..=at]
        }
    };
    Some((roles, SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))?))
}

/// Reads the file. One that is not there says that nothing is planned. Blocks.
///
/// # Errors
/// It is there and cannot be read, or says something else.
pub fn read(path: &Path, now: SystemTime) -> Result<Maintenance, CollectError> {
    let failed = |error: &io::Error| CollectError::io(&path.display().to_string(), error);
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Maintenance::default()),
        Err(error) => return Err(failed(&error)),
    };
    let written = file.metadata().and_then(|data| data.modified()).map_err(|e| failed(&e))?;
    let mut text = String::new();
    let read = file.take(BYTES_MAX + 1).read_to_string(&mut text).map_err(|e| failed(&e))?;
    if read as u64 > BYTES_MAX {
        let detail = format!("{}: more than {BYTES_MAX} bytes", path.display());
        return Err(CollectError::new(ErrorKind::Malformed, detail));
    }
    Maintenance::parse(&text, written, now)
}

/// Puts it on the page: 0 for roles without planned work.
pub fn page(view: &View<Maintenance>, page: &mut Page) {
    let Some(planned) = &view.facts else { return };
    for role in Role::ALL {
        let until = planned.until.get(role);
        let since = until.and_then(|until| until.duration_since(SystemTime::UNIX_EPOCH).ok());
        let seconds = since.unwrap_or_default().as_secs_f64();
        page.gauge(catalog::MAINTENANCE_UNTIL, (*role,), seconds);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: u64 = 1_790_000_000;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn parse(text: &str) -> Result<Maintenance, CollectError> {
        Maintenance::parse(text, at(NOON), at(NOON + 10))
    }

    #[test]
    fn each_role_has_its_time_and_none_more_than_fifteen_minutes_from_the_writing() {
        let text = format!("# rollout\ndecode {}\nrouter {}\n\n", NOON + 60, NOON + 90_000);
        let planned = parse(&text).expect("good").until;
        assert_eq!(planned.get(&Role::Decode), Some(&at(NOON + 60)));
        assert_eq!(planned.get(&Role::Router), Some(&at(NOON + 900)));
        assert_eq!(planned.get(&Role::Prefill), None);
        let all = parse(&format!("all {}\ndecode {}", NOON + 60, NOON + 30)).expect("good").until;
        assert_eq!(all.len(), Role::ALL.len());
        assert!(all.values().all(|until| *until == at(NOON + 60)));
        // A file from the future does not reach further.
        let early = Maintenance::parse(&text, at(NOON + 9000), at(NOON)).expect("good").until;
        assert_eq!(early.get(&Role::Router), Some(&at(NOON + 900)));
    }

    #[test]
    fn a_wrong_line_is_quoted_with_what_would_work() {
        let huge = u64::MAX;
        for text in ["decode", "decode soon", "gateway 1", "decode 1 2", &format!("all {huge}0")] {
            let error = parse(text).expect_err(text).to_string();
            assert!(error.contains(&format!("{text:?}")), "{error}");
            assert!(error.contains("decode 1790000000") && error.contains("router"), "{error}");
        }
    }

    #[test]
    fn a_missing_file_says_that_nothing_is_planned_and_a_long_one_nothing() {
        let name = format!("sightline-maintenance-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        assert_eq!(read(&path, at(NOON)), Ok(Maintenance::default()));
        std::fs::write(&path, "#".repeat(5000)).expect("writable");
        let error = read(&path, at(NOON)).expect_err("too long").to_string();
        std::fs::remove_file(&path).expect("there");
        assert!(error.contains("4096"), "{error}");
    }
}
