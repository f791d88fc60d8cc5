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
mod tests;
