//! The fields of generation as sent, and what each of them may be.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, SeqAccess, Visitor};
use types::{Priority, TokenId};

use super::{
    Generation, MAX_CHOICES, MAX_LOGIT_BIAS, MAX_LOGPROBS, MAX_SALT_BYTES, MAX_STOP_BYTES,
    MAX_STOP_TOKENS, MAX_STOPS, MAX_USER_BYTES,
};
use crate::Limits;
use crate::error::ApiError;
use crate::parse::{Float, Int, Object};
use crate::prompt;

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
    priority: Option<Int>,
    user: Option<String>,
    cache_salt: Option<String>,
    /// Nothing but the prompt may be wanted back.
    #[serde(skip)]
    empty_answer: bool,
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
    /// Allows an answer of no tokens, as where the prompt is echoed.
    pub(crate) const fn allow_empty_answer(&mut self) {
        self.empty_answer = true;
    }

    /// Checks every field. The endpoints add their default length and their log-probabilities.
    pub(crate) fn check(
        self,
        limits: &Limits,
        max_tokens_default: Option<usize>,
        logprobs: Option<u8>,
    ) -> Result<Generation, ApiError> {
        let temperature =
            self.temperature.map_or(Ok(1.0), |t| float("temperature", t, 0.0, 2.0))?;
        let top_p = self.top_p.map_or(Ok(1.0), |p| float("top_p", p, 0.0, 1.0))?;
        let top_k = self.top_k.map_or(Ok(0), |Int(k)| top_k(k))?;
        // OpenAI allows 0, which leaves the most likely token only.
        let (top_p, top_k) = if top_p == 0.0 { (1.0, 1) } else { (top_p, top_k) };
        let min_p = self.min_p.map_or(Ok(0.0), |p| float("min_p", p, 0.0, 1.0))?;
        let repetition_penalty = self.repetition_penalty.map_or(Ok(1.0), repetition_penalty)?;
        let penalty = |name, value: Option<Float>| {
            value.map_or(Ok(0.0), |value| float(name, value, -2.0, 2.0))
        };
        let presence_penalty = penalty("presence_penalty", self.presence_penalty)?;
        let frequency_penalty = penalty("frequency_penalty", self.frequency_penalty)?;
        let bias = self.logit_bias.as_ref().map(|Object(bias)| logit_bias(bias, limits));
        let max_tokens = self.max_tokens()?;
        let n = self.n.map_or(Ok(1), |n| positive("n", n, MAX_CHOICES))?;
        if let Some(Int(best)) = self.best_of
            && usize::try_from(best) != Ok(n)
        {
            let why = format!(
                "{best} is not n, which is {n}: answers are not ranked; leave best_of out, or \
                 ask for n answers and choose among them"
            );
            return Err(ApiError::unsupported("best_of", &why));
        }
        let stop = stops(self.stop.map_or_else(Vec::new, |stops| stops.0))?;
        let stop_token_ids = stop_token_ids(&self.stop_token_ids.unwrap_or_default(), limits)?;
        let min_tokens = self.min_tokens.map_or(Ok(0), |least| min_tokens(least, max_tokens))?;
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
            min_p,
            repetition_penalty,
            presence_penalty,
            frequency_penalty,
            logit_bias: bias.transpose()?.unwrap_or_default(),
            // Any 64 bits are a seed; negative ones too.
            seed: self.seed.map(|Int(seed)| seed.cast_unsigned()),
            max_tokens,
            max_tokens_default,
            min_tokens,
            n,
            stop,
            stop_token_ids,
            ignore_eos: self.ignore_eos.unwrap_or(false),
            logprobs,
            stream,
            include_usage: options.include_usage.unwrap_or(false),
            priority: self.priority.map_or(Ok(Priority::NORMAL), priority)?,
            user: self.user.map(user).transpose()?.flatten(),
            cache_salt: self.cache_salt.map(cache_salt).transpose()?.flatten(),
        })
    }

    /// The most tokens, by either name.
    fn max_tokens(&self) -> Result<Option<usize>, ApiError> {
        let (name, most) = match (self.max_completion_tokens, self.max_tokens) {
            (Some(most), _) => ("max_completion_tokens", most),
            (None, Some(most)) => ("max_tokens", most),
            (None, None) => return Ok(None),
        };
        if self.empty_answer && most.0 == 0 {
            return Ok(Some(0));
        }
        positive(name, most, usize::MAX).map(Some)
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

fn stop_token_ids(ids: &[Int], limits: &Limits) -> Result<Vec<TokenId>, ApiError> {
    if ids.len() > MAX_STOP_TOKENS {
        let message = format!("stop_token_ids: {} ids are more than {MAX_STOP_TOKENS}", ids.len());
        return Err(ApiError::invalid("stop_token_ids", message));
    }
    prompt::tokens(ids, "stop_token_ids", limits)
}

fn min_tokens(Int(least): Int, most: Option<usize>) -> Result<usize, ApiError> {
    let invalid = |message: String| ApiError::invalid("min_tokens", message);
    let Ok(checked) = usize::try_from(least) else {
        return Err(invalid(format!("min_tokens: {least} is less than 0; 0 turns it off")));
    };
    match most {
        Some(most) if checked > most => {
            let message = format!("min_tokens: {least} is more than max_tokens, which is {most}");
            Err(invalid(message))
        }
        Some(_) | None => Ok(checked),
    }
}

fn repetition_penalty(value: Float) -> Result<f32, ApiError> {
    let name = "repetition_penalty";
    let checked = float(name, value, 0.0, 10.0)?;
    if checked > 0.0 {
        return Ok(checked);
    }
    let message = format!("{name}: logits are divided by it, so it must be above 0; 1 is off");
    Err(ApiError::invalid(name, message))
}

fn logit_bias(
    bias: &BTreeMap<String, Float>,
    limits: &Limits,
) -> Result<Vec<(TokenId, f32)>, ApiError> {
    if bias.len() > MAX_LOGIT_BIAS {
        let message = format!("logit_bias: {} entries are more than {MAX_LOGIT_BIAS}", bias.len());
        return Err(ApiError::invalid("logit_bias", message));
    }
    let entry = |(token, value): (&String, &Float)| {
        let shown: String = token.chars().take(40).collect();
        let path = format!("logit_bias[{shown:?}]");
        let Ok(id) = token.parse() else {
            let message = format!("{path}: the key is not a token id; /tokenize finds them");
            return Err(ApiError::invalid(&path, message));
        };
        Ok((prompt::token(Int(id), &path, limits)?, float(&path, *value, -100.0, 100.0)?))
    };
    bias.iter().map(entry).collect()
}

fn priority(Int(level): Int) -> Result<Priority, ApiError> {
    Priority::new(level).map_err(|_| {
        let (least, most) = (Priority::MIN.level(), Priority::MAX.level());
        let message = format!("priority: {level} is not between {least} and {most}");
        ApiError::invalid("priority", message)
    })
}

/// An empty name is none.
fn user(name: String) -> Result<Option<String>, ApiError> {
    if name.len() > MAX_USER_BYTES {
        let message = format!("user: {} bytes are more than {MAX_USER_BYTES}", name.len());
        return Err(ApiError::invalid("user", message));
    }
    Ok(Some(name).filter(|name| !name.is_empty()))
}

/// An empty salt is none.
fn cache_salt(salt: String) -> Result<Option<String>, ApiError> {
    if salt.len() > MAX_SALT_BYTES {
        let message = format!("cache_salt: {} bytes are more than {MAX_SALT_BYTES}", salt.len());
        return Err(ApiError::invalid("cache_salt", message));
    }
    Ok(Some(salt).filter(|salt| !salt.is_empty()))
}
