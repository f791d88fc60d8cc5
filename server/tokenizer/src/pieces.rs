//! The bytes of every token, in one table: what decoding appends for an id.
//!
//! Decoding is concatenation of these bytes and one lossy UTF-8 conversion, whole or streamed.
//! The table knows nothing of merges or of encoding.

use std::collections::HashMap;

use serde_json::Value;
use types::TokenId;

use crate::error::LoadError;

/// How the vocabulary spells bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spelling {
    /// GPT-2's printable alphabet: one character per byte.
    ByteLevel,
    /// `▁` for a space and `<0x0A>` for a byte.
    SentencePiece {
        /// Whether the first space of a text is not part of it.
        strip_leading_space: bool,
    },
}

const SUPPORTED_DECODERS: &str = "ByteLevel, Metaspace, \
    Sequence of Replace, ByteFallback, Fuse and Strip";

impl Spelling {
    /// Reads the `decoder` of a tokenizer.json.
    pub(crate) fn from_decoder(decoder: &Value) -> Result<Self, LoadError> {
        let unsupported = || LoadError::Unsupported {
            key: "the decoder of tokenizer.json",
            value: decoder["type"].as_str().unwrap_or("none").to_owned(),
            supported: SUPPORTED_DECODERS.to_owned(),
        };
        match decoder["type"].as_str() {
            Some("ByteLevel") => Ok(Self::ByteLevel),
            Some("Metaspace") if decoder["replacement"] == "▁" => Ok(Self::SentencePiece {
                strip_leading_space: decoder["prepend_scheme"] != "never",
            }),
            Some("Sequence") => {
                let parts = decoder["decoders"].as_array().ok_or_else(unsupported)?;
                Self::from_sequence(parts).ok_or_else(unsupported)
            }
            _ => Err(unsupported()),
        }
    }

    fn from_sequence(parts: &[Value]) -> Option<Self> {
        let is = |kind: &str| parts.iter().any(|part| part["type"] == kind);
        if parts.len() == 1 && is("ByteLevel") {
            return Some(Self::ByteLevel);
        }
        let known = parts.iter().all(|part| match part["type"].as_str() {
            Some("Replace") => part["pattern"]["String"] == "▁" && part["content"] == " ",
            Some("Strip") => part["content"] == " " && part["start"] == 1 && part["stop"] == 0,
            Some("ByteFallback" | "Fuse") => true,
            _ => false,
        });
        (known && is("Replace")).then(|| Self::SentencePiece { strip_leading_space: is("Strip") })
    }

    /// The bytes that the vocabulary entry `token` stands for.
    fn bytes_of(self, token: &str, alphabet: &HashMap<char, u8>) -> Vec<u8> {
        match self {
            Self::ByteLevel => token
                .chars()
                .map(|symbol| alphabet.get(&symbol).copied())
                .collect::<Option<Vec<u8>>>()
                .unwrap_or_else(|| token.as_bytes().to_vec()),
            Self::SentencePiece { .. } => match byte_token(token) {
                Some(byte) => vec![byte],
                None => token.replace('▁', " ").into_bytes(),
            },
        }
    }
}

/// The byte of a `<0x0A>` token.
fn byte_token(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    (digits.len() == 2).then(|| u8::from_str_radix(digits, 16).ok())?
}

/// GPT-2's alphabet: the printable Latin-1 bytes stand for themselves, the others for the
/// characters from U+0100 on, in order.
pub(crate) fn byte_alphabet() -> [char; 256] {
    let mut next = 0x100;
    std::array::from_fn(|byte| {
        let byte = u8::try_from(byte).expect("an index below 256");
        match byte {
            b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff => char::from(byte),
            0..=b' ' | 0x7f..=0xa0 | 0xad => {
                next += 1;
                char::from_u32(next - 1).expect("below U+0144")
            }
        }
    })
}

/// One entry of a vocabulary.
pub(crate) struct Entry<'a> {
    pub(crate) id: u32,
    pub(crate) text: &'a str,
    pub(crate) kind: Kind,
}

/// What an entry is to the decoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Spelled in the vocabulary's alphabet.
    Normal,
    /// Literal text, shown like any other.
    Added,
    /// Literal text that is left out where special tokens are skipped.
    Special,
}

/// Bytes and kind of each id in `0 .. len`. Ids without a token have no bytes.
pub(crate) struct Pieces {
    bytes: Vec<u8>,
    /// `ends[id]` is where the bytes of `id` end; they start where those of `id - 1` end.
    ends: Vec<u32>,
    kinds: Vec<Option<Kind>>,
    pub(crate) spelling: Spelling,
}

/// Ids from here on would make the table larger than any vocabulary justifies.
const MAX_VOCAB: u32 = 1 << 22;

impl Pieces {
    /// Builds the table; the ids may come in any order and leave holes.
    pub(crate) fn new(entries: &[Entry<'_>], spelling: Spelling) -> Result<Self, LoadError> {
        if let Some(entry) = entries.iter().find(|entry| entry.id >= MAX_VOCAB) {
            let message = format!("token id {} is not below {MAX_VOCAB}", entry.id);
            return Err(LoadError::Vocabulary(message));
        }
        let len = entries.iter().map(|entry| entry.id + 1).max().unwrap_or(0);
        let mut by_id: Vec<Option<&Entry<'_>>> = vec![None; len as usize];
        for entry in entries {
            by_id[entry.id as usize] = Some(entry);
        }
        let alphabet = byte_alphabet();
        let alphabet = (0..=255).zip(alphabet).map(|(byte, symbol)| (symbol, byte)).collect();
        let mut pieces = Self { bytes: Vec::new(), ends: Vec::new(), kinds: Vec::new(), spelling };
        for entry in by_id {
            if let Some(entry) = entry {
                match entry.kind {
                    Kind::Normal => {
                        pieces.bytes.extend(spelling.bytes_of(entry.text, &alphabet));
                    }
                    Kind::Added | Kind::Special => pieces.bytes.extend(entry.text.as_bytes()),
                }
            }
            let end = u32::try_from(pieces.bytes.len())
                .map_err(|_| LoadError::Vocabulary("more than 4 GiB of text".to_owned()))?;
            pieces.ends.push(end);
            pieces.kinds.push(entry.map(|entry| entry.kind));
        }
        Ok(pieces)
    }

    /// Ids are below this number.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The bytes of a token; `None` where no token has the id.
    pub(crate) fn bytes(&self, id: TokenId) -> Option<&[u8]> {
        self.kind(id)?;
        let end = self.ends[id.index()] as usize;
        let start = id.index().checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        Some(&self.bytes[start..end])
    }

    /// The kind of a token; `None` where no token has the id.
    pub(crate) fn kind(&self, id: TokenId) -> Option<Kind> {
        self.kinds.get(id.index()).copied().flatten()
    }
}
