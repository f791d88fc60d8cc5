//! A prompt that is given back token by token: which token stands for which part of its text.

use std::sync::Arc;

use tokenizer::Tokenizer;
use types::TokenId;

/// The text of a prompt in one part per token. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptEcho {
    tokens: Arc<[TokenId]>,
    parts: Arc<[String]>,
}

impl PromptEcho {
    /// The parts of `text`, which `tokens` were made from. Joined they are the text: a token that
    /// is not in it, such as the one that begins every text, stands for nothing; one whose
    /// spelling was normalised stands for as many characters as it has.
    #[must_use]
    pub fn new(tokenizer: &Tokenizer, text: &str, tokens: &[TokenId]) -> Self {
        let mut decoder = tokenizer.stream_decoder(false);
        let mut rest = text;
        let mut parts = Vec::with_capacity(tokens.len());
        for &token in tokens {
            let piece = decoder.push(token);
            let hidden = tokenizer.is_special(token);
            let (part, left) = rest.split_at(part_of(rest, &piece, hidden));
            parts.push(part.to_owned());
            rest = left;
        }
        if let Some(last) = parts.last_mut() {
            last.push_str(rest);
        }
        Self { tokens: tokens.into(), parts: parts.into() }
    }

    /// The token at a place, its part of the text.
    #[must_use]
    pub fn part(&self, index: usize) -> Option<(TokenId, &str)> {
        Some((*self.tokens.get(index)?, self.parts.get(index)?))
    }

    /// The whole text.
    #[must_use]
    pub fn text(&self) -> String {
        self.parts.concat()
    }

    /// Characters of the whole text.
    #[must_use]
    pub fn chars(&self) -> usize {
        self.parts.iter().map(|part| part.chars().count()).sum()
    }

    /// How many tokens there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }
}

/// How many bytes of `rest` a token stands for that decodes to `piece`.
fn part_of(rest: &str, piece: &str, hidden: bool) -> usize {
    // Some tokenizers put a blank before every text.
    let spelling = [Some(piece), piece.strip_prefix(' ')];
    if let Some(found) = spelling.into_iter().flatten().find(|piece| rest.starts_with(piece)) {
        return found.len();
    }
    let chars = if hidden { 0 } else { piece.chars().count() };
    rest.char_indices().nth(chars).map_or(rest.len(), |(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_join_to_the_text() {
        let vocab = tokenizer::GgufVocab::byte_level(512);
        let tokenizer = Tokenizer::from_gguf(&vocab).expect("the byte vocabulary is sound");
        let text = "über 日本!";
        let tokens: Vec<TokenId> = text.bytes().map(|byte| TokenId(byte.into())).collect();
        let echo = PromptEcho::new(&tokenizer, text, &tokens);
        assert_eq!((echo.text().as_str(), echo.len(), echo.chars()), (text, tokens.len(), 8));
        // The last byte of a character stands for it.
        assert_eq!(echo.part(0), Some((TokenId(0xc3), "")));
        assert_eq!(echo.part(1), Some((TokenId(0xbc), "ü")));
        assert_eq!(echo.part(tokens.len()), None);
        // A text that ends within a character, and one that is not what the tokens say.
        let half = PromptEcho::new(&tokenizer, "a\u{fffd}", &tokens[..1]);
        assert_eq!(half.text(), "a\u{fffd}");
        let other = PromptEcho::new(&tokenizer, "AB", &[TokenId(97), TokenId(98), TokenId(99)]);
        assert_eq!(
            (other.part(0), other.part(2)),
            (Some((TokenId(97), "A")), Some((TokenId(99), "")))
        );
        assert!(PromptEcho::new(&tokenizer, "", &[]).is_empty());
    }

    #[test]
    fn tokens_that_are_not_in_the_text_stand_for_nothing() {
        assert_eq!(part_of("Hello", "<s>", true), 0);
        assert_eq!(part_of("<s>Hello", "<s>", true), 3);
        assert_eq!(part_of("Hello", " Hello", false), 5);
        assert_eq!(part_of(" Hello", " Hello", false), 6);
        assert_eq!(part_of("日本", "ab", false), 6);
        assert_eq!(part_of("日", "abc", false), 3);
        assert_eq!(part_of("x", "", false), 0);
    }
}
