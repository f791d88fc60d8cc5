//! Bad paths and bad models end in one line that says what would work.

use std::collections::BTreeMap;

use serde_json::Value;

use super::*;

/// A copy of a fixture that can be spoiled; removed at the end of its test.
struct Folder(PathBuf);

impl Folder {
    fn empty(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("load-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn copy_of(fixture: &str, name: &str) -> Self {
        let folder = Self::empty(name);
        for file in ["config.json", "generation_config.json", "model.safetensors"] {
            std::fs::copy(fixtures().join(fixture).join(file), folder.0.join(file)).unwrap();
        }
        folder
    }

    fn config(&self, field: &str, value: Value) -> &Self {
        let path = self.0.join("config.json");
        let mut config: BTreeMap<String, Value> =
            serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        config.insert(field.to_owned(), value);
        std::fs::write(path, serde_json::to_vec(&config).unwrap()).unwrap();
        self
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/models")
}

fn check(path: &Path, expect: &str) {
    let shown = inspect(path).map(|info| info.spec.name).unwrap_err().to_string();
    assert!(shown.contains(expect), "{shown}");
    assert!(!shown.contains('\n') && shown.contains(&*path.to_string_lossy()), "{shown}");
    let loaded = load(path, LoadOptions::default()).err().expect("load fails as inspect does");
    assert_eq!(loaded.to_string(), shown);
}

#[test]
fn what_is_no_model_is_said_so() {
    let folder = Folder::empty("nothing");
    check(&folder.0.join("gone"), "there is no such file or folder");
    check(&folder.0, "a folder without config.json");
    std::fs::write(folder.0.join("x.gguf"), b"GGUF").unwrap();
    check(&folder.0, "a folder without config.json, but with x.gguf");
    check(&folder.0.join("x.gguf"), "is damaged: it ends at byte 4");
    let text = folder.0.join("notes.txt");
    std::fs::write(&text, b"hello").unwrap();
    check(&text, "this is not a GGUF file");
    check(&fixtures().join("tiny-llama/config.json"), "this is a file of a model folder");
}

#[test]
fn spoiled_models_are_named_by_field_or_tensor() {
    let folder = Folder::copy_of("tiny-llama", "spoiled");
    folder.config("num_hidden_layers", 2.into());
    check(
        &folder.0,
        "tensor model.layers.2.input_layernorm.weight of shape [128] is not part of a llama \
         model of 2 layers (9 such tensors)",
    );
    folder.config("num_hidden_layers", 4.into());
    check(&folder.0, "tensor model.layers.3.input_layernorm.weight of shape [128] is missing");
    folder.config("num_hidden_layers", 3.into()).config("intermediate_size", 255.into());
    check(
        &folder.0,
        "tensor model.layers.0.mlp.gate_proj.weight has shape [256, 128], expected [255, 128]",
    );
    folder.config("intermediate_size", 256.into()).config("architectures", vec!["X"].into());
    check(&folder.0, "architecture \"X\" is not supported; supported: LlamaForCausalLM");
    std::fs::write(folder.0.join("config.json"), b"{").unwrap();
    check(&folder.0, "config.json: not a JSON object");
    // A tied model may hold a copy of its head; an untied one needs it.
    let folder = Folder::copy_of("tiny-llama", "tied");
    folder.config("tie_word_embeddings", true.into());
    assert_eq!(inspect(&folder.0).unwrap().spec.parameters, 508_800);
    std::fs::remove_file(folder.0.join("model.safetensors")).unwrap();
    check(&folder.0, "model.safetensors: No such file");
}

#[test]
fn inspect_says_what_load_finds() {
    for (fixture, parameters) in [("tiny-llama", 574_336), ("tiny-qwen3", 326_496)] {
        let path = fixtures().join(fixture);
        let info = inspect(&path).unwrap();
        assert_eq!(info.spec.name, fixture);
        assert_eq!(info.spec.parameters, parameters);
        assert_eq!(info.spec.weight_bytes, parameters * 4);
        assert_eq!(info.tokenizer_source, TokenizerSource::HfFolder(path.clone()));
        let loaded = load(&path, LoadOptions::default()).unwrap();
        assert!(!loaded.spec.kernels.is_empty());
        let expect = ModelSpec {
            weight_bytes: loaded.spec.weight_bytes,
            kernels: loaded.spec.kernels.clone(),
            ..info.spec
        };
        assert_eq!(loaded.spec, expect);
    }
    let kv = inspect(&fixtures().join("tiny-llama")).unwrap().spec.pools.remove(0);
    assert_eq!(
        (kv.name, kv.layers(), kv.page_tokens, kv.page_bytes()),
        ("kv", 3, 16, 3 * 2 * 2 * 16 * 32 * 4)
    );
    let pools = inspect(&fixtures().join("tiny-gemma3")).unwrap().spec.pools;
    let seen = pools.iter().map(|pool| (pool.name, pool.layers(), pool.window, pool.page_bytes()));
    let bytes = 2 * 2 * 16 * 32 * 4;
    assert_eq!(
        seen.collect::<Vec<_>>(),
        [("kv", 2, None, 2 * bytes), ("swa", 5, Some(20), 5 * bytes)]
    );
}

/// The same tensors in two files compute the same bits as in one.
#[test]
fn shards_load_like_one_file() {
    let folder = Folder::copy_of("tiny-llama-bf16", "shards");
    let bytes = std::fs::read(folder.0.join("model.safetensors")).unwrap();
    let whole = ::safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let mut tensors = whole.tensors();
    tensors.sort_by(|a, b| a.0.cmp(&b.0));
    let (first, second) = tensors.split_at(tensors.len() / 2);
    let mut index = serde_json::Map::new();
    for (name, part) in [("a.safetensors", first), ("b.safetensors", second)] {
        let bytes = ::safetensors::serialize(part.to_vec(), None).unwrap();
        std::fs::write(folder.0.join(name), bytes).unwrap();
        index.extend(part.iter().map(|(tensor, _)| (tensor.clone(), name.into())));
    }
    let index = serde_json::json!({"metadata": {}, "weight_map": index}).to_string();
    std::fs::write(folder.0.join("model.safetensors.index.json"), index).unwrap();
    std::fs::remove_file(folder.0.join("model.safetensors")).unwrap();
    let logits = |path: &Path| {
        let mut loaded = load(path, LoadOptions::default()).unwrap();
        loaded.runner.allocate(&[1]).unwrap();
        let mut batch = crate::Batch::default();
        let ids: Vec<_> = (5..15).map(types::TokenId).collect();
        batch.push(&ids, 0, 1, [crate::PageList::whole(&[types::PageId(0)])]);
        let mut logits = crate::Logits::new();
        loaded.runner.execute(&batch, &mut logits).unwrap();
        logits
    };
    assert_eq!(logits(&folder.0), logits(&fixtures().join("tiny-llama-bf16")));
}
