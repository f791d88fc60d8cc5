//! The fields that change how tokens are chosen, and those that say how a request is treated.

use serde_json::json;
use types::{Priority, TokenId};

use crate::requests::{LIMITS, chat, completion, refused, refused_as};

#[test]
fn penalties_and_biases_are_kept() {
    let fields = json!({
        "min_p": 0.05, "repetition_penalty": 1.2, "presence_penalty": -2, "frequency_penalty": 0.5,
        "logit_bias": {"7": -100, "511": 2.5}, "min_tokens": 3, "max_tokens": 8,
    });
    for generation in [
        completion(fields.clone()).expect("valid").generation,
        chat(fields).expect("valid").generation,
    ] {
        assert_eq!((generation.min_p, generation.repetition_penalty), (0.05, 1.2));
        assert_eq!((generation.presence_penalty, generation.frequency_penalty), (-2.0, 0.5));
        assert_eq!(generation.logit_bias, [(TokenId(511), 2.5), (TokenId(7), -100.0)]);
        assert_eq!((generation.min_tokens, generation.max_tokens), (3, Some(8)));
    }
    let off = completion(json!({})).expect("valid").generation;
    assert_eq!((off.min_p, off.repetition_penalty, off.min_tokens), (0.0, 1.0, 0));
    assert_eq!((off.presence_penalty, off.frequency_penalty), (0.0, 0.0));
    assert!(off.logit_bias.is_empty());
}

#[test]
fn penalties_and_biases_have_ranges() {
    refused(&json!({"min_p": 1.5}), "min_p", "1.5 is not between 0 and 1");
    refused(&json!({"min_p": -0.1}), "min_p", "not between 0 and 1");
    let penalty = "repetition_penalty";
    refused(&json!({"repetition_penalty": 0}), penalty, "must be above 0; 1 is off");
    refused(&json!({"repetition_penalty": 11}), penalty, "11 is not between 0 and 10");
    refused(&json!({"repetition_penalty": "x"}), penalty, "expected a number");
    let many: serde_json::Map<_, _> = (0..1025).map(|id| (id.to_string(), json!(1))).collect();
    refused(&json!({"logit_bias": many}), "logit_bias", "1025 entries are more than 1024");
    refused(&json!({"logit_bias": {"-1": 1}}), "logit_bias[\"-1\"]", "not in the vocabulary");
}

#[test]
fn the_least_length_fits_the_greatest() {
    refused(&json!({"min_tokens": -1}), "min_tokens", "less than 0");
    let words = "9 is more than max_tokens, which is 8";
    refused(&json!({"min_tokens": 9, "max_tokens": 8}), "min_tokens", words);
    refused(&json!({"min_tokens": 9, "max_completion_tokens": 8}), "min_tokens", words);
    // Without a greatest length the default grows, as far as the context goes.
    let grown = completion(json!({"min_tokens": 30})).expect("valid").generation;
    assert_eq!((grown.budget(10, &LIMITS), grown.budget(90, &LIMITS)), (Ok(30), Ok(10)));
    let exact = json!({"min_tokens": 8, "max_tokens": 8, "ignore_eos": true, "stop": "x"});
    assert_eq!(chat(exact).expect("valid").generation.min_tokens, 8);
}

#[test]
fn only_an_echo_may_come_back_alone() {
    let echo = json!({"echo": true, "logprobs": 1, "max_tokens": 0});
    let params = completion(echo).expect("valid");
    assert!(params.echo);
    assert_eq!((params.generation.max_tokens, params.generation.logprobs), (Some(0), Some(1)));
    assert_eq!(params.generation.budget(100, &LIMITS), Ok(0));
    let long = params.generation.budget(101, &LIMITS).expect_err("too long");
    assert_eq!(long.code, Some("context_length_exceeded"));
    let plain = completion(json!({"max_tokens": 0})).expect_err("refused");
    refused_as(&plain, "max_tokens", "0 is less than 1");
    let chat = chat(json!({"echo": true, "max_tokens": 0})).expect_err("refused");
    refused_as(&chat, "max_tokens", "0 is less than 1");
    let negative = completion(json!({"echo": true, "max_tokens": -1})).expect_err("refused");
    refused_as(&negative, "max_tokens", "-1 is less than 1");
}

#[test]
fn how_a_request_is_treated() {
    let fields = json!({"priority": -100, "cache_salt": "tenant a", "user": "somebody"});
    let generation = chat(fields).expect("valid").generation;
    assert_eq!(generation.priority, Priority::MIN);
    assert_eq!(generation.cache_salt.as_deref(), Some("tenant a"));
    let plain = completion(json!({"cache_salt": ""})).expect("valid").generation;
    assert_eq!((plain.priority, plain.cache_salt), (Priority::NORMAL, None));
    refused(&json!({"priority": 101}), "priority", "101 is not between -100 and 100");
    refused(&json!({"priority": "high"}), "priority", "expected an integer");
    refused(&json!({"cache_salt": 5}), "cache_salt", "expected a string");
    let salt = "s".repeat(1025);
    refused(&json!({"cache_salt": salt}), "cache_salt", "1025 bytes are more than 1024");
}
