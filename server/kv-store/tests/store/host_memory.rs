//! The tier over the server's own host memory: two ranks, a full pool with two parts and a window
//! pool with one. This is all that joins the two.

use crate::options;
use kv_store::backend::{Backend, MemoryBackend};
use kv_store::{HostPages, PartShape, Places, Scope, StorageTier, TierPages, TierPlace};
use memory_pool::{HostLayout, HostMemory, HostOptions, PartLayout};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use types::{Bytes, PageId, PoolId, TokenId};

const RANKS: usize = 2;
const PAGE_TOKENS: u32 = 8;

/// Host memory, and which rank and part of it each part of the scope is.
struct Host {
    memory: HostMemory,
    parts: Vec<(usize, usize, PoolId)>,
}

impl HostPages for Host {
    fn pool(&self, part: usize) -> PoolId {
        self.parts[part].2
    }

    fn read(&self, part: usize, page: PageId, to: &mut [u8]) {
        let (rank, part, _) = self.parts[part];
        self.memory.read_page(rank, part, page, to);
    }

    fn write(&self, part: usize, page: PageId, from: &[u8]) {
        let (rank, part, _) = self.parts[part];
        self.memory.write_page(rank, part, page, from);
    }
}

fn host(layout: HostLayout) -> (Arc<Host>, Scope) {
    let part = |name, layers, layer_bytes, pages| PartLayout {
        name,
        layers,
        layer_bytes,
        pages,
        host: true,
    };
    let layouts = [
        (part("kv", vec![0, 2], 512, 12), PoolId(0)),
        (part("index", vec![2], 96, 12), PoolId(0)),
        (part("swa", vec![1, 3], 512, 5), PoolId(1)),
    ];
    let options = HostOptions {
        ranks: RANKS,
        nodes: vec![None; RANKS],
        layout,
        slab_bytes: Bytes(4096),
        ..HostOptions::default()
    };
    let memory = HostMemory::allocate(&layouts, options, &mut |_| {}).expect("a few pages");
    let (mut parts, mut shapes) = (Vec::new(), Vec::new());
    for rank in 0..RANKS {
        for (part, (layout, pool)) in memory.parts().enumerate() {
            parts.push((rank, part, pool));
            shapes.push(PartShape {
                rank: rank as u16,
                name: layout.name.to_owned(),
                bytes: layout.page_bytes() as u64,
            });
        }
    }
    let ranks = RANKS as u32;
    let scope = Scope { model: [5; 32], layout: 1, ranks, page_tokens: PAGE_TOKENS, parts: shapes };
    (Arc::new(Host { memory, parts }), scope)
}

/// What page `page` of the prefix has in `part`, byte by byte.
fn content(scope: &Scope, part: usize, page: usize) -> Vec<u8> {
    let bytes = scope.parts[part].bytes as usize;
    (0..bytes).map(|at| (at / 3 + part * 53 + page * 19) as u8).collect()
}

/// Four pages; the first is at host page `first`, and only the last has a window page.
fn prefix(first: u32) -> (TierPages, Vec<Places>) {
    let tokens: Vec<TokenId> = (0..4 * PAGE_TOKENS).map(TokenId).collect();
    let places = (0..4).map(|page| match page {
        3 => vec![(PoolId(0), PageId(first + 3)), (PoolId(1), PageId(2))],
        _ => vec![(PoolId(0), PageId(first + page))],
    });
    (TierPages { namespace: b"tenant".to_vec(), tokens, first: 0 }, places.collect())
}

#[test]
fn pages_outlive_host_memory_and_its_layout() {
    let backend = Arc::new(MemoryBackend::default());
    let layouts = [HostLayout::LayerFirst, HostLayout::PageFirst, HostLayout::PageFirstDirect];
    // Each process reads what the first one wrote, whatever the order of bytes in its memory.
    for (process, layout) in layouts.into_iter().enumerate() {
        let (host, scope) = host(layout);
        let there: Arc<dyn Backend> = Arc::<MemoryBackend>::clone(&backend);
        let place = TierPlace::Backend(there, "memory".to_owned());
        let (send, progress) = sync_channel(4096);
        let wake = Box::new(move || send.try_send(()).unwrap_or_default());
        let pages: Arc<dyn HostPages> = Arc::<Host>::clone(&host);
        let tier = StorageTier::open(place, scope.clone(), options(99), pages, wake);
        let tier = tier.expect("it opens");
        let first = 7 - process as u32;
        let (text, places) = prefix(first);
        let each = |check: &mut dyn FnMut(usize, PageId, Vec<u8>)| {
            for (page, places) in prefix(first).1.iter().enumerate() {
                for part in 0..scope.parts.len() {
                    let of = |(pool, _): &&(PoolId, PageId)| *pool == host.pool(part);
                    if let Some((_, place)) = places.iter().find(of) {
                        check(part, *place, content(&scope, part, page));
                    }
                }
            }
        };
        if process == 0 {
            each(&mut |part, place, bytes| host.write(part, place, &bytes));
            tier.backup(1, text, places).expect("room");
        } else {
            let fetch = tier.fetch(text, places).expect("room");
            while !fetch.there().1 {
                progress.recv().expect("the thread runs");
            }
            assert_eq!(fetch.stop(), 4);
            each(&mut |part, place, bytes| {
                let mut read = vec![0; bytes.len()];
                host.read(part, place, &mut read);
                assert!(read == bytes, "{layout:?}: part {part}, page {place:?}");
            });
        }
        tier.close(std::time::Duration::from_secs(60));
        assert_eq!(backend.paths().len(), 4);
    }
}
