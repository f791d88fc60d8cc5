//! What the exporter is told: every value checked, every default filled in.
//!
//! It comes from the command line and a file (`cli`), and is never changed afterwards; only the
//! file of `--web.config.file` is read again (see `http`).

mod service;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use metric_catalog::node::{XIDS_CRITICAL, XIDS_NOTED};

#[cfg(test)]
pub(crate) use service::KEYS as SERVICE_KEYS;
pub(crate) use service::escape;
pub use service::{LogSource, Service, Url};

use crate::slot::CollectorName;
use program::units;

/// Services of one node: bounds labels, probes and memory.
pub const SERVICES_MAX: usize = 64;

/// Everything the exporter is told.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where it answers; port 0 chooses a free one.
    pub listen: SocketAddr,
    /// TLS, passwords and headers, in the format of Prometheus' exporters.
    pub web_config: Option<PathBuf>,
    /// Requests answered at a time; more get 503.
    pub max_requests: usize,
    /// How long a client may take to send a request or to read the answer.
    pub client_timeout: Duration,
    /// Where the files of the kernel are.
    pub paths: Paths,
    /// What runs on this node.
    pub services: Vec<Service>,
    /// How the cards are read.
    pub nvml: Nvml,
    /// Cards this node must have; `None`: as many as the PCI bus shows.
    pub expect_gpus: Option<u32>,
    /// Ports that KV transfer needs.
    pub rdma_required: Vec<RdmaPort>,
    /// Memory of a node that nobody may plan with; `None`: the larger of 8 GiB and 5 %, at most
    /// an eighth of the node.
    pub reserve: Option<u64>,
    /// Device memory that must be free on a card that no service owns.
    pub gpu_reserve: u64,
    /// Which Xids count how much.
    pub xids: Xids,
    /// How often collectors collect, where that is not the default of [`Config::interval`].
    pub intervals: Intervals,
    /// Whether the names of NVIDIA's DCGM exporter are exported too.
    pub compat_dcgm: bool,
    /// File that says until when work on this node is planned.
    pub maintenance: Option<PathBuf>,
    /// The kernel's log; `None`: not read.
    pub kmsg: Option<PathBuf>,
    /// Whether the process confines itself.
    pub sandbox: bool,
    /// How long a fact that a critical check needs may be missing before the verdict says so.
    pub grace: Duration,
}

/// Where the files of the kernel are, each replaceable: for containers and tests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths {
    /// `/proc`.
    pub procfs: PathBuf,
    /// `/sys`.
    pub sysfs: PathBuf,
    /// `/sys/fs/cgroup`.
    pub cgroupfs: PathBuf,
    /// `/`: prefix of paths of services' files (logs, plans) as the host names them.
    pub rootfs: PathBuf,
}

impl Paths {
    /// A path as the host names it, seen from here.
    #[must_use]
    pub fn on_host(&self, path: &std::path::Path) -> PathBuf {
        self.rootfs.join(path.strip_prefix("/").unwrap_or(path))
    }
}

/// How the cards are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nvml {
    /// Not at all.
    pub off: bool,
    /// Files to try, in order; the names that NVIDIA's packages use where empty.
    pub libraries: Vec<PathBuf>,
    /// How long a card may stay away after `POST /-/release`.
    pub release: Duration,
}

/// A port of an RDMA device.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RdmaPort {
    /// `mlx5_0`.
    pub device: String,
    /// From 1.
    pub port: u32,
}

impl FromStr for RdmaPort {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (device, port) = text.split_once(':').unwrap_or((text, "1"));
        let valid = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if device.is_empty() || !device.chars().all(valid) {
            return Err(format!("{device:?} is no name of an RDMA device; write mlx5_0:1"));
        }
        let port = port.parse().ok().filter(|port| *port > 0);
        let port = port.ok_or_else(|| {
            format!("a port is a number from 1, as in {device}:1; see /sys/class/infiniband")
        })?;
        Ok(Self { device: device.to_owned(), port })
    }
}

/// Which Xids count how much; others are only counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Xids {
    /// The card is not fit to serve for a while after one of these.
    pub critical: BTreeSet<u32>,
    /// Worth a look.
    pub warn: BTreeSet<u32>,
    /// How long one counts.
    pub window: Duration,
}

/// What has an interval of its own: the collectors, and parts of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Timer {
    /// A collector.
    Collector(CollectorName),
    /// What hardly ever changes on a card: names, limits.
    GpuStatic,
    /// Composing the page and the verdict.
    Page,
}

impl Timer {
    /// Every one, in the order of the help.
    pub fn all() -> impl Iterator<Item = Self> {
        let parts = [Self::GpuStatic, Self::Page];
        CollectorName::ALL.iter().copied().map(Self::Collector).chain(parts)
    }

    /// The name, as in the configuration.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Collector(name) => name.as_str(),
            Self::GpuStatic => "gpu_static",
            Self::Page => "page",
        }
    }

    /// How often, unless told otherwise.
    #[must_use]
    pub const fn default_interval(self) -> Duration {
        use CollectorName as Name;
        Duration::from_secs(match self {
            Self::Collector(Name::Gpu | Name::Kmsg | Name::WebConfig) | Self::Page => 1,
            Self::Collector(Name::Numa | Name::Pressure) => 2,
            Self::Collector(
                Name::Rdma
                | Name::Systemd
                | Name::Probe
                | Name::Cgroup
                | Name::Hostcache
                | Name::Maintenance,
            ) => 5,
            Self::Collector(Name::Pci | Name::GpuSlow) => 10,
            Self::GpuStatic => 60,
        })
    }
}

/// Intervals that differ from the default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Intervals(std::collections::BTreeMap<Timer, Duration>);

impl Intervals {
    /// Shortest interval: below it collecting would be all this program does.
    pub const SHORTEST: Duration = Duration::from_millis(10);
    /// Longest interval: an alert must not wait for longer.
    pub const LONGEST: Duration = Duration::from_secs(600);

    /// Reads `NAME=TIME`; later ones win.
    ///
    /// # Errors
    /// What is wrong with the text and what would work.
    pub fn parse(text: &str) -> Result<(Timer, Duration), String> {
        let (name, time) = text.split_once('=').ok_or("write NAME=TIME, for example gpu=1s")?;
        let timer = Timer::all().find(|timer| timer.as_str() == name).ok_or_else(|| {
            let known: Vec<_> = Timer::all().map(Timer::as_str).collect();
            format!("nothing is called {name:?}; there are {}", known.join(", "))
        })?;
        let time = units::span(time)?;
        if time < Self::SHORTEST || time > Self::LONGEST {
            return Err(format!("{time:?} is not between 10ms and 600s"));
        }
        Ok((timer, time))
    }

    /// From what was read, in order.
    pub fn new(given: impl IntoIterator<Item = (Timer, Duration)>) -> Self {
        Self(given.into_iter().collect())
    }

    /// How often.
    #[must_use]
    pub fn of(&self, timer: Timer) -> Duration {
        self.0.get(&timer).copied().unwrap_or_else(|| timer.default_interval())
    }
}

impl Config {
    /// How often a collector collects.
    #[must_use]
    pub fn interval(&self, name: CollectorName) -> Duration {
        self.intervals.of(Timer::Collector(name))
    }

    /// Where `node_info` finds the files of the kernel.
    #[must_use]
    pub fn root(&self) -> node_info::Root {
        node_info::Root::at(&self.paths.rootfs)
            .with_procfs(&self.paths.procfs)
            .with_sysfs(&self.paths.sysfs)
            .with_cgroupfs(&self.paths.cgroupfs)
    }
}

impl Default for Config {
    /// What applies where nothing is given.
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 9840)),
            web_config: None,
            max_requests: 40,
            client_timeout: Duration::from_secs(10),
            paths: Paths {
                procfs: "/proc".into(),
                sysfs: "/sys".into(),
                cgroupfs: "/sys/fs/cgroup".into(),
                rootfs: "/".into(),
            },
            services: Vec::new(),
            nvml: Nvml { off: false, libraries: Vec::new(), release: Duration::from_secs(60) },
            expect_gpus: None,
            rdma_required: Vec::new(),
            reserve: None,
            gpu_reserve: 1 << 30,
            xids: Xids {
                critical: XIDS_CRITICAL.map(u32::from).into(),
                warn: XIDS_NOTED.map(u32::from).into(),
                window: Duration::from_secs(600),
            },
            intervals: Intervals::default(),
            compat_dcgm: false,
            maintenance: None,
            kmsg: Some("/dev/kmsg".into()),
            sandbox: true,
            grace: Duration::from_secs(60),
        }
    }
}

#[cfg(test)]
mod tests;
