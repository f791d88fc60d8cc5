//! The text of one answer, made token by token: decoding and stop strings together.
//!
//! Called on the engine's thread for every token: no locks, no input or output, time in
//! proportion to the token's bytes times the number of stop strings.

use types::TokenId;

use crate::stop::StopMatcher;
use crate::stream::StreamDecoder;

/// What one token adds to the visible text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Piece {
    /// Complete characters that may be shown now; often empty.
    pub text: String,
    /// A stop string is complete: the text ends here, before the stop string.
    pub stopped: bool,
}

/// Turns the tokens of one answer into text that may be shown.
pub struct TextStream {
    decoder: StreamDecoder,
    stops: StopMatcher,
}

impl TextStream {
    /// Joins a decoder and a matcher; usually through [`Tokenizer::text_stream`].
    ///
    /// [`Tokenizer::text_stream`]: crate::Tokenizer::text_stream
    #[must_use]
    pub fn new(decoder: StreamDecoder, stops: StopMatcher) -> Self {
        Self { decoder, stops }
    }

    /// Takes the next token.
    pub fn push(&mut self, token: TokenId) -> Piece {
        let (text, stopped) = self.stops.push(&self.decoder.push(token));
        Piece { text, stopped }
    }

    /// Ends the answer and returns the rest of its text: an incomplete character as U+FFFD and
    /// what was held back for a stop string. That U+FFFD may itself complete a stop string.
    pub fn finish(&mut self) -> Piece {
        let (mut text, stopped) = self.stops.push(&self.decoder.flush());
        if !stopped {
            text.push_str(&self.stops.flush());
        }
        Piece { text, stopped }
    }
}
