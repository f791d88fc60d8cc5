//! What goes wrong below is a miss or a drop with its reason, never a wrong page.

use crate::{OBJECT, full_page, has, open, options, page, put, scope};
use bytes::Bytes;
use kv_store::backend::{Backend, Fault, MemoryBackend, Operation};
use kv_store::{DropReason, KvStore, Miss, NotQueued, OpenError};
use std::sync::Arc;
use std::time::Duration;
use types::TokenId;

fn backend() -> Arc<MemoryBackend> {
    Arc::default()
}

async fn miss(store: &KvStore, number: u32) -> Miss {
    let (hash, tokens, _) = page(number);
    let before = store.stats();
    let reason = store.get(&hash, &tokens).await.expect_err("a miss");
    let after = store.stats();
    assert_eq!(after.misses_by(reason), before.misses_by(reason) + 1, "{reason:?}");
    assert_eq!(after.misses.iter().sum::<u64>(), before.misses.iter().sum::<u64>() + 1);
    reason
}

#[tokio::test]
async fn a_page_is_read_as_it_was_written() {
    let backend = backend();
    let store = open(&backend, options(9)).await;
    assert_eq!(miss(&store, 1).await, Miss::Absent);
    put(&store, 1).await;
    assert!(has(&store, 1).await);
    put(&store, 1).await;
    let stats = store.stats();
    assert_eq!((stats.hits, stats.writes, stats.present, stats.entries), (1, 1, 1, 1));
    assert_eq!((stats.written_bytes, stats.read_bytes, stats.held_bytes), (OBJECT, OBJECT, OBJECT));
    let (hash, ..) = page(1);
    let (other, ..) = page(2);
    assert!(store.size(&hash).await.is_some() && store.size(&other).await.is_none());
}

#[tokio::test]
async fn a_page_with_more_parts_takes_the_place_of_one_with_fewer() {
    let store = open(&backend(), options(9)).await;
    put(&store, 1).await;
    let (hash, tokens, content) = full_page(1);
    store.put(hash, tokens.clone(), content.clone()).expect("room");
    store.flush().await;
    assert_eq!(store.get(&hash, &tokens).await.as_ref(), Ok(&content));
    put(&store, 1).await;
    assert_eq!(store.get(&hash, &tokens).await.as_ref(), Ok(&content), "and stays");
    let stats = store.stats();
    assert_eq!((stats.writes, stats.present, stats.entries), (2, 1, 1));
}

#[tokio::test]
async fn of_two_writes_at_once_the_one_with_more_parts_stays() {
    let backend = backend();
    let store = open(&backend, options(9)).await;
    let ((hash, tokens, short), (_, _, long)) = (page(1), full_page(1));
    let before = backend.calls(Operation::Write);
    backend.inject(Operation::Write, Fault::Hold);
    store.put(hash, tokens.clone(), short).expect("room");
    store.put(hash, tokens.clone(), long.clone()).expect("room");
    while backend.calls(Operation::Write) == before {
        tokio::task::yield_now().await;
    }
    // Tasks that are ready run in turn: the second write is begun by now, or waits for the first.
    for _ in 0..32 {
        tokio::task::yield_now().await;
    }
    backend.release(1);
    store.flush().await;
    assert_eq!(store.get(&hash, &tokens).await.as_ref(), Ok(&long));
    let next = open(&backend, options(9)).await;
    assert_eq!(next.size(&hash).await, Some(next.whole_bytes()));
}

#[tokio::test]
async fn what_a_read_finds_with_fewer_parts_than_known_is_written_again() {
    let (ours, theirs) = (backend(), backend());
    let store = open(&ours, options(9)).await;
    let (hash, tokens, content) = full_page(1);
    store.put(hash, tokens.clone(), content.clone()).expect("room");
    store.flush().await;
    put(&open(&theirs, options(9)).await, 1).await;
    let path = ours.paths().remove(0);
    ours.replace(&path, theirs.object(&path).expect("the same name"));
    assert!(has(&store, 1).await, "it is a page, if one with less");
    assert_eq!(store.stats().held_bytes, OBJECT);
    store.put(hash, tokens.clone(), content.clone()).expect("room");
    store.flush().await;
    assert_eq!(store.get(&hash, &tokens).await.as_ref(), Ok(&content));
    assert_eq!(store.stats().writes, 2);
}

#[tokio::test]
async fn every_broken_object_is_a_miss_and_is_deleted() {
    let backend = backend();
    let store = open(&backend, options(9)).await;
    put(&store, 1).await;
    let path = backend.paths().remove(0);
    let whole = backend.object(&path).expect("it was written");
    let mut deleted = 0;
    // Each is written again by the next put, which shows that it is not taken for present.
    for position in (8..whole.len()).step_by(37) {
        let mut flipped = whole.to_vec();
        flipped[position] ^= 4;
        for broken in [Bytes::from(flipped), whole.slice(..position)] {
            backend.replace(&path, broken);
            assert!(miss(&store, 1).await.is_broken(), "at {position}");
            assert_eq!(backend.paths(), Vec::<String>::new());
            deleted += 1;
            put(&store, 1).await;
            assert!(has(&store, 1).await);
        }
    }
    let stats = store.stats();
    assert_eq!(stats.broken_deleted, deleted);
    assert_eq!((stats.held_bytes, stats.entries), (OBJECT, 1));
}

#[tokio::test]
async fn whole_objects_of_others_are_misses_and_stay() {
    let backend = backend();
    let store = open(&backend, options(9)).await;
    put(&store, 1).await;
    let path = backend.paths().remove(0);
    let whole = backend.object(&path).expect("it was written");

    backend.replace(&path, Bytes::from_static(b"a file of somebody else"));
    assert_eq!(miss(&store, 1).await, Miss::Foreign);
    backend.replace(&path, Bytes::from(vec![0; 1 << 20]));
    assert_eq!(miss(&store, 1).await, Miss::Foreign, "longer than any page");
    assert_eq!(backend.paths(), [path.as_str()]);

    // The page of other tokens, copied into the place of this one.
    put(&store, 2).await;
    let other = backend.paths().into_iter().find(|other| *other != path).expect("page 2");
    backend.replace(&path, backend.object(&other).expect("page 2"));
    assert_eq!(miss(&store, 1).await, Miss::Collision);

    // A page of another model, and of another layout, whose folders were renamed to ours.
    let mut model = scope();
    model.model[20] ^= 1;
    let mut layout = scope();
    layout.layout += 1;
    for (scope, expected) in [(model, Miss::Model), (layout, Miss::Layout)] {
        let elsewhere = Arc::new(MemoryBackend::default());
        let there: Arc<dyn Backend> = Arc::<MemoryBackend>::clone(&elsewhere);
        let others = KvStore::with_backend(there, "m", scope, options(9)).await.expect("it opens");
        put(&others, 1).await;
        let object = elsewhere.object(&elsewhere.paths()[0]).expect("it was written");
        backend.replace(&path, object);
        assert_eq!(miss(&store, 1).await, expected);
    }
    assert_eq!(store.stats().broken_deleted, 0);

    // Our own write takes the place of whatever is there.
    put(&store, 1).await;
    assert_eq!(backend.object(&path), Some(whole));
    assert!(has(&store, 1).await);
}

#[tokio::test]
async fn equal_hashes_of_other_tokens_are_a_miss() {
    let store = open(&backend(), options(9)).await;
    put(&store, 1).await;
    let (hash, ..) = page(1);
    let other: Vec<TokenId> = (90..94).map(TokenId).collect();
    assert_eq!(store.get(&hash, &other).await, Err(Miss::Collision));
    assert!(has(&store, 1).await, "and the page stays");
}

#[tokio::test(start_paused = true)]
async fn failures_and_timeouts_of_reads_are_misses() {
    let backend = backend();
    let store = open(&backend, options(9)).await;
    put(&store, 1).await;
    backend.inject(Operation::Read, Fault::Fail);
    assert_eq!(miss(&store, 1).await, Miss::Error);
    backend.inject(Operation::Read, Fault::Hang);
    assert_eq!(miss(&store, 1).await, Miss::Timeout);
    assert!(has(&store, 1).await, "and the next read is served");
    backend.inject(Operation::Size, Fault::Hang);
    let (other, ..) = page(2);
    assert!(store.size(&other).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn failures_and_timeouts_of_writes_are_drops() {
    let backend = backend();
    let store = open(&backend, options(9)).await;
    backend.inject(Operation::Write, Fault::Fail);
    put(&store, 1).await;
    assert_eq!((store.stats().drops_by(DropReason::Error), store.stats().held_bytes), (1, 0));
    backend.inject(Operation::Write, Fault::Hang);
    put(&store, 1).await;
    let stats = store.stats();
    assert_eq!((stats.drops_by(DropReason::Timeout), stats.writes), (1, 0));
    assert_eq!(stats.held_bytes, OBJECT, "it may be there: it counts");
    assert_eq!(miss(&store, 1).await, Miss::Absent);
    assert_eq!(store.stats().held_bytes, 0, "until a read finds out");
    put(&store, 1).await;
    assert!(has(&store, 1).await);
}

#[tokio::test]
async fn what_cannot_be_evicted_counts_on_and_keeps_the_bound() {
    let backend = backend();
    let store = open(&backend, options(2)).await;
    put(&store, 1).await;
    put(&store, 2).await;
    backend.inject(Operation::Delete, Fault::Fail);
    put(&store, 3).await;
    let stats = store.stats();
    assert_eq!((stats.drops_by(DropReason::Error), stats.evictions), (1, 0));
    assert_eq!((stats.entries, stats.held_bytes), (2, 2 * OBJECT));
    put(&store, 4).await;
    assert!(has(&store, 4).await && has(&store, 1).await, "others are tried first");
    assert!(backend.most_bytes() <= store.stats().max_bytes);
}

#[tokio::test]
async fn a_full_queue_drops_and_counts() {
    let backend = backend();
    let mut options = options(9);
    options.writes = 1;
    // Rounded up to whole KiB: two objects of less than one each.
    options.queue_bytes = types::Bytes(2 * OBJECT);
    let store = open(&backend, options).await;
    backend.inject(Operation::Write, Fault::Hold);
    let push = |number| {
        let (hash, tokens, content) = page(number);
        store.put(hash, tokens, content)
    };
    assert_eq!((push(1), push(2)), (Ok(()), Ok(())));
    assert_eq!(push(3), Err(NotQueued(DropReason::QueueFull)));
    assert_eq!(store.stats().drops_by(DropReason::QueueFull), 1);
    assert_eq!(store.stats().queued_bytes, 2 * OBJECT);
    backend.release(1);
    store.flush().await;
    assert_eq!(store.stats().queued_bytes, 0);
    assert!(push(3).is_ok(), "its room came back");
    store.flush().await;
    assert!(has(&store, 1).await && has(&store, 2).await && has(&store, 3).await);
}

#[tokio::test(start_paused = true)]
async fn closing_writes_what_is_queued_and_drops_what_takes_too_long() {
    let backend = backend();
    let store = open(&backend, options(9)).await;
    let push = |store: &KvStore, number| {
        let (hash, tokens, content) = page(number);
        store.put(hash, tokens, content)
    };
    (1..5).for_each(|number| push(&store, number).expect("room"));
    store.close(Duration::from_secs(60)).await;
    assert_eq!(store.stats().writes, 4);
    assert_eq!(push(&store, 9), Err(NotQueued(DropReason::Closed)));
    assert!(has(&store, 4).await, "reads still work");

    let mut one = options(9);
    one.writes = 1;
    one.timeout = Duration::from_secs(3600);
    let store = open(&backend, one).await;
    backend.inject(Operation::Write, Fault::Hang);
    (11..14).for_each(|number| push(&store, number).expect("room"));
    store.close(Duration::from_secs(5)).await;
    let stats = store.stats();
    assert_eq!((stats.drops_by(DropReason::Closed), stats.writes, stats.queued_bytes), (3, 0, 0));
}

#[tokio::test]
async fn dropping_the_last_handle_ends_the_tasks_after_what_is_queued() {
    let backend = backend();
    let store = open(&backend, options(9)).await;
    let (hash, tokens, content) = page(1);
    let clone = store.clone();
    drop(store);
    clone.put(hash, tokens, content).expect("a clone keeps it open");
    drop(clone);
    // The backend is shared with the tasks until they end.
    while Arc::strong_count(&backend) > 1 {
        tokio::task::yield_now().await;
    }
    assert_eq!(backend.paths().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_refuses_the_test_object_is_not_opened() {
    for (operation, fault, text) in [
        (Operation::Write, Fault::Fail, "the place: cannot write: Write was to fail"),
        (Operation::Read, Fault::Hang, "the place: cannot read: no answer within 10s"),
        (Operation::Delete, Fault::Fail, "the place: cannot delete: Delete was to fail"),
    ] {
        let backend = backend();
        backend.inject(operation, fault);
        let opened = KvStore::with_backend(backend, "the place", scope(), options(9)).await;
        assert_eq!(opened.expect_err("refused").to_string(), text);
    }
}

#[tokio::test]
async fn bounds_that_hold_no_page_are_refused() {
    let longest = 88 + 16 + 4 + 2 * (12 + 2 + 400) + (12 + 3 + 100) + 16;
    let mut small = options(9);
    small.max_bytes = types::Bytes(longest - 1);
    let opened = KvStore::with_backend(backend(), "x", scope(), small).await;
    assert!(matches!(opened, Err(OpenError::TooSmall { page, .. }) if page == longest));
    let mut small = options(9);
    small.queue_bytes = types::Bytes(longest - 1);
    let opened = KvStore::with_backend(backend(), "x", scope(), small).await;
    assert!(matches!(opened, Err(OpenError::SmallQueue { page, .. }) if page == longest));
    let mut none = scope();
    none.parts.clear();
    let opened = KvStore::with_backend(backend(), "x", none, options(9)).await;
    assert!(matches!(opened, Err(OpenError::Scope(_))));
}

#[tokio::test(start_paused = true)]
async fn a_listing_that_fails_is_tried_again_and_reads_do_not_wait_for_it() {
    let backend = backend();
    let first = open(&backend, options(9)).await;
    put(&first, 1).await;
    backend.inject(Operation::List, Fault::Fail);
    let store = open(&backend, options(9)).await;
    assert!(has(&store, 1).await);
    assert!(!store.stats().listed);
    put(&store, 2).await;
    let stats = store.stats();
    assert!(stats.listed);
    assert_eq!(stats.entries, 2);
}
