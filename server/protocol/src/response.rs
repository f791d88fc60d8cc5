//! Responses and stream chunks of the completion and chat endpoints.

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

/// The least log-probability that is sent; JSON has no infinity.
const LEAST_LOGPROB: f32 = -9999.0;

/// What every answer of a request repeats.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    /// Unique per request, such as `cmpl-...` or `chatcmpl-...`.
    pub id: String,
    /// When the request arrived, in seconds since 1970.
    pub created: u64,
    /// The served model's name.
    pub model: String,
}

impl Envelope {
    /// A whole completion, or a chunk of one.
    #[must_use]
    pub fn completion(&self, choices: Vec<CompletionChoice>, usage: UsageField) -> Completion<'_> {
        let Self { id, created, model } = self;
        Completion { id, object: "text_completion", created: *created, model, choices, usage }
    }

    /// A whole chat answer.
    #[must_use]
    pub fn chat(&self, choices: Vec<ChatChoice>, usage: Usage) -> ChatResponse<'_> {
        let Self { id, created, model } = self;
        ChatResponse { id, object: "chat.completion", created: *created, model, choices, usage }
    }

    /// A chunk of a chat answer.
    #[must_use]
    pub fn chat_chunk(&self, choices: Vec<ChatChunkChoice>, usage: UsageField) -> ChatChunk<'_> {
        let Self { id, created, model } = self;
        let object = "chat.completion.chunk";
        ChatChunk { id, object, created: *created, model, choices, usage }
    }
}

/// Why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// At an end token or a stop string.
    Stop,
    /// At the requested length or the end of the context.
    Length,
    /// With calls of tools.
    ToolCalls,
}

/// Tokens used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// Tokens of the prompts.
    pub prompt_tokens: u64,
    /// Tokens generated, over all answers.
    pub completion_tokens: u64,
    /// Their sum.
    pub total_tokens: u64,
    /// What is known of the prompts' tokens.
    pub prompt_tokens_details: PromptTokensDetails,
}

/// A part of [`Usage`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct PromptTokensDetails {
    /// Tokens that were not computed again, because an earlier request had computed them.
    pub cached_tokens: u64,
}

impl Usage {
    /// Counts and their sum; `cached_tokens` of the prompts' tokens.
    #[must_use]
    pub const fn new(prompt_tokens: u64, completion_tokens: u64, cached_tokens: u64) -> Self {
        let total_tokens = prompt_tokens + completion_tokens;
        let prompt_tokens_details = PromptTokensDetails { cached_tokens };
        Self { prompt_tokens, completion_tokens, total_tokens, prompt_tokens_details }
    }
}

/// The usage of a response or chunk. Streams that were asked for usage carry null in every chunk
/// but the last, streams that were not do not have the field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum UsageField {
    /// No such field.
    Absent,
    /// `null`.
    Null,
    /// The counts.
    Counts(Usage),
}

impl UsageField {
    const fn is_absent(&self) -> bool {
        matches!(self, Self::Absent)
    }
}

/// A whole completion, or a chunk of one.
#[derive(Debug, Clone, Serialize)]
pub struct Completion<'a> {
    /// From the envelope.
    pub id: &'a str,
    /// Always `text_completion`.
    pub object: &'static str,
    /// From the envelope.
    pub created: u64,
    /// From the envelope.
    pub model: &'a str,
    /// Answers or parts of them; none in the chunk of usage.
    pub choices: Vec<CompletionChoice>,
    /// Tokens used.
    #[serde(skip_serializing_if = "UsageField::is_absent")]
    pub usage: UsageField,
}

/// An answer to a prompt, or a part of one.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CompletionChoice {
    /// Which answer.
    pub index: usize,
    /// The text.
    pub text: String,
    /// Log-probabilities, where asked for.
    pub logprobs: Option<CompletionLogprobs>,
    /// Why it ended; null while it goes on.
    pub finish_reason: Option<FinishReason>,
}

/// Log-probabilities in the style of completions: four arrays of one length.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct CompletionLogprobs {
    /// The text of each token, as it adds to the answer.
    tokens: Vec<String>,
    /// Its log-probability; null for the first token of a prompt, which nothing precedes.
    token_logprobs: Vec<Option<f32>>,
    /// The token and the most likely tokens at its place; null where its log-probability is.
    top_logprobs: Vec<Option<TopLogprobs>>,
    /// Where its text begins, in characters.
    text_offset: Vec<usize>,
}

impl CompletionLogprobs {
    /// Adds a token.
    pub fn push(
        &mut self,
        token: String,
        logprob: Option<f32>,
        top: TopLogprobs,
        text_offset: usize,
    ) {
        self.tokens.push(token);
        self.token_logprobs.push(logprob.map(finite));
        self.top_logprobs.push(logprob.map(|_| top));
        self.text_offset.push(text_offset);
    }
}

/// Tokens by their text, the most likely first. Of tokens with the same text, such as two halves
/// of characters, the first is sent.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TopLogprobs(pub Vec<(String, f32)>);

impl Serialize for TopLogprobs {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (at, (token, logprob)) in self.0.iter().enumerate() {
            if self.0[..at].iter().all(|(earlier, _)| earlier != token) {
                map.serialize_entry(token, &finite(*logprob))?;
            }
        }
        map.end()
    }
}

/// A whole chat answer.
#[derive(Debug, Clone, Serialize)]
pub struct ChatResponse<'a> {
    /// From the envelope.
    pub id: &'a str,
    /// Always `chat.completion`.
    pub object: &'static str,
    /// From the envelope.
    pub created: u64,
    /// From the envelope.
    pub model: &'a str,
    /// The answers.
    pub choices: Vec<ChatChoice>,
    /// Tokens used.
    pub usage: Usage,
}

/// An answer to a conversation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ChatChoice {
    /// Which answer.
    pub index: usize,
    /// The turn.
    pub message: ResponseMessage,
    /// Log-probabilities, where asked for.
    pub logprobs: Option<ChatLogprobs>,
    /// Why it ended.
    pub finish_reason: Option<FinishReason>,
}

/// The assistant's turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ResponseMessage {
    /// Always `assistant`.
    pub role: &'static str,
    /// The text; null where the turn consists of calls.
    pub content: Option<String>,
    /// Always null: the model's refusals are text.
    pub refusal: Option<String>,
    /// The calls, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ResponseCall>,
}

impl ResponseMessage {
    /// A turn of text and calls.
    #[must_use]
    pub fn new(content: String, tool_calls: Vec<ResponseCall>) -> Self {
        let content = (!content.is_empty() || tool_calls.is_empty()).then_some(content);
        Self { role: "assistant", content, refusal: None, tool_calls }
    }
}

/// A call of a tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ResponseCall {
    /// What the answer to the call refers to.
    pub id: String,
    /// Always `function`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// What is called.
    pub function: ResponseFunction,
}

impl ResponseCall {
    /// A call of a function.
    #[must_use]
    pub const fn new(id: String, name: String, arguments: String) -> Self {
        Self { id, kind: "function", function: ResponseFunction { name, arguments } }
    }
}

/// A function and what it is called with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ResponseFunction {
    /// Its name.
    pub name: String,
    /// A JSON object, as text.
    pub arguments: String,
}

/// A call in a chunk. A call is sent as a whole, in one chunk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeltaCall {
    /// Its place among the calls of the turn.
    pub index: usize,
    /// The call.
    #[serde(flatten)]
    pub call: ResponseCall,
}

/// Log-probabilities in the style of chat.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ChatLogprobs {
    /// One entry per token.
    pub content: Vec<ChatTokenLogprob>,
    /// Always null.
    pub refusal: Option<Vec<ChatTokenLogprob>>,
}

/// A token, its log-probability, and the most likely tokens at its place.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ChatTokenLogprob {
    /// The text alone, with U+FFFD for parts of characters.
    pub token: String,
    /// Natural logarithm of the probability.
    #[serde(serialize_with = "logprob")]
    pub logprob: f32,
    /// The bytes; joined over all tokens they are the answer.
    pub bytes: Option<Vec<u8>>,
    /// The most likely first.
    pub top_logprobs: Vec<ChatTopLogprob>,
}

/// A token that could have been chosen.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ChatTopLogprob {
    /// The text alone, with U+FFFD for parts of characters.
    pub token: String,
    /// Natural logarithm of the probability.
    #[serde(serialize_with = "logprob")]
    pub logprob: f32,
    /// The bytes.
    pub bytes: Option<Vec<u8>>,
}

/// A chunk of a chat answer.
#[derive(Debug, Clone, Serialize)]
pub struct ChatChunk<'a> {
    /// From the envelope.
    pub id: &'a str,
    /// Always `chat.completion.chunk`.
    pub object: &'static str,
    /// From the envelope.
    pub created: u64,
    /// From the envelope.
    pub model: &'a str,
    /// Parts of answers; none in the chunk of usage.
    pub choices: Vec<ChatChunkChoice>,
    /// Tokens used.
    #[serde(skip_serializing_if = "UsageField::is_absent")]
    pub usage: UsageField,
}

/// A part of an answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ChatChunkChoice {
    /// Which answer.
    pub index: usize,
    /// What is new.
    pub delta: Delta,
    /// Log-probabilities of the new tokens, where asked for.
    pub logprobs: Option<ChatLogprobs>,
    /// Why it ended; null while it goes on.
    pub finish_reason: Option<FinishReason>,
}

/// What a chunk adds to a turn.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Delta {
    /// `assistant`, in the first chunk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<&'static str>,
    /// New text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// New calls.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<DeltaCall>,
}

impl Delta {
    /// The first delta of an answer: its role and no text.
    #[must_use]
    pub const fn role() -> Self {
        Self { role: Some("assistant"), content: Some(String::new()), tool_calls: Vec::new() }
    }

    /// New text.
    #[must_use]
    pub const fn text(text: String) -> Self {
        Self { role: None, content: Some(text), tool_calls: Vec::new() }
    }

    /// New calls.
    #[must_use]
    pub const fn calls(tool_calls: Vec<DeltaCall>) -> Self {
        Self { role: None, content: None, tool_calls }
    }

    /// Nothing new, as beside a finish reason.
    #[must_use]
    pub const fn empty() -> Self {
        Self { role: None, content: None, tool_calls: Vec::new() }
    }
}

const fn finite(logprob: f32) -> f32 {
    // NaN is less than nothing here: `max` returns the other operand.
    logprob.max(LEAST_LOGPROB)
}

fn logprob<S: Serializer>(value: &f32, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f32(finite(*value))
}
