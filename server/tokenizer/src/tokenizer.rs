//! The loaded tokenizer: encoding, decoding, and what else a model folder says about its text.

use std::path::Path;
use std::sync::Arc;

use types::TokenId;

use crate::chat::ChatTemplate;
use crate::error::{LoadError, TemplateError, TokenizerError};
use crate::gguf::{self, GgufVocab};
use crate::hf;
use crate::least::Least;
use crate::pieces::{Kind, Pieces, Spelling};
use crate::stream::StreamDecoder;

/// A token with a role, as the model names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpecialToken {
    /// Its text, as chat templates print it.
    pub text: String,
    /// Its id; `None` where the vocabulary lacks the text.
    pub id: Option<TokenId>,
}

/// The tokens with a role.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SpecialTokens {
    /// Begins a sequence.
    pub bos: Option<SpecialToken>,
    /// Ends a sequence or a turn.
    pub eos: Option<SpecialToken>,
    /// Fills a batch.
    pub pad: Option<SpecialToken>,
    /// Stands for what the vocabulary cannot spell.
    pub unk: Option<SpecialToken>,
}

/// A loaded tokenizer. Shared between threads by `Arc`; every call takes `&self`.
pub struct Tokenizer {
    encoder: tokenizers::Tokenizer,
    pieces: Arc<Pieces>,
    least: Option<Least>,
    special: SpecialTokens,
    template: Result<ChatTemplate, TemplateError>,
    /// Put before every text where special tokens are asked for and `encoder` does not do it.
    prefix: Option<TokenId>,
}

/// The parts that the loaders produce.
pub(crate) struct Parts {
    pub(crate) encoder: tokenizers::Tokenizer,
    pub(crate) pieces: Pieces,
    pub(crate) special: SpecialTokens,
    /// The source of the chat template.
    pub(crate) template: Option<String>,
    pub(crate) prefix: Option<TokenId>,
}

impl Tokenizer {
    /// Loads the tokenizer of a model folder in Hugging Face layout: `tokenizer.json`, and where
    /// present `tokenizer_config.json` and `chat_template.jinja`.
    pub fn from_hf_folder(folder: &Path) -> Result<Self, LoadError> {
        hf::load(folder).map(Self::from_parts)
    }

    /// Builds the tokenizer that a GGUF file's metadata describes.
    pub fn from_gguf(vocab: &GgufVocab) -> Result<Self, LoadError> {
        gguf::build(vocab).map(Self::from_parts)
    }

    fn from_parts(parts: Parts) -> Self {
        let template = match parts.template {
            Some(source) => ChatTemplate::new(&source, &parts.special),
            None => Err(TemplateError::Absent),
        };
        Self {
            least: Least::new(&parts.encoder, &parts.pieces),
            encoder: parts.encoder,
            pieces: Arc::new(parts.pieces),
            special: parts.special,
            template,
            prefix: parts.prefix,
        }
    }

    /// The ids of `text`. Special tokens spelled out in the text become their ids. With
    /// `add_special` the model's own prefix (such as BOS) is added; a rendered chat prompt holds
    /// it already and is encoded without. The time grows as n log n with the longest word.
    pub fn encode(&self, text: &str, add_special: bool) -> Result<Vec<TokenId>, TokenizerError> {
        let encoding = self
            .encoder
            .encode_fast(text, add_special)
            .map_err(|error| TokenizerError::Encode(error.to_string()))?;
        let prefix = self.prefix.filter(|_| add_special);
        Ok(prefix.into_iter().chain(encoding.get_ids().iter().copied().map(TokenId)).collect())
    }

    /// `text` has at least so many tokens, found much faster than they are: a lower bound, near for
    /// plain words, that looks at the first 256 KiB. 0 where nothing is known.
    #[must_use]
    pub fn least_tokens(&self, text: &str) -> usize {
        self.least.as_ref().map_or(0, |least| least.tokens(text))
    }

    /// A place in `text`, at `most` or a little before, such that the tokens of what is before it
    /// are the first tokens of the whole; `None` where none is sure.
    #[must_use]
    pub fn cut(&self, text: &str, most: usize) -> Option<usize> {
        self.least.as_ref()?.cut(text, most)
    }

    /// The text of `ids`: their bytes joined, each maximal ill-formed part shown as one U+FFFD.
    /// With `skip_special`, special tokens are left out.
    pub fn decode(&self, ids: &[TokenId], skip_special: bool) -> Result<String, TokenizerError> {
        let mut decoder = self.stream_decoder(skip_special);
        let mut text = String::new();
        for &id in ids {
            if self.pieces.kind(id).is_none() {
                let vocab = self.pieces.len();
                return Err(TokenizerError::UnknownToken { id: id.0, vocab });
            }
            decoder.push_to(id, &mut text);
        }
        text.push_str(&decoder.flush());
        let strip = match self.pieces.spelling {
            Spelling::ByteLevel => false,
            Spelling::SentencePiece { strip_leading_space } => strip_leading_space,
        };
        if strip && text.starts_with(' ') {
            text.remove(0);
        }
        Ok(text)
    }

    /// A decoder for the continuation of a text, token by token.
    #[must_use]
    pub fn stream_decoder(&self, skip_special: bool) -> StreamDecoder {
        StreamDecoder::new(Arc::clone(&self.pieces), skip_special)
    }

    /// The special tokens with one of these texts.
    #[must_use]
    pub fn special_ids(&self, texts: &[&str]) -> Vec<TokenId> {
        let id = |text: &&str| self.encoder.token_to_id(text).map(TokenId);
        texts.iter().filter_map(id).filter(|id| self.is_special(*id)).collect()
    }

    /// Ids are below this number; some of them may belong to no token.
    #[must_use]
    pub fn vocab_size(&self) -> usize {
        self.pieces.len()
    }

    /// The bytes of one token, special or not; `None` where no token has the id.
    #[must_use]
    pub fn token_bytes(&self, id: TokenId) -> Option<&[u8]> {
        self.pieces.bytes(id)
    }

    /// The text of one token alone, with U+FFFD for parts of characters; empty for an unknown id.
    #[must_use]
    pub fn token_text(&self, id: TokenId) -> String {
        String::from_utf8_lossy(self.pieces.bytes(id).unwrap_or_default()).into_owned()
    }

    /// Whether decoding with `skip_special` leaves this token out.
    #[must_use]
    pub fn is_special(&self, id: TokenId) -> bool {
        self.pieces.kind(id) == Some(Kind::Special)
    }

    /// The tokens with a role.
    #[must_use]
    pub fn special(&self) -> &SpecialTokens {
        &self.special
    }

    /// The model's chat template, or why there is none.
    pub fn chat_template(&self) -> Result<&ChatTemplate, TemplateError> {
        self.template.as_ref().map_err(Clone::clone)
    }
}

#[cfg(test)]
pub(crate) mod tests;
