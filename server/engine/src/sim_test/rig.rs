//! The engine's surroundings in a simulation: virtual time, a model with faults.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use model::{
    Batch, FakeOptions, Logits, ModelRunner, ModelSpec, RunError, Sampled, Sampler, SamplingParams,
};
use types::{Time, TokenId};

use crate::TimeSource;
use crate::witness::Witness;

/// Nanoseconds that only the simulation moves; reading it costs a little, as with real clocks.
#[derive(Debug, Clone, Default)]
pub(super) struct VirtualTime(Arc<AtomicU64>);

impl VirtualTime {
    pub(super) fn read(&self) -> Time {
        Time(self.0.load(Ordering::Relaxed))
    }

    pub(super) fn pass(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).expect("a short time");
        self.0.fetch_add(nanos, Ordering::Relaxed);
    }
}

impl TimeSource for VirtualTime {
    fn now(&mut self) -> Time {
        let cost = 100 + self.read().0 % 7 * 50;
        self.pass(Duration::from_nanos(cost));
        self.read()
    }

    fn modelled(&mut self, busy: Duration) {
        self.pass(busy);
    }
}

/// Switches for the model's faults; each takes effect at the next step and turns itself off.
#[derive(Debug, Default)]
pub(super) struct Faults {
    pub(super) not_a_number: AtomicBool,
    pub(super) error: AtomicBool,
    pub(super) panic: AtomicBool,
    /// Of the copier, where there is a host tier.
    pub(super) copy: Arc<AtomicBool>,
    /// How many rows were spoilt.
    pub(super) spoilt: AtomicU64,
}

/// A witness that fails on demand.
pub(super) struct FaultyRunner {
    pub(super) inner: Witness,
    pub(super) faults: Arc<Faults>,
}

impl ModelRunner for FaultyRunner {
    fn spec(&self) -> &ModelSpec {
        self.inner.spec()
    }

    fn allocate(&mut self, pages: &[usize]) -> Result<(), RunError> {
        self.inner.allocate(pages)
    }

    fn execute(&mut self, batch: &Batch, logits: &mut Logits) -> Result<(), RunError> {
        self.inner.execute(batch, logits)?;
        if self.faults.error.swap(false, Ordering::Relaxed) {
            return Err(RunError::Backend("planned".to_owned()));
        }
        if self.faults.panic.swap(false, Ordering::Relaxed) {
            std::panic::resume_unwind(Box::new("planned"));
        }
        if logits.rows() > 0 && self.faults.not_a_number.swap(false, Ordering::Relaxed) {
            let (rows, vocab) = (logits.rows(), self.inner.spec().vocab);
            let last = rows * vocab - 1;
            logits.reset(rows, vocab)[last] = f32::NAN;
            self.faults.spoilt.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn modelled_time(&self, batch: &Batch) -> Option<Duration> {
        self.inner.modelled_time(batch)
    }
}

/// The answer of `count` tokens that the model gives when nothing else runs and the prompt is
/// computed whole.
pub(super) fn alone(
    options: &FakeOptions,
    prompt: &[TokenId],
    sampling: &SamplingParams,
    count: usize,
) -> Result<Vec<TokenId>, RunError> {
    let mut tokens = prompt.to_vec();
    let mut sampler = Sampler::new(sampling.clone(), &[], None, prompt, options.vocab, 0);
    let (mut row, mut text) = (vec![0.0; options.vocab], Witness::text(prompt));
    for position in prompt.len()..prompt.len() + count {
        Witness::answer(options, text, &mut row);
        let Sampled { token, .. } = sampler.sample(&row)?;
        text = Witness::after(text, position, token);
        tokens.push(token);
    }
    Ok(tokens.split_off(prompt.len()))
}
