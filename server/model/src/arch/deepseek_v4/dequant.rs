//! FP8 and FP4 weights with scales that are powers of two, decoded when a model is loaded.

use half::bf16;
use kernels::WeightFormat;

/// Rows and columns of a scale of FP8 weights.
pub(super) const FP8_BLOCK: usize = 128;
/// Weights of a scale of FP4 weights, along a row.
pub(super) const FP4_BLOCK: usize = 32;

/// The values of FP4 codes; the upper eight are negative.
const E2M1: [f32; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];

/// The value of an FP8 code of four exponent and three mantissa bits; NaN for the two codes that
/// stand for no number.
pub(super) fn e4m3(code: u8) -> f32 {
    let (exponent, mantissa) = (i32::from(code >> 3 & 15), f32::from(code & 7));
    let value = match (exponent, code & 7) {
        (15, 7) => f32::NAN,
        (0, _) => mantissa * 2f32.powi(-9),
        (_, _) => (8.0 + mantissa) * 2f32.powi(exponent - 10),
    };
    if code & 0x80 == 0 { value } else { -value }
}

/// The value of an FP4 code, 0 to 15.
pub(super) fn e2m1(code: u8) -> f32 {
    let value = E2M1[usize::from(code & 7)];
    if code & 8 == 0 { value } else { -value }
}

/// The value of a scale: `2^(code - 127)`, and NaN for the largest code.
pub(super) fn e8m0(code: u8) -> f32 {
    match code {
        0 => f32::from_bits(1 << 22),
        255 => f32::NAN,
        _ => f32::from_bits(u32::from(code) << 23),
    }
}

/// Decodes FP8 weights of `columns` columns; `scales` has one per block of 128 x 128, row after
/// row. The shapes are checked.
pub(super) fn fp8(codes: &[u8], scales: &[u8], columns: usize) -> Vec<f32> {
    let blocks = columns.div_ceil(FP8_BLOCK);
    let mut values = Vec::with_capacity(codes.len());
    for (row, codes) in codes.chunks_exact(columns).enumerate() {
        let scales = &scales[row / FP8_BLOCK * blocks..][..blocks];
        for (codes, scale) in codes.chunks(FP8_BLOCK).zip(scales) {
            let scale = e8m0(*scale);
            values.extend(codes.iter().map(|code| e4m3(*code) * scale));
        }
    }
    values
}

/// Decodes FP4 weights, two in a byte, the first in its low half; `scales` has one per 32 of a
/// row. The shapes are checked.
pub(super) fn fp4(codes: &[u8], scales: &[u8]) -> Vec<f32> {
    let mut values = Vec::with_capacity(2 * codes.len());
    for (codes, scale) in codes.chunks_exact(FP4_BLOCK / 2).zip(scales) {
        let scale = e8m0(*scale);
        let pair = |code: &u8| [e2m1(code & 15) * scale, e2m1(code >> 4) * scale];
        values.extend(codes.iter().flat_map(pair));
    }
    values
}

/// Decoded weights as stored ones: BF16 where that keeps every value, as it does for all but the
/// smallest scales, else F32.
pub(super) fn stored(values: &[f32]) -> (WeightFormat, Vec<u8>) {
    let fits = |value: &f32| value.to_bits() & 0xffff == 0;
    if values.iter().all(fits) {
        let bytes = values.iter().flat_map(|value| bf16::from_f32(*value).to_le_bytes());
        return (WeightFormat::Bf16, bytes.collect());
    }
    (WeightFormat::F32, values.iter().flat_map(|value| value.to_le_bytes()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fp8_code_is_its_number() {
        assert_eq!(e4m3(0).to_bits(), 0);
        assert_eq!(e4m3(0x80).to_bits(), (-0.0f32).to_bits());
        assert_eq!((e4m3(1), e4m3(7)), (0.001_953_125, 0.013_671_875));
        assert_eq!((e4m3(8), e4m3(0x38), e4m3(0x7e)), (0.015_625, 1.0, 448.0));
        assert!(e4m3(0x7f).is_nan() && e4m3(0xff).is_nan());
        // Codes ascend with their values, and by the spacing of their exponent.
        for code in 1..0x7f_u8 {
            let exponent = i32::from(code >> 3).max(1);
            let step = if code & 7 == 0 { i32::from((code - 1) >> 3).max(1) } else { exponent };
            assert_eq!(e4m3(code) - e4m3(code - 1), 2f32.powi(step - 10), "{code}");
            assert_eq!(e4m3(code | 0x80), -e4m3(code));
        }
    }

    #[test]
    fn every_fp4_code_is_its_number() {
        let values: Vec<f32> = (0..16).map(e2m1).collect();
        let half = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
        let want: Vec<f32> = half.iter().copied().chain(half.map(|value| -value)).collect();
        assert_eq!(values, want);
        assert_eq!(values[8].to_bits(), (-0.0f32).to_bits());
    }

    #[test]
    fn scales_are_powers_of_two() {
        for code in 0..255_u8 {
            assert_eq!(f64::from(e8m0(code)), 2f64.powi(i32::from(code) - 127), "{code}");
        }
        assert!(e8m0(255).is_nan());
    }

    #[test]
    fn each_block_has_its_own_scale() {
        // 130 rows of 130 columns: four blocks.
        let codes = vec![0x38u8; 130 * 130];
        let values = fp8(&codes, &[127, 128, 129, 130], 130);
        let at = |row: usize, column: usize| values[row * 130 + column];
        assert_eq!([at(0, 0), at(127, 127)], [1.0, 1.0]);
        assert_eq!([at(0, 128), at(127, 129)], [2.0, 2.0]);
        assert_eq!([at(128, 0), at(129, 127)], [4.0, 4.0]);
        assert_eq!(at(129, 129), 8.0);
        // Two rows of 64: the low half of a byte is the first.
        let values = fp4(&[0x72; 64], &[127, 126, 128, 127]);
        assert_eq!((values.len(), &values[..3]), (128, &[1.0, 6.0, 1.0][..]));
        assert_eq!((values[32], values[65], values[127]), (0.5, 12.0, 6.0));
    }

    #[test]
    fn small_scales_need_more_bits() {
        assert_eq!(stored(&[448.0, -0.0, 0.001_953_125]).0, WeightFormat::Bf16);
        let (format, bytes) = stored(&[e4m3(1) * e8m0(0)]);
        assert_eq!(format, WeightFormat::F32);
        assert_eq!(bytes, 2f32.powi(-136).to_le_bytes());
    }
}
