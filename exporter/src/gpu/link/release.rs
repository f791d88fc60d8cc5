//! Those who asked for the cards and wait until nobody holds them.

use std::time::Duration;

use tokio::sync::oneshot;

use crate::slot::Now;

/// Who may wait at a time.
const WAITING_MAX: usize = 4;

/// Why cards were not let go.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotReleased {
    /// There is nothing to let go of, ever.
    #[error("{0}")]
    Impossible(String),
    /// They are still held, or held again.
    #[error("{0}")]
    Held(String),
    /// The worker did not end in time; it may yet.
    #[error("{0}")]
    Late(String),
}

/// Who holds the cards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Holder {
    /// Nobody: every worker has ended.
    Nobody,
    /// The worker with this process id, which is to end.
    Worker(u32),
    /// One that could not even be killed.
    Stuck(u32),
}

/// Where the answer goes: for how long the cards are left alone.
pub(super) type Answer = oneshot::Sender<Result<Duration, NotReleased>>;

#[derive(Debug)]
struct Waiter {
    answer: Answer,
    since: Now,
}

/// Everybody who waits. They hear as soon as it is known, and after `patience` in any case.
#[derive(Debug)]
pub(super) struct Waiting {
    waiters: Vec<Waiter>,
    patience: Duration,
    /// How long the cards are left alone once they are free.
    time: Duration,
}

impl Waiting {
    pub(super) const fn new(patience: Duration, time: Duration) -> Self {
        Self { waiters: Vec::new(), patience, time }
    }

    pub(super) const fn time(&self) -> Duration {
        self.time
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    pub(super) fn add(&mut self, answer: Answer, now: Now) {
        self.waiters.retain(|waiter| !waiter.answer.is_closed());
        if self.waiters.len() < WAITING_MAX {
            self.waiters.push(Waiter { answer, since: now });
        } else {
            let why = "too many others wait for the cards; ask again".to_owned();
            say(answer, Err(NotReleased::Held(why)));
        }
    }

    /// Tells those who wait what there is to tell at `now`.
    pub(super) fn settle(&mut self, holder: &Holder, now: Now) {
        let known = match holder {
            Holder::Nobody => Some(Ok(self.time)),
            Holder::Stuck(pid) => Some(Err(NotReleased::Held(format!(
                "process {pid} read the cards, is stuck in the driver and cannot be killed; the \
                 cards are free when it ends, which may take a restart of the host"
            )))),
            Holder::Worker(_) => None,
        };
        if let Some(result) = known {
            return self.tell(&result);
        }
        let Holder::Worker(pid) = holder else { return };
        let patience = self.patience;
        let late = |waiter: &mut Waiter| now.since(waiter.since) >= patience;
        for waiter in self.waiters.extract_if(.., late) {
            let why =
                format!("process {pid}, which reads the cards, has not ended in {patience:?}");
            say(waiter.answer, Err(NotReleased::Late(why)));
        }
    }

    /// The cards were taken back before they were free.
    pub(super) fn taken_back(&mut self) {
        self.tell(&Err(NotReleased::Held("the cards were taken back meanwhile".to_owned())));
    }

    fn tell(&mut self, result: &Result<Duration, NotReleased>) {
        for waiter in self.waiters.drain(..) {
            say(waiter.answer, result.clone());
        }
    }
}

fn say(answer: Answer, result: Result<Duration, NotReleased>) {
    if answer.send(result).is_err() {
        tracing::debug!("Who asked for the cards has left.");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn told(
        receiver: &mut oneshot::Receiver<Result<Duration, NotReleased>>,
    ) -> Option<Result<Duration, NotReleased>> {
        receiver.try_recv().ok()
    }

    #[test]
    fn who_waits_hears_when_nobody_holds_the_cards_and_not_before() {
        let now = Now::read();
        let mut waiting = Waiting::new(SECOND * 10, SECOND * 60);
        let (answer, mut first) = oneshot::channel();
        waiting.add(answer, now);
        let (answer, mut second) = oneshot::channel();
        waiting.add(answer, now + SECOND * 5);
        waiting.settle(&Holder::Worker(7), now + SECOND * 9);
        assert_eq!((told(&mut first), told(&mut second)), (None, None));
        waiting.settle(&Holder::Worker(7), now + SECOND * 10);
        let Some(Err(NotReleased::Late(why))) = told(&mut first) else { panic!("it is late") };
        assert!(why.contains("process 7") && why.contains("10s"), "{why}");
        waiting.settle(&Holder::Nobody, now + SECOND * 11);
        assert_eq!(told(&mut second), Some(Ok(SECOND * 60)));
        assert!(waiting.is_empty());
    }

    #[test]
    fn a_worker_that_cannot_be_killed_is_said_at_once() {
        let now = Now::read();
        let mut waiting = Waiting::new(SECOND * 10, SECOND * 60);
        let (answer, mut asked) = oneshot::channel();
        waiting.add(answer, now);
        waiting.settle(&Holder::Stuck(7), now);
        let Some(Err(NotReleased::Held(why))) = told(&mut asked) else { panic!("they are held") };
        assert!(why.contains("process 7") && why.contains("stuck in the driver"), "{why}");
        let (answer, mut asked) = oneshot::channel();
        waiting.add(answer, now);
        waiting.taken_back();
        assert!(matches!(told(&mut asked), Some(Err(NotReleased::Held(_)))));
    }

    #[test]
    fn those_who_wait_are_few_and_those_who_left_make_room() {
        let now = Now::read();
        let mut waiting = Waiting::new(SECOND, SECOND);
        let mut asked: Vec<_> = (0..=WAITING_MAX)
            .map(|_| {
                let (answer, asked) = oneshot::channel();
                waiting.add(answer, now);
                asked
            })
            .collect();
        let mut refused = asked.pop().expect("one more than the bound");
        assert!(matches!(told(&mut refused), Some(Err(NotReleased::Held(_)))));
        drop(asked.pop());
        let (answer, mut last) = oneshot::channel();
        waiting.add(answer, now);
        assert_eq!(told(&mut last), None);
        waiting.settle(&Holder::Nobody, now);
        assert_eq!(told(&mut last), Some(Ok(SECOND)));
    }
}
