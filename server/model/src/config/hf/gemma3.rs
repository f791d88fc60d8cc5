//! What `config.json` of a Gemma 3 text model says beyond the common fields.
//!
//! Defaults are those of the program that wrote the published files, which leave some fields out.

use serde_json::Value;

use super::super::{ConfigError, Rope, RopeScaling, SlidingDraft, SlidingLayers};
use super::{Family, Fields};

const GLOBAL: &str = "full_attention";
const LOCAL: &str = "sliding_attention";
const GLOBAL_THETA: f64 = 1_000_000.0;
const LOCAL_THETA: f64 = 10_000.0;
/// The size of a head, and the number whose root divides the scores.
const HEAD_DIM: u64 = 256;
const WINDOW: u64 = 4096;
const PATTERN: u64 = 6;

pub(super) fn read(config: &Fields) -> Result<Family, ConfigError> {
    refuse_what_is_not_built(config)?;
    let [global, local] = ropes(config)?;
    let layers = match config.get("layer_types") {
        Some(kinds) => SlidingLayers::Listed(listed(kinds)?),
        None => SlidingLayers::AllBut(pattern(config)?),
    };
    let window = config.optional_count("sliding_window")?.unwrap_or(WINDOW);
    let scalar = config.number("query_pre_attn_scalar")?.unwrap_or(HEAD_DIM as f64);
    Ok(Family {
        rope: global,
        sliding: Some(SlidingDraft { window, layers, rope: local }),
        attention_scalar: Some(scalar),
        norm_offset: 1.0,
        head_dim: Some(HEAD_DIM),
        tied: true,
        deepseek_v4: None,
    })
}

fn refuse_what_is_not_built(config: &Fields) -> Result<(), ConfigError> {
    config.expect_activation("hidden_activation", "gelu_pytorch_tanh")?;
    for field in ["final_logit_softcapping", "attn_logit_softcapping"] {
        if let Some(cap) = config.get(field) {
            return Err(ConfigError::unsupported(field, cap, "null"));
        }
    }
    if config.flag("use_bidirectional_attention")? {
        return Err(ConfigError::unsupported("use_bidirectional_attention", true, "false"));
    }
    Ok(())
}

/// Which of the listed layers see a window.
fn listed(kinds: &Value) -> Result<Vec<bool>, ConfigError> {
    let kind = |kind: &Value| match kind.as_str() {
        Some(GLOBAL) => Ok(false),
        Some(LOCAL) => Ok(true),
        _ => Err(ConfigError::unsupported("layer_types", kind, &format!("{GLOBAL}, {LOCAL}"))),
    };
    match kinds.as_array() {
        Some(kinds) => kinds.iter().map(kind).collect(),
        None => Err(ConfigError::invalid("layer_types", kinds, "a list")),
    }
}

/// Every so many-th layer sees everything.
fn pattern(config: &Fields) -> Result<u64, ConfigError> {
    for field in ["sliding_window_pattern", "_sliding_window_pattern"] {
        if let Some(period) = config.optional_count(field)? {
            return Ok(period);
        }
    }
    Ok(PATTERN)
}

/// The rotary parameters of layers that see everything, and of those that see a window: one object
/// for each, or the older spelling, which scales only the former.
fn ropes(config: &Fields) -> Result<[Rope; 2], ConfigError> {
    let Some(parameters) = config.object("rope_parameters")? else {
        let scaling = match config.object("rope_scaling")? {
            Some(parameters) => Rope::of("rope_scaling", &parameters, config)?.scaling,
            None => RopeScaling::Default,
        };
        let theta = config.number("rope_theta")?.unwrap_or(GLOBAL_THETA);
        let local = config.number("rope_local_base_freq")?.unwrap_or(LOCAL_THETA);
        let unscaled = RopeScaling::Default;
        return Ok([Rope { theta, scaling }, Rope { theta: local, scaling: unscaled }]);
    };
    let read = |kind: &str, default: f64| {
        let name = format!("rope_parameters.{kind}");
        let Some(parameters) = parameters.object(kind)? else {
            return Err(ConfigError::Missing(name));
        };
        let theta = parameters.number("rope_theta")?.unwrap_or(default);
        Ok(Rope { theta, ..Rope::of(&name, &parameters, config)? })
    };
    Ok([read(GLOBAL, GLOBAL_THETA)?, read(LOCAL, LOCAL_THETA)?])
}
