//! Exact JSON of everything that is sent.

use protocol::{
    ApiError, ChatChoice, ChatChunkChoice, ChatLogprobs, ChatTokenLogprob, ChatTopLogprob,
    CompletionChoice, CompletionLogprobs, Delta, DetokenizeResponse, Envelope, FinishReason,
    ModelCard, ModelList, ResponseMessage, SSE_DONE, TokenizeResponse, TopLogprobs, Usage,
    UsageField, sse_event,
};
use serde::Serialize;
use types::TokenId;

#[track_caller]
fn check<T: Serialize>(value: &T, expect: &str) {
    let expect: String = expect.lines().map(str::trim).collect();
    assert_eq!(serde_json::to_string(value).expect("serializes"), expect);
}

fn envelope(id: &str) -> Envelope {
    Envelope { id: id.to_owned(), created: 1_700_000_000, model: "tiny".to_owned() }
}

fn completion_choice(text: &str, finish_reason: Option<FinishReason>) -> CompletionChoice {
    CompletionChoice { index: 0, text: text.to_owned(), logprobs: None, finish_reason }
}

fn chunk_choice(delta: Delta, finish_reason: Option<FinishReason>) -> ChatChunkChoice {
    ChatChunkChoice { index: 0, delta, logprobs: None, finish_reason }
}

#[test]
fn a_completion() {
    let choice = completion_choice(" is long", Some(FinishReason::Length));
    let usage = UsageField::Counts(Usage::new(5, 2, 0));
    check(
        &envelope("cmpl-1").completion(vec![choice], usage),
        r#"{"id":"cmpl-1","object":"text_completion","created":1700000000,"model":"tiny",
        "choices":[{"index":0,"text":" is long","logprobs":null,"finish_reason":"length"}],
        "usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7,
        "prompt_tokens_details":{"cached_tokens":0}}}"#,
    );
}

#[test]
fn completion_chunks_with_and_without_usage() {
    let envelope = envelope("cmpl-1");
    let choices = vec![completion_choice("a\n\"b\"", None)];
    check(
        &envelope.completion(choices, UsageField::Absent),
        r#"{"id":"cmpl-1","object":"text_completion","created":1700000000,"model":"tiny",
        "choices":[{"index":0,"text":"a\n\"b\"","logprobs":null,"finish_reason":null}]}"#,
    );
    check(
        &envelope
            .completion(vec![completion_choice("", Some(FinishReason::Stop))], UsageField::Null),
        r#"{"id":"cmpl-1","object":"text_completion","created":1700000000,"model":"tiny",
        "choices":[{"index":0,"text":"","logprobs":null,"finish_reason":"stop"}],"usage":null}"#,
    );
    check(
        &envelope.completion(Vec::new(), UsageField::Counts(Usage::new(1, 1, 0))),
        r#"{"id":"cmpl-1","object":"text_completion","created":1700000000,"model":"tiny",
        "choices":[],
        "usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2,
        "prompt_tokens_details":{"cached_tokens":0}}}"#,
    );
}

#[test]
fn logprobs_of_completions() {
    let mut logprobs = CompletionLogprobs::default();
    let top = |entries: &[(&str, f32)]| {
        TopLogprobs(entries.iter().map(|&(text, value)| (text.to_owned(), value)).collect())
    };
    // Nothing precedes the first token of a prompt.
    logprobs.push("So".to_owned(), None, top(&[]), 0);
    logprobs.push(" a".to_owned(), Some(-0.5), top(&[(" a", -0.5), ("b", -1.5)]), 2);
    // Two halves of characters look alike; probability zero has no logarithm.
    let halves = top(&[("\u{fffd}", -0.25), ("\u{fffd}", -2.0), ("c", f32::NEG_INFINITY)]);
    logprobs.push("\u{fffd}".to_owned(), Some(f32::NAN), halves, 4);
    check(
        &logprobs,
        "{\"tokens\":[\"So\",\" a\",\"\u{fffd}\"],\"token_logprobs\":[null,-0.5,-9999.0],
        \"top_logprobs\":[null,{\" a\":-0.5,\"b\":-1.5},{\"\u{fffd}\":-0.25,\"c\":-9999.0}],
        \"text_offset\":[0,2,4]}",
    );
}

/// A stop token has its entry at the end of the text, which it is not part of.
#[test]
fn the_last_chunk_of_a_completion_with_logprobs() {
    let mut logprobs = CompletionLogprobs::default();
    let top = TopLogprobs(vec![("</s>".to_owned(), -0.25)]);
    logprobs.push("</s>".to_owned(), Some(-0.25), top, 8);
    let finish_reason = Some(FinishReason::Stop);
    let (index, text, logprobs) = (0, String::new(), Some(logprobs));
    let choice = CompletionChoice { index, text, logprobs, finish_reason };
    check(
        &envelope("cmpl-1").completion(vec![choice], UsageField::Absent),
        r#"{"id":"cmpl-1","object":"text_completion","created":1700000000,"model":"tiny",
        "choices":[{"index":0,"text":"","logprobs":{"tokens":["</s>"],"token_logprobs":[-0.25],
        "top_logprobs":[{"</s>":-0.25}],"text_offset":[8]},"finish_reason":"stop"}]}"#,
    );
}

#[test]
fn a_chat_answer() {
    let choice = ChatChoice {
        index: 0,
        message: ResponseMessage::new("Hello".to_owned(), Vec::new()),
        logprobs: None,
        finish_reason: Some(FinishReason::Stop),
    };
    check(
        &envelope("chatcmpl-1").chat(vec![choice], Usage::new(30, 2, 16)),
        r#"{"id":"chatcmpl-1","object":"chat.completion","created":1700000000,"model":"tiny",
        "choices":[{"index":0,
        "message":{"role":"assistant","content":"Hello","refusal":null},
        "logprobs":null,"finish_reason":"stop"}],
        "usage":{"prompt_tokens":30,"completion_tokens":2,"total_tokens":32,
        "prompt_tokens_details":{"cached_tokens":16}}}"#,
    );
}

#[test]
fn chat_chunks_from_the_role_to_the_usage() {
    let envelope = envelope("chatcmpl-1");
    check(
        &envelope.chat_chunk(vec![chunk_choice(Delta::role(), None)], UsageField::Null),
        r#"{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,
        "model":"tiny","choices":[{"index":0,"delta":{"role":"assistant","content":""},
        "logprobs":null,"finish_reason":null}],"usage":null}"#,
    );
    let choice = chunk_choice(Delta::text("Hé".to_owned()), None);
    check(
        &envelope.chat_chunk(vec![choice], UsageField::Absent),
        r#"{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,
        "model":"tiny","choices":[{"index":0,"delta":{"content":"Hé"},
        "logprobs":null,"finish_reason":null}]}"#,
    );
    let choice = chunk_choice(Delta::empty(), Some(FinishReason::Length));
    check(
        &envelope.chat_chunk(vec![choice], UsageField::Null),
        r#"{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,
        "model":"tiny","choices":[{"index":0,"delta":{},
        "logprobs":null,"finish_reason":"length"}],"usage":null}"#,
    );
    check(
        &envelope.chat_chunk(Vec::new(), UsageField::Counts(Usage::new(30, 2, 16))),
        r#"{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,
        "model":"tiny","choices":[],
        "usage":{"prompt_tokens":30,"completion_tokens":2,"total_tokens":32,
        "prompt_tokens_details":{"cached_tokens":16}}}"#,
    );
}

#[test]
fn logprobs_of_chat() {
    let top =
        |logprob| ChatTopLogprob { token: "Hi".to_owned(), logprob, bytes: Some(b"Hi".to_vec()) };
    let token = ChatTokenLogprob {
        token: "\u{fffd}".to_owned(),
        logprob: -0.125,
        bytes: Some(vec![240, 159]),
        top_logprobs: vec![top(-0.125), top(f32::NEG_INFINITY)],
    };
    check(
        &ChatLogprobs { content: vec![token], refusal: None },
        "{\"content\":[{\"token\":\"\u{fffd}\",\"logprob\":-0.125,\"bytes\":[240,159],
        \"top_logprobs\":[{\"token\":\"Hi\",\"logprob\":-0.125,\"bytes\":[72,105]},
        {\"token\":\"Hi\",\"logprob\":-9999.0,\"bytes\":[72,105]}]}],\"refusal\":null}",
    );
}

#[test]
fn models_and_tokens() {
    let card = ModelCard::new("tiny".to_owned(), 1_700_000_000, 4096);
    check(
        &ModelList::new(vec![card]),
        r#"{"object":"list","data":[{"id":"tiny","object":"model","created":1700000000,
        "owned_by":"sightline","max_model_len":4096}]}"#,
    );
    let tokens = [TokenId(1), TokenId(2)];
    check(
        &TokenizeResponse::new(&tokens, None, 4096),
        r#"{"count":2,"max_model_len":4096,"tokens":[1,2],"token_strs":null}"#,
    );
    let strings = Some(vec!["a".to_owned(), "b".to_owned()]);
    check(
        &TokenizeResponse::new(&tokens, strings, 4096),
        r#"{"count":2,"max_model_len":4096,"tokens":[1,2],"token_strs":["a","b"]}"#,
    );
    check(&DetokenizeResponse { prompt: "ab".to_owned() }, r#"{"prompt":"ab"}"#);
}

#[test]
fn errors() {
    check(
        &ApiError::invalid("max_tokens", "max_tokens: -1 is less than 1").body(),
        r#"{"error":{"message":"max_tokens: -1 is less than 1","type":"invalid_request_error",
        "param":"max_tokens","code":"invalid_value"}}"#,
    );
    let full = ApiError::overloaded("queue_requests_full", "32 requests wait.".to_owned(), 3);
    assert_eq!((full.status, full.retry_after), (429, Some(3)));
    check(
        &full.body(),
        r#"{"error":{"message":"32 requests wait.","type":"rate_limit_error",
        "param":null,"code":"queue_requests_full"}}"#,
    );
    let statuses = [
        (ApiError::malformed("x"), 400),
        (ApiError::unsupported("tools", "x"), 400),
        (ApiError::unknown_model(&"m".repeat(5000)), 404),
        (ApiError::unknown_path("/v1/x"), 404),
        (ApiError::method_not_allowed("GET", "/v1/completions"), 405),
        (ApiError::body_too_large(1 << 20), 413),
        (ApiError::media_type("text/plain"), 415),
        (ApiError::unavailable("draining", "x".to_owned(), 5), 503),
        (ApiError::internal("x"), 500),
    ];
    for (error, status) in statuses {
        assert_eq!(error.status, status);
        assert!(error.code.is_some() && error.message.len() < 300);
    }
}

#[test]
fn events() {
    let event = sse_event(&DetokenizeResponse { prompt: "a\r\n\u{2028}b".to_owned() });
    assert_eq!(event, "data: {\"prompt\":\"a\\r\\n\u{2028}b\"}\n\n");
    assert_eq!(SSE_DONE, "data: [DONE]\n\n");
}
