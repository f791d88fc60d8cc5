//! The options of `sightline bench`, and how they fit together.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::{ArgAction, Args, Subcommand};
use serde_json::{Map, Value};
use server::cli::Span;
use thiserror::Error;

use super::drive::{Feed, Limits};
use super::incident::args::IncidentArgs;
use super::judge::{Condition, Objectives};
use super::length::Length;
use super::peer::BaseUrl;
use super::schedule::{Arrivals, Bursts, Gaps, Pattern, Steady};
use super::trace::{self, BadTrace, Trace};
use super::workload::{Endpoint, Prefix, Replay, Source, Synthetic};

/// How long requests arrive when nothing says so.
const DURATION_DEFAULT: Duration = Duration::from_secs(30);
/// Traces are read whole.
const TRACE_BYTES_MAX: u64 = 1 << 30;

/// Options of `bench`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP, args_conflicts_with_subcommands = true)]
pub struct BenchArgs {
    /// A load with servers of its own, instead of one that is there.
    #[command(subcommand)]
    pub scenario: Option<Scenario>,
    /// The server, with or without /v1.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8000")]
    pub base_url: BaseUrl,
    /// Model to ask for; by default the first that the server lists.
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// Which API is called.
    #[arg(long, value_enum, default_value_t = Endpoint::Chat)]
    pub endpoint: Endpoint,
    /// Further header of every request; may be repeated.
    #[arg(long, value_name = "NAME: VALUE")]
    pub header: Vec<String>,
    /// Sent as `Authorization: Bearer`; better given by the environment than here.
    #[arg(long, value_name = "KEY", env = "OPENAI_API_KEY", hide_env_values = true)]
    pub api_key: Option<String>,
    /// A page of the server's metrics, where it is not at the base URL; may be repeated, the
    /// counters of all pages are added.
    #[arg(long, value_name = "URL")]
    pub metrics_url: Vec<BaseUrl>,

    /// How requests arrive.
    #[command(flatten)]
    pub arrival: ArrivalArgs,
    /// What requests ask.
    #[command(flatten)]
    pub shape: ShapeArgs,
    /// What clients do.
    #[command(flatten)]
    pub behaviour: ClientArgs,
    /// What is told and judged.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Loads that bring their own servers.
#[derive(Debug, Subcommand)]
pub enum Scenario {
    /// The incident replayed: many long prompts at once on a slow prefill worker, without limits
    /// and with the default ones.
    Incident(Box<IncidentArgs>),
}

/// How requests arrive.
#[derive(Debug, Args)]
#[command(next_help_heading = "Arrival")]
pub struct ArrivalArgs {
    /// Open loop: planned arrivals a second, whatever the answers do; several rates run one after
    /// the other.
    #[arg(long, value_name = "RATE,..", value_delimiter = ',', conflicts_with = "concurrency")]
    pub rate: Vec<f64>,
    /// How clumped arrivals are: shape of a gamma distribution of the gaps; 1 is a Poisson
    /// process, 0.25 comes in clumps.
    #[arg(long, value_name = "SHAPE", default_value_t = 1.0)]
    pub burstiness: f64,
    /// All gaps alike.
    #[arg(long, action = ArgAction::SetTrue, conflicts_with = "burstiness", requires = "rate")]
    pub constant: bool,
    /// So many more requests all at once, first after half of --burst-every; with --rate or alone.
    #[arg(long, value_name = "N", conflicts_with = "concurrency")]
    pub burst: Option<u64>,
    /// Between two bursts.
    #[arg(long, value_name = "TIME", default_value = "10s")]
    pub burst_every: Span,
    /// Closed loop: so many clients, each asks again as soon as it is answered; several numbers
    /// run one after the other.
    #[arg(long, value_name = "N,..", value_delimiter = ',')]
    pub concurrency: Vec<u64>,
    /// No arrivals after this; by default 30s, or what --max-requests or the trace says.
    #[arg(long, value_name = "TIME")]
    pub duration: Option<Span>,
    /// No more requests than this.
    #[arg(long, value_name = "N")]
    pub max_requests: Option<u64>,
    /// Requests planned in this first time are sent, but not measured.
    #[arg(long, value_name = "TIME", default_value = "0s")]
    pub warmup: Span,
    /// Clients at a time; planned arrivals wait above it, and the wait counts.
    #[arg(long, value_name = "N", default_value_t = 8192)]
    pub max_clients: usize,
}

/// What requests ask.
#[derive(Debug, Args)]
#[command(next_help_heading = "Requests")]
pub struct ShapeArgs {
    /// Prompt tokens, without the shared prefix: 128, 64..256 or lognormal:MEDIAN,SIGMA[,MAX].
    #[arg(long, value_name = "LENGTH", default_value = "128")]
    pub prompt_tokens: Length,
    /// Tokens of an answer at most; exactly, where the end token is ignored.
    #[arg(long, value_name = "LENGTH", default_value = "64")]
    pub output_tokens: Length,
    /// Each prompt begins with one of so many shared prefixes; 0 means none.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub prefix_groups: u64,
    /// Tokens of a shared prefix.
    #[arg(long, value_name = "LENGTH", default_value = "512")]
    pub prefix_tokens: Length,
    /// Turns of a conversation; each later turn repeats everything that was said.
    #[arg(long, value_name = "LENGTH", default_value = "1")]
    pub turns: Length,
    /// Mean pause before a later turn, exponentially distributed.
    #[arg(long, value_name = "TIME", default_value = "1s")]
    pub think_time: Span,
    /// Replays a trace (.jsonl, - for standard input): its arrivals, lengths and shared prefixes.
    #[arg(long, value_name = "FILE")]
    #[arg(conflicts_with_all = ["rate", "burst", "prefix_groups", "turns"])]
    pub trace: Option<PathBuf>,
    /// Replays a trace so many times as fast.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    pub trace_speed: f64,
    /// Multiplies all lengths of a trace, for models with less room.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    pub trace_length_scale: f64,
    /// Tokens of a page of the trace, where its name (as _p256) does not say it.
    #[arg(long, value_name = "N")]
    pub trace_page_tokens: Option<u64>,
    /// The same seed asks the same requests; by default another one each time, which is printed.
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Whether generation goes on after an end token: answers have exactly their length then.
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set)]
    pub ignore_eos: bool,
    /// Sampling temperature.
    #[arg(long, value_name = "T", default_value_t = 0.0)]
    pub temperature: f64,
    /// Further fields of every request, as a JSON object: {"priority": 1}.
    #[arg(long, value_name = "JSON", value_parser = object)]
    pub extra_body: Option<Map<String, Value>>,
}

/// What clients do.
#[derive(Debug, Args)]
#[command(next_help_heading = "Clients")]
pub struct ClientArgs {
    /// Ask for whole answers: there is no first token to be timed then.
    #[arg(long, action = ArgAction::SetTrue, conflicts_with = "abort_rate")]
    pub no_stream: bool,
    /// Share of clients that leave after one to five pieces of their answer.
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    pub abort_rate: f64,
    /// Clients give up when there is no first token within this.
    #[arg(long, value_name = "TIME")]
    pub patience: Option<Span>,
    /// Longest time for a request.
    #[arg(long, value_name = "TIME", default_value = "300s")]
    pub timeout: Span,
    /// Ask again so often after 429 or 503, when Retry-After says; latencies count from the first
    /// planned arrival. By default refusals are final: a client that is told to come back was
    /// not served.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub retry: u32,
}

/// What is told and judged.
#[derive(Debug, Args)]
#[command(next_help_heading = "Results")]
pub struct OutputArgs {
    /// Objectives of a request: goodput is the share that meets all of them. itl is the mean time
    /// per token after the first.
    #[arg(long, value_name = "ttft=2s,itl=100ms,e2e=30s")]
    pub slo: Option<Objectives>,
    /// Exit with 1 unless this holds at every rate; may be repeated. Values: goodput, refused,
    /// errors, requests_per_second, tokens_per_second, differences, and ttft, itl, tpot, e2e, lag
    /// with _p50, _p90, _p95, _p99 or _max.
    #[arg(long, value_name = "goodput>=0.95")]
    pub require: Vec<Condition>,
    /// Write all results to this file; - for standard output, instead of the table.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// No progress.
    #[arg(long, action = ArgAction::SetTrue)]
    pub quiet: bool,
}

const AFTER_HELP: &str = "\
Exit codes: 0 the load ran; 1 a --require condition does not hold; 64 the command line is wrong;
70 internal; 75 the server does not answer; 76 it is no OpenAI-compatible server; 77 a file cannot
be read or written; 78 options or trace do not fit; 130 stopped by Ctrl-C, results so far printed.

Examples:
  sightline bench --rate 2,4,8 --duration 30s --slo ttft=2s,itl=100ms
  sightline bench --concurrency 16 --max-requests 200 --prompt-tokens lognormal:512,0.8
  zcat trace.jsonl.gz | sightline bench --trace - --trace-page-tokens 512 --trace-speed 10";

fn object(text: &str) -> Result<Map<String, Value>, String> {
    match serde_json::from_str(text) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(_) => Err("an object is wanted, as {\"priority\": 1}".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Options that do not fit together, or a file that does not.
#[derive(Debug, Error)]
pub(crate) enum BadPlan {
    #[error("say how requests arrive: --rate, --burst, --concurrency or --trace")]
    NoArrivals,
    #[error("{option} is about a trace; name one with --trace")]
    NoTrace { option: &'static str },
    #[error("{option} must be {wanted}, not {value}")]
    Value { option: &'static str, wanted: &'static str, value: String },
    #[error("{path}: {source}")]
    File { path: PathBuf, source: std::io::Error },
    #[error("{path}: {source}")]
    Trace { path: PathBuf, source: BadTrace },
}

/// One run of several.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Load {
    Open { pattern: Pattern, name: String },
    Closed { users: u64 },
}

impl Load {
    /// What distinguishes it from the other runs.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Open { name, .. } => name.clone(),
            Self::Closed { users } => format!("{users} clients"),
        }
    }

    pub(crate) fn feed(&self, seed: u64) -> Feed {
        match self {
            Self::Open { pattern, .. } => Feed::Open(Arrivals::new(pattern.clone(), seed)),
            Self::Closed { users } => Feed::Closed(*users),
        }
    }
}

/// Options that fit together.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) loads: Vec<Load>,
    pub(crate) limits: Limits,
    pub(crate) warmup: Duration,
    pub(crate) source: Source,
}

fn check<T: std::fmt::Display>(
    option: &'static str,
    value: T,
    wanted: &'static str,
    holds: impl Fn(&T) -> bool,
) -> Result<T, BadPlan> {
    if holds(&value) {
        Ok(value)
    } else {
        Err(BadPlan::Value { option, wanted, value: value.to_string() })
    }
}

/// Checks everything that can be checked without a server, and reads the trace.
pub(crate) fn plan(args: &BenchArgs) -> Result<Plan, BadPlan> {
    let positive = |value: &f64| value.is_finite() && *value > 0.0;
    let (arrival, shape, behaviour) = (&args.arrival, &args.shape, &args.behaviour);
    for rate in &arrival.rate {
        check("--rate", *rate, "above 0 and at most 100000", |r| positive(r) && *r <= 1e5)?;
    }
    for users in &arrival.concurrency {
        check("--concurrency", *users, "from 1 to --max-clients", |n| {
            *n > 0 && *n <= arrival.max_clients as u64
        })?;
    }
    check("--burstiness", arrival.burstiness, "from 0.01 to 100", |b| (0.01..=100.0).contains(b))?;
    check("--burst", arrival.burst.unwrap_or(1), "at least 1", |n| *n > 0)?;
    times(arrival, behaviour)?;
    check("--max-clients", arrival.max_clients, "from 1 to 1000000", |n| {
        (1..=1_000_000).contains(n)
    })?;
    check("--abort-rate", behaviour.abort_rate, "from 0 to 1", |rate| (0.0..=1.0).contains(rate))?;
    check("--temperature", shape.temperature, "0 or more", |t| t.is_finite() && *t >= 0.0)?;
    check("--output-tokens", shape.output_tokens, "at least 1", |length| length.min() > 0)?;
    check("--turns", shape.turns, "from 1 to 1000", |turns| {
        turns.min() > 0 && turns.max() <= 1000
    })?;
    check("--trace-speed", shape.trace_speed, "from 0.001 to 1000000", |speed| {
        (0.001..=1e6).contains(speed)
    })?;
    check("--trace-length-scale", shape.trace_length_scale, "above 0 and at most 100", |scale| {
        positive(scale) && *scale <= 100.0
    })?;
    trace_options(shape)?;
    let trace = shape.trace.as_deref().map(|path| read_trace(path, shape)).transpose()?;
    let trace = trace.map(Arc::new);
    let loads = loads(arrival, shape, trace.as_deref())?;
    let unbounded = arrival.max_requests.is_none() && trace.is_none();
    let duration = arrival.duration.map(|duration| duration.0);
    let limits = Limits {
        requests: arrival.max_requests,
        duration: duration.or(unbounded.then_some(DURATION_DEFAULT)),
        clients: arrival.max_clients,
        timeout: behaviour.timeout.0,
        patience: behaviour.patience.map(|patience| patience.0),
        retries: behaviour.retry,
    };
    let warmup = arrival.warmup.0;
    if let Some(duration) = limits.duration {
        check("--warmup", Span(warmup), "shorter than --duration", |warmup| warmup.0 < duration)?;
    }
    Ok(Plan { loads, limits, warmup, source: source(shape, trace) })
}

/// Longer than any run; sums of times stay in range.
const LONGEST: Duration = Duration::from_secs(7 * 86_400);

fn times(arrival: &ArrivalArgs, behaviour: &ClientArgs) -> Result<(), BadPlan> {
    let all = [
        ("--burst-every", Some(arrival.burst_every)),
        ("--duration", arrival.duration),
        ("--timeout", Some(behaviour.timeout)),
        ("--patience", behaviour.patience),
    ];
    for (option, time) in all.into_iter().filter_map(|(option, time)| Some((option, time?))) {
        check(option, time, "above 0s and at most 168h", |time| {
            !time.0.is_zero() && time.0 <= LONGEST
        })?;
    }
    check("--warmup", arrival.warmup, "at most 168h", |time| time.0 <= LONGEST)?;
    Ok(())
}

/// What is said about a trace needs one.
fn trace_options(shape: &ShapeArgs) -> Result<(), BadPlan> {
    let said = [
        ("--trace-speed", shape.trace_speed != 1.0),
        ("--trace-length-scale", shape.trace_length_scale != 1.0),
        ("--trace-page-tokens", shape.trace_page_tokens.is_some()),
    ];
    let alone = said.into_iter().find(|(_, said)| *said && shape.trace.is_none());
    alone.map_or(Ok(()), |(option, _)| Err(BadPlan::NoTrace { option }))
}

fn loads(
    arrival: &ArrivalArgs,
    shape: &ShapeArgs,
    trace: Option<&Trace>,
) -> Result<Vec<Load>, BadPlan> {
    if !arrival.concurrency.is_empty() {
        let closed = |users: &u64| Load::Closed { users: *users };
        return Ok(arrival.concurrency.iter().map(closed).collect());
    }
    if let Some(trace) = trace {
        let first = trace.entries.first().map(|entry| entry.at).unwrap_or_default();
        let scaled =
            trace.entries.iter().map(|entry| (entry.at - first).div_f64(shape.trace_speed));
        let pattern = Pattern::Times(scaled.collect());
        return Ok(vec![Load::Open { pattern, name: "trace".to_owned() }]);
    }
    let bursts = arrival.burst.map(|size| Bursts { size, every: arrival.burst_every.0 });
    let burst_name = bursts.map(|bursts| format!("{} each {}", bursts.size, arrival.burst_every));
    let gaps = if arrival.constant { Gaps::Constant } else { Gaps::Gamma(arrival.burstiness) };
    let open = |steady, name| Load::Open { pattern: Pattern::Open { steady, bursts }, name };
    if arrival.rate.is_empty() {
        return burst_name.map(|name| vec![open(None, name)]).ok_or(BadPlan::NoArrivals);
    }
    let steady = |rate: &f64| {
        let name = match &burst_name {
            Some(bursts) => format!("{rate}/s and {bursts}"),
            None => format!("{rate}/s"),
        };
        open(Some(Steady { rate: *rate, gaps }), name)
    };
    Ok(arrival.rate.iter().map(steady).collect())
}

fn source(shape: &ShapeArgs, trace: Option<Arc<Trace>>) -> Source {
    match trace {
        Some(trace) => Source::Replay(Replay { trace, length_scale: shape.trace_length_scale }),
        None => Source::Synthetic(Synthetic {
            prompt: shape.prompt_tokens,
            output: shape.output_tokens,
            prefix: (shape.prefix_groups > 0)
                .then_some(Prefix { groups: shape.prefix_groups, tokens: shape.prefix_tokens }),
            turns: shape.turns,
            think: shape.think_time.0,
        }),
    }
}

fn read_trace(path: &Path, shape: &ShapeArgs) -> Result<Trace, BadPlan> {
    let file = |source| BadPlan::File { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    if path.as_os_str() == "-" {
        std::io::stdin().take(TRACE_BYTES_MAX).read_to_end(&mut bytes).map_err(file)?;
    } else {
        let open = std::fs::File::open(path).map_err(file)?;
        open.take(TRACE_BYTES_MAX).read_to_end(&mut bytes).map_err(file)?;
    }
    if bytes.len() as u64 == TRACE_BYTES_MAX {
        return Err(file(std::io::Error::other("larger than 1 GiB")));
    }
    let name = path.to_string_lossy();
    trace::parse(&bytes, &name, shape.trace_page_tokens)
        .map_err(|source| BadPlan::Trace { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests;
