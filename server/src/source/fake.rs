//! Options of `--model fake:key=value,...`: a model that computes nothing, at a chosen speed, with
//! failures where a test wants them.

use std::time::Duration;

use model::{FakeOptions, FakeTiming};
use types::TokenId;

use crate::cli::{Settings, Span};

/// The id of `<|eos|>` in the byte-level vocabulary.
const EOS: u32 = 257;
/// The ids below are bytes, `<|bos|>` and `<|eos|>`.
const VOCAB_MIN: usize = 258;

/// The options, with everything not named at its default.
pub(super) fn parse(text: &str, settings: &Settings) -> Result<FakeOptions, String> {
    let defaults = FakeOptions::default();
    let page_tokens = settings.machine.page_tokens.unwrap_or(defaults.page_tokens);
    let mut options = FakeOptions {
        page_tokens: page_tokens.max(1),
        eos: vec![TokenId(EOS)],
        timing: FakeTiming::default(),
        real_time: true,
        ..defaults
    };
    for pair in text.split(',').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').ok_or_else(|| format!("{pair:?} has no value"))?;
        set(&mut options, key, value)?;
    }
    Ok(options)
}

fn set(options: &mut FakeOptions, key: &str, value: &str) -> Result<(), String> {
    let time = || value.parse::<Span>().map(|span: Span| span.0);
    match key {
        "step" => {
            let step = time()?;
            let (prefill_token, decode_row) = (Duration::ZERO, Duration::ZERO);
            options.timing = FakeTiming { step, prefill_token, decode_row };
        }
        "prefill-token" => options.timing.prefill_token = time()?,
        "decode-row" => options.timing.decode_row = time()?,
        "window" => options.window = Some(number(key, value, 1)?),
        "context" => options.max_context = number(key, value, 2)?,
        "vocab" => options.vocab = number(key, value, VOCAB_MIN)?,
        "eos-per-mille" => options.eos_per_mille = number(key, value, 0)?,
        "seed" => options.seed = number(key, value, 0)?,
        "fail-at" => options.fail_at_step = Some(number(key, value, 0)?),
        "panic-at" => options.panic_at_step = Some(number(key, value, 0)?),
        "nan-at" => options.nan_at_step = Some(number(key, value, 0)?),
        _ => {
            let known = "step, prefill-token, decode-row, context, window, vocab, eos-per-mille, \
                         seed, fail-at, panic-at, nan-at";
            return Err(format!("the fake model has no option {key:?}; it has {known}"));
        }
    }
    Ok(())
}

fn number<T: std::str::FromStr + PartialOrd + std::fmt::Display>(
    key: &str,
    value: &str,
    least: T,
) -> Result<T, String> {
    match value.parse() {
        Ok(number) if number >= least => Ok(number),
        Ok(_) => Err(format!("{key} must be at least {least}")),
        Err(_) => Err(format!("{key} must be a whole number, not {value:?}")),
    }
}
