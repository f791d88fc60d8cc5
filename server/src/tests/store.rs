//! A store behind the host tier: what one server has computed, the next one need not, whatever
//! became of the store meanwhile.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use kv_store::{Miss, StoreStats};
use serde_json::json;

use super::rig::Rig;

/// Conversations, each of one turn.
const TALKS: u32 = 3;
/// Tokens of a prompt, and those of its whole pages of 16 tokens.
const TOKENS: u32 = 200;
const WHOLE: u64 = 192;

/// A folder of the test's own, gone when it is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("sightline-store-{}-{next}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("the temporary folder is writable");
        Self(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// The objects of the store in it.
    fn objects(&self) -> Vec<PathBuf> {
        let mut files = Vec::new();
        let mut folders = vec![self.path("store")];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).expect("a folder") {
                let path = entry.expect("an entry").path();
                if path.is_dir() { folders.push(path) } else { files.push(path) }
            }
        }
        files.sort();
        files
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

fn fixture(model: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/models").join(model)
}

/// What one server said, and what its store did.
struct Told {
    texts: Vec<String>,
    /// Prompt tokens that were not computed, of each request.
    cached: Vec<u64>,
    /// Of all of them, those that came from the store.
    stored: u64,
    store: StoreStats,
    /// Requests that gave up waiting.
    timeouts: u64,
    time: Duration,
}

/// One server's life: it starts, answers, drains, and leaves.
async fn life(model: &Path, store: Option<&Folder>, flags: &str) -> Told {
    let mut all = format!(
        "--model {} --max-context 400 --prefill-chunk 64 --threads 1 {flags}",
        model.display()
    );
    if let Some(folder) = store {
        let url = folder.path("store");
        all.push_str(&format!(" --enable-hierarchical-cache --kv-store file://{}", url.display()));
    }
    let (rig, thread): (Rig, JoinHandle<()>) = Rig::with_thread(&all);
    let begin = rig.api.clock.now();
    let (mut texts, mut cached) = (Vec::new(), Vec::new());
    for talk in 0..TALKS {
        let prompt: Vec<u32> = (0..TOKENS).map(|at| 5 + (talk * 61 + at * 7) % 200).collect();
        let body = json!({
            "model": rig.api.model_name, "prompt": prompt, "max_tokens": 8, "temperature": 0,
            "ignore_eos": true
        });
        let answer = rig.post("/v1/completions", &body).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let answer = answer.json();
        texts.push(answer["choices"][0]["text"].as_str().expect("a text").to_owned());
        let tokens = &answer["usage"]["prompt_tokens_details"]["cached_tokens"];
        cached.push(tokens.as_u64().expect("a count"));
    }
    let time = rig.api.clock.now().since(begin);
    rig.idle().await;
    let stored = rig.metric("prompt_tokens_total", &["source=\"storage\""]).await as u64;
    rig.serving().engine.drain(rig.api.clock.now() + Duration::from_secs(60));
    tokio::task::spawn_blocking(move || thread.join().expect("no panic")).await.expect("it ends");
    let snapshot = rig.api.snapshot();
    let timeouts = snapshot.engine.and_then(|engine| engine.storage).map_or(0, |s| s.timeouts);
    let store = snapshot.store.unwrap_or_default();
    assert_eq!(store.queued_bytes, 0, "{store:?}");
    Told { texts, cached, stored, store, timeouts, time }
}

/// Waits for every page, so that what is found does not depend on time.
const WAITS: &str = "--kv-store-prefetch wait_complete";

/// A folder with what one server has computed, and what was answered.
async fn kept(model: &Path, flags: &str) -> (Folder, Vec<String>) {
    let folder = Folder::new();
    let told = life(model, Some(&folder), &format!("{WAITS} {flags}")).await;
    assert_eq!((told.stored, told.cached), (0, vec![0; TALKS as usize]));
    assert!(told.store.writes >= u64::from(TALKS), "{:?}", told.store);
    assert_eq!(told.store.drops, [0; 5]);
    let plain = life(model, None, flags).await;
    assert_eq!(told.texts, plain.texts);
    (folder, told.texts)
}

/// A server that starts again is warm, and says the same.
async fn restart(model: &str, flags: &str, whole: u64) {
    let model = fixture(model);
    let (folder, texts) = kept(&model, flags).await;
    let told = life(&model, Some(&folder), &format!("{WAITS} {flags}")).await;
    assert_eq!(told.texts, texts, "{flags}");
    assert_eq!(told.cached, [whole; TALKS as usize], "{flags}: {:?}", told.store);
    assert_eq!(told.stored, whole * u64::from(TALKS));
    assert!(told.store.hits > 0 && told.store.misses == [0; 9], "{:?}", told.store);
}

#[tokio::test]
async fn a_server_starts_warm_with_what_another_has_computed() {
    restart("tiny-llama", "--kv-pool-bytes 2MiB", WHOLE).await;
}

#[tokio::test]
async fn every_rank_finds_its_own() {
    restart("tiny-llama", "--kv-pool-bytes 2MiB --tp-size 2", WHOLE).await;
}

#[tokio::test]
async fn models_with_windows_start_warm() {
    restart("tiny-gemma3", "--kv-pool-bytes 4MiB", WHOLE).await;
    restart("tiny-deepseek-v4", "--kv-pool-bytes 32MiB --page-tokens 128", 128).await;
}

#[tokio::test]
async fn broken_objects_are_computed_again_and_replaced() {
    let model = fixture("tiny-llama");
    let (folder, texts) = kept(&model, "").await;
    let objects = folder.objects();
    for (index, object) in objects.iter().enumerate() {
        let mut bytes = std::fs::read(object).expect("readable");
        let middle = bytes.len() / 2;
        if index % 2 == 0 {
            bytes[middle] ^= 4
        } else {
            bytes.truncate(middle)
        }
        std::fs::write(object, bytes).expect("writable");
    }
    let told = life(&model, Some(&folder), WAITS).await;
    assert_eq!((told.texts, told.stored), (texts.clone(), 0));
    let broken = [Miss::Corrupt, Miss::Truncated].map(|miss| told.store.misses_by(miss));
    assert!(broken.iter().sum::<u64>() >= u64::from(TALKS), "{:?}", told.store);
    assert_eq!(told.store.broken_deleted, broken.iter().sum::<u64>());
    // What it deleted and computed it has written again; the rest still waits to be found out.
    let told = life(&model, Some(&folder), WAITS).await;
    assert_eq!(told.texts, texts);
}

#[tokio::test]
async fn pages_of_other_weights_are_never_used() {
    let model = fixture("tiny-llama");
    let (folder, _) = kept(&model, "").await;
    let other = folder.path("other");
    std::fs::create_dir(&other).expect("writable");
    for entry in std::fs::read_dir(&model).expect("a model") {
        let path = entry.expect("an entry").path();
        std::fs::copy(&path, other.join(path.file_name().expect("a name"))).expect("a copy");
    }
    // One bit of one weight.
    let weights = other.join("model.safetensors");
    let mut bytes = std::fs::read(&weights).expect("readable");
    let last = bytes.len() - 4;
    bytes[last] ^= 1;
    std::fs::write(&weights, bytes).expect("writable");
    let plain = life(&other, None, "").await;
    let before = folder.objects();
    let told = life(&other, Some(&folder), WAITS).await;
    assert_eq!((&told.texts, told.stored), (&plain.texts, 0));
    // The others' pages under this one's names, as if somebody had moved them.
    let ours: Vec<_> =
        folder.objects().into_iter().filter(|object| !before.contains(object)).collect();
    assert!(!ours.is_empty());
    for object in &ours {
        let theirs = before.iter().find(|other| other.file_name() == object.file_name());
        std::fs::copy(theirs.expect("the same texts"), object).expect("a copy");
    }
    let told = life(&other, Some(&folder), WAITS).await;
    assert_eq!((told.texts, told.stored), (plain.texts, 0));
    assert!(told.store.misses_by(Miss::Model) >= u64::from(TALKS), "{:?}", told.store);
}

#[tokio::test]
async fn pages_of_another_shape_are_never_used() {
    let model = fixture("tiny-llama");
    let (folder, texts) = kept(&model, "").await;
    let before = folder.objects();
    let ranks = "--tp-size 2";
    let told = life(&model, Some(&folder), &format!("{WAITS} {ranks}")).await;
    assert_eq!((&told.texts, told.stored), (&texts, 0));
    for object in folder.objects().into_iter().filter(|object| !before.contains(object)) {
        let theirs = before.iter().find(|other| other.file_name() == object.file_name());
        std::fs::copy(theirs.expect("the same texts"), object).expect("a copy");
    }
    let told = life(&model, Some(&folder), &format!("{WAITS} {ranks}")).await;
    assert_eq!((told.texts, told.stored), (texts, 0));
    assert!(told.store.misses_by(Miss::Layout) >= u64::from(TALKS), "{:?}", told.store);
}

#[tokio::test]
async fn a_store_that_hangs_costs_the_time_that_was_allowed() {
    let model = fixture("tiny-llama");
    let (folder, texts) = kept(&model, "").await;
    for object in folder.objects() {
        // Opening a pipe that nobody writes to never ends.
        std::fs::remove_file(&object).expect("it is there");
        let made = std::process::Command::new("mkfifo").arg(&object).status();
        assert!(made.expect("mkfifo runs").success());
    }
    let flags = "--kv-store-prefetch timeout --kv-store-prefetch-timeout 300ms";
    let told = life(&model, Some(&folder), flags).await;
    assert_eq!((told.texts, told.stored), (texts, 0));
    assert_eq!(told.timeouts, u64::from(TALKS), "{:?}", told.store);
    assert!(told.time >= TALKS * Duration::from_millis(300), "{:?}", told.time);
}
