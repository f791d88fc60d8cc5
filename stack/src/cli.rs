//! The command line of `sightline`.
//!
//! Flags of the passed-through programs are not declared here: each program declares its own once.

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::{ArgAction, Parser, Subcommand};

pub use crate::bench::args::BenchArgs;

/// Serve a language model and watch it work.
#[derive(Debug, Parser)]
#[command(name = "sightline", version, arg_required_else_help = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start everything: the model server, the metrics store, the console, and a light demo load.
    Up(Box<UpArgs>),
    /// The console over a Prometheus that exists: the generated boards, its rules and alerts.
    Console(Box<ConsoleArgs>),
    /// Put load on any OpenAI-compatible server: latencies, goodput, refusals, and whether the
    /// server's counters tell the truth.
    Bench(Box<BenchArgs>),
    /// The model server by itself (serve, plan, metrics, health).
    #[command(disable_help_flag = true)]
    Server(Passed),
    /// Check flags and print every value they lead to: `server plan`.
    #[command(disable_help_flag = true)]
    Plan(Passed),
    /// The node exporter (GPUs, NUMA memory, services and what host cache still fits).
    #[command(disable_help_flag = true)]
    Exporter(Passed),
    /// What of the dashboards and alerts works on a cluster of SGLang, vLLM or Sightline that
    /// exists, and what is missing for the rest; needs no Sightline server.
    #[command(disable_help_flag = true)]
    Doctor(Passed),
    /// The dashboard generator (generate, check, lint, ...).
    #[command(disable_help_flag = true)]
    Dashboards(Passed),
}

/// Arguments handed on unread.
#[derive(Debug, clap::Args)]
pub struct Passed {
    /// Arguments of the program.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub args: Vec<OsString>,
}

/// What `up` runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Topology {
    /// One server that computes prompts and answers.
    Unified,
    /// Prefill and decode apart.
    Pd,
}

/// Options of `up`.
#[derive(Debug, clap::Args)]
pub struct UpArgs {
    /// A GGUF file or a folder with config.json and safetensors; by default the demo model in the
    /// user's cache, else the tiny fixture of the checkout.
    #[arg(long, value_name = "PATH", env = "SIGHTLINE_MODEL")]
    pub model: Option<PathBuf>,
    /// Address to listen on, for the API and the console.
    #[arg(long, default_value = "127.0.0.1", env = "SIGHTLINE_HOST")]
    pub host: IpAddr,
    /// What runs: one server, or a prefill worker, a decode worker and a router in front of them.
    #[arg(long, value_enum, default_value_t = Topology::Unified, env = "SIGHTLINE_TOPOLOGY")]
    pub topology: Topology,
    /// Port of the OpenAI API; 0 chooses a free one. Prefill and decode worker are on the two
    /// ports above it.
    #[arg(long, default_value_t = 8000, env = "SIGHTLINE_PORT")]
    pub port: u16,
    /// Port of the console and of the Prometheus API; 0 chooses a free one.
    #[arg(long, default_value_t = 8088, env = "SIGHTLINE_CONSOLE_PORT")]
    pub console_port: u16,
    /// A further name under which the console answers, as that of a proxy in front of it; may be
    /// given more than once. On a loopback address it answers to loopback addresses, localhost
    /// and these names only.
    #[arg(long = "allowed-host", value_name = "NAME", env = "SIGHTLINE_ALLOWED_HOSTS")]
    #[arg(value_delimiter = ',')]
    pub allowed_hosts: Vec<String>,
    /// A `sightline-exporter` that runs on this machine already, as 127.0.0.1:9840: it is asked
    /// what the boards and alerts of hosts show, and none is started.
    #[arg(long, value_name = "HOST:PORT", env = "SIGHTLINE_NODE_EXPORTER")]
    pub node_exporter: Option<String>,
    /// Port of the node exporter that is started otherwise; by default 9840 beside the API's
    /// default port, else a free one.
    #[arg(long, value_name = "PORT", env = "SIGHTLINE_EXPORTER_PORT")]
    #[arg(conflicts_with = "node_exporter")]
    pub exporter_port: Option<u16>,
    /// Keep a light, varied load going, so that every panel lives (the default).
    #[arg(long, overrides_with = "no_demo_load", action = ArgAction::SetTrue)]
    pub demo_load: bool,
    /// No load but your own; the same as DEMO_LOAD=0.
    #[arg(long, action = ArgAction::SetTrue)]
    pub no_demo_load: bool,
    /// The environment's word on the demo load.
    #[arg(long, env = "DEMO_LOAD", hide = true, value_name = "0|1")]
    pub demo_load_default: Option<String>,
    /// Folder of caches; the default model lies in sightline/models below it.
    #[arg(long, env = "XDG_CACHE_HOME", hide = true)]
    pub cache: Option<PathBuf>,
    /// Home folder, where .cache is when no cache folder is named.
    #[arg(long, env = "HOME", hide = true)]
    pub home: Option<PathBuf>,
    /// Further options of the server, after `--` (see `sightline server serve --help`).
    #[arg(last = true, value_name = "SERVER OPTIONS")]
    pub server_args: Vec<OsString>,
}

/// Options of `console`.
#[derive(Debug, clap::Args)]
pub struct ConsoleArgs {
    /// The Prometheus, or what answers as one does (Thanos, Mimir, VictoriaMetrics), as
    /// http://HOST:PORT or https://HOST, with the path that it lies below.
    #[arg(long, value_name = "URL", env = "SIGHTLINE_PROMETHEUS")]
    pub prometheus: String,
    /// Address and port to listen on; port 0 chooses a free one.
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8089")]
    #[arg(env = "SIGHTLINE_CONSOLE_LISTEN")]
    pub listen: SocketAddr,
    /// Whose boards are shown; may be given more than once. By default those whose metrics the
    /// Prometheus has.
    #[arg(long = "target", value_name = "TARGET", value_parser = ["sightline", "sglang", "vllm"])]
    pub targets: Vec<String>,
    /// A further name under which the console answers, as that of a proxy in front of it; may be
    /// given more than once.
    #[arg(long = "allowed-host", value_name = "NAME", env = "SIGHTLINE_ALLOWED_HOSTS")]
    #[arg(value_delimiter = ',')]
    pub allowed_hosts: Vec<String>,
    /// Name for basic authentication at the Prometheus.
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// File with the password of the user in its first line, read at the start.
    #[arg(long, value_name = "FILE")]
    pub password_file: Option<PathBuf>,
    /// File with a bearer token in its first line, read at the start.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// File with certificates of authorities (PEM), in place of those that this host trusts.
    #[arg(long, value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
    /// How long the Prometheus may take for one answer.
    #[arg(long, value_name = "DURATION", default_value = "30s")]
    pub timeout: String,
    /// Time between two scrapes there, for rates; by default what its targets say, else 15s.
    #[arg(long, value_name = "DURATION")]
    pub scrape_interval: Option<String>,
}

impl UpArgs {
    /// Whether the demo load runs: the command line wins over the environment.
    pub(crate) fn wants_demo_load(&self) -> bool {
        if self.demo_load || self.no_demo_load {
            return self.demo_load;
        }
        !matches!(self.demo_load_default.as_deref(), Some("0" | "false" | "no" | "off" | ""))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The options of `sightline up` with these arguments.
    pub(crate) fn up(args: &[&str]) -> UpArgs {
        let all = ["sightline", "up"].iter().chain(args);
        let parsed = Cli::try_parse_from(all).expect("valid");
        let Command::Up(up) = parsed.command else { panic!("not up") };
        *up
    }

    #[test]
    fn the_demo_load_can_be_turned_off_in_three_ways() {
        assert!(up(&["--demo-load-default", "1"]).wants_demo_load());
        assert!(!up(&["--demo-load-default", "0"]).wants_demo_load());
        assert!(!up(&["--no-demo-load"]).wants_demo_load());
        assert!(up(&["--demo-load", "--demo-load-default", "0"]).wants_demo_load());
    }

    #[test]
    fn server_options_follow_two_dashes() {
        let args = up(&["--port", "0", "--", "--max-queued-requests", "4"]);
        assert_eq!(args.server_args, ["--max-queued-requests", "4"]);
    }

    #[test]
    fn passed_arguments_are_not_read() {
        let all = ["sightline", "server", "serve", "--model", "x", "--help"];
        let parsed = Cli::try_parse_from(all).expect("valid");
        let Command::Server(passed) = parsed.command else { panic!("not server") };
        assert_eq!(passed.args.len(), 4);
    }
}
