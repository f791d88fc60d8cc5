//! Models of random small shapes: each computes what its definition says, and the same bits
//! whatever the chunks, the neighbours, the pages of its prefix and the ranks.
//!
//! `SIGHTLINE_SHAPE_SEED=n` draws the shape of seed `n` alone.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;

use safetensors::Dtype;
use safetensors::tensor::TensorView;
use serde_json::{Value, json};
use types::{PageId, TokenId};

use super::naive::Naive;
use super::tensors::{Kind, needed};
use crate::config::ModelConfig;
use crate::load::{LoadOptions, TpLimits, load_deepseek_v4, read_config};
use crate::ranks::DeepseekRunner;
use crate::runner::{Batch, Logits, ModelRunner, PageList};

const SEEDS: Range<u64> = 0..40;
const PAGE_TOKENS: usize = 128;
/// Pages of each pool.
const PAGES: usize = 12;
/// Against numbers of a few ones.
const TOLERANCE: f64 = 2e-3;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn within(&mut self, range: Range<usize>) -> usize {
        range.start + (self.next() % (range.end - range.start) as u64) as usize
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.within(0..all.len())]
    }

    /// From -1 to 1.
    fn value(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    /// Different numbers below `most`.
    fn some(&mut self, count: usize, most: usize) -> Vec<usize> {
        let mut all: Vec<usize> = (0..most).collect();
        (0..count).map(|_| all.swap_remove(self.within(0..all.len()))).collect()
    }
}

/// A configuration in the spelling that has names for all ratios.
fn shape(random: &mut Random) -> Value {
    const KINDS: [&str; 3] =
        ["sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"];
    let layers = random.within(1..5);
    let kinds: Vec<&str> = (0..layers).map(|_| random.one_of(&KINDS)).collect();
    let hash = random.within(0..layers + 1);
    let experts: Vec<&str> =
        (0..layers).map(|layer| if layer < hash { "hash_moe" } else { "moe" }).collect();
    let (sparse, heavy) = (random.one_of(&[2, 4, 4, 8]), random.one_of(&[8, 16, 32, 128]));
    let groups = random.within(1..4);
    let rope = 2 * random.within(1..5);
    let routed = random.within(1..7);
    let scaling = if random.within(0..3) == 0 {
        json!({"rope_type": "default", "rope_theta": 5e4})
    } else {
        let original = random.within(16..400);
        json!({"rope_type": "yarn", "rope_theta": 1.6e5, "factor": 4, "beta_fast": 32,
            "beta_slow": 1, "original_max_position_embeddings": original})
    };
    json!({
        "architectures": ["DeepseekV4ForCausalLM"],
        "hidden_size": random.within(8..40), "num_hidden_layers": layers,
        "num_attention_heads": groups * random.within(1..4), "num_key_value_heads": 1,
        "head_dim": rope + 2 * random.within(0..5), "qk_rope_head_dim": rope,
        "q_lora_rank": random.within(4..20), "o_groups": groups,
        "o_lora_rank": random.within(2..10), "sliding_window": 2 * sparse + random.within(0..50),
        "layer_types": kinds, "mlp_layer_types": experts,
        "compress_rates": {KINDS[1]: sparse, KINDS[2]: heavy},
        "rope_parameters": {"main": {"rope_theta": 1e4}, "compress": scaling},
        "index_n_heads": random.within(1..5), "index_head_dim": rope + 2 * random.within(0..5),
        "index_topk": random.within(1..24), "n_routed_experts": routed, "n_shared_experts": 1,
        "num_experts_per_tok": random.within(1..routed + 1), "norm_topk_prob": true,
        "moe_intermediate_size": random.within(4..24), "scoring_func": "sqrtsoftplus",
        "routed_scaling_factor": 1.5, "swiglu_limit": random.one_of(&[0.5, 1.0, 10.0]),
        "hc_mult": random.within(1..5), "hc_sinkhorn_iters": random.within(1..7),
        "hc_eps": 1e-6, "rms_norm_eps": 1e-6, "hidden_act": "silu",
        "vocab_size": random.within(24..64), "max_position_embeddings": 1024,
    })
}

/// A model in a folder that is removed at the end of its test.
struct Model {
    folder: PathBuf,
    config: ModelConfig,
    weights: BTreeMap<String, Vec<f32>>,
}

impl Drop for Model {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.folder));
    }
}

impl Model {
    fn draw(seed: u64, random: &mut Random) -> Self {
        let folder = std::env::temp_dir().join(format!("v4-shape-{seed}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let shape = shape(random);
        println!("seed {seed}: {shape}");
        std::fs::write(folder.join("config.json"), shape.to_string()).unwrap();
        let mut model =
            Self { config: read_config(&folder).unwrap(), folder, weights: BTreeMap::new() };
        let v4 = model.config.deepseek_v4.as_deref().unwrap();
        let mut stored = BTreeMap::new();
        for (name, kind, shape) in needed(&model.config, v4) {
            let shape = shape.0;
            let values: Vec<f32> = if kind == Kind::Integers {
                let rows = (0..shape[0]).flat_map(|_| random.some(shape[1], v4.experts));
                rows.map(|expert| expert as f32).collect()
            } else {
                let draw = |random: &mut Random| drawn(&name, &shape, random.value());
                (0..shape.iter().product()).map(|_| draw(random)).collect()
            };
            let (dtype, bytes): (_, Vec<u8>) = if kind == Kind::Integers {
                let words = values.iter().flat_map(|value| (*value as i64).to_le_bytes());
                (Dtype::I64, words.collect())
            } else {
                (Dtype::F32, values.iter().flat_map(|value| value.to_le_bytes()).collect())
            };
            stored.insert(name.clone(), (dtype, shape, bytes));
            model.weights.insert(name, values);
        }
        let views = stored.iter().map(|(name, (dtype, shape, bytes))| {
            (name.as_str(), TensorView::new(*dtype, shape.clone(), bytes).unwrap())
        });
        let bytes = safetensors::serialize(views, None).unwrap();
        std::fs::write(model.folder.join("model.safetensors"), bytes).unwrap();
        model
    }

    fn runner(&self, tp_size: usize, threads: usize) -> DeepseekRunner {
        let page_tokens = Some(PAGE_TOKENS);
        let options = LoadOptions { tp_size, threads, page_tokens, ..LoadOptions::default() };
        let mut runner = load_deepseek_v4(&self.folder, options).unwrap();
        runner.allocate(&[PAGES, PAGES]).unwrap();
        runner
    }

    fn prompt(&self, random: &mut Random, len: usize) -> Vec<TokenId> {
        (0..len).map(|_| TokenId(random.within(0..self.config.vocab) as u32)).collect()
    }
}

/// A weight of tensor `name`, from a number between -1 and 1.
fn drawn(name: &str, shape: &[usize], value: f32) -> f32 {
    if name.ends_with("norm.weight") || name.ends_with("_scale") {
        1.0 + value / 3.0
    } else if name.ends_with("gate.bias") {
        value / 5.0
    } else if shape.len() == 1 || name.ends_with("ape") {
        2.0 * value
    } else {
        value * (3.0 / shape[1] as f32).sqrt()
    }
}

/// A request whose prefix is stored up to `start`, and the logits of every token behind.
struct Request {
    ids: Vec<TokenId>,
    start: usize,
    /// The pages of both pools, those of the window from its index on.
    pages: [Vec<PageId>; 2],
    first: usize,
    rows: Vec<Vec<u32>>,
}

impl Request {
    fn new(ids: &[TokenId], pages: impl IntoIterator<Item = u32>) -> Self {
        let pages: Vec<PageId> = pages.into_iter().map(PageId).collect();
        let other = pages.iter().rev().copied().collect();
        Self { ids: ids.to_vec(), start: 0, pages: [pages, other], first: 0, rows: Vec::new() }
    }

    /// Adds the next `len` tokens to a batch.
    fn push(&mut self, batch: &mut Batch, len: usize) -> usize {
        let end = self.ids.len().min(self.start + len);
        let [history, window] = &self.pages;
        let lists = [PageList::whole(history), PageList { first: self.first, pages: window }];
        let len = end - self.start;
        batch.push(&self.ids[self.start..end], self.start, len, lists);
        self.start = end;
        len
    }

    fn is_done(&self) -> bool {
        self.start == self.ids.len()
    }
}

fn bits(row: &[f32]) -> Vec<u32> {
    row.iter().map(|value| value.to_bits()).collect()
}

/// Runs requests together to their ends, each step with slices of random lengths up to `longest`.
fn run(runner: &mut DeepseekRunner, requests: &mut [Request], longest: usize, random: &mut Random) {
    let (mut batch, mut logits) = (Batch::default(), Logits::new());
    while requests.iter().any(|request| !request.is_done()) {
        batch.clear();
        let mut served = Vec::new();
        for (at, request) in requests.iter_mut().enumerate().filter(|(_, r)| !r.is_done()) {
            let len = request.push(&mut batch, random.within(1..longest + 1));
            served.extend(std::iter::repeat_n(at, len));
        }
        runner.execute(&batch, &mut logits).unwrap();
        for (row, at) in served.into_iter().enumerate() {
            requests[at].rows.push(bits(logits.row(row)));
        }
    }
}

/// The logits of every token, by one step.
fn whole(runner: &mut DeepseekRunner, ids: &[TokenId]) -> Vec<Vec<f32>> {
    let (mut batch, mut logits) = (Batch::default(), Logits::new());
    Request::new(ids, [2, 0, 1]).push(&mut batch, ids.len());
    runner.execute(&batch, &mut logits).unwrap();
    (0..logits.rows()).map(|row| logits.row(row).to_vec()).collect()
}

/// How many positions could be compared with the definition.
fn check(seed: u64) -> (usize, usize) {
    let mut random = Random(seed);
    let model = Model::draw(seed, &mut random);
    let len = random.within(2 * PAGE_TOKENS + 1..3 * PAGE_TOKENS);
    let ids = model.prompt(&mut random, len);
    let mut runner = model.runner(1, 2);
    let rows = whole(&mut runner, &ids);
    let mut naive = Naive { config: &model.config, weights: &model.weights, sure: 0 };
    let numbers: Vec<u32> = ids.iter().map(|id| id.0).collect();
    let expect = naive.logits(&numbers);
    for (t, (found, expect)) in rows.iter().zip(&expect).enumerate().take(naive.sure) {
        let off = found.iter().zip(expect).map(|(a, b)| (f64::from(*a) - b).abs());
        let worst = off.fold(0.0, f64::max);
        assert!(worst <= TOLERANCE, "seed {seed}: position {t} is off by {worst}");
    }
    let expect: Vec<Vec<u32>> = rows.iter().map(|row| bits(row)).collect();
    // Chunks.
    let mut alone = [Request::new(&ids, [1, 2, 0])];
    run(&mut runner, &mut alone, 90, &mut random);
    assert!(alone[0].rows == expect, "seed {seed}: chunks");
    // Neighbours, of which one has the same beginning and goes on otherwise.
    let shared = PAGE_TOKENS * random.within(1..3);
    let mut other = ids[..shared].to_vec();
    other.extend(model.prompt(&mut random, 70));
    let third = model.prompt(&mut random, 40);
    let mut together =
        [Request::new(&other, [3, 4, 5]), Request::new(&ids, [8, 7, 6]), Request::new(&third, [9])];
    run(&mut runner, &mut together, 60, &mut random);
    assert!(together[1].rows == expect, "seed {seed}: neighbours");
    // The prefix in the other's pages; of its window only the last one.
    let (whole_pages, window) = (shared / PAGE_TOKENS, shared / PAGE_TOKENS - 1);
    let page = |list: &[PageId], at: usize, own: u32| {
        if at < whole_pages { list[at] } else { PageId(own + at as u32) }
    };
    let [history, recent] = &together[0].pages;
    let pages = [
        (0..3).map(|at| page(history, at, 9)).collect(),
        (window..3).map(|at| page(recent, at, 9)).collect(),
    ];
    let mut reusing =
        [Request { ids: ids.clone(), start: shared, pages, first: window, rows: Vec::new() }];
    run(&mut runner, &mut reusing, 50, &mut random);
    assert!(reusing[0].rows == expect[shared..], "seed {seed}: prefix of {shared}");
    // Ranks.
    let limits = TpLimits::of(&model.config);
    for ranks in (2..4).filter(|ranks| limits.check(*ranks).is_ok()) {
        let mut runner = model.runner(ranks, 2);
        let mut alone = [Request::new(&ids, [1, 2, 0])];
        run(&mut runner, &mut alone, 200, &mut random);
        assert!(alone[0].rows == expect, "seed {seed}: {ranks} ranks");
    }
    (naive.sure, len)
}

#[expect(clippy::disallowed_methods, reason = "a test is replayed by hand, it has no CLI")]
fn seeds() -> Range<u64> {
    let one = std::env::var("SIGHTLINE_SHAPE_SEED").ok().and_then(|seed| seed.parse().ok());
    one.map_or(SEEDS, |seed| seed..seed + 1)
}

#[test]
fn random_shapes_compute_what_their_definition_says() {
    let (mut compared, mut all) = (0, 0);
    for seed in seeds() {
        let (sure, len) = check(seed);
        (compared, all) = (compared + sure, all + len);
    }
    assert!(compared * 10 > all * 6, "{compared} of {all} positions could be compared");
}
