//! Answers written by a model that knows nothing: random tokens of the mask.

mod forms;
mod generated;
mod refused;
mod validate;

use std::path::Path;
use std::sync::{Arc, OnceLock};

use llguidance::api::ParserLimits;
use model::Constraint;
use serde_json::Value;
use tokenizer::{GgufVocab, Tokenizer};
use types::TokenId;

use crate::compiler::limits;
use crate::{Compiler, Follower, Grammar, Source};

/// `<|eos|>` and `<|eot|>` of the fixture's vocabulary.
const STOPS: [TokenId; 2] = [TokenId(498), TokenId(499)];
const VOCAB: usize = 512;

/// A vocabulary of 512 tokens, some of them longer than a byte.
fn tokenizer() -> Arc<Tokenizer> {
    static ONE: OnceLock<Arc<Tokenizer>> = OnceLock::new();
    let load = || {
        let folder = "../../tests/fixtures/models/tiny-llama";
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
        Arc::new(Tokenizer::from_hf_folder(&folder).expect("the fixture loads"))
    };
    Arc::clone(ONE.get_or_init(load))
}

fn compiler() -> &'static Compiler {
    static ONE: OnceLock<Compiler> = OnceLock::new();
    ONE.get_or_init(|| Compiler::new(&tokenizer(), VOCAB).expect("a compiler"))
}

fn compile(source: &Source<'_>) -> Grammar {
    compiler().compile(source, "form").expect("the form compiles")
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % bound as u64) as usize
    }
}

/// Writes an answer of at most `most` tokens; `None` where it did not end by then. Half of the
/// time a token that may lead to the end is preferred.
fn write(grammar: &Grammar, seed: u64, most: usize) -> Option<String> {
    let tokenizer = tokenizer();
    let mut follower = grammar.follow(&STOPS);
    let mut random = Random(seed);
    let mut answer = Vec::new();
    for _ in 0..most {
        let mask = follower.mask().expect("a mask").expect("never free");
        let allowed: Vec<TokenId> = mask.iter().collect();
        assert!(allowed.iter().all(|token| token.index() < VOCAB));
        if follower.is_complete() {
            assert!(allowed.iter().all(|token| STOPS.contains(token)), "{allowed:?}");
        }
        let closes = |token: &TokenId| {
            let bytes = tokenizer.token_bytes(*token).unwrap_or_default();
            STOPS.contains(token) || matches!(bytes.first(), Some(b'"' | b'}' | b']'))
        };
        let closing: Vec<TokenId> = allowed.iter().copied().filter(closes).collect();
        let from = if !closing.is_empty() && random.below(2) == 0 { &closing } else { &allowed };
        let token = from[random.below(from.len())];
        if STOPS.contains(&token) {
            return Some(tokenizer.decode(&answer, true).expect("tokens of the vocabulary"));
        }
        assert!(!tokenizer.is_special(token), "special tokens are no text");
        answer.push(token);
        follower.accept(token).expect("a token of the mask");
    }
    None
}

/// Answers that ended, of several seeds; at least one.
fn answers(source: &Source<'_>) -> Vec<String> {
    let grammar = compile(source);
    let ended: Vec<String> = (0..24).filter_map(|seed| write(&grammar, seed, 400)).collect();
    assert!(ended.len() >= 4, "only {} of 24 answers ended: {source:?}", ended.len());
    ended
}

fn documents(schema: &Value) -> Vec<Value> {
    let parse = |text: String| {
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text:?}"))
    };
    answers(&Source::Schema(schema)).into_iter().map(parse).collect()
}

/// Takes a text, byte by byte where the vocabulary has such tokens.
fn accepts(grammar: &Grammar, text: &str) -> bool {
    let tokenizer = tokenizer();
    let mut follower = grammar.follow(&STOPS);
    for token in tokenizer.encode(text, false).expect("encodes") {
        let allowed = follower.mask().expect("a mask").expect("never free").allows(token);
        if !allowed {
            return false;
        }
        follower.accept(token).expect("a token of the mask");
    }
    ends(&mut follower)
}

/// Whether the answer may end now.
fn ends(follower: &mut Follower) -> bool {
    follower.mask().expect("a mask").expect("never free").allows(STOPS[0])
}

#[test]
fn vocabularies_of_gguf_files_work_too() {
    let vocab = GgufVocab::byte_level(300);
    let tokenizer = Arc::new(Tokenizer::from_gguf(&vocab).expect("a tokenizer"));
    // The output layer may be narrower or wider than the vocabulary.
    for width in [280, 300, 512] {
        let compiler = Compiler::new(&tokenizer, width).expect("a compiler");
        let choices = ["\u{e9}a".to_owned()];
        let grammar = compiler.compile(&Source::Choice(&choices), "form").expect("compiles");
        let mut follower = grammar.follow(&[TokenId(257)]);
        for byte in [0xc3, 0xa9, b'a'] {
            let mask = follower.mask().expect("a mask").expect("never free");
            assert_eq!((mask.count(), mask.vocab()), (1, width));
            assert!(mask.allows(TokenId(u32::from(byte))));
            assert!(!follower.is_complete());
            follower.accept(TokenId(u32::from(byte))).expect("allowed");
        }
        assert!(follower.is_complete());
        let mask = follower.mask().expect("a mask").expect("never free");
        assert_eq!(mask.iter().collect::<Vec<_>>(), [TokenId(257)]);
    }
}

/// An answer that may end is not ended by a bound that was reached: what could follow is unknown.
#[test]
fn a_bound_that_is_reached_is_an_error_and_not_the_end_of_the_answer() {
    let form = Source::Lark("start: pair\npair: \"a\" | pair pair");
    let follow = |items: usize| {
        let limits = ParserLimits { step_max_items: items, ..limits() };
        let compiler = Compiler::with_limits(&tokenizer(), VOCAB, limits).expect("a compiler");
        let grammar = compiler.compile(&form, "form").expect("the form compiles");
        let mut follower = grammar.follow(&STOPS);
        let mut ids = (0..VOCAB as u32).map(TokenId);
        let a = ids.find(|id| tokenizer().token_bytes(*id) == Some(&b"a"[..]));
        for _ in 0..30 {
            follower.mask()?;
            follower.accept(a.expect("a token of one byte"))?;
        }
        follower.mask().map(|mask| mask.is_some_and(|mask| STOPS.iter().all(|id| mask.allows(*id))))
    };
    assert_eq!(follow(limits().step_max_items), Ok(true));
    let error = follow(20).expect_err("more items than that");
    assert!(error.to_string().contains("Too many items"), "{error}");
}
