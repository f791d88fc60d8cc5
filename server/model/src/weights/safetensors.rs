//! safetensors files: one, or several with `model.safetensors.index.json`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use kernels::WeightFormat;
use memory_pool::MappedFile;
use safetensors::{Dtype, SafeTensors};
use serde::Deserialize;

use super::{Entry, Shape, Weights, WeightsError};

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
    let index = folder.join(INDEX);
    if !index.is_file() {
        let file = MappedFile::open(&folder.join(SINGLE))?;
        let mut tensors = BTreeMap::new();
        read_header(&file, 0, &mut tensors)?;
        return Ok(Weights::new(vec![file], tensors));
    }
    let bytes = MappedFile::open(&index)?;
    let damaged = |what: String| WeightsError::Damaged { path: index.clone(), what };
    let parsed: Index = serde_json::from_slice(&bytes).map_err(|e| damaged(e.to_string()))?;
    let names: BTreeSet<&String> = parsed.weight_map.values().collect();
    if names.len() > MAX_FILES {
        return Err(damaged(format!("{} files, more than {MAX_FILES}", names.len())));
    }
    let mut files = Vec::new();
    let mut tensors = BTreeMap::new();
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
        if tensors.get(tensor).map(|entry| entry.file) != numbers.get(file).copied() {
            return Err(damaged(format!("tensor {tensor} is not in {file}")));
        }
    }
    Ok(Weights::new(files, tensors))
}

/// The path of a file named by the index: in the folder itself, never outside it.
fn sibling(folder: &Path, name: &str) -> Option<PathBuf> {
    let plain = Path::new(name).file_name()? == name;
    plain.then(|| folder.join(name))
}

fn read_header(
    file: &MappedFile,
    number: usize,
    tensors: &mut BTreeMap<String, Entry>,
) -> Result<(), WeightsError> {
    let damaged = |what: String| WeightsError::Damaged { path: file.path().to_owned(), what };
    // The parser checks that offsets are in order, gapless and inside the file, and that sizes
    // match shapes.
    let (header, metadata) =
        SafeTensors::read_metadata(file).map_err(|error| damaged(error.to_string()))?;
    let data = header + size_of::<u64>();
    for (name, info) in metadata.tensors() {
        let format = format(info.dtype).ok_or_else(|| WeightsError::Unsupported {
            path: file.path().to_owned(),
            what: format!("type {:?} of tensor {name}", info.dtype),
            supported: "F32, F16, BF16".to_owned(),
        })?;
        let (start, end) = info.data_offsets;
        let shape = Shape(info.shape.clone());
        let bytes = end.checked_sub(start).filter(|bytes| shape.bytes(format) == Some(*bytes));
        let bytes = bytes.ok_or_else(|| damaged(format!("tensor {name} has a wrong size")))?;
        if data.checked_add(end).is_none_or(|end| end > file.len()) {
            return Err(damaged(format!("tensor {name} ends behind the file")));
        }
        let entry = Entry { file: number, start: data + start, bytes, format, shape };
        if tensors.insert(name.clone(), entry).is_some() {
            return Err(damaged(format!("tensor {name} is in two files")));
        }
    }
    Ok(())
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
