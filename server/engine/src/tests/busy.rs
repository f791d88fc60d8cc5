//! How long each rank computed reaches the observer.

use model::{Batch, Logits, ModelRunner, ModelSpec, RunError};

use super::*;

/// A runner of two ranks that compute for some milliseconds per token.
struct Ranks(FakeRunner, [Duration; 2]);

fn busy(tokens: usize) -> [Duration; 2] {
    [1, 3].map(|times| Duration::from_millis(times * tokens as u64))
}

impl ModelRunner for Ranks {
    fn spec(&self) -> &ModelSpec {
        self.0.spec()
    }

    fn allocate(&mut self, pages: &[usize]) -> Result<(), RunError> {
        self.0.allocate(pages)
    }

    fn execute(&mut self, batch: &Batch, logits: &mut Logits) -> Result<(), RunError> {
        self.1 = busy(batch.tokens.len());
        self.0.execute(batch, logits)
    }

    fn busy(&self) -> &[Duration] {
        &self.1
    }
}

struct Busy(Sender<(usize, Vec<Duration>)>);

impl Observer for Busy {
    fn on_step(&mut self, stats: &StepStats<'_>) {
        // The test may be over.
        drop(self.0.send((stats.tokens, stats.rank_busy.to_vec())));
    }

    fn on_request_end(&mut self, _: &RequestEnd) {}
}

#[test]
fn every_step_tells_how_long_each_rank_computed() {
    let clock = Clock::start();
    let limits = Limits {
        max_queued_requests: 8,
        max_queued_tokens: None,
        ttft_objective: Duration::from_secs(30),
    };
    let admission = AdmissionController::new(limits, 1000.0);
    let runner = Ranks(FakeRunner::new(FakeOptions::default()), [Duration::ZERO; 2]);
    let prepared = prepare(bounds(), Box::new(runner), None).expect("good bounds");
    let (sender, steps) = channel();
    let observer = Box::new(Busy(sender));
    let (handle, join) = prepared.spawn(Arc::clone(&admission), observer, clock).expect("a thread");
    let (asked, ears) = submission(&admission, clock.now(), 1, &[5; 20], 4);
    handle.submit(asked).expect("accepted");
    ears.end();
    handle.shutdown();
    join.join().expect("the thread ends without a panic");
    let (ran, idle): (Vec<_>, Vec<_>) = steps.iter().partition(|(tokens, _)| *tokens > 0);
    assert!(ran.len() >= 4, "{ran:?}");
    assert!(ran.iter().all(|(tokens, found)| *found == busy(*tokens)), "{ran:?}");
    assert!(idle.iter().all(|(_, found)| found.is_empty()), "{idle:?}");
}
