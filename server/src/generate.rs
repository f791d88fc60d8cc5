//! From admitted prompts to a stream of events: the front door's side of the engine.
//!
//! It knows neither HTTP nor JSON. Dropping a [`Generation`] gives up whatever still runs.

pub mod assemble;
pub mod echo;
pub mod sink;

use std::sync::Arc;

use admission::QueuePermit;
use engine::{AbortReason, Handle, Namespace, Submission, SubmitError};
use model::SamplingParams;
use tokenizer::Tokenizer;
use tokio::sync::mpsc;
use transfer::Offered;
use types::{RequestId, Time, TokenId};

use assemble::{Assembler, CallSearch, Shape};
use echo::PromptEcho;
use sink::{Event, News, Outlet};

use crate::structured::Compiled;

/// One choice of a response, ready to run.
#[derive(Debug)]
pub struct Planned {
    /// Its name.
    pub id: RequestId,
    /// Its place in the queue, charged with the prompt.
    pub permit: QueuePermit,
    /// The prompt.
    pub prompt: Vec<TokenId>,
    /// How its tokens are chosen.
    pub sampling: SamplingParams,
    /// Most tokens to generate.
    pub max_tokens: usize,
    /// The prompt, where the answer begins with it and with its log-probabilities.
    pub echo: Option<PromptEcho>,
    /// The transfer of the prompt's KV, where another worker computes it.
    pub remote: Option<Offered>,
}

/// What all choices of a response have in common.
#[derive(Debug)]
pub struct Common {
    /// Tokens that end an answer.
    pub stop_tokens: Vec<TokenId>,
    /// Strings that end an answer.
    pub stops: Vec<String>,
    /// None of them counts in the text of so many first tokens.
    pub min_tokens: usize,
    /// Whether log-probabilities, where asked for, include that of the stop token.
    pub stop_logprob: bool,
    /// The form of the answers, where they have one.
    pub compiled: Option<Compiled>,
    /// How calls of tools are found, where they are looked for.
    pub calls: Option<CallSearch>,
    /// Whose it is.
    pub tenant: Option<Arc<str>>,
    /// With whom it may share cached pages.
    pub namespace: Namespace,
    /// Whether it is sent token by token.
    pub streaming: bool,
    /// When the request arrived.
    pub arrived: Time,
    /// When its prompts were tokens.
    pub tokenized: Time,
}

/// A response being made. Its choices are numbered in the order they were planned.
#[derive(Debug)]
pub struct Generation {
    events: mpsc::Receiver<Event>,
    running: Running,
}

/// Aborts what still runs when dropped.
#[derive(Debug)]
struct Running {
    engine: Handle,
    ids: Vec<RequestId>,
    /// Choices that have not ended.
    open: usize,
}

impl Generation {
    /// Hands all choices to the engine, or none.
    ///
    /// # Errors
    /// The engine takes nothing any more, or not all of them now.
    pub fn start(
        engine: &Handle,
        tokenizer: &Arc<Tokenizer>,
        unsent: usize,
        common: &Common,
        choices: Vec<Planned>,
    ) -> Result<Self, SubmitError> {
        let (outlet, events) = Outlet::new(unsent, choices.len());
        let mut submissions = Vec::with_capacity(choices.len());
        for (index, planned) in choices.into_iter().enumerate() {
            let Planned { id, permit, prompt, sampling, max_tokens, echo, remote } = planned;
            let prompt_logprobs = echo.is_some();
            let shape = Shape {
                stops: &common.stops,
                min_tokens: common.min_tokens,
                logprobs: sampling.logprobs.is_some(),
                stop_logprob: common.stop_logprob,
                echo,
                calls: common.calls.as_ref(),
            };
            let compiled = common.compiled.as_ref();
            let constraint = compiled.map(|form| form.constraint(&common.stop_tokens));
            let assembler = Assembler::new(tokenizer, shape);
            let follower = engine.follow(&common.namespace, &prompt);
            submissions.push(Submission {
                id,
                permit,
                prompt,
                tenant: common.tenant.clone(),
                namespace: common.namespace.clone(),
                prompt_logprobs,
                sampling,
                constraint,
                follower,
                max_tokens,
                stop_tokens: common.stop_tokens.clone(),
                remote: remote.map(|offered| offered.landing),
                send: None,
                sink: Box::new(outlet.sink(index, assembler, common.streaming)),
                streaming: common.streaming,
                arrived: common.arrived,
                tokenized: common.tokenized,
            });
        }
        let ids: Vec<_> = submissions.iter().map(|submission| submission.id).collect();
        engine.submit_all(submissions).map_err(|refused| refused.error)?;
        let running = Running { engine: engine.clone(), open: ids.len(), ids };
        Ok(Self { events, running })
    }

    /// A response whose events come from elsewhere.
    #[cfg(test)]
    pub(crate) fn of(engine: Handle, events: mpsc::Receiver<Event>, open: usize) -> Self {
        Self { events, running: Running { engine, ids: Vec::new(), open } }
    }

    /// The next event; `None` when all choices have ended, or when what is left of them never
    /// will: [`is_finished`](Self::is_finished) tells.
    pub async fn next(&mut self) -> Option<Event> {
        if self.running.open == 0 {
            return None;
        }
        let event = self.events.recv().await?;
        self.running.note(&event);
        Some(event)
    }

    /// An event that is there already.
    pub fn ready(&mut self) -> Option<Event> {
        let event = self.events.try_recv().ok()?;
        self.running.note(&event);
        Some(event)
    }

    /// Whether every choice has ended. An end that was lost on its way, as by a panic, is none.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.running.open == 0
    }
}

impl Running {
    /// Counts the ends, and nothing else.
    fn note(&mut self, event: &Event) {
        match event.news {
            News::Delta(_) => {}
            News::End(_) => self.open = self.open.saturating_sub(1),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.open == 0 {
            return;
        }
        for id in &self.ids {
            self.engine.abort(*id, AbortReason::ClientGone);
        }
    }
}
