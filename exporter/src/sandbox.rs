//! Confines the process, and the worker that it starts, with Landlock: files are read where the
//! configuration needs them, written nowhere but in `/dev`, and no new port is opened.
//!
//! It is a second wall behind the user the process runs as, for the case that a library or a parser
//! is broken. Kernels without Landlock, or with an older one, give less or nothing; that is no
//! error and is exported.

use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, NetPort, PathBeneath, PathFd, RestrictionStatus,
    Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus,
};

use crate::config::{Config, LogSource};
use crate::http::web_config::WebConfig;

/// What later kernels add is not asked for until it was tried.
const KNOWN: ABI = ABI::V5;

/// Folders of the system that libraries, name lookups and `journalctl` read.
const SYSTEM: [&str; 12] = [
    "/usr",
    "/lib",
    "/lib64",
    "/bin",
    "/etc",
    "/proc",
    "/sys",
    "/run/systemd",
    "/run/log/journal",
    "/var/log/journal",
    "/run/nvidia-persistenced",
    "/nix/store",
];

/// Which name servers are asked. It is often a link to a file that something else writes.
const RESOLVER: &str = "/etc/resolv.conf";

/// Names are looked up over TCP when the answer is long.
const DNS_PORT: u16 = 53;

/// What the rules allow.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    /// Read and executed.
    pub read: Vec<PathBuf>,
    /// Ports that are connected to.
    pub connect: Vec<u16>,
}

impl Rules {
    /// What this configuration needs. Files are allowed by their folder: a file that is replaced is
    /// another file.
    #[must_use]
    pub fn of(config: &Config, web: &WebConfig) -> Self {
        let folder = |path: &Path| path.parent().map(PathBuf::from);
        let mut read: Vec<PathBuf> = SYSTEM.iter().map(PathBuf::from).collect();
        let paths = &config.paths;
        read.extend([&paths.procfs, &paths.sysfs, &paths.cgroupfs].map(Clone::clone));
        read.extend(config.nvml.libraries.iter().filter_map(|path| folder(path)));
        read.extend(config.maintenance.iter().filter_map(|path| folder(path)));
        read.extend(config.kmsg.iter().cloned());
        read.extend(web.files.iter().filter_map(|(path, _)| folder(path)));
        read.extend(std::env::current_exe().ok());
        read.extend(folder_of_target(Path::new(RESOLVER)));
        for service in &config.services {
            let log = match &service.log {
                Some(LogSource::File(path)) => Some(path),
                Some(LogSource::Journal(_)) | None => None,
            };
            let files = log.into_iter().chain(&service.plan);
            read.extend(files.filter_map(|path| folder(&paths.on_host(path))));
        }
        read.sort();
        read.dedup();
        let urls = config.services.iter().flat_map(|s| s.health_url.iter().chain(&s.metrics_url));
        let mut connect: Vec<u16> = urls.map(crate::config::Url::port).collect();
        connect.push(DNS_PORT);
        connect.sort_unstable();
        connect.dedup();
        Self { read, connect }
    }
}

/// The folder of the file that a link leads to in the end; never all of the system.
fn folder_of_target(link: &Path) -> Option<PathBuf> {
    let target = std::fs::canonicalize(link).ok()?;
    let folder = target.parent()?;
    // A folder in the root holds more than this; then the file alone, until it is replaced.
    let few = folder.components().count() > 2;
    Some(if few { folder.to_owned() } else { target })
}

/// Confines the calling thread, and what it starts from now on. Says whether rules are in force.
///
/// # Errors
/// The kernel has Landlock and refuses the rules.
pub fn confine(rules: &Rules) -> Result<bool, RulesetError> {
    let devices: BitFlags<AccessFs> =
        AccessFs::ReadFile | AccessFs::ReadDir | AccessFs::WriteFile | AccessFs::IoctlDev;
    let mut set = Ruleset::default()
        .handle_access(AccessFs::from_all(KNOWN))?
        .handle_access(AccessNet::from_all(KNOWN))?
        .create()?;
    for path in &rules.read {
        // What is not there cannot be read anyway.
        let Ok(file) = PathFd::new(path) else { continue };
        let access = AccessFs::from_read(KNOWN);
        set = set.add_rule(PathBeneath::new(file, fitting(path, access)))?;
    }
    if let Ok(file) = PathFd::new("/dev") {
        set = set.add_rule(PathBeneath::new(file, devices))?;
    }
    for port in &rules.connect {
        set = set.add_rule(NetPort::new(*port, AccessNet::ConnectTcp))?;
    }
    let RestrictionStatus { ruleset, .. } = set.restrict_self()?;
    Ok(match ruleset {
        RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced => true,
        RulesetStatus::NotEnforced => false,
    })
}

/// What of `access` a file can have: folders are listed, files are not.
fn fitting(path: &Path, access: BitFlags<AccessFs>) -> BitFlags<AccessFs> {
    if path.is_dir() { access } else { access & AccessFs::from_file(KNOWN) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_that_the_resolver_is_configured_by_can_be_read() {
        let base = std::env::temp_dir().join(format!("sandbox-{}", std::process::id()));
        let (etc, run) = (base.join("etc"), base.join("run/manager"));
        for folder in [&etc, &run] {
            std::fs::create_dir_all(folder).expect("the temporary folder is writable");
        }
        std::fs::write(run.join("resolv.conf"), "").expect("the folder is writable");
        let link = etc.join("resolv.conf");
        std::os::unix::fs::symlink("../run/manager/resolv.conf", &link).expect("a link");
        let target = std::fs::canonicalize(&run).expect("it is there");
        assert_eq!(folder_of_target(&link), Some(target));
        assert_eq!(folder_of_target(&etc.join("absent")), None);
        std::fs::remove_dir_all(base).expect("it is ours");
        // A folder in the root is not opened as a whole.
        assert_eq!(folder_of_target(Path::new("/proc/version")), Some("/proc/version".into()));
        let rules = Rules::of(&Config::default(), &WebConfig::default());
        let own = folder_of_target(Path::new(RESOLVER));
        assert!(own.is_none_or(|folder| rules.read.contains(&folder)));
    }

    #[test]
    fn rules_follow_the_configuration() {
        let service = |text: &str| text.parse().expect(text);
        let mut config = Config {
            services: vec![
                service(
                    "a,url=http://127.0.0.1:8100/health,metrics=http://h/m,log=/var/log/a/a.log",
                ),
                service("b,unit=b.service,log=journal,plan=/etc/plans/b.json"),
            ],
            maintenance: Some("/run/sightline/planned".into()),
            ..Config::default()
        };
        config.paths.rootfs = "/host".into();
        config.nvml.libraries = vec!["/opt/nv/libnvidia-ml.so.1".into()];
        let web =
            WebConfig { files: vec![("/etc/web/a.yml".into(), None)], ..WebConfig::default() };
        let rules = Rules::of(&config, &web);
        assert_eq!(rules.connect, [53, 80, 8100]);
        for folder in
            ["/host/var/log/a", "/host/etc/plans", "/run/sightline", "/opt/nv", "/etc/web"]
        {
            assert!(rules.read.contains(&folder.into()), "{folder} {rules:?}");
        }
        for other in ["/", "/host", "/home", "/tmp", "/var", "/root"] {
            assert!(!rules.read.contains(&other.into()), "{other} {rules:?}");
        }
    }
}
