//! One block of 32 weights, whatever the format: its integers and what they are multiplied with.

use half::f16;

use super::{BLOCK, SUPER_BLOCK, WeightFormat};

/// Bytes of the six-bit scales and minima of a super-block.
const SCALES: usize = 12;

/// 32 weights: `d * scale * (q - centre)`, plus an offset where the format has one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Block {
    format: WeightFormat,
    /// The integers, made unsigned: the centre is still in them.
    pub(crate) q: [u8; BLOCK],
    /// The f16 scale, little endian.
    pub(crate) d: [u8; 2],
    /// Integer factors of the scale, one per 16 values; 1 where the format has none.
    pub(crate) scales: [i8; 2],
    /// The f16 offset (or what `min` is multiplied with), little endian; 0 where there is none.
    pub(crate) m: [u8; 2],
    /// The integer minimum of the K formats; 0 elsewhere.
    pub(crate) min: u8,
}

impl Block {
    /// Block `at` (of 32 values) of a row of a quantised `format`.
    ///
    /// # Panics
    /// Where the row has no such block or the format is a float one.
    pub(crate) fn read(format: WeightFormat, row: &[u8], at: usize) -> Self {
        let parts = format.block_values() / BLOCK;
        let bytes = format.block_bytes();
        let stored = &row[at / parts * bytes..][..bytes];
        let part = at % parts;
        match format {
            WeightFormat::Q8_0 => {
                // -128..=127 becomes 0..=255.
                let q = std::array::from_fn(|i| stored[2 + i] ^ 0x80);
                Self::plain(format, q, two(stored, 0), [0; 2])
            }
            WeightFormat::Q4_0 => {
                Self::plain(format, nibbles(&stored[2..]), two(stored, 0), [0; 2])
            }
            WeightFormat::Q4_1 => {
                Self::plain(format, nibbles(&stored[4..]), two(stored, 0), two(stored, 2))
            }
            WeightFormat::Q5_0 => {
                Self::plain(format, five_bits(&stored[2..]), two(stored, 0), [0; 2])
            }
            WeightFormat::Q5_1 => {
                Self::plain(format, five_bits(&stored[4..]), two(stored, 0), two(stored, 2))
            }
            WeightFormat::Q4K | WeightFormat::Q5K => Self::with_minimum(format, stored, part),
            WeightFormat::Q6K => Self::six_bits(stored, part),
            WeightFormat::F32 | WeightFormat::F16 | WeightFormat::Bf16 => {
                unreachable!("{format} has no blocks")
            }
        }
    }

    const fn plain(format: WeightFormat, q: [u8; BLOCK], d: [u8; 2], m: [u8; 2]) -> Self {
        Self { format, q, d, scales: [1; 2], m, min: 0 }
    }

    /// Block `part` of a super-block of Q4_K or Q5_K: d, e, scales and minima, high bits (Q5_K),
    /// nibbles. Two neighbouring blocks share 32 bytes of nibbles; block `part` has bit `part` of
    /// each byte of high bits.
    fn with_minimum(format: WeightFormat, stored: &[u8], part: usize) -> Self {
        let (scale, min) = six_bit_pair(&stored[4..4 + SCALES], part);
        let rest = &stored[4 + SCALES..];
        let (high, low) = match format == WeightFormat::Q5K {
            true => rest.split_at(SUPER_BLOCK / 8),
            false => (&[][..], rest),
        };
        let low = &low[part / 2 * BLOCK..][..BLOCK];
        let mut q = std::array::from_fn(|i| low[i] >> (part % 2 * 4) & 0x0f);
        for (q, high) in q.iter_mut().zip(high) {
            *q |= (high >> part & 1) << 4;
        }
        let scales = [scale.cast_signed(); 2];
        Self { format, q, d: two(stored, 0), scales, m: two(stored, 2), min }
    }

    /// Block `part` of a super-block of Q6_K: nibbles, pairs of high bits, scales, d. Each half of
    /// the super-block has 64 bytes of nibbles (its blocks 0 and 1 the low ones, 2 and 3 the high
    /// ones) and 32 of high bits, two for each of its four blocks.
    fn six_bits(stored: &[u8], part: usize) -> Self {
        let (half, quarter) = (part / 4, part % 4);
        let low = &stored[half * 64 + quarter % 2 * BLOCK..][..BLOCK];
        let high = &stored[SUPER_BLOCK / 2 + half * BLOCK..][..BLOCK];
        let q = std::array::from_fn(|i| {
            low[i] >> (quarter / 2 * 4) & 0x0f | (high[i] >> (2 * quarter) & 3) << 4
        });
        let scales = two(stored, SUPER_BLOCK * 3 / 4 + 2 * part).map(u8::cast_signed);
        let d = two(stored, SUPER_BLOCK * 3 / 4 + SUPER_BLOCK / 16);
        Self { format: WeightFormat::Q6K, q, d, scales, m: [0; 2], min: 0 }
    }

    /// What was added to the weights to make them unsigned.
    pub(crate) const fn centre(&self) -> i32 {
        match self.format {
            WeightFormat::Q8_0 => 128,
            WeightFormat::Q4_0 => 8,
            WeightFormat::Q5_0 => 16,
            WeightFormat::Q6K => 32,
            WeightFormat::Q4_1
            | WeightFormat::Q5_1
            | WeightFormat::Q4K
            | WeightFormat::Q5K
            | WeightFormat::F32
            | WeightFormat::F16
            | WeightFormat::Bf16 => 0,
        }
    }

    /// The f16 scale, widened.
    pub(crate) fn scale(&self) -> f32 {
        f16::from_le_bytes(self.d).to_f32()
    }

    /// What is added to each weight, in formats that have it. Exact.
    pub(crate) fn offset(&self) -> Option<f32> {
        let m = f16::from_le_bytes(self.m).to_f32();
        match self.format {
            WeightFormat::Q4_1 | WeightFormat::Q5_1 => Some(m),
            WeightFormat::Q4K | WeightFormat::Q5K => Some(-(m * f32::from(self.min))),
            WeightFormat::Q8_0
            | WeightFormat::Q4_0
            | WeightFormat::Q5_0
            | WeightFormat::Q6K
            | WeightFormat::F32
            | WeightFormat::F16
            | WeightFormat::Bf16 => None,
        }
    }

    /// The weights as f32, each rounded as the format's definition does: the scale first.
    pub(crate) fn dequantize(&self, out: &mut [f32; BLOCK]) {
        let (centre, offset) = (self.centre(), self.offset());
        let scales = self.scales.map(|scale| self.scale() * f32::from(scale));
        for (half, scale) in out.as_chunks_mut::<16>().0.iter_mut().zip(scales).enumerate() {
            let (out, scale) = scale;
            for (out, q) in out.iter_mut().zip(&self.q[half * 16..]) {
                *out = scale * (i32::from(*q) - centre) as f32;
                // Adding a zero that the format does not have could change a sign.
                if let Some(offset) = offset {
                    *out += offset;
                }
            }
        }
    }
}

fn two(bytes: &[u8], at: usize) -> [u8; 2] {
    [bytes[at], bytes[at + 1]]
}

/// 16 bytes: low nibbles are values 0..16, high nibbles 16..32.
fn nibbles(bytes: &[u8]) -> [u8; BLOCK] {
    let mut q = [0; BLOCK];
    let (low, high) = q.split_at_mut(BLOCK / 2);
    for ((low, high), byte) in low.iter_mut().zip(high).zip(bytes) {
        (*low, *high) = (byte & 0x0f, byte >> 4);
    }
    q
}

/// Four bytes with one high bit per value, in order, then nibbles.
fn five_bits(bytes: &[u8]) -> [u8; BLOCK] {
    let mut q = nibbles(&bytes[4..]);
    for (i, q) in q.iter_mut().enumerate() {
        *q |= (bytes[i / 8] >> (i % 8) & 1) << 4;
    }
    q
}

/// Scale and minimum `part` of 12 bytes: the first four of each lie in the low six bits of bytes
/// 0..4 and 4..8; of the others, the low four bits lie in bytes 8..12 and the high two atop those.
fn six_bit_pair(bytes: &[u8], part: usize) -> (u8, u8) {
    if part < 4 {
        return (bytes[part] & 0x3f, bytes[part + 4] & 0x3f);
    }
    let (scale, min, low) = (bytes[part - 4], bytes[part], bytes[part + 4]);
    (low & 0x0f | (scale >> 2) & 0x30, low >> 4 | (min >> 2) & 0x30)
}
