//! Prompts of a wanted length, made of plain sentences.

use crate::dice::Dice;

const OPENINGS: [&str; 8] = [
    "Explain in a few sentences",
    "Write a short story about",
    "Give three reasons for",
    "Summarise what you know about",
    "Compare two views on",
    "List the steps of",
    "Describe to a child",
    "Write a friendly letter about",
];

const TOPICS: [&str; 10] = [
    "why the sky is blue",
    "a lighthouse keeper who finds a map",
    "learning to play the violin",
    "how bread rises",
    "the night train to the coast",
    "keeping bees on a roof",
    "how a bridge carries its load",
    "a garden in the first week of spring",
    "the history of the umbrella",
    "teaching a robot to make tea",
];

const SENTENCES: [&str; 12] = [
    "The harbour was quiet and the boats moved slowly against their ropes.",
    "She counted the steps twice and wrote both numbers into her notebook.",
    "Nobody in the village remembered who had planted the old chestnut.",
    "A measured value is worth more than a strong opinion.",
    "In the evening the wind turned and brought the smell of rain.",
    "The clock in the hall had stopped at a quarter past four.",
    "He folded the letter, put it back and said nothing for a while.",
    "Every winter the river froze and the children crossed it to school.",
    "The recipe asks for patience more than for flour or salt.",
    "From the tower one can see three lakes and, on clear days, the sea.",
    "The engine needs oil, water and somebody who listens to it.",
    "They agreed to meet at the bakery and to bring the long ladder.",
];

/// Makes prompts from a seed: the same seed gives the same prompt.
pub(super) struct Words(Dice);

impl Words {
    pub(super) fn new(seed: u64) -> Self {
        Self(Dice::new(seed))
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        let index = self.0.range(0, from.len() as u64);
        from[usize::try_from(index).unwrap_or(0)]
    }

    /// A question, preceded by as much text as makes about `words` words.
    pub(super) fn prompt(&mut self, words: usize) -> String {
        let question = format!("{} {}.", self.pick(&OPENINGS), self.pick(&TOPICS));
        let mut text = String::new();
        let mut count = question.split(' ').count();
        while count < words {
            let sentence = self.pick(&SENTENCES);
            count += sentence.split(' ').count();
            text.push_str(sentence);
            text.push(' ');
        }
        text + &question
    }
}
