//! From a parsed body to prompts in tokens: templates and tokenisation, on a small bounded pool.

use std::sync::Arc;

use protocol::{
    ApiError, ChatMessage, ChatParams, CompletionParams, Generation, Limits, Prompt, Structure,
    Tools,
};
use serde_json::{Map, Value};
use tokenizer::{RenderOptions, TemplateError, Tokenizer};
use tokio::sync::Semaphore;
use types::TokenId;

use super::error::Failure;
use super::{Api, Serving, tools};
use crate::generate::assemble::CallSearch;
use crate::generate::echo::PromptEcho;
use crate::structured::{Compiled, Wanted};

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
    /// What the answers must look like.
    pub structure: Option<Structure>,
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
    /// What may be called.
    pub tools: Tools,
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

/// Prompts in tokens, and what is to be made of the answers.
#[derive(Debug)]
pub(super) struct Prepared {
    /// One for each prompt.
    pub prompts: Vec<Tokenized>,
    /// The form of every answer, where it has one.
    pub compiled: Option<Compiled>,
    /// How calls are found, where they are looked for.
    pub calls: Option<CallSearch>,
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
        let structure = Structure::parse(body)?;
        Ok(match endpoint {
            Endpoint::Completions => {
                let CompletionParams { model, prompts, generation, echo } =
                    CompletionParams::parse(body, limits)?;
                let echo = match (echo, generation.logprobs) {
                    (false, _) => Echo::No,
                    (true, None) => Echo::Text,
                    (true, Some(_)) => Echo::Scored,
                };
                Self { model, input: Input::Prompts(prompts), generation, echo, structure }
            }
            Endpoint::Chat => {
                let params = ChatParams::parse(body, limits)?;
                let conversation = Conversation {
                    messages: params.messages,
                    add_generation_prompt: params.add_generation_prompt,
                    tools: params.tools,
                    template_kwargs: params.template_kwargs,
                };
                let (model, generation) = (params.model, params.generation);
                let input = Input::Chat(conversation);
                Self { model, input, generation, echo: Echo::No, structure }
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
    /// The tokens of each prompt of `input`, and the compiled form of the answers.
    pub(super) async fn prepare(
        &self,
        serving: &Serving,
        input: Input,
        echo: Echo,
        structure: Option<Structure>,
    ) -> Result<Prepared, Failure> {
        let now_unix = self.clock.unix_seconds(self.clock.now());
        let (parser, vocab) = (self.tool_call_parser, serving.spec.vocab);
        let structures = serving.structures.clone();
        // At most `--tokenizer-threads` at a time, in order.
        tokenize(&self.tokenizing, serving, move |tokenizer| {
            let mut wanted = structure.map(Wanted::Form);
            let mut calls = None;
            let prompts = match input {
                Input::Chat(conversation) => {
                    let template = tokenizer.chat_template().map_err(template_failure)?;
                    let offered = &conversation.tools;
                    let plan = tools::plan(template, offered, parser)?;
                    if let (Some(Wanted::Form(form)), true) = (&wanted, offered.is_active()) {
                        return Err(not_with_tools(&form.path).into());
                    }
                    wanted = wanted.or_else(|| tools::forced(offered, plan));
                    calls = plan.format.map(|format| CallSearch {
                        format,
                        names: offered.offered.iter().map(|tool| tool.name.clone()).collect(),
                        single: !offered.parallel,
                    });
                    let tokens = chat(tokenizer, conversation, Some(plan), now_unix)?;
                    vec![Tokenized { tokens, echo: String::new(), scored_echo: None }]
                }
                Input::Prompts(prompts) => {
                    let plain = |prompt| plain(tokenizer, prompt, echo);
                    prompts.into_iter().map(plain).collect::<Result<_, _>>()?
                }
            };
            let compile = |wanted: &Wanted| structures.compile(tokenizer, vocab, wanted);
            let compiled = wanted.as_ref().map(compile).transpose()?;
            Ok(Prepared { prompts, compiled, calls })
        })
        .await
    }
}

/// Runs `job` on a thread that may block, once one of `places` is free; they are given in order.
pub(super) async fn tokenize<T: Send + 'static>(
    places: &Arc<Semaphore>,
    serving: &Serving,
    job: impl FnOnce(&Arc<Tokenizer>) -> Result<T, Failure> + Send + 'static,
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

/// An answer cannot both have a form and be free to call tools.
fn not_with_tools(path: &str) -> ApiError {
    let why = "not supported together with tools, unless tool_choice is none: the answer's form \
               would leave no room for calls";
    ApiError::unsupported(path, why)
}

/// Renders a conversation and tokenises it. The template writes the special tokens itself.
/// Without a plan there are no tools.
pub(super) fn chat(
    tokenizer: &Tokenizer,
    conversation: Conversation,
    plan: Option<tools::Plan>,
    now_unix: f64,
) -> Result<Vec<TokenId>, Failure> {
    let Conversation { mut messages, add_generation_prompt, tools, template_kwargs } = conversation;
    let template = tokenizer.chat_template().map_err(template_failure)?;
    let plan = plan.unwrap_or(tools::Plan { format: None, shown: template.shows_tools() });
    tools::adapt(&mut messages, template, &tools, plan);
    let tools = tools::definitions(&tools, plan);
    let options = RenderOptions { add_generation_prompt, tools, kwargs: template_kwargs, now_unix };
    let text = template.render(&messages, &options).map_err(template_failure)?;
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
