//! A folder as a store.

use crate::{OBJECT, has, options, page, put, scope};
use kv_store::{KvStore, Miss, StoreUrl};
use std::fs;
use std::path::{Path, PathBuf};

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("kv-store-{name}-{}", std::process::id()));
        if path.exists() {
            fs::remove_dir_all(&path).expect("left by a process with our id, which is gone");
        }
        Self(path)
    }

    fn url(&self) -> StoreUrl {
        format!("file://{}", self.0.display()).parse().expect("an absolute path")
    }

    async fn open(&self, objects: u64) -> KvStore {
        KvStore::open(&self.url(), scope(), options(objects)).await.expect("it opens")
    }

    /// The files below, with their paths from here.
    fn files(&self) -> Vec<(String, PathBuf)> {
        fn walk(root: &Path, folder: &Path, found: &mut Vec<(String, PathBuf)>) {
            for entry in fs::read_dir(folder).expect("readable") {
                let path = entry.expect("readable").path();
                if path.is_dir() {
                    walk(root, &path, found);
                } else {
                    let name = path.strip_prefix(root).expect("below").display().to_string();
                    found.push((name, path));
                }
            }
        }
        let mut found = Vec::new();
        walk(&self.0, &self.0, &mut found);
        found.sort();
        found
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed is in the folder for temporary files.
        drop(fs::remove_dir_all(&self.0));
    }
}

#[tokio::test]
async fn pages_survive_the_store_and_keep_their_bound() {
    let folder = Folder::new("survive");
    let store = folder.open(4).await;
    for number in 1..=4 {
        put(&store, number).await;
    }
    store.close(std::time::Duration::from_secs(60)).await;
    assert_eq!(store.stats().writes, 4);

    let files = folder.files();
    assert_eq!(files.len(), 4, "objects and nothing else: {files:?}");
    for (name, path) in &files {
        assert!(name.starts_with("v1/03030303030303030303030303030303/l1-tp2-p4-"), "{name}");
        assert_eq!(fs::metadata(path).expect("listed").len(), OBJECT);
    }

    let store = folder.open(4).await;
    for number in 1..=4 {
        assert!(has(&store, number).await, "page {number}");
    }
    put(&store, 5).await;
    let stats = store.stats();
    assert_eq!((stats.entries, stats.evictions, stats.hits), (4, 1, 4));
    assert_eq!(folder.files().len(), 4);
}

#[tokio::test]
async fn what_became_of_a_file_decides_whether_it_is_read() {
    let folder = Folder::new("broken");
    let store = folder.open(9).await;
    put(&store, 1).await;
    let (_, path) = folder.files().remove(0);
    let whole = fs::read(&path).expect("it was written");
    let (hash, tokens, _) = page(1);

    fs::write(&path, &whole[..whole.len() - 1]).expect("writable");
    assert_eq!(store.get(&hash, &tokens).await, Err(Miss::Truncated));
    assert!(!path.exists());
    assert_eq!(store.get(&hash, &tokens).await, Err(Miss::Absent));

    put(&store, 1).await;
    let mut flipped = whole.clone();
    flipped[500] ^= 1;
    fs::write(&path, flipped).expect("writable");
    assert_eq!(store.get(&hash, &tokens).await, Err(Miss::Corrupt));
    assert!(!path.exists());

    fs::write(&path, b"something else").expect("writable");
    assert_eq!(store.get(&hash, &tokens).await, Err(Miss::Foreign));
    assert!(path.exists());
    put(&store, 1).await;
    assert_eq!(fs::read(&path).expect("it is there"), whole);
    assert_eq!(store.stats().broken_deleted, 2);
}

#[tokio::test]
async fn a_place_that_is_no_folder_is_named() {
    let folder = Folder::new("refused");
    fs::create_dir_all(&folder.0).expect("writable");
    let file = folder.0.join("file");
    fs::write(&file, b"x").expect("writable");
    let url: StoreUrl = format!("file://{}/kv", file.display()).parse().expect("absolute");
    let error = KvStore::open(&url, scope(), options(9)).await.expect_err("below a file");
    let text = error.to_string();
    assert!(text.starts_with(&format!("{url}: cannot ")), "{text}");
    assert!(!text.contains('\n'), "{text}");
}

#[tokio::test]
async fn what_a_dead_writer_left_is_cleaned_up_once_it_is_old() {
    let folder = Folder::new("unfinished");
    let unfinished = folder.0.join("unfinished/v1");
    fs::create_dir_all(&unfinished).expect("writable");
    let (old, fresh) = (unfinished.join("old"), unfinished.join("fresh"));
    fs::write(&fresh, b"of a writer that is at work").expect("writable");
    let file = fs::File::create(&old).expect("writable");
    let hours_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(7200);
    file.set_modified(hours_ago).expect("ours");
    drop(folder.open(9).await);
    assert!(!old.exists() && fresh.exists());
}
