//! Named bucket sets, each with its reason.
//!
//! Objectives (10 and 30 s) are edges, so that a burn rate can be read from buckets exactly. No set
//! has more than 30 edges: every one is a series for each label value.

/// Time to first token: below 100 ms for cached prompts, and edges at 45 to 180 s because a pile-up
/// of large prompts ends there.
pub const TTFT: &[f64] = &[
    0.01, 0.025, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 7.5, 10.0, 15.0, 20.0,
    30.0, 45.0, 60.0, 90.0, 120.0, 180.0, 300.0, 600.0,
];

/// Gap between tokens: fine between 1 and 50 ms, where decode lives, then stalls up to 10 s.
pub const ITL: &[f64] = &[
    0.001, 0.002, 0.004, 0.006, 0.008, 0.01, 0.0125, 0.015, 0.02, 0.025, 0.03, 0.04, 0.05, 0.075,
    0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

/// Whole requests: up to 20 minutes for long generations.
pub const E2E: &[f64] = &[
    0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 7.5, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0, 90.0, 120.0,
    180.0, 300.0, 600.0, 1200.0,
];

/// Time in a queue and delays told to clients: from an empty queue (1 ms) to one that is lost.
pub const QUEUE: &[f64] = &[
    0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 7.5, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0,
    90.0, 120.0, 180.0, 300.0, 600.0,
];

/// Tokens of a prompt, an answer or a batch: powers of two up to a million, as page counts are.
pub const TOKENS: &[f64] = &[
    64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0, 32768.0, 65536.0, 131072.0,
    262144.0, 524288.0, 1048576.0,
];

/// One turn of the scheduler: doubling from half a millisecond to a turn that counts as a stall.
pub const LOOP: &[f64] = &[
    0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.0, 2.0, 5.0,
    10.0,
];

/// Requests of a batch: the sizes that limits are set to.
pub const BATCH: &[f64] =
    &[1.0, 2.0, 4.0, 8.0, 16.0, 24.0, 32.0, 48.0, 64.0, 96.0, 128.0, 192.0, 256.0, 512.0];

/// HTTP requests: from a probe (5 ms) to the longest stream.
pub const HTTP: &[f64] = &[
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0,
];

/// One copy between the tiers: from a page of a small model (0.1 ms) to a long prefix of a large
/// one (10 s).
pub const XFER: &[f64] =
    &[0.0001, 0.0003, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0];

/// One transfer between workers, by stage: from a page over loopback (0.5 ms) to a long prompt that
/// waits for its prefill (60 s).
pub const LINK: &[f64] = &[
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
    60.0,
];

/// Shares: tenths.
pub const RATIO: &[f64] = &[0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0];

/// How long cached pages lie unused: from the next turn of an agent (0.1 s) to a day.
pub const AGE: &[f64] = &[
    0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 10800.0, 43200.0,
    86400.0,
];

/// Self-observation: work that should take well under a millisecond.
pub const TICK: &[f64] =
    &[0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0];
