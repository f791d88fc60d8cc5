//! File descriptors: how many connections the limit of open files allows.
//!
//! A server that runs out of them accepts nobody, not even its probes, and a supervisor that hears
//! nothing restarts it. So the connections of the API never take the last ones.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::findings::{Class, Finding, Findings};

/// Kept away from the API's connections: 64 for those of the probes, the rest for listeners,
/// runtimes, the log, and files that are read now and then.
pub const RESERVED: u64 = 128;

/// The most open files that this process may ever have: the hard limit.
#[must_use]
pub fn most() -> u64 {
    getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX)
}

/// How many connections may be open of the `wanted` ones where at most `files` files may be.
pub(super) fn connections(wanted: usize, files: u64, findings: &mut Findings) -> usize {
    let most = usize::try_from(files.saturating_sub(RESERVED)).unwrap_or(usize::MAX);
    if most == 0 {
        findings.add(Finding {
            id: "NET003",
            class: Class::Host,
            flag: "--max-connections",
            value: wanted.to_string(),
            reason: format!(
                "the limit of open files is {files} (ulimit -Hn), and {RESERVED} of them are kept \
                 for the probes and the server's own files"
            ),
            fix: format!(
                "a limit of at least {} (ulimit -n, LimitNOFILE= of systemd)",
                RESERVED + wanted as u64
            ),
        });
    }
    wanted.min(most)
}

/// Raises the soft limit so far that `connections` can be open, and returns how many can.
#[must_use]
pub fn make_room(connections: usize) -> usize {
    let needed = RESERVED.saturating_add(connections as u64);
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let Some(soft) = current.filter(|soft| *soft < needed) else { return connections };
    let raised = maximum.map_or(needed, |most| most.min(needed));
    let files = match setrlimit(Resource::Nofile, Rlimit { current: Some(raised), maximum }) {
        Ok(()) => raised,
        Err(error) => {
            tracing::warn!(%error, soft, raised, "The limit of open files cannot be raised.");
            soft
        }
    };
    connections.min(usize::try_from(files.saturating_sub(RESERVED)).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_probes_descriptors_are_kept() {
        let check = |wanted, files| {
            let mut findings = Findings::default();
            let connections = connections(wanted, files, &mut findings);
            (connections, findings.iter().next().map(ToString::to_string))
        };
        assert_eq!(check(1024, u64::MAX), (1024, None));
        assert_eq!(check(1024, 1152), (1024, None));
        assert_eq!(check(1024, 1024), (896, None));
        assert_eq!(check(1024, 129), (1, None));
        let (connections, found) = check(1024, 100);
        let found = found.expect("no room at all is refused");
        assert_eq!(connections, 0);
        assert!(found.contains("--max-connections") && found.contains("1024"), "{found}");
        assert!(found.contains("limit of open files is 100") && found.contains("1152"), "{found}");
    }

    #[test]
    fn room_for_what_fits_is_made() {
        let hard = most();
        let fits = usize::try_from(hard.saturating_sub(RESERVED)).unwrap_or(usize::MAX).min(1500);
        assert_eq!(make_room(fits), fits);
        let soft = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        assert!(soft >= RESERVED + fits as u64, "{soft}");
    }
}
