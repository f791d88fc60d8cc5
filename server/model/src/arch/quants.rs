//! Models of random weights in the five-bit and K formats: written as GGUF files by a simple
//! quantiser, loaded, and run against the same weights widened to f32.

use half::f16;
use kernels::WeightFormat;
use types::TokenId;

use super::convert::{GgufFile, metadata};
use super::golden::{Tables, fixture, runner};
use super::tensors::{LayerTensor as T, Naming};
use super::{Trace, invariance};
use crate::config::ModelConfig;
use crate::load::{LoadOptions, inspect};
use crate::runner::{Batch, Logits};

const FORMATS: [WeightFormat; 5] = [
    WeightFormat::Q5_0,
    WeightFormat::Q5_1,
    WeightFormat::Q4K,
    WeightFormat::Q5K,
    WeightFormat::Q6K,
];
const SEED: u64 = 41;

/// xorshift; the seed is in [`SEED`].
struct Rng(u64);

impl Rng {
    /// Between -1 and 1.
    fn unit(&mut self) -> f32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    fn values(&mut self, count: usize, size: f32) -> Vec<f32> {
        (0..count).map(|_| size * self.unit()).collect()
    }
}

/// A Llama whose rows are whole super-blocks.
fn config() -> ModelConfig {
    let tiny = inspect(&fixture("tiny-llama")).unwrap().config;
    ModelConfig {
        hidden: 256,
        layers: 2,
        heads: 4,
        kv_heads: 2,
        head_dim: 64,
        intermediate: 512,
        vocab: 160,
        eos: vec![TokenId(159)],
        tied: true,
        ..tiny
    }
}

/// Writes a random model in `format` and returns it with its embedding before quantisation.
fn random_model(format: WeightFormat, test: &str) -> (GgufFile, Vec<f32>) {
    let config = config();
    let (hidden, inner) = (config.hidden, config.intermediate);
    let (query, key) = (config.heads * config.head_dim, config.kv_heads * config.head_dim);
    let mut rng = Rng(SEED);
    let mut writer = metadata(&config);
    let embedding = rng.values(config.vocab * hidden, 0.1);
    let naming = Naming::Gguf;
    let mut matrices = vec![(naming.embedding().to_owned(), hidden, embedding.clone())];
    let mut norms = vec![naming.final_norm().to_owned()];
    for layer in 0..config.layers {
        for (tensor, rows, width) in [
            (T::Query, query, hidden),
            (T::Key, key, hidden),
            (T::Value, key, hidden),
            (T::Output, hidden, query),
            (T::Gate, inner, hidden),
            (T::Up, inner, hidden),
            (T::Down, hidden, inner),
        ] {
            let values = rng.values(rows * width, (3.0 / width as f32).sqrt());
            matrices.push((naming.layer(config.architecture, layer, tensor), width, values));
        }
        norms.extend(
            [T::AttentionNorm, T::MlpNorm]
                .map(|tensor| naming.layer(config.architecture, layer, tensor)),
        );
    }
    for (name, width, values) in matrices {
        let dims = [width as u64, (values.len() / width) as u64];
        let (kind, bytes) = quantise(&values, format);
        writer = writer.tensor(&name, &dims, kind, &bytes);
    }
    for name in norms {
        let values: Vec<u8> =
            (0..hidden).flat_map(|_| (1.0 + 0.2 * rng.unit()).to_le_bytes()).collect();
        writer = writer.tensor(&name, &[hidden as u64], 0, &values);
    }
    let file = format!("random-{format}-{test}-{}.gguf", std::process::id());
    let path = std::env::temp_dir().join(file);
    std::fs::write(&path, writer.build()).unwrap();
    (GgufFile(path), embedding)
}

/// The type's number in GGUF and the stored blocks.
fn quantise(values: &[f32], format: WeightFormat) -> (u32, Vec<u8>) {
    let blocks = values.as_chunks::<32>().0.iter();
    let supers = values.as_chunks::<256>().0.iter();
    match format {
        WeightFormat::Q5_0 => (6, blocks.flat_map(q5_0).collect()),
        WeightFormat::Q5_1 => (7, blocks.flat_map(q5_1).collect()),
        WeightFormat::Q4K => (12, supers.flat_map(|x| with_minimum(x, 15.0)).collect()),
        WeightFormat::Q5K => (13, supers.flat_map(|x| with_minimum(x, 31.0)).collect()),
        WeightFormat::Q6K => (14, supers.flat_map(q6_k).collect()),
        WeightFormat::F32
        | WeightFormat::F16
        | WeightFormat::Bf16
        | WeightFormat::Q8_0
        | WeightFormat::Q4_0
        | WeightFormat::Q4_1 => panic!("no quantiser for {format}"),
    }
}

fn largest(values: &[f32]) -> f32 {
    values.iter().fold(0.0, |a, x| a.max(x.abs()))
}

fn range(values: &[f32]) -> (f32, f32) {
    let low = values.iter().copied().fold(f32::INFINITY, f32::min);
    (low, values.iter().copied().fold(f32::NEG_INFINITY, f32::max))
}

/// `value` in whole steps, inside what the bits hold.
fn steps(value: f32, max: f32) -> u8 {
    value.round().clamp(0.0, max) as u8
}

/// 32 values of five bits: the fifth bits in order, then nibbles.
fn five_bits(q: &[u8; 32]) -> Vec<u8> {
    let high = (0..32).fold(0u32, |bits, i| bits | u32::from(q[i] >> 4) << i);
    let low = (0..16).map(|i| q[i] & 15 | (q[i + 16] & 15) << 4);
    high.to_le_bytes().into_iter().chain(low).collect()
}

fn q5_0(x: &[f32; 32]) -> Vec<u8> {
    let d = f16::from_f32(largest(x) / 15.5);
    let q = x.map(|x| steps(x / d.to_f32() + 16.0, 31.0));
    [&d.to_le_bytes()[..], &five_bits(&q)].concat()
}

fn q5_1(x: &[f32; 32]) -> Vec<u8> {
    let (low, high) = range(x);
    let (d, m) = (f16::from_f32((high - low) / 31.0), f16::from_f32(low));
    let q = x.map(|x| steps((x - m.to_f32()) / d.to_f32(), 31.0));
    [&d.to_le_bytes()[..], &m.to_le_bytes(), &five_bits(&q)].concat()
}

/// Q4_K (`max` 15) or Q5_K (31).
fn with_minimum(x: &[f32; 256], max: f32) -> Vec<u8> {
    let parts: Vec<(f32, f32)> = x
        .as_chunks::<32>()
        .0
        .iter()
        .map(|x| {
            let low = range(x).0.min(0.0);
            ((range(x).1 - low) / max, -low)
        })
        .collect();
    let most = |of: fn(&(f32, f32)) -> f32| parts.iter().map(of).fold(0.0, f32::max) / 63.0;
    let (d, e) = (f16::from_f32(most(|part| part.0)), f16::from_f32(most(|part| part.1)));
    let mut scales = [0u8; 12];
    let mut q = [0u8; 256];
    for (at, (scale, min)) in parts.into_iter().enumerate() {
        let (scale, min) = (steps(scale / d.to_f32(), 63.0), steps(min / e.to_f32(), 63.0));
        match at {
            0..4 => (scales[at], scales[at + 4]) = (scales[at] | scale, scales[at + 4] | min),
            _ => {
                scales[at + 4] = scale & 15 | (min & 15) << 4;
                scales[at - 4] |= scale >> 4 << 6;
                scales[at] |= min >> 4 << 6;
            }
        }
        let (step, min) = (d.to_f32() * f32::from(scale), e.to_f32() * f32::from(min));
        for (q, x) in q[at * 32..].iter_mut().zip(&x[at * 32..at * 32 + 32]) {
            *q = steps((x + min) / step, max);
        }
    }
    let mut high = [0u8; 32];
    let mut low = [0u8; 128];
    for (i, q) in q.into_iter().enumerate() {
        high[i % 32] |= (q >> 4) << (i / 32);
        low[i / 64 * 32 + i % 32] |= (q & 15) << (i / 32 % 2 * 4);
    }
    let high = if max > 15.0 { &high[..] } else { &[] };
    [&d.to_le_bytes()[..], &e.to_le_bytes(), &scales, high, &low].concat()
}

fn q6_k(x: &[f32; 256]) -> Vec<u8> {
    let parts = x.as_chunks::<16>().0.iter().map(|x| largest(x) / 31.0);
    let d = f16::from_f32(parts.clone().fold(0.0, f32::max) / 127.0);
    let scales: Vec<u8> = parts.map(|scale| steps(scale / d.to_f32(), 127.0)).collect();
    let (mut low, mut high) = ([0u8; 128], [0u8; 64]);
    for (i, x) in x.iter().enumerate() {
        let step = d.to_f32() * f32::from(scales[i / 16]);
        let q = steps(x / step + 32.0, 63.0);
        let (half, quarter, at) = (i / 128, i / 32 % 4, i % 32);
        low[half * 64 + quarter % 2 * 32 + at] |= (q & 15) << (quarter / 2 * 4);
        high[half * 32 + at] |= (q >> 4) << (quarter * 2);
    }
    [&low[..], &high, &scales, &d.to_le_bytes()].concat()
}

/// Keeps the embedded rows.
#[derive(Default)]
struct Embedded(Vec<f32>);

impl Trace for Embedded {
    fn see(&mut self, _: Option<usize>, point: &'static str, values: &[f32]) {
        if point == "embed" {
            self.0 = values.to_vec();
        }
    }
}

fn prompt() -> Vec<TokenId> {
    (0..48).map(|i| TokenId(i * 37 % 160)).collect()
}

/// Logits of every position of the prompt, and the embedded rows.
fn run(file: &GgufFile, dequantize: bool) -> (Logits, Vec<f32>) {
    let mut runner = runner(&file.0, LoadOptions { dequantize, ..LoadOptions::default() });
    let ids = prompt();
    let mut batch = Batch::default();
    batch.push(&ids, 0, ids.len(), Tables::of(&runner).lists());
    let (mut logits, mut embedded) = (Logits::new(), Embedded::default());
    runner.execute_traced(&batch, &mut logits, &mut embedded).unwrap();
    (logits, embedded.0)
}

/// Divergence of the next-token distribution of `found` from that of `expect`, in nats.
fn divergence(expect: &[f32], found: &[f32]) -> f64 {
    let normal = |row: &[f32]| row.iter().map(|x| f64::from(*x).exp()).sum::<f64>().ln();
    let (expect_norm, found_norm) = (normal(expect), normal(found));
    let terms = expect.iter().zip(found).map(|(p, q)| {
        let (p, q) = (f64::from(*p) - expect_norm, f64::from(*q) - found_norm);
        p.exp() * (p - q)
    });
    terms.sum()
}

#[test]
fn each_format_runs_as_its_decoded_weights_do() {
    for format in FORMATS {
        let (file, embedding) = random_model(format, "runs");
        let ((found, embedded), (expect, _)) = (run(&file, false), run(&file, true));
        // Rows of the table, off by no more than the format's step over a range of 0.2.
        let hidden = config().hidden;
        for (row, id) in embedded.chunks(hidden).zip(prompt()) {
            let table = &embedding[id.index() * hidden..][..hidden];
            let off = row.iter().zip(table).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(off > 0.0 && off < 0.01, "{format}: embedding of {id} off by {off}");
        }
        assert_eq!((found.rows(), expect.rows()), (48, 48));
        let (mut worst, mut divergence_max) = (0.0f32, 0.0f64);
        for row in 0..found.rows() {
            let (a, b) = (found.row(row), expect.row(row));
            worst = a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(worst, f32::max);
            divergence_max = divergence_max.max(divergence(b, a));
        }
        let largest = largest(expect.row(0));
        println!("{format}: off by {worst} of {largest}, divergence {divergence_max:.6}");
        assert!(worst <= 0.05 * largest, "{format}: logits off by {worst} of {largest}");
        assert!(divergence_max <= 0.002, "{format}: divergence {divergence_max}");
    }
}

#[test]
fn no_format_depends_on_batch_chunks_or_threads() {
    let prompts = [&prompt()[..5], &prompt()[..], &prompt()[9..30]].map(<[_]>::to_vec);
    for format in FORMATS {
        let (file, _) = random_model(format, "invariance");
        invariance::check(&file.0, &prompts);
    }
}

/// The log and `kernel_info` name what runs: nothing falls back to the reference kernels where
/// vector kernels exist.
#[test]
fn the_kernel_of_each_format_is_named() {
    for format in FORMATS {
        let (file, _) = random_model(format, "names");
        let loaded = crate::load::load(&file.0, LoadOptions::default()).unwrap();
        let uses = &loaded.spec.kernels;
        let linear: Vec<_> = uses.iter().filter(|kernel| kernel.op == "linear").collect();
        assert_eq!(linear.len(), 1, "{uses:?}");
        assert_eq!(linear[0].format, format.as_str());
        let family = match kernels::KernelPath::Detect.resolve() {
            kernels::KernelPath::Avx2 => "avx2",
            kernels::KernelPath::Reference | kernels::KernelPath::Detect => "reference",
        };
        let expect = format!("{family}-{format}");
        assert!(linear[0].kernel.starts_with(&expect), "{uses:?}");
    }
}
