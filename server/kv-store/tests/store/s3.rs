//! A bucket as a store, over HTTP.

use crate::fake_s3::{BUCKET, FakeS3};
use crate::{OBJECT, has, options, page, put, scope};
use bytes::Bytes;
use hyper::Method;
use kv_store::{Credentials, DropReason, KvStore, Miss, OpenError, StoreOptions, StoreUrl};

fn credentials(id: &str) -> Credentials {
    Credentials {
        access_key_id: id.to_owned(),
        secret_access_key: "a secret".to_owned(),
        session_token: None,
    }
}

fn url(service: &FakeS3) -> StoreUrl {
    let endpoint = &service.endpoint;
    format!("s3://{BUCKET}/some/prefix?endpoint={endpoint}&region=eu-test-1")
        .parse()
        .expect("valid")
}

fn signed(objects: u64) -> StoreOptions {
    StoreOptions { credentials: Some(credentials("an-id")), ..options(objects) }
}

async fn open(service: &FakeS3, objects: u64) -> KvStore {
    KvStore::open(&url(service), scope(), signed(objects)).await.expect("it opens")
}

#[tokio::test]
async fn pages_are_put_read_listed_and_deleted() {
    let service = FakeS3::start().await;
    let store = open(&service, 5).await;
    for number in 1..=5 {
        put(&store, number).await;
    }
    for number in 1..=5 {
        assert!(has(&store, number).await, "page {number}");
    }
    assert!(!has(&store, 6).await);
    assert_eq!(store.stats().misses_by(Miss::Absent), 1);
    let (hash, ..) = page(6);
    assert!(store.size(&hash).await.is_none(), "by HEAD, as it is not known");
    {
        let seen = service.seen.lock().expect("the service is well");
        let prefix = "some/prefix/v1/03030303030303030303030303030303/l1-tp2-p4-";
        assert!(
            seen.objects.keys().all(|key| key.starts_with(prefix)),
            "{:?}",
            seen.objects.keys()
        );
        assert_eq!(seen.objects.len(), 5);
    }
    store.close(std::time::Duration::from_secs(60)).await;

    // Opened again: the listing has several pages; the bound holds and pages leave it.
    let store = open(&service, 5).await;
    put(&store, 7).await;
    let stats = store.stats();
    assert_eq!((stats.entries, stats.evictions, stats.held_bytes), (5, 1, 5 * OBJECT));
    assert!(has(&store, 7).await);
    let seen = service.seen.lock().expect("the service is well");
    assert_eq!(seen.objects.len(), 5);
    let listings = seen.requests.iter().filter(|(_, listing)| *listing).count();
    assert!(listings >= 3, "{listings} answers to listings");
    for method in [Method::PUT, Method::GET, Method::HEAD, Method::DELETE] {
        assert!(seen.requests.iter().any(|(seen, _)| *seen == method), "{method} was not used");
    }
}

#[tokio::test]
async fn broken_and_foreign_objects_are_misses() {
    let service = FakeS3::start().await;
    let store = open(&service, 5).await;
    put(&store, 1).await;
    let (hash, tokens, _) = page(1);
    let change = |bytes: &dyn Fn(&Bytes) -> Bytes| {
        let mut seen = service.seen.lock().expect("the service is well");
        let key = seen.objects.keys().next().expect("the page").clone();
        let changed = bytes(&seen.objects[&key]);
        seen.objects.insert(key, changed);
    };
    change(&|whole| whole.slice(..whole.len() / 2));
    assert_eq!(store.get(&hash, &tokens).await, Err(Miss::Truncated));
    assert!(service.seen.lock().expect("well").objects.is_empty(), "it was deleted");
    put(&store, 1).await;
    change(&|_| Bytes::from(vec![7; 1 << 20]));
    assert_eq!(store.get(&hash, &tokens).await, Err(Miss::Foreign));
    put(&store, 1).await;
    assert!(has(&store, 1).await);
}

#[tokio::test]
async fn a_service_that_fails_is_a_miss_or_a_drop() {
    let service = FakeS3::start().await;
    let store = open(&service, 5).await;
    put(&store, 1).await;
    let (hash, tokens, _) = page(1);
    service.seen.lock().expect("well").unavailable = 1;
    assert_eq!(store.get(&hash, &tokens).await, Err(Miss::Error));
    service.seen.lock().expect("well").unavailable = 1;
    put(&store, 2).await;
    assert_eq!(store.stats().drops_by(DropReason::Error), 1);
    assert!(has(&store, 1).await);
}

#[tokio::test]
async fn wrong_and_missing_credentials_are_told_at_once() {
    let service = FakeS3::start().await;
    let opened = KvStore::open(&url(&service), scope(), options(5)).await;
    assert!(matches!(opened, Err(OpenError::NoCredentials(_))));
    let wrong = StoreOptions { credentials: Some(credentials("wrong")), ..options(5) };
    let text = KvStore::open(&url(&service), scope(), wrong).await.expect_err("403").to_string();
    assert!(text.contains(": cannot write: PermissionDenied: "), "{text}");
    assert!(!text.contains("a secret") && !text.contains('\n'), "{text}");
}

#[tokio::test]
async fn nobody_at_the_endpoint_is_told_at_once() {
    let service = FakeS3::start().await;
    let url = url(&service);
    let mut quick = signed(5);
    quick.timeout = std::time::Duration::from_secs(5);
    // The port was ours a moment ago: connections to it are refused.
    let gone = service.seen.clone();
    drop(service);
    while std::sync::Arc::strong_count(&gone) > 1 {
        tokio::task::yield_now().await;
    }
    let text = KvStore::open(&url, scope(), quick).await.expect_err("nobody there").to_string();
    assert!(text.contains(": cannot write: "), "{text}");
}
