//! Samples as Prometheus takes them by remote write: the only way in that keeps times and end
//! marks as they are.

use crate::store::SeriesSamples;

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// A field of bytes: text or a message.
fn bytes(out: &mut Vec<u8>, field: u8, value: &[u8]) {
    out.push(field << 3 | 2);
    varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

/// The message `WriteRequest` of these series.
fn request(series: &[SeriesSamples]) -> Vec<u8> {
    let mut out = Vec::new();
    for one in series {
        let mut message = Vec::new();
        for (name, value) in one.labels.iter() {
            let mut label = Vec::new();
            bytes(&mut label, 1, name.as_bytes());
            bytes(&mut label, 2, value.as_bytes());
            bytes(&mut message, 1, &label);
        }
        for (time, value) in &one.samples {
            let mut sample = vec![1 << 3 | 1];
            sample.extend_from_slice(&value.to_le_bytes());
            sample.push(2 << 3);
            varint(&mut sample, time.cast_unsigned());
            bytes(&mut message, 2, &sample);
        }
        bytes(&mut out, 1, &message);
    }
    out
}

/// The block format of snappy, with nothing compressed.
fn framed(content: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(content.len() + content.len() / 20_000 + 16);
    varint(&mut out, content.len() as u64);
    for part in content.chunks(1 << 16) {
        // A literal whose length less one follows in two bytes.
        out.push(61 << 2);
        let length = u16::try_from(part.len() - 1).expect("at most 65,536");
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(part);
    }
    out
}

/// The series as bodies of remote writes.
pub(super) fn bodies(series: &[SeriesSamples]) -> impl Iterator<Item = Vec<u8>> {
    series.chunks(400).map(|part| framed(&request(part)))
}
