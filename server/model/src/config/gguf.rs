//! The metadata of a GGUF file as a [`ModelConfig`].

use super::{Architecture, ConfigError, Draft, ModelConfig, RopePairs, RopeScaling};
use crate::weights::gguf::{GgufHeader, Value};

impl ModelConfig {
    /// Reads a GGUF header: its metadata, and from its tensors whether the head is tied.
    ///
    /// # Errors
    /// [`ConfigError`] names the key, its value, and what is supported.
    pub(crate) fn from_gguf(header: &GgufHeader) -> Result<Self, ConfigError> {
        let name = header.text("general.architecture")?;
        let name = name.ok_or_else(|| ConfigError::Missing("general.architecture".to_owned()))?;
        let architecture = Architecture::parse(name).ok_or_else(|| {
            ConfigError::unsupported("architecture", name, Architecture::SUPPORTED)
        })?;
        let key = |rest: &str| format!("{name}.{rest}");
        let count = |rest: &str| {
            let key = key(rest);
            header.count(&key)?.ok_or(ConfigError::Missing(key))
        };
        let scaling = key("rope.scaling.type");
        if let Some(kind) = header.text(&scaling)?
            && kind != "none"
        {
            return Err(ConfigError::unsupported(&scaling, kind, "none"));
        }
        let heads = count("attention.head_count")?;
        let config = Draft {
            architecture,
            hidden: count("embedding_length")?,
            layers: count("block_count")?,
            heads,
            kv_heads: header.count(&key("attention.head_count_kv"))?.unwrap_or(heads),
            head_dim: header.count(&key("attention.key_length"))?,
            intermediate: count("feed_forward_length")?,
            vocab: vocab(header, &key("vocab_size"))?,
            max_context: count("context_length")?,
            rms_eps: header
                .number(&key("attention.layer_norm_rms_epsilon"))?
                .ok_or_else(|| ConfigError::Missing(key("attention.layer_norm_rms_epsilon")))?,
            rope_theta: header.number(&key("rope.freq_base"))?.unwrap_or(10_000.0),
            rope_scaling: RopeScaling::Default,
            rope_pairs: match architecture {
                Architecture::Llama => RopePairs::Adjacent,
                Architecture::Qwen3 => RopePairs::HalfSplit,
            },
            tied: !header.tensors.contains_key("output.weight"),
            bos: header.count("tokenizer.ggml.bos_token_id")?,
            eos: end_tokens(header)?,
        }
        .check()?;
        for rest in ["rope.dimension_count", "attention.value_length"] {
            let key = key(rest);
            if let Some(dim) = header.count(&key)?
                && dim != config.head_dim as u64
            {
                let supported = format!("the head's {}", config.head_dim);
                return Err(ConfigError::unsupported(&key, dim, &supported));
            }
        }
        Ok(config)
    }
}

/// Some files leave the key out; the embedding and the token list say the same.
fn vocab(header: &GgufHeader, key: &str) -> Result<u64, ConfigError> {
    if let Some(vocab) = header.count(key)? {
        return Ok(vocab);
    }
    if let Some(tokens) = header.metadata.get("tokenizer.ggml.tokens").and_then(Value::strings) {
        return Ok(tokens.len() as u64);
    }
    Err(ConfigError::Missing(key.to_owned()))
}

fn end_tokens(header: &GgufHeader) -> Result<Vec<u64>, ConfigError> {
    let mut ids = Vec::new();
    for key in ["tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"] {
        if let Some(id) = header.count(key)?
            && !ids.contains(&id)
        {
            ids.push(id);
        }
    }
    Ok(ids)
}

impl GgufHeader {
    fn text(&self, key: &str) -> Result<Option<&str>, ConfigError> {
        self.read(key, "a string", Value::as_str)
    }

    fn count(&self, key: &str) -> Result<Option<u64>, ConfigError> {
        self.read(key, "a whole number", Value::as_u64)
    }

    fn number(&self, key: &str) -> Result<Option<f64>, ConfigError> {
        self.read(key, "a number", Value::as_f64)
    }

    fn read<'a, T>(
        &'a self,
        key: &str,
        expected: &str,
        convert: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, ConfigError> {
        match self.metadata.get(key) {
            None => Ok(None),
            Some(value) => match convert(value) {
                Some(converted) => Ok(Some(converted)),
                None => Err(ConfigError::invalid(key, value.describe(), expected)),
            },
        }
    }
}
