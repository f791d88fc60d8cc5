use half::{bf16, f16};

use super::*;
use crate::dequantize_row;

/// A small generator; the seed is part of every failure message.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as u32
    }

    fn below(&mut self, n: u32) -> u32 {
        self.next() % n
    }

    /// Between -1 and 1.
    fn unit(&mut self) -> f32 {
        self.next() as f32 / (1u32 << 31) as f32 - 1.0
    }
}

/// A scale as files hold them, sometimes zero, subnormal, negative or large.
fn scale(rng: &mut Rng) -> f16 {
    match rng.below(16) {
        0 => f16::from_f32(0.0),
        1 => f16::from_bits(1 + rng.below(1000) as u16),
        2 => f16::from_f32(-300.0 * rng.unit()),
        _ => f16::from_f32(0.02 * rng.unit()),
    }
}

/// A random stored block. Every fourth has only extreme integers, so that sums are as large as can
/// be: all bits set, or of the formats around a centre the least value.
fn block(format: WeightFormat, rng: &mut Rng) -> Vec<u8> {
    let least = match format == WeightFormat::Q8_0 {
        true => 0x80,
        false => [0xff, 0x00][rng.below(2) as usize],
    };
    let fill = (rng.below(4) == 0).then_some(least);
    let mut bytes: Vec<u8> = (0..format.block_bytes()).map(|_| rng.next() as u8).collect();
    if let Some(fill) = fill {
        bytes.fill(fill);
    }
    let mut put = |at: usize, value: f16| bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
    match format {
        WeightFormat::Q8_0 | WeightFormat::Q4_0 | WeightFormat::Q5_0 => put(0, scale(rng)),
        WeightFormat::Q6K => {
            put(208, scale(rng));
            if fill.is_some() {
                bytes[192..208].fill(0x80);
            }
        }
        WeightFormat::Q4_1 | WeightFormat::Q5_1 | WeightFormat::Q4K | WeightFormat::Q5K => {
            put(0, scale(rng));
            put(2, scale(rng));
        }
        WeightFormat::F32 | WeightFormat::F16 | WeightFormat::Bf16 => {}
    }
    bytes
}

/// `features`, or the next number of them of which a row can be made.
fn fit(format: WeightFormat, features: usize) -> usize {
    features.next_multiple_of(format.block_values())
}

/// Stored bytes of `rows` x `features` weights.
fn weights(format: WeightFormat, rows: usize, features: usize, rng: &mut Rng) -> Vec<u8> {
    let mut bytes = vec![];
    for _ in 0..rows * features / format.block_values() {
        match format {
            WeightFormat::F32 => bytes.extend(rng.unit().to_le_bytes()),
            WeightFormat::F16 => bytes.extend(scale(rng).to_le_bytes()),
            WeightFormat::Bf16 => bytes.extend(bf16::from_f32(rng.unit()).to_le_bytes()),
            WeightFormat::Q8_0
            | WeightFormat::Q4_0
            | WeightFormat::Q4_1
            | WeightFormat::Q5_0
            | WeightFormat::Q5_1
            | WeightFormat::Q4K
            | WeightFormat::Q5K
            | WeightFormat::Q6K => bytes.extend(block(format, rng)),
        }
    }
    bytes
}

/// Activation rows; some blocks are constant, zero, or have one outlier.
fn activations(rows: usize, features: usize, rng: &mut Rng) -> Vec<f32> {
    let mut values: Vec<f32> = (0..rows * features).map(|_| rng.unit()).collect();
    for block in values.chunks_mut(32) {
        match rng.below(8) {
            0 => block.fill(1.5),
            1 => block.fill(-1.5),
            2 => block.fill(0.0),
            3 => block[0] = 100.0,
            _ => {}
        }
    }
    values
}

fn forward(linear: &dyn Linear, rows: usize, x: &[f32], threads: usize) -> Vec<f32> {
    let x = Activations::from_vec(rows, linear.in_features(), x.to_vec());
    let mut y = vec![f32::NAN; rows * linear.out_features()];
    linear.forward(&x, &mut y, &ThreadPool::new(threads));
    y
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

const SHAPES: [(usize, usize); 6] = [(1, 32), (7, 64), (24, 96), (50, 576), (33, 1536), (129, 160)];

/// Every kernel of this processor, for one shape.
fn packed(format: WeightFormat, bytes: &[u8], n: usize, k: usize) -> Vec<Box<dyn Linear>> {
    let matrix = StoredMatrix { format, bytes, out_features: n, in_features: k };
    let caps = CpuCaps::detect();
    let entries = kernel_registry().filter(|e| e.format == format && (e.supported)(caps));
    entries.map(|e| (e.pack)(matrix, e.name)).collect()
}

#[test]
fn every_kernel_agrees_with_f64_on_its_integers() {
    for format in WeightFormat::ALL {
        for (case, (n, k)) in SHAPES.into_iter().enumerate() {
            let k = fit(format, k);
            let seed = 77 + case as u64;
            let mut rng = Rng(seed);
            let bytes = weights(format, n, k, &mut rng);
            let rows = 5;
            let x = activations(rows, k, &mut rng);
            let (want, size) = exact(format, &bytes, n, k, &x);
            for linear in packed(format, &bytes, n, k) {
                let got = forward(&*linear, rows, &x, 1);
                for (i, got) in got.iter().enumerate() {
                    // Rounding of a chain of k (or k / 32) steps, relative to the terms' sizes.
                    let bound = 1e-6 * size[i] + 1e-30;
                    assert!(
                        (f64::from(*got) - want[i]).abs() <= bound,
                        "{} {n}x{k} seed {seed} at {i}: {got} is not {}",
                        linear.kernel(),
                        want[i]
                    );
                }
            }
        }
    }
}

/// Products in f64 with the activations as the format sees them, and the sums of the terms' sizes.
fn exact(
    format: WeightFormat,
    bytes: &[u8],
    n: usize,
    k: usize,
    x: &[f32],
) -> (Vec<f64>, Vec<f64>) {
    let pool = ThreadPool::new(1);
    let rows = x.len() / k;
    let form = Activations::from_vec(rows, k, x.to_vec());
    let seen = |i: usize| match format.is_quantized() {
        true => f64::from(form.int8(&pool).q[i]) * f64::from(form.int8(&pool).scale[i / 32]),
        false => f64::from(x[i]),
    };
    let (mut want, mut size) = (vec![], vec![]);
    let mut w = vec![vec![0.0f32; k]; n];
    for (o, w) in w.iter_mut().enumerate() {
        let row = StoredMatrix { format, bytes, out_features: n, in_features: k }.row(o);
        dequantize_row(format, row, w).expect("whole rows");
    }
    for r in 0..rows {
        for w in &w {
            let terms = || w.iter().enumerate().map(|(i, w)| f64::from(*w) * seen(r * k + i));
            want.push(terms().sum());
            // Scale and offset terms may cancel, so count 15 times the largest weight per block.
            size.push(terms().map(f64::abs).sum::<f64>() + block_sizes(w, r * k, &seen));
        }
    }
    (want, size)
}

fn block_sizes(w: &[f32], at: usize, seen: &impl Fn(usize) -> f64) -> f64 {
    let mut total = 0.0;
    for (b, block) in w.chunks(32).enumerate() {
        let largest = block.iter().fold(0.0f32, |a, w| a.max(w.abs()));
        let x: f64 = (0..block.len()).map(|i| seen(at + b * 32 + i).abs()).sum();
        total += f64::from(largest) * x;
    }
    total
}

#[test]
fn a_row_alone_equals_the_row_in_any_batch_on_any_thread_count() {
    for format in WeightFormat::ALL {
        let (n, k, seed) = (50, fit(format, 576), 11);
        let mut rng = Rng(seed);
        let bytes = weights(format, n, k, &mut rng);
        let x = activations(70, k, &mut rng);
        for linear in packed(format, &bytes, n, k) {
            // The portable kernel is slow and has no blocking to test.
            let slow = linear.kernel().starts_with("reference");
            let last = if slow { 6 } else { 70 };
            let alone: Vec<Vec<u32>> =
                (0..last).map(|r| bits(&forward(&*linear, 1, &x[r * k..(r + 1) * k], 1))).collect();
            for m in 1..=last {
                let threads = 1 + m % 4;
                let batch = bits(&forward(&*linear, m, &x[..m * k], threads));
                for (r, row) in batch.chunks(n).enumerate() {
                    assert_eq!(row, alone[r], "{} m {m} row {r} seed {seed}", linear.kernel());
                }
            }
            for threads in 1..=4 {
                let first = last - 3;
                let part = bits(&forward(&*linear, 3, &x[first * k..last * k], threads));
                assert_eq!(part, alone[first..].concat(), "{} threads {threads}", linear.kernel());
            }
        }
    }
}

#[test]
fn a_long_row_and_a_large_batch_cross_every_blocking_border() {
    for format in WeightFormat::ALL {
        let (n, k, m) = (49, fit(format, 1632), 133);
        let mut rng = Rng(5);
        let bytes = weights(format, n, k, &mut rng);
        let x = activations(m, k, &mut rng);
        for linear in packed(format, &bytes, n, k) {
            if linear.kernel().starts_with("reference") {
                continue;
            }
            let batch = bits(&forward(&*linear, m, &x, 3));
            for r in [0, 63, 64, 65, 131, 132] {
                let alone = bits(&forward(&*linear, 1, &x[r * k..(r + 1) * k], 2));
                assert_eq!(batch[r * n..(r + 1) * n], alone, "{} row {r}", linear.kernel());
            }
        }
    }
}

#[test]
fn values_that_are_not_numbers_come_out_and_stay_in_their_row() {
    for format in WeightFormat::ALL {
        let (n, k) = (9, fit(format, 64));
        let mut rng = Rng(3);
        let bytes = match format == WeightFormat::F16 {
            true => [0x00, 0x3c].repeat(n * k),
            false => weights(format, n, k, &mut rng),
        };
        let mut x = activations(3, k, &mut rng);
        for bad in [f32::NAN, f32::INFINITY] {
            x[k + 5] = bad;
            for linear in packed(format, &bytes, n, k) {
                let y = forward(&*linear, 3, &x, 2);
                let name = linear.kernel();
                assert!(y[n..2 * n].iter().all(|v| !v.is_finite()), "{name} hides {bad}");
                assert!(y[..n].iter().chain(&y[2 * n..]).all(|v| v.is_finite()), "{name}");
            }
        }
    }
}

#[test]
fn empty_shapes_do_nothing() {
    for format in WeightFormat::ALL {
        for (n, k) in [(0, fit(format, 64)), (3, 0), (0, 0)] {
            let bytes = vec![0; n * k * 4];
            for linear in packed(format, &bytes[..n * format.row_bytes(k).unwrap()], n, k) {
                assert_eq!(forward(&*linear, 2, &vec![1.0; 2 * k], 2), vec![0.0; 2 * n]);
            }
        }
        let k = fit(format, 32);
        let bytes = weights(format, 3, k, &mut Rng(1));
        for linear in packed(format, &bytes, 3, k) {
            assert_eq!(forward(&*linear, 0, &[], 2), []);
        }
    }
}

#[test]
fn packing_checks_sizes_and_paths() {
    let short = pack(WeightFormat::Q4_1, &[0; 19], 1, 32, KernelPath::Detect);
    assert!(matches!(short, Err(KernelError::ByteCount { expected: 20, found: 19, .. })));
    let odd = pack(WeightFormat::Q4_0, &[0; 18], 1, 31, KernelPath::Detect);
    assert!(matches!(odd, Err(KernelError::RowLength { features: 31, .. })));
    let reference = pack(WeightFormat::Q8_0, &[0; 34], 1, 32, KernelPath::Reference);
    assert_eq!(reference.map(|l| l.kernel()), Ok("reference-q8_0"));
    let avx2 = pack(WeightFormat::Q8_0, &[0; 34], 1, 32, KernelPath::Avx2).map(|l| l.kernel());
    match CpuCaps::detect().has_avx2_family() {
        true => assert_eq!(avx2, Ok("avx2-q8_0-8x32")),
        false => assert!(matches!(avx2, Err(KernelError::Unsupported { .. }))),
    }
}

/// No format falls back to the reference where vector kernels run, and none is without a kernel.
#[test]
fn every_format_has_a_vector_kernel_and_says_which() {
    let vector = CpuCaps::detect().has_avx2_family();
    let mut names = vec![];
    for format in WeightFormat::ALL {
        let k = format.block_values().max(32);
        let bytes = vec![0; format.row_bytes(k).unwrap()];
        for path in [KernelPath::Detect, KernelPath::Reference, KernelPath::Avx2] {
            let linear = match pack(format, &bytes, 1, k, path) {
                Ok(linear) => linear,
                Err(KernelError::Unsupported { .. }) if path == KernelPath::Avx2 && !vector => {
                    continue;
                }
                Err(error) => panic!("{format} {path}: {error}"),
            };
            let family = match path {
                KernelPath::Reference => "reference",
                KernelPath::Detect | KernelPath::Avx2 if vector => "avx2",
                KernelPath::Detect | KernelPath::Avx2 => "reference",
            };
            let name = linear.kernel();
            assert!(name.starts_with(&format!("{family}-{format}")), "{format} {path}: {name}");
            assert_eq!(linear.format(), format, "{name}");
            assert!(linear.weight_bytes() > 0, "{name}");
            if path != KernelPath::Detect {
                names.push(name);
            }
        }
    }
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count, "{names:?}");
}

/// The promise of [`Linear`] for block formats: off from the product of the decoded weights and the
/// activations as given by no more than half a step of each activation, times its weight.
#[test]
fn block_products_stay_within_the_rounding_of_activations() {
    for format in WeightFormat::ALL.into_iter().filter(|format| format.is_quantized()) {
        let (n, k, rows, seed) = (24, fit(format, 512), 3, 31);
        let mut rng = Rng(seed);
        let bytes = weights(format, n, k, &mut rng);
        let x = activations(rows, k, &mut rng);
        let mut w = vec![0.0f32; n * k];
        dequantize_row(format, &bytes, &mut w).expect("whole rows");
        for linear in packed(format, &bytes, n, k) {
            let found = forward(&*linear, rows, &x, 1);
            for (at, found) in found.iter().enumerate() {
                let (x, w) = (&x[at / n * k..][..k], &w[at % n * k..][..k]);
                let (mut want, mut bound) = (0.0, 0.0);
                for (x, w) in x.chunks(32).zip(w.chunks(32)) {
                    let step = x.iter().fold(0.0f32, |a, x| a.max(x.abs())) / 127.0;
                    for (x, w) in x.iter().zip(w) {
                        want += f64::from(*x) * f64::from(*w);
                        // Half a step, and the rounding of f32 sums.
                        let off = 0.501 * f64::from(step) + 1e-5 * f64::from(x.abs());
                        bound += off * f64::from(w.abs());
                    }
                }
                let off = (f64::from(*found) - want).abs();
                assert!(off <= bound, "{} at {at}, seed {seed}: {off}", linear.kernel());
            }
        }
    }
}

#[test]
fn linears_together_compute_what_each_does_alone() {
    let mut rng = Rng(17);
    let formats = [WeightFormat::Q4_1, WeightFormat::Q6K, WeightFormat::F32];
    let sizes = [40, 0, 129];
    let k = 256;
    let stored: Vec<_> =
        formats.iter().zip(sizes).map(|(f, n)| weights(*f, n, k, &mut rng)).collect();
    for path in [KernelPath::Detect, KernelPath::Reference] {
        let packed = |i: usize| pack(formats[i], &stored[i], sizes[i], k, path).expect("it fits");
        let linears = [packed(0), packed(1), packed(2)];
        for rows in [0, 1, 2, 5, 17] {
            let x = activations(rows, k, &mut rng);
            let alone = linears.each_ref().map(|linear| bits(&forward(&**linear, rows, &x, 1)));
            for threads in 1..=3 {
                let mut y = sizes.map(|n| vec![f32::NAN; rows * n]);
                let [a, b, c] = &mut y;
                let form = Activations::from_vec(rows, k, x.clone());
                let pool = ThreadPool::new(threads);
                forward_all(linears.each_ref().map(|l| &**l), &form, [a, b, c], &pool);
                assert_eq!(y.map(|y| bits(&y)), alone, "{path} rows {rows} threads {threads}");
            }
        }
    }
}
