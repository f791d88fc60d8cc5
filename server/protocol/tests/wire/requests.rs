//! What is accepted, with which defaults, and what is refused, in which words.

use protocol::{
    ApiError, ChatParams, CompletionParams, DetokenizeParams, Limits, Prompt, TokenizeInput,
    TokenizeParams,
};
use serde_json::{Value, json};
use types::TokenId;

pub(crate) const LIMITS: Limits = Limits { vocab: 512, max_context: 100 };

/// A valid request with these fields added or replaced.
fn with(mut base: Value, fields: Value) -> Vec<u8> {
    let object = base.as_object_mut().expect("an object");
    for (name, value) in fields.as_object().expect("an object").clone() {
        object.insert(name, value);
    }
    base.to_string().into_bytes()
}

pub(crate) fn completion(fields: Value) -> Result<CompletionParams, ApiError> {
    CompletionParams::parse(&with(json!({"model": "tiny", "prompt": "Hi"}), fields), &LIMITS)
}

pub(crate) fn chat(fields: Value) -> Result<ChatParams, ApiError> {
    let messages = json!([{"role": "user", "content": "Hi"}]);
    ChatParams::parse(&with(json!({"model": "tiny", "messages": messages}), fields), &LIMITS)
}

/// Both endpoints refuse these fields, naming `param` and saying `words`.
#[track_caller]
pub(crate) fn refused(fields: &Value, param: &str, words: &str) {
    let errors = [
        completion(fields.clone()).map(|_| ()).expect_err("completions refuse it"),
        chat(fields.clone()).map(|_| ()).expect_err("chat refuses it"),
    ];
    for error in errors {
        refused_as(&error, param, words);
    }
}

#[track_caller]
pub(crate) fn refused_as(error: &ApiError, param: &str, words: &str) {
    assert_eq!((error.status, error.kind), (400, "invalid_request_error"), "{error}");
    assert_eq!(error.param.as_deref(), Some(param), "{error}");
    assert!(error.message.contains(words), "{error:?} lacks {words:?}");
}

#[test]
fn defaults_of_completions() {
    let params = completion(json!({})).expect("valid");
    let generation = &params.generation;
    assert_eq!(params.model, "tiny");
    assert_eq!(params.prompts, [Prompt::Text("Hi".to_owned())]);
    assert_eq!((generation.temperature, generation.top_p, generation.top_k), (1.0, 1.0, 0));
    assert_eq!((generation.n, generation.seed, generation.logprobs), (1, None, None));
    assert!(!generation.stream && !generation.include_usage && !generation.ignore_eos);
    assert!(generation.stop.is_empty() && generation.stop_token_ids.is_empty() && !params.echo);
    assert_eq!(generation.budget(10, &LIMITS), Ok(16));
    assert_eq!(generation.budget(95, &LIMITS), Ok(5));
}

#[test]
fn defaults_of_chat() {
    let params = chat(json!({})).expect("valid");
    assert!(params.add_generation_prompt && params.template_kwargs.is_empty());
    assert_eq!(params.generation.budget(10, &LIMITS), Ok(90));
    let message = serde_json::to_value(&params.messages[0]).expect("serializes");
    assert_eq!(message, json!({"role": "user", "content": "Hi"}));
}

#[test]
fn what_clients_send_unasked_is_accepted() {
    let extra = json!({
        "user": "u", "cache_prompt": false, "ignore_eos": true, "min_tokens": 8, "max_tokens": 8,
        "max_completion_tokens": null, "temperature": null, "top_p": null, "n": null, "stop": null,
        "stream_options": null, "logit_bias": {}, "frequency_penalty": 0, "presence_penalty": 0.0,
        "repetition_penalty": 1.0, "min_p": 0, "best_of": 1, "seed": null, "metadata": {"a": "b"},
        "parallel_tool_calls": true, "service_tier": "auto", "store": false, "echo": false,
        "suffix": null, "logprobs": null, "tools": [], "tool_choice": "auto", "tool": 5,
        "response_format": {"type": "text"}, "stream": false, "guided_json": null,
    });
    assert!(completion(extra.clone()).is_ok_and(|params| params.generation.ignore_eos));
    assert!(chat(extra).is_ok());
    assert!(
        chat(json!({"stream": true, "stream_options": {"include_usage": true}}))
            .is_ok_and(|params| params.generation.include_usage)
    );
    assert!(chat(json!({"stream": true, "stream_options": {}})).is_ok());
}

#[test]
fn sampling_values_are_kept() {
    let fields = json!({
        "temperature": 0, "top_p": 1e-6, "top_k": 40, "seed": -3, "n": 2, "stop": "END",
        "stop_token_ids": [0, 511], "max_tokens": 7, "max_completion_tokens": 9,
    });
    let generation = completion(fields).expect("valid").generation;
    assert_eq!((generation.temperature, generation.top_p, generation.top_k), (0.0, 1e-6, 40));
    assert_eq!(generation.seed_of(0), Some(u64::MAX - 2));
    assert_eq!(generation.seed_of(3), Some(0));
    assert_eq!((generation.n, generation.max_tokens), (2, Some(9)));
    assert_eq!(generation.stop, ["END"]);
    assert_eq!(generation.stop_token_ids, [TokenId(0), TokenId(511)]);
    // OpenAI's range of top_p includes 0: only the most likely token is left.
    let zero = completion(json!({"top_p": 0, "top_k": 5})).expect("valid").generation;
    assert_eq!((zero.top_p, zero.top_k), (1.0, 1));
    let off = completion(json!({"top_k": -1})).expect("valid").generation;
    assert_eq!(off.top_k, 0);
    let five = json!({"stop": ["a", "b", "c", "d", "é"]});
    assert_eq!(chat(five).expect("valid").generation.stop.len(), 5);
}

#[test]
fn values_out_of_range_are_named() {
    refused(&json!({"max_tokens": 0}), "max_tokens", "0 is less than 1");
    refused(&json!({"max_tokens": -1}), "max_tokens", "-1 is less than 1");
    refused(&json!({"max_tokens": 1.5}), "max_tokens", "expected an integer, found number 1.5");
    refused(&json!({"max_tokens": "many"}), "max_tokens", "found string \"many\"");
    refused(&json!({"max_tokens": 1u64 << 63}), "max_tokens", "expected a 64-bit integer");
    let name = "max_completion_tokens";
    refused(&json!({"max_completion_tokens": 0, "max_tokens": 5}), name, "less than 1");
    refused(&json!({"temperature": -0.1}), "temperature", "-0.1 is not between 0 and 2");
    refused(&json!({"temperature": 2.01}), "temperature", "not between 0 and 2");
    refused(&json!({"temperature": "hot"}), "temperature", "expected a number");
    refused(&json!({"top_p": 1.5}), "top_p", "1.5 is not between 0 and 1");
    refused(&json!({"top_p": -0.5}), "top_p", "not between 0 and 1");
    refused(&json!({"top_k": -2}), "top_k", "-2 is less than -1");
    refused(&json!({"n": 0}), "n", "0 is not between 1 and 128");
    refused(&json!({"n": -1}), "n", "-1 is not between 1 and 128");
    refused(&json!({"n": 1_000_000}), "n", "not between 1 and 128");
    refused(&json!({"seed": 1.5}), "seed", "expected an integer");
    refused(&json!({"frequency_penalty": 9}), "frequency_penalty", "9 is not between -2 and 2");
    refused(&json!({"presence_penalty": -9}), "presence_penalty", "not between -2 and 2");
    refused(&json!({"logit_bias": {"5": 1000}}), "logit_bias[\"5\"]", "between -100 and 100");
    let path = "logit_bias[\"99999999\"]";
    refused(&json!({"logit_bias": {"99999999": 1}}), path, "not in the vocabulary of 512");
    refused(&json!({"logit_bias": {"x": 1}}), "logit_bias[\"x\"]", "not a token id");
    refused(&json!({"logit_bias": [1]}), "logit_bias", "expected an object, found an array");
    refused(&json!({"stream": "yes"}), "stream", "expected a boolean");
    refused(&json!({"stream_options": {}}), "stream_options", "only allowed when stream");
    refused(&json!({"stream": true, "stream_options": 1}), "stream_options", "an object");
    refused(&json!({"stop_token_ids": [1, 512]}), "stop_token_ids[1]", "not in the vocabulary");
    refused(&json!({"stop_token_ids": vec![1; 1025]}), "stop_token_ids", "more than 1024");
}

#[test]
fn stop_strings_are_bounded() {
    refused(&json!({"stop": ""}), "stop", "must not be empty");
    refused(&json!({"stop": ["a", ""]}), "stop", "must not be empty");
    refused(&json!({"stop": [1, 2]}), "stop[0]", "expected a string, found number 1");
    refused(&json!({"stop": 1}), "stop", "expected a string or an array of strings");
    refused(&json!({"stop": vec!["a"; 17]}), "stop", "more than 16");
    refused(&json!({"stop": "a".repeat(1025)}), "stop", "longer than 1024 bytes");
    assert!(chat(json!({"stop": vec!["a".repeat(1024); 16]})).is_ok());
}

#[test]
fn what_is_not_implemented_is_refused_and_not_ignored() {
    refused(&json!({"best_of": 3}), "best_of", "3 is not n, which is 1");
    assert!(completion(json!({"echo": true})).is_ok_and(|params| params.echo));
    refused_as(&completion(json!({"suffix": "x"})).expect_err("refused"), "suffix", "inserting");

    let refused = |fields: Value, param: &str| {
        let error = chat(fields).expect_err("refused");
        refused_as(&error, param, "supported");
        assert_eq!(error.code, Some("unsupported_parameter"));
    };
    refused(json!({"functions": [{"name": "f"}]}), "functions");
    refused(json!({"function_call": {"name": "f"}}), "function_call");
    refused(json!({"continue_final_message": true}), "continue_final_message");
    let template = chat(json!({"chat_template": "{{ x }}"})).expect_err("refused");
    refused_as(&template, "chat_template", "own template");
}

#[test]
fn logprobs_of_both_endpoints() {
    let of = |fields: Value| completion(fields).map(|params| params.generation.logprobs);
    assert_eq!(of(json!({"logprobs": 0})), Ok(Some(0)));
    assert_eq!(of(json!({"logprobs": 20})), Ok(Some(20)));
    for count in [21, 100_000, -1] {
        let error = of(json!({"logprobs": count})).expect_err("refused");
        refused_as(&error, "logprobs", "is not between 0 and 20");
    }
    let of = |fields: Value| chat(fields).map(|params| params.generation.logprobs);
    assert_eq!(of(json!({"logprobs": true})), Ok(Some(0)));
    assert_eq!(of(json!({"logprobs": true, "top_logprobs": 3})), Ok(Some(3)));
    assert_eq!(of(json!({"logprobs": false, "top_logprobs": 0})), Ok(None));
    let error = of(json!({"top_logprobs": 3})).expect_err("refused");
    refused_as(&error, "top_logprobs", "only allowed when logprobs");
    let error = of(json!({"logprobs": true, "top_logprobs": 100_000})).expect_err("refused");
    refused_as(&error, "top_logprobs", "is not between 0 and 20");
}

#[test]
fn prompts_of_every_shape() {
    let of = |prompt: Value| completion(json!({"prompt": prompt})).map(|params| params.prompts);
    let text = |text: &str| Prompt::Text(text.to_owned());
    let ids = |ids: &[u32]| Prompt::Tokens(ids.iter().copied().map(TokenId).collect());
    assert_eq!(of(json!("")), Ok(vec![text("")]));
    assert_eq!(of(json!(["a", "b"])), Ok(vec![text("a"), text("b")]));
    assert_eq!(of(json!([1, 2, 511])), Ok(vec![ids(&[1, 2, 511])]));
    assert_eq!(of(json!([[1], [2, 3]])), Ok(vec![ids(&[1]), ids(&[2, 3])]));
    assert_eq!(of(json!(["a", [2]])), Ok(vec![text("a"), ids(&[2])]));
    let refused = |prompt: Value, param: &str, words: &str| {
        refused_as(&of(prompt).expect_err("refused"), param, words);
    };
    refused(json!([]), "prompt", "must not be empty");
    refused(json!([[1], []]), "prompt[1]", "must not be empty");
    refused(json!({"a": 1}), "prompt", "found an object");
    refused(json!(5), "prompt", "found number 5");
    refused(json!(null), "prompt", "expected a string, an array of strings");
    refused(json!([1, "a"]), "prompt[0]", "cannot be mixed");
    refused(json!([1, 1.5]), "prompt[1]", "expected a string, a token id");
    refused(json!([[1, "a"]]), "prompt[0][1]", "expected an integer");
    refused(json!([1, 2, 99_999_999]), "prompt[2]", "99999999 is not in the vocabulary of 512");
    refused(json!([-5]), "prompt[0]", "-5 is not in the vocabulary");
    refused(json!([1u64 << 63]), "prompt[0]", "not in the vocabulary");
    refused(json!([[1], [512]]), "prompt[1][0]", "512 is not in the vocabulary");
    let many = completion(json!({"prompt": vec!["a"; 65], "n": 2})).expect_err("refused");
    refused_as(&many, "prompt", "130 answers; at most 128");
    let error = CompletionParams::parse(br#"{"model": "tiny"}"#, &LIMITS).expect_err("refused");
    refused_as(&error, "prompt", "prompt: this field is required");
}

#[test]
fn messages_of_every_shape() {
    let parts = json!([{"type": "text", "text": "Tell me "}, {"type": "text", "text": "more."}]);
    let messages = json!([
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": parts, "name": "Ann"},
        {"role": "assistant", "content": null, "refusal": null},
        {"role": "tool", "content": "5", "tool_call_id": "1"},
        {"role": "assistant", "content": "ok", "tool_calls": []},
    ]);
    let params = chat(json!({"messages": messages})).expect("valid");
    let expect = json!([
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Tell me more.", "name": "Ann"},
        {"role": "assistant", "content": ""},
        {"role": "tool", "content": "5", "tool_call_id": "1"},
        {"role": "assistant", "content": "ok"},
    ]);
    assert_eq!(serde_json::to_value(&params.messages).expect("serializes"), expect);

    let refused = |messages: Value, param: &str, words: &str| {
        refused_as(&chat(json!({"messages": messages})).expect_err("refused"), param, words);
    };
    refused(json!([]), "messages", "must not be empty");
    refused(json!("hello"), "messages", "expected an array, found string \"hello\"");
    refused(json!(null), "messages", "found null");
    refused(json!([null]), "messages[0]", "expected an object, found null");
    refused(json!([["user", "x"]]), "messages[0]", "expected an object, found an array");
    refused(json!([{"role": "wizard", "content": "x"}]), "messages[0].role", "wizard");
    refused(json!([{"content": "x"}]), "messages[0].role", "required");
    refused(json!([{"role": "user"}]), "messages[0].content", "required");
    let message =
        "messages[0].content: expected a string or an array of text parts, found number 5";
    refused(json!([{"role": "user", "content": 5}]), "messages[0].content", message);
    let part = json!([{"role": "user", "content": [{"type": "image_url"}]}]);
    refused(part, "messages[0].content[0].type", "\"image_url\" are not supported");
    let part = json!([{"role": "user", "content": [{"type": "text"}]}]);
    refused(part, "messages[0].content[0].text", "required");
    let part = json!([{"role": "user", "content": [{"type": "text", "text": 5}]}]);
    refused(part, "messages[0].content[0].text", "expected a string, found number 5");
    let error = ChatParams::parse(br#"{"model": "tiny"}"#, &LIMITS).expect_err("refused");
    refused_as(&error, "messages", "required");
    let error = ChatParams::parse(br#"{"messages": []}"#, &LIMITS).expect_err("refused");
    refused_as(&error, "model", "required");
}

#[test]
fn template_arguments_are_passed_on() {
    let fields = json!({"chat_template_kwargs": {"enable_thinking": false},
        "add_generation_prompt": false});
    let params = chat(fields).expect("valid");
    assert_eq!(params.template_kwargs["enable_thinking"], json!(false));
    assert!(!params.add_generation_prompt);
    let error = chat(json!({"chat_template_kwargs": [1]})).expect_err("refused");
    refused_as(&error, "chat_template_kwargs", "expected an object, found an array");
}

#[test]
fn the_context_length_is_named_in_the_words_clients_look_for() {
    let error = |fields: Value, prompt_tokens| {
        let generation = chat(fields).expect("valid").generation;
        generation.budget(prompt_tokens, &LIMITS).expect_err("does not fit")
    };
    let long = error(json!({"max_tokens": 20}), 81);
    assert_eq!((long.status, long.code), (400, Some("context_length_exceeded")));
    assert_eq!(
        long.message,
        "This model's maximum context length is 100 tokens. However, you requested 101 tokens \
         (81 in the prompt, 20 in the completion). Please reduce the length of the prompt or of \
         the completion."
    );
    assert_eq!(error(json!({}), 100).code, Some("context_length_exceeded"));
    assert_eq!(error(json!({"max_tokens": i64::MAX}), 1).code, Some("context_length_exceeded"));
    assert_eq!(error(json!({}), 0).param.as_deref(), Some("prompt"));
    let fits = chat(json!({"max_tokens": 20})).expect("valid").generation;
    assert_eq!(fits.budget(80, &LIMITS), Ok(20));
    assert_eq!(chat(json!({})).expect("valid").generation.budget(99, &LIMITS), Ok(1));
}

#[test]
fn tokenize_and_detokenize() {
    let tokenize = |body: Value| TokenizeParams::parse(body.to_string().as_bytes());
    let text = tokenize(json!({"model": "tiny", "prompt": "hello"})).expect("valid");
    assert_eq!(text.input, TokenizeInput::Text("hello".to_owned()));
    assert!(text.add_special_tokens && !text.return_token_strs);
    assert_eq!(text.model.as_deref(), Some("tiny"));
    let text = tokenize(json!({"prompt": "", "add_special_tokens": false})).expect("valid");
    assert!(!text.add_special_tokens && text.model.is_none());
    let messages = json!([{"role": "user", "content": "x"}]);
    let chat = tokenize(json!({"messages": messages, "return_token_strs": true})).expect("valid");
    assert!(!chat.add_special_tokens && chat.return_token_strs);
    assert!(matches!(chat.input, TokenizeInput::Chat { add_generation_prompt: true, .. }));
    let refused = |body: Value, param: &str, words: &str| {
        refused_as(&tokenize(body).expect_err("refused"), param, words);
    };
    refused(json!({"prompt": ["a"]}), "prompt", "expected a string, found an array");
    refused(json!({}), "prompt", "required");
    refused(json!({"prompt": "a", "messages": messages}), "prompt", "cannot both");
    refused(json!({"messages": []}), "messages", "must not be empty");

    let detokenize = |body: Value| DetokenizeParams::parse(body.to_string().as_bytes(), &LIMITS);
    let params = detokenize(json!({"model": "tiny", "tokens": [1, 511]})).expect("valid");
    assert_eq!(params.tokens, [TokenId(1), TokenId(511)]);
    assert!(detokenize(json!({"tokens": []})).is_ok());
    let refused = |body: Value, param: &str, words: &str| {
        refused_as(&detokenize(body).expect_err("refused"), param, words);
    };
    refused(json!({"tokens": [512]}), "tokens[0]", "not in the vocabulary of 512 tokens");
    refused(json!({"tokens": "x"}), "tokens", "expected an array, found string");
    refused(json!({}), "tokens", "required");
}
