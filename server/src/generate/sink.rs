//! The engine's side of a response: tokens become visible text on the engine's thread and go into
//! a bounded channel. It never waits: a full channel means a client that does not read.

use engine::{Finish, Outcome, PromptLogprob, RequestEnd, Sink, TokenEvent, Verdict};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use super::assemble::{Assembler, Chosen, Delta};

/// Something that one choice of a response tells.
#[derive(Debug)]
pub struct Event {
    /// The index of the choice.
    pub choice: usize,
    /// What happened.
    pub news: News,
}

/// What happened to a choice.
#[derive(Debug)]
pub enum News {
    /// More of it is visible.
    Delta(Delta),
    /// It has ended, after this last part.
    End(Box<End>),
}

/// The end of a choice.
#[derive(Debug)]
pub struct End {
    /// What became visible at the end; the whole answer, where it was not streamed.
    pub rest: Delta,
    /// How it ended.
    pub outcome: Outcome,
    /// Whether it ended with calls of tools.
    pub tool_calls: bool,
    /// Tokens generated.
    pub generated_tokens: usize,
    /// Tokens of the prompt that were not computed again.
    pub cached_tokens: usize,
}

/// Feeds one choice of a response.
pub struct ChoiceSink {
    choice: usize,
    assembler: Assembler,
    /// The answer so far, where it is sent as a whole.
    whole: Option<Delta>,
    events: mpsc::Sender<Event>,
    /// The place of the end, reserved so that a full channel cannot lose it.
    last: mpsc::OwnedPermit<Event>,
}

/// The ends of a channel for the sinks of a response.
pub struct Outlet {
    events: mpsc::Sender<Event>,
}

impl Outlet {
    /// A channel for `unsent` deltas and the ends of `choices` choices.
    #[must_use]
    pub fn new(unsent: usize, choices: usize) -> (Self, mpsc::Receiver<Event>) {
        let (events, receiver) = mpsc::channel(unsent + choices);
        (Self { events }, receiver)
    }

    /// The sink of one choice. Call it for all choices before any of them is submitted.
    ///
    /// # Panics
    /// When called for more choices than the channel was made for.
    #[must_use]
    pub fn sink(&self, choice: usize, assembler: Assembler, streaming: bool) -> ChoiceSink {
        let reserved = self.events.clone().try_reserve_owned();
        let last = reserved.expect("the channel has a place for the end of each choice");
        let whole = (!streaming).then(Delta::default);
        ChoiceSink { choice, assembler, whole, events: self.events.clone(), last }
    }
}

impl ChoiceSink {
    fn show(&mut self, delta: Delta) -> Verdict {
        if let Some(whole) = &mut self.whole {
            whole.extend(delta);
            return if self.events.is_closed() { Verdict::Gone } else { Verdict::Continue };
        }
        if delta.is_empty() {
            return if self.events.is_closed() { Verdict::Gone } else { Verdict::Continue };
        }
        let event = Event { choice: self.choice, news: News::Delta(delta) };
        match self.events.try_send(event) {
            Ok(()) => Verdict::Continue,
            Err(TrySendError::Full(_)) => Verdict::Slow,
            Err(TrySendError::Closed(_)) => Verdict::Gone,
        }
    }
}

impl Sink for ChoiceSink {
    fn token(&mut self, event: &TokenEvent<'_>) -> Verdict {
        let chosen = Chosen { token: event.token, logprob: event.logprob, top: event.top };
        // A stop token ends the answer and is not part of its text.
        if event.finish == Some(Finish::Stop) {
            self.assembler.push_stop(chosen);
            return Verdict::Continue;
        }
        let (delta, stopped) = self.assembler.push(chosen);
        let verdict = self.show(delta);
        if verdict == Verdict::Continue && stopped { Verdict::Stop } else { verdict }
    }

    fn prompt_logprob(&mut self, event: &PromptLogprob<'_>) -> Verdict {
        self.assembler.push_prompt(event.index, Some(event.logprob), event.top);
        if self.events.is_closed() { Verdict::Gone } else { Verdict::Continue }
    }

    fn called_tools(&self) -> bool {
        self.assembler.calls() > 0
    }

    fn finish(self: Box<Self>, end: &RequestEnd) {
        let Self { choice, mut assembler, whole, last, .. } = *self;
        let mut rest = whole.unwrap_or_default();
        rest.extend(assembler.finish());
        let end = End {
            rest,
            outcome: end.outcome.clone(),
            tool_calls: end.tool_calls,
            generated_tokens: end.generated_tokens,
            cached_tokens: end.cached_tokens,
        };
        // Whether anybody still listens does not matter any more. The sender that comes back is
        // one of the channel's own.
        drop(last.send(Event { choice, news: News::End(Box::new(end)) }));
    }
}
