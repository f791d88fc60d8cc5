//! Flags about prefill and decode in processes of their own, and about who may change settings.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use clap::{Args, ValueEnum};

use program::units::Span;

/// What this process is in a serving topology.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Role {
    /// Prefill and decode in one process.
    Unified,
    /// Computes prompts and sends their KV to decode workers.
    Prefill,
    /// Answers requests; prefill workers compute their prompts.
    Decode,
}

impl Role {
    /// The name on the command line and in `/internal/load`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unified => "unified",
            Self::Prefill => "prefill",
            Self::Decode => "decode",
        }
    }
}

/// Where the API of a worker is, which is also its name in logs and metrics.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PeerAddress {
    name: Arc<str>,
    /// Bytes of `name` before the colon.
    host: usize,
    port: u16,
}

impl PeerAddress {
    /// The address of `host`, an IPv6 address in brackets, and `port`.
    ///
    /// # Errors
    /// A host that is none, or port 0.
    pub fn new(host: &str, port: u16) -> Result<Self, String> {
        format!("{host}:{port}").parse()
    }

    /// `HOST:PORT`, lower case.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The host, as a resolver takes it.
    #[must_use]
    pub fn host(&self) -> &str {
        self.name[..self.host].trim_start_matches('[').trim_end_matches(']')
    }

    /// The port, not 0.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }
}

impl FromStr for PeerAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |why: String| Err(format!("{why}; HOST:PORT is for example 10.0.0.7:8001"));
        if let Some((scheme, _)) = text.split_once("://") {
            return wrong(format!("leave out {scheme}://"));
        }
        let Some((host, port)) = text.rsplit_once(':') else {
            return wrong(format!("{text:?} has no port"));
        };
        let bracketed = host.starts_with('[') && host.ends_with(']');
        let inner = if bracketed { &host[1..host.len() - 1] } else { host };
        let plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        let known = if bracketed {
            inner.parse::<std::net::Ipv6Addr>().is_ok()
        } else {
            !inner.is_empty() && inner.len() <= 253 && inner.chars().all(plain)
        };
        if !known {
            return wrong(format!("{host:?} is no host"));
        }
        match port.parse::<u16>() {
            Ok(port @ 1..) => {
                let host = host.to_ascii_lowercase();
                let (name, host) = (format!("{host}:{port}").into(), host.len());
                Ok(Self { name, host, port })
            }
            Ok(0) | Err(_) => wrong(format!("{port:?} is no port")),
        }
    }
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// A prefill worker: its name, and where its transfer link listens.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PrefillPeer {
    /// The address of its API.
    pub api: PeerAddress,
    /// The port of its transfer link, on the same host.
    pub transfer_port: u16,
}

impl PrefillPeer {
    /// Where transfer links listen by default.
    pub const TRANSFER_PORT: u16 = 8998;
}

impl FromStr for PrefillPeer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (api, port) = match text.rsplit_once('@') {
            None => (text, Self::TRANSFER_PORT),
            Some((api, port)) => match port.parse::<u16>() {
                Ok(port @ 1..) => (api, port),
                Ok(0) | Err(_) => {
                    return Err(format!(
                        "{port:?} is no port of a transfer link; HOST:PORT@TRANSFER_PORT is for \
                         example 10.0.0.7:8001@{}",
                        Self::TRANSFER_PORT
                    ));
                }
            },
        };
        Ok(Self { api: api.parse()?, transfer_port: port })
    }
}

impl fmt::Display for PrefillPeer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.transfer_port {
            Self::TRANSFER_PORT => write!(f, "{}", self.api),
            port => write!(f, "{}@{port}", self.api),
        }
    }
}

/// Flags about prefill and decode in processes of their own.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Prefill and decode apart")]
pub struct RoleSettings {
    /// What this process is in a serving topology.
    #[arg(long, value_enum, default_value_t = Role::Unified, env = "SIGHTLINE_ROLE")]
    pub role: Role,
    /// Prefill: address that the transfer link listens on; by default 127.0.0.1. Others need
    /// --pd-secret-file.
    #[arg(long, value_name = "ADDRESS", env = "SIGHTLINE_TRANSFER_HOST")]
    pub transfer_host: Option<IpAddr>,
    /// Prefill: port of the transfer link; by default 8998; 0 chooses a free one and prints it.
    #[arg(long, value_name = "PORT", env = "SIGHTLINE_TRANSFER_PORT")]
    pub transfer_port: Option<u16>,
    /// Decode: a prefill worker, by the address of its API; repeatable. @TRANSFER_PORT where its
    /// transfer link is not on port 8998.
    #[arg(long, value_name = "HOST:PORT[@TRANSFER_PORT]", value_delimiter = ',')]
    #[arg(env = "SIGHTLINE_PREFILL_PEER")]
    pub prefill_peer: Vec<PrefillPeer>,
    /// Prefill: a decode worker, by its --advertise or the address of its API, so that metrics
    /// name it; repeatable. Others may come too and are counted as `other`.
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',', env = "SIGHTLINE_DECODE_PEER")]
    pub decode_peer: Vec<PeerAddress>,
    /// Own name among the workers; by default the address of the API.
    #[arg(long, value_name = "HOST:PORT", env = "SIGHTLINE_ADVERTISE")]
    pub advertise: Option<PeerAddress>,
    /// File with the secret that both ends of a transfer link must have, at least 16 bytes.
    #[arg(long, value_name = "FILE", env = "SIGHTLINE_PD_SECRET_FILE")]
    pub pd_secret_file: Option<PathBuf>,
    /// Prefill: certificates of the transfer link, in PEM; with --pd-tls-key.
    #[arg(long, value_name = "FILE", env = "SIGHTLINE_PD_TLS_CERT")]
    pub pd_tls_cert: Option<PathBuf>,
    /// Prefill: the private key of --pd-tls-cert, in PEM.
    #[arg(long, value_name = "FILE", env = "SIGHTLINE_PD_TLS_KEY")]
    pub pd_tls_key: Option<PathBuf>,
    /// Decode: certificates that prefill workers are trusted by, in PEM; turns TLS on.
    #[arg(long, value_name = "FILE", env = "SIGHTLINE_PD_TLS_CA")]
    pub pd_tls_ca: Option<PathBuf>,
    /// Decode: prompts of which at most so many tokens are not cached are computed here; by
    /// default the tokens of a page.
    #[arg(long, value_name = "TOKENS", env = "SIGHTLINE_PD_LOCAL_TOKENS")]
    pub pd_local_tokens: Option<usize>,
    /// Prefill: longest time until a decode worker has room for a prompt; by default 300s.
    #[arg(long, value_name = "TIME", env = "SIGHTLINE_PD_BOOTSTRAP_TIMEOUT")]
    pub pd_bootstrap_timeout: Option<Span>,
    /// Decode: longest time in which a prefill worker that computes a prompt sends nothing of it;
    /// by default 300s. Its queue does not count.
    #[arg(long, value_name = "TIME", env = "SIGHTLINE_PD_WAITING_TIMEOUT")]
    pub pd_waiting_timeout: Option<Span>,
    /// File with the token that lets others than this host use /admin and /internal:
    /// `Authorization: Bearer TOKEN`.
    #[arg(long, value_name = "FILE", env = "SIGHTLINE_ADMIN_TOKEN_FILE")]
    #[arg(help_heading = "Network")]
    pub admin_token_file: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_hosts_with_ports() {
        let read = |text: &str| text.parse::<PrefillPeer>().map(|peer| peer.to_string());
        let is = |text: &str, shown: &str| assert_eq!(read(text).as_deref(), Ok(shown), "{text}");
        is("127.0.0.1:8001", "127.0.0.1:8001");
        is("Node-7.rack:8001@9000", "node-7.rack:8001@9000");
        is("[::1]:8001@8998", "[::1]:8001");
        let peer: PrefillPeer = "[::1]:8001".parse().expect("an address");
        assert_eq!((peer.api.host(), peer.api.port(), peer.transfer_port), ("::1", 8001, 8998));
        for wrong in [
            "",
            "a",
            "a:",
            ":1",
            "a:0",
            "a:70000",
            "http://a:1",
            "a b:1",
            "::1:8001",
            "[::1:8001",
            "[x]:1",
            "a:1@",
            "a:1@0",
            "a:1@x",
            "a@1",
        ] {
            let why = read(wrong).expect_err(wrong);
            assert!(why.contains("10.0.0.7:8001"), "{wrong}: {why}");
        }
    }
}
