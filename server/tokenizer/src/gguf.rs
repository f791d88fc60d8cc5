//! Building of a tokenizer from the metadata of a GGUF file.
//!
//! Takes plain data, not a file. Only byte-level BPE (`tokenizer.ggml.model = gpt2`) is built.

use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::normalizers::NFC;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{AddedToken, SplitDelimiterBehavior};
use types::TokenId;

use crate::error::LoadError;
use crate::pieces::{Entry, Kind, Pieces, Spelling, byte_alphabet};
use crate::tokenizer::{Parts, SpecialToken, SpecialTokens};

/// The values of `tokenizer.ggml.model` that work.
pub const SUPPORTED_MODELS: &[&str] = &["gpt2"];

/// The values of `tokenizer.ggml.pre` that work. `default` and an absent key mean GPT-2's split.
pub const SUPPORTED_PRE: &[&str] = &["default", "gpt-2", "smollm", "llama-bpe", "qwen2"];

/// The `tokenizer.ggml.*` metadata of a GGUF file.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GgufVocab {
    /// `model`: the algorithm.
    pub model: String,
    /// `pre`: the split into words before merging.
    pub pre: Option<String>,
    /// `tokens`: the text of each id.
    pub tokens: Vec<String>,
    /// `token_type` of each id: 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte.
    /// Empty where the file has none: then all are normal.
    pub token_types: Vec<i32>,
    /// `merges`: two tokens separated by one space, the most important first.
    pub merges: Vec<String>,
    /// `bos_token_id`.
    pub bos: Option<u32>,
    /// `eos_token_id`.
    pub eos: Option<u32>,
    /// `padding_token_id`.
    pub pad: Option<u32>,
    /// `unknown_token_id`.
    pub unk: Option<u32>,
    /// `add_bos_token`; absent means what is usual for `pre`.
    pub add_bos: Option<bool>,
    /// `add_space_prefix`; absent means false.
    pub add_space_prefix: Option<bool>,
    /// `tokenizer.chat_template`.
    pub chat_template: Option<String>,
}

const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;

impl GgufVocab {
    /// A vocabulary without merges for models that are not real: ids 0 to 255 are the bytes,
    /// 256 is `<|bos|>`, 257 `<|eos|>`, and reserved tokens follow up to `vocab` ids (at least
    /// 258). The chat template puts each turn on a line of its own.
    #[must_use]
    pub fn byte_level(vocab: usize) -> Self {
        let mut tokens: Vec<String> = byte_alphabet().iter().map(char::to_string).collect();
        tokens.extend(["<|bos|>".to_owned(), "<|eos|>".to_owned()]);
        tokens.extend((tokens.len()..vocab).map(|id| format!("<|reserved_{id}|>")));
        let token_types = (0..tokens.len()).map(|id| if id < 256 { 1 } else { CONTROL }).collect();
        let template = "{% for message in messages %}\
            {{ message['role'] + ': ' + message['content'] + '\n' }}{% endfor %}\
            {% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}";
        Self {
            model: "gpt2".to_owned(),
            pre: Some("gpt-2".to_owned()),
            tokens,
            token_types,
            bos: Some(256),
            eos: Some(257),
            add_bos: Some(false),
            chat_template: Some(template.to_owned()),
            ..Self::default()
        }
    }

    fn kind(&self, id: usize) -> Kind {
        match self.token_types.get(id) {
            Some(&CONTROL) => Kind::Special,
            Some(&USER_DEFINED) => Kind::Added,
            Some(_) | None => Kind::Normal,
        }
    }

    fn special(&self, id: Option<u32>) -> Result<Option<SpecialToken>, LoadError> {
        let Some(id) = id else { return Ok(None) };
        let text = self.tokens.get(id as usize).cloned().ok_or_else(|| {
            let message =
                format!("special token id {id} is not below {} tokens", self.tokens.len());
            LoadError::Vocabulary(message)
        })?;
        Ok(Some(SpecialToken { text, id: Some(TokenId(id)) }))
    }
}

/// Builds the tokenizer, or says which part of the metadata is not supported.
pub(crate) fn build(vocab: &GgufVocab) -> Result<Parts, LoadError> {
    if !SUPPORTED_MODELS.contains(&vocab.model.as_str()) {
        return Err(LoadError::Unsupported {
            key: "tokenizer.ggml.model",
            value: vocab.model.clone(),
            supported: SUPPORTED_MODELS.join(", "),
        });
    }
    let types = vocab.token_types.len();
    if types != 0 && types != vocab.tokens.len() {
        let message = format!("{} tokens but {types} token types", vocab.tokens.len());
        return Err(LoadError::Vocabulary(message));
    }
    let special = SpecialTokens {
        bos: vocab.special(vocab.bos)?,
        eos: vocab.special(vocab.eos)?,
        pad: vocab.special(vocab.pad)?,
        unk: vocab.special(vocab.unk)?,
    };
    let pre = Pre::named(vocab.pre.as_deref().unwrap_or("default"))?;
    let encoder = encoder(vocab, pre)?;
    let entries: Vec<Entry<'_>> = (0..)
        .zip(&vocab.tokens)
        .map(|(id, text)| Entry { id, text, kind: vocab.kind(id as usize) })
        .collect();
    let pieces = Pieces::new(&entries, Spelling::ByteLevel)?;
    let add_bos = vocab.add_bos.unwrap_or(pre == Pre::Llama);
    let prefix = special.bos.as_ref().filter(|_| add_bos).and_then(|bos| bos.id);
    let template = vocab.chat_template.clone();
    Ok(Parts { encoder, pieces, special, template, prefix })
}

fn encoder(vocab: &GgufVocab, pre: Pre) -> Result<tokenizers::Tokenizer, LoadError> {
    let broken = |error: tokenizers::Error| LoadError::Vocabulary(error.to_string());
    let mut ids = Vocab::default();
    for (id, token) in (0..).zip(&vocab.tokens) {
        // Of tokens with the same text, encoding uses the first.
        ids.entry(token.clone()).or_insert(id);
    }
    let merges = vocab
        .merges
        .iter()
        .map(|merge| {
            let (left, right) = merge.split_once(' ').ok_or_else(|| {
                LoadError::Vocabulary(format!("merge {merge:?} is not two tokens"))
            })?;
            Ok((left.to_owned(), right.to_owned()))
        })
        .collect::<Result<Vec<_>, LoadError>>()?;
    let model = BPE::builder()
        .vocab_and_merges(ids, merges)
        .ignore_merges(pre == Pre::Llama)
        .build()
        .map_err(broken)?;
    let mut encoder = tokenizers::Tokenizer::new(model);
    if pre == Pre::Qwen2 {
        encoder.with_normalizer(Some(NFC)).map_err(broken)?;
    }
    let add_space = vocab.add_space_prefix.unwrap_or(false);
    encoder.with_pre_tokenizer(Some(pre.pre_tokenizer(add_space).map_err(broken)?));
    let added = (0..).zip(&vocab.tokens).filter_map(|(id, text)| match vocab.kind(id) {
        Kind::Normal => None,
        Kind::Added => Some(AddedToken::from(text.as_str(), false).normalized(false)),
        Kind::Special => Some(AddedToken::from(text.as_str(), true)),
    });
    encoder.add_tokens(added.collect::<Vec<_>>()).map_err(broken)?;
    Ok(encoder)
}

/// The splits into words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pre {
    Gpt2,
    /// Each digit on its own, then GPT-2's split.
    Smollm,
    /// Up to three digits together; a word that is a token is never merged from parts.
    Llama,
    /// Each digit on its own; text is put into NFC first, as in the model's own tokenizer.json.
    Qwen2,
}

impl Pre {
    fn named(name: &str) -> Result<Self, LoadError> {
        match name {
            "default" | "gpt-2" => Ok(Self::Gpt2),
            "smollm" => Ok(Self::Smollm),
            "llama-bpe" => Ok(Self::Llama),
            "qwen2" => Ok(Self::Qwen2),
            other => Err(LoadError::Unsupported {
                key: "tokenizer.ggml.pre",
                value: other.to_owned(),
                supported: SUPPORTED_PRE.join(", "),
            }),
        }
    }

    fn pre_tokenizer(self, add_space: bool) -> tokenizers::Result<Sequence> {
        let split = |digits: &str| -> tokenizers::Result<PreTokenizerWrapper> {
            let pattern = SplitPattern::Regex(word_pattern(digits));
            Ok(Split::new(pattern, SplitDelimiterBehavior::Isolated, false)?.into())
        };
        let bytes = |use_regex| ByteLevel::new(add_space, true, use_regex).into();
        Ok(Sequence::new(match self {
            Self::Gpt2 => vec![bytes(true)],
            Self::Smollm => vec![Digits::new(true).into(), bytes(true)],
            Self::Llama => vec![split(r"\p{N}{1,3}")?, bytes(false)],
            Self::Qwen2 => vec![split(r"\p{N}")?, bytes(false)],
        }))
    }
}

/// The word pattern that the Llama 3 and Qwen vocabularies were trained with; they differ in how
/// digits are grouped.
fn word_pattern(digits: &str) -> String {
    let contractions = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";
    let letters = r"[^\r\n\p{L}\p{N}]?\p{L}+";
    let others = r" ?[^\s\p{L}\p{N}]+[\r\n]*";
    let spaces = r"\s*[\r\n]+|\s+(?!\S)|\s+";
    format!("{contractions}|{letters}|{digits}|{others}|{spaces}")
}

#[cfg(test)]
mod tests;
