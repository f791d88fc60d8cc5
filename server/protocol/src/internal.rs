//! What a router and its workers say to each other beside the OpenAI API: headers, and the answer
//! of `GET /internal/load`.

use serde::{Deserialize, Serialize};

/// Request, router to decode worker: the name (`HOST:PORT`) of the prefill worker that is to
/// compute the prompt.
pub const PREFILL_HEADER: &str = "x-sightline-prefill";

/// Request, router to worker: `1` where the sender knows which workers drain, so that a draining
/// one refuses at once.
pub const DRAIN_AWARE_HEADER: &str = "x-sightline-drain-aware";

/// Answer, decode worker to router, beside an error status: [`CAUSE_PREFILL`] where the prefill
/// worker refused or failed and the decode worker itself is well.
pub const CAUSE_HEADER: &str = "x-sightline-cause";

/// Answer, worker to router, of whatever status: how many tokens the request's prompts have
/// together, where the worker has counted them. Routers tokenise nothing.
pub const PROMPT_TOKENS_HEADER: &str = "x-sightline-prompt-tokens";

/// The value of [`CAUSE_HEADER`] that puts an error down to the prefill worker.
pub const CAUSE_PREFILL: &str = "prefill";

/// What a worker does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LoadRole {
    /// Prefill and decode.
    Unified,
    /// Computes prompts.
    Prefill,
    /// Answers; prefill workers compute its prompts.
    Decode,
}

/// Whether a worker takes requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LoadState {
    /// It loads, or has not answered its own test yet.
    Starting,
    /// It takes requests.
    Ready,
    /// It finishes what it has.
    Draining,
    /// Its engine has failed.
    Failed,
}

/// What waits for its prefill, over all queues before the forward pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LoadQueued {
    /// Requests.
    pub requests: u64,
    /// Prompt tokens.
    pub tokens: u64,
    /// Of those, tokens that must be computed, those of started prompts included.
    pub uncached_tokens: u64,
}

/// The bounds of a worker's admission; 0 is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LoadLimits {
    /// Requests that may wait.
    #[serde(default)]
    pub requests: u64,
    /// Uncached prompt tokens that may wait.
    #[serde(default)]
    pub tokens: u64,
    /// Milliseconds that their prefill may take: the objective for the time to first token.
    #[serde(default)]
    pub drain_ms: u64,
}

/// The answer of `GET /internal/load`: health and load in one. Fields that a reader does not know
/// are ignored, those with a default may be missing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoadReport {
    /// Changes with each start of the process, and only then.
    pub instance_id: String,
    /// What it does.
    pub role: LoadRole,
    /// The model it serves, by the name that requests use.
    pub model: String,
    /// Equal for workers that can form a pair, and only for those: transfer protocol, model, page
    /// size, KV dtype, pools.
    #[serde(default)]
    pub fingerprint: String,
    /// Whether it takes requests.
    pub state: LoadState,
    /// What waits.
    pub queued: LoadQueued,
    /// The bounds on what waits.
    #[serde(default)]
    pub limits: LoadLimits,
    /// How long the prefill of what waits will take, in milliseconds.
    #[serde(default)]
    pub drain_ms: u64,
    /// Prompt tokens computed per busy second; 0 where it computes no prompts.
    #[serde(default)]
    pub prefill_rate: f64,
    /// Requests that run.
    #[serde(default)]
    pub running: u64,
    /// Requests that may run; 0 where it cannot be told.
    #[serde(default)]
    pub running_limit: u64,
    /// Tokens for which KV room is free or can be made at once.
    #[serde(default)]
    pub free_tokens: u64,
    /// Milliseconds until one more request would find a place, where as many wait as may. Missing
    /// where it does not tell, or where there is a place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place_ms: Option<u64>,
    /// Decode: names (`HOST:PORT`) of the prefill workers whose link is up. Missing where it does
    /// not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peers_up: Option<Vec<String>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_reads_back_and_lacks_only_what_may_be_missing() {
        let text = r#"{"instance_id":"a1","role":"decode","model":"m","state":"ready",
            "queued":{"requests":2,"tokens":300,"uncached_tokens":200},"new_field":1}"#;
        let report: LoadReport = serde_json::from_str(text).expect("it has what it needs");
        assert_eq!((report.role, report.state), (LoadRole::Decode, LoadState::Ready));
        assert_eq!((report.limits, report.peers_up.as_deref()), (LoadLimits::default(), None));
        assert_eq!(report.place_ms, None);
        let full = LoadReport {
            peers_up: Some(vec!["p:1".into()]),
            prefill_rate: 3300.5,
            place_ms: Some(2500),
            ..report
        };
        let text = serde_json::to_string(&full).expect("it is JSON");
        assert_eq!(serde_json::from_str::<LoadReport>(&text).expect("it reads back"), full);
        let lacking = text.replace("\"model\":\"m\",", "");
        let error = serde_json::from_str::<LoadReport>(&lacking).expect_err("no model");
        assert!(error.to_string().contains("model"), "{error}");
    }
}
