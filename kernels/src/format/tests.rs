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
