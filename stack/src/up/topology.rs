//! What runs: one server, or a prefill worker, a decode worker and a router in front of them.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use hyper::StatusCode;

use super::child::{Child, Part, Ready, preflight};
use super::model::Chosen;
use super::{Failure, exit};
use crate::cli::{Topology, UpArgs};
use crate::http;

/// The API's default port; the transfer link and the exporter have their own with it.
pub(super) const API_PORT: u16 = 8000;
/// The port of the transfer link then; with other ports, any free one.
const TRANSFER_PORT: u16 = 8998;
/// Workers are for the router on this machine alone.
const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// How long workers may take to find each other once they have loaded.
const PAIRING: Duration = Duration::from_secs(60);
/// Between two questions whether they have.
const ASK_EVERY: Duration = Duration::from_millis(50);
/// A probe says less.
const PROBE_BYTES: usize = 64 << 10;

/// What was started.
pub(super) struct Started {
    /// In the order in which they are to be drained.
    pub(super) children: Vec<Child>,
    /// Where clients go.
    pub(super) front: Ready,
    /// The name that clients use.
    pub(super) model: String,
    /// Scrape job and `host:port` of each.
    pub(super) targets: Vec<(&'static str, String)>,
}

/// The ports that will be taken, beside the console's, where they are known.
pub(super) fn ports(args: &UpArgs) -> Vec<(&'static str, IpAddr, u16)> {
    match args.topology {
        Topology::Unified => vec![("API", args.host, args.port)],
        Topology::Pd => {
            let (prefill, decode, transfer) = pd_ports(args.port);
            let mut ports = vec![("API", args.host, args.port), ("prefill worker", LOCAL, prefill)];
            ports.push(("decode worker", LOCAL, decode));
            if transfer != 0 {
                ports.push(("transfer link", LOCAL, transfer));
            }
            ports
        }
    }
}

/// Ports of prefill worker, decode worker and transfer link beside the router's.
fn pd_ports(port: u16) -> (u16, u16, u16) {
    let beside = |distance| port.checked_add(distance).filter(|_| port != 0).unwrap_or(0);
    (beside(1), beside(2), if port == API_PORT { TRANSFER_PORT } else { 0 })
}

/// Checks all flags and the model's headers, without loading anything.
pub(super) async fn check(args: &UpArgs, model: &Chosen) -> Result<(), Failure> {
    match args.topology {
        Topology::Unified => preflight(&unified(args, model)).await,
        Topology::Pd => {
            let (prefill_port, _, transfer_port) = pd_ports(args.port);
            preflight(&prefill(args, model)).await?;
            // Where they are not known yet, any will do to check the rest.
            let known = |port: u16, other| if port == 0 { other } else { port };
            let peer = peer(known(prefill_port, 1), known(transfer_port, TRANSFER_PORT));
            preflight(&decode(args, model, &peer)).await
        }
    }
}

/// Starts everything and waits until it serves.
pub(super) async fn start(args: &UpArgs, model: &Chosen) -> Result<Started, Failure> {
    match args.topology {
        Topology::Unified => {
            let mut server = Child::start(&unified(args, model))?;
            let front = server.ready().await?;
            Ok(Started {
                children: vec![server],
                model: named(&front)?,
                targets: vec![("sightline-unified", front.address.clone())],
                front,
            })
        }
        Topology::Pd => start_pair(args, model).await,
    }
}

async fn start_pair(args: &UpArgs, model: &Chosen) -> Result<Started, Failure> {
    let mut prefill = Child::start(&prefill(args, model))?;
    let (prefill_port, _, transfer_port) = pd_ports(args.port);
    // With known ports both load at the same time.
    let early = if prefill_port != 0 && transfer_port != 0 {
        Some(Child::start(&decode(args, model, &peer(prefill_port, transfer_port)))?)
    } else {
        None
    };
    let prefill_at = prefill.ready().await?;
    let mut decode = match early {
        Some(decode) => decode,
        None => {
            let missing =
                || Failure::new(exit::INTERNAL, "the prefill worker told no transfer port");
            let port = prefill_at.transfer_port.ok_or_else(missing)?;
            let peer = format!("{}@{port}", prefill_at.address);
            Child::start(&decode(args, model, &peer))?
        }
    };
    let decode_at = decode.ready().await?;
    let mut router = Child::start(&router(args, &prefill_at.address, &decode_at.address))?;
    let front = router.ready().await?;
    paired(&front.address).await?;
    Ok(Started {
        children: vec![router, decode, prefill],
        model: named(&decode_at)?,
        targets: vec![
            ("sightline-router", front.address.clone()),
            ("sightline-prefill", prefill_at.address),
            ("sightline-decode", decode_at.address),
        ],
        front,
    })
}

fn named(ready: &Ready) -> Result<String, Failure> {
    let missing = || Failure::new(exit::INTERNAL, "the server did not tell its model");
    ready.model.clone().ok_or_else(missing)
}

/// Waits until the router has a pair that answers.
pub(crate) async fn paired(router: &str) -> Result<(), Failure> {
    let mut last = String::new();
    let ready = async {
        loop {
            let request = http::get(router, "/readyz").map_err(|e| e.to_string());
            let answer = match request {
                Ok(request) => http::fetch(router, request, PROBE_BYTES, PAIRING).await,
                Err(error) => break last.push_str(&error),
            };
            match answer {
                Ok((StatusCode::OK, _)) => return true,
                Ok((_, body)) => last = String::from_utf8_lossy(&body).trim().to_owned(),
                Err(error) => last = error.to_string(),
            }
            tokio::time::sleep(ASK_EVERY).await;
        }
        false
    };
    if tokio::time::timeout(PAIRING, ready).await.unwrap_or(false) {
        return Ok(());
    }
    let message = format!(
        "prefill and decode worker did not find each other within {} s: {last}",
        PAIRING.as_secs()
    );
    Err(Failure::new(exit::TEMPORARY, message))
}

fn peer(prefill_port: u16, transfer_port: u16) -> String {
    format!("{LOCAL}:{prefill_port}@{transfer_port}")
}

fn unified(args: &UpArgs, model: &Chosen) -> Part {
    worker("server", args, model, args.host, args.port, &[])
}

fn prefill(args: &UpArgs, model: &Chosen) -> Part {
    let (port, decode_port, transfer_port) = pd_ports(args.port);
    let threads = cores() - decode_threads();
    let transfer_port = transfer_port.to_string();
    let own = ["--role", "prefill", "--transfer-port", &transfer_port].map(str::to_owned);
    let mut own = with_threads(args, own.to_vec(), threads);
    if decode_port != 0 {
        own.extend(["--decode-peer".to_owned(), format!("{LOCAL}:{decode_port}")]);
    }
    worker("prefill worker", args, model, LOCAL, port, &own)
}

fn decode(args: &UpArgs, model: &Chosen, peer: &str) -> Part {
    let (_, port, _) = pd_ports(args.port);
    let own = ["--role", "decode", "--prefill-peer", peer].map(str::to_owned);
    let own = with_threads(args, own.to_vec(), decode_threads());
    worker("decode worker", args, model, LOCAL, port, &own)
}

/// Its share of the cores, unless the user shares them out.
fn with_threads(args: &UpArgs, mut own: Vec<String>, threads: usize) -> Vec<String> {
    if !given(&args.server_args, "--threads") {
        own.extend(["--threads".to_owned(), threads.max(1).to_string()]);
    }
    own
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// A prompt is bound by arithmetic and an answer by memory: the larger half is for prompts.
fn decode_threads() -> usize {
    (cores() / 2).max(1)
}

fn worker(
    name: &'static str,
    args: &UpArgs,
    model: &Chosen,
    host: IpAddr,
    port: u16,
    own: &[String],
) -> Part {
    let mut all: Vec<OsString> = vec!["--model".into(), model.path.clone().into()];
    all.extend(["--host".into(), host.to_string().into()]);
    all.extend(["--port".into(), port.to_string().into()]);
    all.extend(own.iter().map(OsString::from));
    all.extend(unless_given(&args.server_args, model.options).iter().map(OsString::from));
    all.extend(log_level(&args.server_args).into_iter().map(OsString::from));
    all.extend(args.server_args.iter().cloned());
    let file = model.path.file_name().unwrap_or(model.path.as_os_str()).to_string_lossy();
    Part { name, program: &["server", "serve"], args: all, starting: starting(name, &file) }
}

fn starting(name: &str, file: &str) -> String {
    match name {
        "server" => format!("Loading {file}"),
        _ => format!("Loading {file} ({name})"),
    }
}

fn router(args: &UpArgs, prefill: &str, decode: &str) -> Part {
    let mut all: Vec<OsString> = vec!["--host".into(), args.host.to_string().into()];
    all.extend(["--port".into(), args.port.to_string().into()]);
    all.extend(["--prefill".into(), format!("http://{prefill}").into()]);
    all.extend(["--decode".into(), format!("http://{decode}").into()]);
    all.extend(log_level(&args.server_args).into_iter().map(OsString::from));
    let starting = "Starting the router".to_owned();
    Part { name: "router", program: &["server", "router"], args: all, starting }
}

fn given(args: &[OsString], flag: &str) -> bool {
    let is = |arg: &str| arg == flag || arg.strip_prefix(flag).is_some_and(|r| r.starts_with('='));
    args.iter().any(|arg| is(&arg.to_string_lossy()))
}

/// Default options, unless the user gives the same one.
fn unless_given(given: &[OsString], options: &'static [&'static str]) -> &'static [&'static str] {
    let name = options.first().copied().unwrap_or("");
    let asked = given.iter().any(|arg| arg.to_string_lossy().starts_with(name));
    if asked { &[] } else { options }
}

/// A demo server should be quiet, unless the user asks for more.
fn log_level(given: &[OsString]) -> Vec<&'static str> {
    let asked = given.iter().any(|arg| arg.to_string_lossy().starts_with("--log-level"));
    if asked || std::env::var_os("SIGHTLINE_LOG_LEVEL").is_some() {
        Vec::new()
    } else {
        vec!["--log-level", "warn"]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::tests::up;

    fn model() -> Chosen {
        Chosen { path: "fake".into(), options: &["--kv-pool-bytes", "64MiB"], warning: None }
    }

    fn texts(part: &Part) -> String {
        let texts: Vec<_> = part.args.iter().map(|arg| arg.to_string_lossy()).collect();
        texts.join(" ")
    }

    #[test]
    fn a_pair_has_the_named_ports_and_shares_the_cores() {
        let args = up(&["--topology", "pd"]);
        let ports: Vec<u16> = ports(&args).into_iter().map(|(_, _, port)| port).collect();
        assert_eq!(ports, [8000, 8001, 8002, 8998]);
        let prefill = texts(&prefill(&args, &model()));
        assert!(prefill.contains("--role prefill --transfer-port 8998 --threads"), "{prefill}");
        assert!(prefill.contains("--host 127.0.0.1 --port 8001"), "{prefill}");
        assert!(prefill.contains("--decode-peer 127.0.0.1:8002"), "{prefill}");
        let decode = texts(&decode(&args, &model(), &peer(8001, 8998)));
        assert!(decode.contains("--prefill-peer 127.0.0.1:8001@8998"), "{decode}");
        let router = texts(&router(&args, "127.0.0.1:8001", "127.0.0.1:8002"));
        assert!(router.contains("--prefill http://127.0.0.1:8001"), "{router}");
    }

    #[test]
    fn other_ports_are_free_ones_and_what_the_user_says_holds() {
        let args = ["--topology", "pd", "--port", "0", "--", "--threads", "3"];
        let args = up(&args);
        let ports: Vec<u16> = ports(&args).into_iter().map(|(_, _, port)| port).collect();
        assert_eq!(ports, [0, 0, 0]);
        let line = texts(&prefill(&args, &model()));
        assert_eq!(line.matches("--threads").count(), 1, "{line}");
        assert!(line.contains("--kv-pool-bytes 64MiB"), "{line}");
        assert_eq!(pd_ports(9000), (9001, 9002, 0));
        assert_eq!(up(&[]).topology, Topology::Unified);
        let args = up(&["--", "--kv-pool-bytes", "1GiB"]);
        assert!(!texts(&unified(&args, &model())).contains("64MiB"));
    }
}
