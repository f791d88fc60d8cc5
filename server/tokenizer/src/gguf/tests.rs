use std::collections::HashMap;

use serde_json::Value;
use types::TokenId;

use super::GgufVocab;
use crate::chat::RenderOptions;
use crate::error::LoadError;
use crate::tokenizer::Tokenizer;
use crate::tokenizer::tests::{folder, golden, ids, load};

/// The metadata that a GGUF conversion of a fixture would hold.
fn vocab_of(name: &str, pre: &str) -> GgufVocab {
    let text = std::fs::read_to_string(folder(name).join("tokenizer.json")).expect("a fixture");
    let json: Value = serde_json::from_str(&text).expect("JSON");
    let mut tokens = vec![String::new(); 512];
    let mut token_types = vec![1; 512];
    for (token, id) in json["model"]["vocab"].as_object().expect("a vocabulary") {
        tokens[index(id)] = token.clone();
    }
    for added in json["added_tokens"].as_array().expect("added tokens") {
        let id = index(&added["id"]);
        tokens[id] = added["content"].as_str().expect("text").to_owned();
        token_types[id] = if added["special"] == true { 3 } else { 4 };
    }
    let merges = json["model"]["merges"].as_array().expect("merges").iter().map(|pair| {
        format!("{} {}", pair[0].as_str().expect("text"), pair[1].as_str().expect("text"))
    });
    GgufVocab {
        model: "gpt2".to_owned(),
        pre: Some(pre.to_owned()),
        tokens,
        token_types,
        merges: merges.collect(),
        bos: Some(497),
        eos: Some(499),
        ..GgufVocab::default()
    }
}

fn index(value: &Value) -> usize {
    usize::try_from(value.as_u64().expect("an id")).expect("an id")
}

fn build(vocab: &GgufVocab) -> Tokenizer {
    Tokenizer::from_gguf(vocab).expect("builds")
}

#[test]
fn a_gguf_vocabulary_gives_the_ids_of_the_hf_tokenizer() {
    for (name, pre) in [("tiny-llama", "gpt-2"), ("tiny-llama", "default"), ("tiny-qwen3", "qwen2")]
    {
        let tokenizer = build(&vocab_of(name, pre));
        assert_eq!(tokenizer.vocab_size(), 512);
        for case in golden(name)["cases"].as_array().expect("cases") {
            let text = case["text"].as_str().expect("text");
            if pre == "qwen2" && text.contains('\u{301}') {
                continue; // This fixture does not normalise, the published tokenizers do.
            }
            let expect = ids(&case["ids"]);
            assert_eq!(tokenizer.encode(text, true).expect("encodes"), expect, "{pre} {text:?}");
            let decoded = tokenizer.decode(&expect, true).expect("decodes");
            assert_eq!(decoded, case["decoded_skip_special"].as_str().expect("text"));
        }
    }
}

#[test]
fn bos_is_added_where_the_metadata_says_so() {
    let mut vocab = vocab_of("tiny-llama", "gpt-2");
    vocab.add_bos = Some(true);
    let tokenizer = build(&vocab);
    let hf = load("tiny-llama");
    for text in ["", "a", "Hello, world!"] {
        assert_eq!(tokenizer.encode(text, true), hf.encode(text, true));
        assert_eq!(tokenizer.encode(text, false), hf.encode(text, false));
    }
    vocab.add_bos = None;
    assert_eq!(build(&vocab).encode("a", true).expect("encodes"), [TokenId(64)]);
    vocab.pre = Some("llama-bpe".to_owned());
    assert_eq!(build(&vocab).encode("a", true).expect("encodes"), [TokenId(497), TokenId(64)]);
}

/// The words that a split makes: without merges, only its borders decide what may merge.
fn words(pre: &str, text: &str) -> Vec<String> {
    // Every two-character sequence of the text merges, so a token never spans two words, and a
    // word of two characters is one token.
    let mut vocab = GgufVocab::byte_level(0);
    vocab.pre = Some(pre.to_owned());
    vocab.add_bos = Some(false);
    let symbols: HashMap<u8, String> = (0..=255).zip(vocab.tokens.iter().cloned()).collect();
    for pair in text.as_bytes().windows(2) {
        let (left, right) = (&symbols[&pair[0]], &symbols[&pair[1]]);
        vocab.tokens.push(format!("{left}{right}"));
        vocab.token_types.push(1);
        vocab.merges.push(format!("{left} {right}"));
    }
    let tokenizer = build(&vocab);
    let ids = tokenizer.encode(text, false).expect("encodes");
    ids.iter().map(|&id| tokenizer.token_text(id)).collect()
}

#[test]
fn digits_are_split_as_each_vocabulary_was_trained() {
    assert_eq!(words("gpt-2", "1234"), ["12", "34"]);
    assert_eq!(words("smollm", "1234"), ["1", "2", "3", "4"]);
    assert_eq!(words("qwen2", "1234"), ["1", "2", "3", "4"]);
    assert_eq!(words("llama-bpe", "1234"), ["12", "3", "4"]);
    assert_eq!(words("gpt-2", "a 1"), ["a", " 1"]);
    assert_eq!(words("smollm", "a 1"), ["a", " ", "1"]);
}

#[test]
fn contractions_and_line_ends_are_split_as_trained() {
    assert_eq!(words("gpt-2", "a'S"), ["a", "'", "S"]);
    assert_eq!(words("llama-bpe", "a'S"), ["a", "'S"]);
    assert_eq!(words("gpt-2", "!\n"), ["!", "\n"]);
    assert_eq!(words("qwen2", "!\n"), ["!\n"]);
}

#[test]
fn qwen2_composes_characters_first() {
    let tokenizer = build(&vocab_of("tiny-qwen3", "qwen2"));
    assert_eq!(tokenizer.encode("e\u{301}", false), tokenizer.encode("é", false));
}

#[test]
fn unknown_kinds_are_named_with_what_is_supported() {
    let message = |vocab: &GgufVocab| {
        Tokenizer::from_gguf(vocab).map(|_| ()).expect_err("is refused").to_string()
    };
    let mut vocab = vocab_of("tiny-llama", "mystery");
    assert_eq!(
        message(&vocab),
        "tokenizer.ggml.pre \"mystery\" is not supported; \
         supported: default, gpt-2, smollm, llama-bpe, qwen2"
    );
    vocab.model = "llama".to_owned();
    let expect = "tokenizer.ggml.model \"llama\" is not supported; supported: gpt2";
    assert_eq!(message(&vocab), expect);
}

#[test]
fn contradictions_are_errors() {
    let refused = |change: fn(&mut GgufVocab)| {
        let mut vocab = vocab_of("tiny-llama", "gpt-2");
        change(&mut vocab);
        let result = Tokenizer::from_gguf(&vocab).map(|_| ());
        assert!(matches!(result, Err(LoadError::Vocabulary(_))), "{result:?}");
    };
    refused(|vocab| vocab.token_types.truncate(5));
    refused(|vocab| vocab.bos = Some(512));
    refused(|vocab| vocab.merges.push("nospace".to_owned()));
    refused(|vocab| vocab.merges.push("no such".to_owned()));
}

#[test]
fn the_byte_vocabulary_serves_models_that_are_not_real() {
    let tokenizer = build(&GgufVocab::byte_level(300));
    assert_eq!(tokenizer.vocab_size(), 300);
    let text = "Hi \0 é🌊";
    let ids = tokenizer.encode(text, true).expect("encodes");
    assert_eq!(
        ids.iter().map(|id| id.0).collect::<Vec<_>>(),
        text.bytes().map(u32::from).collect::<Vec<_>>()
    );
    assert_eq!(tokenizer.decode(&ids, true).expect("decodes"), text);
    assert!(tokenizer.is_special(TokenId(256)) && tokenizer.is_special(TokenId(299)));
    let message = HashMap::from([("role", "user"), ("content", "Hi")]);
    let options = RenderOptions { add_generation_prompt: true, ..RenderOptions::default() };
    let template = tokenizer.chat_template().expect("has one");
    assert_eq!(template.render(&[message], &options).expect("renders"), "user: Hi\nassistant: ");
}

/// The golden ids were made from the demo model's metadata by an independent implementation; the
/// file holds the part of the vocabulary that its texts can touch.
#[test]
fn the_demo_models_vocabulary_gives_the_golden_ids() {
    let path = folder("").join("../smollm2_tokenizer_golden.json");
    let text = std::fs::read_to_string(path).expect("the fixture is there");
    let golden: Value = serde_json::from_str(&text).expect("JSON");
    let strings = |key: &str| -> Vec<String> {
        let list = golden[key].as_array().expect("an array").iter();
        list.map(|text| text.as_str().expect("a string").to_owned()).collect()
    };
    let mut tokens: Vec<String> =
        (0..index(&golden["vocab"])).map(|id| format!("<unused {id}>")).collect();
    for (token, id) in golden["tokens"].as_object().expect("tokens") {
        tokens[index(id)] = token.clone();
    }
    let control = strings("control");
    let token_types =
        tokens.iter().map(|token| if control.contains(token) { 3 } else { 1 }).collect();
    let vocab = GgufVocab {
        model: "gpt2".to_owned(),
        pre: Some("smollm".to_owned()),
        tokens,
        token_types,
        merges: strings("merges"),
        bos: Some(1),
        eos: Some(2),
        add_bos: Some(false),
        add_space_prefix: Some(false),
        ..GgufVocab::default()
    };
    let tokenizer = build(&vocab);
    let cases = golden["cases"].as_array().expect("cases");
    assert!(cases.len() >= 40);
    for case in cases {
        let text = case["text"].as_str().expect("text");
        assert_eq!(tokenizer.encode(text, true).expect("encodes"), ids(&case["ids"]), "{text:?}");
    }
    // The vocabulary lacks some control bytes; they vanish.
    assert!(tokenizer.encode("\u{4}", true).expect("encodes").is_empty());
}
