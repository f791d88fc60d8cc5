use std::path::Path;

use super::*;

#[test]
fn blocks_decode_as_the_format_says() {
    let mut q4_1 = vec![];
    q4_1.extend(f16::from_f32(0.5).to_le_bytes());
    q4_1.extend(f16::from_f32(-2.0).to_le_bytes());
    q4_1.extend((0..16u8).map(|i| i | ((15 - i) << 4)));
    let mut out = [0.0; 32];
    dequantize_row(WeightFormat::Q4_1, &q4_1, &mut out).expect("one block");
    for i in 0..16 {
        assert_eq!(out[i], 0.5 * i as f32 - 2.0);
        assert_eq!(out[16 + i], 0.5 * (15 - i) as f32 - 2.0);
    }
    let mut q4_0 = q4_1[..2].to_vec();
    q4_0.extend(&q4_1[4..]);
    dequantize_row(WeightFormat::Q4_0, &q4_0, &mut out).expect("one block");
    assert_eq!((out[0], out[15], out[16]), (-4.0, 3.5, 3.5));

    let mut q8 = f16::from_f32(0.25).to_le_bytes().to_vec();
    q8.extend((0..32).map(|i| if i == 3 { 0x80 } else { i as u8 }));
    dequantize_row(WeightFormat::Q8_0, &q8, &mut out).expect("one block");
    assert_eq!((out[0], out[3], out[31]), (0.0, -32.0, 7.75));
}

#[test]
fn element_types_decode() {
    let values = [1.0f32, -0.5, 3.0];
    let mut out = [0.0; 3];
    let f16s: Vec<u8> = values.iter().flat_map(|v| f16::from_f32(*v).to_le_bytes()).collect();
    dequantize_row(WeightFormat::F16, &f16s, &mut out).expect("three values");
    assert_eq!(out, values);
    let bf16s: Vec<u8> = values.iter().flat_map(|v| bf16::from_f32(*v).to_le_bytes()).collect();
    dequantize_row(WeightFormat::Bf16, &bf16s, &mut out).expect("three values");
    assert_eq!(out, values);
    let f32s: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    dequantize_row(WeightFormat::F32, &f32s, &mut out).expect("three values");
    assert_eq!(out, values);
}

#[test]
fn wrong_sizes_are_errors_not_panics() {
    let mut out = [0.0; 33];
    let short = dequantize_row(WeightFormat::Q8_0, &[0; 34], &mut out);
    assert!(matches!(short, Err(KernelError::RowLength { features: 33, block: 32, .. })));
    let bytes = dequantize_row(WeightFormat::Q8_0, &[0; 33], &mut out[..32]);
    assert!(matches!(bytes, Err(KernelError::ByteCount { expected: 34, found: 33, .. })));
    let huge = WeightFormat::F32.check_bytes(usize::MAX, usize::MAX, 0);
    assert!(matches!(huge, Err(KernelError::ByteCount { .. })));
}

/// Blocks and values written by `scripts/golden_quants.py` with an independent decoder.
#[test]
fn blocks_decode_bit_for_bit_as_the_reference_decoder_does() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/quants");
    for format in WeightFormat::ALL.into_iter().filter(|format| format.is_quantized()) {
        let path = folder.join(format!("{format}.bin"));
        let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let (values, size) = (format.block_values(), format.block_bytes());
        let count = bytes.len() / (size + 4 * values);
        assert!(count >= 8 && bytes.len() == count * (size + 4 * values), "{format}");
        let (blocks, expect) = bytes.split_at(count * size);
        let mut found = vec![f32::NAN; count * values];
        dequantize_row(format, blocks, &mut found).expect("whole blocks");
        for (i, (found, expect)) in found.iter().zip(expect.as_chunks::<4>().0).enumerate() {
            let expect = f32::from_le_bytes(*expect);
            assert_eq!(found.to_bits(), expect.to_bits(), "{format} {i}: {found} not {expect}");
        }
    }
}

/// What repacking starts from says the same as the decoded row.
#[test]
fn a_block_is_its_integers_times_its_scales() {
    for format in WeightFormat::ALL.into_iter().filter(|format| format.is_quantized()) {
        let bytes: Vec<u8> =
            (0..format.block_bytes()).map(|i| (i * 37 + 11) as u8 & 0xbf).collect();
        let mut row = vec![0.0; format.block_values()];
        dequantize_row(format, &bytes, &mut row).expect("a block");
        for (at, expect) in row.chunks(BLOCK).enumerate() {
            let block = Block::read(format, &bytes, at);
            let offset = f64::from(block.offset().unwrap_or(0.0));
            for (i, expect) in expect.iter().enumerate() {
                let integer = i32::from(block.q[i]) - block.centre();
                let scaled = f64::from(integer * i32::from(block.scales[i / 16]));
                let value = f64::from(block.scale()) * scaled + offset;
                let bound = 1e-6 * (value.abs() + offset.abs());
                assert!((value - f64::from(*expect)).abs() <= bound, "{format} {at} {i}");
            }
        }
    }
}
