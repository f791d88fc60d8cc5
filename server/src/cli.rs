//! The command line: every flag once, with its environment variable, unit and default.
//!
//! Nothing is checked here beyond the form of one value; how values fit together, the model and
//! the host is the business of [`crate::config`].

mod cache;
mod observe;
mod order;
mod plan;
mod roles;
mod router;
mod store;

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

pub use self::router::{RouterArgs, WorkerUrl};
pub use cache::{
    CacheSettings, GigaBytes, HugePageSize, MemLayout, NumaChoice, Ratio, SwaRetention, WritePolicy,
};
pub use observe::{Metrics, ObserveArgs};
pub use order::{OrderSettings, PriorityOrder, Switch};
pub use plan::{AssumeArgs, AssumedNuma, EngineArgs, KvDtype, LiveUrl, PlanArgs};
pub use program::units::{ByteSize, Span};
pub use roles::{PeerAddress, PrefillPeer, Role, RoleSettings};
pub use store::{StorePrefetch, StoreSettings};

use crate::{app, config, health, telemetry};
use program::exit::Exit;
use program::out;

/// A choice as it is given on the command line.
pub(crate) fn spelled(choice: impl ValueEnum) -> String {
    choice.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

/// Runs the program with `args`, the program's name first. Returns when it has ended.
#[must_use]
pub fn run(args: Vec<OsString>) -> ExitCode {
    let given = args.clone();
    let args = match config::file::expand(args) {
        Ok(args) => args,
        Err(problem) => {
            out::complain(&format!("error: {problem}"));
            return Exit::Configuration.into();
        }
    };
    match Cli::parse_args(args) {
        Ok(cli) => cli.command.run(given).into(),
        Err(error) => {
            // Nobody is left to tell when the terminal is gone.
            drop(error.print());
            // What was asked for goes to standard output, complaints to standard error.
            if error.use_stderr() { Exit::Usage.into() } else { Exit::Ok.into() }
        }
    }
}

/// Serves a language model over the OpenAI API.
#[derive(Debug, Parser)]
#[command(name = "sightline-server", version, disable_help_subcommand = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

impl Cli {
    /// Parses `args`, the program's name first.
    ///
    /// # Errors
    /// What clap says of them, or the help that they ask for.
    pub fn parse_args<T: Into<OsString> + Clone>(
        args: impl IntoIterator<Item = T>,
    ) -> Result<Self, clap::Error> {
        let command = Self::command().mut_subcommand("plan", plan::without_model);
        let matches = command.try_get_matches_from(args)?;
        plan::alone(&matches)?;
        Self::from_arg_matches(&matches)
    }
}

/// What the program can do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Load a model and serve it until SIGTERM or Ctrl-C.
    Serve(Box<Settings>),
    /// Check the same flags without loading anything, and print every value they lead to.
    Plan(Box<PlanArgs>),
    /// Spread requests over workers, or over pairs of prefill and decode workers.
    Router(Box<RouterArgs>),
    /// Print the metrics that a server exposes.
    Metrics,
    /// Ask a running server whether it is ready; exit 0 if it is (for container health checks).
    Health(HealthArgs),
}

impl Command {
    fn run(self, given: Vec<OsString>) -> Exit {
        match self {
            Self::Serve(settings) => app::run(Settings { given, ..*settings }),
            Self::Plan(args) => crate::plan::run(&args),
            Self::Router(args) => app::router::run(&RouterArgs { given, ..*args }),
            Self::Metrics => match out::line(&telemetry::reference()) {
                Ok(()) => Exit::Ok,
                Err(error) => Exit::of_io(&error),
            },
            Self::Health(args) => health::run(&args),
        }
    }
}

/// How a report is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Lines and tables for people.
    Text,
    /// One JSON object.
    Json,
}

/// Flags of `health`.
#[derive(Debug, Args)]
pub struct HealthArgs {
    /// Address of the probe listener or of the API.
    #[arg(long, default_value = "127.0.0.1:8100", env = "SIGHTLINE_HEALTH_ADDRESS")]
    pub address: String,
    /// How long to wait for the answer.
    #[arg(long, default_value = "3s")]
    pub timeout: Span,
}

/// Which kernels compute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kernels {
    /// The fastest that this CPU has.
    Detect,
    /// The slow, obvious ones: for finding out whether a kernel is at fault.
    Reference,
}

/// In which format tool calls are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ToolCallParser {
    /// The one that the chat template writes, where it is known.
    Auto,
    /// Not at all.
    None,
    /// Hermes, Qwen 2.5 and 3.
    Hermes,
    /// Llama 3, in JSON.
    Llama,
    /// Mistral up to 2024: a list.
    Mistral,
    /// Mistral since 2025: names and arguments.
    MistralArgs,
    /// DeepSeek V3 and R1.
    #[value(name = "deepseek-v3")]
    DeepseekV3,
    /// DeepSeek V3.1.
    #[value(name = "deepseek-v3.1")]
    DeepseekV31,
}

/// Whether what was computed is kept for requests with the same beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PrefixCache {
    /// Keep it while nobody else needs the room.
    On,
    /// Compute every prompt whole.
    Off,
}

/// Who shares what is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PrefixCacheScope {
    /// Requests of the same tenant; those without a tenant are one.
    Tenant,
    /// All requests: a tenant can find out, by timing, what others asked.
    Server,
}

/// Flags of `serve`.
#[derive(Debug, Clone, Args)]
pub struct Settings {
    /// File of flags in TOML (`port = 8000`); the command line wins over it.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Folder (config.json, safetensors, tokenizer.json), GGUF file, or `fake`.
    #[arg(long, value_name = "PATH", env = "SIGHTLINE_MODEL")]
    pub model: String,
    /// Name that clients use; by default the model's own.
    #[arg(long, value_name = "NAME", env = "SIGHTLINE_SERVED_MODEL_NAME")]
    pub served_model_name: Option<String>,
    /// Format of the tool calls in answers; `auto` finds it in the chat template, and where it
    /// finds none, or with `none`, calls stay text.
    #[arg(long, value_enum, default_value_t = ToolCallParser::Auto)]
    #[arg(env = "SIGHTLINE_TOOL_CALL_PARSER")]
    pub tool_call_parser: ToolCallParser,

    /// Address to listen on, for the API and the probes.
    #[arg(long, default_value = "127.0.0.1", env = "SIGHTLINE_HOST", help_heading = "Network")]
    pub host: IpAddr,
    /// Port of the API; 0 chooses a free one and prints it.
    #[arg(long, default_value_t = 8000, env = "SIGHTLINE_PORT", help_heading = "Network")]
    pub port: u16,
    /// Port of the probes; by default 100 above the API's; 0 chooses a free one.
    #[arg(long, env = "SIGHTLINE_PROBE_PORT", help_heading = "Network")]
    pub probe_port: Option<u16>,
    /// Largest request body.
    #[arg(
        long,
        default_value = "4MiB",
        value_name = "BYTES",
        env = "SIGHTLINE_MAX_BODY_BYTES",
        help_heading = "Network"
    )]
    pub max_body_bytes: ByteSize,
    /// How long a client may take to send a body.
    #[arg(
        long,
        default_value = "30s",
        value_name = "TIME",
        env = "SIGHTLINE_BODY_TIMEOUT",
        help_heading = "Network"
    )]
    pub body_timeout: Span,
    /// Connections open at a time; more wait to be accepted.
    #[arg(
        long,
        default_value_t = 1024,
        value_name = "N",
        env = "SIGHTLINE_MAX_CONNECTIONS",
        help_heading = "Network"
    )]
    pub max_connections: usize,
    /// How long a client may read nothing of an answer before its connection is closed.
    #[arg(
        long,
        default_value = "60s",
        value_name = "TIME",
        env = "SIGHTLINE_WRITE_TIMEOUT",
        help_heading = "Network"
    )]
    pub write_timeout: Span,
    /// Tokens that may wait for a slow client before its request is given up.
    #[arg(
        long,
        default_value_t = 2048,
        value_name = "N",
        env = "SIGHTLINE_MAX_UNSENT_TOKENS",
        help_heading = "Network"
    )]
    pub max_unsent_tokens: usize,
    /// How long running requests may go on after SIGTERM.
    #[arg(
        long,
        default_value = "60s",
        value_name = "TIME",
        env = "SIGHTLINE_DRAIN_DEADLINE",
        help_heading = "Network"
    )]
    pub drain_deadline: Span,

    /// Flags about requests waiting and running.
    #[command(flatten)]
    pub load: LoadSettings,
    /// Flags about the order of requests.
    #[command(flatten)]
    pub order: OrderSettings,
    /// Flags about what is kept for later requests.
    #[command(flatten)]
    pub cache: CacheSettings,
    /// Flags about the store behind the host tier.
    #[command(flatten)]
    pub store: StoreSettings,
    /// Flags about the machine.
    #[command(flatten)]
    pub machine: MachineSettings,
    /// Flags about prefill and decode apart.
    #[command(flatten)]
    pub roles: RoleSettings,

    /// Flags about what is seen of the program.
    #[command(flatten)]
    pub observe: ObserveArgs,

    /// The command line as it was given, before the file was read; for reading that again.
    #[arg(skip)]
    pub given: Vec<OsString>,
}

/// Flags about requests waiting and running.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Load")]
pub struct LoadSettings {
    /// Requests generating at a time.
    #[arg(long, default_value_t = 32, value_name = "N", env = "SIGHTLINE_MAX_RUNNING_REQUESTS")]
    pub max_running_requests: usize,
    /// Requests waiting at a time, more are refused with 429; 0 means no limit.
    #[arg(long, default_value_t = 32, value_name = "N", env = "SIGHTLINE_MAX_QUEUED_REQUESTS")]
    pub max_queued_requests: usize,
    /// Prompt tokens waiting at a time; 0 means no limit; by default what can be computed
    /// within the objective for the first token.
    #[arg(long, value_name = "N", env = "SIGHTLINE_MAX_QUEUED_TOKENS")]
    pub max_queued_tokens: Option<u64>,
    /// Objective for the first token: a request that could not meet it is refused; 0s means none.
    #[arg(long, default_value = "30s", value_name = "TIME", env = "SIGHTLINE_TTFT_OBJECTIVE")]
    pub ttft_objective: Span,
    /// Objective for the mean gap between tokens of a request; only judged, never enforced.
    #[arg(long, default_value = "200ms", value_name = "TIME", env = "SIGHTLINE_ITL_OBJECTIVE")]
    pub itl_objective: Span,
    /// Objective for a whole request; only judged, never enforced.
    #[arg(long, default_value = "60s", value_name = "TIME", env = "SIGHTLINE_E2E_OBJECTIVE")]
    pub e2e_objective: Span,
    /// Tokens computed in one step, prompts and answers together.
    #[arg(long, default_value_t = 512, value_name = "N", env = "SIGHTLINE_MAX_BATCH_TOKENS")]
    pub max_batch_tokens: usize,
    /// Tokens of one prompt computed in one step; by default what a step can hold.
    #[arg(long, value_name = "N", env = "SIGHTLINE_PREFILL_CHUNK")]
    pub prefill_chunk: Option<usize>,
    /// Whether the KV of prompts and answers is kept for later requests that begin the same.
    #[arg(long, value_enum, default_value_t = PrefixCache::On, env = "SIGHTLINE_PREFIX_CACHE")]
    pub prefix_cache: PrefixCache,
    /// Who shares it: the requests of one tenant, or all. `cache_salt` in a request separates in
    /// both cases.
    #[arg(long, value_enum, default_value_t = PrefixCacheScope::Tenant)]
    #[arg(env = "SIGHTLINE_PREFIX_CACHE_SCOPE")]
    pub prefix_cache_scope: PrefixCacheScope,
    /// Longest prompt and answer together; by default what the model and the pool can hold.
    #[arg(long, value_name = "TOKENS", env = "SIGHTLINE_MAX_CONTEXT")]
    pub max_context: Option<usize>,
}

/// Flags about the machine.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Machine")]
pub struct MachineSettings {
    /// Threads that compute; by default all cores.
    #[arg(long, value_name = "N", env = "SIGHTLINE_THREADS")]
    pub threads: Option<usize>,
    /// Threads that serve connections.
    #[arg(long, default_value_t = 2, value_name = "N", env = "SIGHTLINE_HTTP_THREADS")]
    pub http_threads: usize,
    /// Prompts tokenised at a time.
    #[arg(long, default_value_t = 2, value_name = "N", env = "SIGHTLINE_TOKENIZER_THREADS")]
    pub tokenizer_threads: usize,
    /// Requests to /tokenize and /detokenize at a time, one of them computing; more are refused
    /// with 429.
    #[arg(long, default_value_t = 32, value_name = "N", env = "SIGHTLINE_MAX_TOKENIZE_REQUESTS")]
    pub max_tokenize_requests: usize,
    /// Size of the KV pools together; by default a share of the memory that is available.
    #[arg(long, value_name = "BYTES", env = "SIGHTLINE_KV_POOL_BYTES")]
    pub kv_pool_bytes: Option<ByteSize>,
    /// Tokens in a page of the KV pools; by default what suits the model: 16, or 256 for
    /// DeepSeek-V4.
    #[arg(
        long,
        value_name = "N",
        value_parser = program::units::count_up_to::<1_048_576>,
        env = "SIGHTLINE_PAGE_TOKENS"
    )]
    pub page_tokens: Option<usize>,
    /// Ranks that compute a step together, each with threads and KV pools of its own; at most 64.
    #[arg(
        long,
        default_value_t = 1,
        value_name = "N",
        value_parser = program::units::count_up_to::<64>,
        env = "SIGHTLINE_TP_SIZE"
    )]
    pub tp_size: usize,
    /// Type of the numbers in the KV pools; this server has f32 only, `plan` computes with any.
    #[arg(long, value_enum, value_name = "TYPE", env = "SIGHTLINE_KV_DTYPE")]
    pub kv_dtype: Option<KvDtype>,
    /// Which kernels compute.
    #[arg(long, value_enum, default_value_t = Kernels::Detect, env = "SIGHTLINE_KERNELS")]
    pub kernels: Kernels,
}
