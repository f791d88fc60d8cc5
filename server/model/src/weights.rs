//! Weight files: where each tensor lies, in which format and shape.
//!
//! Both file formats end up as one [`Weights`]: names to checked byte ranges of mapped files.
//! Nothing here knows which tensors a model needs, and nothing is converted.

pub(crate) mod gguf;
pub(crate) mod safetensors;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use kernels::WeightFormat;
use memory_pool::{MapError, MappedFile};

/// The mapped files of a model and where their tensors are.
#[derive(Debug)]
pub(crate) struct Weights {
    files: Vec<MappedFile>,
    tensors: BTreeMap<String, Entry>,
    /// Tensors of types that no kernel reads; only some models take them.
    packed: BTreeMap<String, PackedEntry>,
}

/// How values are stored that some models bring and no kernel reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PackedFormat {
    /// FP8 of four exponent and three mantissa bits.
    E4M3,
    /// A power of two in a byte.
    E8M0,
    /// Bytes.
    I8,
    I32,
    I64,
}

/// As [`Entry`], of such a type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PackedEntry {
    pub(crate) file: usize,
    pub(crate) start: usize,
    pub(crate) bytes: usize,
    pub(crate) format: PackedFormat,
    pub(crate) shape: Shape,
}

/// Where a tensor lies. `start + bytes` is inside the file: checked when the entry is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) file: usize,
    pub(crate) start: usize,
    pub(crate) bytes: usize,
    pub(crate) format: WeightFormat,
    pub(crate) shape: Shape,
}

/// Dimensions with the rows first: a linear layer's weights are `[out, in]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shape(pub(crate) Vec<usize>);

/// A tensor's bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tensor<'a> {
    pub(crate) format: WeightFormat,
    pub(crate) bytes: &'a [u8],
}

/// Why weight files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum WeightsError {
    /// The file cannot be mapped.
    #[error(transparent)]
    Map(#[from] MapError),
    /// The file breaks its format's rules.
    #[error("{} is damaged: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        what: String,
    },
    /// The file is well formed but uses what this program does not read.
    #[error("{}: {what} is not supported; supported: {supported}", path.display())]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// What it uses.
        what: String,
        /// What would work.
        supported: String,
    },
}

impl Weights {
    pub(crate) const fn new(files: Vec<MappedFile>, tensors: BTreeMap<String, Entry>) -> Self {
        Self { files, tensors, packed: BTreeMap::new() }
    }

    /// The tensor of that name whose type no kernel reads, if there is one.
    pub(crate) fn packed(&self, name: &str) -> Option<(&PackedEntry, &[u8])> {
        let entry = self.packed.get(name)?;
        Some((entry, &self.files[entry.file][entry.start..entry.start + entry.bytes]))
    }

    /// All of those by name.
    pub(crate) fn packed_entries(&self) -> impl Iterator<Item = (&str, &PackedEntry)> {
        self.packed.iter().map(|(name, entry)| (name.as_str(), entry))
    }

    /// The tensor of that name, if there is one.
    pub(crate) fn entry(&self, name: &str) -> Option<&Entry> {
        self.tensors.get(name)
    }

    /// The bytes of an entry of this object.
    pub(crate) fn tensor(&self, entry: &Entry) -> Tensor<'_> {
        let bytes = &self.files[entry.file][entry.start..entry.start + entry.bytes];
        Tensor { format: entry.format, bytes }
    }

    /// All tensors by name.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&str, &Entry)> {
        self.tensors.iter().map(|(name, entry)| (name.as_str(), entry))
    }

    /// The first file, for messages.
    pub(crate) fn path(&self) -> &Path {
        self.files.first().map_or(Path::new("model"), MappedFile::path)
    }
}

impl Shape {
    /// Number of values; `None` where that overflows.
    pub(crate) fn values(&self) -> Option<usize> {
        self.0.iter().try_fold(1usize, |product, dim| product.checked_mul(*dim))
    }

    /// Values of a row; 1 where there are no dimensions.
    fn row(&self) -> usize {
        self.0.last().copied().unwrap_or(1)
    }

    /// Bytes of all values in `format`; `None` where that overflows or rows are no whole blocks.
    fn bytes(&self, format: WeightFormat) -> Option<usize> {
        if !self.row().is_multiple_of(format.block_values()) {
            return None;
        }
        (self.values()? / format.block_values()).checked_mul(format.block_bytes())
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}
