//! The prompt of a completion: one or several, as text or as token ids.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, SeqAccess, Visitor};
use types::TokenId;

use crate::Limits;
use crate::error::ApiError;
use crate::parse::Int;

/// One prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Prompt {
    /// Text still to be tokenized.
    Text(String),
    /// Token ids, each in the vocabulary, at least one.
    Tokens(Vec<TokenId>),
}

/// `"text"`, `["text", ...]`, `[1, ...]` or `[[1, ...], ...]`.
#[derive(Debug, Clone)]
pub(crate) enum RawPrompt {
    Text(String),
    List(Vec<Item>),
}

/// An element of a list.
#[derive(Debug, Clone)]
pub(crate) enum Item {
    Text(String),
    Id(Int),
    Ids(Vec<Int>),
}

impl<'de> Deserialize<'de> for RawPrompt {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PromptVisitor;
        impl<'de> Visitor<'de> for PromptVisitor {
            type Value = RawPrompt;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string, an array of strings, or an array of token ids")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<RawPrompt, E> {
                Ok(RawPrompt::Text(text.to_owned()))
            }
            fn visit_string<E: Error>(self, text: String) -> Result<RawPrompt, E> {
                Ok(RawPrompt::Text(text))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<RawPrompt, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = seq.next_element()? {
                    items.push(item);
                }
                Ok(RawPrompt::List(items))
            }
        }
        deserializer.deserialize_any(PromptVisitor)
    }
}

impl<'de> Deserialize<'de> for Item {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ItemVisitor;
        impl<'de> Visitor<'de> for ItemVisitor {
            type Value = Item;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string, a token id, or an array of token ids")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Item, E> {
                Ok(Item::Text(text.to_owned()))
            }
            fn visit_i64<E: Error>(self, id: i64) -> Result<Item, E> {
                Ok(Item::Id(Int(id)))
            }
            fn visit_u64<E: Error>(self, id: u64) -> Result<Item, E> {
                // An id of that size is in no vocabulary; the check says so.
                Ok(Item::Id(Int(i64::try_from(id).unwrap_or(i64::MAX))))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Item, A::Error> {
                let mut ids = Vec::new();
                while let Some(id) = seq.next_element()? {
                    ids.push(id);
                }
                Ok(Item::Ids(ids))
            }
        }
        deserializer.deserialize_any(ItemVisitor)
    }
}

/// Checks the prompts of a request: at least one, none an empty list, ids in the vocabulary.
pub(crate) fn check(raw: RawPrompt, limits: &Limits) -> Result<Vec<Prompt>, ApiError> {
    let items = match raw {
        RawPrompt::Text(text) => return Ok(vec![Prompt::Text(text)]),
        RawPrompt::List(items) => items,
    };
    let empty = |path: &str| ApiError::invalid(path, format!("{path}: must not be empty"));
    if items.is_empty() {
        return Err(empty("prompt"));
    }
    if items.iter().all(|item| matches!(item, Item::Id(_))) {
        let ids = items.iter().enumerate().filter_map(|(at, item)| match item {
            Item::Id(id) => Some(token(*id, &format!("prompt[{at}]"), limits)),
            Item::Text(_) | Item::Ids(_) => None,
        });
        return Ok(vec![Prompt::Tokens(ids.collect::<Result<_, _>>()?)]);
    }
    let one = |(at, item): (usize, Item)| match item {
        Item::Text(text) => Ok(Prompt::Text(text)),
        Item::Ids(ids) if ids.is_empty() => Err(empty(&format!("prompt[{at}]"))),
        Item::Ids(ids) => tokens(&ids, &format!("prompt[{at}]"), limits).map(Prompt::Tokens),
        Item::Id(_) => {
            let path = format!("prompt[{at}]");
            let message = format!("{path}: token ids and other prompts cannot be mixed");
            Err(ApiError::invalid(path, message))
        }
    };
    items.into_iter().enumerate().map(one).collect()
}

/// Checks a list of token ids.
pub(crate) fn tokens(ids: &[Int], path: &str, limits: &Limits) -> Result<Vec<TokenId>, ApiError> {
    let check = |(at, id): (usize, &Int)| token(*id, &format!("{path}[{at}]"), limits);
    ids.iter().enumerate().map(check).collect()
}

/// Checks one token id.
pub(crate) fn token(Int(id): Int, path: &str, limits: &Limits) -> Result<TokenId, ApiError> {
    u32::try_from(id).ok().map(TokenId).filter(|id| id.index() < limits.vocab).ok_or_else(|| {
        let vocab = limits.vocab;
        let message = format!("{path}: token id {id} is not in the vocabulary of {vocab} tokens");
        ApiError::invalid(path, message)
    })
}
