//! From a parsed body to prompts in tokens: templates and tokenisation, on a small bounded pool.

use std::sync::Arc;

use admission::Outlook;
use protocol::{
    ApiError, ChatMessage, ChatParams, CompletionParams, Generation, Limits, Prompt, Structure,
    Tools,
};
use serde_json::{Map, Value};
use tokenizer::{RenderOptions, TemplateError, Tokenizer};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use types::TokenId;

use super::error::Failure;
use super::glance::{Glance, Look, Seen};
use super::{Api, Serving, tools};
use crate::cli::ToolCallParser;
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

/// What is to be tokenised: prompts as they were sent, and conversations as text.
struct Ready {
    prompts: Vec<Prompt>,
    /// A conversation, whose text holds its special tokens already.
    chat: bool,
    echo: Echo,
    wanted: Option<Wanted>,
    calls: Option<CallSearch>,
}

impl Ready {
    fn look(&self) -> Option<Look<'_>> {
        Look::first(&self.prompts).map(|look| match look {
            Look::Text(text, _) => Look::Text(text, !self.chat),
            Look::Tokens(tokens) => Look::Tokens(tokens),
        })
    }
}

/// Who waits with a prompt: how it is looked at, and its first place in the queue.
pub(super) type AtTheDoor = Option<(Glance, Outlook)>;

impl Api {
    /// The tokens of each prompt of `input`, and the compiled form of the answers. What `door`
    /// finds to be refused is, before it is tokenised and before it waits for a place to be.
    pub(super) async fn prepare(
        &self,
        serving: &Serving,
        input: Input,
        echo: Echo,
        structure: Option<Structure>,
        door: AtTheDoor,
    ) -> Result<Prepared, Failure> {
        let now_unix = self.clock.unix_seconds(self.clock.now());
        let (parser, vocab) = (self.tool_call_parser, serving.spec.vocab);
        let ready = move |tokenizer: &Tokenizer, door: &AtTheDoor, thorough| {
            let ready = ready(tokenizer, input, (echo, structure, parser), now_unix)?;
            let seen = match (door, ready.look()) {
                (Some((glance, outlook)), Some(look)) => {
                    glance.look(tokenizer, look, outlook, thorough)?
                }
                (_, _) => Seen::default(),
            };
            Ok::<_, Failure>((ready, seen))
        };
        let (structures, stretch) = (serving.structures.clone(), Arc::clone(&self.stretch));
        let finish = move |tokenizer: &Arc<Tokenizer>, ready: Ready, seen: Seen| {
            let prepared =
                finish(tokenizer, ready, |wanted| structures.compile(tokenizer, vocab, wanted))?;
            let first = prepared.prompts.first().map_or(0, |prompt| prompt.tokens.len());
            stretch.learn(seen.tokens, first);
            Ok::<_, Failure>(prepared)
        };
        // At most `--tokenizer-threads` at a time, in order.
        if let Ok(place) = Arc::clone(&self.tokenizing).try_acquire_owned() {
            return on_a_thread(place, serving, move |tokenizer| {
                let (ready, seen) = ready(tokenizer, &door, false)?;
                finish(tokenizer, ready, seen)
            })
            .await;
        }
        let looked = tokenize(&self.glancing, serving, move |tokenizer| {
            let looked = ready(tokenizer, &door, true);
            looked.map(|(ready, seen)| (ready, seen, door))
        });
        let (ready, seen, door) = looked.await?;
        tokenize(&self.tokenizing, serving, move |tokenizer| {
            // Others were charged meanwhile.
            if let Some((glance, outlook)) = door.filter(|_| seen.tokens > 0) {
                glance.tell(&outlook, seen)?;
            }
            finish(tokenizer, ready, seen)
        })
        .await
    }
}

/// Everything but tokens.
fn ready(
    tokenizer: &Tokenizer,
    input: Input,
    (echo, structure, parser): (Echo, Option<Structure>, ToolCallParser),
    now_unix: f64,
) -> Result<Ready, Failure> {
    let mut wanted = structure.map(Wanted::Form);
    let conversation = match input {
        Input::Prompts(prompts) => {
            return Ok(Ready { prompts, chat: false, echo, wanted, calls: None });
        }
        Input::Chat(conversation) => conversation,
    };
    let template = tokenizer.chat_template().map_err(template_failure)?;
    let offered = &conversation.tools;
    let plan = tools::plan(template, offered, parser)?;
    if let (Some(Wanted::Form(form)), true) = (&wanted, offered.is_active()) {
        return Err(not_with_tools(&form.path).into());
    }
    wanted = wanted.or_else(|| tools::forced(offered, plan));
    let calls = plan.format.map(|format| CallSearch {
        format,
        names: offered.offered.iter().map(|tool| tool.name.clone()).collect(),
        single: !offered.parallel,
    });
    let prompts = vec![Prompt::Text(render(tokenizer, conversation, Some(plan), now_unix)?)];
    Ok(Ready { prompts, chat: true, echo, wanted, calls })
}

/// Tokens, and the compiled form of the answers.
fn finish(
    tokenizer: &Tokenizer,
    ready: Ready,
    compile: impl Fn(&Wanted) -> Result<Compiled, ApiError>,
) -> Result<Prepared, Failure> {
    let Ready { prompts, chat, echo, wanted, calls } = ready;
    let prompts = prompts.into_iter().map(|prompt| match prompt {
        Prompt::Text(text) if chat => {
            let tokens = encode(tokenizer, &text, false, "messages")?;
            Ok(Tokenized { tokens, echo: String::new(), scored_echo: None })
        }
        prompt @ (Prompt::Text(_) | Prompt::Tokens(_)) => plain(tokenizer, prompt, echo),
    });
    let prompts = prompts.collect::<Result<_, Failure>>()?;
    let compiled = wanted.as_ref().map(compile).transpose()?;
    Ok(Prepared { prompts, compiled, calls })
}

/// Runs `job` on a thread that may block, once one of `places` is free; they are given in order.
pub(super) async fn tokenize<T: Send + 'static>(
    places: &Arc<Semaphore>,
    serving: &Serving,
    job: impl FnOnce(&Arc<Tokenizer>) -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let place = Arc::clone(places).acquire_owned().await;
    // Nobody closes them.
    let place = place.map_err(|_| Failure::internal("The server takes no prompts any more."))?;
    on_a_thread(place, serving, job).await
}

/// Runs `job` on a thread that may block, with its place.
async fn on_a_thread<T: Send + 'static>(
    place: OwnedSemaphorePermit,
    serving: &Serving,
    job: impl FnOnce(&Arc<Tokenizer>) -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
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

/// Renders a conversation without tools and tokenises it.
pub(super) fn chat(
    tokenizer: &Tokenizer,
    conversation: Conversation,
    now_unix: f64,
) -> Result<Vec<TokenId>, Failure> {
    let text = render(tokenizer, conversation, None, now_unix)?;
    encode(tokenizer, &text, false, "messages")
}

/// A conversation as text, special tokens included. Without a plan there are no tools.
fn render(
    tokenizer: &Tokenizer,
    conversation: Conversation,
    plan: Option<tools::Plan>,
    now_unix: f64,
) -> Result<String, Failure> {
    let Conversation { mut messages, add_generation_prompt, tools, template_kwargs } = conversation;
    let template = tokenizer.chat_template().map_err(template_failure)?;
    let plan = plan.unwrap_or(tools::Plan { format: None, shown: template.shows_tools() });
    tools::adapt(&mut messages, template, &tools, plan);
    let tools = tools::definitions(&tools, plan);
    let options = RenderOptions { add_generation_prompt, tools, kwargs: template_kwargs, now_unix };
    template.render(&messages, &options).map_err(template_failure)
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
