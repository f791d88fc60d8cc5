//! What only makes sense together, and with the node: from flags to a configuration.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

use super::Cli;
use crate::config::{Config, Intervals, Nvml, Paths, SERVICES_MAX, Xids};
use crate::http::web_config::WebConfig;
use program::exit::Exit;

/// A configuration that cannot work: the flag with its value, the reason, and what would work.
#[derive(Debug)]
pub struct Refusal {
    /// As it would stand on the command line.
    pub given: String,
    /// Why it cannot work.
    pub reason: String,
    /// What would.
    pub fix: String,
    /// How the process ends.
    pub exit: Exit,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.given, self.reason, self.fix)
    }
}

fn refuse(given: impl Into<String>, reason: impl Into<String>, fix: impl Into<String>) -> Refusal {
    let (given, reason, fix) = (given.into(), reason.into(), fix.into());
    Refusal { given, reason, fix, exit: Exit::Configuration }
}

impl Cli {
    /// Every value checked, every default filled in.
    ///
    /// # Errors
    /// The first thing that cannot work.
    pub fn resolve(self) -> Result<Config, Refusal> {
        self.services_are_told_apart()?;
        self.values_fit_together()?;
        let paths = Paths {
            procfs: self.procfs,
            sysfs: self.sysfs,
            cgroupfs: self.cgroupfs,
            rootfs: self.rootfs,
        };
        for (flag, path) in [
            ("--path.procfs", &paths.procfs),
            ("--path.sysfs", &paths.sysfs),
            ("--path.rootfs", &paths.rootfs),
        ] {
            folder(flag, path)?;
        }
        if let Some(file) = &self.web_config {
            WebConfig::read(file).map_err(|error| {
                let given = format!("--web.config.file {}", file.display());
                refuse(given, error.to_string(), error.fix())
            })?;
        }
        let default = Config::default();
        let xids = |given: Vec<u32>, default: &BTreeSet<u32>| {
            if given.is_empty() { default.clone() } else { given.into_iter().collect() }
        };
        Ok(Config {
            listen: self.listen,
            web_config: self.web_config,
            max_requests: self.max_requests as usize,
            client_timeout: self.client_timeout,
            paths,
            services: self.services,
            nvml: Nvml {
                off: self.no_nvml,
                libraries: self.nvml_libraries,
                release: self.nvml_release,
            },
            expect_gpus: self.expect_gpus,
            rdma_required: self.rdma_required,
            reserve: self.reserve,
            gpu_reserve: self.gpu_reserve,
            xids: Xids {
                critical: xids(self.xid_critical, &default.xids.critical),
                warn: xids(self.xid_warn, &default.xids.warn),
                window: self.xid_window,
            },
            intervals: Intervals::new(self.intervals),
            compat_dcgm: self.compat_dcgm,
            maintenance: self.maintenance,
            kmsg: (!self.no_kmsg).then_some(self.kmsg),
            sandbox: !self.no_sandbox,
            grace: self.grace,
        })
    }

    fn services_are_told_apart(&self) -> Result<(), Refusal> {
        let mut names = BTreeSet::new();
        for service in &self.services {
            if !names.insert(&service.name) {
                let given = format!("--service {}", service.name);
                return Err(refuse(given, "the name is given twice", "give each its own"));
            }
        }
        if names.len() > SERVICES_MAX {
            let given = format!("--service, {} times", names.len());
            let fix = "leave out those that are no part of serving";
            return Err(refuse(given, format!("at most {SERVICES_MAX} are watched"), fix));
        }
        Ok(())
    }

    fn values_fit_together(&self) -> Result<(), Refusal> {
        if let Some(count) = self.expect_gpus.filter(|count| *count > 0 && self.no_nvml) {
            return Err(refuse(
                format!("--expect-gpus {count}"),
                "with --no-nvml no card can be seen to answer",
                "give one of the two",
            ));
        }
        if self.compat_dcgm && self.no_nvml {
            return Err(refuse(
                "--compat.dcgm",
                "with --no-nvml there is nothing to export under these names",
                "give one of the two",
            ));
        }
        if self.client_timeout.is_zero() {
            return Err(refuse("--web.client-timeout 0s", "no client is that fast", "write 10s"));
        }
        let wanted: BTreeSet<_> = self.xid_critical.iter().collect();
        if let Some(xid) = self.xid_warn.iter().find(|xid| wanted.contains(xid)) {
            return Err(refuse(
                format!("--xid.warn {xid}"),
                "--xid.critical has it too",
                "give it once",
            ));
        }
        Ok(())
    }
}

fn folder(flag: &str, path: &Path) -> Result<(), Refusal> {
    let given = format!("{flag} {}", path.display());
    let fix = "name the folder where the host's is mounted";
    match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => Err(refuse(given, "not a folder", fix)),
        Err(error) => {
            let mut refusal = refuse(given, error.to_string(), fix);
            refusal.exit = Exit::of_io(&error);
            Err(refusal)
        }
    }
}
