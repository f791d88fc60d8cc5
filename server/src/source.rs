//! Where the model comes from: a path, or the fake one for tests and trials.
//!
//! [`Source::inspect`] reads headers only and [`Source::load`] everything, so that the checks in
//! between can refuse before a weight is touched.

mod fake;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use model::{
    FakeOptions, FakeRunner, GgufTokenizer, KernelPath, LoadOptions, ModelConfig, ModelRunner,
    ModelSpec, TokenizerSource, TpLimits,
};
use tokenizer::{GgufVocab, RenderOptions, TemplateError, Tokenizer};

use crate::cli::{Kernels, Settings};
use crate::config::{Class, Finding, Resolved};
use program::exit::Exit;

/// A model that has been named, not loaded.
#[derive(Debug, Clone)]
pub enum Source {
    /// Tokens out of thin air.
    Fake(Box<FakeOptions>),
    /// A folder or a file.
    Path(PathBuf),
}

/// What the headers say.
#[derive(Debug, Clone)]
pub struct Facts {
    /// Sizes and pools.
    pub spec: ModelSpec,
    /// Numbers that a step holds for each of its tokens.
    pub floats_per_token: usize,
    /// What ranks share out; `None` where any number of ranks will do.
    pub tp: Option<TpLimits>,
    /// Tokens of a page are a multiple of it.
    pub page_multiple: usize,
    /// Whether the host tier has no size per rank, because pools have pages of different kinds.
    pub by_ratio_only: bool,
    /// What the tokenizer is built from.
    text: Text,
}

/// What a tokenizer is built from.
#[derive(Debug, Clone)]
enum Text {
    /// Nothing: the model is only planned for.
    Absent,
    /// The files of a model folder.
    Folder(PathBuf),
    /// A vocabulary.
    Vocabulary(Box<GgufVocab>),
}

impl Source {
    /// What `--model` names.
    ///
    /// # Errors
    /// An option of the fake model that does not exist or has no such value.
    pub fn parse(settings: &Settings) -> Result<Self, Finding> {
        let name = settings.model.as_str();
        match name.strip_prefix("fake") {
            Some(rest) if rest.is_empty() || rest.starts_with(':') => {
                let options = fake::parse(rest.trim_start_matches(':'), settings);
                options.map(|options| Self::Fake(Box::new(options))).map_err(|reason| Finding {
                    id: "MODEL004",
                    class: Class::Configuration,
                    flag: "--model",
                    value: name.to_owned(),
                    reason,
                    fix: "--model fake:step=5ms,context=4096".to_owned(),
                })
            }
            _ => Ok(Self::Path(PathBuf::from(name))),
        }
    }

    /// Reads configuration and headers. No weight is looked at. The pools are those of one rank,
    /// with the pages that `settings` ask for.
    ///
    /// # Errors
    /// The path leads to nothing that can be served.
    pub fn inspect(&self, settings: &Settings) -> Result<Facts, Finding> {
        match self {
            Self::Fake(options) => {
                let spec = FakeRunner::new((**options).clone()).spec().clone();
                let text = Text::Vocabulary(Box::new(GgufVocab::byte_level(spec.vocab)));
                Ok(Facts {
                    spec,
                    floats_per_token: 0,
                    tp: None,
                    page_multiple: 1,
                    by_ratio_only: false,
                    text,
                })
            }
            Self::Path(path) => {
                let info = model::inspect(path).map_err(|error| unusable(path, &error))?;
                let floats_per_token =
                    floats_per_token(&info.config, settings.machine.tp_size.max(1));
                let text = match info.tokenizer_source {
                    TokenizerSource::HfFolder(folder) => Text::Folder(folder),
                    TokenizerSource::Gguf(source) => Text::Vocabulary(Box::new(vocab(*source))),
                };
                let machine = &settings.machine;
                let multiple = model::page_multiple(&info.config);
                let spec = if info.config.deepseek_v4.is_some() {
                    // Every rank has all rows. Sizes that do not fit are refused by their rule.
                    let pools = model::pools_of(&info.config, machine.page_tokens);
                    let pools = pools.unwrap_or(info.spec.pools);
                    ModelSpec { pools, ..info.spec }
                } else {
                    // With more ranks than heads, heads are held more than once.
                    let parts = machine.tp_size.min(info.config.kv_heads);
                    pools_of_a_rank(info.spec, machine.page_tokens, parts)
                };
                let by_ratio_only = spec.pools.iter().any(|pool| pool.parts.len() > 1);
                Ok(Facts {
                    spec,
                    floats_per_token,
                    tp: Some(TpLimits::of(&info.config)),
                    page_multiple: multiple,
                    by_ratio_only,
                    text,
                })
            }
        }
    }

    /// Whether its pages are bytes; those of the fake model are numbers only.
    #[must_use]
    pub const fn keeps_bytes(&self) -> bool {
        match self {
            Self::Fake(_) => false,
            Self::Path(_) => true,
        }
    }

    /// Loads the weights; takes as long as they need.
    ///
    /// # Errors
    /// A sentence that names the file and what is wrong with it.
    pub fn load(&self, resolved: &Resolved) -> Result<Box<dyn ModelRunner>, Finding> {
        match self {
            Self::Fake(options) => Ok(Box::new(FakeRunner::new((**options).clone()))),
            Self::Path(path) => {
                let options = LoadOptions {
                    threads: resolved.threads,
                    kernel_path: match resolved.settings.machine.kernels {
                        Kernels::Detect => KernelPath::Detect,
                        Kernels::Reference => KernelPath::Reference,
                    },
                    page_tokens: Some(resolved.page_tokens),
                    tp_size: resolved.tp_size,
                    ..LoadOptions::default()
                };
                let loaded = model::load(path, options).map_err(|error| unusable(path, &error))?;
                for note in &loaded.notes {
                    tracing::info!(note, "Some weights are not used.");
                }
                Ok(loaded.runner)
            }
        }
    }
}

impl Facts {
    /// The facts of a model whose files are elsewhere.
    #[must_use]
    pub(crate) const fn planned(
        spec: ModelSpec,
        tp: Option<TpLimits>,
        page_multiple: usize,
        by_ratio_only: bool,
    ) -> Self {
        let text = Text::Absent;
        Self { spec, floats_per_token: 0, tp, page_multiple, by_ratio_only, text }
    }

    /// Builds the tokenizer and renders its chat template once, where it has one.
    ///
    /// # Errors
    /// The tokenizer cannot be built, or its template is broken.
    pub fn tokenizer(&self, settings: &Settings) -> Result<Arc<Tokenizer>, Finding> {
        let finding = |reason: String| Finding {
            id: "MODEL003",
            class: Class::Configuration,
            flag: "--model",
            value: settings.model.clone(),
            reason,
            fix: "a model whose tokenizer is supported".to_owned(),
        };
        let built = match &self.text {
            Text::Absent => return Err(finding("there is no tokenizer".to_owned())),
            Text::Folder(folder) => Tokenizer::from_hf_folder(folder),
            Text::Vocabulary(vocab) => Tokenizer::from_gguf(vocab),
        };
        let tokenizer = built.map_err(|error| finding(error.to_string()))?;
        match tokenizer.chat_template() {
            Err(TemplateError::Absent) => {}
            Err(error) => return Err(finding(error.to_string())),
            Ok(template) => {
                let turn = serde_json::json!({"role": "user", "content": "Hello"});
                let options =
                    RenderOptions { add_generation_prompt: true, ..RenderOptions::default() };
                template.render(&[turn], &options).map_err(|error| finding(error.to_string()))?;
            }
        }
        Ok(Arc::new(tokenizer))
    }
}

fn unusable(path: &Path, error: &model::LoadError) -> Finding {
    let denied = match error {
        model::LoadError::Io { source, .. } => Exit::of_io(source) == Exit::Permission,
        model::LoadError::NotAModel { .. }
        | model::LoadError::Config { .. }
        | model::LoadError::Weights(_)
        | model::LoadError::Tensors(_)
        | model::LoadError::Pages { .. }
        | model::LoadError::Ranks { .. }
        | model::LoadError::Kernel { .. } => false,
    };
    Finding {
        id: "MODEL002",
        class: if denied { Class::Permission } else { Class::Configuration },
        flag: "--model",
        value: path.display().to_string(),
        reason: error.to_string(),
        fix: model::LOADABLE.to_owned(),
    }
}

/// Hidden states, on every rank, and projections and gates, shared out, of one token; with several
/// ranks also what they leave for each other, twice.
fn floats_per_token(config: &ModelConfig, ranks: usize) -> usize {
    let ModelConfig { hidden, heads, kv_heads, head_dim, intermediate, .. } = *config;
    // Two sets of streams, where there are several. Dense ranks leave partial sums, the others what
    // their experts make of a token.
    let (streams, left) = match &config.deepseek_v4 {
        Some(v4) => (2 * v4.streams, v4.experts_per_token),
        None => (0, ranks),
    };
    let left = if ranks > 1 { 2 * left } else { 0 };
    (ranks * (4 + streams) + left) * hidden + (heads + 2 * kv_heads) * head_dim + 2 * intermediate
}

/// The pools with pages of another size, and the rows of one of so many parts of the heads.
fn pools_of_a_rank(mut spec: ModelSpec, page_tokens: Option<usize>, parts: usize) -> ModelSpec {
    for pool in &mut spec.pools {
        let tokens = page_tokens.unwrap_or(pool.page_tokens);
        for part in &mut pool.parts {
            let token = part.layer_bytes / pool.page_tokens.max(1) as u64;
            part.layer_bytes = token.saturating_mul(tokens as u64) / parts.max(1) as u64;
        }
        pool.page_tokens = tokens;
    }
    spec
}

/// The same data under the tokenizer's name for it.
fn vocab(source: GgufTokenizer) -> GgufVocab {
    let id = |token: Option<types::TokenId>| token.map(|token| token.0);
    GgufVocab {
        model: source.model,
        pre: source.pre,
        tokens: source.tokens,
        token_types: source.token_types,
        merges: source.merges,
        bos: id(source.bos),
        eos: id(source.eos),
        pad: id(source.pad),
        unk: id(source.unk),
        add_bos: source.add_bos,
        add_space_prefix: source.add_space_prefix,
        chat_template: source.chat_template,
    }
}

#[cfg(test)]
mod tests {
    use types::TokenId;

    use super::*;

    #[test]
    fn a_file_that_does_not_say_leaves_bos_to_the_tokenizer() {
        let GgufVocab { model, tokens, token_types, .. } = GgufVocab::byte_level(258);
        let source = |pre: &str, add_bos| GgufTokenizer {
            model: model.clone(),
            pre: Some(pre.to_owned()),
            tokens: tokens.clone(),
            token_types: token_types.clone(),
            bos: Some(TokenId(256)),
            add_bos,
            ..GgufTokenizer::default()
        };
        let check = |pre, add_bos, expect: &[u32]| {
            let tokenizer =
                Tokenizer::from_gguf(&vocab(source(pre, add_bos))).expect("a tokenizer");
            let ids = tokenizer.encode("a", true).expect("encodes");
            assert_eq!(ids.iter().map(|id| id.0).collect::<Vec<_>>(), expect, "{pre} {add_bos:?}");
        };
        check("llama-bpe", None, &[256, 97]);
        check("llama-bpe", Some(false), &[97]);
        check("gpt-2", None, &[97]);
        check("gpt-2", Some(true), &[256, 97]);
    }
}
