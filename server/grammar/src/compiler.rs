//! From the form of an answer to a grammar over a tokenizer's vocabulary.

use std::fmt;
use std::sync::Arc;

use llguidance::api::{ParserLimits, TopLevelGrammar};
use llguidance::earley::SlicedBiasComputer;
use llguidance::toktrie::{
    ApproximateTokEnv, INVALID_TOKEN, InferenceCapabilities, TokEnv, TokRxInfo, TokTrie,
};
use llguidance::{Matcher, ParserFactory};
use serde_json::{Value, json};
use tokenizer::Tokenizer;
use types::TokenId;

use crate::calls::{self, Calls};
use crate::follower::{DEAD_END, is_dead_end};
use crate::schema;
use crate::{CompileError, Follower};

/// What an answer must look like.
#[derive(Debug, Clone, Copy)]
pub enum Source<'a> {
    /// Any JSON object.
    JsonObject,
    /// JSON that this schema describes.
    Schema(&'a Value),
    /// Text that a regular expression matches as a whole.
    Regex(&'a str),
    /// One of these texts.
    Choice(&'a [String]),
    /// Text that a grammar in `llguidance`'s variant of Lark's notation describes.
    Lark(&'a str),
    /// Calls of tools.
    Calls(&'a Calls<'a>),
}

/// Compiles forms for one tokenizer. Shared between threads; every call takes `&self`.
pub struct Compiler {
    factory: ParserFactory,
    tokenizer: Arc<Tokenizer>,
    vocab: usize,
}

/// A compiled form; hands out a [`Follower`] for each answer.
#[derive(Clone)]
pub struct Grammar {
    matcher: Matcher,
    vocab: usize,
}

impl fmt::Debug for Grammar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grammar").finish_non_exhaustive()
    }
}

impl Grammar {
    /// A follower for an answer that one of `stop_tokens` ends. They are allowed where the answer
    /// is complete and nowhere else.
    #[must_use]
    pub fn follow(&self, stop_tokens: &[TokenId]) -> Follower {
        Follower::new(self.matcher.clone(), self.vocab, stop_tokens)
    }
}

/// Bounds of a grammar. The first two are paid while it is compiled, the others for each mask on
/// the engine's thread: at the speeds that `llguidance` names, at most 10 ms.
pub(crate) fn limits() -> ParserLimits {
    ParserLimits {
        initial_lexer_fuel: 1_000_000,
        max_grammar_size: 250_000,
        step_lexer_fuel: 100_000,
        step_max_items: 50_000,
        // At 1 to 2 KiB each.
        max_lexer_states: 20_000,
        verbose_errors: false,
        ..ParserLimits::default()
    }
}

impl Compiler {
    /// Builds the trie of the vocabulary. `vocab` is the width of the model's output: ids from
    /// there on are never allowed. Takes some 100 ms for 50,000 tokens.
    ///
    /// # Errors
    /// The vocabulary is one that the parser cannot work with.
    pub fn new(tokenizer: &Arc<Tokenizer>, vocab: usize) -> Result<Self, CompileError> {
        Self::with_limits(tokenizer, vocab, limits())
    }

    /// As [`new`](Self::new), with other bounds.
    pub(crate) fn with_limits(
        tokenizer: &Arc<Tokenizer>,
        vocab: usize,
        limits: ParserLimits,
    ) -> Result<Self, CompileError> {
        let failed = |reason: String| CompileError::new("tokenizer", reason);
        let size = tokenizer.vocab_size().min(vocab);
        let size = u32::try_from(size).map_err(|error| failed(error.to_string()))?;
        let words: Vec<Vec<u8>> = (0..size).map(|id| word(tokenizer, TokenId(id))).collect();
        // Ends of answers differ from request to request: the follower knows them, the trie not.
        let info = TokRxInfo::new(size, INVALID_TOKEN);
        let trie = TokTrie::from(&info, &words);
        // The model chooses how to cut a forced text into tokens: no text is tokenised while a
        // mask is computed, so this is the only environment that is needed.
        let env: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
        let capabilities = InferenceCapabilities::default();
        let slices = SlicedBiasComputer::json_slices();
        let mut factory = ParserFactory::new(&env, capabilities, &slices)
            .map_err(|error| failed(error.to_string()))?;
        factory.quiet();
        *factory.limits_mut() = limits;
        Ok(Self { factory, tokenizer: Arc::clone(tokenizer), vocab })
    }

    /// Compiles a form. `path` names it in errors.
    ///
    /// # Errors
    /// What is wrong with it and where, or which bound it exceeds.
    pub fn compile(&self, source: &Source<'_>, path: &str) -> Result<Grammar, CompileError> {
        match source {
            Source::JsonObject => self.build(json_grammar(json!({"type": "object"})), path),
            Source::Schema(schema) => {
                schema::check(schema, path, false)?;
                self.build(json_grammar(schema::prepared(schema, false)), path)
                    .map_err(|error| self.blame(schema, path, error))
            }
            Source::Regex(pattern) => {
                self.build(TopLevelGrammar::from_regex(unanchored(pattern)), path)
            }
            Source::Choice(choices) => {
                let quoted: Vec<String> = choices.iter().map(|text| calls::quoted(text)).collect();
                let lark = format!("start: {}", quoted.join(" | "));
                self.build(TopLevelGrammar::from_lark(lark), path)
            }
            Source::Lark(text) => self.build(TopLevelGrammar::from_lark((*text).to_owned()), path),
            Source::Calls(calls) => {
                for function in calls.functions {
                    let path = format!("{path}[{}].function.parameters", function.place);
                    schema::check(function.parameters, &path, !function.strict)?;
                }
                let lark = calls.lark(&self.tokenizer);
                self.build(TopLevelGrammar::from_lark(lark), path)
                    .map_err(|error| self.blame_calls(calls, path, error))
            }
        }
    }

    fn build(&self, grammar: TopLevelGrammar, path: &str) -> Result<Grammar, CompileError> {
        let parser = self.factory.create_parser(grammar);
        let mut matcher = Matcher::new(parser);
        // The first mask shows whether an answer can begin at all, and warms the lexer.
        let first = match matcher.get_error() {
            Some(error) => Err(error),
            None => matcher.compute_mask_or_eos().map(drop).map_err(|error| error.to_string()),
        };
        match first {
            Ok(()) => Ok(Grammar { matcher, vocab: self.vocab }),
            Err(error) => Err(CompileError::new(path, sentence(&error))),
        }
    }

    /// Finds the smallest part of a schema that does not compile by itself.
    fn blame(&self, schema: &Value, path: &str, error: CompileError) -> CompileError {
        let mut left = schema::MAX_BLAMED;
        self.narrow(schema, schema, path, error, &mut left)
    }

    fn narrow(
        &self,
        root: &Value,
        schema: &Value,
        path: &str,
        error: CompileError,
        left: &mut usize,
    ) -> CompileError {
        for (step, part) in schema::parts(schema) {
            if *left == 0 {
                break;
            }
            *left -= 1;
            let Some(alone) = schema::alone(root, part) else { continue };
            let path = format!("{path}{step}");
            let built = self.build(json_grammar(schema::prepared(&alone, false)), &path);
            if let Err(error) = built {
                return self.narrow(root, part, &path, error, left);
            }
        }
        error
    }

    fn blame_calls(&self, calls: &Calls<'_>, path: &str, error: CompileError) -> CompileError {
        for function in calls.functions {
            let path = format!("{path}[{}].function.parameters", function.place);
            let schema = schema::prepared(function.parameters, !function.strict);
            if let Err(error) = self.build(json_grammar(schema), &path) {
                return self.blame(function.parameters, &path, error);
            }
        }
        error
    }
}

/// The bytes of a token as the trie wants them: special tokens begin with a byte that no text has,
/// so that no grammar takes one for text.
fn word(tokenizer: &Tokenizer, id: TokenId) -> Vec<u8> {
    let bytes = tokenizer.token_bytes(id).unwrap_or_default();
    if tokenizer.is_special(id) {
        let marker = TokTrie::SPECIAL_TOKEN_MARKER;
        return std::iter::once(marker).chain(bytes.iter().copied()).collect();
    }
    bytes.to_vec()
}

fn json_grammar(schema: Value) -> TopLevelGrammar {
    TopLevelGrammar::from_json_schema(schema)
}

/// The whole answer has to match anyway, so anchors at both ends say nothing.
fn unanchored(pattern: &str) -> &str {
    let inner = pattern.strip_prefix('^').unwrap_or(pattern);
    match inner.strip_suffix('$') {
        Some(rest) if !rest.ends_with('\\') => rest,
        Some(_) | None => inner,
    }
}

/// The parser's error, without its state, its place in a file of ours, and its length. Where it
/// shows a pattern and what is wrong with it, the latter counts.
fn sentence(error: &str) -> String {
    const LONGEST: usize = 300;
    if is_dead_end(&error) {
        return DEAD_END.to_owned();
    }
    let mut lines = error.lines().take_while(|line| !line.starts_with('<')).map(str::trim);
    let text = match error.lines().find_map(|line| line.trim().strip_prefix("error: ")) {
        Some(why) => format!("invalid regular expression: {why}"),
        None if error.starts_with("panic") => "too large or too complex".to_owned(),
        None => lines.by_ref().filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; "),
    };
    text.chars().take(LONGEST).collect()
}
