//! Loading of a model folder in Hugging Face layout.
//!
//! Reads `tokenizer.json`, `tokenizer_config.json`, `special_tokens_map.json` and
//! `chat_template.jinja`. The ids that end generation are the model's business, not read here.

use std::fs;
use std::io;
use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value};
use types::TokenId;

use crate::error::LoadError;
use crate::pieces::{Entry, Kind, Pieces, Spelling};
use crate::tokenizer::{Parts, SpecialToken, SpecialTokens};

/// Reads the folder; only `tokenizer.json` must be there.
pub(crate) fn load(folder: &Path) -> Result<Parts, LoadError> {
    let path = folder.join("tokenizer.json");
    let bytes = fs::read(&path).map_err(|source| LoadError::Read { path: path.clone(), source })?;
    let mut encoder = tokenizers::Tokenizer::from_bytes(&bytes)
        .map_err(|error| LoadError::Parse { path, message: error.to_string() })?;
    // A file may carry the padding and truncation of its training run.
    encoder.with_padding(None);
    encoder.with_truncation(None).map_err(|error| LoadError::Vocabulary(error.to_string()))?;

    let config = read_object(&folder.join("tokenizer_config.json"))?;
    let map = read_object(&folder.join("special_tokens_map.json"))?;
    let special = |key: &str| {
        let text = token_text(config.get(key)).or_else(|| token_text(map.get(key)))?;
        let id = encoder.token_to_id(&text).map(TokenId);
        Some(SpecialToken { text, id })
    };
    let special = SpecialTokens {
        bos: special("bos_token"),
        eos: special("eos_token"),
        pad: special("pad_token"),
        unk: special("unk_token"),
    };
    let template = chat_template(folder, &config)?;
    let pieces = pieces(&encoder)?;
    Ok(Parts { encoder, pieces, special, template, prefix: None })
}

pub(crate) fn pieces(encoder: &tokenizers::Tokenizer) -> Result<Pieces, LoadError> {
    let decoder = serde_json::to_value(encoder.get_decoder())
        .map_err(|error| LoadError::Vocabulary(error.to_string()))?;
    let spelling = Spelling::from_decoder(&decoder)?;
    let vocab = encoder.get_vocab(true);
    let added = encoder.get_added_tokens_decoder();
    let entries: Vec<Entry<'_>> = vocab
        .iter()
        .map(|(text, &id)| {
            let kind = match added.get(&id) {
                None => Kind::Normal,
                Some(token) if token.special => Kind::Special,
                Some(_) => Kind::Added,
            };
            Entry { id, text, kind }
        })
        .collect();
    Pieces::new(&entries, spelling)
}

/// A token as the configuration files write it: its text, or an object with its `content`.
fn token_text(value: Option<&Value>) -> Option<String> {
    let value = value?;
    value.as_str().or_else(|| value.get("content")?.as_str()).map(str::to_owned)
}

/// The object in a JSON file; empty where the file is absent.
fn read_object(path: &Path) -> Result<Map<String, Value>, LoadError> {
    match fs::read(path) {
        Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| LoadError::Parse {
            path: path.to_owned(),
            message: error.to_string(),
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Map::new()),
        Err(source) => Err(LoadError::Read { path: path.to_owned(), source }),
    }
}

/// One of several templates in `tokenizer_config.json`.
#[derive(Deserialize)]
struct Named {
    name: String,
    template: String,
}

/// The template file wins over the configuration; of several, the one named `default` is taken.
fn chat_template(folder: &Path, config: &Map<String, Value>) -> Result<Option<String>, LoadError> {
    let path = folder.join("chat_template.jinja");
    match fs::read_to_string(&path) {
        Ok(source) => return Ok(Some(source)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(source) => return Err(LoadError::Read { path, source }),
    }
    let value = match config.get("chat_template") {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::String(source)) => return Ok(Some(source.clone())),
        Some(value) => value,
    };
    let named = Vec::<Named>::deserialize(value).map_err(|error| LoadError::Parse {
        path: folder.join("tokenizer_config.json"),
        message: format!("chat_template: {error}"),
    })?;
    Ok(named.into_iter().find(|one| one.name == "default").map(|one| one.template))
}
