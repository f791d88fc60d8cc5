//! Both spellings of the rotary parameters, and a clear error for everything that is not built.

use serde_json::{Value, json};

use super::*;

fn base() -> Value {
    json!({
        "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96,
        "vocab_size": 100, "max_position_embeddings": 512, "rms_norm_eps": 1e-5,
        "bos_token_id": 1, "eos_token_id": 2,
    })
}

fn with(changes: Value) -> Result<ModelConfig, ConfigError> {
    let mut config = base();
    let fields = config.as_object_mut().unwrap();
    for (key, value) in changes.as_object().unwrap() {
        fields.insert(key.clone(), value.clone());
    }
    ModelConfig::from_hf(config.to_string().as_bytes(), None)
}

const LLAMA3: RopeScaling = RopeScaling::Llama3 {
    factor: 8.0,
    low_freq_factor: 1.0,
    high_freq_factor: 4.0,
    original_context: 64.0,
};

#[test]
fn old_and_new_rope_spellings_agree() {
    let old = with(json!({"rope_theta": 5e5, "rope_scaling": {
        "type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64}}))
    .unwrap();
    let new = with(json!({"rope_parameters": {
        "rope_theta": 5e5, "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 64}}))
    .unwrap();
    assert_eq!(old, new);
    assert_eq!((new.rope_theta, new.rope_scaling), (5e5, LLAMA3));
    let plain = with(json!({"rope_theta": 7.0, "rope_scaling": null})).unwrap();
    assert_eq!((plain.rope_theta, plain.rope_scaling), (7.0, RopeScaling::Default));
    let plain = with(json!({"rope_parameters": {"rope_theta": 7.0}})).unwrap();
    assert_eq!((plain.rope_theta, plain.rope_scaling), (7.0, RopeScaling::Default));
    assert_eq!(with(json!({})).unwrap().rope_theta, 10_000.0);
}

#[test]
fn defaults_are_filled_in() {
    let config = with(json!({"num_key_value_heads": null, "eos_token_id": [3, 4]})).unwrap();
    assert_eq!((config.kv_heads, config.head_dim, config.tied), (4, 16, false));
    assert_eq!(config.eos, [TokenId(3), TokenId(4)]);
    assert_eq!(config.bos, Some(TokenId(1)));
    let text = base().to_string();
    let generation = br#"{"eos_token_id": [2, 9]}"#;
    let config = ModelConfig::from_hf(text.as_bytes(), Some(generation)).unwrap();
    assert_eq!(config.eos, [TokenId(2), TokenId(9)]);
    let qwen = with(json!({"architectures": ["Qwen3ForCausalLM"], "head_dim": 32})).unwrap();
    assert_eq!((qwen.architecture, qwen.head_dim), (Architecture::Qwen3, 32));
    let by_type = with(json!({"architectures": [], "model_type": "qwen3"})).unwrap();
    assert_eq!(by_type.architecture, Architecture::Qwen3);
}

#[test]
fn what_is_not_built_is_refused_by_name() {
    let check = |changes: Value, expect: &str| {
        let error = with(changes).unwrap_err().to_string();
        assert_eq!(error, expect);
    };
    let supported = "is not supported; supported:";
    check(
        json!({"architectures": ["MixtralForCausalLM"]}),
        &format!(
            "architecture \"MixtralForCausalLM\" {supported} LlamaForCausalLM, Qwen3ForCausalLM"
        ),
    );
    check(
        json!({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}),
        &format!("rope type \"yarn\" {supported} default, llama3"),
    );
    check(
        json!({"rope_parameters": {"full_attention": {"rope_type": "default"}}}),
        "field rope_parameters.rope_type is missing",
    );
    check(json!({"attention_bias": true}), &format!("attention_bias true {supported} false"));
    check(json!({"hidden_act": "gelu"}), &format!("hidden_act \"gelu\" {supported} silu"));
    check(
        json!({"layer_types": ["full_attention", "sliding_attention"]}),
        &format!("layer_types \"sliding_attention\" {supported} full_attention"),
    );
    check(
        json!({"quantization_config": {"quant_method": "gptq"}}),
        &format!(
            "quantization_config \"gptq\" {supported} f32, f16 or bf16 weights, or a GGUF file"
        ),
    );
}

#[test]
fn impossible_values_are_refused_by_name() {
    let check = |changes: Value, expect: &str| {
        let error = with(changes).unwrap_err().to_string();
        assert!(error.contains(expect), "{error}");
    };
    check(json!({"hidden_size": null}), "field hidden_size is missing");
    check(json!({"hidden_size": 0}), "field hidden_size is 0, expected 1 to 16777216");
    check(json!({"vocab_size": u64::MAX}), "field vocab_size is 18446744073709551615");
    check(json!({"vocab_size": -1}), "field vocab_size is -1, expected a whole number");
    check(json!({"num_hidden_layers": 1_000_000}), "num_hidden_layers is 1000000");
    check(json!({"num_key_value_heads": 3}), "expected a divisor of 4 query heads");
    check(json!({"head_dim": 15}), "head_dim is 15, expected an even number");
    check(json!({"num_attention_heads": 6, "num_key_value_heads": 6}), "head_dim is missing");
    check(json!({"rms_norm_eps": "x"}), "field rms_norm_eps is \"x\", expected a number");
    check(json!({"rms_norm_eps": -1}), "field rms_norm_eps is -1");
    check(json!({"rope_theta": 0}), "field rope_theta is 0");
    check(json!({"eos_token_id": 100}), "eos_token_id is 100, expected below 100 tokens");
    check(json!({"eos_token_id": ["a"]}), "expected a token id or a list");
    check(json!({"tie_word_embeddings": 1}), "expected true or false");
    let llama3 = json!({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 4.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 64});
    check(json!({"rope_scaling": llama3}), "high_freq_factor is 4, expected above");
    let short = json!({"rope_type": "llama3", "low_freq_factor": 1, "high_freq_factor": 4,
        "original_max_position_embeddings": 64});
    check(json!({"rope_scaling": short}), "field rope_scaling.factor is missing");
    let error = ModelConfig::from_hf(b"[1]", None).unwrap_err().to_string();
    assert!(error.contains("not a JSON object"), "{error}");
    let long = "x".repeat(500);
    let error = with(json!({"hidden_act": long})).unwrap_err().to_string();
    assert!(error.len() < 200, "{error}");
}
