//! Metadata values, all types of the format.

use super::Fault;
use super::reader::Reader;

/// Arrays inside arrays inside arrays: no real file has more than one level.
const MAX_DEPTH: usize = 4;

/// One metadata value. Integers keep their value, not their width.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Unsigned(u64),
    Signed(i64),
    F32(f32),
    F64(f64),
    Bool(bool),
    Text(String),
    /// Arrays are kept compact, so that a file of nothing but arrays stays cheap: all integers and
    /// bools as i64 (zero where one does not fit), all floats as f32.
    Texts(Vec<String>),
    Integers(Vec<i64>),
    Floats(Vec<f32>),
    /// Arrays of arrays.
    List(Vec<Self>),
}

impl Value {
    pub(super) fn read(reader: &mut Reader<'_>, kind: u32) -> Result<Self, Fault> {
        Self::read_at(reader, kind, 0)
    }

    fn read_at(reader: &mut Reader<'_>, kind: u32, depth: usize) -> Result<Self, Fault> {
        Ok(match kind {
            0 => Self::Unsigned(u64::from(u8::from_le_bytes(reader.array()?))),
            1 => Self::Signed(i64::from(i8::from_le_bytes(reader.array()?))),
            2 => Self::Unsigned(u64::from(u16::from_le_bytes(reader.array()?))),
            3 => Self::Signed(i64::from(i16::from_le_bytes(reader.array()?))),
            4 => Self::Unsigned(u64::from(reader.u32()?)),
            5 => Self::Signed(i64::from(i32::from_le_bytes(reader.array()?))),
            6 => Self::F32(f32::from_le_bytes(reader.array()?)),
            7 => Self::Bool(reader.array::<1>()? != [0]),
            8 => Self::Text(reader.text()?),
            9 => Self::read_array(reader, depth)?,
            10 => Self::Unsigned(reader.u64()?),
            11 => Self::Signed(i64::from_le_bytes(reader.array()?)),
            12 => Self::F64(f64::from_le_bytes(reader.array()?)),
            _ => return Err(Fault::Damaged(format!("value type {kind} does not exist"))),
        })
    }

    fn read_array(reader: &mut Reader<'_>, depth: usize) -> Result<Self, Fault> {
        if depth >= MAX_DEPTH {
            return Err(Fault::Damaged(format!("arrays nest deeper than {MAX_DEPTH}")));
        }
        let kind = reader.u32()?;
        let count = reader.count("array elements", smallest(kind)?)?;
        Ok(match kind {
            6 | 12 => Self::Floats(many(count, || {
                Ok(Self::read_at(reader, kind, depth)?.as_f64().unwrap_or(0.0) as f32)
            })?),
            8 => Self::Texts(many(count, || reader.text())?),
            9 => Self::List(many(count, || Self::read_array(reader, depth + 1))?),
            _ => Self::Integers(many(count, || {
                Ok(Self::read_at(reader, kind, depth)?.as_i64().unwrap_or(0))
            })?),
        })
    }

    pub(crate) fn as_u64(&self) -> Option<u64> {
        if let Self::Signed(value) = self {
            u64::try_from(*value).ok()
        } else if let Self::Unsigned(value) = self {
            Some(*value)
        } else {
            None
        }
    }

    fn as_i64(&self) -> Option<i64> {
        if let Self::Signed(value) = self {
            Some(*value)
        } else if let Self::Bool(value) = self {
            Some(i64::from(*value))
        } else {
            self.as_u64().and_then(|value| i64::try_from(value).ok())
        }
    }

    pub(crate) fn as_f64(&self) -> Option<f64> {
        if let Self::F32(value) = self {
            Some(f64::from(*value))
        } else if let Self::F64(value) = self {
            Some(*value)
        } else {
            self.as_i64().map(|value| value as f64)
        }
    }

    pub(crate) const fn as_bool(&self) -> Option<bool> {
        if let Self::Bool(value) = self { Some(*value) } else { None }
    }

    pub(crate) fn as_str(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    pub(crate) fn strings(&self) -> Option<&[String]> {
        if let Self::Texts(texts) = self { Some(texts) } else { None }
    }

    pub(crate) fn integers(&self) -> Option<&[i64]> {
        if let Self::Integers(values) = self { Some(values) } else { None }
    }

    /// The value in a few words, for messages.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Unsigned(value) => value.to_string(),
            Self::Signed(value) => value.to_string(),
            Self::F32(value) => value.to_string(),
            Self::F64(value) => value.to_string(),
            Self::Bool(value) => value.to_string(),
            Self::Text(text) => format!("{text:?}"),
            Self::Texts(values) => format!("a list of {} strings", values.len()),
            Self::Integers(values) => format!("a list of {} integers", values.len()),
            Self::Floats(values) => format!("a list of {} numbers", values.len()),
            Self::List(values) => format!("a list of {} values", values.len()),
        }
    }
}

fn many<T>(count: usize, mut read: impl FnMut() -> Result<T, Fault>) -> Result<Vec<T>, Fault> {
    let mut values = Vec::with_capacity(count);
    for _ in 0..count {
        values.push(read()?);
    }
    Ok(values)
}

/// Bytes that a value of this type takes at least.
fn smallest(kind: u32) -> Result<usize, Fault> {
    Ok(match kind {
        0 | 1 | 7 => 1,
        2 | 3 => 2,
        4..=6 => 4,
        8 | 10..=12 => 8,
        9 => 12,
        _ => return Err(Fault::Damaged(format!("value type {kind} does not exist"))),
    })
}
