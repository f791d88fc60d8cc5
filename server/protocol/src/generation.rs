//! What the completion and chat endpoints have in common: sampling, stopping, streaming.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, SeqAccess, Visitor};
use types::TokenId;

use crate::Limits;
use crate::error::ApiError;
use crate::parse::{Float, Int, Object};
use crate::prompt;

/// The most answers of one request, over all prompts.
pub const MAX_CHOICES: usize = 128;
/// The most alternatives per token.
pub const MAX_LOGPROBS: u8 = 20;
/// The most stop strings of one request.
pub const MAX_STOPS: usize = 16;
/// The longest stop string.
pub const MAX_STOP_BYTES: usize = 1024;
/// Most entries of `stop_token_ids`: every token of every step is compared with them.
pub const MAX_STOP_TOKENS: usize = 1024;

const LATER: &str = "this value is not supported yet";

/// Checked parameters of generation.
#[derive(Debug, Clone, PartialEq)]
pub struct Generation {
    /// 0 is greedy; at most 2. Default 1.
    pub temperature: f32,
    /// Sample from this many most likely tokens; 0 is off.
    pub top_k: u32,
    /// Sample from the most likely tokens that hold this probability; above 0, at most 1.
    pub top_p: f32,
    /// Makes sampling repeatable.
    pub seed: Option<u64>,
    /// The most tokens to generate, where the client said so; at least 1.
    pub max_tokens: Option<usize>,
    /// The most tokens to generate, where the client did not say; `None`: what the context holds.
    pub max_tokens_default: Option<usize>,
    /// Answers per prompt, at least 1.
    pub n: usize,
    /// Strings that end the answer, none empty.
    pub stop: Vec<String>,
    /// Tokens that end the answer besides the model's own.
    pub stop_token_ids: Vec<TokenId>,
    /// The model's own end tokens do not end the answer.
    pub ignore_eos: bool,
    /// Log-probabilities asked for, with so many alternatives per token.
    pub logprobs: Option<u8>,
    /// Answer with server-sent events.
    pub stream: bool,
    /// End the stream with a chunk of usage.
    pub include_usage: bool,
}

impl Generation {
    /// The seed of one of the answers, counted over all prompts: with a seed, each answer has
    /// its own, and the first has the one that was sent.
    #[must_use]
    pub fn seed_of(&self, choice: usize) -> Option<u64> {
        self.seed.map(|seed| seed.wrapping_add(choice as u64))
    }

    /// How many tokens may be generated after a prompt of `prompt_tokens`: what was asked for,
    /// which must fit the context, or else the default, cut to what fits. At least 1.
    pub fn budget(&self, prompt_tokens: usize, limits: &Limits) -> Result<usize, ApiError> {
        if prompt_tokens == 0 {
            return Err(ApiError::invalid("prompt", "The prompt has no tokens."));
        }
        let most = limits.max_context;
        let wanted = self.max_tokens.unwrap_or(1);
        let total = prompt_tokens.saturating_add(wanted);
        if total > most {
            return Err(ApiError::context_length(format!(
                "This model's maximum context length is {most} tokens. However, you requested \
                 {total} tokens ({prompt_tokens} in the prompt, {wanted} in the completion). \
                 Please reduce the length of the prompt or of the completion."
            )));
        }
        let room = most - prompt_tokens;
        Ok(self.max_tokens.unwrap_or_else(|| room.min(self.max_tokens_default.unwrap_or(room))))
    }
}

/// The fields as sent.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct RawGeneration {
    max_tokens: Option<Int>,
    max_completion_tokens: Option<Int>,
    min_tokens: Option<Int>,
    temperature: Option<Float>,
    top_p: Option<Float>,
    top_k: Option<Int>,
    min_p: Option<Float>,
    seed: Option<Int>,
    n: Option<Int>,
    best_of: Option<Int>,
    stop: Option<Stops>,
    stop_token_ids: Option<Vec<Int>>,
    ignore_eos: Option<bool>,
    frequency_penalty: Option<Float>,
    presence_penalty: Option<Float>,
    repetition_penalty: Option<Float>,
    logit_bias: Option<Object<BTreeMap<String, Float>>>,
    stream: Option<bool>,
    stream_options: Option<Object<StreamOptions>>,
    guided_json: Option<IgnoredAny>,
    guided_regex: Option<IgnoredAny>,
    guided_choice: Option<IgnoredAny>,
    guided_grammar: Option<IgnoredAny>,
    structured_outputs: Option<IgnoredAny>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct StreamOptions {
    include_usage: Option<bool>,
}

/// `"text"` or `["text", ...]`.
#[derive(Debug)]
struct Stops(Vec<String>);

impl<'de> Deserialize<'de> for Stops {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct StopsVisitor;
        impl<'de> Visitor<'de> for StopsVisitor {
            type Value = Stops;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or an array of strings")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Stops, E> {
                Ok(Stops(vec![text.to_owned()]))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Stops, A::Error> {
                let mut stops = Vec::new();
                while let Some(stop) = seq.next_element()? {
                    stops.push(stop);
                }
                Ok(Stops(stops))
            }
        }
        deserializer.deserialize_any(StopsVisitor)
    }
}

impl RawGeneration {
    /// Checks every field. The endpoints add their default length and their log-probabilities.
    pub(crate) fn check(
        self,
        limits: &Limits,
        max_tokens_default: Option<usize>,
        logprobs: Option<u8>,
    ) -> Result<Generation, ApiError> {
        self.refuse_later_features(limits)?;
        let temperature =
            self.temperature.map_or(Ok(1.0), |t| float("temperature", t, 0.0, 2.0))?;
        let top_p = self.top_p.map_or(Ok(1.0), |p| float("top_p", p, 0.0, 1.0))?;
        let top_k = self.top_k.map_or(Ok(0), |Int(k)| top_k(k))?;
        // OpenAI allows 0, which leaves the most likely token only.
        let (top_p, top_k) = if top_p == 0.0 { (1.0, 1) } else { (top_p, top_k) };
        let (name, max_tokens) = match (self.max_completion_tokens, self.max_tokens) {
            (Some(most), _) => ("max_completion_tokens", Some(most)),
            (None, most) => ("max_tokens", most),
        };
        let max_tokens = max_tokens.map(|most| positive(name, most, usize::MAX)).transpose()?;
        let n = self.n.map_or(Ok(1), |n| positive("n", n, MAX_CHOICES))?;
        if self.best_of.is_some_and(|Int(best)| usize::try_from(best) != Ok(n)) {
            return Err(ApiError::unsupported("best_of", "only the value of n is supported"));
        }
        let stop = stops(self.stop.map_or_else(Vec::new, |stops| stops.0))?;
        let ids = self.stop_token_ids.unwrap_or_default();
        if ids.len() > MAX_STOP_TOKENS {
            let message =
                format!("stop_token_ids: {} ids are more than {MAX_STOP_TOKENS}", ids.len());
            return Err(ApiError::invalid("stop_token_ids", message));
        }
        let stop_token_ids = prompt::tokens(&ids, "stop_token_ids", limits)?;
        let ignore_eos = self.ignore_eos.unwrap_or(false);
        if let Some(Int(least)) = self.min_tokens {
            let can_stop = !ignore_eos || !stop.is_empty() || !stop_token_ids.is_empty();
            min_tokens(least, can_stop, max_tokens)?;
        }
        let stream = self.stream.unwrap_or(false);
        if self.stream_options.is_some() && !stream {
            let message = "stream_options: only allowed when stream is true";
            return Err(ApiError::invalid("stream_options", message));
        }
        let options = self.stream_options.map(|Object(options)| options).unwrap_or_default();
        Ok(Generation {
            temperature,
            top_k,
            top_p,
            // Any 64 bits are a seed; negative ones too.
            seed: self.seed.map(|Int(seed)| seed.cast_unsigned()),
            max_tokens,
            max_tokens_default,
            n,
            stop,
            stop_token_ids,
            ignore_eos,
            logprobs,
            stream,
            include_usage: options.include_usage.unwrap_or(false),
        })
    }

    /// Parameters that would change the answer and are not implemented are refused unless they
    /// have the value that changes nothing; a value out of its range is named first.
    fn refuse_later_features(&self, limits: &Limits) -> Result<(), ApiError> {
        let neutral = |name, value: Option<Float>, low, high, neutral| match value {
            None => Ok(()),
            Some(value) if float(name, value, low, high)? == neutral => Ok(()),
            Some(_) => Err(ApiError::unsupported(name, LATER)),
        };
        neutral("frequency_penalty", self.frequency_penalty, -2.0, 2.0, 0.0)?;
        neutral("presence_penalty", self.presence_penalty, -2.0, 2.0, 0.0)?;
        neutral("repetition_penalty", self.repetition_penalty, 0.0, 10.0, 1.0)?;
        neutral("min_p", self.min_p, 0.0, 1.0, 0.0)?;
        if let Some(Object(bias)) = &self.logit_bias {
            logit_bias(bias, limits)?;
        }
        let guided = [
            ("guided_json", &self.guided_json),
            ("guided_regex", &self.guided_regex),
            ("guided_choice", &self.guided_choice),
            ("guided_grammar", &self.guided_grammar),
            ("structured_outputs", &self.structured_outputs),
        ];
        match guided.iter().find(|(_, value)| value.is_some()) {
            Some((name, _)) => Err(ApiError::unsupported(name, LATER)),
            None => Ok(()),
        }
    }
}

fn float(name: &str, Float(value): Float, low: f64, high: f64) -> Result<f32, ApiError> {
    if (low..=high).contains(&value) {
        return Ok(value as f32);
    }
    let message = format!("{name}: {value} is not between {low} and {high}");
    Err(ApiError::invalid(name, message))
}

fn positive(name: &str, Int(value): Int, most: usize) -> Result<usize, ApiError> {
    let checked = usize::try_from(value).ok().filter(|value| (1..=most).contains(value));
    checked.ok_or_else(|| {
        let message = match most {
            usize::MAX => format!("{name}: {value} is less than 1"),
            most => format!("{name}: {value} is not between 1 and {most}"),
        };
        ApiError::invalid(name, message)
    })
}

fn top_k(k: i64) -> Result<u32, ApiError> {
    match k {
        -1 => Ok(0),
        0.. => Ok(u32::try_from(k).unwrap_or(u32::MAX)),
        _ => {
            let message = format!("top_k: {k} is less than -1; 0 and -1 turn it off");
            Err(ApiError::invalid("top_k", message))
        }
    }
}

/// A number of alternatives: 0 to [`MAX_LOGPROBS`].
pub(crate) fn alternatives(name: &str, Int(count): Int) -> Result<u8, ApiError> {
    u8::try_from(count).ok().filter(|&count| count <= MAX_LOGPROBS).ok_or_else(|| {
        let message = format!("{name}: {count} is not between 0 and {MAX_LOGPROBS}");
        ApiError::invalid(name, message)
    })
}

fn stops(stops: Vec<String>) -> Result<Vec<String>, ApiError> {
    let invalid = |message: String| Err(ApiError::invalid("stop", message));
    if stops.len() > MAX_STOPS {
        return invalid(format!("stop: {} strings are more than {MAX_STOPS}", stops.len()));
    }
    if stops.iter().any(String::is_empty) {
        return invalid("stop: strings must not be empty".to_owned());
    }
    if stops.iter().any(|stop| stop.len() > MAX_STOP_BYTES) {
        return invalid(format!("stop: a string is longer than {MAX_STOP_BYTES} bytes"));
    }
    Ok(stops)
}

/// Benchmarks ask for an exact length by `ignore_eos` and equal minimum and maximum: that needs
/// nothing. Suppressing the end tokens up to a minimum is not implemented.
fn min_tokens(least: i64, can_stop: bool, most: Option<usize>) -> Result<(), ApiError> {
    let invalid = |message: String| Err(ApiError::invalid("min_tokens", message));
    let Ok(least) = usize::try_from(least) else {
        return invalid(format!("min_tokens: {least} is less than 0"));
    };
    if most.is_some_and(|most| least > most) {
        return invalid(format!("min_tokens: {least} is more than max_tokens"));
    }
    if least > 0 && can_stop {
        let why = "more than 0 is supported only with ignore_eos and without stop conditions";
        return Err(ApiError::unsupported("min_tokens", why));
    }
    Ok(())
}

fn logit_bias(bias: &BTreeMap<String, Float>, limits: &Limits) -> Result<(), ApiError> {
    for (token, value) in bias {
        let shown: String = token.chars().take(40).collect();
        let path = format!("logit_bias[{shown:?}]");
        let Ok(id) = token.parse() else {
            return Err(ApiError::invalid(&path, format!("{path}: the key is not a token id")));
        };
        prompt::token(Int(id), &path, limits)?;
        float(&path, *value, -100.0, 100.0)?;
    }
    if bias.is_empty() { Ok(()) } else { Err(ApiError::unsupported("logit_bias", LATER)) }
}
