//! Prefill and decode apart: which flags fit which role and each other, and what the files hold.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use transfer::tcp::Secret;
use transfer::tcp::{SecretError, TlsError, TlsFiles};

use super::findings::{Class, Finding, Findings};
use crate::cli::{PeerAddress, PrefillPeer, Role, RoleSettings, Settings, Span};

/// Workers of the other role that a worker knows by name; each has series of its own.
pub const PEERS_MAX: usize = 64;
/// Where nothing else is said.
const TIMEOUT: Duration = Duration::from_secs(300);
/// The name of each worker of a pair on one host.
const PREFILL_PORT: u16 = 8001;

/// What a worker needs to know of its role.
#[derive(Debug, Clone)]
pub struct RolePlan {
    /// What it does.
    pub role: Role,
    /// Its own name; by default the address of its API.
    pub advertise: Option<PeerAddress>,
    /// Prefill: where its transfer link listens.
    pub transfer: SocketAddr,
    /// Decode: the prefill workers.
    pub prefill_peers: Vec<PrefillPeer>,
    /// Prefill: the decode workers that have names in metrics.
    pub decode_peers: Vec<PeerAddress>,
    /// What both ends of a link must know.
    pub secret: Option<Secret>,
    /// Certificates, where links are encrypted.
    pub tls: TlsFiles,
    /// Decode: a prompt of which so few tokens are not cached is computed here.
    pub local_tokens: usize,
    /// Prefill: how long a decode worker may take to make room.
    pub bootstrap_timeout: Duration,
    /// Decode: how long a prefill worker that computes may send nothing.
    pub waiting_timeout: Duration,
    /// What lets others than this host change settings.
    pub admin_token: Option<Secret>,
}

fn finding(
    id: &'static str,
    flag: &'static str,
    value: impl ToString,
    reason: impl Into<String>,
    fix: impl Into<String>,
) -> Finding {
    let (value, reason, fix) = (value.to_string(), reason.into(), fix.into());
    Finding { id, class: Class::Configuration, flag, value, reason, fix }
}

fn listed<T: ToString>(values: &[T]) -> String {
    values.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// Adds a finding for every flag that does not fit the role or the others.
pub(super) fn rules(settings: &Settings, findings: &mut Findings) {
    let roles = &settings.roles;
    peers_of_another_role(roles, findings);
    match roles.role {
        Role::Unified => {}
        Role::Prefill => prefill(settings, findings),
        Role::Decode => decode(settings, findings),
    }
    tls(roles, findings);
    for (flag, span) in [
        ("--pd-bootstrap-timeout", roles.pd_bootstrap_timeout),
        ("--pd-waiting-timeout", roles.pd_waiting_timeout),
    ] {
        if span.is_some_and(|span| span.0.is_zero()) {
            let reason = "every transfer would fail at once";
            findings.add(finding("PD010", flag, "0s", reason, format!("{flag} {}", Span(TIMEOUT))));
        }
    }
}

fn peers_of_another_role(roles: &RoleSettings, findings: &mut Findings) {
    if !roles.prefill_peer.is_empty() && roles.role != Role::Decode {
        let (value, reason) =
            (listed(&roles.prefill_peer), "only a decode worker sends its prompts elsewhere");
        let fix = match roles.role {
            Role::Prefill => "no --prefill-peer",
            Role::Unified | Role::Decode => "--role decode",
        };
        findings.add(finding("PD001", "--prefill-peer", value, reason, fix));
    }
    if !roles.decode_peer.is_empty() && roles.role != Role::Prefill {
        let (value, reason) =
            (listed(&roles.decode_peer), "only a prefill worker has decode workers");
        let fix = match roles.role {
            Role::Decode => "no --decode-peer",
            Role::Unified | Role::Prefill => "--role prefill",
        };
        findings.add(finding("PD002", "--decode-peer", value, reason, fix));
    }
}

/// Files of TLS come together: whoever shows a certificate has its key, a prefill worker shows one,
/// and a decode worker checks the one that it is shown.
fn tls(roles: &RoleSettings, findings: &mut Findings) {
    let cert = ("--pd-tls-cert", &roles.pd_tls_cert);
    let key = ("--pd-tls-key", &roles.pd_tls_key);
    let ca = ("--pd-tls-ca", &roles.pd_tls_ca);
    let mut needs = vec![(cert, key), (key, cert)];
    match roles.role {
        Role::Unified => {}
        Role::Prefill => needs.push((ca, cert)),
        Role::Decode => needs.push((cert, ca)),
    }
    for ((flag, file), (other, missing)) in needs {
        if let (Some(file), None) = (file, missing) {
            let reason = format!("TLS needs {other} too");
            let fix = format!("{other} FILE too, or no {flag}");
            findings.add(finding("PD006", flag, file.display(), reason, fix));
            return;
        }
    }
}

fn prefill(settings: &Settings, findings: &mut Findings) {
    let roles = &settings.roles;
    let host = roles.transfer_host.unwrap_or(Ipv4Addr::LOCALHOST.into());
    if !host.is_loopback() && roles.pd_secret_file.is_none() {
        let reason = "whoever reaches this address could send prompts and read their KV; links \
                      that leave the host need a secret";
        let fix = "--transfer-host 127.0.0.1, or --pd-secret-file FILE with a secret";
        findings.add(finding("PD004", "--transfer-host", host, reason, fix));
    }
    let port = transfer_port(roles);
    if port != 0 && [Some(settings.port), probe_port(settings)].contains(&Some(port)) {
        let reason = "the API or its probes listen on this port";
        let fix = "--transfer-port 0, which chooses a free one";
        findings.add(finding("PD005", "--transfer-port", port, reason, fix));
    }
    names("--decode-peer", &roles.decode_peer, settings, findings);
}

fn decode(settings: &Settings, findings: &mut Findings) {
    let roles = &settings.roles;
    if roles.prefill_peer.is_empty() {
        let own = settings.port;
        let port = if own == PREFILL_PORT { PREFILL_PORT + 1 } else { PREFILL_PORT };
        let reason = "a decode worker has its prompts computed by prefill workers";
        let fix = format!("--prefill-peer 127.0.0.1:{port}, with the address of one");
        findings.add(finding("PD003", "--role", "decode", reason, fix));
    }
    let apis: Vec<PeerAddress> = roles.prefill_peer.iter().map(|peer| peer.api.clone()).collect();
    names("--prefill-peer", &apis, settings, findings);
}

/// Names of others are not the own one, nor given twice, nor too many.
fn names(flag: &'static str, given: &[PeerAddress], settings: &Settings, found: &mut Findings) {
    let own = own_names(settings);
    let mut once: Vec<&PeerAddress> = Vec::new();
    for (index, peer) in given.iter().enumerate() {
        if own.iter().any(|own| own == peer.name()) {
            let reason = "this is the worker's own address";
            let host = peer.name().rsplit_once(':').map_or("", |(host, _)| host);
            let other = peer.port().checked_add(1).unwrap_or(PREFILL_PORT);
            let fix = match flag {
                "--prefill-peer" => format!("{flag} {host}:{other}, the address of another"),
                _ => format!("no {flag}"),
            };
            found.add(finding("PD007", flag, peer, reason, fix));
        }
        if once.contains(&peer) {
            let (place, all) = (index + 1, given.len());
            let reason = format!("it is given twice, the second time in place {place} of {all}");
            let fix = format!("{flag} {peer} once");
            found.add(finding("PD008", flag, peer, reason, fix));
        } else {
            once.push(peer);
        }
    }
    if given.len() > PEERS_MAX {
        let reason =
            format!("each has a connection and series of its own; {PEERS_MAX} may be named");
        let fix = format!("at most {PEERS_MAX} of {flag}");
        found.add(finding("PD009", flag, format!("{} times", given.len()), reason, fix));
    }
}

/// Addresses under which this worker may be known.
fn own_names(settings: &Settings) -> Vec<String> {
    let mut names: Vec<String> =
        settings.roles.advertise.iter().map(|own| own.name().to_owned()).collect();
    let (host, port) = (settings.host, settings.port);
    if port != 0 {
        names.push(SocketAddr::new(host, port).to_string());
        if host.is_unspecified() || host.is_loopback() {
            names.extend(["127.0.0.1", "localhost", "[::1]"].map(|own| format!("{own}:{port}")));
        }
    }
    names
}

fn transfer_port(roles: &RoleSettings) -> u16 {
    roles.transfer_port.unwrap_or(PrefillPeer::TRANSFER_PORT)
}

fn probe_port(settings: &Settings) -> Option<u16> {
    settings.probe_port.or_else(|| settings.port.checked_add(100))
}

/// Flags that do nothing in this role, and names that nobody can use.
pub(super) fn advice(settings: &Settings, findings: &mut Findings) {
    let roles = &settings.roles;
    let shown = |value: &Option<PathBuf>| value.as_ref().map(|path| path.display().to_string());
    let [unified, prefill, decode] = [Role::Unified, Role::Prefill, Role::Decode];
    let given = [
        ("--transfer-host", roles.transfer_host.map(|host| host.to_string()), &[prefill][..]),
        ("--transfer-port", roles.transfer_port.map(|port| port.to_string()), &[prefill]),
        ("--pd-bootstrap-timeout", roles.pd_bootstrap_timeout.map(|t| t.to_string()), &[prefill]),
        ("--pd-tls-cert", shown(&roles.pd_tls_cert), &[prefill, decode]),
        ("--pd-tls-key", shown(&roles.pd_tls_key), &[prefill, decode]),
        ("--pd-tls-ca", shown(&roles.pd_tls_ca), &[prefill, decode]),
        ("--pd-local-tokens", roles.pd_local_tokens.map(|tokens| tokens.to_string()), &[decode]),
        ("--pd-waiting-timeout", roles.pd_waiting_timeout.map(|t| t.to_string()), &[decode]),
        ("--pd-secret-file", shown(&roles.pd_secret_file), &[prefill, decode]),
        ("--advertise", roles.advertise.as_ref().map(PeerAddress::to_string), &[prefill, decode]),
    ];
    let mut add = |flag, value: String, reason: String, fix: String| {
        let class = Class::Advice;
        findings.add(Finding { id: "PD011", class, flag, value, reason, fix });
    };
    for (flag, value, roles_of_it) in given {
        let Some(value) = value else { continue };
        if !roles_of_it.contains(&roles.role) {
            let reason = format!("it does nothing with --role {}", roles.role.as_str());
            add(flag, value, reason, format!("no {flag}"));
        }
    }
    if roles.role != unified && roles.advertise.is_none() && settings.host.is_unspecified() {
        let host = settings.host;
        let reason = "no other worker can know this one by that address".to_owned();
        add("--host", host.to_string(), reason, "--advertise HOST:PORT with its name".to_owned());
    }
}

/// Everything about the role, with what its files hold. `page_tokens` is the size of a page.
pub(super) fn plan(settings: &Settings, page_tokens: usize, findings: &mut Findings) -> RolePlan {
    let roles = &settings.roles;
    let mut read = |flag, file: &Option<PathBuf>| secret(flag, file.as_deref()?, findings);
    // A secret of a role that does not use it is read all the same: a wrong file is wrong.
    let secret = read("--pd-secret-file", &roles.pd_secret_file);
    let admin_token = read("--admin-token-file", &roles.admin_token_file);
    let tls = TlsFiles {
        cert: roles.pd_tls_cert.clone(),
        key: roles.pd_tls_key.clone(),
        ca: roles.pd_tls_ca.clone(),
    };
    let works = match roles.role {
        Role::Unified => Ok(()),
        Role::Prefill => tls.acceptor().map(drop),
        Role::Decode => tls.connector().map(drop),
    };
    if let Err(error) = works {
        findings.add(certificates(&error));
    }
    let host = roles.transfer_host.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    RolePlan {
        role: roles.role,
        advertise: roles.advertise.clone(),
        transfer: SocketAddr::new(host, transfer_port(roles)),
        prefill_peers: roles.prefill_peer.clone(),
        decode_peers: roles.decode_peer.clone(),
        secret,
        tls,
        local_tokens: roles.pd_local_tokens.unwrap_or(page_tokens),
        bootstrap_timeout: roles.pd_bootstrap_timeout.map_or(TIMEOUT, |span| span.0),
        waiting_timeout: roles.pd_waiting_timeout.map_or(TIMEOUT, |span| span.0),
        admin_token,
    }
}

/// The secret in the file of a flag.
pub(super) fn secret(flag: &'static str, file: &Path, findings: &mut Findings) -> Option<Secret> {
    Secret::read(file).map_err(|error| findings.add(unusable(flag, file, &error))).ok()
}

/// What is wrong with the file of a secret; the error says what would work.
fn unusable(flag: &'static str, file: &Path, error: &SecretError) -> Finding {
    let (class, fix) = match error {
        SecretError::Unreadable { error, .. } => {
            let denied = error.kind() == std::io::ErrorKind::PermissionDenied;
            let class = if denied { Class::Permission } else { Class::Configuration };
            (class, format!("{flag} with a file that this process may read, or no {flag}"))
        }
        SecretError::Exposed { path, .. } => {
            (Class::Configuration, format!("chmod 600 {}", path.display()))
        }
        SecretError::Length { .. } => {
            let fix = format!("{flag} with a file of the output of `openssl rand -hex 32`");
            (Class::Configuration, fix)
        }
    };
    let reason = error.to_string();
    Finding { class, ..finding("PD013", flag, file.display(), reason, fix) }
}

/// What is wrong with the files of TLS; the error names them.
pub(crate) fn certificates(error: &TlsError) -> Finding {
    let (flag, value) = match error {
        TlsError::File { path, .. } | TlsError::Identity { path, .. } => ("--pd-tls-cert", path),
        TlsError::Authority { path, .. } => ("--pd-tls-ca", path),
        TlsError::Incomplete { .. } => ("--pd-tls-cert", &PathBuf::new()),
    };
    let fix =
        "files in PEM that belong together, or no --pd-tls-cert, --pd-tls-key and --pd-tls-ca";
    finding("PD014", flag, value.display(), error.to_string(), fix)
}
