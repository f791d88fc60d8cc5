//! What a call looks like, as a short list of items, and the state of following one byte by byte.

use super::json::{Json, Step};
use super::{
    HERMES, HERMES_END, MISTRAL, MISTRAL_ARGS, MISTRAL_ID, PYTHON_TAG, ToolFormat, deepseek,
};

/// A part of a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Item {
    /// Exactly this text.
    Text(&'static str),
    /// Any white space, or none.
    Space,
    /// The name of a function: at least one character of those that names have.
    Name,
    /// The identifier of a call, which is not kept: one of our own is given.
    Id,
    /// A JSON object or array.
    Json,
}

/// Where in an answer a pattern may begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// Nothing but white space came before.
    Start,
    /// After other text.
    Middle,
    /// A call came before, and since then nothing but white space.
    AfterCall,
}

/// A call, several calls, or what may stand after one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pattern {
    pub(super) items: &'static [Item],
    /// No marker says that this is a call: it is one only if it calls a function of the request.
    pub(super) unmarked: bool,
}

const fn marked(items: &'static [Item]) -> Pattern {
    Pattern { items, unmarked: false }
}

use Item::{Id, Json as Object, Name, Space, Text};

const HERMES_CALL: Pattern = marked(&[Text(HERMES), Space, Object, Space, Text(HERMES_END)]);
const LLAMA_TAGGED: Pattern = marked(&[Text(PYTHON_TAG), Space, Object]);
const LLAMA_BARE: Pattern = Pattern { items: &[Object], unmarked: true };
const LLAMA_NEXT: Pattern = Pattern { items: &[Text(";"), Space, Object], unmarked: true };
const MISTRAL_ALL: &[Pattern] = &[
    marked(&[Text(MISTRAL), Space, Object]),
    marked(&[Text(MISTRAL), Space, Name, Object]),
    marked(&[Text(MISTRAL), Space, Name, Text(MISTRAL_ARGS), Object]),
    marked(&[Text(MISTRAL), Space, Name, Text(MISTRAL_ID), Id, Text(MISTRAL_ARGS), Object]),
];
const V3_FIRST: Pattern = marked(&[
    Text(deepseek::CALLS),
    Space,
    Text(deepseek::FUNCTION),
    Name,
    Space,
    Text("```json"),
    Space,
    Object,
    Space,
    Text("```"),
    Space,
    Text(deepseek::CALL_END),
]);
const V3_NEXT: Pattern = marked(&[
    Text(deepseek::FUNCTION),
    Name,
    Space,
    Text("```json"),
    Space,
    Object,
    Space,
    Text("```"),
    Space,
    Text(deepseek::CALL_END),
]);
const V31_FIRST: Pattern = marked(&[
    Text(deepseek::CALLS),
    Space,
    Text(deepseek::CALL),
    Name,
    Text(deepseek::SEP),
    Space,
    Object,
    Space,
    Text(deepseek::CALL_END),
]);
const V31_NEXT: Pattern = marked(&[
    Text(deepseek::CALL),
    Name,
    Text(deepseek::SEP),
    Space,
    Object,
    Space,
    Text(deepseek::CALL_END),
]);
const DEEPSEEK_END: Pattern = marked(&[Text(deepseek::CALLS_END)]);

/// The patterns that may begin at a place. No two of them can be complete at the same byte.
pub(super) const fn patterns(format: ToolFormat, place: Place) -> &'static [Pattern] {
    match (format, place) {
        (ToolFormat::Hermes, _) => &[HERMES_CALL],
        (ToolFormat::Llama, Place::Start) => &[LLAMA_TAGGED, LLAMA_BARE],
        (ToolFormat::Llama, Place::Middle) => &[LLAMA_TAGGED],
        (ToolFormat::Llama, Place::AfterCall) => &[LLAMA_TAGGED, LLAMA_NEXT],
        (ToolFormat::Mistral | ToolFormat::MistralArgs, _) => MISTRAL_ALL,
        (ToolFormat::DeepseekV3, Place::AfterCall) => &[V3_FIRST, V3_NEXT, DEEPSEEK_END],
        (ToolFormat::DeepseekV3, _) => &[V3_FIRST],
        (ToolFormat::DeepseekV31, Place::AfterCall) => &[V31_FIRST, V31_NEXT, DEEPSEEK_END],
        (ToolFormat::DeepseekV31, _) => &[V31_FIRST],
    }
}

/// A pattern being followed. Offsets count from its first byte.
#[derive(Debug, Clone)]
pub(super) struct Run {
    pub(super) pattern: Pattern,
    item: usize,
    /// Bytes of the present item so far.
    within: usize,
    json: Json,
    /// Where the name is; empty where the pattern has none.
    pub(super) name: (usize, usize),
    /// Where the JSON is; empty where the pattern has none.
    pub(super) json_at: (usize, usize),
    seen: usize,
}

impl Run {
    pub(super) const fn new(pattern: Pattern) -> Self {
        let json = Json::new();
        Self { pattern, item: 0, within: 0, json, name: (0, 0), json_at: (0, 0), seen: 0 }
    }

    /// Takes the next byte.
    pub(super) fn step(&mut self, byte: u8) -> Step {
        let step = loop {
            let Some(item) = self.pattern.items.get(self.item) else { return Step::Bad };
            match item {
                Text(text) => break self.text(text.as_bytes(), byte),
                Space if byte.is_ascii_whitespace() => break Step::More,
                // The byte belongs to what follows.
                Space => self.next_item(),
                Name | Id if is_name(byte) => {
                    self.within += 1;
                    if *item == Name {
                        self.name = (self.seen + 1 - self.within, self.seen + 1);
                    }
                    break Step::More;
                }
                Name | Id if self.within > 0 => self.next_item(),
                Name | Id => return Step::Bad,
                Object => break self.json(byte),
            }
        };
        self.seen += 1;
        match step {
            Step::Done => {
                self.next_item();
                if self.item == self.pattern.items.len() { Step::Done } else { Step::More }
            }
            step @ (Step::More | Step::Bad) => step,
        }
    }

    fn text(&mut self, text: &[u8], byte: u8) -> Step {
        if text[self.within] != byte {
            return Step::Bad;
        }
        self.within += 1;
        if self.within == text.len() { Step::Done } else { Step::More }
    }

    fn json(&mut self, byte: u8) -> Step {
        if self.within == 0 {
            self.json_at.0 = self.seen;
        }
        self.within += 1;
        self.json_at.1 = self.seen + 1;
        self.json.step(byte)
    }

    const fn next_item(&mut self) {
        self.item += 1;
        self.within = 0;
    }
}

/// The characters of function names: OpenAI's, and those that other servers let through.
const fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b':')
}
