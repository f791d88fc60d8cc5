//! Compiles what answers must look like, where the server was built with `structured-output`.
//!
//! Compiling takes milliseconds and up to seconds for hostile forms, so it belongs on the
//! tokenising pool. The trie of the vocabulary is built with the first form.

use std::sync::Arc;

use model::Constraint;
use protocol::{ApiError, Structure, Tool};
use tokenizer::{Tokenizer, ToolFormat};
use types::TokenId;

/// What an answer must look like.
#[derive(Debug)]
pub enum Wanted {
    /// A form that the request describes.
    Form(Structure),
    /// Calls of some of these tools.
    Calls {
        /// How they are written.
        format: ToolFormat,
        /// What may be called, with its place in the request; at least one.
        tools: Vec<(usize, Tool)>,
        /// Whether there may be more than one call.
        many: bool,
    },
}

#[cfg(feature = "structured-output")]
pub use with::{Compiled, Structures};
#[cfg(not(feature = "structured-output"))]
pub use without::{Compiled, Structures};

#[cfg(feature = "structured-output")]
mod with {
    use std::sync::OnceLock;

    use grammar::{Calls, CompileError, Compiler, Function, Grammar, Source};
    use protocol::Form;

    use super::{ApiError, Arc, Constraint, TokenId, Tokenizer, Wanted};

    /// The compiler of the served model. Cheap to clone.
    #[derive(Clone, Default)]
    pub struct Structures(Arc<OnceLock<Result<Compiler, CompileError>>>);

    /// A form that answers can be held to.
    #[derive(Debug)]
    pub struct Compiled(Grammar);

    impl Compiled {
        /// The constraint of one answer that one of `stop_tokens` ends.
        #[must_use]
        pub fn constraint(&self, stop_tokens: &[TokenId]) -> Box<dyn Constraint> {
            Box::new(self.0.follow(stop_tokens))
        }
    }

    impl Structures {
        /// Compiles a form for a model whose output is `vocab` wide.
        ///
        /// # Errors
        /// 400 that names the part of the form and what is wrong with it.
        pub fn compile(
            &self,
            tokenizer: &Arc<Tokenizer>,
            vocab: usize,
            wanted: &Wanted,
        ) -> Result<Compiled, ApiError> {
            let compiler = self.0.get_or_init(|| Compiler::new(tokenizer, vocab));
            let compiler =
                compiler.as_ref().map_err(|error| ApiError::internal(error.to_string()))?;
            let compiled = match wanted {
                Wanted::Form(structure) => {
                    let source = match &structure.form {
                        Form::JsonObject => Source::JsonObject,
                        Form::Schema(schema) => Source::Schema(schema),
                        Form::Regex(pattern) => Source::Regex(pattern),
                        Form::Choice(choices) => Source::Choice(choices),
                        Form::Grammar(text) => Source::Lark(text),
                    };
                    compiler.compile(&source, &structure.path)
                }
                Wanted::Calls { format, tools, many } => {
                    let functions: Vec<Function<'_>> = tools
                        .iter()
                        .map(|(place, tool)| Function {
                            name: &tool.name,
                            parameters: &tool.parameters,
                            strict: tool.strict,
                            place: *place,
                        })
                        .collect();
                    let calls = Calls { format: *format, functions: &functions, many: *many };
                    compiler.compile(&Source::Calls(&calls), "tools")
                }
            };
            compiled
                .map(Compiled)
                .map_err(|error| ApiError::invalid(&error.path, error.to_string()))
        }
    }
}

#[cfg(not(feature = "structured-output"))]
mod without {
    use super::{ApiError, Arc, Constraint, TokenId, Tokenizer, Wanted};

    /// Nothing: this server was built without structured output.
    #[derive(Clone, Default)]
    pub struct Structures;

    /// No form compiles.
    #[derive(Debug)]
    pub enum Compiled {}

    impl Compiled {
        /// Never called: there is no such value.
        #[must_use]
        pub fn constraint(&self, _stop_tokens: &[TokenId]) -> Box<dyn Constraint> {
            match *self {}
        }
    }

    impl Structures {
        /// Refuses.
        ///
        /// # Errors
        /// Always: 400 that says what the server lacks.
        pub fn compile(
            &self,
            _tokenizer: &Arc<Tokenizer>,
            _vocab: usize,
            wanted: &Wanted,
        ) -> Result<Compiled, ApiError> {
            let param = match wanted {
                Wanted::Form(structure) => structure.path.as_str(),
                Wanted::Calls { .. } => "tool_choice",
            };
            let why = "this server was built without the feature structured-output";
            Err(ApiError::unsupported(param, why))
        }
    }
}
