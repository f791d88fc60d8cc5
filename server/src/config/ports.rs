//! Whether the ports are free, for `plan`; `serve` finds out by binding them.

use std::net::{SocketAddr, TcpListener};

use super::Resolved;
use super::findings::{Class, Finding, Findings};
use crate::cli::Role;
use program::exit::Exit;

/// A finding for every address that cannot be bound now.
#[must_use]
pub fn check(resolved: &Resolved) -> Findings {
    let mut findings = Findings::default();
    let transfer = (resolved.roles.role == Role::Prefill)
        .then_some(("--transfer-port", resolved.roles.transfer));
    let listeners = [("--port", resolved.api), ("--probe-port", resolved.probes)];
    for (flag, address) in listeners.into_iter().chain(transfer) {
        if let Err(error) = TcpListener::bind(address) {
            findings.add(finding(flag, address, &error));
        }
    }
    findings
}

/// What `error`, from binding `address`, means for `flag`.
#[must_use]
pub fn finding(flag: &'static str, address: SocketAddr, error: &std::io::Error) -> Finding {
    let port = address.port();
    let (class, flag, reason, fix) = match Exit::of_io(error) {
        Exit::Temporary => {
            let reason = "another process listens on this port".to_owned();
            (Class::Temporary, flag, reason, format!("{flag} 0, which chooses a free one"))
        }
        Exit::Permission => {
            let reason = "ports below 1024 need a privilege".to_owned();
            let fix = format!("{flag} {}", port.saturating_add(8000));
            (Class::Permission, flag, reason, fix)
        }
        Exit::Host => {
            let reason = "this host has no such address".to_owned();
            let flag = if flag == "--transfer-port" { "--transfer-host" } else { "--host" };
            let fix = format!("{flag} 127.0.0.1 or {flag} 0.0.0.0");
            (Class::Configuration, flag, reason, fix)
        }
        Exit::Ok | Exit::Usage | Exit::Internal | Exit::Peer | Exit::Configuration => {
            (Class::Host, flag, error.to_string(), format!("{flag} 0, which chooses a free one"))
        }
    };
    let value = if flag.ends_with("host") { address.ip().to_string() } else { port.to_string() };
    Finding { id: "NET003", class, flag, value, reason, fix }
}
