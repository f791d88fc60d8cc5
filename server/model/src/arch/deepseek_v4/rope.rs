//! Rotation of the last numbers of each head, in adjacent pairs.

use kernels::ThreadPool;

use crate::config::Yarn;

/// Heads' values that one thread should at least rotate.
const MIN_VALUES: usize = 16 * 1024;

/// Radians per position, one per pair.
#[derive(Debug)]
pub(super) struct Frequencies(Vec<f32>);

/// Cosines and sines of some positions, `pairs` each.
#[derive(Debug, Default)]
pub(super) struct Angles {
    pairs: usize,
    cos: Vec<f32>,
    sin: Vec<f32>,
}

impl Frequencies {
    pub(super) fn new(theta: f64, yarn: Option<Yarn>, rope_dim: usize) -> Self {
        let dim = rope_dim as f64;
        let plain = |pair: usize| theta.powf(-2.0 * pair as f64 / dim);
        let Some(yarn) = yarn else {
            return Self((0..rope_dim / 2).map(|i| plain(i) as f32).collect());
        };
        // The pair that turns so often in the original context.
        let turning = |turns: f64| {
            let context = yarn.original_context / (turns * std::f64::consts::TAU);
            dim * context.ln() / (2.0 * theta.ln())
        };
        let low = turning(yarn.beta_fast).floor().max(0.0);
        let high = turning(yarn.beta_slow).ceil().min(dim - 1.0);
        let high = if high == low { high + 0.001 } else { high };
        let scaled = |pair: usize| {
            let stretched = ((pair as f64 - low) / (high - low)).clamp(0.0, 1.0);
            let plain = plain(pair);
            (plain / yarn.factor * stretched + plain * (1.0 - stretched)) as f32
        };
        Self((0..rope_dim / 2).map(scaled).collect())
    }
}

impl Angles {
    /// Takes the angles of `positions`.
    pub(super) fn fill(&mut self, frequencies: &Frequencies, positions: &[u32]) {
        self.pairs = frequencies.0.len();
        self.cos.clear();
        self.sin.clear();
        for position in positions {
            for frequency in &frequencies.0 {
                // Rounded to f32 before the cosine, as where models are trained.
                let angle = f64::from(*position as f32 * frequency);
                self.cos.push(angle.cos() as f32);
                self.sin.push(angle.sin() as f32);
            }
        }
    }

    /// Rotates the last numbers of each head of each row of `x` by the angles of that row, or back.
    pub(super) fn rotate(&self, x: &mut [f32], head_dim: usize, back: bool, threads: &ThreadPool) {
        if x.is_empty() {
            return;
        }
        let rows = self.cos.len() / self.pairs;
        assert!(x.len().is_multiple_of(rows * head_dim), "whole heads, {rows} rows");
        let row_len = x.len() / rows;
        let sign = if back { -1.0 } else { 1.0 };
        threads.for_each_row(x, row_len, MIN_VALUES.div_ceil(row_len), |row, x| {
            let at = row * self.pairs..(row + 1) * self.pairs;
            let (cos, sin) = (&self.cos[at.clone()], &self.sin[at]);
            for head in x.chunks_exact_mut(head_dim) {
                let tail = &mut head[head_dim - 2 * self.pairs..];
                for ((pair, c), s) in tail.as_chunks_mut::<2>().0.iter_mut().zip(cos).zip(sin) {
                    let ([a, b], s) = (*pair, sign * s);
                    *pair = [a * c - b * s, b * c + a * s];
                }
            }
        });
    }
}
