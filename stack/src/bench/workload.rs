//! What is asked: prompts, lengths and conversations, all of them functions of one seed.
//!
//! A request is named by its conversation and turn, so that the same seed asks the same things
//! whatever the order in which answers come. Only what the server itself answered, and later turns
//! repeat, is not in the seed.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use serde_json::{Map, Value};

use super::length::Length;
use super::text::Vocabulary;
use super::trace::Trace;
use crate::dice::Dice;

/// A client that leaves does so within this many events.
const LEAVES_WITHIN: u64 = 5;

/// What a generator of random numbers is for: each purpose has its own.
#[derive(Debug, Clone, Copy)]
enum Purpose {
    Shape = 1,
    Text,
    Prefix,
    Page,
    Leave,
    Think,
}

/// Which API is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Endpoint {
    /// `/v1/chat/completions`.
    Chat,
    /// `/v1/completions`.
    Completions,
}

impl Endpoint {
    pub(crate) const fn path(self) -> &'static str {
        match self {
            Self::Chat => "/v1/chat/completions",
            Self::Completions => "/v1/completions",
        }
    }
}

/// What all requests say alike.
#[derive(Debug, Clone)]
pub(crate) struct Template {
    pub(crate) endpoint: Endpoint,
    pub(crate) model: String,
    pub(crate) stream: bool,
    pub(crate) ignore_eos: bool,
    pub(crate) temperature: f64,
    /// Further fields of every body.
    pub(crate) extra: Map<String, Value>,
}

/// Prefixes that prompts share.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Prefix {
    pub(crate) groups: u64,
    pub(crate) tokens: Length,
}

/// Requests made up from distributions.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Synthetic {
    pub(crate) prompt: Length,
    pub(crate) output: Length,
    pub(crate) prefix: Option<Prefix>,
    /// Requests of a conversation.
    pub(crate) turns: Length,
    /// Mean pause between an answer and the next turn; pauses are exponential.
    pub(crate) think: Duration,
}

/// Requests of a trace.
#[derive(Debug, Clone)]
pub(crate) struct Replay {
    pub(crate) trace: Arc<Trace>,
    /// Multiplies all lengths, those of pages too.
    pub(crate) length_scale: f64,
}

/// Where requests come from.
#[derive(Debug, Clone)]
pub(crate) enum Source {
    Synthetic(Synthetic),
    Replay(Replay),
}

/// Everything that requests are made of.
#[derive(Debug, Clone)]
pub(crate) struct Workload {
    pub(crate) seed: u64,
    pub(crate) template: Template,
    pub(crate) vocabulary: Vocabulary,
    pub(crate) source: Source,
    /// Share of the clients that leave in mid-answer.
    pub(crate) abort_rate: f64,
}

/// One request, ready to be sent.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Ask {
    pub(crate) path: &'static str,
    pub(crate) body: Bytes,
    pub(crate) stream: bool,
    /// Prompt tokens it is meant to have; `None` where they depend on earlier answers.
    pub(crate) prompt_tokens: Option<u64>,
    /// Tokens of the answer at most.
    pub(crate) output_tokens: u64,
    /// The client leaves after this many events with text.
    pub(crate) leave_after: Option<u64>,
    /// The answer's text is needed for the next turn.
    pub(crate) keep_text: bool,
}

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    messages: Option<&'a [Message]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt: Option<&'a str>,
    max_tokens: u64,
    temperature: f64,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream_options: Option<StreamOptions>,
    // Not a field of OpenAI's: sent only where it is wanted.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    ignore_eos: bool,
    #[serde(flatten)]
    extra: &'a Map<String, Value>,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

#[derive(Debug, Clone, Serialize)]
struct Message {
    role: &'static str,
    content: String,
}

/// A client's side of a conversation.
#[derive(Debug)]
pub(crate) struct Conversation {
    number: u64,
    turn: u64,
    turns: u64,
    messages: Vec<Message>,
    /// The same as one text, for the endpoint without messages.
    text: String,
}

impl Workload {
    fn dice(&self, purpose: Purpose, parts: [u64; 2]) -> Dice {
        Dice::of(self.seed, &[purpose as u64, parts[0], parts[1]])
    }

    /// The conversation of this number; `None` where a trace has no more.
    pub(crate) fn conversation(&self, number: u64) -> Option<Conversation> {
        let turns = match &self.source {
            Source::Synthetic(made) => {
                // Turn 0 draws lengths from the same purpose; this number is nobody's turn.
                made.turns.draw(&mut self.dice(Purpose::Shape, [number, u64::MAX])).max(1)
            }
            Source::Replay(replay) => {
                usize::try_from(number).ok().filter(|at| *at < replay.trace.entries.len())?;
                1
            }
        };
        Some(Conversation { number, turn: 0, turns, messages: Vec::new(), text: String::new() })
    }

    /// The user's words of a turn: text, prompt tokens meant, answer tokens.
    fn words(&self, number: u64, turn: u64) -> (String, u64, u64) {
        let mut text = String::new();
        let mut own = self.dice(Purpose::Text, [number, turn]);
        match &self.source {
            Source::Synthetic(made) => {
                let mut shape = self.dice(Purpose::Shape, [number, turn]);
                let (prompt, output) = (made.prompt.draw(&mut shape), made.output.draw(&mut shape));
                let mut meant = prompt;
                if let Some(prefix) = made.prefix.filter(|_| turn == 0) {
                    let group = shape.range(0, prefix.groups);
                    let mut shared = self.dice(Purpose::Prefix, [group, 0]);
                    let tokens = prefix.tokens.draw(&mut shared);
                    self.vocabulary.write(&mut shared, tokens, &mut text);
                    meant += tokens;
                }
                let rest = self.unique(prompt, text.is_empty());
                self.vocabulary.write(&mut own, rest, &mut text);
                (text, meant, output.max(1))
            }
            Source::Replay(replay) => {
                let at = usize::try_from(number).unwrap_or(usize::MAX);
                let entry = &replay.trace.entries[at];
                let scaled = |tokens: u64| (tokens as f64 * replay.length_scale).round() as u64;
                let page_tokens = scaled(replay.trace.page_tokens);
                let (mut paged, meant) = (0, scaled(entry.prompt));
                for page in entry.pages() {
                    let mut dice = self.dice(Purpose::Page, [page, 0]);
                    self.vocabulary.write(&mut dice, page_tokens, &mut text);
                    paged += page_tokens;
                }
                let rest = self.unique(meant.saturating_sub(paged), text.is_empty());
                self.vocabulary.write(&mut own, rest, &mut text);
                (text, meant, scaled(entry.output).max(1))
            }
        }
    }

    /// Tokens of text for a prompt part of `tokens`, the template's own taken off; a prompt that
    /// is otherwise empty has at least one.
    fn unique(&self, tokens: u64, otherwise_empty: bool) -> u64 {
        tokens.saturating_sub(self.vocabulary.overhead()).max(u64::from(otherwise_empty))
    }

    /// When the client of this turn leaves, if it does.
    fn leave_after(&self, number: u64, turn: u64, output: u64) -> Option<u64> {
        let mut dice = self.dice(Purpose::Leave, [number, turn]);
        let leaves = dice.chance(self.abort_rate);
        // One event less than all: the client of a finished answer has nothing to leave.
        let within = LEAVES_WITHIN.min(output.saturating_sub(1)).max(1);
        leaves.then(|| dice.range(1, within + 1))
    }
}

impl Conversation {
    /// The next request; `None` when the conversation is over.
    pub(crate) fn ask(&mut self, workload: &Workload) -> Option<Ask> {
        if !self.more() {
            return None;
        }
        let turn = self.turn;
        self.turn += 1;
        let (words, meant, output_tokens) = workload.words(self.number, turn);
        let template = &workload.template;
        match template.endpoint {
            Endpoint::Chat => self.messages.push(Message { role: "user", content: words }),
            Endpoint::Completions => self.text.push_str(&words),
        }
        let chat = template.endpoint == Endpoint::Chat;
        let body = Body {
            model: &template.model,
            messages: chat.then_some(self.messages.as_slice()),
            prompt: (!chat).then_some(self.text.as_str()),
            max_tokens: output_tokens,
            temperature: template.temperature,
            stream: template.stream,
            stream_options: template.stream.then_some(StreamOptions { include_usage: true }),
            ignore_eos: template.ignore_eos,
            extra: &template.extra,
        };
        let body = serde_json::to_vec(&body).expect("text and numbers are always JSON");
        Some(Ask {
            path: template.endpoint.path(),
            body: Bytes::from(body),
            stream: template.stream,
            prompt_tokens: (turn == 0).then_some(meant),
            output_tokens,
            leave_after: workload.leave_after(self.number, turn, output_tokens),
            keep_text: self.more(),
        })
    }

    /// Whether another turn follows.
    pub(crate) const fn more(&self) -> bool {
        self.turn < self.turns
    }

    /// The server's answer becomes part of what later turns say.
    pub(crate) fn answered(&mut self, workload: &Workload, text: String) {
        match workload.template.endpoint {
            Endpoint::Chat => self.messages.push(Message { role: "assistant", content: text }),
            Endpoint::Completions => self.text.push_str(&text),
        }
    }

    /// The pause before the next turn.
    pub(crate) fn think(&self, workload: &Workload) -> Duration {
        match &workload.source {
            Source::Synthetic(made) => {
                let mut dice = workload.dice(Purpose::Think, [self.number, self.turn]);
                // A bound on the tail: nobody waits for the one in a million.
                made.think.mul_f64(dice.exponential().min(10.0))
            }
            Source::Replay(_) => Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests;
