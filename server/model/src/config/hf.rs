//! `config.json` of a Hugging Face folder: the old spelling (`rope_theta` and `rope_scaling`) and
//! the new one (`rope_parameters`).

mod deepseek_v4;
mod gemma3;

use serde_json::{Map, Value};

use super::{
    Architecture, ConfigError, DeepseekV4, Draft, ModelConfig, Rope, RopePairs, RopeScaling,
    SlidingDraft,
};

const ARCHITECTURES: &str =
    "LlamaForCausalLM, Qwen3ForCausalLM, Gemma3ForCausalLM, DeepseekV4ForCausalLM";
const ROPE_TYPES: &str = "default, linear, llama3";

impl ModelConfig {
    /// Reads `config.json`, and `generation_config.json` where there is one (for more end tokens).
    ///
    /// # Errors
    /// [`ConfigError`] names the field, its value, and what is supported.
    pub fn from_hf(config: &[u8], generation: Option<&[u8]>) -> Result<Self, ConfigError> {
        let config = Fields::parse(config)?;
        let architecture = architecture(&config)?;
        refuse_what_is_not_built(&config, architecture)?;
        let family = match architecture {
            Architecture::Llama | Architecture::Qwen3 => Family::plain(&config)?,
            Architecture::Gemma3 => gemma3::read(&config)?,
            Architecture::DeepseekV4 => deepseek_v4::read(&config)?,
        };
        let heads = config.count("num_attention_heads")?;
        let mut eos = config.ids("eos_token_id")?;
        if let Some(generation) = generation {
            for id in Fields::parse(generation)?.ids("eos_token_id")? {
                if !eos.contains(&id) {
                    eos.push(id);
                }
            }
        }
        Draft {
            architecture,
            hidden: config.count("hidden_size")?,
            layers: config.count("num_hidden_layers")?,
            heads,
            kv_heads: match architecture {
                Architecture::DeepseekV4 => 1,
                Architecture::Llama | Architecture::Qwen3 | Architecture::Gemma3 => {
                    config.optional_count("num_key_value_heads")?.unwrap_or(heads)
                }
            },
            head_dim: config.optional_count("head_dim")?.or(family.head_dim),
            intermediate: config.count(architecture.intermediate_field())?,
            vocab: config.count("vocab_size")?,
            max_context: config.count("max_position_embeddings")?,
            rms_eps: config.number("rms_norm_eps")?.unwrap_or(1e-6),
            attention_scalar: family.attention_scalar,
            norm_offset: family.norm_offset,
            rope: family.rope,
            sliding: family.sliding,
            rope_pairs: match architecture {
                Architecture::DeepseekV4 => RopePairs::Adjacent,
                Architecture::Llama | Architecture::Qwen3 | Architecture::Gemma3 => {
                    RopePairs::HalfSplit
                }
            },
            tied: config.optional_flag("tie_word_embeddings")?.unwrap_or(family.tied),
            bos: config.ids("bos_token_id")?.first().copied(),
            eos,
            deepseek_v4: family.deepseek_v4,
        }
        .check()
    }
}

/// What differs between families.
struct Family {
    rope: Rope,
    sliding: Option<SlidingDraft>,
    attention_scalar: Option<f64>,
    norm_offset: f32,
    /// The head's size where the file does not say, if that is not the usual quotient.
    head_dim: Option<u64>,
    /// Whether the head is the embedding where the file does not say.
    tied: bool,
    deepseek_v4: Option<Box<DeepseekV4>>,
}

impl Family {
    /// Llama and what differs from it only in its tensors.
    fn plain(config: &Fields) -> Result<Self, ConfigError> {
        refuse_windows(config)?;
        config.expect_activation("hidden_act", "silu")?;
        Ok(Self {
            rope: Rope::read(config)?,
            sliding: None,
            attention_scalar: None,
            norm_offset: 0.0,
            head_dim: None,
            tied: false,
            deepseek_v4: None,
        })
    }
}

fn architecture(config: &Fields) -> Result<Architecture, ConfigError> {
    let field = "architecture";
    if let Some(Value::Array(names)) = config.get("architectures")
        && let Some(name) = names.first()
    {
        return match name.as_str() {
            Some("LlamaForCausalLM") => Ok(Architecture::Llama),
            Some("Qwen3ForCausalLM") => Ok(Architecture::Qwen3),
            Some("Gemma3ForCausalLM") => Ok(Architecture::Gemma3),
            Some("DeepseekV4ForCausalLM") => Ok(Architecture::DeepseekV4),
            _ => Err(ConfigError::unsupported(field, name, ARCHITECTURES)),
        };
    }
    let name = config.get("model_type").and_then(Value::as_str);
    let name = name.ok_or_else(|| ConfigError::Missing("architectures".to_owned()))?;
    match name {
        "llama" => Ok(Architecture::Llama),
        "qwen3" => Ok(Architecture::Qwen3),
        // `gemma3` is the model that also sees images.
        "gemma3_text" => Ok(Architecture::Gemma3),
        "deepseek_v4" => Ok(Architecture::DeepseekV4),
        _ => Err(ConfigError::unsupported(field, name, ARCHITECTURES)),
    }
}

/// Features that would silently change the answers if they were ignored.
fn refuse_what_is_not_built(
    config: &Fields,
    architecture: Architecture,
) -> Result<(), ConfigError> {
    for field in ["attention_bias", "mlp_bias", "use_sliding_window"] {
        if config.flag(field)? {
            return Err(ConfigError::unsupported(field, true, "false"));
        }
    }
    if architecture != Architecture::DeepseekV4
        && let Some(quantization) = config.get("quantization_config")
    {
        let method = quantization.get("quant_method").unwrap_or(quantization);
        let supported = "f32, f16 or bf16 weights, or a GGUF file";
        return Err(ConfigError::unsupported("quantization_config", method, supported));
    }
    Ok(())
}

/// Refuses layers that see a window, where the family has none.
fn refuse_windows(config: &Fields) -> Result<(), ConfigError> {
    if let Some(Value::Array(kinds)) = config.get("layer_types")
        && let Some(kind) = kinds.iter().find(|kind| kind.as_str() != Some("full_attention"))
    {
        return Err(ConfigError::unsupported("layer_types", kind, "full_attention"));
    }
    Ok(())
}

impl Rope {
    fn read(config: &Fields) -> Result<Self, ConfigError> {
        let (name, parameters) = match config.object("rope_parameters")? {
            Some(parameters) => ("rope_parameters", Some(parameters)),
            None => ("rope_scaling", config.object("rope_scaling")?),
        };
        let outer_theta = config.number("rope_theta")?;
        let Some(parameters) = parameters else {
            let theta = outer_theta.unwrap_or(10_000.0);
            return Ok(Self { theta, scaling: RopeScaling::Default });
        };
        let mut rope = Self::of(name, &parameters, config)?;
        let theta = parameters.number("rope_theta")?.or(outer_theta);
        rope.theta = theta.unwrap_or(rope.theta);
        Ok(rope)
    }

    /// What the object `parameters`, called `name`, says; base 10,000 where it names none.
    fn of(name: &str, parameters: &Fields, config: &Fields) -> Result<Self, ConfigError> {
        let theta = parameters.number("rope_theta")?.unwrap_or(10_000.0);
        // Two spellings of the kind are in use, `type` being the older.
        let kind = parameters.get("rope_type").or_else(|| parameters.get("type"));
        let scaling = match kind.map(|kind| (kind, kind.as_str())) {
            None if parameters.0.keys().all(|key| key == "rope_theta") => RopeScaling::Default,
            None => return Err(ConfigError::Missing(format!("{name}.rope_type"))),
            Some((_, Some("default"))) => RopeScaling::Default,
            Some((_, Some("linear"))) => {
                RopeScaling::Linear { factor: parameters.positive(name, "factor")? }
            }
            Some((_, Some("llama3"))) => Self::llama3(name, parameters, config)?,
            Some((kind, _)) => {
                return Err(ConfigError::unsupported("rope type", kind, ROPE_TYPES));
            }
        };
        Ok(Self { theta, scaling })
    }

    fn llama3(name: &str, from: &Fields, config: &Fields) -> Result<RopeScaling, ConfigError> {
        let original = "original_max_position_embeddings";
        let holder = if from.get(original).is_some() { from } else { config };
        let read = |field: &str| from.positive(name, field);
        let (low, high) = (read("low_freq_factor")?, read("high_freq_factor")?);
        if high <= low {
            let field = format!("{name}.high_freq_factor");
            let expected = format!("above low_freq_factor {low}");
            return Err(ConfigError::invalid(&field, high, expected));
        }
        Ok(RopeScaling::Llama3 {
            factor: read("factor")?,
            low_freq_factor: low,
            high_freq_factor: high,
            original_context: holder.positive(name, original)?,
        })
    }
}

/// A JSON object read field by field; `null` counts as absent.
struct Fields(Map<String, Value>);

impl Fields {
    fn parse(text: &[u8]) -> Result<Self, ConfigError> {
        serde_json::from_slice(text).map(Self).map_err(|e| ConfigError::Json(e.to_string()))
    }

    fn get(&self, field: &str) -> Option<&Value> {
        self.0.get(field).filter(|value| !value.is_null())
    }

    fn object(&self, field: &str) -> Result<Option<Self>, ConfigError> {
        match self.get(field) {
            None => Ok(None),
            Some(Value::Object(fields)) => Ok(Some(Self(fields.clone()))),
            Some(other) => Err(ConfigError::invalid(field, other, "an object")),
        }
    }

    fn optional_count(&self, field: &str) -> Result<Option<u64>, ConfigError> {
        match self.get(field) {
            None => Ok(None),
            Some(value) => match value.as_u64() {
                Some(count) => Ok(Some(count)),
                None => Err(ConfigError::invalid(field, value, "a whole number")),
            },
        }
    }

    fn count(&self, field: &str) -> Result<u64, ConfigError> {
        self.optional_count(field)?.ok_or_else(|| ConfigError::Missing(field.to_owned()))
    }

    fn number(&self, field: &str) -> Result<Option<f64>, ConfigError> {
        match self.get(field) {
            None => Ok(None),
            Some(value) => match value.as_f64() {
                Some(number) => Ok(Some(number)),
                None => Err(ConfigError::invalid(field, value, "a number")),
            },
        }
    }

    /// A number above 0 that must be there; `object` is what errors call this object.
    fn positive(&self, object: &str, field: &str) -> Result<f64, ConfigError> {
        let path = format!("{object}.{field}");
        match self.number(field)? {
            Some(value) if value > 0.0 && value.is_finite() => Ok(value),
            Some(value) => Err(ConfigError::invalid(&path, value, "a positive number")),
            None => Err(ConfigError::Missing(path)),
        }
    }

    fn flag(&self, field: &str) -> Result<bool, ConfigError> {
        Ok(self.optional_flag(field)?.unwrap_or(false))
    }

    fn optional_flag(&self, field: &str) -> Result<Option<bool>, ConfigError> {
        match self.get(field) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(other) => Err(ConfigError::invalid(field, other, "true or false")),
        }
    }

    /// Refuses another activation than the family's.
    fn expect_activation(&self, field: &str, name: &str) -> Result<(), ConfigError> {
        match self.get(field) {
            Some(found) if found.as_str() != Some(name) => {
                Err(ConfigError::unsupported(field, found, name))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// One token id, a list of them, or nothing.
    fn ids(&self, field: &str) -> Result<Vec<u64>, ConfigError> {
        let Some(value) = self.get(field) else { return Ok(Vec::new()) };
        let ids = match value.as_array() {
            Some(values) => values.iter().map(Value::as_u64).collect(),
            None => value.as_u64().map(|id| vec![id]),
        };
        ids.ok_or_else(|| ConfigError::invalid(field, value, "a token id or a list of them"))
    }
}
