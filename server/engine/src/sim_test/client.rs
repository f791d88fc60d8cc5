//! A simulated client: takes tokens, misbehaves as planned, and remembers everything.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use types::{RequestId, TokenId};

use crate::{Finish, RequestEnd, Sink, TokenEvent, Verdict};

/// What a client does at one token of its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Quirk {
    StopString,
    Leaves,
    IsSlow,
    Panics,
}

/// What a client has seen.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) tokens: Vec<TokenId>,
    pub(super) verdict: Option<Verdict>,
    pub(super) finish: Option<Finish>,
    pub(super) panicked: bool,
    pub(super) end: Option<RequestEnd>,
    /// The first thing that a sink must never see.
    pub(super) wrong: Option<String>,
}

/// All clients of a world by request.
pub(super) type Clients = Arc<Mutex<HashMap<RequestId, Seen>>>;

/// The sink of one request.
pub(super) struct Client {
    pub(super) id: RequestId,
    pub(super) clients: Clients,
    pub(super) quirk: Option<(usize, Quirk)>,
}

impl Sink for Client {
    fn token(&mut self, event: &TokenEvent<'_>) -> Verdict {
        let mut clients = self.clients.lock().expect("one thread");
        let seen = clients.entry(self.id).or_default();
        if seen.end.is_some() || seen.finish.is_some() || seen.panicked {
            seen.wrong = Some("a token after the end".to_owned());
        }
        if seen.verdict.is_some_and(|verdict| verdict != Verdict::Continue) {
            seen.wrong = Some("a token after a verdict that ends".to_owned());
        }
        if event.index != seen.tokens.len() {
            seen.wrong = Some(format!("token {} at {}", event.index, seen.tokens.len()));
        }
        seen.tokens.push(event.token);
        seen.finish = event.finish;
        let verdict = match self.quirk {
            Some((at, quirk)) if at == event.index => match quirk {
                Quirk::StopString => Verdict::Stop,
                Quirk::Leaves => Verdict::Gone,
                Quirk::IsSlow => Verdict::Slow,
                Quirk::Panics => {
                    seen.panicked = true;
                    drop(clients);
                    // Unlike `panic!`, this does not print.
                    std::panic::resume_unwind(Box::new("planned"));
                }
            },
            Some(_) | None => Verdict::Continue,
        };
        seen.verdict = Some(verdict);
        verdict
    }

    fn finish(self: Box<Self>, end: &RequestEnd) {
        let mut clients = self.clients.lock().expect("one thread");
        let seen = clients.entry(self.id).or_default();
        if seen.end.replace(end.clone()).is_some() {
            seen.wrong = Some("two ends".to_owned());
        }
    }
}
