//! Flags of `plan`: those of `serve`, what to assume of a machine that is not this one, and whom to
//! ask instead.

use std::fmt;
use std::str::FromStr;

use clap::builder::ArgPredicate;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, ValueEnum};

use super::{Format, Settings};
use program::units::ByteSize;

/// Flags of `plan`.
#[derive(Debug, Clone, Args)]
pub struct PlanArgs {
    /// The flags of `serve`.
    #[command(flatten)]
    pub settings: Settings,
    /// How to print.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
    /// What to assume instead of looking.
    #[command(flatten)]
    pub assume: AssumeArgs,
    /// Another engine's command line.
    #[command(flatten)]
    pub engine: EngineArgs,
    /// The API of a running server (http://HOST:PORT): prints what it advises about its host tier
    /// from the traffic of its last hour. Stands alone but for --format; waits 10 s at most. Ends
    /// with 75 where nothing answers or it is not up yet, and with 76 where what answers is no
    /// Sightline server or one of another version.
    #[arg(long, value_name = "URL", help_heading = "Advice of a running server")]
    pub live: Option<LiveUrl>,
}

/// `plan` needs no model where another engine's command line names it, or a server has one.
#[must_use]
pub(super) fn without_model(plan: clap::Command) -> clap::Command {
    plan.mut_arg("model", |model| {
        let model = model.required(false).required_unless_present_any(["engine", "live"]);
        let given = ArgPredicate::IsPresent;
        model.default_value_ifs([("engine", given.clone(), ""), ("live", given, "")])
    })
}

/// A running server has its flags: others beside `--live` would not be looked at.
pub(super) fn alone(matches: &ArgMatches) -> Result<(), clap::Error> {
    let Some(plan) = matches.subcommand_matches("plan") else { return Ok(()) };
    let given = |id: &str| plan.value_source(id) == Some(ValueSource::CommandLine);
    if !given("live") {
        return Ok(());
    }
    let others = plan.ids().map(clap::Id::as_str);
    // Groups have names with capital letters.
    let flags =
        |id: &&str| !["live", "format"].contains(id) && id.chars().all(|c| !c.is_uppercase());
    let mut others = others.filter(flags).filter(|id| given(id));
    match others.next() {
        None => Ok(()),
        Some(id) => Err(clap::Error::raw(
            ErrorKind::ArgumentConflict,
            format!(
                "--live asks a running server, which has its own flags; --{} would change nothing: \
                 try it without\n",
                id.replace('_', "-")
            ),
        )),
    }
}

/// Where the API of a server is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveUrl {
    /// Host and port.
    pub authority: String,
    /// What comes before the routes, without a slash at its end; mostly nothing.
    pub path: String,
}

impl FromStr for LiveUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| {
            Err(format!("{why}; the URL of an API is for example http://127.0.0.1:8000"))
        };
        let rest = match text.split_once("://") {
            None => text,
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => rest,
            Some((scheme, _)) if scheme.eq_ignore_ascii_case("https") => {
                return wrong("TLS is not spoken here: use the server's own port, or a tunnel");
            }
            Some((scheme, _)) => return wrong(&format!("{scheme:?} is not http")),
        };
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let bad = |c: char| c.is_control() || c.is_whitespace() || "@?#\\".contains(c);
        if authority.is_empty() || rest.contains(bad) {
            return wrong("a host, a port and perhaps a path are expected, and nothing else");
        }
        // An IPv6 address has colons of its own.
        let host_end = authority.rfind(']').map_or(0, |end| end + 1);
        let authority = match authority[host_end..].split_once(':') {
            None => format!("{authority}:80"),
            Some((_, port)) => match port.parse::<u16>() {
                Ok(1..) => authority.to_owned(),
                Ok(0) | Err(_) => return wrong(&format!("{port:?} is no port")),
            },
        };
        Ok(Self { authority, path: path.trim_end_matches('/').to_owned() })
    }
}

impl fmt::Display for LiveUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority, self.path)
    }
}

/// What to assume of a machine and its device pools.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Planning for another machine")]
pub struct AssumeArgs {
    /// NUMA nodes and the free memory of each, for example 2x240GB.
    #[arg(long, value_name = "NODESxBYTES")]
    pub assume_numa: Option<AssumedNuma>,
    /// Tokens that the device pool of one rank holds. The device is then taken to have memory of
    /// its own, as GPUs do.
    #[arg(long, value_name = "TOKENS")]
    pub assume_device_tokens: Option<usize>,
    /// Tokens that the device pool of sliding windows holds; by default a tenth of the above for
    /// DeepSeek-V4, and for other models as many.
    #[arg(long, value_name = "TOKENS", requires = "assume_device_tokens")]
    pub assume_swa_tokens: Option<usize>,
}

/// Another engine's command line.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Planning for another engine")]
pub struct EngineArgs {
    /// The engine and its version, for example sglang@0.5.13. The flags about the machine
    /// (--assume-*, --hicache-numa, --hicache-target, --format) hold; the rest is the engine's.
    #[arg(long, value_name = "ENGINE@VERSION")]
    pub engine: Option<String>,
    /// Its command line, quoted as for a shell.
    #[arg(long, value_name = "TEXT", requires = "engine", allow_hyphen_values = true)]
    #[arg(conflicts_with = "args_from")]
    pub args: Option<String>,
    /// A file with its command line or with the answer of its /get_server_info, or the id of its
    /// process.
    #[arg(long, value_name = "FILE|PID", requires = "engine")]
    pub args_from: Option<String>,
}

/// NUMA nodes with equal memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AssumedNuma {
    /// How many.
    pub nodes: u32,
    /// Free memory of each.
    pub bytes: u64,
}

impl FromStr for AssumedNuma {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        /// More nodes are a typing error.
        const NODES_MAX: u32 = 1024;
        let wrong = || format!("{text:?} is not NODESxBYTES, for example 2x240GB");
        let (nodes, bytes) = text.split_once('x').ok_or_else(wrong)?;
        let nodes = nodes.parse().ok().filter(|nodes| (1..=NODES_MAX).contains(nodes));
        let ByteSize(bytes) = bytes.parse()?;
        Ok(Self { nodes: nodes.ok_or_else(wrong)?, bytes })
    }
}

/// Type of the numbers in the KV cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum KvDtype {
    /// 32 bits, which is what this server computes with.
    F32,
    /// 16 bits (also for float16, which is as large).
    #[value(alias = "f16", alias = "bfloat16", alias = "float16")]
    Bf16,
    /// 8 bits, for DeepSeek-V4 in its published layout with scales.
    #[value(alias = "fp8_e4m3", alias = "fp8_e5m2")]
    Fp8,
}

impl KvDtype {
    /// Bytes of a number.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        match self {
            Self::F32 => 4,
            Self::Bf16 => 2,
            Self::Fp8 => 1,
        }
    }

    /// The one that a model's configuration calls `name`.
    #[must_use]
    pub fn of_weights(name: &str) -> Option<Self> {
        match name {
            "float32" => Some(Self::F32),
            "bfloat16" | "float16" => Some(Self::Bf16),
            _ => None,
        }
    }
}

impl fmt::Display for KvDtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::Fp8 => "fp8",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_http_with_a_host_and_a_port() {
        let read = |text: &str| text.parse::<LiveUrl>().map(|url| url.to_string());
        let is = |text: &str, url: &str| assert_eq!(read(text).as_deref(), Ok(url), "{text}");
        is("http://127.0.0.1:8000", "http://127.0.0.1:8000");
        is("localhost:8000/", "http://localhost:8000");
        is("HTTP://node7/llm/", "http://node7:80/llm");
        is("[::1]:8000", "http://[::1]:8000");
        is("http://[::1]/x", "http://[::1]:80/x");
        for wrong in [
            "https://a:1",
            "ftp://a",
            "",
            "http://",
            "http:///x",
            "a:b",
            "a:0",
            "a:70000",
            "a b:1",
            "user@a:1",
            "a:1/?x",
            "::1",
            "a:1\r\nx: y",
        ] {
            assert!(read(wrong).is_err_and(|why| why.contains("127.0.0.1:8000")), "{wrong}");
        }
    }

    #[test]
    fn nodes_are_a_number_and_a_size() {
        let read = |text: &str| text.parse::<AssumedNuma>();
        assert_eq!(read("2x240GB"), Ok(AssumedNuma { nodes: 2, bytes: 240_000_000_000 }));
        for wrong in ["2", "0x1GB", "x1GB", "2x", "2x240", "9999x1GB"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
