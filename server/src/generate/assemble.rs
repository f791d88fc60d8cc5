//! From tokens to what a client is shown: text without half characters, cut at stop strings, and
//! log-probabilities that appear together with the text they belong to.
//!
//! It runs on the engine's thread once a token, so it does no input or output and takes no lock.

use std::collections::VecDeque;
use std::sync::Arc;

use tokenizer::{StopMatcher, StreamDecoder, Tokenizer};
use types::TokenId;

/// A token among the most likely ones at its place.
#[derive(Debug, Clone, PartialEq)]
pub struct Alternative {
    /// Its text alone, with U+FFFD for parts of characters.
    pub text: String,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Natural logarithm of its probability.
    pub logprob: f32,
}

/// The log-probability of a generated token, and of its alternatives.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenLogprob {
    /// What the token adds to the text; the texts of all tokens joined are the text.
    pub text: String,
    /// Its bytes; none where it is not shown.
    pub bytes: Vec<u8>,
    /// Natural logarithm of its probability.
    pub logprob: f32,
    /// The most likely tokens, most likely first.
    pub top: Vec<Alternative>,
    /// Characters of the answer before this token.
    pub offset: usize,
}

/// What became visible.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Delta {
    /// Text that follows what was visible before.
    pub text: String,
    /// Tokens whose text is visible now; empty where none were asked for.
    pub logprobs: Vec<TokenLogprob>,
}

impl Delta {
    /// Whether there is nothing to show.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.text.is_empty() && self.logprobs.is_empty()
    }

    /// Adds what became visible later.
    pub fn extend(&mut self, later: Self) {
        self.text.push_str(&later.text);
        self.logprobs.extend(later.logprobs);
    }
}

/// A token as the sampler chose it.
#[derive(Debug, Clone, Copy)]
pub struct Chosen<'a> {
    /// The token.
    pub token: TokenId,
    /// Its log-probability, where asked.
    pub logprob: Option<f32>,
    /// The most likely tokens, most likely first, where asked.
    pub top: &'a [(TokenId, f32)],
}

/// Builds the visible answer of one request.
pub struct Assembler {
    tokenizer: Arc<Tokenizer>,
    decoder: StreamDecoder,
    stops: StopMatcher,
    logprobs: bool,
    /// Characters decoded, held back ones included.
    decoded: usize,
    /// Characters shown.
    shown: usize,
    /// Tokens whose text is not shown yet.
    pending: VecDeque<TokenLogprob>,
}

impl Assembler {
    /// An assembler that cuts at the first of `stops` and keeps log-probabilities where asked.
    #[must_use]
    pub fn new(tokenizer: &Arc<Tokenizer>, stops: &[String], logprobs: bool) -> Self {
        Self {
            tokenizer: Arc::clone(tokenizer),
            decoder: tokenizer.stream_decoder(true),
            stops: StopMatcher::new(stops),
            logprobs,
            decoded: 0,
            shown: 0,
            pending: VecDeque::new(),
        }
    }

    /// Takes the next token. True: a stop string is complete, and the text ends before it.
    pub fn push(&mut self, chosen: Chosen<'_>) -> (Delta, bool) {
        let text = self.decoder.push(chosen.token);
        if self.logprobs {
            self.pending.push_back(self.entry(&text, chosen));
            self.decoded += text.chars().count();
        }
        let (shown, stopped) = self.stops.push(&text);
        (self.show(shown), stopped)
    }

    /// Ends the answer; returns what was held back. Nothing, where a stop string was found.
    pub fn finish(&mut self) -> Delta {
        let rest = self.decoder.flush();
        // A character that stayed incomplete belongs to the token that began it.
        if let Some(last) = self.pending.back_mut() {
            last.text.push_str(&rest);
        }
        let (mut text, stopped) = self.stops.push(&rest);
        if stopped {
            self.pending.clear();
            return self.show(text);
        }
        text.push_str(&self.stops.flush());
        let mut delta = self.show(text);
        delta.logprobs.extend(self.pending.drain(..));
        delta
    }

    fn show(&mut self, text: String) -> Delta {
        if !self.logprobs {
            return Delta { text, logprobs: Vec::new() };
        }
        self.shown += text.chars().count();
        let mut logprobs = Vec::new();
        while self.pending.front().is_some_and(|entry| entry.offset < self.shown) {
            logprobs.extend(self.pending.pop_front());
        }
        Delta { text, logprobs }
    }

    fn entry(&self, text: &str, chosen: Chosen<'_>) -> TokenLogprob {
        let hidden = self.tokenizer.is_special(chosen.token);
        let bytes = if hidden { Vec::new() } else { self.bytes(chosen.token) };
        let alternative = |(token, logprob): &(TokenId, f32)| Alternative {
            text: self.tokenizer.token_text(*token),
            bytes: self.bytes(*token),
            logprob: *logprob,
        };
        TokenLogprob {
            text: text.to_owned(),
            bytes,
            logprob: chosen.logprob.unwrap_or(f32::NEG_INFINITY),
            top: chosen.top.iter().map(alternative).collect(),
            offset: self.decoded,
        }
    }

    fn bytes(&self, token: TokenId) -> Vec<u8> {
        self.tokenizer.token_bytes(token).unwrap_or_default().to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assembler(stops: &[&str]) -> Assembler {
        let vocab = tokenizer::GgufVocab::byte_level(512);
        let tokenizer = Tokenizer::from_gguf(&vocab).expect("the byte vocabulary is sound");
        let stops: Vec<String> = stops.iter().map(|stop| (*stop).to_owned()).collect();
        Assembler::new(&Arc::new(tokenizer), &stops, true)
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
}
