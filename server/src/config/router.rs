//! Checks the flags of `router` against each other and settles what they leave open.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use router::serve::discovery::file;
use router::serve::{Objectives, Patience, Settings};
use router::{Config, HealthConfig, WorkerName, WorkerRole, WorkerSpec};

use super::findings::{Class, Finding, Findings};
use super::roles::{self, Secret};
use crate::cli::{RouterArgs, Span};
use crate::live::RouterValues;

/// Everything that a router runs with.
#[derive(Debug)]
pub struct RouterPlan {
    /// Of the routing.
    pub settings: Settings,
    /// Where the API listens.
    pub api: SocketAddr,
    /// Where the probes listen.
    pub probes: SocketAddr,
    /// Connections of clients that can be open.
    pub connections: usize,
    /// What lets others than this host change something.
    pub admin_token: Option<Secret>,
}

/// The longest that requests may wait for a worker to come back.
const HOLD_MOST: Duration = Duration::from_secs(90);

/// Reports older than so many polls are not believed.
const POLLS_FRESH: u32 = 4;

/// Settles `args`, where `files` files may be open.
///
/// # Errors
/// Every flag that does not fit, with what would.
pub fn resolve(args: &RouterArgs, files: u64) -> Result<RouterPlan, Findings> {
    let mut findings = Findings::default();
    let api = SocketAddr::new(args.host, args.port);
    let probes = super::probe_port(args.port, args.probe_port, &mut findings);
    let probes = SocketAddr::new(args.host, probes);
    let workers = listed(args, api, &mut findings);
    numbers(args, &mut findings);
    let mut secret = |flag, file: &Option<std::path::PathBuf>| {
        file.as_deref().and_then(|file| roles::secret(flag, file, &mut findings))
    };
    let admin_token = secret("--admin-token-file", &args.admin_token_file);
    let worker_token = secret("--worker-token-file", &args.worker_token_file);
    let worker_token =
        worker_token.map(|token| String::from_utf8_lossy(&token.bytes()).into_owned());
    let connections = super::files::connections(args.max_connections, files, &mut findings);
    if findings.has_errors() {
        return Err(findings);
    }
    let mut settings = Settings {
        core: Config::default(),
        workers,
        file: args.workers_file.clone(),
        groups: args.workers_dns.clone(),
        poll_every: args.poll_interval.0,
        poll_timeout: args.poll_timeout.0,
        resolve_every: args.dns_interval.0,
        worker_token,
        stream: Patience {
            connect: args.connect_timeout.0,
            first_byte: args.first_byte_timeout.0,
            idle: args.idle_timeout.0,
        },
        whole: args.answer_timeout.0,
        body_bytes: usize::try_from(args.max_body_bytes.0).unwrap_or(usize::MAX),
        body_time: args.body_timeout.0,
        objectives: Objectives {
            ttft: args.ttft_objective.0,
            itl: args.itl_objective.0,
            e2e: args.e2e_objective.0,
        },
    };
    RouterValues::new(args).put(&mut settings);
    Ok(RouterPlan { settings, api, probes, connections, admin_token })
}

/// How old a report may be that is believed.
pub(crate) fn report_fresh(poll_interval: Duration) -> Duration {
    HealthConfig::default().report_fresh.max(poll_interval.saturating_mul(POLLS_FRESH))
}

fn finding(flag: &'static str, value: impl ToString, reason: String, fix: String) -> Finding {
    let (id, class) = ("RT001", Class::Configuration);
    Finding { id, class, flag, value: value.to_string(), reason, fix }
}

/// The workers that flags list, each once, in roles that go together.
fn listed(args: &RouterArgs, api: SocketAddr, findings: &mut Findings) -> Vec<WorkerSpec> {
    let lists = [
        ("--worker", WorkerRole::Unified, &args.worker),
        ("--prefill", WorkerRole::Prefill, &args.prefill),
        ("--decode", WorkerRole::Decode, &args.decode),
    ];
    let mut seen: HashMap<WorkerName, &str> = HashMap::new();
    let mut specs = Vec::new();
    for (flag, role, urls) in lists {
        for spec in urls.iter().map(|url| url.spec(role)) {
            if spec.name.as_str() == api.to_string() {
                let reason = "that is this router itself".to_owned();
                let fix = format!("{flag} with the address of a worker");
                findings.add(finding(flag, &spec.base, reason, fix));
            }
            if let Some(other) = seen.insert(spec.name.clone(), flag) {
                let reason = format!("{other} lists it already, and a worker has one role");
                findings.add(finding(flag, &spec.base, reason, format!("it under {flag} alone")));
            }
            specs.push(spec);
        }
    }
    if let Some(path) = &args.workers_file {
        match file_of(path) {
            Ok(()) => {}
            Err(reason) => {
                let fix = "a file of [[worker]] tables or JSON lines with url and role".to_owned();
                findings.add(finding("--workers-file", path.display(), reason, fix));
            }
        }
    }
    let found = args.workers_file.is_some() || !args.workers_dns.is_empty();
    if specs.is_empty() && !found {
        let reason = "nothing lists a worker".to_owned();
        let fix = "--worker http://127.0.0.1:8001, --workers-file or --workers-dns".to_owned();
        findings.add(finding("--worker", "(none)", reason, fix));
    }
    let halves = [
        ("--prefill", &args.prefill, "decode", "--decode", &args.decode),
        ("--decode", &args.decode, "prefill", "--prefill", &args.prefill),
    ];
    for (flag, half, lacking, other, rest) in halves {
        if !half.is_empty() && rest.is_empty() && !found {
            let reason = format!("no {lacking} worker is listed, and one needs the other");
            let fix = format!("{other} http://127.0.0.1:8002 beside it");
            findings.add(finding(flag, &half[0].spec(WorkerRole::Unified).base, reason, fix));
        }
    }
    specs
}

/// A file that is wrong later keeps its last list; one that is wrong now has none.
fn file_of(path: &std::path::Path) -> Result<(), String> {
    let mut watched = file::Watched::new(path.to_owned());
    watched.changed(true).map(drop).map_err(|error| error.to_string())
}

/// Numbers that have no meaning.
pub(crate) fn numbers(args: &RouterArgs, findings: &mut Findings) {
    let spans: [(&'static str, Span, &str); 7] = [
        ("--poll-interval", args.poll_interval, "500ms"),
        ("--poll-timeout", args.poll_timeout, "1s"),
        ("--dns-interval", args.dns_interval, "10s"),
        ("--connect-timeout", args.connect_timeout, "2s"),
        ("--first-byte-timeout", args.first_byte_timeout, "180s"),
        ("--idle-timeout", args.idle_timeout, "60s"),
        ("--answer-timeout", args.answer_timeout, "30m"),
    ];
    for (flag, span, usual) in spans {
        if span.0 < Duration::from_millis(1) {
            let reason = "no worker answers in no time".to_owned();
            findings.add(finding(flag, span, reason, format!("{flag} {usual}")));
        }
    }
    if !(0.0..=1.0).contains(&args.retry_share) {
        let reason = "it is a share, from 0 to 1".to_owned();
        findings.add(finding("--retry-share", args.retry_share, reason, "0.2".to_owned()));
    }
    if args.hold_time.0 > HOLD_MOST {
        let reason = "clients that wait longer than 90 s are better told to come back".to_owned();
        let fix = "--hold-time 10s, at most 90s".to_owned();
        findings.add(finding("--hold-time", args.hold_time, reason, fix));
    }
    if !args.hold_time.0.is_zero() && (args.hold_requests == 0 || args.hold_tokens == 0) {
        let reason = "nobody could wait for the time of --hold-time".to_owned();
        let (flag, fix) = match args.hold_requests {
            0 => ("--hold-requests", "--hold-requests 32, or --hold-time 0s"),
            _ => ("--hold-tokens", "--hold-tokens 65536, or --hold-time 0s"),
        };
        findings.add(finding(flag, 0, reason, fix.to_owned()));
    }
    if args.http_threads == 0 {
        let reason = "somebody must serve connections".to_owned();
        findings.add(finding("--http-threads", 0, reason, "--http-threads 2".to_owned()));
    }
}
