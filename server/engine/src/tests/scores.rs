//! Log-probabilities of prompts, against one forward pass over the whole prompt and double
//! precision.

use model::{Batch, Logits, ModelRunner, PageList};
use types::PageId;

use super::*;
use crate::PromptLogprob;
use crate::scores::rows_per_step;

/// What a sink heard of a prompt: place, token, log-probability, alternatives.
type Heard = Vec<(usize, TokenId, f32, Vec<(TokenId, f32)>)>;

/// What it does at one place.
#[derive(Clone, Copy)]
enum At {
    Never,
    Leave(usize),
    Panic(usize),
}

struct Scored {
    heard: Heard,
    answer: Vec<TokenId>,
    at: At,
    end: Sender<(Heard, Vec<TokenId>, RequestEnd)>,
}

impl Sink for Scored {
    fn token(&mut self, event: &TokenEvent<'_>) -> Verdict {
        self.answer.push(event.token);
        Verdict::Continue
    }

    fn prompt_logprob(&mut self, event: &PromptLogprob<'_>) -> Verdict {
        assert!(self.answer.is_empty(), "the prompt comes before the answer");
        self.heard.push((event.index, event.token, event.logprob, event.top.to_vec()));
        match self.at {
            At::Leave(at) if at == event.index => Verdict::Gone,
            At::Panic(at) if at == event.index => std::panic::resume_unwind(Box::new("planned")),
            At::Leave(_) | At::Panic(_) | At::Never => Verdict::Continue,
        }
    }

    fn finish(self: Box<Self>, end: &RequestEnd) {
        self.end.send((self.heard, self.answer, end.clone())).expect("the test waits for the end");
    }
}

/// A core whose turns the test makes.
struct Turns {
    core: crate::step::Core,
    handle: Handle,
    admission: Arc<AdmissionController>,
    steps: Receiver<(StepPhase, Time)>,
}

impl Turns {
    fn new(options: FakeOptions, config: EngineConfig) -> Self {
        let limits = Limits {
            max_queued_requests: 0,
            max_queued_tokens: Some(0),
            ttft_objective: Duration::ZERO,
        };
        let admission = AdmissionController::new(limits, 1.0);
        let prepared =
            prepare(config, Box::new(FakeRunner::new(options)), None).expect("good bounds");
        let (sender, steps) = channel();
        let time = Box::new(Modelled(Time::ZERO));
        let observer = Box::new(Steps(sender));
        let (core, handle) = prepared.into_core(Arc::clone(&admission), observer, time);
        Self { core, handle, admission, steps }
    }

    fn submit(
        &self,
        id: u64,
        prompt: &[TokenId],
        max_tokens: usize,
        at: At,
    ) -> Receiver<(Heard, Vec<TokenId>, RequestEnd)> {
        let ids: Vec<u32> = prompt.iter().map(|token| token.0).collect();
        let (mut submission, _) = submission(&self.admission, Time::ZERO, id, &ids, max_tokens);
        let (end, ends) = channel();
        submission.prompt_logprobs = true;
        submission.sampling.logprobs = Some(2);
        submission.sink = Box::new(Scored { heard: Vec::new(), answer: Vec::new(), at, end });
        self.handle.submit(submission).expect("accepted");
        ends
    }

    /// Turns until everything has ended.
    fn run(&mut self) {
        for _ in 0..2000 {
            self.core.turn();
            if self.core.scheduler.is_empty() {
                return;
            }
        }
        panic!("requests are left");
    }
}

fn prompt(len: usize, seed: usize) -> Vec<TokenId> {
    (0..len).map(|at| TokenId(((at * 7919 + seed * 31) % 500) as u32)).collect()
}

/// The log-probabilities of a prompt's tokens from one pass over all of it.
fn independent(options: &FakeOptions, prompt: &[TokenId]) -> Vec<f64> {
    let mut runner = FakeRunner::new(options.clone());
    let pages = prompt.len().div_ceil(options.page_tokens);
    runner.allocate(&[pages]).expect("a small pool");
    let pages: Vec<_> = (0..pages as u32).map(PageId).collect();
    let (mut batch, mut logits) = (Batch::default(), Logits::new());
    batch.push(prompt, 0, prompt.len(), [PageList::whole(&pages)]);
    runner.execute(&batch, &mut logits).expect("the fake model runs");
    let score = |at: usize| {
        let row = logits.row(at);
        let total: f64 = row.iter().map(|x| f64::from(*x).exp()).sum();
        f64::from(row[prompt[at + 1].index()]) - total.ln()
    };
    (0..prompt.len() - 1).map(score).collect()
}

fn check(heard: &Heard, options: &FakeOptions, prompt: &[TokenId]) {
    let expect = independent(options, prompt);
    let places: Vec<usize> = heard.iter().map(|(index, ..)| *index).collect();
    assert_eq!(places, (1..prompt.len()).collect::<Vec<_>>(), "each token but the first, once");
    for ((index, token, logprob, top), expect) in heard.iter().zip(&expect) {
        assert_eq!(*token, prompt[*index]);
        assert!((f64::from(*logprob) - expect).abs() < 1e-4, "{index}: {logprob}, {expect}");
        assert_eq!(top.len(), 2);
        assert!(top[0].1 >= top[1].1 && top[0].1 >= *logprob);
    }
}

#[test]
fn a_prompt_is_scored_as_by_one_pass_however_it_is_cut() {
    let options = FakeOptions { seed: 5, ..FakeOptions::default() };
    for chunk in [1, 7, 32] {
        let config = EngineConfig { prefill_chunk: chunk, ..bounds() };
        let mut turns = Turns::new(options.clone(), config);
        let prompts = [prompt(50, 1), prompt(2, 2), prompt(1, 3), prompt(33, 4)];
        let ends: Vec<_> = (0..)
            .zip(&prompts)
            .map(|(id, prompt)| turns.submit(id, prompt, usize::from(id % 2 == 0), At::Never))
            .collect();
        turns.run();
        for ((ends, prompt), answer) in ends.iter().zip(&prompts).zip([1, 0, 1, 0]) {
            let (heard, tokens, end) = ends.try_recv().expect("it has ended");
            check(&heard, &options, prompt);
            assert_eq!((end.outcome, end.generated_tokens), (Outcome::Length, answer));
            let expect = FakeRunner::next_token(&options, prompt);
            assert_eq!(tokens, vec![expect; answer]);
        }
    }
}

#[test]
fn a_retraction_scores_no_token_twice() {
    let options = FakeOptions::default();
    let config = EngineConfig { max_batch_tokens: 4, max_running: 2, ..bounds() };
    let mut turns = Turns::new(options.clone(), config);
    // One answer and one prompt grow by turns until the pool of 256 tokens is full.
    let (long, scored) = (prompt(1, 1), prompt(220, 2));
    let _older = turns.submit(1, &long, 200, At::Never);
    let ends = turns.submit(2, &scored, 1, At::Never);
    turns.run();
    let (heard, answer, end) = ends.try_recv().expect("it has ended");
    assert!(end.preemptions > 0 && end.recomputed_tokens > 0, "it was in the way: {end:?}");
    check(&heard, &options, &scored);
    assert_eq!(answer, [FakeRunner::next_token(&options, &scored)]);
}

#[test]
fn a_step_scores_no_more_than_its_share_of_logits() {
    assert_eq!(
        (rows_per_step(131_072), rows_per_step(usize::MAX), rows_per_step(0)),
        (128, 1, 16_777_216)
    );
    // 16 rows of a million logits.
    let options = FakeOptions { vocab: 1 << 20, ..FakeOptions::default() };
    let mut turns = Turns::new(options.clone(), bounds());
    let prompts = [prompt(20, 1), prompt(20, 2)];
    let ends = [0, 1].map(|at| turns.submit(at, &prompts[at as usize], 0, At::Never));
    turns.run();
    let phases = turns.steps.try_iter().filter(|(phase, _)| *phase == StepPhase::Prefill);
    assert_eq!(phases.count(), 3, "40 tokens, 16 at a time");
    for (ends, prompt) in ends.iter().zip(&prompts) {
        check(&ends.try_recv().expect("it has ended").0, &options, prompt);
    }
}

#[test]
fn who_leaves_or_panics_at_the_prompt_ends_there() {
    let mut turns = Turns::new(FakeOptions::default(), bounds());
    let gone = turns.submit(1, &prompt(30, 1), 5, At::Leave(9));
    let panics = turns.submit(2, &prompt(30, 2), 5, At::Panic(29));
    let other = turns.submit(3, &prompt(30, 3), 5, At::Never);
    turns.run();
    let (heard, answer, end) = gone.try_recv().expect("it has ended");
    let abort = Abort { stage: Stage::Prefill, reason: AbortReason::ClientGone };
    assert_eq!((heard.len(), answer.len(), end.outcome), (9, 0, Outcome::Aborted(abort)));
    let (_, answer, end) = panics.try_recv().expect("it has ended");
    assert_eq!((answer.len(), end.outcome), (0, Outcome::Error(RequestError::Sink)));
    assert_eq!(other.try_recv().expect("it has ended").2.outcome, Outcome::Length);
}

#[test]
fn no_answer_wanted_ends_with_the_prompt() {
    let mut turns = Turns::new(FakeOptions::default(), bounds());
    let (submission, ears) = submission(&turns.admission, Time::ZERO, 1, &[1; 40], 0);
    turns.handle.submit(submission).expect("accepted");
    turns.run();
    let (tokens, end) = ears.end();
    assert_eq!((tokens.len(), end.outcome, end.generated_tokens), (0, Outcome::Length, 0));
    assert_eq!((end.timings.ttft(), turns.admission.snapshot(Time::ZERO).requests), (None, 0));
}
