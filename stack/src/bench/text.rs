//! Text of a wanted number of tokens, the same for the same seed.
//!
//! It is made of words with a space before each: tokenizers split there, so that the tokens of a
//! text are the sum of the tokens of its words. What a word costs is measured on the server.

use crate::dice::Dice;

/// Common words, one token each in most vocabularies.
pub(crate) const WORDS: [&str; 48] = [
    "time",
    "year",
    "people",
    "way",
    "day",
    "man",
    "thing",
    "woman",
    "life",
    "child",
    "world",
    "school",
    "state",
    "family",
    "student",
    "group",
    "country",
    "problem",
    "hand",
    "part",
    "place",
    "case",
    "week",
    "company",
    "system",
    "program",
    "question",
    "work",
    "government",
    "number",
    "night",
    "point",
    "home",
    "water",
    "room",
    "mother",
    "area",
    "money",
    "story",
    "fact",
    "month",
    "lot",
    "right",
    "study",
    "book",
    "eye",
    "job",
    "word",
];

/// Fills up where no word fits any more; byte-level vocabularies need it.
pub(crate) const FILLER: &str = ".";

/// How the tokens of a text were learnt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// Word by word, from the server's `/tokenize`.
    Tokenize,
    /// From the usage that the server told for two prompts.
    Usage,
    /// Not at all: one token a word.
    Guess,
}

impl Source {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Tokenize => "/tokenize",
            Self::Usage => "usage",
            Self::Guess => "a guess",
        }
    }
}

/// What words cost.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Vocabulary {
    costs: [f64; WORDS.len()],
    filler: f64,
    /// Tokens of a prompt that are not of its text: templates, begin of sequence.
    overhead: u64,
    source: Source,
}

impl Vocabulary {
    /// Each word and the filler with its own cost in tokens.
    pub(crate) fn measured(costs: [u64; WORDS.len()], filler: u64, overhead: u64) -> Self {
        let costs = costs.map(|cost| cost.max(1) as f64);
        Self { costs, filler: filler.max(1) as f64, overhead, source: Source::Tokenize }
    }

    /// All words alike.
    pub(crate) fn average(tokens_per_word: f64, overhead: u64, source: Source) -> Self {
        let cost = tokens_per_word.max(0.1);
        Self { costs: [cost; WORDS.len()], filler: 1.0, overhead, source }
    }

    /// From what the server told for prompts of two sizes, as (words, prompt tokens).
    ///
    /// `None` where the numbers make no sense, such as fewer tokens for more words.
    pub(crate) fn from_usage(small: (u64, u64), large: (u64, u64)) -> Option<Self> {
        let words = large.0.checked_sub(small.0).filter(|words| *words > 0)?;
        let tokens = large.1.checked_sub(small.1).filter(|tokens| *tokens > 0)?;
        let per_word = tokens as f64 / words as f64;
        let overhead = (small.1 as f64 - per_word * small.0 as f64).round().max(0.0);
        Some(Self::average(per_word, overhead as u64, Source::Usage))
    }

    pub(crate) const fn source(&self) -> Source {
        self.source
    }

    /// Tokens of a prompt that are not of its text.
    pub(crate) const fn overhead(&self) -> u64 {
        self.overhead
    }

    pub(crate) fn with_overhead(mut self, overhead: u64) -> Self {
        self.overhead = overhead;
        self
    }

    /// Appends text of about `tokens` tokens; exact where the costs are measured.
    pub(crate) fn write(&self, dice: &mut Dice, tokens: u64, out: &mut String) {
        let mut left = tokens as f64;
        // Words are a few letters, tokens too.
        out.reserve(usize::try_from(tokens).unwrap_or(0).saturating_mul(5));
        while left >= 0.5 {
            let drawn = dice.range(0, WORDS.len() as u64) as usize;
            let fits = |at: &usize| self.costs[*at] <= left + 0.5;
            let word = (drawn..WORDS.len()).chain(0..drawn).find(fits);
            let (text, cost) = match word {
                Some(at) => {
                    out.push(' ');
                    (WORDS[at], self.costs[at])
                }
                None => (FILLER, self.filler),
            };
            out.push_str(text);
            left -= cost;
        }
    }

    /// Tokens that this model of the vocabulary gives to what [`write`](Self::write) wrote.
    #[cfg(test)]
    pub(crate) fn count(&self, text: &str) -> f64 {
        let mut tokens = 0.0;
        for word in text.split(' ').filter(|word| !word.is_empty()) {
            let stem = word.trim_end_matches(FILLER);
            tokens += (word.len() - stem.len()) as f64 * self.filler;
            if let Some(at) = WORDS.iter().position(|known| *known == stem) {
                tokens += self.costs[at];
            }
        }
        tokens
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One token a byte, the space included.
    pub(crate) fn bytes() -> Vocabulary {
        Vocabulary::measured(WORDS.map(|word| word.len() as u64 + 1), 1, 0)
    }

    #[test]
    fn measured_text_has_exactly_the_wanted_tokens() {
        let mixed = WORDS.map(|word| word.len() as u64 % 3 + 1);
        for vocabulary in [bytes(), Vocabulary::measured(mixed, 1, 7)] {
            for tokens in [0, 1, 2, 3, 17, 128, 1000] {
                let mut text = String::new();
                vocabulary.write(&mut Dice::new(tokens), tokens, &mut text);
                assert_eq!(vocabulary.count(&text), tokens as f64, "{text:?}");
            }
        }
        let mut text = String::new();
        bytes().write(&mut Dice::new(9), 333, &mut text);
        assert_eq!(text.len(), 333);
    }

    #[test]
    fn text_is_the_same_for_a_seed_and_varied_for_others() {
        let text = |seed| {
            let mut out = String::new();
            bytes().write(&mut Dice::new(seed), 64, &mut out);
            out
        };
        assert_eq!(text(1), text(1));
        assert_ne!(text(1)[..16], text(2)[..16]);
    }

    #[test]
    fn usage_gives_slope_and_overhead() {
        let learnt = Vocabulary::from_usage((32, 60), (128, 180)).expect("growing");
        assert_eq!((learnt.overhead(), learnt.source()), (20, Source::Usage));
        let mut text = String::new();
        learnt.write(&mut Dice::new(1), 125, &mut text);
        assert_eq!(text.split_whitespace().count(), 100);
        assert_eq!(Vocabulary::from_usage((32, 60), (128, 60)), None);
        assert_eq!(Vocabulary::from_usage((32, 60), (32, 70)), None);
    }
}
