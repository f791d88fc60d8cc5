//! What tells one model from another without reading all of its weights: workers of a pair must
//! have the same.
//!
//! The whole of small files, and of large ones their beginning (the header with names, types and
//! places of all tensors) and a sample of every mebibyte. A model that was trained further differs
//! in every large tensor, so in the samples; one that differs in nothing but single weights is not
//! told apart. The store, whose pages outlive processes, reads everything instead.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use model::FakeOptions;
use transfer::Shape;
use xxhash_rust::xxh3::Xxh3;

use crate::source::Source;
use crate::storage::{self, LAYOUT};

/// So much is read of the beginning of a file: more than any header that is in use.
const HEAD: u64 = 4 << 20;
/// Then a sample of each stretch of this length.
const STRETCH: u64 = 1 << 20;
/// The size of a sample.
const SAMPLE: usize = 4096;

/// The identity of the model that `source` names, as text without blanks, at most 128 bytes.
///
/// # Errors
/// A file that cannot be read.
pub fn of(source: &Source) -> io::Result<String> {
    let mut hash = Xxh3::new();
    hash.update(&LAYOUT.to_le_bytes());
    match source {
        Source::Path(path) => {
            for (name, path) in storage::files(path)? {
                hash.update(&(name.len() as u64).to_le_bytes());
                hash.update(name.as_bytes());
                sample(&path, &mut hash)?;
            }
        }
        Source::Fake(options) => fake(options, &mut hash),
    }
    let kind = match source {
        Source::Path(_) => "files",
        Source::Fake(_) => "fake",
    };
    Ok(format!("{kind}-{:032x}", hash.digest128()))
}

/// What a fake answers with; how fast it is does not matter.
fn fake(options: &FakeOptions, hash: &mut Xxh3) {
    let FakeOptions { vocab, emit, eos, eos_per_mille, seed, .. } = options;
    hash.update(format!("{vocab} {emit:?} {eos:?} {eos_per_mille} {seed}").as_bytes());
}

fn sample(path: &Path, hash: &mut Xxh3) -> io::Result<()> {
    let file = File::open(path)?;
    let length = file.metadata()?.len();
    hash.update(&length.to_le_bytes());
    let mut buffer = vec![0; usize::try_from(HEAD.min(length)).expect("a few MiB")];
    file.read_exact_at(&mut buffer, 0)?;
    hash.update(&buffer);
    let mut at = HEAD;
    while at < length {
        buffer.resize(SAMPLE.min(usize::try_from(length - at).unwrap_or(SAMPLE)), 0);
        file.read_exact_at(&mut buffer, at)?;
        hash.update(&buffer);
        at += STRETCH;
    }
    Ok(())
}

/// What workers that can form a pair have in common, and no others, as text for routers.
#[must_use]
pub fn pairing(shape: &Shape) -> String {
    let Shape { model, page_tokens, kv_dtype, ranks, parts } = shape;
    // Where every rank holds everything, their number does not matter.
    let ranks = if parts.iter().all(|part| part.replicated) { 0 } else { *ranks };
    let text = format!("{} {model} {page_tokens} {kv_dtype} {ranks} {parts:?}", transfer::PROTOCOL);
    format!("{:032x}", xxhash_rust::xxh3::xxh3_128(text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::rig::settings;
    use transfer::PartShape;

    fn identity(model: &str) -> String {
        let source = Source::parse(&settings(&format!("--model {model}"))).expect("a source");
        of(&source).expect("readable files")
    }

    #[test]
    fn other_weights_are_another_model() {
        let folder =
            std::env::temp_dir().join(format!("sightline-identity-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("the temporary folder is writable");
        let write = |name: &str, bytes: &[u8]| {
            std::fs::write(folder.join(name), bytes).expect("writable");
        };
        let mut weights = vec![7; (HEAD + 3 * STRETCH) as usize + 100];
        write("config.json", b"{}");
        write("model.safetensors", &weights);
        write("README.md", b"not part of it");
        let model = folder.display().to_string();
        let first = identity(&model);
        assert!(first.len() < 128 && first.starts_with("files-"), "{first}");
        write("README.md", b"changed");
        assert_eq!(identity(&model), first);
        let mut all = vec![first];
        let last = weights.len() - 1;
        for at in [0, HEAD as usize - 1, (HEAD + STRETCH) as usize + SAMPLE - 1, last] {
            weights[at] ^= 1;
            write("model.safetensors", &weights);
            all.push(identity(&model));
        }
        write("model.safetensors", &weights[..last]);
        all.push(identity(&model));
        write("config.json", b"{ }");
        all.push(identity(&model));
        std::fs::remove_dir_all(&folder).expect("it is there");
        all.extend(["fake", "fake:seed=1"].map(identity));
        let many = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), many);
        assert_eq!(identity("fake"), identity("fake:step=9ms,prefill-token=3us"));
    }

    #[test]
    fn a_pair_has_one_layout_and_ranks_matter_where_they_share_out() {
        let part = |replicated| PartShape {
            name: "kv".to_owned(),
            pool: 0,
            layers: vec![0, 1],
            layer_bytes: 64,
            replicated,
        };
        let shape = |ranks, replicated| Shape {
            model: "m".to_owned(),
            page_tokens: 16,
            kv_dtype: "f32".to_owned(),
            ranks,
            parts: vec![part(replicated)],
        };
        assert_eq!(pairing(&shape(1, true)), pairing(&shape(4, true)));
        assert_ne!(pairing(&shape(1, false)), pairing(&shape(2, false)));
        let other = Shape { page_tokens: 32, ..shape(1, true) };
        assert_ne!(pairing(&other), pairing(&shape(1, true)));
    }
}
