//! A good file round-trips; every damaged one is an error, never a panic or a huge allocation.

use super::writer::{Writer, array, text};
use super::*;

fn good() -> Writer {
    let numbers: Vec<u8> = (0..6).flat_map(|i| (i as f32).to_le_bytes()).collect();
    Writer::new()
        .meta("general.architecture", 8, &text("llama"))
        .meta("a.u8", 0, &[200])
        .meta("a.i8", 1, &[255])
        .meta("a.u16", 2, &[1, 1])
        .meta("a.i16", 3, &[254, 255])
        .meta("a.u32", 4, &7u32.to_le_bytes())
        .meta("a.i32", 5, &(-7i32).to_le_bytes())
        .meta("a.f32", 6, &1.5f32.to_le_bytes())
        .meta("a.bool", 7, &[1])
        .meta("a.u64", 10, &u64::MAX.to_le_bytes())
        .meta("a.i64", 11, &i64::MIN.to_le_bytes())
        .meta("a.f64", 12, &2.5f64.to_le_bytes())
        .meta("a.texts", 9, &array(8, 2, &[text("x"), text("yz")].concat()))
        .meta("a.ints", 9, &array(5, 1, &(-3i32).to_le_bytes()))
        .meta("a.bools", 9, &array(7, 3, &[1, 0, 1]))
        .meta("a.floats", 9, &array(6, 1, &0.5f32.to_le_bytes()))
        .meta("a.doubles", 9, &array(12, 1, &0.25f64.to_le_bytes()))
        .meta("a.nested", 9, &array(9, 1, &array(0, 2, &[1, 2])))
        .tensor("plain", &[3, 2], 0, &numbers)
        .tensor("blocks", &[32], 3, &[9; 20])
}

#[test]
fn every_value_type_is_read() {
    let header = parse(&good().build()).unwrap();
    let get = |key: &str| header.metadata[key].clone();
    assert_eq!(get("general.architecture").as_str(), Some("llama"));
    assert_eq!(get("a.u8"), Value::Unsigned(200));
    assert_eq!(get("a.i8"), Value::Signed(-1));
    assert_eq!(get("a.u16"), Value::Unsigned(257));
    assert_eq!(get("a.i16"), Value::Signed(-2));
    assert_eq!(get("a.u32"), Value::Unsigned(7));
    assert_eq!(get("a.i32"), Value::Signed(-7));
    assert_eq!(get("a.f32").as_f64(), Some(1.5));
    assert_eq!(get("a.bool").as_bool(), Some(true));
    assert_eq!(get("a.u64"), Value::Unsigned(u64::MAX));
    assert_eq!(get("a.i64"), Value::Signed(i64::MIN));
    assert_eq!(get("a.f64"), Value::F64(2.5));
    assert_eq!(get("a.texts").strings().unwrap(), ["x", "yz"]);
    assert_eq!(get("a.ints").integers(), Some(&[-3][..]));
    assert_eq!(get("a.bools"), Value::Integers(vec![1, 0, 1]));
    assert_eq!(get("a.floats"), Value::Floats(vec![0.5]));
    assert_eq!(get("a.doubles"), Value::Floats(vec![0.25]));
    assert_eq!(get("a.nested"), Value::List(vec![Value::Integers(vec![1, 2])]));
}

#[test]
fn tensors_lie_where_the_file_says() {
    let bytes = good().build();
    let header = parse(&bytes).unwrap();
    let plain = &header.tensors["plain"];
    assert_eq!((plain.format, &plain.shape.0[..]), (WeightFormat::F32, &[2, 3][..]));
    assert_eq!(bytes[plain.start + 20..][..4], 5f32.to_le_bytes());
    let blocks = &header.tensors["blocks"];
    assert_eq!((blocks.bytes, bytes[blocks.start]), (20, 9));
    let mut wide = Writer { alignment: 64, ..Writer::new() };
    wide = wide.meta("general.alignment", 4, &64u32.to_le_bytes());
    let bytes = wide.tensor("t", &[1], 0, &[1, 2, 3, 4]).build();
    assert_eq!(parse(&bytes).unwrap().tensors["t"].start % 64, 0);
}

fn check(bytes: &[u8], expect: &str) {
    match parse(bytes) {
        Ok(_) => panic!("accepted; expected {expect}"),
        Err(Fault::Damaged(what)) => assert!(what.contains(expect), "{what}"),
        Err(Fault::Unsupported { what, supported }) => {
            let text = format!("{what} is not supported; supported: {supported}");
            assert!(text.contains(expect), "{text}");
        }
    }
}

#[test]
fn hostile_counts_and_offsets_are_errors() {
    check(b"", "ends at byte 0");
    check(b"PK\x03\x04....", "does not start with GGUF");
    check(&Writer { version: 2, ..good() }.build(), "version 2 is not supported; supported: 3");
    check(&Writer { version: 3 << 24, ..good() }.build(), "big endian");
    check(&good().header(u64::MAX, 0), "tensors, more than fit");
    check(&good().header(0, 1 << 60), "metadata entries, more than fit");
    let value = |kind: u32, value: &[u8]| Writer::new().meta("k", kind, value).build();
    check(&value(8, &u64::MAX.to_le_bytes()), "metadata k: it claims");
    check(&value(9, &array(8, 1 << 40, &[])), "array elements, more than fit");
    check(&value(9, &array(13, 1, &[])), "type 13 does not exist");
    check(&value(99, &[]), "type 99 does not exist");
    let mut deep = array(0, 1, &[7]);
    for _ in 0..1000 {
        deep = array(9, 1, &deep);
    }
    check(&value(9, &deep), "nest deeper");
    let alignment = |n: u32| Writer::new().meta("general.alignment", 4, &n.to_le_bytes()).build();
    check(&alignment(0), "power of two");
    check(&alignment(24), "power of two");
    check(&alignment(1 << 31), "power of two");
    check(&good().meta("a.u8", 0, &[1]).build(), "a.u8 occurs twice");
    let tensor =
        |dims: &[u64], kind: u32, offset: u64| good().tensor_at("t", dims, kind, offset).build();
    check(&tensor(&[4], 0, 1 << 50), "ends behind the file");
    check(&tensor(&[4], 0, u64::MAX - 31), "ends behind the file");
    check(&tensor(&[4], 0, 4), "not aligned");
    check(&tensor(&[1 << 40, 1 << 40], 0, 0), "too large");
    check(&tensor(&[u64::MAX], 0, 0), "too large");
    check(&tensor(&[33], 3, 0), "t [33]: rows of 33 values cannot be stored as q4_1");
    check(&tensor(&[576, 2], 14, 0), "t [2, 576]: rows of 576 values cannot be stored as q6_k");
    check(&tensor(&[1; 5], 0, 0), "5 dimensions");
    check(&tensor(&[256], 10, 0), "type Q2_K of tensor t is not supported; supported: F32");
    check(&tensor(&[256], 10, 0), "Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K");
    check(&tensor(&[256], 77, 0), "type number 77");
    check(&good().tensor("plain", &[1], 0, &[0; 4]).build(), "plain occurs twice");
}

/// Cutting a good file anywhere and flipping any byte of its header ends in `Ok` or an error.
#[test]
fn damage_anywhere_never_panics() {
    let bytes = good().build();
    let data = good().data.len();
    for end in 0..bytes.len() {
        assert!(parse(&bytes[..end]).is_err(), "cut at {end} of {}", bytes.len());
    }
    for at in 0..bytes.len() - data {
        for flip in [0x01, 0x80, 0xff] {
            let mut broken = bytes.clone();
            broken[at] ^= flip;
            // Either outcome is right: some bytes, such as those of a name, may be anything.
            drop(parse(&broken));
        }
    }
}
