//! Takes an answer apart into text and tool calls while it grows.
//!
//! One automaton reads byte by byte, so that how the text was cut into pieces never matters. Text
//! is held back only while it may be the beginning of a call; what turns out to be none comes
//! out as text, unchanged. A call comes out when it is complete.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::ToolFormat;
use super::json::Step;
use super::pattern::{Place, Run, patterns};

/// A call that a model made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCall {
    /// The function.
    pub name: String,
    /// Its arguments: a JSON object, as the model wrote it.
    pub arguments: String,
}

/// A part of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// Text for the reader.
    Text(String),
    /// A call.
    Call(ToolCall),
}

/// Parses one answer.
///
/// White space next to a call belongs to the format and is left out; everything else is either
/// in a [`Part::Text`] or belongs to a well-formed call.
#[derive(Debug, Clone)]
pub struct ToolCallParser {
    format: ToolFormat,
    /// The functions of the request.
    names: Vec<String>,
    /// Text that has not come out.
    held: String,
    /// Bytes of `held` that have been read.
    read: usize,
    /// Bytes of `held` that are text for certain.
    text: usize,
    /// Where in `held` a call may have begun, and the patterns it may be of.
    begun: Option<usize>,
    runs: Vec<Run>,
    place: Place,
}

impl ToolCallParser {
    /// A parser for answers in `format` to a request that offers the functions `names`.
    #[must_use]
    pub const fn new(format: ToolFormat, names: Vec<String>) -> Self {
        Self {
            format,
            names,
            held: String::new(),
            read: 0,
            text: 0,
            begun: None,
            runs: Vec::new(),
            place: Place::Start,
        }
    }

    /// Takes the next piece of the answer; returns what is decided.
    pub fn push(&mut self, text: &str) -> Vec<Part> {
        self.held.push_str(text);
        let mut parts = Vec::new();
        self.run(&mut parts);
        self.release(self.text, &mut parts);
        parts
    }

    /// Ends the answer: what was held back is no call.
    pub fn finish(&mut self) -> Vec<Part> {
        let mut parts = Vec::new();
        while let Some(begun) = self.begun {
            self.no_call(begun);
            self.run(&mut parts);
        }
        // White space after the last call is not text.
        let end = if self.place == Place::AfterCall { self.text } else { self.held.len() };
        self.release(end, &mut parts);
        self.held.clear();
        (self.read, self.text) = (0, 0);
        parts
    }

    /// Reads everything that has not been read.
    fn run(&mut self, parts: &mut Vec<Part>) {
        while let Some(&byte) = self.held.as_bytes().get(self.read) {
            let begun = match self.begun {
                Some(begun) => begun,
                None => {
                    let all = patterns(self.format, self.place);
                    self.runs.extend(all.iter().map(|pattern| Run::new(*pattern)));
                    self.read
                }
            };
            self.read += 1;
            let mut done = None;
            self.runs.retain_mut(|run| match run.step(byte) {
                Step::More => true,
                Step::Bad => false,
                Step::Done => {
                    done = Some(run.clone());
                    false
                }
            });
            if let Some(run) = done {
                self.complete(begun, &run, parts);
            } else if !self.runs.is_empty() {
                self.begun = Some(begun);
            } else if self.begun.is_some() {
                self.no_call(begun);
            } else if !byte.is_ascii_whitespace() {
                self.text = self.read;
                self.place = Place::Middle;
            }
        }
    }

    /// What began at `begun` is text: its first byte for certain, the rest is read again.
    fn no_call(&mut self, begun: usize) {
        self.begun = None;
        self.runs.clear();
        // Every pattern begins with a character of one byte.
        self.read = begun + 1;
        self.text = self.read;
        self.place = Place::Middle;
    }

    /// A pattern that began at `begun` is complete.
    fn complete(&mut self, begun: usize, run: &Run, parts: &mut Vec<Part>) {
        let slice = |(from, to): (usize, usize)| &self.held[begun + from..begun + to];
        let calls = match (slice(run.name), slice(run.json_at)) {
            ("", "") => Some(Vec::new()),
            ("", json) => calls(json),
            (name, json) => {
                object(json).map(|arguments| vec![ToolCall { name: name.to_owned(), arguments }])
            }
        };
        let known = |call: &ToolCall| self.names.contains(&call.name);
        let calls = calls.filter(|calls| !run.pattern.unmarked || calls.iter().all(known));
        let Some(calls) = calls else {
            return self.no_call(begun);
        };
        self.release(self.text, parts);
        parts.extend(calls.into_iter().map(Part::Call));
        self.held.drain(..self.read);
        (self.read, self.text, self.begun) = (0, 0, None);
        self.runs.clear();
        self.place = Place::AfterCall;
    }

    /// Lets the first `end` bytes out as text.
    fn release(&mut self, end: usize, parts: &mut Vec<Part>) {
        if end == 0 {
            return;
        }
        let rest = self.held.split_off(end);
        parts.push(Part::Text(std::mem::replace(&mut self.held, rest)));
        self.read = self.read.saturating_sub(end);
        self.text = 0;
        self.begun = self.begun.map(|begun| begun - end);
    }
}

/// A call as JSON. Families differ in the name of the arguments.
#[derive(Deserialize)]
struct Written<'a> {
    name: String,
    #[serde(borrow, alias = "parameters")]
    arguments: &'a RawValue,
}

/// The calls that an object or an array of objects makes; `None` where it is something else.
fn calls(json: &str) -> Option<Vec<ToolCall>> {
    let written: Vec<Written<'_>> = match json.as_bytes().first()? {
        b'[' => serde_json::from_str(json).ok()?,
        _ => vec![serde_json::from_str(json).ok()?],
    };
    let call = |written: Written<'_>| {
        let arguments = object(written.arguments.get())?;
        Some(ToolCall { name: written.name, arguments })
    };
    let calls: Vec<ToolCall> = written.into_iter().map(call).collect::<Option<_>>()?;
    (!calls.is_empty()).then_some(calls)
}

/// The text of a JSON object, unless it is none. Some models write it once more as a string.
fn object(json: &str) -> Option<String> {
    let text: String = match json.as_bytes().first()? {
        b'"' => serde_json::from_str(json).ok()?,
        _ => json.to_owned(),
    };
    let value: serde_json::Value = serde_json::from_str(&text).ok()?;
    value.is_object().then_some(text)
}
