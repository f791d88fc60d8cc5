//! A copy of the tiny checkpoint in FP8 and FP4 computes what its decoded weights do, bit for bit.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};

use super::dequant::{fp4, fp8};
use super::golden::{NAME, continue_greedily};
use crate::arch::golden::{Golden, fixture};
use crate::load::{LoadOptions, load, load_deepseek_v4};
use crate::runner::ModelRunner;

/// A folder that is removed at the end of its test.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

type Tensors = BTreeMap<String, (Dtype, Vec<usize>, Vec<u8>)>;

fn read() -> Tensors {
    let bytes = std::fs::read(fixture(NAME).join("model.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let copy = |(name, view): (String, TensorView<'_>)| {
        (name, (view.dtype(), view.shape().to_vec(), view.data().to_vec()))
    };
    tensors.tensors().into_iter().map(copy).collect()
}

fn write(tensors: &Tensors, name: &str) -> Folder {
    let path = std::env::temp_dir().join(format!("v4-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&path).unwrap();
    let folder = Folder(path);
    for file in ["config.json", "generation_config.json"] {
        std::fs::copy(fixture(NAME).join(file), folder.0.join(file)).unwrap();
    }
    let views = tensors.iter().map(|(name, (dtype, shape, data))| {
        (name.as_str(), TensorView::new(*dtype, shape.clone(), data).unwrap())
    });
    std::fs::write(
        folder.0.join("model.safetensors"),
        safetensors::serialize(views, None).unwrap(),
    )
    .unwrap();
    folder
}

fn logits(path: &Path) -> Vec<u32> {
    let mut runner = load_deepseek_v4(path, LoadOptions::default()).unwrap();
    runner.allocate(&[5, 5]).unwrap();
    let ids = Golden::read(NAME).tokens("p2.input_ids");
    continue_greedily(&mut runner, &ids, 12).1.iter().map(|value| value.to_bits()).collect()
}

/// The codes of a stored matrix: arbitrary ones of its values' signs and rough sizes.
fn codes(data: &[u8], bits: u32) -> impl Iterator<Item = u8> {
    data.as_chunks::<4>().0.iter().map(move |word| {
        let value = f32::from_le_bytes(*word);
        let sign = u8::from(value < 0.0);
        if bits == 8 {
            sign << 7 | (0x38 + (value.abs() * 20.0) as u8).min(0x48)
        } else {
            sign << 3 | ((value.abs() * 20.0) as u8).min(7)
        }
    })
}

#[test]
fn fp8_and_fp4_weights_compute_what_their_values_do() {
    let (mut packed, mut plain) = (read(), read());
    let matrices: Vec<String> = plain
        .keys()
        .filter(|name| [".attn.w", ".indexer.wq_b", "experts."].iter().any(|n| name.contains(n)))
        .filter(|name| name.ends_with(".weight"))
        .cloned()
        .collect();
    for name in matrices {
        let (_, shape, data) = plain[&name].clone();
        let scale_name = name.replace(".weight", ".scale");
        let (rows, columns) = (shape[0], shape[1]);
        let values = if name.contains(".experts.") {
            let codes: Vec<u8> = codes(&data, 4).collect();
            let codes: Vec<u8> =
                codes.as_chunks::<2>().0.iter().map(|[low, high]| low | high << 4).collect();
            let scales: Vec<u8> = (0..rows * columns / 32).map(|i| 123 + (i % 3) as u8).collect();
            let values = fp4(&codes, &scales);
            let shape = vec![rows, columns / 32];
            packed.insert(scale_name, (Dtype::F8_E8M0, shape, scales));
            packed.insert(name.clone(), (Dtype::I8, vec![rows, columns / 2], codes));
            values
        } else {
            let codes: Vec<u8> = codes(&data, 8).collect();
            let scales = vec![123; rows.div_ceil(128) * columns.div_ceil(128)];
            let values = fp8(&codes, &scales, columns);
            let shape = vec![rows.div_ceil(128), columns.div_ceil(128)];
            packed.insert(scale_name, (Dtype::F8_E8M0, shape, scales));
            packed.insert(name.clone(), (Dtype::F8_E4M3, vec![rows, columns], codes));
            values
        };
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        plain.insert(name, (Dtype::F32, shape, bytes));
    }
    // The table in the other width, and a block that is not used.
    for layer in 0..2 {
        let (dtype, _, data) =
            packed.get_mut(&format!("layers.{layer}.ffn.gate.tid2eid")).expect("a hash layer");
        *dtype = Dtype::I32;
        *data = data.as_chunks::<8>().0.iter().flat_map(|word| word[..4].to_vec()).collect();
    }
    packed.insert("mtp.0.enorm.weight".to_owned(), (Dtype::F32, vec![1], vec![0; 4]));
    let (packed, plain) = (write(&packed, "packed"), write(&plain, "plain"));
    assert_eq!(logits(&packed.0), logits(&plain.0));
    let loaded = load(&packed.0, LoadOptions::default()).unwrap();
    assert_eq!(
        loaded.notes,
        ["1 tensors of the block that predicts further tokens (mtp.*) are not used"]
    );
    assert!(loaded.spec.kernels.iter().any(|kernel| kernel.format == "bf16"));
}

fn refused(change: impl FnOnce(&mut Tensors), name: &str, expect: &str) {
    let mut tensors = read();
    change(&mut tensors);
    let folder = write(&tensors, name);
    let shown = load(&folder.0, LoadOptions::default()).err().expect("it is refused").to_string();
    assert!(shown.contains(expect) && !shown.contains('\n'), "{shown}");
}

#[test]
fn what_is_wrong_with_weights_is_named() {
    let latent = "layers.0.attn.wkv.weight";
    let scale = "layers.0.attn.wkv.scale";
    let fp8 = |tensors: &mut Tensors, code: u8| {
        tensors.insert(latent.to_owned(), (Dtype::F8_E4M3, vec![32, 64], vec![code; 2048]));
    };
    let with_scale = |tensors: &mut Tensors, code: u8| {
        tensors.insert(scale.to_owned(), (Dtype::F8_E8M0, vec![1, 1], vec![code]));
    };
    refused(|t| fp8(t, 0), "no-scale", "tensor layers.0.attn.wkv.scale of shape [1, 1] is missing");
    let both = |t: &mut Tensors, code: u8, scale: u8| {
        fp8(t, code);
        with_scale(t, scale);
    };
    refused(|t| both(t, 0x7f, 127), "nan", "wkv.weight holds NaN in row 0, column 0");
    refused(|t| both(t, 1, 255), "scale-nan", "wkv.weight holds NaN");
    refused(
        |t| {
            let table = &mut t.get_mut("layers.1.ffn.gate.tid2eid").expect("a hash layer").2;
            table[0] = 8;
        },
        "expert",
        "layers.1.ffn.gate.tid2eid names expert 8 of 8",
    );
    refused(
        |t| drop(t.insert("norm.weight".to_owned(), (Dtype::I8, vec![64], vec![0; 64]))),
        "type",
        "tensor norm.weight is stored as I8, expected F32, F16, BF16",
    );
    refused(
        |t| drop(t.insert("more".to_owned(), (Dtype::F32, vec![1], vec![0; 4]))),
        "more",
        "tensor more of shape [1] is not part of a deepseek_v4 model of 6 layers",
    );
    let path = fixture(NAME);
    let options = LoadOptions { page_tokens: Some(192), ..LoadOptions::default() };
    let shown = load(&path, options).err().expect("no multiple of 128").to_string();
    assert!(shown.contains("pages of 192 tokens"), "{shown}");
    assert!(shown.contains("a multiple of 128, such as 256"), "{shown}");
}
