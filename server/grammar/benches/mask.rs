//! What a constrained token costs on the engine's thread: mask and step, over a vocabulary of real
//! size, in the middle of an answer. `SIGHTLINE_TEST_MODEL` names a GGUF file or a model folder.
//!
//! `mask` walks the vocabulary from a new state each time, as an answer does.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use divan::Bencher;
use grammar::{Compiler, Grammar, Source};
use model::{Constraint, TokenizerSource};
use serde_json::{Value, json};
use tokenizer::{GgufVocab, Tokenizer};
use types::TokenId;

fn main() {
    divan::main();
}

fn tokenizer() -> Option<Arc<Tokenizer>> {
    static ONE: OnceLock<Option<Arc<Tokenizer>>> = OnceLock::new();
    let load = || {
        // clippy.toml bans reading the environment in what ships.
        #[expect(clippy::disallowed_methods, reason = "a bench has no command line of its own")]
        let path = std::env::var("SIGHTLINE_TEST_MODEL").ok()?;
        let info = model::inspect(Path::new(&path)).expect("a model");
        let tokenizer = match info.tokenizer_source {
            TokenizerSource::HfFolder(folder) => Tokenizer::from_hf_folder(&folder),
            TokenizerSource::Gguf(source) => Tokenizer::from_gguf(&GgufVocab {
                model: source.model,
                pre: source.pre,
                tokens: source.tokens,
                token_types: source.token_types,
                merges: source.merges,
                ..GgufVocab::default()
            }),
        };
        Some(Arc::new(tokenizer.expect("a tokenizer")))
    };
    ONE.get_or_init(load).clone()
}

fn compiler() -> Option<&'static Compiler> {
    static ONE: OnceLock<Option<Compiler>> = OnceLock::new();
    let make = || {
        let tokenizer = tokenizer()?;
        Some(Compiler::new(&tokenizer, tokenizer.vocab_size()).expect("a compiler"))
    };
    ONE.get_or_init(make).as_ref()
}

fn schema() -> Value {
    json!({
        "$defs": {"Item": {
            "type": "object",
            "properties": {
                "title": {"type": "string"}, "price": {"type": "number", "minimum": 0},
                "kind": {"enum": ["book", "record", "film"]}
            },
            "required": ["title", "price", "kind"]
        }},
        "type": "object",
        "properties": {
            "name": {"type": "string"}, "born": {"type": "string", "format": "date"},
            "items": {"type": "array", "items": {"$ref": "#/$defs/Item"}},
            "note": {"anyOf": [{"type": "string", "maxLength": 80}, {"type": "null"}]}
        },
        "required": ["name", "born", "items", "note"]
    })
}

const ANSWER: &str = "{\"name\": \"Ada Lovelace\", \"born\": \"1815-12-10\", \"items\": [\
    {\"title\": \"Notes on the engine\", \"price\": 12.50, \"kind\": \"book\"}, \
    {\"title\": \"Letters\", \"price\": 3, \"kind\": \"record\"}], \"note\": \"a \u{e9}t\u{e9}\"}";

/// Walks the whole answer, with a mask before each token; returns the number of masks.
fn walk(grammar: &Grammar, tokens: &[TokenId]) -> usize {
    let mut follower = grammar.follow(&[TokenId(0)]);
    for token in tokens {
        let allowed = follower.mask().expect("a mask").expect("never free").allows(*token);
        assert!(allowed, "the answer fits the schema");
        follower.accept(*token).expect("allowed");
    }
    tokens.len()
}

#[divan::bench(sample_count = 20)]
fn vocabulary(bencher: Bencher<'_, '_>) {
    let Some(tokenizer) = tokenizer() else { return };
    bencher.bench(|| Compiler::new(&tokenizer, tokenizer.vocab_size()).map(drop));
}

#[divan::bench]
fn compile(bencher: Bencher<'_, '_>) {
    let Some(compiler) = compiler() else { return };
    let schema = schema();
    bencher.bench(|| compiler.compile(&Source::Schema(&schema), "s").map(drop));
}

/// The first answer of a grammar: the lexer's states are built on the way.
#[divan::bench]
fn answer_cold(bencher: Bencher<'_, '_>) {
    let (Some(compiler), Some(tokenizer)) = (compiler(), tokenizer()) else { return };
    let schema = schema();
    let tokens = tokenizer.encode(ANSWER, false).expect("encodes");
    bencher
        .counter(divan::counter::ItemsCount::new(tokens.len()))
        .with_inputs(|| compiler.compile(&Source::Schema(&schema), "s").expect("compiles"))
        .bench_values(|grammar| walk(&grammar, &tokens));
}

/// A further answer of a grammar, such as with `n` above 1.
#[divan::bench]
fn answer_warm(bencher: Bencher<'_, '_>) {
    let (Some(compiler), Some(tokenizer)) = (compiler(), tokenizer()) else { return };
    let tokens = tokenizer.encode(ANSWER, false).expect("encodes");
    let grammar = compiler.compile(&Source::Schema(&schema()), "s").expect("compiles");
    walk(&grammar, &tokens);
    bencher
        .counter(divan::counter::ItemsCount::new(tokens.len()))
        .bench(|| walk(&grammar, &tokens));
}
