//! From a path to a runner: a Hugging Face folder or a GGUF file.
//!
//! [`inspect`] reads configuration and headers only; [`load`] also packs the weights.

mod pages;
mod ranks;
mod tokenizer;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kernels::{KernelError, KernelPath};

pub use self::pages::{PageTokensError, page_multiple, pools_of};
pub use self::ranks::{TpError, TpLimits};
pub use self::tokenizer::{GgufTokenizer, TokenizerSource};
use crate::arch::{
    Decoder, Naming, Packing, Share, TensorsError, check_tensors, deepseek_v4, pool_specs,
};
use crate::config::{Architecture, ConfigError, ModelConfig};
use crate::ranks::{DeepseekRunner, DenseRunner};
use crate::runner::{ModelRunner, ModelSpec};
use crate::weights::{Weights, WeightsError, gguf, safetensors};

/// Configuration files are small; anything larger is not one.
const MAX_CONFIG_BYTES: u64 = 16 << 20;

/// What [`load`] takes, as errors advise it.
pub const LOADABLE: &str = "a folder with config.json and model.safetensors, or a GGUF file";

/// How to load.
#[derive(Debug, Clone, Copy)]
pub struct LoadOptions {
    /// Threads that compute, the engine's own included; at least one.
    pub threads: usize,
    /// Which kernels to use.
    pub kernel_path: KernelPath,
    /// Whether quantised weights become f32: exact, slow and large; for comparisons.
    pub dequantize: bool,
    /// Tokens of a KV page; at least one, and a multiple of what [`page_multiple`] says. `None`:
    /// 16, or 256 for DeepSeek-V4.
    pub page_tokens: Option<usize>,
    /// Ranks that compute a step together, each with a share of the heads and of the MLP, and with
    /// KV pools and threads of its own; at least one.
    pub tp_size: usize,
}

impl Default for LoadOptions {
    /// One rank on one thread, the best kernels, weights as stored, pages as the model likes them.
    fn default() -> Self {
        Self {
            threads: 1,
            kernel_path: KernelPath::Detect,
            dequantize: false,
            page_tokens: None,
            tp_size: 1,
        }
    }
}

/// What [`load`] returns.
pub struct Loaded {
    /// The model; its pools are not allocated yet.
    pub runner: Box<dyn ModelRunner>,
    /// A copy of the runner's spec, for those who do not own the runner.
    pub spec: ModelSpec,
    /// Where the model's tokenizer is.
    pub tokenizer_source: TokenizerSource,
    /// Sentences about what was left out, for the log; none where nothing was.
    pub notes: Vec<String>,
}

/// What [`inspect`] returns.
#[derive(Debug, Clone)]
pub struct ModelInfo {
    /// As of the loaded model, except that `weight_bytes` is what the files hold and `kernels` is
    /// empty.
    pub spec: ModelSpec,
    /// Its dimensions.
    pub config: ModelConfig,
    /// Where the model's tokenizer is.
    pub tokenizer_source: TokenizerSource,
}

/// Why a model cannot be loaded. One line that names the file and what is wrong with it; what
/// would work is [`LOADABLE`].
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The path leads to nothing that could be a model.
    #[error("{}: {what}", path.display())]
    NotAModel {
        /// The path as given.
        path: PathBuf,
        /// What is there.
        what: String,
    },
    /// A configuration file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The configuration describes no model that runs here.
    #[error("{}: {source}", path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// The field and what is supported.
        source: ConfigError,
    },
    /// The weight files cannot be used.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// They hold other tensors than the configuration says.
    #[error(transparent)]
    Tensors(#[from] TensorsError),
    /// The model cannot be shared out like this.
    #[error("{}: {ranks} ranks: {what}; {works} would work", path.display())]
    Ranks {
        /// The model's first file.
        path: PathBuf,
        /// Ranks asked for.
        ranks: usize,
        /// Why not.
        what: String,
        /// The most ranks below that work.
        works: usize,
    },
    /// The pages that were asked for do not fit the model.
    #[error("{}: {source}", path.display())]
    Pages {
        /// The path as given.
        path: PathBuf,
        /// The value, and what would work.
        source: PageTokensError,
    },
    /// No kernel takes a tensor.
    #[error("{}: tensor {name}: {source}", path.display())]
    Kernel {
        /// The model's first file.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// The reason.
        source: KernelError,
    },
}

/// Reads the configuration of the model folder at `path`, or of the `config.json` itself; needs no
/// weights.
///
/// # Errors
/// [`LoadError`] names the file and what is wrong with it.
pub fn read_config(path: &Path) -> Result<ModelConfig, LoadError> {
    let file = if path.is_dir() { path.join("config.json") } else { path.to_owned() };
    let generation = file.with_file_name("generation_config.json");
    let config = read_bytes(&file)?;
    let generation = if generation.is_file() { Some(read_bytes(&generation)?) } else { None };
    ModelConfig::from_hf(&config, generation.as_deref())
        .map_err(|source| LoadError::Config { path: file, source })
}

/// A model whose headers are read and checked.
struct Opened {
    config: ModelConfig,
    weights: Weights,
    naming: Naming,
    parameters: u64,
    name: String,
    tokenizer: TokenizerSource,
    notes: Vec<String>,
}

/// Loads the model at `path` and packs its weights.
///
/// # Errors
/// [`LoadError`]: one line that names the file and what would work.
pub fn load(path: &Path, options: LoadOptions) -> Result<Loaded, LoadError> {
    let opened = Opened::read(path)?;
    let (tokenizer_source, notes) = (opened.tokenizer.clone(), opened.notes.clone());
    let runner: Box<dyn ModelRunner> = match opened.config.architecture {
        Architecture::Llama | Architecture::Qwen3 | Architecture::Gemma3 => {
            Box::new(opened.dense(path, options)?)
        }
        Architecture::DeepseekV4 => Box::new(opened.deepseek_v4(path, options)?),
    };
    let spec = runner.spec().clone();
    Ok(Loaded { runner, spec, tokenizer_source, notes })
}

#[cfg(test)]
pub(crate) fn load_dense(
    path: &Path,
    options: LoadOptions,
) -> Result<(DenseRunner, TokenizerSource), LoadError> {
    let opened = Opened::read(path)?;
    let tokenizer = opened.tokenizer.clone();
    Ok((opened.dense(path, options)?, tokenizer))
}

#[cfg(test)]
pub(crate) fn load_deepseek_v4(
    path: &Path,
    options: LoadOptions,
) -> Result<DeepseekRunner, LoadError> {
    Opened::read(path)?.deepseek_v4(path, options)
}

/// Reads configuration and headers of the model at `path`; looks at no weights.
///
/// # Errors
/// As [`load`], for everything that shows without the weights.
pub fn inspect(path: &Path) -> Result<ModelInfo, LoadError> {
    let opened = Opened::read(path)?;
    let spec = opened.spec(path, None)?;
    Ok(ModelInfo { spec, config: opened.config, tokenizer_source: opened.tokenizer })
}

impl Opened {
    fn dense(self, path: &Path, options: LoadOptions) -> Result<DenseRunner, LoadError> {
        let shares = self.shares(options.tp_size.max(1))?;
        let mut spec = self.spec(path, options.page_tokens)?;
        let page_tokens = spec.pools[0].page_tokens;
        // Where ranks hold a head together, each of them must have all heads.
        let whole = shares.iter().all(|share| share.kv_heads().len() == self.config.kv_heads);
        spec.pools = pool_specs(&shares[0].config(&self.config), page_tokens, whole);
        let packing = Packing {
            naming: self.naming,
            path: options.kernel_path,
            dequantize: options.dequantize,
            page_tokens,
        };
        let file = self.weights.path().to_owned();
        let weights = Arc::new(self.weights);
        let pack = |share| Decoder::pack(&self.config, Arc::clone(&weights), packing, share);
        let decoders = shares.iter().map(pack).collect::<Result<Vec<_>, _>>();
        let decoders =
            decoders.map_err(|(name, source)| LoadError::Kernel { path: file, name, source })?;
        spec.weight_bytes = decoders.iter().map(Decoder::weight_bytes).sum();
        spec.kernels = decoders[0].kernels();
        Ok(DenseRunner::new(spec, decoders, options.threads))
    }

    fn deepseek_v4(self, path: &Path, options: LoadOptions) -> Result<DeepseekRunner, LoadError> {
        let ranks = options.tp_size.max(1);
        self.check_ranks(ranks)?;
        let mut spec = self.spec(path, options.page_tokens)?;
        let weights = Arc::new(self.weights);
        let pack = |rank| {
            let (config, weights) = (self.config.clone(), Arc::clone(&weights));
            let path = options.kernel_path;
            deepseek_v4::Model::pack(config, weights, path, &spec.pools, (rank, ranks))
        };
        let models = (0..ranks).map(pack).collect::<Result<Vec<_>, _>>()?;
        spec.weight_bytes = models.iter().map(deepseek_v4::Model::weight_bytes).sum();
        spec.kernels = models[0].kernels();
        Ok(DeepseekRunner::new(spec, models, options.threads))
    }

    fn read(path: &Path) -> Result<Self, LoadError> {
        let facts = std::fs::metadata(path).map_err(|error| LoadError::NotAModel {
            path: path.to_owned(),
            what: if error.kind() == std::io::ErrorKind::NotFound {
                "there is no such file or folder".to_owned()
            } else {
                error.to_string()
            },
        })?;
        if facts.is_dir() { Self::read_folder(path) } else { Self::read_file(path) }
    }

    fn read_file(path: &Path) -> Result<Self, LoadError> {
        // The magic first: a clear answer for every file that is something else.
        let io = |source| LoadError::Io { path: path.to_owned(), source };
        let mut magic = Vec::new();
        std::fs::File::open(path).and_then(|f| f.take(4).read_to_end(&mut magic)).map_err(io)?;
        if magic != b"GGUF" {
            let what = if path.ends_with("config.json")
                || path.extension() == Some("safetensors".as_ref())
            {
                "this is a file of a model folder"
            } else {
                "this is not a GGUF file"
            };
            return Err(LoadError::NotAModel { path: path.to_owned(), what: what.to_owned() });
        }
        let (file, mut header) = gguf::open(path)?;
        let wrap = |source| LoadError::Config { path: path.to_owned(), source };
        let config = ModelConfig::from_gguf(&header).map_err(wrap)?;
        let weights = header.take_weights(file);
        let tokenizer = tokenizer::from_gguf(header).map_err(wrap)?;
        let parameters = check_tensors(&config, Naming::Gguf, &weights)?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let (naming, notes) = (Naming::Gguf, Vec::new());
        Ok(Self { config, weights, naming, parameters, name, tokenizer, notes })
    }

    fn read_folder(path: &Path) -> Result<Self, LoadError> {
        let file = path.join("config.json");
        if !file.is_file() {
            let what = match gguf_inside(path) {
                Some(inside) => format!("a folder without config.json, but with {inside}"),
                None => "a folder without config.json".to_owned(),
            };
            return Err(LoadError::NotAModel { path: path.to_owned(), what });
        }
        let config = read_config(path)?;
        let mut notes = Vec::new();
        let (weights, parameters) = if config.deepseek_v4.is_some() {
            let weights = safetensors::open_packed(path)?;
            let deepseek_v4::Checked { parameters, skipped } =
                deepseek_v4::check_tensors(&config, &weights)?;
            if skipped > 0 {
                notes.push(format!(
                    "{skipped} tensors of the block that predicts further tokens (mtp.*) are not \
                     used"
                ));
            }
            (weights, parameters)
        } else {
            let weights = safetensors::open(path)?;
            let parameters = check_tensors(&config, Naming::Hf, &weights)?;
            (weights, parameters)
        };
        let resolved = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let name = resolved.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let tokenizer = TokenizerSource::HfFolder(path.to_owned());
        let naming = Naming::Hf;
        Ok(Self { config, weights, naming, parameters, name, tokenizer, notes })
    }

    /// Whether `ranks` ranks can share the model out, as far as its configuration says.
    fn check_ranks(&self, ranks: usize) -> Result<(), LoadError> {
        TpLimits::of(&self.config).check(ranks).map_err(|source| LoadError::Ranks {
            path: self.weights.path().to_owned(),
            ranks,
            what: source.what,
            works: source.works,
        })
    }

    /// The shares of `ranks` ranks.
    fn shares(&self, ranks: usize) -> Result<Vec<Share>, LoadError> {
        let limits = TpLimits::of(&self.config);
        let all = |ranks| {
            limits.check(ranks).map_err(|error| error.what)?;
            Share::all(ranks, &self.config, self.naming, &self.weights)
        };
        all(ranks).map_err(|what| {
            let mut fewer = (1..ranks.min(self.config.heads + 1)).rev();
            let works = fewer.find(|ranks| all(*ranks).is_ok()).unwrap_or(1);
            LoadError::Ranks { path: self.weights.path().to_owned(), ranks, what, works }
        })
    }

    fn spec(&self, path: &Path, page_tokens: Option<usize>) -> Result<ModelSpec, LoadError> {
        let pools = pools_of(&self.config, page_tokens)
            .map_err(|source| LoadError::Pages { path: path.to_owned(), source })?;
        Ok(ModelSpec {
            name: self.name.clone(),
            architecture: self.config.architecture.to_string(),
            vocab: self.config.vocab,
            max_context: self.config.max_context,
            eos: self.config.eos.clone(),
            bos: self.config.bos,
            pools,
            parameters: self.parameters,
            weight_bytes: self.weights.entries().map(|(_, entry)| entry.bytes as u64).sum(),
            kernels: Vec::new(),
        })
    }
}

fn read_bytes(path: &Path) -> Result<Vec<u8>, LoadError> {
    let io = |source| LoadError::Io { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(io)?;
    file.take(MAX_CONFIG_BYTES).read_to_end(&mut bytes).map_err(io)?;
    Ok(bytes)
}

/// The name of a GGUF file in `folder`, which the user may have meant.
fn gguf_inside(folder: &Path) -> Option<String> {
    let entries = std::fs::read_dir(folder).ok()?;
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.ends_with(".gguf")).min()
}

#[cfg(test)]
mod tests;
