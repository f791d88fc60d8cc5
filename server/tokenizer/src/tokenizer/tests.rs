//! Against the golden values of the fixtures, and hostile input.

use std::path::PathBuf;

use proptest::prelude::*;
use serde_json::Value;
use types::TokenId;

use super::Tokenizer;
use crate::chat::RenderOptions;
use crate::error::{LoadError, TokenizerError};
use crate::stop::StopMatcher;

const DENSE: [&str; 4] = ["tiny-llama", "tiny-llama-bf16", "tiny-llama3-rope", "tiny-qwen3"];
const ALL: [&str; 5] =
    ["tiny-llama", "tiny-llama-bf16", "tiny-llama3-rope", "tiny-qwen3", "tiny-deepseek-v4"];

pub(crate) fn folder(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/models").join(name)
}

pub(crate) fn load(name: &str) -> Tokenizer {
    Tokenizer::from_hf_folder(&folder(name)).expect("the fixture loads")
}

pub(crate) fn golden(name: &str) -> Value {
    let path = folder(name).join("tokenizer_golden.json");
    let text = std::fs::read_to_string(path).expect("the fixture is there");
    serde_json::from_str(&text).expect("the fixture is JSON")
}

pub(crate) fn ids(value: &Value) -> Vec<TokenId> {
    let ids = value.as_array().expect("an array of ids");
    let id = |id: &Value| u32::try_from(id.as_u64().expect("an id")).expect("an id");
    ids.iter().map(|value| TokenId(id(value))).collect()
}

fn str_of(value: &Value) -> &str {
    value.as_str().expect("a string")
}

#[test]
fn golden_texts_encode_and_decode() {
    for name in ALL {
        let tokenizer = load(name);
        let golden = golden(name);
        let cases = golden["cases"].as_array().expect("cases");
        assert!(cases.len() >= 19);
        for case in cases {
            let text = str_of(&case["text"]);
            let expect = ids(&case["ids"]);
            assert_eq!(tokenizer.encode(text, false).expect("encodes"), expect, "{name} {text:?}");
            let with_special = tokenizer.encode(text, true).expect("encodes");
            assert_eq!(with_special, ids(&case["ids_with_special"]), "{name} {text:?}");
            let decoded = tokenizer.decode(&with_special, true).expect("decodes");
            assert_eq!(decoded, str_of(&case["decoded_skip_special"]), "{name} {text:?}");
            assert_eq!(tokenizer.decode(&expect, false).expect("decodes"), text, "{name}");
        }
    }
}

#[test]
fn golden_prefixes_stream() {
    for name in ALL {
        let tokenizer = load(name);
        let streaming = &golden(name)["streaming"];
        let all = ids(&streaming["ids"]);
        let prefixes = streaming["prefix_decodes"].as_array().expect("prefix decodes");
        assert!(prefixes.len() >= all.len());
        let offset = prefixes.len() - all.len();
        let mut stream = tokenizer.stream_decoder(true);
        let mut shown = String::new();
        for (count, &id) in (1..).zip(&all) {
            shown.push_str(&stream.push(id));
            let expect = str_of(&prefixes[count - 1 + offset]);
            assert_eq!(tokenizer.decode(&all[..count], true).expect("decodes"), expect, "{name}");
            // What is shown never has to be taken back; the rest is an incomplete character.
            let rest = expect.strip_prefix(&shown).expect("a prefix of the final text");
            assert!(rest.chars().all(|c| c == '\u{fffd}'), "{name}: held back {rest:?}");
        }
        shown.push_str(&stream.flush());
        assert_eq!(shown, str_of(&streaming["text"]), "{name}");
    }
}

#[test]
fn golden_conversations_render_and_encode() {
    for name in ALL {
        let tokenizer = load(name);
        let golden = golden(name);
        let chats = golden["chat"].as_array().expect("chats");
        assert!(chats.len() >= 6);
        for chat in chats {
            let mut options = RenderOptions {
                add_generation_prompt: chat["add_generation_prompt"] == true,
                ..RenderOptions::default()
            };
            if let Some(thinking) = chat.get("enable_thinking") {
                options.kwargs.insert("enable_thinking".to_owned(), thinking.clone());
            }
            let messages = chat["messages"].as_array().expect("messages");
            let template = tokenizer.chat_template().expect("the fixture has one");
            let rendered = template.render(messages, &options).expect("renders");
            assert_eq!(rendered, str_of(&chat["rendered"]), "{name}");
            let encoded = tokenizer.encode(&rendered, false).expect("encodes");
            assert_eq!(encoded, ids(&chat["ids"]), "{name}");
        }
    }
}

#[test]
fn special_tokens_have_text_id_and_kind() {
    let tokenizer = load("tiny-llama");
    assert_eq!(tokenizer.vocab_size(), 512);
    let bos = tokenizer.special().bos.clone().expect("a bos token");
    assert_eq!((bos.text.as_str(), bos.id), ("<|bos|>", Some(TokenId(497))));
    assert_eq!(tokenizer.special().eos.as_ref().and_then(|eos| eos.id), Some(TokenId(499)));
    assert!(tokenizer.is_special(TokenId(497)) && !tokenizer.is_special(TokenId(506)));
    assert_eq!(tokenizer.token_text(TokenId(506)), "<think>");
    assert_eq!(tokenizer.token_bytes(TokenId(220)), Some(b" ".as_slice()));
    assert_eq!(tokenizer.token_bytes(TokenId(512)), None);
    assert_eq!(tokenizer.token_text(TokenId(127)), "\u{fffd}");
}

#[test]
fn ids_outside_the_vocabulary_are_an_error() {
    let error = load("tiny-llama").decode(&[TokenId(1), TokenId(512)], true).expect_err("fails");
    assert_eq!(error, TokenizerError::UnknownToken { id: 512, vocab: 512 });
    assert_eq!(error.to_string(), "token id 512 is not in the vocabulary of 512 tokens");
}

#[test]
fn a_stop_string_ends_a_stream_of_tokens() {
    let tokenizer = load("tiny-llama");
    let ids = tokenizer.encode("one two three 🌊", false).expect("encodes");
    let (mut decoder, mut stops) =
        (tokenizer.stream_decoder(true), StopMatcher::new(&["o th", "never"]));
    let mut text = String::new();
    let stopped = ids.iter().position(|&id| {
        let (shown, stopped) = stops.push(&decoder.push(id));
        text.push_str(&shown);
        stopped
    });
    assert_eq!(text, "one tw");
    assert!(stopped.is_some_and(|at| at + 1 < ids.len()));
}

#[test]
fn a_folder_that_is_no_model_is_a_clear_error() {
    let error = Tokenizer::from_hf_folder(&folder("no-such-model")).map(|_| ()).expect_err("fails");
    assert!(matches!(error, LoadError::Read { .. }), "{error}");
    assert!(error.to_string().contains("no-such-model/tokenizer.json"), "{error}");
}

/// Work per byte is judged by the test's end, not by a clock: a quarter of a megabyte of one
/// character takes a second where the work is linear and many minutes where it is quadratic.
#[test]
fn long_runs_of_anything_are_encoded_in_one_go() {
    const BYTES: usize = 1 << 18;
    let repeat = |unit: &str| unit.repeat(BYTES / unit.len());
    let units = ["a", " ", "\n", " \n", "'", "1", "!", "\0", "🌊", "<|", "<|bos|>", "\u{301}"];
    let mut inputs: Vec<String> = units.iter().map(|unit| repeat(unit)).collect();
    inputs.push(repeat(" ") + "a");
    for name in ["tiny-llama", "tiny-qwen3"] {
        let tokenizer = load(name);
        for text in &inputs {
            let start: String = text.chars().take(8).collect();
            let ids = tokenizer.encode(text, false).expect("encodes");
            let decoded = tokenizer.decode(&ids, false).expect("decodes");
            assert!(decoded == *text, "{name} {start:?}: not lossless");
        }
    }
    let megabyte = "a".repeat(1 << 20);
    let ids = load("tiny-qwen3").encode(&megabyte, false).expect("encodes");
    assert!(ids.len() > 1 << 17);
}

proptest! {
    #[test]
    fn any_text_survives(text in any::<String>()) {
        let tokenizer = load("tiny-qwen3");
        let ids = tokenizer.encode(&text, false).expect("encodes");
        prop_assert_eq!(tokenizer.decode(&ids, false).expect("decodes"), text);
    }

    #[test]
    fn streams_equal_the_whole_on_random_ids(raw in prop::collection::vec(0u32..512, 0..80)) {
        for name in DENSE {
            let tokenizer = load(name);
            let reference: Vec<u32> = raw.clone();
            let ids: Vec<TokenId> = raw.iter().copied().map(TokenId).collect();
            for skip in [true, false] {
                let mut stream = tokenizer.stream_decoder(skip);
                let mut text: String = ids.iter().map(|&id| stream.push(id)).collect();
                text.push_str(&stream.flush());
                let whole = tokenizer.decode(&ids, skip).expect("decodes");
                prop_assert_eq!(&text, &whole);
                let theirs = tokenizer.encoder.decode(&reference, skip).expect("decodes");
                prop_assert_eq!(&whole, &theirs);
            }
        }
    }
}
