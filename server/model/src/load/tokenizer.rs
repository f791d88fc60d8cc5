//! Where a model's tokenizer is: files of its folder, or plain data out of GGUF metadata.
//!
//! Nothing is interpreted here; crate `tokenizer` does that.

use std::path::PathBuf;

use types::TokenId;

use crate::config::ConfigError;
use crate::weights::gguf::{GgufHeader, Value};

/// Where to find the tokenizer of a loaded model.
#[derive(Debug, Clone, PartialEq)]
pub enum TokenizerSource {
    /// `tokenizer.json` and `tokenizer_config.json` in this folder.
    HfFolder(PathBuf),
    /// The metadata of the model's GGUF file.
    Gguf(Box<GgufTokenizer>),
}

/// The `tokenizer.*` metadata of a GGUF file.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct GgufTokenizer {
    /// The kind of tokenizer: `gpt2` is byte-level BPE.
    pub model: String,
    /// The name of its pre-tokenizer.
    pub pre: Option<String>,
    /// The text of each token, in the tokenizer's own alphabet.
    pub tokens: Vec<String>,
    /// 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte; one per token, or empty.
    pub token_types: Vec<i32>,
    /// Pairs to merge, first things first: two texts and a space between them.
    pub merges: Vec<String>,
    /// First token of a text.
    pub bos: Option<TokenId>,
    /// Last token of a text.
    pub eos: Option<TokenId>,
    /// Filler.
    pub pad: Option<TokenId>,
    /// What stands for unknown text.
    pub unk: Option<TokenId>,
    /// Whether `bos` is put before every text, where the file says.
    pub add_bos: Option<bool>,
    /// Whether a space is put before every text, where the file says.
    pub add_space_prefix: Option<bool>,
    /// The Jinja template of chats.
    pub chat_template: Option<String>,
}

/// Takes the tokenizer out of a header.
pub(super) fn from_gguf(header: GgufHeader) -> Result<TokenizerSource, ConfigError> {
    let mut take = Taker(header);
    let model = take.text("tokenizer.ggml.model");
    let model = model.ok_or_else(|| ConfigError::Missing("tokenizer.ggml.model".to_owned()))?;
    let tokens = take.texts("tokenizer.ggml.tokens");
    if tokens.is_empty() {
        return Err(ConfigError::Missing("tokenizer.ggml.tokens".to_owned()));
    }
    let types = take.0.metadata.get("tokenizer.ggml.token_type").and_then(Value::integers);
    let token_types = types.unwrap_or_default().iter().map(|kind| *kind as i32).collect();
    Ok(TokenizerSource::Gguf(Box::new(GgufTokenizer {
        pre: take.text("tokenizer.ggml.pre"),
        token_types,
        merges: take.texts("tokenizer.ggml.merges"),
        bos: take.id("tokenizer.ggml.bos_token_id"),
        eos: take.id("tokenizer.ggml.eos_token_id"),
        pad: take.id("tokenizer.ggml.padding_token_id"),
        unk: take.id("tokenizer.ggml.unknown_token_id"),
        add_bos: take.flag("tokenizer.ggml.add_bos_token"),
        add_space_prefix: take.flag("tokenizer.ggml.add_space_prefix"),
        chat_template: take.text("tokenizer.chat_template"),
        model,
        tokens,
    })))
}

/// Moves values out of the header, so that a large vocabulary is not copied.
struct Taker(GgufHeader);

impl Taker {
    fn text(&mut self, key: &str) -> Option<String> {
        if let Some(Value::Text(text)) = self.0.metadata.remove(key) { Some(text) } else { None }
    }

    fn texts(&mut self, key: &str) -> Vec<String> {
        if let Some(Value::Texts(texts)) = self.0.metadata.remove(key) { texts } else { Vec::new() }
    }

    fn id(&self, key: &str) -> Option<TokenId> {
        let id = self.0.metadata.get(key)?.as_u64()?;
        u32::try_from(id).ok().map(TokenId)
    }

    fn flag(&self, key: &str) -> Option<bool> {
        self.0.metadata.get(key)?.as_bool()
    }
}
