//! DeepSeek-V4: every field that decides about results is there and in range, or named.

use serde_json::{Value, json};

use super::super::*;

const FLAT: &[u8] =
    include_bytes!("../../../../../tests/fixtures/models/tiny-deepseek-v4/config.json");
const LISTED: &[u8] = include_bytes!(
    "../../../../../tests/fixtures/models/tiny-deepseek-v4/config.transformers-style.json"
);

/// The tiny model with changes; `null` takes a field away.
fn with(text: &[u8], changes: &Value) -> Result<ModelConfig, ConfigError> {
    let mut config: Value = serde_json::from_slice(text).unwrap();
    let fields = config.as_object_mut().unwrap();
    for (key, value) in changes.as_object().unwrap() {
        if value.is_null() {
            fields.remove(key);
        } else {
            fields.insert(key.clone(), value.clone());
        }
    }
    ModelConfig::from_hf(config.to_string().as_bytes(), None)
}

fn flat(changes: &Value) -> Result<ModelConfig, ConfigError> {
    with(FLAT, changes)
}

fn check(found: Result<ModelConfig, ConfigError>, expect: &str) {
    let shown = found.expect_err(expect).to_string();
    assert!(shown.contains(expect), "{shown}; expected {expect}");
}

#[test]
fn both_spellings_agree() {
    let listed = with(LISTED, &json!({})).unwrap();
    assert_eq!(listed, flat(&json!({})).unwrap());
    let v4 = listed.deepseek_v4.expect("it is one");
    assert_eq!((v4.sparse_ratio, v4.heavy_ratio, v4.hash_layers), (4, 128, 2));
    assert_eq!(v4.layers_with(Compression::Sparse), [1, 3]);
    assert_eq!(v4.page_multiple(), 128);
    // The rotary parameters under their new name, for all layers in one.
    let scaling = json!({"rope_type": "yarn", "factor": 4, "beta_fast": 32, "beta_slow": 1,
        "original_max_position_embeddings": 256});
    let renamed = flat(&json!({"rope_scaling": null, "rope_parameters": scaling}));
    assert_eq!(renamed, flat(&json!({})));
}

#[test]
fn the_published_configuration_is_read() {
    let text =
        include_bytes!("../../../../../tests/fixtures/configs/deepseek-v4-flash/config.json");
    let config = ModelConfig::from_hf(text, None).unwrap();
    let v4 = config.deepseek_v4.unwrap();
    assert_eq!((v4.layers.len(), config.layers), (43, 43));
    assert_eq!(v4.layers_with(Compression::Sparse).len(), 21);
    assert_eq!(v4.layers_with(Compression::Heavy).len(), 20);
    assert_eq!((v4.hash_layers, v4.page_multiple()), (3, 128));
}

#[test]
fn ratios_are_taken_as_they_are_listed() {
    let ratios = |ratios: Value| flat(&json!({"compress_ratios": ratios}));
    let v4 = ratios(json!([128, 0, 4, 128, 4, 0])).unwrap().deepseek_v4.unwrap();
    assert_eq!(v4.layers_with(Compression::Heavy), [0, 3]);
    let v4 = ratios(json!([0, 0, 0, 0, 0, 0])).unwrap().deepseek_v4.unwrap();
    assert_eq!((v4.indexer, v4.page_multiple()), (None, 128));
    let more = json!([0, 4, 128, 4, 128, 0, 0, 0]);
    let blocks =
        |count: u64| flat(&json!({"compress_ratios": more, "num_nextn_predict_layers": count}));
    assert!(blocks(2).is_ok());
    let long = "compress_ratios is 8 numbers, expected 6 numbers, one per layer, or 7 with";
    check(blocks(1), long);
    check(ratios(json!([0, 4, 128])), "compress_ratios is 3 numbers, expected 6 numbers, one per");
    check(ratios(json!([0, 4, 3, 4, 128, 0])), "compress_ratios[2] is 3, expected 0, 4 or 128");
    check(ratios(json!([0, 4, 128, 4, 64, 0])), "compress_ratios[4] is 64, expected 0, 4 or 128");
    check(ratios(json!([0, 4, -4, 4, 128, 0])), "compress_ratios[2] is -4, expected 0, 4 or 128");
    check(ratios(json!(4)), "compress_ratios is 4, expected a list of 0, 4 or 128");
    check(ratios(Value::Null), "field compress_ratios is missing");
}

#[test]
fn other_ratios_have_names() {
    let rates = |heavy: Value| {
        let rates =
            json!({"compressed_sparse_attention": 4, "heavily_compressed_attention": heavy});
        with(LISTED, &json!({"compress_rates": rates}))
    };
    let v4 = rates(json!(48)).unwrap().deepseek_v4.unwrap();
    assert_eq!((v4.heavy_ratio, v4.page_multiple()), (48, 384));
    let field = "heavily_compressed_attention";
    check(rates(json!(1)), &format!("field {field} is 1, expected 2 to 4095"));
    check(rates(json!(4096)), &format!("field {field} is 4096, expected 2 to 4095"));
}

#[test]
fn fields_that_decide_about_results_must_be_there() {
    for field in [
        "sliding_window",
        "q_lora_rank",
        "o_groups",
        "o_lora_rank",
        "qk_rope_head_dim",
        "index_n_heads",
        "index_head_dim",
        "index_topk",
        "n_routed_experts",
        "n_shared_experts",
        "num_experts_per_tok",
        "num_hash_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "num_hidden_layers",
        "head_dim",
        "hidden_size",
        "vocab_size",
        "max_position_embeddings",
        "hc_mult",
        "hc_eps",
        "hc_sinkhorn_iters",
        "hidden_act",
        "scoring_func",
        "norm_topk_prob",
        "routed_scaling_factor",
        "rms_norm_eps",
        "swiglu_limit",
        "rope_theta",
        "rope_scaling",
        "compress_rope_theta",
        "moe_intermediate_size",
    ] {
        check(flat(&json!({field: null})), &format!("field {field} is missing"));
    }
    check(flat(&json!({"scoring_func": null})), "scoring_func is missing, expected sqrtsoftplus");
    check(flat(&json!({"norm_topk_prob": null})), "norm_topk_prob is missing, expected true");
    check(flat(&json!({"n_shared_experts": null})), "n_shared_experts is missing, expected 1");
    check(flat(&json!({"num_hash_layers": null})), "num_hash_layers is missing, expected 0 to 6");
    let hash = with(LISTED, &json!({"mlp_layer_types": null}));
    check(hash, "num_hash_layers is missing");
}

/// What published files leave out, and the reference implementation has the same value for.
#[test]
fn few_fields_may_be_left_out() {
    let whole = flat(&json!({})).unwrap();
    for field in [
        "topk_method",
        "attention_bias",
        "mlp_bias",
        "tie_word_embeddings",
        "num_nextn_predict_layers",
    ] {
        assert_eq!(flat(&json!({field: null})).as_ref(), Ok(&whole), "{field}");
    }
    let mut config: Value = serde_json::from_slice(FLAT).unwrap();
    config["rope_scaling"] = Value::Null;
    let plain = ModelConfig::from_hf(config.to_string().as_bytes(), None).unwrap();
    assert_eq!(plain.deepseek_v4.unwrap().yarn, None);
}

#[test]
fn what_no_model_can_have_is_refused_by_name() {
    for (field, value, expected) in [
        ("num_attention_heads", 0, "1 to 16777216"),
        ("head_dim", 0, "2 to 65536"),
        ("head_dim", 33, "an even number, 2 to 65536"),
        ("index_n_heads", 0, "1 to 16777216"),
        ("index_head_dim", 14, "at least 16, the numbers that rotate"),
        ("index_topk", 0, "1 to 16777216"),
        ("o_groups", 0, "1 to 4"),
        ("o_groups", 3, "a divisor of 4 heads"),
        ("o_groups", 8, "1 to 4"),
        ("qk_rope_head_dim", 0, "an even number, 2 to 32"),
        ("qk_rope_head_dim", 34, "an even number, 2 to 32"),
        ("n_routed_experts", 0, "1 to 65536"),
        ("num_experts_per_tok", 0, "1 to 8"),
        ("num_experts_per_tok", 9, "1 to 8"),
        ("num_hash_layers", 7, "0 to 6"),
        ("num_hidden_layers", 0, "1 to 4096"),
        ("sliding_window", 0, "1 to 16777216"),
        ("sliding_window", 7, "at least 8, two windows of the indexer"),
        ("hc_mult", 0, "1 to 64"),
        ("hc_sinkhorn_iters", 0, "1 to 1000"),
        ("compress_rope_theta", 1, "above 1"),
        ("swiglu_limit", 0, "a positive number"),
        ("routed_scaling_factor", 0, "a positive number"),
        ("hc_eps", 0, "a positive number"),
        ("moe_intermediate_size", 0, "1 to 16777216"),
        ("q_lora_rank", 0, "1 to 16777216"),
        ("o_lora_rank", 0, "1 to 16777216"),
        ("hidden_size", 0, "1 to 16777216"),
        ("vocab_size", 0, "1 to 16777216"),
    ] {
        let expect = format!("field {field} is {value}, expected {expected}");
        check(flat(&json!({field: value})), &expect);
    }
    for (field, value, supported) in [
        ("scoring_func", json!("softmax"), "sqrtsoftplus"),
        ("topk_method", json!("greedy"), "noaux_tc"),
        ("hidden_act", json!("gelu"), "silu"),
        ("norm_topk_prob", json!(false), "true"),
        ("n_shared_experts", json!(0), "1"),
        ("n_shared_experts", json!(2), "1"),
        ("num_key_value_heads", json!(0), "1"),
        ("num_key_value_heads", json!(4), "1"),
        ("tie_word_embeddings", json!(true), "false"),
        ("attention_bias", json!(true), "false"),
    ] {
        let expect = format!("{field} {value} is not supported; supported: {supported}");
        check(flat(&json!({field: value})), &expect);
    }
    let kinds = json!(["hash_moe", "moe"]);
    let short = with(LISTED, &json!({"mlp_layer_types": kinds}));
    check(short, "mlp_layer_types' length is 2, expected 6, as many as layers");
}
