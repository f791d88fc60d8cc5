use super::*;

fn values(n: usize, seed: u32) -> Vec<f32> {
    let mut state = seed;
    (0..n)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        })
        .collect()
}

#[test]
fn rms_norm_matches_f64_and_ignores_neighbours() {
    for len in [1, 7, 8, 64, 576, 577] {
        let (x, w) = (values(len * 70, 1), values(len, 2));
        let pool = ThreadPool::new(3);
        let mut out = Activations::new();
        rms_norm(&x, &w, 1e-5, &mut out, &pool);
        for row in 0..70 {
            let x = &x[row * len..(row + 1) * len];
            let mean = x.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>() / len as f64;
            for (i, got) in out.row(row).iter().enumerate() {
                let want = f64::from(x[i]) / (mean + 1e-5).sqrt() * f64::from(w[i]);
                assert!((f64::from(*got) - want).abs() < 1e-5);
            }
            let mut alone = Activations::new();
            rms_norm(x, &w, 1e-5, &mut alone, &ThreadPool::new(1));
            assert_eq!(alone.as_slice(), out.row(row));
            let mut in_place = x.to_vec();
            rms_norm_in_place(&mut in_place, &w, 1e-5, &pool);
            assert_eq!(in_place, out.row(row));
        }
    }
}

#[test]
fn silu_and_add_match_f64() {
    let (gate, up) = (values(40_000, 3), values(40_000, 4));
    let gate: Vec<f32> = gate.iter().map(|g| g * 30.0).collect();
    let pool = ThreadPool::new(2);
    let mut out = Activations::new();
    silu_mul(&gate, &up, 8, &mut out, &pool);
    assert_eq!((out.rows(), out.features()), (8, 5000));
    for ((got, g), u) in out.as_slice().iter().zip(&gate).zip(&up) {
        let (g, u) = (f64::from(*g), f64::from(*u));
        let want = g / (1.0 + (-g).exp()) * u;
        assert!((f64::from(*got) - want).abs() <= 1e-6 * want.abs().max(1.0));
    }
    let mut sum = gate.clone();
    add(&mut sum, &up, &pool);
    assert!(sum.iter().zip(gate.iter().zip(&up)).all(|(s, (a, b))| *s == a + b));
    let mut extremes = Activations::new();
    silu_mul(&[-1000.0, 1000.0, 0.0, f32::NAN], &[1.0; 4], 1, &mut extremes, &pool);
    assert_eq!(extremes.as_slice()[..3], [-0.0, 1000.0, 0.0]);
    assert!(extremes.as_slice()[3].is_nan());
}

#[test]
fn gelu_matches_f64() {
    let (gate, up) = (values(40_000, 7), values(40_000, 8));
    let gate: Vec<f32> = gate.iter().map(|g| g * 12.0).collect();
    let pool = ThreadPool::new(2);
    let mut out = Activations::new();
    gelu_tanh_mul(&gate, &up, 8, &mut out, &pool);
    assert_eq!((out.rows(), out.features()), (8, 5000));
    for ((got, g), u) in out.as_slice().iter().zip(&gate).zip(&up) {
        let (g, u) = (f64::from(*g), f64::from(*u));
        let inner = (2.0 / std::f64::consts::PI).sqrt() * (g + 0.044_715 * g.powi(3));
        let want = 0.5 * g * (1.0 + inner.tanh()) * u;
        assert!((f64::from(*got) - want).abs() <= 1e-6 * want.abs().max(1.0), "gelu({g}) {u}");
    }
    let mut extremes = Activations::new();
    let gate = [-1e30, 1e30, 0.0, f32::NAN];
    gelu_tanh_mul(&gate, &[1.0; 4], 1, &mut extremes, &pool);
    assert_eq!(extremes.as_slice()[..3], [-0.0, 1e30, 0.0]);
    assert!(extremes.as_slice()[3].is_nan());
    let mut scaled = up.clone();
    scale(&mut scaled, 8.5, &pool);
    assert!(scaled.iter().zip(&up).all(|(scaled, x)| *scaled == x * 8.5));
}

#[test]
fn argmax_takes_the_lowest_of_equals_and_refuses_nan() {
    assert_eq!(argmax(&[]), None);
    assert_eq!(argmax(&[f32::NEG_INFINITY]), Some(0));
    let mut x = values(1003, 5);
    x[17] = 5.0;
    x[900] = 5.0;
    assert_eq!(argmax(&x), Some(17));
    assert!(all_finite(&x));
    x[1002] = f32::NAN;
    assert_eq!(argmax(&x), None);
    assert!(!all_finite(&x));
    x[1002] = f32::NEG_INFINITY;
    assert_eq!(argmax(&x), Some(17));
    assert!(!all_finite(&x));
    assert!(all_finite(&[]));
}

#[test]
fn softmax_and_log_sum_exp_agree_with_f64() {
    let x: Vec<f32> = values(1001, 6).iter().map(|v| v * 20.0).collect();
    let want: f64 = x.iter().map(|v| f64::from(*v).exp()).sum::<f64>();
    assert!((f64::from(log_sum_exp(&x)) - want.ln()).abs() < 1e-5);
    let mut p = x.clone();
    softmax(&mut p);
    for (p, x) in p.iter().zip(&x) {
        assert!((f64::from(*p) - f64::from(*x).exp() / want).abs() < 1e-6);
    }
    assert_eq!(log_sum_exp(&[]), f32::NEG_INFINITY);
    softmax(&mut []);
}
