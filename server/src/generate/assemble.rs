//! From tokens to what a client is shown: text without half characters, cut at stop strings, and
//! log-probabilities that appear together with the text they belong to.
//!
//! It runs on the engine's thread once a token, so it does no input or output and takes no lock.

use std::collections::VecDeque;
use std::sync::Arc;

use tokenizer::{
    Part, StopMatcher, StreamDecoder, Tokenizer, ToolCall, ToolCallParser, ToolFormat,
};
use types::TokenId;

use super::echo::PromptEcho;

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

/// The log-probability of a token, and of its alternatives.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenLogprob {
    /// What the token adds to the text; the texts of all tokens joined are the text. That of a
    /// stop token follows the text and is not part of it.
    pub text: String,
    /// Its bytes; none where it is not shown.
    pub bytes: Vec<u8>,
    /// Natural logarithm of its probability; `None` where nothing precedes it.
    pub logprob: Option<f32>,
    /// The most likely tokens, most likely first.
    pub top: Vec<Alternative>,
    /// The token itself, where it is not among them.
    pub own: Option<Alternative>,
    /// Characters of the answer before this token, an echoed prompt included.
    pub offset: usize,
}

/// What became visible.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Delta {
    /// Text that follows what was visible before.
    pub text: String,
    /// Calls of tools that are complete now.
    pub calls: Vec<ToolCall>,
    /// Tokens whose text is visible now; empty where none were asked for.
    pub logprobs: Vec<TokenLogprob>,
}

impl Delta {
    /// Whether there is nothing to show.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.text.is_empty() && self.calls.is_empty() && self.logprobs.is_empty()
    }

    /// Adds what became visible later.
    pub fn extend(&mut self, later: Self) {
        self.text.push_str(&later.text);
        self.calls.extend(later.calls);
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

/// How calls of tools are found in an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallSearch {
    /// How they are written.
    pub format: ToolFormat,
    /// The functions that the request offers.
    pub names: Vec<String>,
    /// The answer ends after the first call.
    pub single: bool,
}

/// What an answer is to look like.
#[derive(Debug)]
pub struct Shape<'a> {
    /// Strings that end it.
    pub stops: &'a [String],
    /// None of them counts in the text of so many first tokens.
    pub min_tokens: usize,
    /// Keep log-probabilities.
    pub logprobs: bool,
    /// That of the token which ends the answer, too.
    pub stop_logprob: bool,
    /// The prompt that it begins with; only with log-probabilities.
    pub echo: Option<PromptEcho>,
    /// Take calls of tools out of the text.
    pub calls: Option<&'a CallSearch>,
}

/// A prompt on its way back.
struct Echoing {
    prompt: PromptEcho,
    /// Characters before the next token.
    offset: usize,
    scored: Vec<TokenLogprob>,
}

/// Builds the visible answer of one request.
pub struct Assembler {
    tokenizer: Arc<Tokenizer>,
    decoder: StreamDecoder,
    stops: StopMatcher,
    parser: Option<ToolCallParser>,
    /// Whether the first call ends the answer.
    single: bool,
    /// Calls found.
    calls: usize,
    min_tokens: usize,
    /// Tokens taken.
    taken: usize,
    logprobs: bool,
    stop_logprob: bool,
    /// The stop token, where its log-probability is kept.
    ended_by: Option<TokenLogprob>,
    /// The prompt, until it is shown.
    echo: Option<Echoing>,
    /// Characters decoded, held back ones included.
    decoded: usize,
    /// Characters shown.
    shown: usize,
    /// Tokens whose text is not shown yet.
    pending: VecDeque<TokenLogprob>,
}

impl Assembler {
    /// An assembler of an answer of this shape.
    #[must_use]
    pub fn new(tokenizer: &Arc<Tokenizer>, shape: Shape<'_>) -> Self {
        let Shape { stops, min_tokens, logprobs, stop_logprob, echo, calls } = shape;
        // Markers that are special tokens would not be shown; the parser has to see them.
        let markers = calls.map_or(&[][..], |search| search.format.markers());
        let decoder = tokenizer.stream_decoder(true).showing(tokenizer.special_ids(markers));
        let parser = |search: &CallSearch| ToolCallParser::new(search.format, search.names.clone());
        let echoed = echo.as_ref().map_or(0, PromptEcho::chars);
        let mut assembler = Self {
            tokenizer: Arc::clone(tokenizer),
            decoder,
            stops: StopMatcher::new(stops),
            parser: calls.map(parser),
            single: calls.is_some_and(|search| search.single),
            calls: 0,
            min_tokens,
            taken: 0,
            logprobs,
            stop_logprob,
            ended_by: None,
            echo: echo.map(|prompt| Echoing { prompt, offset: 0, scored: Vec::new() }),
            decoded: echoed,
            shown: echoed,
            pending: VecDeque::new(),
        };
        // Nothing precedes the first token of a prompt.
        assembler.push_prompt(0, None, &[]);
        assembler
    }

    /// Takes the log-probability of the prompt's token `index`. In order, before the first
    /// [`push`](Self::push).
    pub fn push_prompt(&mut self, index: usize, logprob: Option<f32>, top: &[(TokenId, f32)]) {
        let Some(echo) = &self.echo else { return };
        let Some((token, part)) = echo.prompt.part(index) else { return };
        let chosen = Chosen { token, logprob, top };
        let entry = self.entry(part, chosen, echo.offset);
        if let Some(echo) = &mut self.echo {
            echo.offset += entry.text.chars().count();
            echo.scored.push(entry);
        }
    }

    /// Calls of tools found so far.
    #[must_use]
    pub const fn calls(&self) -> usize {
        self.calls
    }

    /// Takes the next token. True: the answer is over, at a stop string, before which the text
    /// ends, or at the only call.
    pub fn push(&mut self, chosen: Chosen<'_>) -> (Delta, bool) {
        let text = self.decoder.push(chosen.token);
        if self.logprobs {
            self.pending.push_back(self.entry(&text, chosen, self.decoded));
            self.decoded += text.chars().count();
        }
        self.taken += 1;
        let mut delta = self.take_echo();
        let (shown, stopped) = self.search(text);
        delta.extend(self.show(shown));
        (delta, stopped || (self.single && self.calls > 0))
    }

    /// Takes the stop token that ends the answer: nothing of it is shown but, where asked, its
    /// log-probability, under the name it has in the vocabulary.
    pub fn push_stop(&mut self, chosen: Chosen<'_>) {
        if self.logprobs && self.stop_logprob {
            let name = self.tokenizer.token_text(chosen.token);
            self.ended_by = Some(self.entry(&name, chosen, self.decoded));
        }
    }

    /// Cuts `text` at a stop string, where one may count.
    fn search(&mut self, text: String) -> (String, bool) {
        if self.taken <= self.min_tokens { (text, false) } else { self.stops.push(&text) }
    }

    /// The prompt, the first time.
    fn take_echo(&mut self) -> Delta {
        self.echo.take().map_or_else(Delta::default, |echo| Delta {
            text: echo.prompt.text(),
            logprobs: echo.scored,
            ..Delta::default()
        })
    }

    /// Ends the answer; returns what was held back. Nothing, where a stop string was found.
    pub fn finish(&mut self) -> Delta {
        let mut delta = self.take_echo();
        delta.extend(self.flush());
        delta
    }

    fn flush(&mut self) -> Delta {
        let rest = self.decoder.flush();
        // A character that stayed incomplete belongs to the token that began it.
        if let Some(last) = self.pending.back_mut() {
            last.text.push_str(&rest);
        }
        let (mut text, stopped) = self.search(rest);
        if stopped {
            self.pending.clear();
            self.ended_by = None;
        } else {
            text.push_str(&self.stops.flush());
        }
        let mut delta = self.show(text);
        delta.logprobs.extend(self.pending.drain(..));
        if let Some(mut stop) = self.ended_by.take() {
            // It begins where the text ends, completed characters included.
            stop.offset = self.shown;
            delta.logprobs.push(stop);
        }
        if let Some(mut parser) = self.parser.take() {
            self.take(parser.finish(), &mut delta);
        }
        delta
    }

    fn take(&mut self, parts: Vec<Part>, delta: &mut Delta) {
        for part in parts {
            match part {
                Part::Text(text) => delta.text.push_str(&text),
                Part::Call(call) => {
                    self.calls += 1;
                    delta.calls.push(call);
                }
            }
        }
    }

    /// What has passed the stop strings, without calls. The tokens of calls have their
    /// log-probabilities like all others.
    fn show(&mut self, text: String) -> Delta {
        let logprobs = self.visible(&text);
        let mut delta = Delta { logprobs, ..Delta::default() };
        match &mut self.parser {
            Some(parser) => {
                let parts = parser.push(&text);
                self.take(parts, &mut delta);
            }
            None => delta.text = text,
        }
        delta
    }

    fn visible(&mut self, text: &str) -> Vec<TokenLogprob> {
        if !self.logprobs {
            return Vec::new();
        }
        self.shown += text.chars().count();
        let mut logprobs = Vec::new();
        while self.pending.front().is_some_and(|entry| entry.offset < self.shown) {
            logprobs.extend(self.pending.pop_front());
        }
        logprobs
    }

    fn entry(&self, text: &str, chosen: Chosen<'_>, offset: usize) -> TokenLogprob {
        // A marker that is shown has its bytes.
        let hidden = text.is_empty() && self.tokenizer.is_special(chosen.token);
        let bytes = if hidden { Vec::new() } else { self.bytes(chosen.token) };
        let alternative = |(token, logprob): &(TokenId, f32)| Alternative {
            text: self.tokenizer.token_text(*token),
            bytes: self.bytes(*token),
            logprob: *logprob,
        };
        let among = chosen.top.iter().any(|(token, _)| *token == chosen.token);
        let own = chosen.logprob.filter(|_| !among);
        TokenLogprob {
            text: text.to_owned(),
            bytes,
            logprob: chosen.logprob,
            top: chosen.top.iter().map(alternative).collect(),
            own: own.map(|logprob| alternative(&(chosen.token, logprob))),
            offset,
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
        let tokens: Vec<TokenId> =
            b"\xc3\xa9 x".iter().map(|byte| TokenId((*byte).into())).collect();
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
}
