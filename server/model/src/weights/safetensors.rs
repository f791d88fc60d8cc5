//! safetensors files: one, or several with `model.safetensors.index.json`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use kernels::WeightFormat;
use memory_pool::MappedFile;
use safetensors::{Dtype, SafeTensors};
use serde::Deserialize;

use super::{Entry, PackedEntry, PackedFormat, Shape, Weights, WeightsError};

const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
/// The most files of one model; a hostile index must not open thousands.
const MAX_FILES: usize = 1024;

/// The part of the index that matters: which file holds which tensor.
#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

/// Maps the weights of a Hugging Face folder and reads their headers.
///
/// # Errors
/// [`WeightsError`] where a file is missing, damaged, or of an unsupported type.
pub(crate) fn open(folder: &Path) -> Result<Weights, WeightsError> {
    let weights = open_packed(folder)?;
    match weights.packed.iter().next() {
        None => Ok(weights),
        Some((name, entry)) => Err(WeightsError::Unsupported {
            path: weights.files[entry.file].path().to_owned(),
            what: format!("type {} of tensor {name}", type_name(entry.format)),
            supported: "F32, F16, BF16".to_owned(),
        }),
    }
}

/// As [`open`], for models that bring weights of types that no kernel reads.
///
/// # Errors
/// As [`open`].
pub(crate) fn open_packed(folder: &Path) -> Result<Weights, WeightsError> {
    let index = folder.join(INDEX);
    if !index.is_file() {
        let file = MappedFile::open(&folder.join(SINGLE))?;
        let mut tensors = Tensors::default();
        read_header(&file, 0, &mut tensors)?;
        return Ok(tensors.of(vec![file]));
    }
    let bytes = MappedFile::open(&index)?;
    let damaged = |what: String| WeightsError::Damaged { path: index.clone(), what };
    let parsed: Index = serde_json::from_slice(&bytes).map_err(|e| damaged(e.to_string()))?;
    let names: BTreeSet<&String> = parsed.weight_map.values().collect();
    if names.len() > MAX_FILES {
        return Err(damaged(format!("{} files, more than {MAX_FILES}", names.len())));
    }
    let mut files = Vec::new();
    let mut tensors = Tensors::default();
    let mut numbers = BTreeMap::new();
    for name in names {
        let path = sibling(folder, name)
            .ok_or_else(|| damaged(format!("{name:?} is not a file name in the same folder")))?;
        let file = MappedFile::open(&path)?;
        read_header(&file, files.len(), &mut tensors)?;
        numbers.insert(name, files.len());
        files.push(file);
    }
    for (tensor, file) in &parsed.weight_map {
        if tensors.file_of(tensor) != numbers.get(file).copied() {
            return Err(damaged(format!("tensor {tensor} is not in {file}")));
        }
    }
    Ok(tensors.of(files))
}

/// What headers say.
#[derive(Default)]
struct Tensors {
    plain: BTreeMap<String, Entry>,
    packed: BTreeMap<String, PackedEntry>,
}

impl Tensors {
    fn of(self, files: Vec<MappedFile>) -> Weights {
        Weights { files, tensors: self.plain, packed: self.packed }
    }

    /// The number of the file that holds a tensor.
    fn file_of(&self, name: &str) -> Option<usize> {
        let plain = self.plain.get(name).map(|entry| entry.file);
        plain.or_else(|| self.packed.get(name).map(|entry| entry.file))
    }
}

/// The path of a file named by the index: in the folder itself, never outside it.
fn sibling(folder: &Path, name: &str) -> Option<PathBuf> {
    let plain = Path::new(name).file_name()? == name;
    plain.then(|| folder.join(name))
}

fn read_header(
    file: &MappedFile,
    number: usize,
    tensors: &mut Tensors,
) -> Result<(), WeightsError> {
    let damaged = |what: String| WeightsError::Damaged { path: file.path().to_owned(), what };
    // The parser checks that offsets are in order, gapless and inside the file, and that sizes
    // match shapes.
    let (header, metadata) =
        SafeTensors::read_metadata(file).map_err(|error| damaged(error.to_string()))?;
    let data = header + size_of::<u64>();
    for (name, info) in metadata.tensors() {
        let (start, end) = info.data_offsets;
        let shape = Shape(info.shape.clone());
        let (plain, packed) = (format(info.dtype), packed_format(info.dtype));
        let expected = match (plain, packed) {
            (Some(format), _) => shape.bytes(format),
            (None, Some(format)) => shape.values().and_then(|n| n.checked_mul(format.bytes())),
            (None, None) => {
                return Err(WeightsError::Unsupported {
                    path: file.path().to_owned(),
                    what: format!("type {:?} of tensor {name}", info.dtype),
                    supported: "F32, F16, BF16".to_owned(),
                });
            }
        };
        let bytes = end.checked_sub(start).filter(|bytes| expected == Some(*bytes));
        let bytes = bytes.ok_or_else(|| damaged(format!("tensor {name} has a wrong size")))?;
        if data.checked_add(end).is_none_or(|end| end > file.len()) {
            return Err(damaged(format!("tensor {name} ends behind the file")));
        }
        if tensors.file_of(name.as_str()).is_some() {
            return Err(damaged(format!("tensor {name} is in two files")));
        }
        let (file, start) = (number, data + start);
        if let Some(format) = plain {
            let entry = Entry { file, start, bytes, format, shape };
            tensors.plain.insert(name.clone(), entry);
        } else if let Some(format) = packed {
            let entry = PackedEntry { file, start, bytes, format, shape };
            tensors.packed.insert(name.clone(), entry);
        }
    }
    Ok(())
}

impl PackedFormat {
    const fn bytes(self) -> usize {
        match self {
            Self::E4M3 | Self::E8M0 | Self::I8 => 1,
            Self::I32 => 4,
            Self::I64 => 8,
        }
    }
}

const fn type_name(format: PackedFormat) -> &'static str {
    match format {
        PackedFormat::E4M3 => "F8_E4M3",
        PackedFormat::E8M0 => "F8_E8M0",
        PackedFormat::I8 => "I8",
        PackedFormat::I32 => "I32",
        PackedFormat::I64 => "I64",
    }
}

fn packed_format(dtype: Dtype) -> Option<PackedFormat> {
    // The list of types is the library's and grows.
    if dtype == Dtype::F8_E4M3 {
        Some(PackedFormat::E4M3)
    } else if dtype == Dtype::F8_E8M0 {
        Some(PackedFormat::E8M0)
    } else if dtype == Dtype::I8 || dtype == Dtype::U8 {
        Some(PackedFormat::I8)
    } else if dtype == Dtype::I32 {
        Some(PackedFormat::I32)
    } else if dtype == Dtype::I64 {
        Some(PackedFormat::I64)
    } else {
        None
    }
}

fn format(dtype: Dtype) -> Option<WeightFormat> {
    // The list of types is the library's and grows.
    if dtype == Dtype::F32 {
        Some(WeightFormat::F32)
    } else if dtype == Dtype::F16 {
        Some(WeightFormat::F16)
    } else if dtype == Dtype::BF16 {
        Some(WeightFormat::Bf16)
    } else {
        None
    }
}

#[cfg(test)]
mod tests;
