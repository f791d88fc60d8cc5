//! The command line: every flag once, with its unit and default; the same names in a file.
//!
//! Here values get their form; what only makes sense together is checked in `resolve`.

mod file;
mod resolve;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::builder::BoolishValueParser;
use clap::{CommandFactory, FromArgMatches, Parser, ValueEnum};

use crate::app;
use crate::config::{Intervals, RdmaPort, Service, Timer};
use program::exit::Exit;
use program::{out, units};

pub use file::FileError;
pub use resolve::Refusal;

/// Runs the program with `args`, the program's name first. Returns when it has ended.
#[must_use]
pub fn run(args: Vec<OsString>) -> ExitCode {
    let cli = match Cli::read(args) {
        Ok(cli) => cli,
        Err(Wrong::Clap(error)) => {
            // Nobody is left to tell when the terminal is gone.
            drop(error.print());
            // What was asked for goes to standard output, complaints to standard error.
            return if error.use_stderr() { Exit::Usage.into() } else { Exit::Ok.into() };
        }
        Err(Wrong::File(problem)) => {
            out::complain(&format!("error: {problem}"));
            return Exit::Configuration.into();
        }
    };
    let (format, level, check) = (cli.log_format, cli.log_level, cli.check);
    match cli.resolve() {
        Ok(_) if check => Exit::Ok.into(),
        Ok(config) => app::run(config, format, level).into(),
        Err(refusal) => {
            out::complain(&format!("error: {refusal}"));
            refusal.exit.into()
        }
    }
}

/// Why the command line cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Wrong {
    /// A flag, or help was asked for.
    #[error(transparent)]
    Clap(#[from] clap::Error),
    /// The file of `--config`.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Form of the log on standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Lines for people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Says whether this node is fit to serve: its GPUs, NUMA memory, services and RDMA links, as
/// Prometheus metrics (/metrics) and as one explained verdict (/health).
///
/// Everything is collected in the background; a hung driver, bus or health URL costs its own values
/// and nothing else.
#[derive(Debug, Parser)]
#[command(name = "sightline-exporter", version, max_term_width = 100)]
#[command(after_help = "Examples:\n  \
    sightline-exporter --service prefill-0,unit=sglang-prefill@0.service,\
    url=http://127.0.0.1:8100/health,target=150GB,node=0\n  \
    sightline-exporter --listen 0.0.0.0:9840 --web.config.file /etc/sightline/web.yml\n  \
    curl -s http://127.0.0.1:9840/health\n\n\
    The command line wins over the file of --config, that over the environment.")]
pub struct Cli {
    /// File of the same flags in TOML (`expect-gpus = 8`, `[[service]]`); the command line wins
    /// over it.
    #[arg(long, value_name = "FILE", env = "SIGHTLINE_EXPORTER_CONFIG")]
    pub config: Option<PathBuf>,
    /// Check the flags and files, then end: 0 if they are good.
    #[arg(long)]
    pub check: bool,

    /// Where to answer; port 0 chooses a free one and prints it.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9840", value_parser = address)]
    #[arg(env = "SIGHTLINE_EXPORTER_LISTEN", help_heading = "Web")]
    pub listen: SocketAddr,
    /// TLS, passwords (bcrypt) and headers, in the format of Prometheus' own exporters; read again
    /// when it changes.
    #[arg(long = "web.config.file", value_name = "FILE", help_heading = "Web")]
    #[arg(env = "SIGHTLINE_EXPORTER_WEB_CONFIG_FILE")]
    pub web_config: Option<PathBuf>,
    /// Requests answered at a time; more get 503.
    #[arg(long = "web.max-requests", value_name = "N", default_value_t = 40)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000), help_heading = "Web")]
    pub max_requests: u32,
    /// How long a client may take to send a request, and to read the answer.
    #[arg(long = "web.client-timeout", value_name = "TIME", default_value = "10s")]
    #[arg(value_parser = units::span, help_heading = "Web")]
    pub client_timeout: Duration,

    /// A service of this node: NAME, then any of unit=, cgroup=, url= (health), metrics=, log=
    /// (journal, journal:UNIT or a file), plan= (of `sightline-server plan`), target= (wanted host
    /// cache, as 150GB), ratio= (its --hicache-ratio), node= (NUMA), start-up= (time before a
    /// failing probe counts). May be repeated.
    #[arg(long = "service", value_name = "NAME,KEY=VALUE,..", help_heading = "Services")]
    pub services: Vec<Service>,
    /// Memory of each NUMA node that no host cache may take; by default the larger of 8GiB and 5 %,
    /// but at most an eighth of the node.
    #[arg(long, value_name = "BYTES", value_parser = units::bytes, help_heading = "Services")]
    pub reserve: Option<u64>,
    /// File that says until when work on this node is planned: lines of a role (or `all`) and
    /// seconds since 1970; each time it is written, at most 15 minutes ahead count.
    #[arg(long, value_name = "FILE", env = "SIGHTLINE_EXPORTER_MAINTENANCE")]
    #[arg(help_heading = "Services")]
    pub maintenance: Option<PathBuf>,

    /// Cards this node must have; by default as many as the PCI bus shows.
    #[arg(long, value_name = "N", env = "SIGHTLINE_EXPORTER_EXPECT_GPUS", help_heading = "GPUs")]
    pub expect_gpus: Option<u32>,
    /// Do not load NVIDIA's library.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    #[arg(value_parser = BoolishValueParser::new(), default_value_t = false)]
    #[arg(hide_default_value = true, hide_possible_values = true, value_name = "BOOL")]
    #[arg(help_heading = "GPUs")]
    pub no_nvml: bool,
    /// The library, where it is not under its usual name. May be repeated; the first that loads is
    /// used.
    #[arg(long = "nvml.library", value_name = "FILE", help_heading = "GPUs")]
    pub nvml_libraries: Vec<PathBuf>,
    /// How long the cards are left alone after POST /-/release.
    #[arg(long = "nvml.release-time", value_name = "TIME", default_value = "60s")]
    #[arg(value_parser = units::span, help_heading = "GPUs")]
    pub nvml_release: Duration,
    /// Device memory that should be free on a card that no service owns.
    #[arg(long, value_name = "BYTES", default_value = "1GiB", value_parser = units::bytes)]
    #[arg(help_heading = "GPUs")]
    pub gpu_reserve: u64,
    /// Xids after which a card is not fit to serve; by default 48,62,64,74,79,95,119,120.
    #[arg(long = "xid.critical", value_name = "N,..", value_delimiter = ',')]
    #[arg(help_heading = "GPUs")]
    pub xid_critical: Vec<u32>,
    /// Xids worth a look; by default 13,31,43,45,63,92,94.
    #[arg(long = "xid.warn", value_name = "N,..", value_delimiter = ',', help_heading = "GPUs")]
    pub xid_warn: Vec<u32>,
    /// How long an Xid counts.
    #[arg(long = "xid.window", value_name = "TIME", default_value = "10m")]
    #[arg(value_parser = units::span, help_heading = "GPUs")]
    pub xid_window: Duration,
    /// Do not read the kernel's log for Xids.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    #[arg(value_parser = BoolishValueParser::new(), default_value_t = false)]
    #[arg(hide_default_value = true, hide_possible_values = true, value_name = "BOOL")]
    #[arg(help_heading = "GPUs")]
    pub no_kmsg: bool,
    /// RDMA port that KV transfer needs, as mlx5_0:1. May be repeated.
    #[arg(long = "rdma.require", value_name = "DEVICE:PORT", help_heading = "GPUs")]
    pub rdma_required: Vec<RdmaPort>,

    /// How long what a critical check needs may be unknown before the verdict is 0.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = units::span)]
    #[arg(help_heading = "Collecting")]
    pub grace: Duration,
    /// How often something is done, as gpu=1s: gpu, gpu_slow, gpu_static, pci, kmsg, numa,
    /// pressure, rdma, systemd, probe, cgroup, hostcache, maintenance, web_config, or page (what is
    /// handed out). May be repeated.
    #[arg(long = "interval", value_name = "NAME=TIME", value_parser = Intervals::parse)]
    #[arg(help_heading = "Collecting")]
    pub intervals: Vec<(Timer, Duration)>,
    /// The host's /proc.
    #[arg(long = "path.procfs", value_name = "FOLDER", default_value = "/proc")]
    #[arg(help_heading = "Collecting")]
    pub procfs: PathBuf,
    /// The host's /sys.
    #[arg(long = "path.sysfs", value_name = "FOLDER", default_value = "/sys")]
    #[arg(help_heading = "Collecting")]
    pub sysfs: PathBuf,
    /// The host's control groups (v2).
    #[arg(long = "path.cgroupfs", value_name = "FOLDER", default_value = "/sys/fs/cgroup")]
    #[arg(help_heading = "Collecting")]
    pub cgroupfs: PathBuf,
    /// The host's /, for logs and plans of services.
    #[arg(long = "path.rootfs", value_name = "FOLDER", default_value = "/")]
    #[arg(help_heading = "Collecting")]
    pub rootfs: PathBuf,
    /// The kernel's log.
    #[arg(long = "path.kmsg", value_name = "FILE", default_value = "/dev/kmsg")]
    #[arg(help_heading = "Collecting")]
    pub kmsg: PathBuf,

    /// Export GPU metrics under the names of NVIDIA's DCGM exporter too, for dashboards made for
    /// it.
    #[arg(long = "compat.dcgm", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "true", value_parser = BoolishValueParser::new())]
    #[arg(default_value_t = false, hide_default_value = true, hide_possible_values = true)]
    #[arg(value_name = "BOOL", help_heading = "Output")]
    pub compat_dcgm: bool,
    /// Do not confine the process with Landlock.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    #[arg(value_parser = BoolishValueParser::new(), default_value_t = false)]
    #[arg(hide_default_value = true, hide_possible_values = true, value_name = "BOOL")]
    #[arg(help_heading = "Output")]
    pub no_sandbox: bool,
    /// Form of the log on standard error.
    #[arg(long, value_enum, value_name = "FORM", default_value_t = LogFormat::Text)]
    #[arg(env = "SIGHTLINE_EXPORTER_LOG_FORMAT", help_heading = "Output")]
    pub log_format: LogFormat,
    /// Least severe level that is logged: error, warn, info, debug or trace.
    #[arg(long, value_name = "LEVEL", default_value = "info", help_heading = "Output")]
    #[arg(env = "SIGHTLINE_EXPORTER_LOG_LEVEL")]
    pub log_level: tracing::Level,
}

impl Cli {
    /// Reads `args`, the program's name first, and the file they name.
    ///
    /// # Errors
    /// What clap says of them, the help that they ask for, or what is wrong with the file.
    pub fn read(args: Vec<OsString>) -> Result<Self, Wrong> {
        let args = file::expand(args, &Self::command())?;
        let matches = Self::command().try_get_matches_from(args)?;
        Ok(Self::from_arg_matches(&matches)?)
    }
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse()
        .map_err(|_| "not ADDRESS:PORT; write 127.0.0.1:9840, [::1]:9840 or 0.0.0.0:9840".into())
}

#[cfg(test)]
mod tests;
