//! Compressed runs of samples of one series.
//!
//! Byte-aligned on purpose: a repeated value at an even interval costs two bytes, and decoding is
//! a few branches per sample. Timestamps are stored as the change of their distance (zigzag
//! varint), values as the bytes in which they differ from the one before.

/// Samples per chunk: small enough to drop old data in useful steps.
const SAMPLES_MAX: usize = 240;

/// A sealed or growing run of samples with increasing timestamps (milliseconds).
#[derive(Debug, Default)]
pub(super) struct Chunk {
    bytes: Vec<u8>,
    samples: usize,
    pub(super) first_ms: i64,
    pub(super) last_ms: i64,
    last_delta: i64,
    last_bits: u64,
}

impl Chunk {
    pub(super) fn is_full(&self) -> bool {
        self.samples >= SAMPLES_MAX
    }

    /// Bytes held, the fixed part included.
    pub(super) fn size(&self) -> usize {
        self.bytes.capacity() + size_of::<Self>()
    }

    /// Gives back the spare room of a chunk that will not grow any more.
    pub(super) fn seal(&mut self) {
        self.bytes.shrink_to_fit();
    }

    /// Appends a sample; the caller keeps timestamps increasing.
    pub(super) fn push(&mut self, time_ms: i64, value: f64) {
        if self.samples == 0 {
            self.first_ms = time_ms;
            self.last_ms = time_ms;
        }
        let delta = time_ms - self.last_ms;
        put_varint(&mut self.bytes, zigzag(delta - self.last_delta));
        let bits = value.to_bits();
        put_difference(&mut self.bytes, bits ^ self.last_bits);
        self.samples += 1;
        self.last_ms = time_ms;
        self.last_delta = delta;
        self.last_bits = bits;
    }

    /// The samples from `from_ms` to `to_ms`, both included, in order.
    pub(super) fn read(&self, from_ms: i64, to_ms: i64, out: &mut Vec<(i64, f64)>) {
        let (mut at, mut time, mut delta, mut bits) = (0, self.first_ms, 0, 0);
        for _ in 0..self.samples {
            delta += unzigzag(get_varint(&self.bytes, &mut at));
            time += delta;
            bits ^= get_difference(&self.bytes, &mut at);
            if time > to_ms {
                return;
            }
            if time >= from_ms {
                out.push((time, f64::from_bits(bits)));
            }
        }
    }
}

fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)).cast_unsigned()
}

fn unzigzag(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -(value & 1).cast_signed()
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn get_varint(bytes: &[u8], at: &mut usize) -> u64 {
    let (mut value, mut shift) = (0, 0);
    loop {
        let byte = bytes[*at];
        *at += 1;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return value;
        }
        shift += 7;
    }
}

/// One byte with the number of leading and of meaningful bytes, then the meaningful ones.
fn put_difference(out: &mut Vec<u8>, difference: u64) {
    if difference == 0 {
        out.push(0);
        return;
    }
    let leading = difference.leading_zeros() as usize / 8;
    let trailing = difference.trailing_zeros() as usize / 8;
    let length = 8 - leading - trailing;
    out.push((leading << 4 | length) as u8);
    out.extend_from_slice(&difference.to_be_bytes()[leading..leading + length]);
}

fn get_difference(bytes: &[u8], at: &mut usize) -> u64 {
    let head = usize::from(bytes[*at]);
    *at += 1;
    let (leading, length) = (head >> 4, head & 0xf);
    let mut whole = [0; 8];
    whole[leading..leading + length].copy_from_slice(&bytes[*at..*at + length]);
    *at += length;
    u64::from_be_bytes(whole)
}
