//! The demo load: a light, varied stream of real requests, so that every panel lives.
//!
//! One client at a time with pauses, and now and then a short burst that overflows the queue. It
//! measures nothing: what it does shows in the server's own metrics.

mod prompts;

use std::time::Duration;

use http_body_util::BodyExt;
use hyper::StatusCode;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::clock::now_ms;
use crate::dice::Dice;
use crate::http;
use prompts::Words;

/// Longest wait for one answer.
const ANSWER_MAX: Duration = Duration::from_secs(120);

/// Answers larger than this are not read further.
const ANSWER_BYTES_MAX: usize = 4 << 20;

/// Between two bursts.
const BURST_EVERY: Duration = Duration::from_secs(70);

/// A few more than may wait with the server's default limits: all else of a burst is served.
const BURST_REQUESTS: usize = 37;

/// Words in the longest prompt of the load.
const WORDS_MAX: usize = 700;

/// What one client does with its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Patience {
    Reads,
    /// Closes the connection after this many pieces of the stream.
    LeavesAfter(u64),
}

/// One request of the load.
#[derive(Debug, Clone)]
struct Plan {
    path: &'static str,
    body: Value,
    patience: Patience,
}

/// How a request ended, as far as the load cares.
#[derive(Debug, Clone, PartialEq, Eq)]
enum End {
    Answered,
    /// Refused: wait this long.
    Busy(Duration),
    /// The request does not suit the model.
    Unsuitable,
    Unreachable,
}

/// What is learnt about the model: some have little room or no chat template.
#[derive(Debug, Clone)]
struct Fit {
    chat: bool,
    words_max: usize,
}

/// Sends requests until `stop`; whatever is in flight then is dropped.
pub(crate) async fn run(address: String, model: String, stop: CancellationToken) {
    let load = live(address, model);
    tokio::select! {
        () = stop.cancelled() => {}
        () = load => {}
    }
}

async fn live(address: String, model: String) {
    let mut dice = Dice::new(now_ms().cast_unsigned());
    let mut fit = Fit { chat: true, words_max: WORDS_MAX };
    let mut burst_at = Instant::now() + Duration::from_secs(15);
    loop {
        if Instant::now() >= burst_at {
            burst(&address, &model, &mut dice).await;
            burst_at = Instant::now() + BURST_EVERY;
        }
        let plan = fit.plan(&model, &mut dice);
        let chat = plan.path.contains("chat");
        match send(&address, plan).await {
            End::Answered => sleep(Duration::from_millis(dice.range(150, 1_200))).await,
            End::Busy(wait) => sleep(wait.min(Duration::from_secs(10))).await,
            End::Unsuitable => {
                fit.learn(chat);
                sleep(Duration::from_secs(1)).await;
            }
            End::Unreachable => sleep(Duration::from_secs(1)).await,
        }
    }
}

impl Fit {
    fn learn(&mut self, chat: bool) {
        if self.words_max > 20 {
            self.words_max /= 2;
        } else if chat {
            self.chat = false;
        }
    }

    fn plan(&self, model: &str, dice: &mut Dice) -> Plan {
        // Mostly short prompts, some of a page, a few as long as the model takes.
        let most = self.words_max as u64;
        let words = match dice.range(0, 10) {
            0..=5 => dice.range(4, 40.min(most)),
            6..=8 => dice.range(40, 160).min(most),
            _ => dice.range(most / 2, most),
        };
        let text = Words::new(dice.next()).prompt(usize::try_from(words).unwrap_or(0));
        let stream = dice.percent(70);
        let tokens = dice.range(6, 64);
        let patience = if stream && dice.percent(8) {
            Patience::LeavesAfter(dice.range(1, 6))
        } else {
            Patience::Reads
        };
        let temperature = if dice.percent(50) { 0.0 } else { 0.8 };
        let mut body = json!({
            "model": model, "max_tokens": tokens, "temperature": temperature, "stream": stream,
        });
        if self.chat && dice.percent(60) {
            body["messages"] = json!([{ "role": "user", "content": text }]);
            return Plan { path: "/v1/chat/completions", body, patience };
        }
        body["prompt"] = Value::from(text);
        // A generation that runs to its limit shows another outcome than one that stops.
        body["ignore_eos"] = Value::from(dice.percent(30));
        Plan { path: "/v1/completions", body, patience }
    }
}

/// Many small requests at once: some run, some wait, some are refused.
async fn burst(address: &str, model: &str, dice: &mut Dice) {
    let mut clients = JoinSet::new();
    for _ in 0..BURST_REQUESTS {
        let text = Words::new(dice.next()).prompt(8);
        let body = json!({ "model": model, "prompt": text, "max_tokens": dice.range(4, 10) });
        let plan = Plan { path: "/v1/completions", body, patience: Patience::Reads };
        let address = address.to_owned();
        clients.spawn(async move { send(&address, plan).await });
    }
    while clients.join_next().await.is_some() {}
}

async fn send(address: &str, plan: Plan) -> End {
    let Ok(request) = http::post(address, plan.path, plan.body.to_string()) else {
        return End::Unsuitable;
    };
    let exchange = async {
        let Ok(answer) = http::open(address, request).await else {
            return End::Unreachable;
        };
        let end = verdict(&answer.response);
        if end != End::Answered {
            return end;
        }
        read(answer, plan.patience).await
    };
    tokio::time::timeout(ANSWER_MAX, exchange).await.unwrap_or(End::Unreachable)
}

fn verdict<B>(response: &hyper::Response<B>) -> End {
    let status = response.status();
    if status.is_success() {
        return End::Answered;
    }
    if status == StatusCode::TOO_MANY_REQUESTS || status == StatusCode::SERVICE_UNAVAILABLE {
        let header = response.headers().get(hyper::header::RETRY_AFTER);
        let seconds = header.and_then(|v| v.to_str().ok()?.parse().ok()).unwrap_or(1);
        return End::Busy(Duration::from_secs(seconds));
    }
    if status.is_client_error() { End::Unsuitable } else { End::Unreachable }
}

/// Reads the answer to its end, or leaves early; dropping it closes the connection.
async fn read(mut answer: http::Open, patience: Patience) -> End {
    let (mut pieces, mut bytes) = (0, 0);
    while let Some(frame) = answer.response.body_mut().frame().await {
        let Ok(frame) = frame else { return End::Unreachable };
        pieces += 1;
        bytes += frame.data_ref().map_or(0, bytes::Bytes::len);
        if patience == Patience::LeavesAfter(pieces) || bytes > ANSWER_BYTES_MAX {
            return End::Answered;
        }
    }
    End::Answered
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_load_is_varied_and_bounded() {
        let mut dice = Dice::new(7);
        let fit = Fit { chat: true, words_max: WORDS_MAX };
        let plans: Vec<Plan> = (0..500).map(|_| fit.plan("m", &mut dice)).collect();
        let chats = plans.iter().filter(|p| p.path.contains("chat")).count();
        let streams = plans.iter().filter(|p| p.body["stream"] == true).count();
        let leave = plans.iter().filter(|p| p.patience != Patience::Reads).count();
        assert!((200..400).contains(&chats), "{chats} chats of 500");
        assert!((250..450).contains(&streams), "{streams} streams of 500");
        assert!((5..80).contains(&leave), "{leave} of 500 leave");
        for plan in &plans {
            let words = plan.body.to_string().split_whitespace().count();
            assert!(words < WORDS_MAX + 80, "{words} words");
        }
    }

    #[test]
    fn a_small_model_gets_small_prompts_and_no_chat() {
        let mut fit = Fit { chat: true, words_max: WORDS_MAX };
        for _ in 0..8 {
            fit.learn(true);
        }
        assert!(fit.words_max <= 20 && !fit.chat);
        let mut dice = Dice::new(3);
        for _ in 0..100 {
            let plan = fit.plan("m", &mut dice);
            assert_eq!(plan.path, "/v1/completions");
            let words = plan.body["prompt"].as_str().unwrap_or("").split_whitespace().count();
            assert!(words <= 40, "{words} words");
        }
    }
}
