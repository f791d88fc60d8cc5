//! The store over memory with failures, over folders, and over an S3 service made of 200 lines.

mod bound;
#[cfg(feature = "s3")]
mod fake_s3;
mod faults;
#[cfg(feature = "fs")]
mod folder;
mod host_memory;
#[cfg(feature = "s3")]
mod s3;
mod tier;

use bytes::Bytes;
use kv_store::backend::{Backend, MemoryBackend};
use kv_store::{KvStore, Page, PageHash, Part, PartShape, Scope, StoreOptions};
use std::sync::Arc;
use types::{Clock, TokenId};

/// Two ranks of a full pool and one part of a window pool; pages of 4 tokens.
pub(crate) fn scope() -> Scope {
    let part = |rank, name: &str, bytes| PartShape { rank, name: name.to_owned(), bytes };
    let parts = vec![part(0, "kv", 400), part(1, "kv", 400), part(0, "swa", 100)];
    Scope { model: [3; 32], layout: 1, ranks: 2, page_tokens: 4, parts }
}

/// Bytes of the object of a page with the parts 0 and 1.
pub(crate) const OBJECT: u64 = 88 + 16 + 4 + 2 * (12 + 2 + 400) + 16;

/// A store large enough for `objects` of them and one more part's bytes for the longest page.
pub(crate) fn options(objects: u64) -> StoreOptions {
    StoreOptions::new(types::Bytes(objects * OBJECT + 150), Clock::start())
}

/// The tokens of page number `page`, its hash, and what it holds.
pub(crate) fn page(page: u32) -> (PageHash, Vec<TokenId>, Page) {
    let tokens: Vec<TokenId> = (page * 4..page * 4 + 4).map(TokenId).collect();
    let hash = PageHash::root(b"").next(&tokens);
    let part = |part: usize| Part {
        part,
        bytes: Bytes::from(vec![(page as u8).wrapping_add(part as u8 * 100); 400]),
    };
    (hash, tokens, Page { parts: vec![part(0), part(1)] })
}

/// The same with the window part.
pub(crate) fn full_page(number: u32) -> (PageHash, Vec<TokenId>, Page) {
    let (hash, tokens, mut page) = page(number);
    page.parts.push(Part { part: 2, bytes: Bytes::from(vec![number as u8; 100]) });
    (hash, tokens, page)
}

pub(crate) async fn open(backend: &Arc<MemoryBackend>, options: StoreOptions) -> KvStore {
    let backend: Arc<dyn Backend> = Arc::<MemoryBackend>::clone(backend);
    KvStore::with_backend(backend, "memory", scope(), options).await.expect("it opens")
}

pub(crate) async fn put(store: &KvStore, number: u32) {
    let (hash, tokens, content) = page(number);
    store.put(hash, tokens, content).expect("the queue has room");
    store.flush().await;
}

/// Whether the store has a page; with what it should have, or the test fails.
pub(crate) async fn has(store: &KvStore, number: u32) -> bool {
    let (hash, tokens, content) = page(number);
    match store.get(&hash, &tokens).await {
        Ok(read) => {
            assert_eq!(read, content, "page {number}");
            true
        }
        Err(_) => false,
    }
}
