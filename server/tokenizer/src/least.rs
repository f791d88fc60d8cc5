//! How few tokens a text can have, without tokenising it, and where a text can be cut so that its
//! beginning has the same tokens alone.
//!
//! Both follow from the vocabulary: the tokens of a text spell it, so none is longer than the
//! longest token that is spelled there, and none is where no token has the two bytes. Vocabularies
//! for which that is not sure (text is changed before it is split, parts of it are left out,
//! unknown characters become one token) have no such answers.

use serde_json::Value;
use tokenizers::{ModelWrapper, Tokenizer};

use crate::pieces::{Pieces, Spelling};

/// Bytes that are looked at: a longer text has at least the tokens of its beginning.
const LOOKED_AT: usize = 256 << 10;

/// How far before the place that was asked for a cut is looked for.
const CUT_WITHIN: usize = 4096;

/// The vocabulary, as far as the two questions need it.
pub(crate) struct Least {
    trie: Trie,
    /// For each two bytes whether some token has them one behind the other.
    joined: Vec<u64>,
    /// Whether only texts in ASCII are sure to be taken as they are.
    ascii: bool,
    /// Whether `▁` in a text would be taken for a space.
    marks: bool,
}

impl Least {
    /// `None` where the tokens of a text need not spell it.
    pub(crate) fn new(encoder: &Tokenizer, pieces: &Pieces) -> Option<Self> {
        let parts = Parts::of(encoder)?;
        let tokens = || (0..pieces.len()).filter_map(|id| pieces.bytes(types::TokenId(id as u32)));
        let mut spelled: Vec<&[u8]> = tokens().collect();
        if parts.adds_space {
            // A token at the beginning may have spelled a space that the text does not have.
            spelled.extend(tokens().filter_map(|token| token.strip_prefix(b" ")));
        }
        let trie = Trie::new(spelled);
        if !(0..=u8::MAX).all(|byte| trie.longest(&[byte]) == 1) {
            return None;
        }
        let mut joined = vec![0_u64; 1 << 10];
        for pair in tokens().flat_map(|token| token.windows(2)) {
            let at = index(pair[0], pair[1]);
            joined[at / 64] |= 1 << (at % 64);
        }
        let marks = matches!(pieces.spelling, Spelling::SentencePiece { .. });
        Some(Self { trie, joined, ascii: parts.composes, marks })
    }

    fn is_sure(&self, text: &str) -> bool {
        (!self.ascii || text.is_ascii()) && (!self.marks || !text.contains('▁'))
    }

    /// The text has at least so many tokens; 0 where nothing is known.
    pub(crate) fn tokens(&self, text: &str) -> usize {
        if !self.is_sure(text) {
            return 0;
        }
        let bytes = text.as_bytes();
        let (mut count, mut end, mut far) = (0, 0, 0);
        // A token that begins at or before a place ends at `far` or before.
        for at in 0..bytes.len().min(LOOKED_AT) {
            far = far.max(at + self.trie.longest(&bytes[at..]));
            if at == end {
                count += 1;
                end = far.max(at + 1);
            }
        }
        count
    }

    /// The last place at or before `most` and not far from it at which no token of the text can
    /// reach over from one side to the other, whatever follows.
    pub(crate) fn cut(&self, text: &str, most: usize) -> Option<usize> {
        if !self.is_sure(text) {
            return None;
        }
        let bytes = text.as_bytes();
        let last = most.min(bytes.len().saturating_sub(1));
        let first = last.saturating_sub(CUT_WITHIN).max(1);
        (first..=last).rev().find(|at| {
            let (before, behind) = (bytes[at - 1], bytes[*at]);
            let pair = index(before, behind);
            // How blanks are grouped may depend on what follows them.
            let plain = before.is_ascii_graphic() && behind.is_ascii();
            plain && self.joined[pair / 64] & (1 << (pair % 64)) == 0
        })
    }
}

fn index(before: u8, behind: u8) -> usize {
    usize::from(before) << 8 | usize::from(behind)
}

/// What a tokenizer does to a text beside splitting it.
#[derive(Default)]
struct Parts {
    /// It may put a space before it.
    adds_space: bool,
    /// It composes characters.
    composes: bool,
}

impl Parts {
    /// `None` where it does anything else.
    fn of(encoder: &Tokenizer) -> Option<Self> {
        let ModelWrapper::BPE(model) = encoder.get_model() else { return None };
        let affixes = [&model.continuing_subword_prefix, &model.end_of_word_suffix];
        let affixed = affixes.into_iter().flatten().any(|affix| !affix.is_empty());
        let unknown = model.unk_token.is_some() && !model.byte_fallback;
        let added = encoder.get_added_tokens_decoder();
        let strips = added.values().any(|token| token.lstrip || token.rstrip);
        if affixed || unknown || strips {
            return None;
        }
        let mut parts = Self::default();
        let value = |part: Result<Value, serde_json::Error>| part.ok();
        parts.normalizes(&value(serde_json::to_value(encoder.get_normalizer()))?)?;
        parts.splits(&value(serde_json::to_value(encoder.get_pre_tokenizer()))?)?;
        Some(parts)
    }

    fn normalizes(&mut self, part: &Value) -> Option<()> {
        if part.is_null() {
            return Some(());
        }
        match part["type"].as_str()? {
            "Sequence" => {
                part["normalizers"].as_array()?.iter().try_for_each(|p| self.normalizes(p))
            }
            "NFC" => {
                self.composes = true;
                Some(())
            }
            "Prepend" if part["prepend"] == "▁" => {
                self.adds_space = true;
                Some(())
            }
            "Replace" => (part["pattern"]["String"] == " " && part["content"] == "▁").then_some(()),
            _ => None,
        }
    }

    fn splits(&mut self, part: &Value) -> Option<()> {
        if part.is_null() {
            return Some(());
        }
        match part["type"].as_str()? {
            "Sequence" => part["pretokenizers"].as_array()?.iter().try_for_each(|p| self.splits(p)),
            "Split" | "Punctuation" => (part["behavior"] != "Removed").then_some(()),
            "Digits" => Some(()),
            "ByteLevel" => {
                self.adds_space |= part["add_prefix_space"] != false;
                Some(())
            }
            "Metaspace" if part["replacement"] == "▁" => {
                self.adds_space = true;
                Some(())
            }
            _ => None,
        }
    }
}

/// Tokens by their bytes. Node 0 is the root; the children of a node lie side by side, in the order
/// of their bytes.
struct Trie {
    /// The byte that leads to each node.
    labels: Vec<u8>,
    /// Where the children of each node end; they begin where those of the node before end.
    ends: Vec<u32>,
    /// Whether a token ends there.
    whole: Vec<bool>,
}

impl Trie {
    fn new(mut tokens: Vec<&[u8]>) -> Self {
        tokens.sort_unstable();
        tokens.dedup();
        let mut trie = Self { labels: vec![0], ends: Vec::new(), whole: Vec::new() };
        // Of each node, the tokens that go through it.
        let mut through = vec![(0, tokens.len(), 0)];
        while let Some(&(first, last, depth)) = through.get(trie.ends.len()) {
            let own = tokens.get(first).is_some_and(|token| token.len() == depth);
            let mut at = first + usize::from(own);
            while at < last {
                let byte = tokens[at][depth];
                let same = tokens[at..last].partition_point(|token| token[depth] == byte);
                trie.labels.push(byte);
                through.push((at, at + same, depth + 1));
                at += same;
            }
            trie.whole.push(own && depth > 0);
            // A vocabulary has less than 4 GiB of text.
            trie.ends.push(trie.labels.len() as u32);
        }
        trie
    }

    fn child(&self, node: usize, byte: u8) -> Option<usize> {
        let first = match node {
            0 => 1,
            node => self.ends[node - 1] as usize,
        };
        let labels = &self.labels[first..self.ends[node] as usize];
        labels.binary_search(&byte).ok().map(|at| first + at)
    }

    /// The length of the longest token that `text` begins with; 0 where there is none.
    fn longest(&self, text: &[u8]) -> usize {
        let (mut node, mut longest) = (0, 0);
        for (at, byte) in text.iter().enumerate() {
            let Some(child) = self.child(node, *byte) else { break };
            node = child;
            if self.whole[node] {
                longest = at + 1;
            }
        }
        longest
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use proptest::prelude::*;

    use super::*;
    use crate::gguf::GgufVocab;
    use crate::tokenizer::tests::{folder, load};

    const KNOWN: [&str; 4] = ["tiny-llama", "tiny-llama3-rope", "tiny-qwen3", "tiny-deepseek-v4"];

    static LOADED: LazyLock<Vec<crate::Tokenizer>> = LazyLock::new(|| {
        let mut all: Vec<_> = KNOWN.into_iter().chain(["tiny-gemma3"]).map(load).collect();
        all.push(crate::Tokenizer::from_gguf(&GgufVocab::byte_level(300)).expect("sound"));
        all
    });

    /// Words, runs of blanks, numbers, special tokens, other scripts.
    fn texts() -> impl Strategy<Value = String> {
        let part = prop_oneof![
            4 => "[a-z]{1,9} ",
            2 => "[ -~]{0,12}",
            1 => "[ \n\t]{1,9}",
            1 => "\\PC{0,6}",
            1 => prop::sample::select(vec!["<|im_start|>", "<s>", "</s>", "<|eos|>", "▁", "é"])
                .prop_map(str::to_owned),
        ];
        prop::collection::vec(part, 0..40).prop_map(|parts| parts.concat())
    }

    fn check(tokenizer: &crate::Tokenizer, text: &str, most: usize) -> Result<(), TestCaseError> {
        let exact = tokenizer.encode(text, false).expect("encodes");
        let least = tokenizer.least_tokens(text);
        prop_assert!(least <= exact.len(), "{least} and {} of {text:?}", exact.len());
        for special in [false, true] {
            let Some(cut) = tokenizer.cut(text, most) else { continue };
            prop_assert!(0 < cut && cut <= most);
            let whole = tokenizer.encode(text, special).expect("encodes");
            let part = tokenizer.encode(&text[..cut], special).expect("encodes");
            prop_assert!(whole.starts_with(&part), "{cut} of {text:?}: {part:?} and {whole:?}");
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn no_text_has_fewer_tokens_and_a_cut_changes_none(text in texts(), most in 1..400_usize) {
            for tokenizer in LOADED.iter() {
                check(tokenizer, &text, most)?;
            }
        }
    }

    #[test]
    fn it_is_known_for_the_usual_vocabularies_and_near() {
        let text =
            "The quick brown fox jumps over the lazy dog and runs into the woods. ".repeat(40);
        for name in KNOWN {
            let tokenizer = load(name);
            let exact = tokenizer.encode(&text, false).expect("encodes").len();
            let least = tokenizer.least_tokens(&text);
            assert!(least * 2 > exact, "{name}: {least} of {exact}");
            let cut = tokenizer.cut(&text, 1000).expect("words end");
            assert!(cut > 900, "{name}: {cut}");
        }
        let bytes = crate::Tokenizer::from_gguf(&GgufVocab::byte_level(300)).expect("sound");
        assert_eq!(bytes.least_tokens("abc def"), 7);
        assert_eq!(bytes.least_tokens("a<|eos|>b"), 3);
        assert_eq!(bytes.cut("abcdef", 4), Some(4), "no token has two bytes");
        assert_eq!((bytes.least_tokens(""), bytes.cut("", 4), bytes.cut("a", 4)), (0, None, None));
    }

    #[test]
    fn where_text_may_be_left_out_nothing_is_known() {
        let with = |change: &str| {
            let path = folder("tiny-llama").join("tokenizer.json");
            let text = std::fs::read_to_string(path).expect("the fixture is there");
            let mut json: Value = serde_json::from_str(&text).expect("JSON");
            match change {
                "lowercase" => json["normalizer"] = serde_json::json!({"type": "Lowercase"}),
                "blanks" => {
                    let split = serde_json::json!({"type": "WhitespaceSplit"});
                    let inner = json["pre_tokenizer"].clone();
                    json["pre_tokenizer"] =
                        serde_json::json!({"type": "Sequence", "pretokenizers": [split, inner]});
                }
                "strips" => json["added_tokens"][0]["rstrip"] = true.into(),
                _ => {}
            }
            let bytes = serde_json::to_vec(&json).expect("JSON");
            let encoder = Tokenizer::from_bytes(&bytes).expect("a tokenizer");
            let pieces = crate::hf::pieces(&encoder).expect("a vocabulary");
            Least::new(&encoder, &pieces).is_some()
        };
        assert!(with("nothing"));
        for change in ["lowercase", "blanks", "strips"] {
            assert!(!with(change), "{change}");
        }
    }

    #[test]
    fn long_texts_are_looked_at_in_part() {
        let bytes = crate::Tokenizer::from_gguf(&GgufVocab::byte_level(300)).expect("sound");
        assert_eq!(bytes.least_tokens(&"a".repeat(LOOKED_AT + 5)), LOOKED_AT);
    }
}
