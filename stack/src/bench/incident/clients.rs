//! The clients of the incident: each asks for a long prompt, waits as long as its patience lasts,
//! does what a refusal says, and asks again.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::args::{SPREAD, Script};
use crate::bench::drive::Target;
use crate::bench::record::{Ended, Seen};
use crate::bench::workload::Ask;
use crate::dice::Dice;

/// A server without Retry-After is asked again after this.
const RETRY_AFTER_DEFAULT: Duration = Duration::from_secs(1);
/// Once nobody asks anew, those that were told to come back have so many times their patience.
const LATE: u32 = 5;

/// An attempt that was refused.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Refused {
    /// From the request to the end of its answer, as measured.
    pub(super) took: Duration,
    pub(super) status: u16,
    pub(super) reason: String,
    /// What the answer says; `None` where it does not.
    pub(super) retry_after: Option<Duration>,
}

/// How a request ended at last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    /// Answered whole.
    Answered,
    /// No first token while the patience lasted.
    GaveUp,
    Failed(String),
    /// Refused to the end of the run, or the run ended before it.
    Unfinished,
}

/// A request of a client, with all its attempts. Times count from the first request of the crowd.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Visit {
    pub(super) asked: Duration,
    /// The attempt that was not refused.
    pub(super) sent: Duration,
    pub(super) first: Option<Duration>,
    pub(super) end: Duration,
    pub(super) ended: End,
    pub(super) prompt_tokens: u64,
    pub(super) refusals: Vec<Refused>,
}

impl Visit {
    /// From the attempt that was admitted to its first token.
    pub(super) fn ttft(&self) -> Option<Duration> {
        Some(self.first?.saturating_sub(self.sent))
    }

    /// From the first attempt to the first token.
    pub(super) fn wait(&self) -> Option<Duration> {
        Some(self.first?.saturating_sub(self.asked))
    }
}

/// What all clients share.
pub(super) struct Crowd<T> {
    pub(super) target: Arc<T>,
    pub(super) script: Arc<Script>,
    pub(super) model: String,
    /// Prompts of another run are others.
    pub(super) run: u64,
}

impl<T> Clone for Crowd<T> {
    fn clone(&self) -> Self {
        let Self { target, script, model, run } = self;
        let (target, script) = (Arc::clone(target), Arc::clone(script));
        Self { target, script, model: model.clone(), run: *run }
    }
}

/// What a client is sent with.
#[derive(Debug, Clone, Copy)]
struct Errand {
    client: u64,
    start: Instant,
    /// No request after this.
    until: Instant,
    /// Between an answer and the next request.
    pause: Duration,
}

impl<T: Target> Crowd<T> {
    /// One client at a time, so that the service is known before the crowd comes.
    pub(super) async fn calm(&self) -> Vec<Visit> {
        let start = Instant::now();
        let (until, pause) = (start + self.script.calm, self.script.calm_pause);
        self.client(Errand { client: 0, start, until, pause }).await
    }

    /// All clients at once; ends when the last one has its answer, gave up, or is too late.
    pub(super) async fn come(&self) -> Vec<Visit> {
        let start = Instant::now();
        let until = start + self.script.duration;
        let mut clients = JoinSet::new();
        for client in 1..=self.script.clients {
            let crowd = self.clone();
            let errand = Errand { client, start, until, pause: Duration::ZERO };
            clients.spawn(async move { crowd.client(errand).await });
        }
        let mut visits = clients.join_all().await.concat();
        visits.sort_by_key(|visit| visit.asked);
        visits
    }

    async fn client(&self, errand: Errand) -> Vec<Visit> {
        let mut visits = Vec::new();
        while Instant::now() < errand.until {
            let number = visits.len() as u64;
            let ask = self.ask(errand.client, number);
            visits.push(self.visit(&ask, errand).await);
            // Also a server that fails at once must let the others run.
            tokio::task::yield_now().await;
            sleep(errand.pause).await;
        }
        visits
    }

    /// One request, as often as it is told to come back.
    async fn visit(&self, ask: &Ask, errand: Errand) -> Visit {
        let since = |at: Instant| at.saturating_duration_since(errand.start);
        let asked = Instant::now();
        let late = errand.until + self.script.patience * LATE;
        let mut refusals = Vec::new();
        loop {
            let sent = Instant::now();
            let mut seen = Seen::default();
            let patience = Some(sent + self.script.patience);
            let exchange = self.target.exchange(ask, patience, &mut seen);
            let ended = timeout_at(late, exchange).await.unwrap_or(Ended::Unfinished);
            let ended = match ended {
                Ended::Complete => End::Answered,
                Ended::GaveUp => End::GaveUp,
                Ended::Failed(failure) => {
                    End::Failed(format!("{} {}", failure.kind(), failure.detail()))
                }
                Ended::Left | Ended::Unfinished => End::Unfinished,
                Ended::Refused(refusal) => {
                    let retry_after = refusal.retry_after.map(Duration::from_secs);
                    refusals.push(Refused {
                        took: sent.elapsed(),
                        status: refusal.status,
                        reason: refusal.reason,
                        retry_after,
                    });
                    let again = Instant::now() + retry_after.unwrap_or(RETRY_AFTER_DEFAULT);
                    if again < late {
                        sleep_until(again).await;
                        continue;
                    }
                    End::Unfinished
                }
            };
            return Visit {
                asked: since(asked),
                sent: since(sent),
                first: seen.first.map(since),
                end: since(Instant::now()),
                ended,
                prompt_tokens: ask.prompt_tokens.unwrap_or(0),
                refusals,
            };
        }
    }

    /// A prompt that nobody else has: one token is one byte here.
    fn ask(&self, client: u64, number: u64) -> Ask {
        let script = &self.script;
        let mut dice = Dice::of(script.seed, &[self.run, client, number]);
        let spread = (script.prompt_tokens as f64 * SPREAD) as u64;
        let length = dice.range(script.prompt_tokens - spread, script.prompt_tokens + spread + 1);
        let letter = |dice: &mut Dice| char::from(b'a' + dice.range(0, 26) as u8);
        let prompt: String = (0..length).map(|_| letter(&mut dice)).collect();
        let body = json!({
            "model": self.model, "prompt": prompt, "max_tokens": script.output_tokens,
            "ignore_eos": true, "stream": true, "temperature": 0,
        });
        Ask {
            path: "/v1/completions",
            body: Bytes::from(body.to_string()),
            stream: true,
            prompt_tokens: Some(length),
            output_tokens: script.output_tokens,
            leave_after: None,
            keep_text: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::bench::record::Refusal;

    /// Computes one prompt after the other; may refuse at first.
    struct Fake {
        place: tokio::sync::Semaphore,
        each: Duration,
        refuse: Mutex<u32>,
    }

    impl Target for Fake {
        async fn exchange(&self, _: &Ask, patience: Option<Instant>, seen: &mut Seen) -> Ended {
            {
                let mut refuse = self.refuse.lock().expect("no holder panics");
                if let Some(less) = refuse.checked_sub(1) {
                    *refuse = less;
                    let reason = "drain_time".to_owned();
                    return Ended::Refused(Refusal { status: 429, reason, retry_after: Some(7) });
                }
            }
            let computed = async {
                let _place = self.place.acquire().await.expect("never closed");
                sleep(self.each).await;
            };
            let patience = patience.expect("clients have some");
            if timeout_at(patience, computed).await.is_err() {
                return Ended::GaveUp;
            }
            seen.event(Instant::now());
            Ended::Complete
        }
    }

    fn crowd(clients: u64, refuse: u32) -> Crowd<Fake> {
        let seconds = Duration::from_secs;
        let script = Script {
            scale: 1.0,
            seed: 3,
            clients,
            prompt_tokens: 1000,
            output_tokens: 4,
            rate: 3300.0,
            patience: seconds(60),
            objective: seconds(30),
            calm: seconds(45),
            calm_pause: seconds(2),
            duration: seconds(100),
            decode_step: Duration::from_millis(20),
        };
        let place = tokio::sync::Semaphore::new(1);
        let target = Fake { place, each: seconds(5), refuse: Mutex::new(refuse) };
        Crowd { target: Arc::new(target), script: Arc::new(script), model: "m".to_owned(), run: 0 }
    }

    #[tokio::test(start_paused = true)]
    async fn more_clients_than_can_be_served_give_up() {
        let visits = crowd(15, 0).come().await;
        let count = |end: &End| visits.iter().filter(|visit| visit.ended == *end).count();
        let (answered, gave_up) = (count(&End::Answered), count(&End::GaveUp));
        assert_eq!(answered + gave_up, visits.len());
        assert!(answered >= 12 && gave_up >= 4, "{answered} {gave_up}");
        let first = visits.iter().filter(|visit| visit.ended == End::GaveUp).map(|v| v.end).min();
        assert_eq!(first, Some(Duration::from_secs(60)));
        let last = visits.iter().map(|visit| visit.end).max().expect("visits");
        assert!(last <= Duration::from_secs(160), "{last:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_told_to_come_back_does() {
        let visits = crowd(1, 3).come().await;
        let first = &visits[0];
        assert_eq!((first.ended.clone(), first.refusals.len()), (End::Answered, 3));
        assert_eq!(first.refusals[0].retry_after, Some(Duration::from_secs(7)));
        assert_eq!(first.ttft(), Some(Duration::from_secs(5)));
        assert_eq!(first.wait(), Some(Duration::from_secs(26)));
        // Refused for ever: it ends all the same.
        let visits = crowd(1, u32::MAX).come().await;
        assert_eq!(visits.len(), 1);
        assert_eq!(visits[0].ended, End::Unfinished);
        let late = Duration::from_secs(400);
        assert!(visits[0].end <= late && visits[0].end > Duration::from_secs(390));
    }

    #[tokio::test(start_paused = true)]
    async fn the_calm_is_one_client_with_pauses() {
        let visits = crowd(15, 0).calm().await;
        assert_eq!(visits.len(), 7, "5 s and 2 s of pause in 45 s");
        assert!(visits.iter().all(|visit| visit.ttft() == Some(Duration::from_secs(5))));
    }

    #[test]
    fn no_two_prompts_are_alike_and_the_seed_makes_them_again() {
        let (one, again) = (crowd(2, 0), crowd(2, 0));
        let body = |crowd: &Crowd<Fake>, client, number| crowd.ask(client, number).body;
        assert_eq!(body(&one, 1, 0), body(&again, 1, 0));
        assert_ne!(body(&one, 1, 0), body(&one, 1, 1));
        assert_ne!(body(&one, 1, 0), body(&one, 2, 0));
        let other = Crowd { run: 1, ..again };
        assert_ne!(body(&one, 1, 0), body(&other, 1, 0));
        for number in 0..50 {
            let length = one.ask(1, number).prompt_tokens.expect("known");
            assert!((800..=1200).contains(&length), "{length}");
        }
    }
}
