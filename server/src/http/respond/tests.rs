//! Answers whose engine side breaks off.

use std::time::Duration;

use engine::{RequestEnd, Sink, Timings};
use protocol::Envelope;
use types::{RequestId, Time};

use super::*;
use crate::generate::assemble::{Assembler, Shape};
use crate::generate::sink::{ChoiceSink, Outlet};
use crate::tests::rig::{Answer, Rig};

/// A response of two answers, and the sinks that feed it.
fn response(rig: &Rig, stream: bool) -> (Accepted, Vec<ChoiceSink>) {
    let serving = rig.serving();
    let (outlet, events) = Outlet::new(8, 2);
    let shape = || Shape {
        stops: &[],
        min_tokens: 0,
        logprobs: false,
        stop_logprob: false,
        echo: None,
        calls: None,
    };
    let assembler = || Assembler::new(&serving.tokenizer, shape());
    let sinks = (0..2).map(|choice| outlet.sink(choice, assembler(), stream)).collect();
    let envelope = Envelope { id: "cmpl-1".to_owned(), created: 0, model: "fake".to_owned() };
    let accepted = Accepted {
        events: Generation::of(serving.engine.clone(), events, 2),
        endpoint: Endpoint::Completions,
        envelope,
        tally: Tally::new([1].into_iter(), 2),
        echoes: vec![String::new(); 2],
        stream,
        include_usage: false,
        status: FinalStatus::default(),
        peer: None,
    };
    (accepted, sinks)
}

fn end(outcome: Outcome) -> RequestEnd {
    let timings = Timings {
        arrived: Time::ZERO,
        tokenized: Time::ZERO,
        scheduled: None,
        first_token: None,
        last_token: None,
        ended: Time::ZERO,
        queued: Duration::ZERO,
        bootstrap: Duration::ZERO,
        remote: None,
    };
    RequestEnd {
        id: RequestId(1),
        outcome,
        tool_calls: false,
        priority: types::Priority::NORMAL,
        streaming: true,
        prompt_tokens: 1,
        generated_tokens: 3,
        cached_tokens: 0,
        remote_tokens: 0,
        recomputed_tokens: 0,
        preemptions: 0,
        timings,
    }
}

/// A sink that panics at its end drops what it has, its end included.
#[tokio::test]
async fn an_end_that_is_lost_is_an_error_and_never_done() {
    let rig = Rig::new("--model fake:step=0ms");
    for lost in [0, 1] {
        for stream in [true, false] {
            let (accepted, mut sinks) = response(&rig, stream);
            drop(sinks.remove(lost));
            Box::new(sinks.remove(0)).finish(&end(Outcome::Length));
            let answer = Answer::read(respond(accepted).await).await;
            let text = answer.text();
            assert!(text.contains("The engine ended before the answer was complete."), "{text}");
            assert!(!text.contains("[DONE]"), "{text}");
            assert_eq!(answer.status.as_u16(), if stream { 200 } else { 500 });
        }
    }
}

#[tokio::test]
async fn all_ends_are_done() {
    let rig = Rig::new("--model fake:step=0ms");
    let (accepted, sinks) = response(&rig, true);
    for sink in sinks {
        Box::new(sink).finish(&end(Outcome::Length));
    }
    let (events, done) = Answer::read(respond(accepted).await).await.events();
    assert!(done);
    let reasons = events.iter().filter(|event| event["choices"][0]["finish_reason"] == "length");
    assert_eq!(reasons.count(), 2);
}
