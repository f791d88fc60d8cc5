//! What `config.json` of a DeepSeek-V4 model says beyond the common fields: the flat spelling of
//! published checkpoints, and the one that lists kinds of layers.
//!
//! A field that decides about results must be there, even where only one value of it runs here.
//! Left out may be what published files leave out, and where the reference implementation has the
//! same default: `topk_method` (the listed spelling has no such field, and there is no other
//! method), `attention_bias`, `mlp_bias` and `tie_word_embeddings` (all false),
//! `num_nextn_predict_layers` (1: a block that is not used), and tokens that begin and end a text.

use serde_json::Value;

use super::super::{
    Compression, ConfigError, DeepseekV4, Indexer, MAX_DIM, MAX_LAYERS, Rope, RopeScaling, Yarn,
};
use super::{Family, Fields};

/// The ratio whose windows overlap and whose entries an indexer picks, in the flat spelling.
const SPARSE_RATIO: u64 = 4;
/// The ratio whose entries are all seen, in the flat spelling.
const HEAVY_RATIO: u64 = 128;
/// More numbers in a head than any model has.
const MAX_HEAD_DIM: u64 = 65_536;
/// The largest ratio: entries of more tokens would make pages of a whole context.
const MAX_RATIO: u64 = 4096;

/// Kinds of layers and their two ratios.
struct Layers {
    kinds: Vec<Compression>,
    sparse: u64,
    heavy: u64,
}

pub(super) fn read(config: &Fields) -> Result<Family, ConfigError> {
    refuse_what_is_not_built(config)?;
    let layers = config.within("num_hidden_layers", 1, MAX_LAYERS)?;
    let Layers { kinds, sparse, heavy } = match config.get("compress_ratios") {
        Some(ratios) => flat_layers(config, ratios, layers)?,
        None => listed_layers(config, layers)?,
    };
    let dim = |field: &str| config.within(field, 1, MAX_DIM).map(|value| value as usize);
    let number = |field: &str| config.positive_field(field);
    let heads = config.within("num_attention_heads", 1, MAX_DIM)?;
    let head_dim = config.within("head_dim", 2, MAX_HEAD_DIM)?;
    let groups = config.within("o_groups", 1, heads)?;
    if !heads.is_multiple_of(groups) {
        let expected = format!("a divisor of {heads} heads");
        return Err(ConfigError::invalid("o_groups", groups, expected));
    }
    let window = dim("sliding_window")?;
    let sparse_is_used = kinds.contains(&Compression::Sparse);
    if sparse_is_used && (window as u64) < 2 * sparse {
        let expected = format!("at least {}, two windows of the indexer", 2 * sparse);
        return Err(ConfigError::invalid("sliding_window", window, expected));
    }
    let indexer = if sparse_is_used { Some(indexer(config)?) } else { None };
    let rope_dim = rope_dim(config, head_dim)?;
    if let Some(indexer) = indexer
        && indexer.head_dim < rope_dim
    {
        let expected = format!("at least {rope_dim}, the numbers that rotate");
        return Err(ConfigError::invalid("index_head_dim", indexer.head_dim, expected));
    }
    let experts = config.within("n_routed_experts", 1, 65_536)?;
    let (compress_rope_theta, yarn) = compressed_rope(config)?;
    let model = DeepseekV4 {
        layers: kinds,
        sparse_ratio: sparse as usize,
        heavy_ratio: heavy as usize,
        window,
        rope_dim,
        compress_rope_theta,
        yarn,
        query_rank: dim("q_lora_rank")?,
        output_groups: groups as usize,
        output_rank: dim("o_lora_rank")?,
        indexer,
        experts: experts as usize,
        experts_per_token: config.within("num_experts_per_tok", 1, experts)? as usize,
        hash_layers: hash_layers(config, layers)?,
        routed_scale: number("routed_scaling_factor")? as f32,
        swiglu_limit: number("swiglu_limit")? as f32,
        streams: config.within("hc_mult", 1, 64)? as usize,
        sinkhorn_passes: config.within("hc_sinkhorn_iters", 1, 1000)? as usize,
        hyper_eps: number("hc_eps")? as f32,
    };
    Ok(Family {
        rope: Rope { theta: main_theta(config)?, scaling: RopeScaling::Default },
        sliding: None,
        attention_scalar: None,
        norm_offset: 0.0,
        head_dim: None,
        tied: false,
        deepseek_v4: Some(Box::new(model)),
    })
}

fn refuse_what_is_not_built(config: &Fields) -> Result<(), ConfigError> {
    for (field, name) in [("hidden_act", "silu"), ("scoring_func", "sqrtsoftplus")] {
        config.get(field).ok_or_else(|| ConfigError::absent(field, name))?;
        config.expect_activation(field, name)?;
    }
    config.expect_activation("topk_method", "noaux_tc")?;
    match config.optional_flag("norm_topk_prob")? {
        Some(true) => {}
        Some(false) => return Err(ConfigError::unsupported("norm_topk_prob", false, "true")),
        None => return Err(ConfigError::absent("norm_topk_prob", "true")),
    }
    if config.number("rms_norm_eps")?.is_none() {
        return Err(ConfigError::absent("rms_norm_eps", "a number from 0 to 1, usually 1e-6"));
    }
    if config.flag("tie_word_embeddings")? {
        return Err(ConfigError::unsupported("tie_word_embeddings", true, "false"));
    }
    for field in ["num_key_value_heads", "n_shared_experts"] {
        match config.optional_count(field)? {
            Some(1) => {}
            Some(count) => return Err(ConfigError::unsupported(field, count, "1")),
            None => return Err(ConfigError::absent(field, 1)),
        }
    }
    if let Some(quantization) = config.object("quantization_config")? {
        quantization.expect_activation("quant_method", "fp8")?;
        if let Some(block) = quantization.get("weight_block_size")
            && *block != serde_json::json!([128, 128])
        {
            let field = "quantization_config.weight_block_size";
            return Err(ConfigError::unsupported(field, block, "[128, 128]"));
        }
    }
    Ok(())
}

/// `compress_ratios`: one number per layer; those of blocks that predict further tokens may follow.
fn flat_layers(config: &Fields, ratios: &Value, layers: u64) -> Result<Layers, ConfigError> {
    let field = "compress_ratios";
    let allowed = format!("0, {SPARSE_RATIO} or {HEAVY_RATIO}");
    let Some(list) = ratios.as_array() else {
        return Err(ConfigError::invalid(field, ratios, format!("a list of {allowed}")));
    };
    let more = config.optional_count("num_nextn_predict_layers")?.unwrap_or(1);
    let most = layers.saturating_add(more);
    if !(layers..=most).contains(&(list.len() as u64)) {
        let expected = if more == 0 {
            format!("{layers} numbers, one per layer")
        } else {
            let blocks = "with the blocks of num_nextn_predict_layers";
            format!("{layers} numbers, one per layer, or {most} {blocks}")
        };
        return Err(ConfigError::invalid(field, format!("{} numbers", list.len()), expected));
    }
    let kind = |(layer, ratio): (usize, &Value)| match ratio.as_u64() {
        Some(0) => Ok(Compression::None),
        Some(SPARSE_RATIO) => Ok(Compression::Sparse),
        Some(HEAVY_RATIO) => Ok(Compression::Heavy),
        Some(_) | None => Err(ConfigError::invalid(&format!("{field}[{layer}]"), ratio, &allowed)),
    };
    let kinds = list.iter().enumerate().map(kind).collect::<Result<Vec<_>, _>>()?;
    let kinds = kinds[..layers as usize].to_vec();
    Ok(Layers { kinds, sparse: SPARSE_RATIO, heavy: HEAVY_RATIO })
}

/// `layer_types` and `compress_rates`.
fn listed_layers(config: &Fields, layers: u64) -> Result<Layers, ConfigError> {
    const SPARSE: &str = "compressed_sparse_attention";
    const HEAVY: &str = "heavily_compressed_attention";
    let Some(types) = config.get("layer_types") else {
        return Err(ConfigError::Missing("compress_ratios".to_owned()));
    };
    let kind = |kind: &Value| match kind.as_str() {
        Some("sliding_attention") => Ok(Compression::None),
        Some(SPARSE) => Ok(Compression::Sparse),
        Some(HEAVY) => Ok(Compression::Heavy),
        _ => {
            let supported = format!("sliding_attention, {SPARSE}, {HEAVY}");
            Err(ConfigError::unsupported("layer_types", kind, &supported))
        }
    };
    let list = types.as_array();
    let list = list.ok_or_else(|| ConfigError::invalid("layer_types", types, "a list"))?;
    if list.len() as u64 != layers {
        let expected = format!("{layers}, as many as layers");
        return Err(ConfigError::invalid("layer_types' length", list.len(), expected));
    }
    let kinds = list.iter().map(kind).collect::<Result<Vec<_>, _>>()?;
    let rates = config.object("compress_rates")?;
    let rate = |name: &str, used: bool, usual: u64| match &rates {
        Some(rates) if used => rates.within(name, 2, MAX_RATIO - 1),
        None if used => Err(ConfigError::Missing("compress_rates".to_owned())),
        Some(_) | None => Ok(usual),
    };
    let sparse = rate(SPARSE, kinds.contains(&Compression::Sparse), SPARSE_RATIO)?;
    let heavy = rate(HEAVY, kinds.contains(&Compression::Heavy), HEAVY_RATIO)?;
    Ok(Layers { kinds, sparse, heavy })
}

fn indexer(config: &Fields) -> Result<Indexer, ConfigError> {
    let dim = |field: &str| config.within(field, 1, MAX_DIM).map(|value| value as usize);
    Ok(Indexer {
        heads: dim("index_n_heads")?,
        head_dim: dim("index_head_dim")?,
        top: dim("index_topk")?,
    })
}

fn rope_dim(config: &Fields, head_dim: u64) -> Result<usize, ConfigError> {
    let field = "qk_rope_head_dim";
    let dim = match config.optional_count(field)? {
        Some(dim) => dim,
        None => match config.number("partial_rotary_factor")? {
            Some(part) => (part * head_dim as f64) as u64,
            None => return Err(ConfigError::Missing(field.to_owned())),
        },
    };
    if dim == 0 || dim > head_dim || !dim.is_multiple_of(2) {
        let expected = format!("an even number, 2 to {head_dim}");
        return Err(ConfigError::invalid(field, dim, expected));
    }
    Ok(dim as usize)
}

fn hash_layers(config: &Fields, layers: u64) -> Result<usize, ConfigError> {
    if config.get("num_hash_layers").is_some() {
        return Ok(config.within("num_hash_layers", 0, layers)? as usize);
    }
    let field = "mlp_layer_types";
    let Some(Value::Array(kinds)) = config.get(field) else {
        let expected = format!("0 to {layers}");
        return Err(ConfigError::absent("num_hash_layers", expected));
    };
    if kinds.len() as u64 != layers {
        let expected = format!("{layers}, as many as layers");
        return Err(ConfigError::invalid("mlp_layer_types' length", kinds.len(), expected));
    }
    let hash = |kind: &&Value| kind.as_str() == Some("hash_moe");
    let count = kinds.iter().take_while(hash).count();
    if let Some(kind) = kinds[count..].iter().find(|kind| kind.as_str() != Some("moe")) {
        let supported = "hash_moe for the first layers, moe for the others";
        return Err(ConfigError::unsupported(field, kind, supported));
    }
    Ok(count)
}

/// Base of layers without compression.
fn main_theta(config: &Fields) -> Result<f64, ConfigError> {
    if let Some(parameters) = config.object("rope_parameters")?
        && let Some(main) = parameters.object("main")?
    {
        return main.positive("rope_parameters.main", "rope_theta");
    }
    config.positive_field("rope_theta")
}

/// Base and scaling of layers with compression.
fn compressed_rope(config: &Fields) -> Result<(f64, Option<Yarn>), ConfigError> {
    let (name, parameters, theta) = match config.object("rope_parameters")? {
        Some(parameters) if parameters.get("compress").is_some() => {
            let name = "rope_parameters.compress";
            let compress = parameters.object("compress")?.unwrap_or(parameters);
            let theta = compress.positive(name, "rope_theta")?;
            (name, Some(compress), theta)
        }
        Some(parameters) => {
            let theta = config.positive_field("compress_rope_theta")?;
            ("rope_parameters", Some(parameters), theta)
        }
        None => {
            let field = "rope_scaling";
            // `null` says that there is none; nothing at all is a mistake.
            if !config.0.contains_key(field) {
                let expected = "an object of type yarn or default, or null";
                return Err(ConfigError::absent(field, expected));
            }
            let theta = config.positive_field("compress_rope_theta")?;
            (field, config.object(field)?, theta)
        }
    };
    if theta <= 1.0 {
        return Err(ConfigError::invalid("compress_rope_theta", theta, "above 1"));
    }
    let Some(parameters) = parameters else { return Ok((theta, None)) };
    let kind = parameters.get("rope_type").or_else(|| parameters.get("type"));
    match kind.map(|kind| (kind, kind.as_str())) {
        Some((_, Some("default"))) => Ok((theta, None)),
        Some((_, Some("yarn"))) => {
            let read = |field: &str| parameters.positive(name, field);
            let (beta_fast, beta_slow) = (read("beta_fast")?, read("beta_slow")?);
            let original_context = read("original_max_position_embeddings")?;
            let factor = read("factor")?;
            Ok((theta, Some(Yarn { factor, original_context, beta_fast, beta_slow })))
        }
        Some((kind, _)) => Err(ConfigError::unsupported("rope type", kind, "default, yarn")),
        None => Err(ConfigError::Missing(format!("{name}.type"))),
    }
}

impl Fields {
    /// A whole number that must be there, from `least` to `most`.
    fn within(&self, field: &str, least: u64, most: u64) -> Result<u64, ConfigError> {
        let value = self.count(field)?;
        if (least..=most).contains(&value) {
            return Ok(value);
        }
        Err(ConfigError::invalid(field, value, format!("{least} to {most}")))
    }

    /// A number above 0 that must be there.
    fn positive_field(&self, field: &str) -> Result<f64, ConfigError> {
        match self.number(field)? {
            Some(value) if value > 0.0 && value.is_finite() => Ok(value),
            Some(value) => Err(ConfigError::invalid(field, value, "a positive number")),
            None => Err(ConfigError::Missing(field.to_owned())),
        }
    }
}
