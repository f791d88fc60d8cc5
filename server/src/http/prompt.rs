//! From a parsed body to prompts in tokens: templates and tokenisation, on a small bounded pool.

use std::sync::Arc;

use protocol::{ApiError, ChatMessage, ChatParams, CompletionParams, Generation, Limits, Prompt};
use serde_json::{Map, Value};
use tokenizer::{RenderOptions, TemplateError, Tokenizer};
use tokio::sync::Semaphore;
use types::TokenId;

use super::error::Failure;
use super::{Api, Serving};
use crate::generate::echo::PromptEcho;

/// How answers look on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Endpoint {
    /// `/v1/completions`.
    Completions,
    /// `/v1/chat/completions`.
    Chat,
}

/// What is asked for, whichever endpoint it came to.
#[derive(Debug)]
pub(super) struct Ask {
    /// The name of the model.
    pub model: String,
    /// What to answer.
    pub input: Input,
    /// How to answer.
    pub generation: Generation,
    /// Whether answers begin with the prompt.
    pub echo: Echo,
}

/// Prompts, not tokenised yet.
#[derive(Debug)]
pub(super) enum Input {
    /// Texts or tokens, answered one by one.
    Prompts(Vec<Prompt>),
    /// One conversation.
    Chat(Conversation),
}

/// A conversation and how to render it.
#[derive(Debug)]
pub(super) struct Conversation {
    /// The turns.
    pub messages: Vec<ChatMessage>,
    /// Whether the assistant's turn is opened.
    pub add_generation_prompt: bool,
    /// Further variables of the template.
    pub template_kwargs: Map<String, Value>,
}

/// A prompt in tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tokenized {
    /// At least one, unless the text is empty.
    pub tokens: Vec<TokenId>,
    /// What an answer begins with: the prompt's text where it is to be echoed, else nothing.
    pub echo: String,
    /// The same in parts, where log-probabilities come with it; `echo` is empty then.
    pub scored_echo: Option<PromptEcho>,
}

/// Whether and how a prompt comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Echo {
    /// It does not.
    No,
    /// Its text.
    Text,
    /// Its text and the log-probabilities of its tokens.
    Scored,
}

impl Ask {
    /// Parses and checks a body.
    ///
    /// # Errors
    /// 400 with the path of the field.
    pub(super) fn parse(
        endpoint: Endpoint,
        body: &[u8],
        limits: &Limits,
    ) -> Result<Self, ApiError> {
        Ok(match endpoint {
            Endpoint::Completions => {
                let CompletionParams { model, prompts, generation, echo } =
                    CompletionParams::parse(body, limits)?;
                let echo = match (echo, generation.logprobs) {
                    (false, _) => Echo::No,
                    (true, None) => Echo::Text,
                    (true, Some(_)) => Echo::Scored,
                };
                Self { model, input: Input::Prompts(prompts), generation, echo }
            }
            Endpoint::Chat => {
                let params = ChatParams::parse(body, limits)?;
                let conversation = Conversation {
                    messages: params.messages,
                    add_generation_prompt: params.add_generation_prompt,
                    template_kwargs: params.template_kwargs,
                };
                let (model, generation) = (params.model, params.generation);
                Self { model, input: Input::Chat(conversation), generation, echo: Echo::No }
            }
        })
    }

    /// How many prompts are to be answered.
    #[must_use]
    pub(super) fn prompts(&self) -> usize {
        match &self.input {
            Input::Prompts(prompts) => prompts.len(),
            Input::Chat(_) => 1,
        }
    }

    /// Answers that are asked for, over all prompts.
    #[must_use]
    pub(super) fn choices(&self) -> usize {
        self.prompts() * self.generation.n
    }
}

impl Api {
    /// The tokens of each prompt of `input`.
    pub(super) async fn prompts(
        &self,
        serving: &Serving,
        input: Input,
        echo: Echo,
    ) -> Result<Vec<Tokenized>, Failure> {
        let now_unix = self.clock.unix_seconds(self.clock.now());
        // At most `--tokenizer-threads` at a time, in order.
        tokenize(&self.tokenizing, serving, move |tokenizer| match input {
            Input::Chat(conversation) => {
                let tokens = chat(tokenizer, conversation, now_unix)?;
                Ok(vec![Tokenized { tokens, echo: String::new(), scored_echo: None }])
            }
            Input::Prompts(prompts) => {
                prompts.into_iter().map(|prompt| plain(tokenizer, prompt, echo)).collect()
            }
        })
        .await
    }
}

/// Runs `job` on a thread that may block, once one of `places` is free; they are given in order.
pub(super) async fn tokenize<T: Send + 'static>(
    places: &Arc<Semaphore>,
    serving: &Serving,
    job: impl FnOnce(&Tokenizer) -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let place = Arc::clone(places).acquire_owned().await;
    let tokenizer = Arc::clone(&serving.tokenizer);
    // The place goes along: a client that leaves does not free it while the job runs.
    let run = move || {
        let result = job(&tokenizer);
        drop(place);
        result
    };
    match tokio::task::spawn_blocking(run).await {
        Ok(result) => result,
        Err(error) => {
            tracing::error!(%error, "Tokenising a prompt failed.");
            Err(Failure::internal("The prompt could not be tokenised."))
        }
    }
}

/// Renders a conversation and tokenises it. The template writes the special tokens itself.
pub(super) fn chat(
    tokenizer: &Tokenizer,
    conversation: Conversation,
    now_unix: f64,
) -> Result<Vec<TokenId>, Failure> {
    let Conversation { messages, add_generation_prompt, template_kwargs } = conversation;
    let options =
        RenderOptions { add_generation_prompt, tools: None, kwargs: template_kwargs, now_unix };
    let text = tokenizer
        .chat_template()
        .and_then(|template| template.render(&messages, &options))
        .map_err(template_failure)?;
    encode(tokenizer, &text, false, "messages")
}

/// What the template does not accept is the request's fault; that there is none, too: the client
/// can use completions.
fn template_failure(error: TemplateError) -> Failure {
    match error {
        TemplateError::Absent => {
            ApiError::unsupported("messages", "the model has no chat template; use completions")
                .into()
        }
        TemplateError::Syntax(_) | TemplateError::Raised(_) | TemplateError::Render(_) => {
            ApiError::invalid("messages", format!("messages: {error}")).into()
        }
    }
}

fn plain(tokenizer: &Tokenizer, prompt: Prompt, echo: Echo) -> Result<Tokenized, Failure> {
    let (text, tokens) = match prompt {
        Prompt::Text(text) => {
            let tokens = encode(tokenizer, &text, true, "prompt")?;
            (text, tokens)
        }
        Prompt::Tokens(tokens) if echo == Echo::No => (String::new(), tokens),
        Prompt::Tokens(tokens) => {
            let text = tokenizer.decode(&tokens, true).map_err(|error| wrong("prompt", &error))?;
            (text, tokens)
        }
    };
    Ok(match echo {
        Echo::No => Tokenized { tokens, echo: String::new(), scored_echo: None },
        Echo::Text => Tokenized { tokens, echo: text, scored_echo: None },
        Echo::Scored => {
            let scored_echo = Some(PromptEcho::new(tokenizer, &text, &tokens));
            Tokenized { tokens, echo: String::new(), scored_echo }
        }
    })
}

/// Tokenises a text.
pub(super) fn encode(
    tokenizer: &Tokenizer,
    text: &str,
    special: bool,
    param: &str,
) -> Result<Vec<TokenId>, Failure> {
    tokenizer.encode(text, special).map_err(|error| wrong(param, &error))
}

/// A text or an id that the tokenizer does not take.
pub(super) fn wrong(param: &str, error: &tokenizer::TokenizerError) -> Failure {
    ApiError::invalid(param, format!("{param}: {error}")).into()
}
