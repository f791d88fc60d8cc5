//! GGUF version 3: metadata and tensor directory of a file that may be hostile.
//!
//! Every count and length is checked against the bytes that are left before anything is allocated,
//! so a file can cost at most a small multiple of its own size. Tensor data is not looked at.

mod reader;
mod value;

use std::collections::BTreeMap;
use std::path::Path;

use kernels::WeightFormat;
use memory_pool::MappedFile;

use self::reader::Reader;
pub(crate) use self::value::Value;
use super::{Entry, Shape, Weights, WeightsError};

const MAGIC: &[u8; 4] = b"GGUF";
const VERSION: u32 = 3;
const DEFAULT_ALIGNMENT: u64 = 32;
const MAX_DIMS: u32 = 4;
const FORMATS: &str = "F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K";
/// The smallest metadata entry: an empty key, a type, a byte.
const MIN_METADATA: usize = 8 + 4 + 1;
/// The smallest tensor entry: an empty name, no dimensions, a type, an offset.
const MIN_TENSOR: usize = 8 + 4 + 4 + 8;

/// What stands before the tensor data.
#[derive(Debug)]
pub(crate) struct GgufHeader {
    pub(crate) metadata: BTreeMap<String, Value>,
    /// Offsets are from the start of the file.
    pub(crate) tensors: BTreeMap<String, Entry>,
}

/// A failure without the file's name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Damaged(String),
    Unsupported { what: String, supported: String },
}

impl Fault {
    fn at(self, path: &Path) -> WeightsError {
        let path = path.to_owned();
        match self {
            Self::Damaged(what) => WeightsError::Damaged { path, what },
            Self::Unsupported { what, supported } => {
                WeightsError::Unsupported { path, what, supported }
            }
        }
    }
}

/// Maps a GGUF file and reads its header.
///
/// # Errors
/// [`WeightsError`] where the file cannot be read, breaks the format, or uses unsupported types.
pub(crate) fn open(path: &Path) -> Result<(MappedFile, GgufHeader), WeightsError> {
    let file = MappedFile::open(path)?;
    let header = parse(&file).map_err(|fault| fault.at(path))?;
    Ok((file, header))
}

impl GgufHeader {
    /// The tensors together with their file; leaves the metadata.
    pub(crate) fn take_weights(&mut self, file: MappedFile) -> Weights {
        Weights::new(vec![file], std::mem::take(&mut self.tensors))
    }
}

/// Parses the header of a whole file.
pub(crate) fn parse(bytes: &[u8]) -> Result<GgufHeader, Fault> {
    let mut reader = Reader::new(bytes);
    if reader.bytes(4)? != MAGIC {
        return Err(Fault::Damaged("it does not start with GGUF".to_owned()));
    }
    let version = reader.u32()?;
    if version != VERSION {
        let big_endian = if version == VERSION.swap_bytes() { " (big endian)" } else { "" };
        return Err(Fault::Unsupported {
            what: format!("GGUF version {version}{big_endian}"),
            supported: VERSION.to_string(),
        });
    }
    let tensor_count = reader.count("tensors", MIN_TENSOR)?;
    let metadata_count = reader.count("metadata entries", MIN_METADATA)?;
    let mut metadata = BTreeMap::new();
    for _ in 0..metadata_count {
        let key = reader.name()?;
        let kind = reader.u32()?;
        let value = Value::read(&mut reader, kind).map_err(|fault| in_context(&key, fault))?;
        if metadata.insert(key.clone(), value).is_some() {
            return Err(Fault::Damaged(format!("metadata key {key} occurs twice")));
        }
    }
    let alignment = alignment(&metadata)?;
    let mut raw = Vec::new();
    for _ in 0..tensor_count {
        raw.push(RawTensor::read(&mut reader)?);
    }
    let data = reader.position().next_multiple_of(alignment);
    let mut tensors = BTreeMap::new();
    for tensor in raw {
        let name = tensor.name.clone();
        let entry = tensor.place(data, alignment, bytes.len())?;
        if tensors.insert(name.clone(), entry).is_some() {
            return Err(Fault::Damaged(format!("tensor {name} occurs twice")));
        }
    }
    Ok(GgufHeader { metadata, tensors })
}

fn in_context(key: &str, fault: Fault) -> Fault {
    match fault {
        Fault::Damaged(what) => Fault::Damaged(format!("metadata {key}: {what}")),
        Fault::Unsupported { what, supported } => {
            Fault::Unsupported { what: format!("metadata {key}: {what}"), supported }
        }
    }
}

fn alignment(metadata: &BTreeMap<String, Value>) -> Result<usize, Fault> {
    let value = match metadata.get("general.alignment") {
        None => Some(DEFAULT_ALIGNMENT),
        Some(value) => value.as_u64(),
    };
    match value {
        Some(value) if value.is_power_of_two() && value <= 1 << 20 => Ok(value as usize),
        _ => Err(Fault::Damaged("general.alignment is not a power of two up to 1 MiB".to_owned())),
    }
}

struct RawTensor {
    name: String,
    shape: Shape,
    kind: u32,
    offset: u64,
}

impl RawTensor {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Fault> {
        let name = reader.name()?;
        let dims = reader.u32()?;
        if dims > MAX_DIMS {
            let what = format!("tensor {name} has {dims} dimensions, more than {MAX_DIMS}");
            return Err(Fault::Damaged(what));
        }
        let mut shape = Vec::with_capacity(MAX_DIMS as usize);
        for _ in 0..dims {
            let dim = usize::try_from(reader.u64()?);
            shape.push(dim.map_err(|_| Fault::Damaged(format!("tensor {name} is too large")))?);
        }
        // The file counts from the fastest dimension up.
        shape.reverse();
        Ok(Self { name, shape: Shape(shape), kind: reader.u32()?, offset: reader.u64()? })
    }

    fn place(self, data: usize, alignment: usize, file_len: usize) -> Result<Entry, Fault> {
        let Self { name, shape, kind, offset } = self;
        let format = format(kind).ok_or_else(|| Fault::Unsupported {
            what: format!("type {} of tensor {name}", type_name(kind)),
            supported: FORMATS.to_owned(),
        })?;
        let damaged = |what: &str| Fault::Damaged(format!("tensor {name} {shape} {what}"));
        if let Err(error) = format.row_bytes(shape.row()) {
            return Err(Fault::Damaged(format!("tensor {name} {shape}: {error}")));
        }
        let Some(bytes) = shape.bytes(format) else {
            return Err(damaged("is too large"));
        };
        let offset = usize::try_from(offset).map_err(|_| damaged("ends behind the file"))?;
        if !offset.is_multiple_of(alignment) {
            return Err(damaged("is not aligned"));
        }
        let start = data.checked_add(offset);
        let end = start.and_then(|start| start.checked_add(bytes));
        match (start, end) {
            (Some(start), Some(end)) if end <= file_len => {
                Ok(Entry { file: 0, start, bytes, format, shape })
            }
            _ => Err(damaged("ends behind the file")),
        }
    }
}

const fn format(kind: u32) -> Option<WeightFormat> {
    match kind {
        0 => Some(WeightFormat::F32),
        1 => Some(WeightFormat::F16),
        2 => Some(WeightFormat::Q4_0),
        3 => Some(WeightFormat::Q4_1),
        6 => Some(WeightFormat::Q5_0),
        7 => Some(WeightFormat::Q5_1),
        8 => Some(WeightFormat::Q8_0),
        12 => Some(WeightFormat::Q4K),
        13 => Some(WeightFormat::Q5K),
        14 => Some(WeightFormat::Q6K),
        30 => Some(WeightFormat::Bf16),
        _ => None,
    }
}

/// The names of types that only other programs read, for the message.
fn type_name(kind: u32) -> String {
    let known = match kind {
        9 => "Q8_1",
        10 => "Q2_K",
        11 => "Q3_K",
        15 => "Q8_K",
        16 => "IQ2_XXS",
        17 => "IQ2_XS",
        18 => "IQ3_XXS",
        19 => "IQ1_S",
        20 => "IQ4_NL",
        21 => "IQ3_S",
        22 => "IQ2_S",
        23 => "IQ4_XS",
        24 => "I8",
        25 => "I16",
        26 => "I32",
        27 => "I64",
        28 => "F64",
        29 => "IQ1_M",
        34 => "TQ1_0",
        35 => "TQ2_0",
        39 => "MXFP4",
        _ => return format!("number {kind}"),
    };
    known.to_owned()
}

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) mod writer;
