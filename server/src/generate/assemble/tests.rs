//! Tokens in, text and log-probabilities out.

use super::*;

fn assembler(stops: &[&str]) -> Assembler {
    let vocab = tokenizer::GgufVocab::byte_level(512);
    let tokenizer = Tokenizer::from_gguf(&vocab).expect("the byte vocabulary is sound");
    let stops: Vec<String> = stops.iter().map(|stop| (*stop).to_owned()).collect();
    let shape = Shape {
        stops: &stops,
        min_tokens: 0,
        logprobs: true,
        stop_logprob: true,
        echo: None,
        calls: None,
    };
    Assembler::new(&Arc::new(tokenizer), shape)
}

/// Pushes the bytes of `text`, then ends.
fn run(mut assembler: Assembler, text: &[u8]) -> (Delta, bool) {
    let mut whole = Delta::default();
    for byte in text {
        let token = TokenId(u32::from(*byte));
        let top = [(token, -0.5), (TokenId(256), -1.0)];
        let chosen = Chosen { token, logprob: Some(-0.5), top: &top };
        let (delta, stopped) = assembler.push(chosen);
        whole.extend(delta);
        if stopped {
            return (whole, true);
        }
    }
    whole.extend(assembler.finish());
    (whole, false)
}

#[test]
fn the_texts_of_the_tokens_are_the_text() {
    for text in ["plain", "über 日本", ""] {
        let (whole, stopped) = run(assembler(&["never"]), text.as_bytes());
        assert!(!stopped);
        assert_eq!(whole.text, text);
        let joined: String = whole.logprobs.iter().map(|entry| entry.text.as_str()).collect();
        assert_eq!(joined, text);
        let bytes: Vec<u8> = whole.logprobs.iter().flat_map(|e| e.bytes.clone()).collect();
        assert_eq!(bytes, text.as_bytes());
        assert!(whole.logprobs.iter().all(|entry| entry.top.len() == 2));
    }
}

#[test]
fn half_a_character_at_the_end_belongs_to_its_token() {
    let (whole, _) = run(assembler(&[]), &[b'a', 0xe6, 0x97]);
    assert_eq!(whole.text, "a\u{fffd}");
    let joined: String = whole.logprobs.iter().map(|entry| entry.text.as_str()).collect();
    assert_eq!(joined, "a\u{fffd}");
    assert_eq!(whole.logprobs.len(), 3);
}

#[test]
fn tokens_of_a_stop_string_are_not_shown() {
    let (whole, stopped) = run(assembler(&["STOP"]), b"go ST STOP on");
    assert!(stopped);
    assert_eq!(whole.text, "go ST ");
    assert_eq!(whole.logprobs.len(), 6);
    assert_eq!(whole.logprobs.last().map(|entry| entry.offset), Some(5));
}

#[test]
fn half_a_character_at_the_end_may_complete_a_stop_string() {
    let (whole, _) = run(assembler(&["e \u{fffd}\u{fffd}"]), b"free \xf0\x9f\x8c");
    assert_eq!(whole.text, "free \u{fffd}");
    let (whole, _) = run(assembler(&["e \u{fffd}"]), b"free \xf0\x9f\x8c");
    assert_eq!((whole.text.as_str(), whole.logprobs.len()), ("fre", 3));
}

#[test]
fn stop_strings_wait_for_the_least_length() {
    let mut early = assembler(&["ab", "d"]);
    early.min_tokens = 4;
    let (whole, stopped) = run(early, b"abcdefd");
    assert_eq!((whole.text.as_str(), whole.logprobs.len(), stopped), ("abcdef", 6, true));
    // The text of the first tokens takes no part, not even as a beginning.
    let mut early = assembler(&["de"]);
    early.min_tokens = 4;
    assert_eq!(run(early, b"abcdefde").0.text, "abcdef");
}

#[test]
fn an_echoed_prompt_comes_first() {
    let plain = assembler(&["END"]);
    let tokens: Vec<TokenId> = b"\xc3\xa9 x".iter().map(|byte| TokenId((*byte).into())).collect();
    let echo = Some(PromptEcho::new(&plain.tokenizer, "é x", &tokens));
    let stops = ["END".to_owned()];
    let shape = || Shape {
        stops: &stops,
        min_tokens: 0,
        logprobs: true,
        stop_logprob: false,
        echo: echo.clone(),
        calls: None,
    };
    let mut assembler = Assembler::new(&plain.tokenizer, shape());
    for index in 1..tokens.len() {
        let top = [(TokenId(98), -0.25)];
        assembler.push_prompt(index, Some(-(index as f32)), &top);
    }
    let (whole, _) = run(assembler, b"yz END");
    assert_eq!(whole.text, "é xyz ");
    let logprobs: Vec<Option<f32>> = whole.logprobs.iter().map(|entry| entry.logprob).collect();
    let half = Some(-0.5);
    assert_eq!(logprobs, [None, Some(-1.0), Some(-2.0), Some(-3.0), half, half, half]);
    let offsets: Vec<usize> = whole.logprobs.iter().map(|entry| entry.offset).collect();
    assert_eq!(offsets, [0, 0, 1, 2, 3, 4, 5]);
    let joined: String = whole.logprobs.iter().map(|entry| entry.text.as_str()).collect();
    assert_eq!(joined, whole.text);
    // The token itself is kept beside alternatives that lack it.
    assert_eq!(whole.logprobs[1].own.as_ref().map(|own| own.logprob), Some(-1.0));
    assert_eq!((&whole.logprobs[0].own, &whole.logprobs[4].own), (&None, &None));
    // Without an answer the prompt comes at the end.
    let mut alone = Assembler::new(&plain.tokenizer, shape());
    alone.push_prompt(1, Some(-1.0), &[]);
    let delta = alone.finish();
    assert_eq!((delta.text.as_str(), delta.logprobs.len()), ("é x", 2));
    assert!(alone.finish().is_empty());
}

/// The texts, offsets and whole text of an answer that the token 256 ends.
fn ended(mut assembler: Assembler, text: &[u8]) -> (Vec<(String, usize)>, String) {
    let mut whole = Delta::default();
    for byte in text {
        let token = TokenId(u32::from(*byte));
        whole.extend(assembler.push(Chosen { token, logprob: Some(-1.0), top: &[] }).0);
    }
    let top = [(TokenId(97), -0.1)];
    assembler.push_stop(Chosen { token: TokenId(256), logprob: Some(-2.0), top: &top });
    whole.extend(assembler.finish());
    assert!(assembler.finish().is_empty());
    let logprobs = whole.logprobs.into_iter();
    (logprobs.map(|entry| (entry.text, entry.offset)).collect(), whole.text)
}

#[test]
fn a_stop_token_has_an_entry_and_no_text() {
    let name = assembler(&[]).tokenizer.token_text(TokenId(256));
    assert!(!name.is_empty());
    let entry = |text: &str, offset| (text.to_owned(), offset);
    assert_eq!(ended(assembler(&[]), b""), (vec![entry(&name, 0)], String::new()));
    // After what was held back, and after half a character.
    let (found, text) = ended(assembler(&["abc"]), b"ab\xe6");
    let expect = [entry("a", 0), entry("b", 1), entry("\u{fffd}", 2), entry(&name, 3)];
    assert_eq!((found.as_slice(), text.as_str()), (&expect[..], "ab\u{fffd}"));
    // A stop string that the end completes has ended the answer before.
    let (found, text) = ended(assembler(&["b\u{fffd}"]), b"ab\xe6");
    assert_eq!((found.as_slice(), text.as_str()), (&[entry("a", 0)][..], "a"));
    let mut hidden = assembler(&[]);
    hidden.stop_logprob = false;
    assert_eq!(ended(hidden, b"a"), (vec![entry("a", 0)], "a".to_owned()));
}

#[test]
fn held_back_text_brings_its_tokens_along() {
    let mut assembler = assembler(&["ab"]);
    let mut push = |byte: u8| {
        let token = TokenId(u32::from(byte));
        assembler.push(Chosen { token, logprob: Some(-1.0), top: &[] }).0
    };
    assert_eq!(push(b'x').logprobs.len(), 1);
    assert!(push(b'a').is_empty());
    let both = push(b'c');
    assert_eq!((both.text.as_str(), both.logprobs.len()), ("ac", 2));
}
