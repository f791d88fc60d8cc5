//! Flags of `plan`: those of `serve`, and what to assume of a machine that is not this one.

use std::fmt;
use std::str::FromStr;

use clap::builder::ArgPredicate;
use clap::{Args, ValueEnum};

use super::units::ByteSize;
use super::{Format, Settings};

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
}

/// `plan` needs no model where another engine's command line names it.
#[must_use]
pub(super) fn without_model(plan: clap::Command) -> clap::Command {
    plan.mut_arg("model", |model| {
        model.required(false).required_unless_present("engine").default_value_if(
            "engine",
            ArgPredicate::IsPresent,
            "",
        )
    })
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
    fn nodes_are_a_number_and_a_size() {
        let read = |text: &str| text.parse::<AssumedNuma>();
        assert_eq!(read("2x240GB"), Ok(AssumedNuma { nodes: 2, bytes: 240_000_000_000 }));
        for wrong in ["2", "0x1GB", "x1GB", "2x", "2x240", "9999x1GB"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
