//! Sharded folders, and what is wrong with them.

use std::collections::HashMap;

use safetensors::tensor::TensorView;

use super::*;

/// A folder that is removed at the end of its test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("weights-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, bytes: &[u8]) -> &Self {
        std::fs::write(self.0.join(name), bytes).unwrap();
        self
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

fn file(tensors: &[(&str, Dtype, &[usize], &[u8])]) -> Vec<u8> {
    let views: HashMap<String, TensorView<'_>> = tensors
        .iter()
        .map(|(name, dtype, shape, data)| {
            ((*name).to_owned(), TensorView::new(*dtype, shape.to_vec(), data).unwrap())
        })
        .collect();
    safetensors::serialize(views, None).unwrap()
}

fn check(folder: &Folder, expect: &str) {
    let error = open(&folder.0).unwrap_err().to_string();
    assert!(error.contains(expect), "{error}");
}

#[test]
fn shards_are_found_through_the_index() {
    let folder = Folder::new("shards");
    folder
        .write("a.safetensors", &file(&[("x", Dtype::F16, &[2, 1], &[1, 2, 3, 4])]))
        .write("b.safetensors", &file(&[("y", Dtype::BF16, &[1], &[5, 6])]))
        .write(INDEX, br#"{"weight_map": {"x": "a.safetensors", "y": "b.safetensors"}}"#);
    let weights = open(&folder.0).unwrap();
    let bytes = |name: &str| weights.tensor(weights.entry(name).unwrap());
    assert_eq!((bytes("x").format, bytes("x").bytes), (WeightFormat::F16, &[1, 2, 3, 4][..]));
    assert_eq!((bytes("y").format, bytes("y").bytes), (WeightFormat::Bf16, &[5, 6][..]));
    assert_eq!(weights.entry("x").unwrap().shape, Shape(vec![2, 1]));
    assert!(weights.entry("z").is_none());
}

#[test]
fn what_is_wrong_is_named() {
    let folder = Folder::new("wrong");
    check(&folder, "model.safetensors: No such file");
    folder.write(SINGLE, b"12345678");
    check(&folder, "is damaged");
    folder.write(SINGLE, &[0xff; 64]);
    check(&folder, "is damaged");
    folder.write(SINGLE, &file(&[("x", Dtype::I8, &[2], &[1, 2])]));
    check(&folder, "type I8 of tensor x is not supported; supported: F32, F16, BF16");
    let whole = file(&[("x", Dtype::F32, &[2], &[0; 8])]);
    folder.write(SINGLE, &whole[..whole.len() - 4]);
    check(&folder, "is damaged");
    folder.write(INDEX, b"{}");
    check(&folder, "missing field `weight_map`");
    folder.write(INDEX, br#"{"weight_map": {"x": "../a.safetensors"}}"#);
    check(&folder, "not a file name in the same folder");
    folder.write(INDEX, br#"{"weight_map": {"x": "gone.safetensors"}}"#);
    check(&folder, "gone.safetensors: No such file");
    folder.write("a.safetensors", &whole);
    folder.write(INDEX, br#"{"weight_map": {"y": "a.safetensors"}}"#);
    check(&folder, "tensor y is not in a.safetensors");
    folder.write("b.safetensors", &whole);
    let twice = br#"{"weight_map": {"x": "a.safetensors", "z": "b.safetensors"}}"#;
    folder.write(INDEX, twice);
    check(&folder, "tensor x is in two files");
}
