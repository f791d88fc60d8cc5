//! Copies between device and host memory against one plain copy of the same bytes by one thread,
//! in the same run: `cargo bench -p memory-pool`. Prints GB/s of the fastest of several rounds and
//! the ratio of the two.
#![expect(clippy::print_stdout, reason = "a benchmark reports on standard output")]

use std::sync::Arc;

use memmap2::{Advice, MmapMut};
use memory_pool::{
    CopyEngine, CopyPage, DeviceMemory, Direction, HostLayout, HostMemory, HostOptions, PartLayout,
};
use types::{Bytes, Clock, PageId, PoolId};

/// Bytes on either side, about.
const BYTES: usize = 192 << 20;
/// Rounds of each kind, taken in turn.
const ROUNDS: usize = 12;

/// Pages as models have them.
fn cases() -> Vec<(&'static str, Vec<(usize, usize)>)> {
    vec![
        // 16 tokens of 3 heads of 64, 30 layers.
        ("dense, 135M", vec![(30, 24_576)]),
        // 16 tokens of 8 heads of 128, 32 layers.
        ("dense, 8B", vec![(32, 131_072)]),
        // 256 tokens of compressed rows, their index, and the coarser ones.
        ("latent, kv", vec![(21, 37_440), (21, 8_448), (20, 1_728)]),
        ("latent, swa", vec![(43, 149_760), (21, 65_536), (21, 16_384)]),
    ]
}

/// A plain copy between two maps of their own.
struct Plain {
    from: MmapMut,
    to: MmapMut,
}

impl Plain {
    fn new(bytes: usize) -> Self {
        let map = || {
            let mut map = MmapMut::map_anon(bytes).expect("the benchmark has memory");
            map.advise(Advice::HugePage).ok();
            map.fill(1);
            map
        };
        Self { from: map(), to: map() }
    }
}

fn main() {
    // `cargo test --benches` only wants to know that it starts.
    let rounds = if std::env::args().any(|arg| arg == "--test") { 1 } else { ROUNDS };
    println!(
        "{:<13} {:<18} {:<7} {:>6} {:>6} {:>6}",
        "pages", "layout", "to", "GB/s", "plain", "ratio"
    );
    for (name, parts) in cases() {
        for layout in [HostLayout::LayerFirst, HostLayout::PageFirst, HostLayout::PageFirstDirect] {
            measure(name, &parts, layout, rounds);
        }
    }
}

fn measure(name: &str, parts: &[(usize, usize)], layout: HostLayout, rounds: usize) {
    const NAMES: [&str; 3] = ["a", "b", "c"];
    let page: usize = parts.iter().map(|(layers, bytes)| layers * bytes).sum();
    let pages = BYTES / page;
    let part = |(name, (layers, layer_bytes)): (&&'static str, &(usize, usize))| PartLayout {
        name,
        layers: (0..*layers).collect(),
        layer_bytes: *layer_bytes,
        pages,
        host: true,
    };
    let parts: Vec<PartLayout> = NAMES.iter().zip(parts).map(part).collect();
    let device = DeviceMemory::new(parts.clone()).expect("the benchmark has memory");
    let of_pool: Vec<_> = parts.into_iter().map(|part| (part, PoolId(0))).collect();
    let options = HostOptions { layout, slab_bytes: Bytes(64 << 20), ..HostOptions::default() };
    let host = HostMemory::allocate(&of_pool, options, &mut |_| ()).expect("memory");
    let engine = CopyEngine::new(vec![device], Arc::new(host), 4);
    // Neighbours on one side are apart on the other.
    let pages = 0..pages as u32;
    let copies = pages.clone().map(|page| CopyPage {
        pool: PoolId(0),
        device: PageId(page),
        host: PageId((page * 7 + 3) % pages.end),
    });
    let copies: Vec<CopyPage> = copies.collect();
    let bytes = page * copies.len();
    let mut plain = Plain::new(bytes);
    let clock = Clock::start();
    let mut best = [f64::INFINITY; 3];
    let mut done = Vec::new();
    for round in 0..=rounds {
        for direction in [Direction::Backup, Direction::Load] {
            engine.submit(0, direction, copies.clone()).expect("the queue is empty");
            engine.wait(0);
            done.clear();
            engine.poll(&mut done);
            assert!(done[0].result.is_ok());
            // The first round touches the device's pages.
            if round > 0 {
                let at = usize::from(direction == Direction::Load);
                best[at] = best[at].min(done[0].busy.as_secs_f64());
            }
        }
        let start = clock.now();
        plain.to.copy_from_slice(std::hint::black_box(&plain.from));
        best[2] = best[2].min(clock.now().since(start).as_secs_f64());
    }
    for (to, seconds) in [("host", best[0]), ("device", best[1])] {
        let [rate, plain] = [seconds, best[2]].map(|seconds| bytes as f64 / seconds / 1e9);
        let layout = format!("{layout:?}");
        println!("{name:<13} {layout:<18} {to:<7} {rate:>6.2} {plain:>6.2} {:>6.2}", rate / plain);
    }
}
