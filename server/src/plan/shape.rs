//! What the bytes of the KV cache follow from, read from `config.json` alone: for models whose
//! weights are elsewhere, and for models that other engines serve.
//!
//! The layouts are those that engines for GPUs use; what this server's own back-end allocates is
//! the business of crate `model`.

use std::io::Read;
use std::path::{Path, PathBuf};

use model::{ModelSpec, PartSpec, PoolSpec, TpLimits};
use serde_json::{Map, Value};

use crate::cli::KvDtype;
use crate::config::{Class, Finding};

/// A configuration is read into memory, so it has an end.
const CONFIG_BYTES_MAX: u64 = 16 << 20;
/// No model has dimensions or layers beyond.
const NUMBER_MAX: u64 = 1 << 28;
/// No model has more layers.
const LAYERS_MAX: usize = 4096;
/// Rows of the ring in which a compressor of 4 keeps what it has not joined yet.
const RING: u64 = 8;

/// What a model keeps of each token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shape {
    /// The folder's name.
    pub(crate) name: String,
    /// `model_type`.
    pub(crate) architecture: String,
    /// Rows of the vocabulary; 1 where the file does not say.
    vocab: usize,
    /// Positions; 2^20 where the file does not say.
    max_context: usize,
    /// Number type of the weights, where the file says.
    dtype: Option<KvDtype>,
    /// What ranks share out; `None` where every rank holds the same.
    tp: Option<TpLimits>,
    /// How it attends.
    pub(crate) attention: Attention,
}

/// How a model attends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Attention {
    /// Keys and values of several heads.
    Heads {
        kv_heads: u64,
        head_dim: u64,
        /// Layers that see everything, and those that see a window.
        full: Vec<usize>,
        sliding: Vec<usize>,
        window: usize,
    },
    /// One latent that all heads share.
    Latent { width: u64, layers: usize },
    /// DeepSeek-V4: a window of latents, and compressed history.
    Compressed(Compressed),
}

/// Dimensions of DeepSeek-V4.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Compressed {
    pub(crate) head_dim: u64,
    pub(crate) rope_dim: u64,
    pub(crate) index_dim: u64,
    pub(crate) window: usize,
    /// One ratio per layer: 0, 4 or 128.
    pub(crate) ratios: Vec<u64>,
}

/// Where the configuration of `path` is: the file itself, or the one of the folder.
pub(crate) fn config_file(path: &Path) -> PathBuf {
    if path.is_dir() { path.join("config.json") } else { path.to_owned() }
}

impl Shape {
    /// Reads the configuration at `path`: a folder or its `config.json`.
    pub(crate) fn read(path: &Path) -> Result<Self, Finding> {
        let file = config_file(path);
        let finding = |reason: String| Finding {
            id: "MODEL002",
            class: Class::Configuration,
            flag: "--model",
            value: file.display().to_string(),
            reason,
            fix: "a folder with config.json, or that file".to_owned(),
        };
        let mut text = Vec::new();
        std::fs::File::open(&file)
            .and_then(|file| file.take(CONFIG_BYTES_MAX).read_to_end(&mut text))
            .map_err(|error| finding(format!("cannot be read: {error}")))?;
        if text.len() as u64 >= CONFIG_BYTES_MAX {
            return Err(finding(format!(
                "has {CONFIG_BYTES_MAX} bytes or more, and no model's has"
            )));
        }
        let folder = file
            .canonicalize()
            .ok()
            .and_then(|file| Some(file.parent()?.file_name()?.to_string_lossy().into_owned()));
        let parsed = serde_json::from_slice(&text).map_err(|error| error.to_string());
        let shape = parsed.and_then(|config: Value| match config {
            Value::Object(fields) => Self::of(&fields, folder.unwrap_or_default()),
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_) => Err("not a JSON object".to_owned()),
        });
        shape.map_err(finding)
    }

    fn of(fields: &Map<String, Value>, name: String) -> Result<Self, String> {
        let architecture = text(fields, "model_type").ok_or("field model_type is missing")?;
        // Models that also see images keep the language model's fields apart.
        let fields = match fields.get("text_config") {
            Some(Value::Object(inner)) if !fields.contains_key("num_hidden_layers") => inner,
            _ => fields,
        };
        let layers = size(fields, "num_hidden_layers")?;
        if layers == 0 || layers > LAYERS_MAX {
            return Err(format!("field num_hidden_layers is {layers}, expected 1 to {LAYERS_MAX}"));
        }
        let dtype = text(fields, "torch_dtype").or_else(|| text(fields, "dtype"));
        let attention = if fields.contains_key("compress_ratios") {
            Attention::Compressed(Compressed::of(fields, layers)?)
        } else if architecture == "deepseek_v4" {
            return Err("field compress_ratios is missing".to_owned());
        } else if fields.contains_key("kv_lora_rank") {
            let width = number(fields, "kv_lora_rank")? + number(fields, "qk_rope_head_dim")?;
            Attention::Latent { width, layers }
        } else {
            heads(fields, layers)?
        };
        let optional = |field: &str, default| match fields.contains_key(field) {
            true => size(fields, field),
            false => Ok(default),
        };
        Ok(Self {
            name,
            vocab: optional("vocab_size", 1)?,
            max_context: optional("max_position_embeddings", 1 << 20)?,
            dtype: dtype.as_deref().and_then(KvDtype::of_weights),
            tp: tp_limits(fields, &attention)?,
            architecture,
            attention,
        })
    }

    /// The number type that engines for GPUs choose by themselves.
    pub(crate) fn published_dtype(&self) -> KvDtype {
        match self.attention {
            Attention::Compressed(_) => KvDtype::Fp8,
            Attention::Heads { .. } | Attention::Latent { .. } => {
                self.dtype.unwrap_or(KvDtype::Bf16)
            }
        }
    }

    /// Tokens of a page where nobody says.
    pub(crate) const fn page_tokens(&self) -> usize {
        match self.attention {
            Attention::Compressed(_) => 256,
            Attention::Heads { .. } | Attention::Latent { .. } => 16,
        }
    }

    /// Tokens of a page are a multiple of it.
    pub(crate) fn page_multiple(&self) -> usize {
        match &self.attention {
            Attention::Compressed(v4) => {
                v4.ratios.iter().copied().max().map_or(1, |ratio| ratio.max(1) as usize)
            }
            Attention::Heads { .. } | Attention::Latent { .. } => 1,
        }
    }

    /// Into how many ranks it can be shared out; `None` where every rank holds the same.
    pub(crate) const fn tp_limits(&self) -> Option<&TpLimits> {
        self.tp.as_ref()
    }

    /// The model as the planner takes it, with the pools of one of `ranks` ranks. `drafts`: whether
    /// a draft layer rides along, which doubles the rings of the compressors.
    pub(crate) fn spec(
        &self,
        dtype: KvDtype,
        page_tokens: usize,
        ranks: usize,
        drafts: bool,
    ) -> ModelSpec {
        let pools = match &self.attention {
            Attention::Heads { kv_heads, head_dim, full, sliding, window } => {
                // With more ranks than heads, heads are held more than once.
                let held = (kv_heads / ranks.max(1) as u64).max(1);
                let layer = page_tokens as u64 * 2 * held * head_dim * dtype.bytes();
                let all = held == *kv_heads;
                let whole =
                    (!full.is_empty()).then(|| pool("kv", page_tokens, None, full, layer, all));
                let windows = (!sliding.is_empty())
                    .then(|| pool("swa", page_tokens, Some(*window), sliding, layer, all));
                whole.into_iter().chain(windows).collect()
            }
            Attention::Latent { width, layers } => {
                let layer = page_tokens as u64 * width * dtype.bytes();
                let all: Vec<usize> = (0..*layers).collect();
                vec![pool("kv", page_tokens, None, &all, layer, true)]
            }
            Attention::Compressed(v4) => v4.pools(dtype, page_tokens as u64, drafts),
        };
        ModelSpec {
            name: self.name.clone(),
            architecture: self.architecture.clone(),
            vocab: self.vocab,
            max_context: self.max_context,
            eos: Vec::new(),
            bos: None,
            pools,
            parameters: 0,
            weight_bytes: 0,
            kernels: Vec::new(),
        }
    }
}

fn pool(
    name: &'static str,
    page_tokens: usize,
    window: Option<usize>,
    layers: &[usize],
    layer_bytes: u64,
    replicated: bool,
) -> PoolSpec {
    let layers = layers.to_vec();
    let part = PartSpec { name, layers, layer_bytes, host: true, replicated };
    PoolSpec { name, page_tokens, window, parts: vec![part] }
}

/// What ranks share out, as [`TpLimits::of`] has it for models whose weights are there. Of the
/// fields of which each rank needs one, those that the file has.
fn tp_limits(
    fields: &Map<String, Value>,
    attention: &Attention,
) -> Result<Option<TpLimits>, String> {
    let (even, held, each): (_, _, &[&'static str]) = match attention {
        Attention::Heads { kv_heads, .. } => (
            ("num_attention_heads", size(fields, "num_attention_heads")?),
            Some(("num_key_value_heads", *kv_heads as usize)),
            &["intermediate_size", "vocab_size"],
        ),
        Attention::Compressed(_) => (
            ("o_groups", size(fields, "o_groups")?),
            None,
            &["n_routed_experts", "moe_intermediate_size", "hidden_size", "vocab_size"],
        ),
        Attention::Latent { .. } => return Ok(None),
    };
    let each = each.iter().filter(|field| fields.contains_key(**field));
    let each = each.map(|field| Ok((*field, size(fields, field)?)));
    Ok(Some(TpLimits { even, held, each: each.collect::<Result<_, String>>()? }))
}

/// Grouped-query attention, with a window in some layers or in none.
fn heads(fields: &Map<String, Value>, layers: usize) -> Result<Attention, String> {
    let heads = number(fields, "num_attention_heads")?;
    let kv_heads = match fields.contains_key("num_key_value_heads") {
        true => number(fields, "num_key_value_heads")?,
        false => heads,
    };
    let head_dim = match fields.get("head_dim") {
        Some(value) if !value.is_null() => number(fields, "head_dim")?,
        _ => number(fields, "hidden_size")? / heads.max(1),
    };
    let kinds = fields.get("layer_types").and_then(Value::as_array);
    let slides = |layer: usize| match (kinds, fields.get("sliding_window_pattern")) {
        (Some(kinds), _) => kinds.get(layer).is_some_and(|kind| kind == "sliding_attention"),
        (None, Some(every)) => every
            .as_u64()
            .filter(|every| *every > 0)
            .is_some_and(|every| !(layer as u64 + 1).is_multiple_of(every)),
        (None, None) => false,
    };
    let (sliding, full): (Vec<usize>, Vec<usize>) = (0..layers).partition(|layer| slides(*layer));
    let window = if sliding.is_empty() { 0 } else { size(fields, "sliding_window")? };
    Ok(Attention::Heads { kv_heads, head_dim, full, sliding, window })
}

impl Compressed {
    fn of(fields: &Map<String, Value>, layers: usize) -> Result<Self, String> {
        let listed = fields.get("compress_ratios").and_then(Value::as_array);
        let ratios: Option<Vec<u64>> =
            listed.and_then(|ratios| ratios.iter().map(Value::as_u64).collect());
        let mut ratios = ratios.ok_or("field compress_ratios is no list of numbers")?;
        // What follows belongs to draft layers.
        if ratios.len() < layers {
            let given = ratios.len();
            return Err(format!("field compress_ratios has {given} entries for {layers} layers"));
        }
        ratios.truncate(layers);
        if let Some(odd) = ratios.iter().find(|ratio| ![0, 4, 128].contains(*ratio)) {
            return Err(format!("field compress_ratios holds {odd}, expected 0, 4 or 128"));
        }
        let (head_dim, rope_dim) =
            (number(fields, "head_dim")?, number(fields, "qk_rope_head_dim")?);
        if rope_dim > head_dim {
            return Err(format!("field qk_rope_head_dim is {rope_dim}, head_dim only {head_dim}"));
        }
        let index_dim = number(fields, "index_head_dim")?;
        let window = size(fields, "sliding_window")?;
        Ok(Self { head_dim, rope_dim, index_dim, window, ratios })
    }

    /// The layers whose ratio is `ratio`.
    pub(crate) fn layers(&self, ratio: u64) -> Vec<usize> {
        let numbered = self.ratios.iter().enumerate();
        numbered.filter_map(|(layer, of)| (*of == ratio).then_some(layer)).collect()
    }

    /// Bytes of a latent: numbers, and in FP8 a scale for each 64 of them.
    fn latent(&self, dtype: KvDtype) -> (u64, u64) {
        match dtype {
            KvDtype::Fp8 => {
                let plain = self.head_dim - self.rope_dim;
                // The part that carries positions stays at 16 bits. Scales are padded to 8 bytes.
                (plain + 2 * self.rope_dim, plain.div_ceil(64).next_multiple_of(8))
            }
            KvDtype::Bf16 | KvDtype::F32 => (self.head_dim * dtype.bytes(), 0),
        }
    }

    /// Bytes of an indexer's key.
    fn key(&self, dtype: KvDtype) -> u64 {
        match dtype {
            KvDtype::Fp8 => self.index_dim + 4,
            KvDtype::Bf16 | KvDtype::F32 => self.index_dim * dtype.bytes(),
        }
    }

    fn pools(&self, dtype: KvDtype, tokens: u64, drafts: bool) -> Vec<PoolSpec> {
        let (data, scales) = self.latent(dtype);
        // In FP8 a page ends at a multiple of the data of one latent.
        let unit = if scales > 0 { data } else { 1 };
        let latents = |count: u64| (count * (data + scales)).next_multiple_of(unit);
        let rings = if drafts { 2 } else { 1 };
        let all: Vec<usize> = (0..self.ratios.len()).collect();
        let (four, long) = (self.layers(4), self.layers(128));
        let part = |name, layers: &[usize], layer_bytes, host| PartSpec {
            name,
            layers: layers.to_vec(),
            layer_bytes,
            host,
            replicated: true,
        };
        // Sums and gates, of both halves that overlap, in 32 bits.
        let state = |dim: u64| rings * RING * 2 * 2 * dim * 4;
        let history = vec![
            part("deepseek_v4_c4", &four, latents(tokens / 4), true),
            part("deepseek_v4_c4_indexer", &four, tokens / 4 * self.key(dtype), true),
            part("deepseek_v4_c128", &long, latents(tokens / 128), true),
        ];
        let window = vec![
            part("swa", &all, latents(tokens), true),
            part("deepseek_v4_c4_state", &four, state(self.head_dim), true),
            part("deepseek_v4_c4_indexer_state", &four, state(self.index_dim), true),
            // Empty at the end of every page, so that it need not be kept.
            part("deepseek_v4_c128_state", &long, rings * 128 * 2 * self.head_dim * 4, false),
        ];
        let pool = |name, window, parts| PoolSpec {
            name,
            page_tokens: usize::try_from(tokens).unwrap_or(usize::MAX),
            window,
            parts,
        };
        vec![pool("kv", None, history), pool("swa", Some(self.window), window)]
    }
}

fn text(fields: &Map<String, Value>, field: &str) -> Option<String> {
    fields.get(field).and_then(Value::as_str).map(str::to_owned)
}

fn number(fields: &Map<String, Value>, field: &str) -> Result<u64, String> {
    match fields.get(field) {
        None | Some(Value::Null) => Err(format!("field {field} is missing")),
        Some(value) => value
            .as_u64()
            .filter(|number| (1..=NUMBER_MAX).contains(number))
            .ok_or_else(|| format!("field {field} is {value}, expected 1 to {NUMBER_MAX}")),
    }
}

fn size(fields: &Map<String, Value>, field: &str) -> Result<usize, String> {
    number(fields, field).map(|number| number as usize)
}
