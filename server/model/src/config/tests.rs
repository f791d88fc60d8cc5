//! Both spellings of the rotary parameters, and a clear error for everything that is not built.

use serde_json::{Value, json};

use super::*;

mod deepseek_v4;

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
            "architecture \"MixtralForCausalLM\" {supported} LlamaForCausalLM, Qwen3ForCausalLM, \
             Gemma3ForCausalLM, DeepseekV4ForCausalLM"
        ),
    );
    check(
        json!({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}),
        &format!("rope type \"yarn\" {supported} default, linear, llama3"),
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

fn gemma(changes: Value) -> Result<ModelConfig, ConfigError> {
    let mut config = json!({
        "architectures": ["Gemma3ForCausalLM"], "hidden_size": 64, "num_hidden_layers": 4,
        "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96,
        "vocab_size": 100, "max_position_embeddings": 512, "head_dim": 32, "sliding_window": 20,
        "query_pre_attn_scalar": 16, "sliding_window_pattern": 2,
    });
    let fields = config.as_object_mut().unwrap();
    for (key, value) in changes.as_object().unwrap() {
        fields.insert(key.clone(), value.clone());
    }
    ModelConfig::from_hf(config.to_string().as_bytes(), None)
}

#[test]
fn gemma_defaults_are_filled_in() {
    let config = gemma(json!({})).unwrap();
    assert_eq!((config.architecture, config.tied), (Architecture::Gemma3, true));
    assert_eq!((config.attention_scale, config.embedding_scale), (0.25, Some(8.0)));
    assert_eq!((config.norm_offset, config.rope_theta), (1.0, 1e6));
    let expect = Sliding {
        window: 20,
        layers: vec![true, false, true, false],
        rope_theta: 1e4,
        rope_scaling: RopeScaling::Default,
    };
    assert_eq!(config.sliding, Some(expect));
    let bare = gemma(json!({"head_dim": null, "query_pre_attn_scalar": null,
        "sliding_window": null, "sliding_window_pattern": null, "num_hidden_layers": 7}));
    let bare = bare.unwrap();
    let sliding = bare.sliding.unwrap();
    assert_eq!((bare.head_dim, bare.attention_scale, sliding.window), (256, 0.0625, 4096));
    assert_eq!(sliding.layers, [true, true, true, true, true, false, true]);
    let untied = gemma(json!({"tie_word_embeddings": false})).unwrap();
    assert!(!untied.tied);
    let kinds = json!(["full_attention", "sliding_attention", "full_attention", "full_attention"]);
    let listed = gemma(json!({"layer_types": kinds})).unwrap().sliding.unwrap();
    assert_eq!(listed.layers, [false, true, false, false]);
    let full = gemma(json!({"sliding_window_pattern": 1, "sliding_window": 0})).unwrap();
    assert_eq!(full.sliding, None);
}

#[test]
fn both_spellings_of_gemma_ropes_agree() {
    let old = gemma(json!({"rope_theta": 5e5, "rope_local_base_freq": 7e3,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0}}))
    .unwrap();
    let new = gemma(json!({"rope_parameters": {
        "full_attention": {"rope_theta": 5e5, "rope_type": "linear", "factor": 8.0},
        "sliding_attention": {"rope_theta": 7e3, "rope_type": "default"}}}))
    .unwrap();
    assert_eq!(old, new);
    assert_eq!((old.rope_theta, old.rope_scaling), (5e5, RopeScaling::Linear { factor: 8.0 }));
    let sliding = old.sliding.unwrap();
    assert_eq!((sliding.rope_theta, sliding.rope_scaling), (7e3, RopeScaling::Default));
}

#[test]
fn what_is_not_built_of_gemma_is_refused_by_name() {
    let check = |changes: Value, expect: &str| {
        let error = gemma(changes).unwrap_err().to_string();
        assert!(error.contains(expect), "{error}");
    };
    check(json!({"final_logit_softcapping": 30.0}), "final_logit_softcapping 30.0 is not support");
    check(json!({"attn_logit_softcapping": 50.0}), "attn_logit_softcapping 50.0 is not supported");
    check(json!({"use_bidirectional_attention": true}), "use_bidirectional_attention true is not");
    check(json!({"hidden_activation": "silu"}), "supported: gelu_pytorch_tanh");
    check(json!({"layer_types": ["full_attention"]}), "layer_types' length is 1, expected 4");
    check(json!({"layer_types": ["chunked"]}), "layer_types \"chunked\" is not supported");
    check(json!({"layer_types": "x"}), "layer_types is \"x\", expected a list");
    check(json!({"layer_types": vec!["sliding_attention"; 4]}), "one full_a");
    check(json!({"sliding_window": 0}), "sliding_window is 0, expected 1 to");
    check(json!({"sliding_window_pattern": 0}), "sliding_window_pattern is 0");
    check(json!({"num_hidden_layers": u64::MAX}), "num_hidden_layers is 18446744073709551615");
    check(json!({"query_pre_attn_scalar": -1}), "query_pre_attn_scalar is -1");
    check(json!({"rope_local_base_freq": 0.0}), "rope_theta is 0");
    check(json!({"rope_parameters": {}}), "rope_parameters.full_attention is missing");
    check(
        json!({"architectures": ["Gemma3ForConditionalGeneration"]}),
        "architecture \"Gemma3ForConditionalGeneration\" is not supported",
    );
    let image = json!({"architectures": null, "model_type": "gemma3"});
    check(image, "architecture gemma3 is not supported");
    let text = json!({"architectures": null, "model_type": "gemma3_text"});
    assert!(gemma(text).is_ok());
}
