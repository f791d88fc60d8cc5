//! Flags of `router`.

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use router::serve::discovery::{self, dns::Group};
use router::{PolicyKind, WorkerRole, WorkerSpec};

use super::ObserveArgs;
use program::units::{ByteSize, Span};

/// The address of a worker's API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerUrl(String);

impl FromStr for WorkerUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = discovery::spec(text, WorkerRole::Unified, None);
        parsed.map(|spec| Self(spec.base.to_string())).map_err(|error| error.to_string())
    }
}

impl WorkerUrl {
    /// The worker as a list has it.
    #[must_use]
    pub fn spec(&self, role: WorkerRole) -> WorkerSpec {
        discovery::spec(&self.0, role, None).expect("it was parsed before")
    }
}

/// Flags of `router`.
#[derive(Debug, Clone, Args)]
pub struct RouterArgs {
    /// File of flags in TOML (`port = 8000`); the command line wins over it.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// A worker that answers requests alone; repeatable. Other OpenAI servers are workers, too.
    #[arg(long, value_name = "URL", value_delimiter = ',', env = "SIGHTLINE_WORKER")]
    #[arg(help_heading = "Workers")]
    pub worker: Vec<WorkerUrl>,
    /// A prefill worker, by the address of its API; repeatable.
    #[arg(long, value_name = "URL", value_delimiter = ',', env = "SIGHTLINE_PREFILL")]
    #[arg(help_heading = "Workers")]
    pub prefill: Vec<WorkerUrl>,
    /// A decode worker; repeatable. It must have the prefill workers as its --prefill-peer.
    #[arg(long, value_name = "URL", value_delimiter = ',', env = "SIGHTLINE_DECODE")]
    #[arg(help_heading = "Workers")]
    pub decode: Vec<WorkerUrl>,
    /// File that lists workers, in TOML ([[worker]] with url, role, model) or as JSON lines; read
    /// again when it changes.
    #[arg(long, value_name = "FILE", env = "SIGHTLINE_WORKERS_FILE", help_heading = "Workers")]
    pub workers_file: Option<PathBuf>,
    /// Name whose addresses are workers, with a role (unified where none is given); repeatable.
    #[arg(long, value_name = "[ROLE=]NAME:PORT", value_delimiter = ',')]
    #[arg(value_parser = Group::parse)]
    #[arg(env = "SIGHTLINE_WORKERS_DNS", help_heading = "Workers")]
    pub workers_dns: Vec<Group>,
    /// Time between two look-ups of --workers-dns.
    #[arg(long, default_value = "10s", value_name = "TIME", env = "SIGHTLINE_DNS_INTERVAL")]
    #[arg(help_heading = "Workers")]
    pub dns_interval: Span,
    /// File with the token that workers want for /internal/load from other hosts.
    #[arg(long, value_name = "FILE", env = "SIGHTLINE_WORKER_TOKEN_FILE")]
    #[arg(help_heading = "Workers")]
    pub worker_token_file: Option<PathBuf>,

    /// How workers are chosen: cache_aware, least_pending_tokens, power_of_two, round_robin or
    /// prefix_hash.
    #[arg(long, default_value_t = PolicyKind::CacheAware, value_name = "NAME")]
    #[arg(env = "SIGHTLINE_POLICY", help_heading = "Routing")]
    pub policy: PolicyKind,
    /// How often a request that was not answered is sent to another worker.
    #[arg(long, default_value_t = 2, value_name = "N", env = "SIGHTLINE_RETRIES")]
    #[arg(help_heading = "Routing")]
    pub retries: u32,
    /// Share of requests that may be sent again, over the long run.
    #[arg(long, default_value_t = 0.2, value_name = "SHARE", env = "SIGHTLINE_RETRY_SHARE")]
    #[arg(help_heading = "Routing")]
    pub retry_share: f64,
    /// How long requests wait, after the only worker (or pair) of a model has gone, for it to come
    /// back; at most 90s, and 0s means that they are refused at once.
    #[arg(long, default_value = "10s", value_name = "TIME", env = "SIGHTLINE_HOLD_TIME")]
    #[arg(help_heading = "Routing")]
    pub hold_time: Span,
    /// Requests that may wait so, of all models together; more are refused with 503.
    #[arg(long, default_value_t = 32, value_name = "N", env = "SIGHTLINE_HOLD_REQUESTS")]
    #[arg(help_heading = "Routing")]
    pub hold_requests: usize,
    /// Prompt tokens of those together, estimated.
    #[arg(long, default_value_t = 65_536, value_name = "N", env = "SIGHTLINE_HOLD_TOKENS")]
    #[arg(help_heading = "Routing")]
    pub hold_tokens: u64,
    /// How long a worker that comes back, or is drained no more, gets a growing share of the
    /// requests that it could take, where others can; 0s means all at once.
    #[arg(long, default_value = "10s", value_name = "TIME", env = "SIGHTLINE_SLOW_START")]
    #[arg(help_heading = "Routing")]
    pub slow_start: Span,
    /// Time between two polls of a worker.
    #[arg(long, default_value = "500ms", value_name = "TIME", env = "SIGHTLINE_POLL_INTERVAL")]
    #[arg(help_heading = "Routing")]
    pub poll_interval: Span,
    /// How long a worker may take to answer one.
    #[arg(long, default_value = "1s", value_name = "TIME", env = "SIGHTLINE_POLL_TIMEOUT")]
    #[arg(help_heading = "Routing")]
    pub poll_timeout: Span,
    /// How long a worker may take to accept a connection.
    #[arg(long, default_value = "2s", value_name = "TIME", env = "SIGHTLINE_CONNECT_TIMEOUT")]
    #[arg(help_heading = "Routing")]
    pub connect_timeout: Span,
    /// How long a worker may take to begin a stream, its queue and the prefill included.
    #[arg(long, default_value = "180s", value_name = "TIME", env = "SIGHTLINE_FIRST_BYTE_TIMEOUT")]
    #[arg(help_heading = "Routing")]
    pub first_byte_timeout: Span,
    /// How long a stream may pause.
    #[arg(long, default_value = "60s", value_name = "TIME", env = "SIGHTLINE_IDLE_TIMEOUT")]
    #[arg(help_heading = "Routing")]
    pub idle_timeout: Span,
    /// How long an answer that is no stream may take.
    #[arg(long, default_value = "30m", value_name = "TIME", env = "SIGHTLINE_ANSWER_TIMEOUT")]
    #[arg(help_heading = "Routing")]
    pub answer_timeout: Span,
    /// Objective for the first token; only judged, never enforced; 0s means none.
    #[arg(long, default_value = "30s", value_name = "TIME", env = "SIGHTLINE_TTFT_OBJECTIVE")]
    #[arg(help_heading = "Routing")]
    pub ttft_objective: Span,
    /// Objective for the mean gap between tokens of a request; only judged.
    #[arg(long, default_value = "200ms", value_name = "TIME", env = "SIGHTLINE_ITL_OBJECTIVE")]
    #[arg(help_heading = "Routing")]
    pub itl_objective: Span,
    /// Objective for a whole request; only judged.
    #[arg(long, default_value = "60s", value_name = "TIME", env = "SIGHTLINE_E2E_OBJECTIVE")]
    #[arg(help_heading = "Routing")]
    pub e2e_objective: Span,

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
    #[arg(long, default_value = "4MiB", value_name = "BYTES", env = "SIGHTLINE_MAX_BODY_BYTES")]
    #[arg(help_heading = "Network")]
    pub max_body_bytes: ByteSize,
    /// How long a client may take to send a body.
    #[arg(long, default_value = "30s", value_name = "TIME", env = "SIGHTLINE_BODY_TIMEOUT")]
    #[arg(help_heading = "Network")]
    pub body_timeout: Span,
    /// Connections of clients open at a time; more wait to be accepted.
    #[arg(long, default_value_t = 4096, value_name = "N", env = "SIGHTLINE_MAX_CONNECTIONS")]
    #[arg(help_heading = "Network")]
    pub max_connections: usize,
    /// How long a client may read nothing of an answer before its connection is closed.
    #[arg(long, default_value = "60s", value_name = "TIME", env = "SIGHTLINE_WRITE_TIMEOUT")]
    #[arg(help_heading = "Network")]
    pub write_timeout: Span,
    /// How long open answers may go on after SIGTERM.
    #[arg(long, default_value = "60s", value_name = "TIME", env = "SIGHTLINE_DRAIN_DEADLINE")]
    #[arg(help_heading = "Network")]
    pub drain_deadline: Span,
    /// File with the token that lets others than this host use /admin and /internal:
    /// `Authorization: Bearer TOKEN`.
    #[arg(long, value_name = "FILE", env = "SIGHTLINE_ADMIN_TOKEN_FILE")]
    #[arg(help_heading = "Network")]
    pub admin_token_file: Option<PathBuf>,
    /// Threads that serve connections.
    #[arg(long, default_value_t = 2, value_name = "N", env = "SIGHTLINE_HTTP_THREADS")]
    #[arg(help_heading = "Network")]
    pub http_threads: usize,

    /// Flags about what is seen of the program.
    #[command(flatten)]
    pub observe: ObserveArgs,

    /// The command line as it was given, before the file was read; for reading that again.
    #[arg(skip)]
    pub given: Vec<OsString>,
}
