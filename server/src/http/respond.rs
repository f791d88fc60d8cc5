//! Answers on the wire: whole, or as a stream of events.
//!
//! A stream's head is sent with its first token: what goes wrong before uses the status line, what
//! goes wrong later is an error event, and the counted status is the error's either way.

use std::convert::Infallible;
use std::mem;

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use engine::Outcome;
use futures_util::stream;
use protocol::{
    ChatChoice, ChatChunkChoice, ChatLogprobs, ChatTokenLogprob, ChatTopLogprob, CompletionChoice,
    CompletionLogprobs, DeltaCall, Envelope, FinishReason, ResponseCall, ResponseMessage, SSE_DONE,
    TopLogprobs, UsageField, sse_event,
};
use tokenizer::ToolCall;
use transfer::PeerName;

use super::error::Failure;
use super::json;
use super::prompt::Endpoint;
use super::usage::Tally;
use crate::generate::Generation;
use crate::generate::assemble::{Delta, TokenLogprob};
use crate::generate::sink::{End, Event, News};
use crate::telemetry::http::{CLIENT_LEFT, FinalStatus};

/// Events written to a connection in one go, when a burst is waiting.
const EVENTS_AT_ONCE: usize = 64;

/// A request that the engine has taken.
pub(super) struct Accepted {
    /// What it tells.
    pub events: Generation,
    /// How it is told.
    pub endpoint: Endpoint,
    /// What every answer repeats.
    pub envelope: Envelope,
    /// Tokens used.
    pub tally: Tally,
    /// What each answer begins with.
    pub echoes: Vec<String>,
    /// Whether the answer is a stream.
    pub stream: bool,
    /// Whether the stream ends with a chunk of usage.
    pub include_usage: bool,
    /// Where the outcome is written.
    pub status: FinalStatus,
    /// Who computes the prompts, where that is another worker.
    pub peer: Option<PeerName>,
}

impl Accepted {
    fn failure_of(&self, event: &Event) -> Option<Failure> {
        match &event.news {
            News::Delta(_) => None,
            News::End(end) => Failure::of_outcome(&end.outcome, self.peer.as_ref()),
        }
    }
}

/// Answers.
pub(super) async fn respond(mut accepted: Accepted) -> Response {
    if !accepted.stream {
        return match whole(&mut accepted).await {
            Ok(response) => response,
            Err(failure) => failure.into_response(),
        };
    }
    match accepted.events.next().await {
        None => broken().into_response(),
        Some(first) => match accepted.failure_of(&first) {
            Some(failure) => failure.into_response(),
            None => streamed(accepted, first),
        },
    }
}

/// The engine's side ended without a word.
fn broken() -> Failure {
    Failure::internal("The engine ended before the answer was complete.")
}

const fn finish_reason(end: &End) -> Option<FinishReason> {
    match end.outcome {
        Outcome::Stop if end.tool_calls => Some(FinishReason::ToolCalls),
        Outcome::Stop => Some(FinishReason::Stop),
        Outcome::Length => Some(FinishReason::Length),
        Outcome::Aborted(_) | Outcome::Rejected(_) | Outcome::Error(_) => None,
    }
}

async fn whole(accepted: &mut Accepted) -> Result<Response, Failure> {
    let mut ends: Vec<Option<Box<End>>> = accepted.echoes.iter().map(|_| None).collect();
    while let Some(event) = accepted.events.next().await {
        if let Some(failure) = accepted.failure_of(&event) {
            return Err(failure);
        }
        if let News::End(end) = event.news {
            accepted.tally.add(event.choice, &end);
            ends[event.choice] = Some(end);
        }
    }
    let ends: Vec<Box<End>> = ends.into_iter().collect::<Option<_>>().ok_or_else(broken)?;
    let usage = accepted.tally.usage();
    let ends = ends.into_iter().enumerate();
    Ok(match accepted.endpoint {
        Endpoint::Completions => {
            let echoes = &mut accepted.echoes;
            let choice = |(index, end): (usize, Box<End>)| {
                let mut text = mem::take(&mut echoes[index]);
                text.push_str(&end.rest.text);
                let finish_reason = finish_reason(&end);
                let logprobs = completion_logprobs(end.rest.logprobs);
                CompletionChoice { index, text, logprobs, finish_reason }
            };
            let choices = ends.map(choice).collect();
            json(StatusCode::OK, &accepted.envelope.completion(choices, UsageField::Counts(usage)))
        }
        Endpoint::Chat => {
            let envelope = &accepted.envelope;
            let choices = ends.map(|(index, end)| chat_choice(envelope, index, *end)).collect();
            json(StatusCode::OK, &accepted.envelope.chat(choices, usage))
        }
    })
}

fn chat_choice(envelope: &Envelope, index: usize, end: End) -> ChatChoice {
    let finish_reason = finish_reason(&end);
    let Delta { text, calls, logprobs } = end.rest;
    let calls = calls.into_iter().enumerate();
    let calls = calls.map(|(at, call)| response_call(envelope, index, at, call)).collect();
    let message = ResponseMessage::new(text, calls);
    ChatChoice { index, message, logprobs: chat_logprobs(logprobs), finish_reason }
}

/// A call with an identifier that no other call has: the response's, the choice's and its own.
fn response_call(envelope: &Envelope, choice: usize, at: usize, call: ToolCall) -> ResponseCall {
    let unique = envelope.id.rsplit('-').next().unwrap_or_default();
    let id = format!("call_{unique}{choice:02x}{at:02x}");
    ResponseCall::new(id, call.name, call.arguments)
}

/// Log-probabilities are null where none were asked for, and where none became visible: there is
/// at least one for a completion that generates anything, unless a stop string begins it.
fn completion_logprobs(tokens: Vec<TokenLogprob>) -> Option<CompletionLogprobs> {
    if tokens.is_empty() {
        return None;
    }
    let mut logprobs = CompletionLogprobs::default();
    for token in tokens {
        let likely = token.top.into_iter().chain(token.own);
        let top = likely.map(|other| (other.text, other.logprob)).collect();
        logprobs.push(token.text, token.logprob, TopLogprobs(top), token.offset);
    }
    Some(logprobs)
}

fn chat_logprobs(tokens: Vec<TokenLogprob>) -> Option<ChatLogprobs> {
    if tokens.is_empty() {
        return None;
    }
    let entry = |token: TokenLogprob| ChatTokenLogprob {
        token: token.text,
        logprob: token.logprob.unwrap_or(f32::NEG_INFINITY),
        bytes: Some(token.bytes),
        top_logprobs: token
            .top
            .into_iter()
            .map(|other| ChatTopLogprob {
                token: other.text,
                logprob: other.logprob,
                bytes: Some(other.bytes),
            })
            .collect(),
    };
    Some(ChatLogprobs { content: tokens.into_iter().map(entry).collect(), refusal: None })
}

fn streamed(accepted: Accepted, first: Event) -> Response {
    let called = vec![0; accepted.echoes.len()];
    let mut events = Events { accepted, first: Some(first), called, ended: false };
    let head = events.head();
    let state = (Some(head), events);
    let body = stream::unfold(state, |(head, mut events)| async move {
        let text = match head {
            Some(head) if !head.is_empty() => head,
            Some(_) | None => events.next().await?,
        };
        Some((Ok::<_, Infallible>(Bytes::from(text)), (None, events)))
    });
    let mut response = Body::from_stream(body).into_response();
    let headers = response.headers_mut();
    let fixed = [
        (header::CONTENT_TYPE, "text/event-stream; charset=utf-8"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    for (name, value) in fixed {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// The events of a stream, as they are written.
struct Events {
    accepted: Accepted,
    first: Option<Event>,
    /// Calls of each choice so far.
    called: Vec<usize>,
    /// The last event was written: the end, or an error.
    ended: bool,
}

impl Events {
    /// What precedes the first token: roles, or the prompts that are echoed.
    fn head(&mut self) -> String {
        let mut text = String::new();
        for index in 0..self.accepted.echoes.len() {
            let echo = mem::take(&mut self.accepted.echoes[index]);
            text.push_str(&match self.accepted.endpoint {
                Endpoint::Chat => self.chat(index, protocol::Delta::role(), None, None),
                Endpoint::Completions if echo.is_empty() => continue,
                Endpoint::Completions => self.completion(index, echo, Vec::new(), None),
            });
        }
        text
    }

    /// The next events, at least one; `None` at the end of the body.
    async fn next(&mut self) -> Option<String> {
        if self.ended {
            return None;
        }
        let mut text = String::new();
        let mut event = match self.first.take() {
            Some(first) => Some(first),
            None => self.accepted.events.next().await,
        };
        for _ in 0..EVENTS_AT_ONCE {
            let Some(news) = event else { break };
            if let Some(failure) = self.accepted.failure_of(&news) {
                text.push_str(&self.fail(&failure));
                return Some(text);
            }
            self.write(news, &mut text);
            event = self.accepted.events.ready();
        }
        if let Some(late) = event {
            self.first = Some(late);
        } else if self.accepted.events.is_finished() {
            self.finish(&mut text);
        } else if text.is_empty() {
            text.push_str(&self.fail(&broken()));
        }
        Some(text)
    }

    fn fail(&mut self, failure: &Failure) -> String {
        let error = failure.to_api();
        self.ended = true;
        self.accepted.status.set(error.status);
        sse_event(&error.body())
    }

    fn finish(&mut self, text: &mut String) {
        self.ended = true;
        if self.accepted.include_usage {
            let usage = UsageField::Counts(self.accepted.tally.usage());
            let envelope = &self.accepted.envelope;
            text.push_str(&match self.accepted.endpoint {
                Endpoint::Completions => sse_event(&envelope.completion(Vec::new(), usage)),
                Endpoint::Chat => sse_event(&envelope.chat_chunk(Vec::new(), usage)),
            });
        }
        text.push_str(SSE_DONE);
    }

    fn write(&mut self, event: Event, text: &mut String) {
        let index = event.choice;
        let (Delta { text: new, calls, logprobs }, reason) = match event.news {
            News::Delta(delta) => (delta, None),
            News::End(end) => {
                self.accepted.tally.add(index, &end);
                let reason = finish_reason(&end);
                (end.rest, reason)
            }
        };
        match self.accepted.endpoint {
            Endpoint::Completions => {
                text.push_str(&self.completion(index, new, logprobs, reason));
            }
            Endpoint::Chat => {
                if !new.is_empty() || !logprobs.is_empty() {
                    let delta = protocol::Delta::text(new);
                    text.push_str(&self.chat(index, delta, chat_logprobs(logprobs), None));
                }
                if !calls.is_empty() {
                    let delta = self.calls(index, calls);
                    text.push_str(&self.chat(index, delta, None, None));
                }
                if reason.is_some() {
                    text.push_str(&self.chat(index, protocol::Delta::empty(), None, reason));
                }
            }
        }
    }

    fn calls(&mut self, choice: usize, calls: Vec<ToolCall>) -> protocol::Delta {
        let first = self.called[choice];
        self.called[choice] += calls.len();
        let envelope = &self.accepted.envelope;
        let numbered = (first..).zip(calls).map(|(index, call)| DeltaCall {
            index,
            call: response_call(envelope, choice, index, call),
        });
        protocol::Delta::calls(numbered.collect())
    }

    fn completion(
        &self,
        index: usize,
        text: String,
        logprobs: Vec<TokenLogprob>,
        finish_reason: Option<FinishReason>,
    ) -> String {
        let logprobs = completion_logprobs(logprobs);
        let choice = CompletionChoice { index, text, logprobs, finish_reason };
        sse_event(&self.accepted.envelope.completion(vec![choice], self.no_usage()))
    }

    fn chat(
        &self,
        index: usize,
        delta: protocol::Delta,
        logprobs: Option<ChatLogprobs>,
        finish_reason: Option<FinishReason>,
    ) -> String {
        let choice = ChatChunkChoice { index, delta, logprobs, finish_reason };
        sse_event(&self.accepted.envelope.chat_chunk(vec![choice], self.no_usage()))
    }

    /// The usage of a chunk that is not the chunk of usage.
    const fn no_usage(&self) -> UsageField {
        if self.accepted.include_usage { UsageField::Null } else { UsageField::Absent }
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        if !self.ended {
            self.accepted.status.set(CLIENT_LEFT);
        }
    }
}

#[cfg(test)]
mod tests;
