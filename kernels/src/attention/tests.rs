use super::*;

const PATHS: [KernelPath; 2] = [KernelPath::Reference, KernelPath::Detect];

fn values(n: usize, seed: u32) -> Vec<f32> {
    let mut state = seed;
    let mut next = move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..n).map(|_| next() + next()).collect()
}

/// A pool of pages with one sequence in them, its pages shuffled.
struct Case {
    heads: usize,
    geometry: KvGeometry,
    pool: Vec<f32>,
    pages: Vec<u32>,
    q: Vec<f32>,
    tokens: usize,
    window: Option<usize>,
}

impl Case {
    fn new(
        heads: usize,
        kv_heads: usize,
        head_dim: usize,
        page_tokens: usize,
        tokens: usize,
    ) -> Self {
        let plane = kv_heads * page_tokens * head_dim;
        let geometry = KvGeometry {
            kv_heads,
            head_dim,
            page_tokens,
            page_stride: 2 * plane + 8,
            key_offset: 8,
            value_offset: 8 + plane,
        };
        let count = tokens.div_ceil(page_tokens) + 2;
        let mut pool = values(count * geometry.page_stride, 1);
        // Slots that hold no position may hold anything.
        let last = ((tokens.div_ceil(page_tokens)) * 7 + 3) % count;
        pool[last * geometry.page_stride..(last + 1) * geometry.page_stride].fill(f32::NAN);
        let mut pages: Vec<u32> = (0..count as u32).filter(|p| *p as usize != last).collect();
        pages.truncate(tokens.div_ceil(page_tokens));
        pages.reverse();
        let q = values(tokens * heads * head_dim, 2);
        let mut case = Self { heads, geometry, pool, pages, q, tokens, window: None };
        case.poison_unused();
        case
    }

    fn with_window(mut self, window: Option<usize>) -> Self {
        self.window = window;
        self
    }

    fn shape(&self, path: KernelPath) -> AttentionShape {
        AttentionShape { heads: self.heads, scale: self.scale(), window: self.window, path }
    }

    /// The first position that the row of `position` sees.
    fn first_seen(&self, position: usize) -> usize {
        self.window.map_or(0, |window| (position + 1).saturating_sub(window))
    }

    fn poison_unused(&mut self) {
        let g = self.geometry;
        let used = self.tokens % g.page_tokens;
        let Some(page) = self.pages.last() else { return };
        if used == 0 {
            return;
        }
        for plane in [g.key_offset, g.value_offset] {
            for head in 0..g.kv_heads {
                let start = *page as usize * g.page_stride + plane;
                let start = start + head * g.page_tokens * g.head_dim;
                let unused = start + used * g.head_dim..start + g.page_tokens * g.head_dim;
                self.pool[unused].fill(f32::NAN);
            }
        }
    }

    fn scale(&self) -> f32 {
        1.0 / (self.geometry.head_dim as f32).sqrt()
    }

    fn row_len(&self) -> usize {
        self.heads * self.geometry.head_dim
    }

    /// Attention of rows `start..start + rows`.
    fn run(&self, path: KernelPath, start: usize, rows: usize, pool: &ThreadPool) -> Vec<f32> {
        let q = &self.q[start * self.row_len()..(start + rows) * self.row_len()];
        let mut out = vec![0.0; q.len()];
        let kv = PagedKv::new(&self.pool, self.geometry);
        let sequence = self.sequence(0, rows, start);
        paged_attention(self.shape(path), q, kv, &self.pages, &[sequence], &mut out, pool);
        out
    }

    /// Refers to as few of the case's pages as the rows need.
    fn sequence(&self, first_row: usize, rows: usize, start: usize) -> AttentionSequence {
        let first_page = self.first_seen(start) / self.geometry.page_tokens;
        AttentionSequence {
            first_row,
            rows,
            start,
            first_page,
            pages: first_page..self.pages.len(),
        }
    }

    /// The same in f64, naively.
    fn exact(&self, row: usize, head: usize) -> Vec<f64> {
        let g = self.geometry;
        let kv_head = head / (self.heads / g.kv_heads);
        let plane = |p: usize, offset: usize| {
            let page = self.pages[p / g.page_tokens] as usize * g.page_stride + offset;
            let slot = kv_head * g.page_tokens + p % g.page_tokens;
            &self.pool[page + slot * g.head_dim..][..g.head_dim]
        };
        let q = &self.q[(row * self.heads + head) * g.head_dim..][..g.head_dim];
        let weights: Vec<f64> = (self.first_seen(row)..=row)
            .map(|p| {
                let key = plane(p, g.key_offset);
                let dot: f64 = q.iter().zip(key).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
                (dot * f64::from(self.scale())).exp()
            })
            .collect();
        let sum: f64 = weights.iter().sum();
        let mut out = vec![0.0; g.head_dim];
        for (p, w) in (self.first_seen(row)..).zip(&weights) {
            let value = plane(p, g.value_offset);
            out.iter_mut().zip(value).for_each(|(o, v)| *o += w / sum * f64::from(*v));
        }
        out
    }
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

/// (heads, kv heads, head dim, page tokens, tokens).
const CASES: [(usize, usize, usize, usize, usize); 8] = [
    (9, 3, 64, 16, 70),
    (4, 2, 32, 16, 600),
    (4, 1, 16, 7, 300),
    (8, 1, 128, 1, 40),
    (2, 2, 80, 64, 530),
    (32, 1, 8, 16, 33),
    (3, 3, 20, 16, 290),
    (5, 1, 24, 5, 13),
];

/// Shorter than a page, around a page, around a segment, and beyond any context here.
const WINDOWS: [Option<usize>; 7] =
    [Some(1), Some(5), Some(16), Some(33), Some(255), Some(257), Some(1000)];

/// Every case without a window, and a few with each.
fn cases() -> impl Iterator<Item = Case> {
    let case = |(heads, kv_heads, dim, page, tokens)| Case::new(heads, kv_heads, dim, page, tokens);
    let windowed = [CASES[1], CASES[2], CASES[4], CASES[6], (4, 1, 256, 16, 290)];
    let windowed = move |window| windowed.map(|numbers| case(numbers).with_window(window));
    CASES.into_iter().map(case).chain(WINDOWS.into_iter().flat_map(windowed))
}

#[test]
fn matches_a_naive_f64_version() {
    let pool = ThreadPool::new(2);
    for case in cases() {
        let (heads, dim, tokens, window) =
            (case.heads, case.geometry.head_dim, case.tokens, case.window);
        for path in PATHS {
            let got = case.run(path, 0, tokens, &pool);
            for row in (0..tokens).step_by(7).chain([tokens - 1]) {
                for head in 0..heads {
                    let got = &got[(row * heads + head) * dim..][..dim];
                    for (got, want) in got.iter().zip(case.exact(row, head)) {
                        let error = (f64::from(*got) - want).abs();
                        let what = format!("{path} {heads}x{dim}, {window:?}, row {row}");
                        assert!(error < 3e-6, "{what}: {error}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_window_that_sees_everything_changes_nothing() {
    let pool = ThreadPool::new(2);
    for numbers in [CASES[1], CASES[6]] {
        let whole = Case::new(numbers.0, numbers.1, numbers.2, numbers.3, numbers.4);
        let windowed = Case::new(numbers.0, numbers.1, numbers.2, numbers.3, numbers.4)
            .with_window(Some(whole.tokens));
        for path in PATHS {
            let expect = bits(&whole.run(path, 0, whole.tokens, &pool));
            assert!(bits(&windowed.run(path, 0, whole.tokens, &pool)) == expect);
        }
    }
}

/// Pages that no row of a call sees hold rubbish and are not in its list.
#[test]
fn nothing_outside_the_window_is_read() {
    let pool = ThreadPool::new(2);
    for window in [1, 16, 40, 300] {
        let mut case = Case::new(4, 2, 32, 16, 600).with_window(Some(window));
        for path in PATHS {
            let whole = bits(&case.run(path, 0, 600, &pool));
            for start in [0, 15, 40, 300, 310, 599] {
                let kept = case.pool.clone();
                let seen = case.first_seen(start);
                for position in 0..seen {
                    poison(&mut case, position);
                }
                let rows = 600 - start;
                let got = bits(&case.run(path, start, rows, &pool));
                assert!(got == whole[start * 128..], "{path} window {window} from {start}");
                case.pool = kept;
            }
        }
    }
}

fn poison(case: &mut Case, position: usize) {
    let g = case.geometry;
    let page = case.pages[position / g.page_tokens] as usize * g.page_stride;
    for plane in [g.key_offset, g.value_offset] {
        for head in 0..g.kv_heads {
            let slot = head * g.page_tokens + position % g.page_tokens;
            case.pool[page + plane + slot * g.head_dim..][..g.head_dim].fill(f32::NAN);
        }
    }
}

#[test]
fn chunks_and_threads_do_not_change_a_bit() {
    let pools = [1, 2, 3, 4].map(ThreadPool::new);
    for case in cases() {
        let (heads, dim, tokens, window) =
            (case.heads, case.geometry.head_dim, case.tokens, case.window);
        for path in PATHS {
            let whole = bits(&case.run(path, 0, tokens, &pools[0]));
            for (chunk, threads) in [(1, 1), (1, 2), (3, 2), (16, 3), (255, 2), (257, 4)] {
                let pool = &pools[threads - 1];
                let mut got = vec![];
                for start in (0..tokens).step_by(chunk) {
                    let rows = chunk.min(tokens - start);
                    got.extend(bits(&case.run(path, start, rows, pool)));
                }
                let what = format!("{path} {heads}x{dim}, window {window:?}");
                assert!(got == whole, "{what}, chunks of {chunk}, {threads} threads");
            }
        }
    }
}

#[test]
fn sequences_of_a_batch_do_not_touch_each_other() {
    for window in [None, Some(30), Some(260)] {
        check_a_batch(&Case::new(9, 3, 64, 16, 400).with_window(window));
    }
}

fn check_a_batch(case: &Case) {
    let len = case.row_len();
    let kv = PagedKv::new(&case.pool, case.geometry);
    // A decode row far along, a prefill chunk, nothing, a row that is not used, and a first token.
    let plan = [(0, 1, 390), (1, 20, 250), (21, 0, 0), (22, 1, 0)];
    let sequences = plan.map(|(first_row, rows, start)| case.sequence(first_row, rows, start));
    let one = ThreadPool::new(1);
    let mut q = vec![f32::NAN; 23 * len];
    for (first, rows, start) in plan {
        let from = &case.q[start * len..(start + rows) * len];
        q[first * len..(first + rows) * len].copy_from_slice(from);
    }
    for path in PATHS {
        for threads in 1..=4 {
            let mut out = vec![7.0; q.len()];
            let pool = ThreadPool::new(threads);
            paged_attention(case.shape(path), &q, kv, &case.pages, &sequences, &mut out, &pool);
            for (first, rows, start) in plan {
                let alone = bits(&case.run(path, start, rows, &one));
                assert_eq!(bits(&out[first * len..(first + rows) * len]), alone);
            }
            assert_eq!(out[21 * len..22 * len], vec![7.0; len], "a row of no sequence stays");
        }
    }
}

#[test]
fn a_query_that_is_not_a_number_spoils_only_its_own_head() {
    let mut case = Case::new(4, 2, 32, 16, 300);
    let pool = ThreadPool::new(2);
    let clean = case.run(KernelPath::Detect, 0, 300, &pool);
    case.q[290 * 128 + 40] = f32::NAN;
    for path in PATHS {
        let got = case.run(path, 0, 300, &pool);
        assert!(got[290 * 128 + 32..290 * 128 + 64].iter().all(|v| v.is_nan()));
        assert!(got[290 * 128..290 * 128 + 32].iter().all(|v| v.is_finite()));
        if path == KernelPath::Detect {
            assert_eq!(bits(&got[291 * 128..]), bits(&clean[291 * 128..]));
        }
    }
}

#[test]
fn missing_and_unknown_pages_are_refused() {
    let case = Case::new(2, 1, 8, 4, 10).with_window(Some(6));
    let kv = PagedKv::new(&case.pool, case.geometry);
    let shape = case.shape(KernelPath::Detect);
    let attempt = |pages: &[u32], first_page, rows, start| {
        let pages_of = 0..pages.len();
        let sequence = AttentionSequence { first_row: 0, rows, start, first_page, pages: pages_of };
        let mut out = vec![0.0; 16 * 4];
        let run = || {
            let pool = ThreadPool::new(1);
            paged_attention(shape, &[0.5; 16 * 4], kv, pages, &[sequence], &mut out, &pool);
        };
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_ok()
    };
    assert!(attempt(&case.pages, 0, 4, 0));
    assert!(attempt(&[], 0, 0, 0));
    assert!(!attempt(&[], 0, 4, 0));
    assert!(!attempt(&[99], 0, 4, 0));
    assert!(!attempt(&case.pages, 0, 5, 0), "more rows than queries");
    // Position 9 sees 4 to 9; position 8 sees 3, which lies on the first page.
    assert!(attempt(&case.pages[1..], 1, 1, 9));
    assert!(!attempt(&case.pages[1..], 1, 1, 8));
    assert!(!attempt(&case.pages[1..2], 1, 1, 9));
    let mut none = [];
    paged_attention(shape, &[], kv, &[], &[], &mut none, &ThreadPool::new(2));
}

#[test]
fn the_kernel_is_named_by_what_runs() {
    assert_eq!(attention_kernel(KernelPath::Reference, 64), "reference-attention-256");
    assert_eq!(attention_kernel(KernelPath::Detect, 20), "reference-attention-256");
    if KernelPath::Detect.resolve() == KernelPath::Avx2 {
        assert_eq!(attention_kernel(KernelPath::Detect, 64), "avx2-attention-256");
    }
}
