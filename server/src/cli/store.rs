//! Flags about the store behind the host tier.

use clap::{Args, ValueEnum};

use program::units::{ByteSize, Span};

/// What a request does whose pages are still being read from the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum StorePrefetch {
    /// Starts as soon as it is its turn, with what is there by then.
    #[value(name = "best_effort")]
    BestEffort,
    /// Waits for them, but not longer than a time that grows with their number.
    #[value(name = "timeout")]
    Timeout,
    /// Waits for them, as long as it takes.
    #[value(name = "wait_complete")]
    WaitComplete,
}

/// Flags about the store behind the host tier.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Store behind the host tier")]
pub struct StoreSettings {
    /// Where pages outlive this process: `file:///FOLDER` or, in builds with it,
    /// `s3://BUCKET/PREFIX?endpoint=URL&region=NAME`.
    #[arg(long, value_name = "URL", env = "SIGHTLINE_KV_STORE")]
    pub kv_store: Option<String>,
    /// The most bytes this server keeps there; by default 16GiB.
    #[arg(long, value_name = "BYTES", env = "SIGHTLINE_KV_STORE_SIZE")]
    pub kv_store_size: Option<ByteSize>,
    /// What a request does whose pages are still being read; by default timeout.
    #[arg(long, value_enum, value_name = "POLICY", env = "SIGHTLINE_KV_STORE_PREFETCH")]
    pub kv_store_prefetch: Option<StorePrefetch>,
    /// The most that a request waits with `timeout`; by default 30s. It is less for short
    /// prefixes: 1s and 0.25s for each 1024 tokens.
    #[arg(long, value_name = "TIME", env = "SIGHTLINE_KV_STORE_PREFETCH_TIMEOUT")]
    pub kv_store_prefetch_timeout: Option<Span>,
}
