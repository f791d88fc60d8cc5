//! The tiny checkpoints rewritten as GGUF files, as a converter would: other names, permuted
//! heads, quantised blocks. What comes out must compute the same.

use std::path::{Path, PathBuf};

use half::f16;
use kernels::dequantize_row;
use types::TokenId;

use super::golden::{Golden, check_model, continue_greedily, fixture, runner};
use crate::arch::tensors::{LayerTensor as T, Naming};
use crate::config::{Architecture, ModelConfig, RopeScaling};
use crate::load::{LoadOptions, TokenizerSource, inspect};
use crate::weights::gguf::writer::{Writer, array, text};
use crate::weights::{Weights, safetensors};

/// How the matrices of a converted file are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    F32,
    F16,
    Q8_0,
    Q4_0,
    Q4_1,
}

/// A file that is removed at the end of its test.
pub(crate) struct GgufFile(pub(crate) PathBuf);

impl Drop for GgufFile {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.0));
    }
}

impl GgufFile {
    /// Converts fixture `name`; `test` keeps files of tests that run at once apart.
    pub(crate) fn convert(name: &str, kind: Kind, test: &str) -> Self {
        let config = inspect(&fixture(name)).unwrap().config;
        let weights = safetensors::open(&fixture(name)).unwrap();
        let mut writer = metadata(&config);
        let (from, to) = (Naming::Hf, Naming::Gguf);
        let mut names = vec![
            (from.embedding().to_owned(), to.embedding().to_owned(), 0),
            (from.final_norm().to_owned(), to.final_norm().to_owned(), 0),
        ];
        if !config.tied {
            names.push((from.head().to_owned(), to.head().to_owned(), 0));
        }
        for layer in 0..config.layers {
            for tensor in T::ALL.into_iter().filter(|t| t.is_used(config.architecture)) {
                // Only Llama files have their query and key heads permuted.
                let heads = match (config.architecture, tensor) {
                    (Architecture::Llama, T::Query) => config.heads,
                    (Architecture::Llama, T::Key) => config.kv_heads,
                    _ => 0,
                };
                let name = |naming: Naming| naming.layer(config.architecture, layer, tensor);
                names.push((name(from), name(to), heads));
            }
        }
        for (from, to, heads) in names {
            if weights.entry(&from).is_some() {
                writer = copy(writer, &weights, (&from, &to), heads, &config, kind);
            }
        }
        let file = format!("{name}-{kind:?}-{test}-{}.gguf", std::process::id());
        let path = std::env::temp_dir().join(file);
        std::fs::write(&path, writer.build()).unwrap();
        Self(path)
    }
}

pub(crate) fn metadata(config: &ModelConfig) -> Writer {
    let name = config.architecture.as_str();
    let key = |rest: &str| format!("{name}.{rest}");
    let u32 = |value: usize| (value as u32).to_le_bytes();
    let tokens: Vec<u8> = (0..config.vocab).flat_map(|id| text(&format!("t{id}"))).collect();
    let writer = Writer::new()
        .meta("general.architecture", 8, &text(name))
        .meta(&key("block_count"), 4, &u32(config.layers))
        .meta(&key("context_length"), 4, &u32(config.max_context))
        .meta(&key("embedding_length"), 4, &u32(config.hidden))
        .meta(&key("feed_forward_length"), 4, &u32(config.intermediate))
        .meta(&key("attention.head_count"), 4, &u32(config.heads))
        .meta(&key("attention.head_count_kv"), 4, &u32(config.kv_heads))
        .meta(&key("attention.key_length"), 4, &u32(config.head_dim))
        .meta(&key("attention.layer_norm_rms_epsilon"), 6, &config.rms_eps.to_le_bytes())
        .meta(&key("rope.freq_base"), 6, &(config.rope_theta as f32).to_le_bytes())
        .meta("tokenizer.ggml.model", 8, &text("gpt2"))
        .meta("tokenizer.ggml.tokens", 9, &array(8, config.vocab as u64, &tokens))
        .meta("tokenizer.ggml.eos_token_id", 4, &u32(config.eos[0].index()));
    let writer = match config.rope_scaling {
        RopeScaling::Default => writer,
        RopeScaling::Linear { factor } => writer
            .meta(&key("rope.scaling.type"), 8, &text("linear"))
            .meta(&key("rope.scaling.factor"), 6, &(factor as f32).to_le_bytes()),
        RopeScaling::Llama3 { .. } => panic!("files hold divisors instead"),
    };
    let Some(sliding) = &config.sliding else { return writer };
    let period = 1 + sliding.layers.iter().position(|sliding| !sliding).unwrap();
    writer
        .meta(&key("attention.sliding_window"), 4, &u32(sliding.window))
        .meta(&key("attention.sliding_window_pattern"), 4, &u32(period))
        .meta(&key("rope.freq_base_swa"), 6, &(sliding.rope_theta as f32).to_le_bytes())
}

fn copy(
    writer: Writer,
    weights: &Weights,
    (from, to): (&str, &str),
    heads: usize,
    config: &ModelConfig,
    kind: Kind,
) -> Writer {
    let entry = weights.entry(from).unwrap();
    let stored = weights.tensor(entry);
    let mut values = vec![0.0; entry.shape.values().unwrap()];
    dequantize_row(stored.format, stored.bytes, &mut values).unwrap();
    let dims: Vec<u64> = entry.shape.0.iter().rev().map(|dim| *dim as u64).collect();
    if heads > 0 {
        values = permute(&values, heads, entry.shape.0[1]);
    }
    // Norms stay f32, as in real files, which hold what multiplies.
    if dims.len() == 1 {
        values.iter_mut().for_each(|value| *value += config.norm_offset);
    }
    if to.ends_with("attn_q_norm.weight") {
        // No key holds the scale of the scores; the norm before them takes what differs.
        let factor = config.attention_scale * (config.head_dim as f32).sqrt();
        values.iter_mut().for_each(|value| *value *= factor);
    }
    let kind = if dims.len() == 1 { Kind::F32 } else { kind };
    let (number, bytes) = store(&values, kind);
    writer.tensor(to, &dims, number, &bytes)
}

/// Row `i` of a head's first half and row `i` of its second become neighbours.
fn permute(values: &[f32], heads: usize, width: usize) -> Vec<f32> {
    let dim = values.len() / heads / width;
    let mut permuted = Vec::with_capacity(values.len());
    for head in values.chunks_exact(dim * width) {
        for pair in 0..dim / 2 {
            for row in [pair, pair + dim / 2] {
                permuted.extend_from_slice(&head[row * width..(row + 1) * width]);
            }
        }
    }
    permuted
}

/// The format's number and the bytes.
fn store(values: &[f32], kind: Kind) -> (u32, Vec<u8>) {
    let blocks = || values.as_chunks::<32>().0.iter();
    match kind {
        Kind::F32 => (0, values.iter().flat_map(|x| x.to_le_bytes()).collect()),
        Kind::F16 => (1, values.iter().flat_map(|x| f16::from_f32(*x).to_le_bytes()).collect()),
        Kind::Q8_0 => (8, blocks().flat_map(q8_0).collect()),
        Kind::Q4_0 => (2, blocks().flat_map(q4_0).collect()),
        Kind::Q4_1 => (3, blocks().flat_map(q4_1).collect()),
    }
}

fn nibbles(block: &[f32; 32], quantise: impl Fn(f32) -> u8) -> impl Iterator<Item = u8> {
    (0..16)
        .map(move |i| quantise(block[i]) | quantise(block[i + 16]) << 4)
        .collect::<Vec<_>>()
        .into_iter()
}

fn q8_0(block: &[f32; 32]) -> Vec<u8> {
    let scale = block.iter().fold(0.0f32, |a, x| a.max(x.abs())) / 127.0;
    let integers = block.iter().map(|x| (x / scale).round() as i8 as u8);
    f16::from_f32(scale).to_le_bytes().into_iter().chain(integers).collect()
}

fn q4_0(block: &[f32; 32]) -> Vec<u8> {
    let scale = block.iter().fold(0.0f32, |a, x| a.max(x.abs())) / 7.0;
    let integers = nibbles(block, |x| ((x / scale).round() + 8.0).clamp(0.0, 15.0) as u8);
    f16::from_f32(scale).to_le_bytes().into_iter().chain(integers).collect()
}

fn q4_1(block: &[f32; 32]) -> Vec<u8> {
    let least = block.iter().copied().fold(f32::INFINITY, f32::min);
    let scale = (block.iter().copied().fold(f32::NEG_INFINITY, f32::max) - least) / 15.0;
    let integers = nibbles(block, |x| ((x - least) / scale).round().clamp(0.0, 15.0) as u8);
    let head = [f16::from_f32(scale), f16::from_f32(least)].into_iter().flat_map(f16::to_le_bytes);
    head.chain(integers).collect()
}

#[test]
fn converted_files_reproduce_the_golden_values() {
    for name in ["tiny-llama", "tiny-qwen3", "tiny-gemma3"] {
        let file = GgufFile::convert(name, Kind::F32, "golden");
        check_model(&file.0, name);
        let info = inspect(&file.0).unwrap();
        assert_eq!(info.config.tied, name != "tiny-llama");
        let TokenizerSource::Gguf(tokenizer) = info.tokenizer_source else { panic!("not GGUF") };
        assert_eq!((tokenizer.tokens.len(), &*tokenizer.tokens[7]), (512, "t7"));
        assert_eq!(tokenizer.eos, info.spec.eos.first().copied());
        assert_eq!((tokenizer.add_bos, tokenizer.add_space_prefix), (None, None), "not said");
    }
}

/// Mean over tokens of the squared error, relative to the logits' own variance.
fn relative_error(found: &[f32], expect: &[f32]) -> f64 {
    let square = |x: f64| x * x;
    let error: f64 =
        found.iter().zip(expect).map(|(a, b)| square(f64::from(*a) - f64::from(*b))).sum();
    error / expect.iter().map(|x| square(f64::from(*x))).sum::<f64>()
}

/// The arithmetic of each format against the same weights widened to f32: only the rounding of
/// activations to int8 (or nothing, for f16) lies between them.
#[test]
fn every_format_computes_what_its_values_say() {
    let ids: Vec<TokenId> = Golden::read("tiny-llama").tokens("p2.input_ids");
    let logits = |path: &Path, dequantize| {
        let options = LoadOptions { dequantize, ..LoadOptions::default() };
        continue_greedily(&mut runner(path, options), &ids, 1).1
    };
    for (kind, bound) in
        [(Kind::F16, 0.0), (Kind::Q8_0, 2e-3), (Kind::Q4_0, 2e-3), (Kind::Q4_1, 2e-3)]
    {
        let file = GgufFile::convert("tiny-llama", kind, "formats");
        let error = relative_error(&logits(&file.0, false), &logits(&file.0, true));
        assert!(error <= bound, "{kind:?}: {error}");
    }
}
