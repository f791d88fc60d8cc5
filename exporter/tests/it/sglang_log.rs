//! What SGLang writes when it starts DeepSeek-V4 with a host tier, made up line by line: every rank
//! says its pools in order, and ranks mix.
#![allow(dead_code, unreachable_pub, clippy::allow_attributes, reason = "each user needs some")]

/// A pool of DeepSeek-V4-Flash: name, kind, layers, bytes of an item, whether it is sized by pages
/// of windows.
pub const POOLS: [(&str, &str, u64, u64, bool); 6] = [
    ("swa", "paged", 43, 149_760, true),
    ("deepseek_v4_c4", "paged", 21, 37_440, false),
    ("deepseek_v4_c4_indexer", "paged", 21, 8_448, false),
    ("deepseek_v4_c4_state", "state", 21, 65_536, true),
    ("deepseek_v4_c4_indexer_state", "state", 21, 16_384, true),
    ("deepseek_v4_c128", "paged", 20, 1_728, false),
];

/// One start.
#[derive(Debug, Clone)]
pub struct Start {
    /// Ranks of tensor parallelism.
    pub ranks: u64,
    /// Pages of the host pools of whole histories, a rank.
    pub pages: u64,
    /// Pages of the host pools of windows, a rank.
    pub windows: u64,
    /// `--hicache-ratio`.
    pub ratio: &'static str,
    /// Orders the lines of different ranks.
    pub seed: u64,
}

impl Start {
    /// The start of the incident: 835 pages on the device, ratio 2.0, of both kinds.
    pub const fn incident(ranks: u64, seed: u64) -> Self {
        Self { ranks, pages: 1_670, windows: 1_670, ratio: "2.0", seed }
    }

    /// Bytes of a pool, all ranks.
    pub fn bytes(&self, name: &str) -> u64 {
        let pool = POOLS.iter().find(|(pool, ..)| *pool == name);
        let (_, _, layers, item, windows) = pool.expect("a pool of that name");
        let pages = if *windows { self.windows } else { self.pages };
        layers * pages * item * self.ranks
    }

    /// Bytes of all pools and ranks.
    pub fn total(&self) -> u64 {
        POOLS.iter().map(|(name, ..)| self.bytes(name)).sum()
    }

    /// The line of arguments.
    pub fn arguments(&self) -> String {
        format!(
            "[2026-05-01 10:00:00] server_args=ServerArgs(model_path='/m/V4,Flash', tp_size={}, \
             dp_size=1, pp_size=1, nnodes=1, enable_hierarchical_cache=True, hicache_ratio={}, \
             hicache_size=0, hicache_mem_layout='page_first')",
            self.ranks, self.ratio
        )
    }

    /// What one rank says, in order.
    fn of_rank(&self, rank: u64) -> Vec<String> {
        let prefix = format!("[2026-05-01 10:01:07 TP{rank}]");
        let mut lines: Vec<String> = POOLS
            .iter()
            .map(|(name, kind, layers, item, windows)| {
                let pages = if *windows { self.windows } else { self.pages };
                let size = if *kind == "paged" { "item_bytes" } else { "state_page_bytes" };
                let gigabytes = (layers * pages * item) as f64 / 1e9;
                format!(
                    "{prefix} Allocating {gigabytes:.2} GB host memory for V4 {kind} pool \
                     '{name}' (layers={layers}, pages={pages}, {size}={item}, layout=page_first)."
                )
            })
            .collect();
        // The logical pool that the others borrow their indices from has no bytes, and is said too.
        lines.insert(
            0,
            format!(
                "{prefix} Allocating 0.00 GB host memory for V4 paged pool 'kv' (layers=0, \
                 pages={}, item_bytes=0, layout=page_first).",
                self.pages
            ),
        );
        lines.push(format!(
            "{prefix} Attached hybrid pool stack to UnifiedRadixCache: pools=KV + SWA + DeepSeekV4 \
             sidecars, transfer_layer_num=43"
        ));
        lines
    }

    /// All lines up to the last one before requests come.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = vec![self.arguments(), "Loading safetensors: 100%".to_owned()];
        let mut ranks: Vec<_> = (0..self.ranks).map(|rank| self.of_rank(rank)).collect();
        ranks.iter_mut().for_each(|rank| rank.reverse());
        let mut state = self.seed;
        while ranks.iter().any(|rank| !rank.is_empty()) {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let turn = (state >> 33) as usize % ranks.len();
            lines.extend(ranks[turn].pop());
        }
        lines.push("[2026-05-01 10:02:00] The server is fired up and ready to roll!".to_owned());
        lines
    }

    /// The same as text.
    pub fn text(&self) -> String {
        self.lines().join("\n") + "\n"
    }
}
