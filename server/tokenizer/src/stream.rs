//! Incremental decoding: tokens in, complete characters out.
//!
//! A character may be spread over several tokens; its bytes are held back until it is complete
//! or cannot become complete. Nothing here knows stop strings.

use std::sync::Arc;

use types::TokenId;

use crate::pieces::{Kind, Pieces};

/// Decodes one sequence token by token.
///
/// The pieces returned by [`push`](Self::push) and the last one of [`flush`](Self::flush),
/// concatenated, equal the lossy UTF-8 decoding of all bytes at once: each maximal ill-formed
/// part is one U+FFFD. A push costs time in proportion to its token's bytes.
pub struct StreamDecoder {
    pieces: Arc<Pieces>,
    skip_special: bool,
    /// Special tokens that are shown all the same.
    shown: Vec<TokenId>,
    /// The start of an incomplete character: at most 3 bytes.
    held: Vec<u8>,
}

impl StreamDecoder {
    pub(crate) fn new(pieces: Arc<Pieces>, skip_special: bool) -> Self {
        Self { pieces, skip_special, shown: Vec::new(), held: Vec::new() }
    }

    /// Shows these tokens even where special tokens are skipped.
    #[must_use]
    pub fn showing(self, shown: Vec<TokenId>) -> Self {
        Self { shown, ..self }
    }

    /// The text that `token` completes; often empty. An id that no token has adds nothing: a
    /// model's output layer may be wider than its vocabulary.
    pub fn push(&mut self, token: TokenId) -> String {
        let mut text = String::new();
        self.push_to(token, &mut text);
        text
    }

    /// Like [`push`](Self::push), appending to `text`.
    pub fn push_to(&mut self, token: TokenId, text: &mut String) {
        if self.skip_special
            && self.pieces.kind(token) == Some(Kind::Special)
            && !self.shown.contains(&token)
        {
            return;
        }
        let Some(bytes) = self.pieces.bytes(token) else { return };
        if self.held.is_empty() {
            self.held = append_lossy(bytes, text).to_vec();
        } else {
            let mut joined = std::mem::take(&mut self.held);
            joined.extend_from_slice(bytes);
            self.held = append_lossy(&joined, text).to_vec();
        }
    }

    /// Ends the text: a character still incomplete becomes one U+FFFD.
    pub fn flush(&mut self) -> String {
        let held = std::mem::take(&mut self.held);
        String::from_utf8_lossy(&held).into_owned()
    }
}

/// Appends what is decided of `bytes` to `text`; returns the undecided rest (0 to 3 bytes).
fn append_lossy<'a>(mut bytes: &'a [u8], text: &mut String) -> &'a [u8] {
    loop {
        let error = match std::str::from_utf8(bytes) {
            Ok(rest) => {
                text.push_str(rest);
                return &[];
            }
            Err(error) => error,
        };
        let (valid, rest) = bytes.split_at(error.valid_up_to());
        text.push_str(std::str::from_utf8(valid).expect("checked by the error's position"));
        match error.error_len() {
            None => return rest,
            Some(len) => {
                text.push(char::REPLACEMENT_CHARACTER);
                bytes = &rest[len..];
            }
        }
    }
}

#[cfg(test)]
mod tests;
