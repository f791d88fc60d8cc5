//! The errors of this crate: loading, encoding and decoding, chat templates.

use std::io;
use std::path::PathBuf;

/// A tokenizer that cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A file of the model folder cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file of the model folder is not what it should be.
    #[error("{}: {message}", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        message: String,
    },
    /// The metadata names a kind of tokenizer that is not implemented.
    #[error("{key} \"{value}\" is not supported; supported: {supported}")]
    Unsupported {
        /// The metadata key or the part of tokenizer.json.
        key: &'static str,
        /// Its value.
        value: String,
        /// The values that work, separated by commas.
        supported: String,
    },
    /// The vocabulary contradicts itself.
    #[error("tokenizer vocabulary: {0}")]
    Vocabulary(String),
}

/// Text or ids that cannot be converted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenizerError {
    /// The encoder refused the text.
    #[error("cannot tokenize the text: {0}")]
    Encode(String),
    /// An id that no token has.
    #[error("token id {id} is not in the vocabulary of {vocab} tokens")]
    UnknownToken {
        /// The id.
        id: u32,
        /// Ids are below this number.
        vocab: usize,
    },
}

/// A chat template that is absent, malformed, or refuses its input.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// The model has none.
    #[error("the model has no chat template")]
    Absent,
    /// It does not parse.
    #[error("the model's chat template is malformed: {0}")]
    Syntax(String),
    /// It called `raise_exception`: the conversation is not one that the model accepts.
    #[error("{0}")]
    Raised(String),
    /// It failed while rendering.
    #[error("the model's chat template failed: {0}")]
    Render(String),
}
