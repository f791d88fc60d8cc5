//! Speed of the kernels: `cargo bench -p kernels`.
//!
//! `walk` goes over copies of the weights that together exceed the caches, as a decode step does;
//! its throughput is weight bytes. `gemm` counts two operations per multiply-add.

use divan::counter::{BytesCount, ItemsCount};
use divan::{Bencher, black_box};
use kernels::{
    Activations, AttentionSequence, AttentionShape, KernelPath, KvGeometry, Linear, PagedKv,
    ThreadPool, WeightFormat, pack, paged_attention, rms_norm, silu_mul,
};

fn main() {
    divan::main();
}

/// Outputs and inputs of the demo model's matrices.
const SHAPES: [(usize, usize); 4] = [(576, 576), (1536, 576), (576, 1536), (49_152, 576)];
const THREADS: [usize; 2] = [1, 2];
/// Weights of one walk: more than a last-level cache.
const WALK_BYTES: usize = 96 << 20;

struct Case {
    format: WeightFormat,
    shape: (usize, usize),
    rows: usize,
    threads: usize,
}

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ((n, k), m, t) = (self.shape, self.rows, self.threads);
        write!(f, "{} {n}x{k} m={m} {t}T", self.format)
    }
}

fn cases(rows: &[usize]) -> Vec<Case> {
    let mut cases = vec![];
    for format in WeightFormat::ALL {
        // Rows of the K formats are whole super-blocks.
        let fits = |(n, k): (usize, usize)| (n, k.next_multiple_of(format.block_values()));
        for shape in SHAPES.map(fits) {
            for &rows in rows {
                cases.extend(THREADS.map(|threads| Case { format, shape, rows, threads }));
            }
        }
    }
    cases
}

impl Case {
    fn weights(&self) -> Box<dyn Linear> {
        let (n, k) = self.shape;
        let bytes = match self.format.row_bytes(k) {
            Ok(row) => vec![0x11; n * row],
            Err(error) => panic!("{error}"),
        };
        match pack(self.format, &bytes, n, k, KernelPath::Detect) {
            Ok(linear) => linear,
            Err(error) => panic!("{error}"),
        }
    }

    fn input(&self) -> Activations {
        let count = self.rows * self.shape.1;
        let values = (0..count).map(|i| (i % 97) as f32 - 48.0).collect();
        Activations::from_vec(self.rows, self.shape.1, values)
    }

    fn output(&self) -> Vec<f32> {
        vec![0.0; self.rows * self.shape.0]
    }
}

#[divan::bench(args = cases(&[1, 16]), sample_count = 20, max_time = 2)]
fn walk(bencher: Bencher<'_, '_>, case: &Case) {
    let first = case.weights();
    let copies = WALK_BYTES.div_ceil(first.weight_bytes() as usize);
    let weights: Vec<_> = (0..copies).map(|_| case.weights()).collect();
    let pool = ThreadPool::new(case.threads);
    let (mut x, mut y) = (case.input(), case.output());
    let bytes = weights.iter().map(|w| w.weight_bytes()).sum::<u64>();
    bencher.counter(BytesCount::new(bytes)).bench_local(|| {
        for w in &weights {
            black_box(x.as_mut_slice());
            w.forward(&x, &mut y, &pool);
        }
    });
}

#[divan::bench(args = cases(&[4, 16, 64, 512]), sample_count = 10, max_time = 1)]
fn gemm(bencher: Bencher<'_, '_>, case: &Case) {
    let weights = case.weights();
    let pool = ThreadPool::new(case.threads);
    let (mut x, mut y) = (case.input(), case.output());
    let operations = 2 * case.rows * case.shape.0 * case.shape.1;
    bencher.counter(ItemsCount::new(operations)).bench_local(|| {
        black_box(x.as_mut_slice());
        weights.forward(&x, &mut y, &pool);
    });
}

/// Query rows, context and threads; 9 query heads over 3 key/value heads of 64.
#[divan::bench(args = [
    (1, 512, 1), (1, 2048, 1), (1, 2048, 2), (1, 8192, 2),
    (64, 64, 1), (512, 512, 1), (512, 512, 2), (512, 4096, 2),
])]
fn attention(bencher: Bencher<'_, '_>, (rows, context, threads): (usize, usize, usize)) {
    let (heads, kv_heads, head_dim, page_tokens) = (9, 3, 64, 16);
    let plane = kv_heads * page_tokens * head_dim;
    let pages: Vec<u32> = (0..(context / page_tokens) as u32).rev().collect();
    let data: Vec<f32> =
        (0..pages.len() * 2 * plane).map(|i| (i % 31) as f32 * 0.05 - 0.7).collect();
    let geometry = KvGeometry {
        kv_heads,
        head_dim,
        page_tokens,
        page_stride: 2 * plane,
        key_offset: 0,
        value_offset: plane,
    };
    let kv = PagedKv::new(&data, geometry);
    let q: Vec<f32> = (0..rows * heads * head_dim).map(|i| (i % 13) as f32 * 0.1 - 0.6).collect();
    let mut out = vec![0.0; q.len()];
    let pool = ThreadPool::new(threads);
    let shape = AttentionShape { heads, scale: 0.125, window: None, path: KernelPath::Detect };
    let sequences = [AttentionSequence {
        first_row: 0,
        rows,
        start: context - rows,
        first_page: 0,
        pages: 0..pages.len(),
    }];
    let pairs: usize = (0..rows).map(|r| context - rows + r + 1).sum();
    bencher.counter(ItemsCount::new(pairs * heads * head_dim * 4)).bench_local(|| {
        paged_attention(shape, &q, kv, &pages, &sequences, &mut out, &pool);
    });
}

#[divan::bench(args = [1, 512])]
fn rms_norm_576(bencher: Bencher<'_, '_>, rows: usize) {
    let (x, weight) = (vec![0.5; rows * 576], vec![1.0; 576]);
    let (mut out, pool) = (Activations::new(), ThreadPool::new(1));
    bencher
        .counter(ItemsCount::new(x.len()))
        .bench_local(|| rms_norm(&x, &weight, 1e-5, &mut out, &pool));
}

#[divan::bench(args = [1, 512])]
fn silu_mul_1536(bencher: Bencher<'_, '_>, rows: usize) {
    let (gate, up) = (vec![0.5; rows * 1536], vec![1.0; rows * 1536]);
    let (mut out, pool) = (Activations::new(), ThreadPool::new(1));
    bencher
        .counter(ItemsCount::new(gate.len()))
        .bench_local(|| silu_mul(&gate, &up, rows, &mut out, &pool));
}

/// What handing a job to a second thread costs.
#[divan::bench]
fn empty_job(bencher: Bencher<'_, '_>) {
    let pool = ThreadPool::new(2);
    bencher.bench_local(|| {
        pool.run(|worker, _| {
            black_box(worker);
        });
    });
}
