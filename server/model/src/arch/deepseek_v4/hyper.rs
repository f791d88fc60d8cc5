//! Hyper-connections: what enters a block is a weighted sum of the residual streams, and what it
//! adds goes back to all of them, which are mixed by a matrix whose rows and columns add up to one.

use kernels::{Activations, Linear, ThreadPool, add_scaled, rms_scale};

/// Rows that one thread should at least take.
const ROWS: usize = 4;

/// One connection. The result of a row is `[before: streams][after: streams][mixing: streams^2]`,
/// or only the first of these where streams end.
pub(super) struct Hyper {
    pub(super) linear: Box<dyn Linear>,
    pub(super) base: Vec<f32>,
    pub(super) scale: Vec<f32>,
}

/// The constants of all connections.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub(super) streams: usize,
    pub(super) hidden: usize,
    pub(super) passes: usize,
    pub(super) hyper_eps: f32,
    pub(super) rms_eps: f32,
}

impl Hyper {
    pub(super) fn linear(&self) -> &dyn Linear {
        &*self.linear
    }

    /// Numbers in the result of a row.
    pub(super) fn width(&self) -> usize {
        self.linear.out_features()
    }

    /// Fills `mix`, and `collapsed` with what enters the block.
    pub(super) fn before(
        &self,
        shape: Shape,
        streams: &Activations,
        (mix, collapsed): (&mut Vec<f32>, &mut Vec<f32>),
        threads: &ThreadPool,
    ) {
        let (rows, width) = (streams.rows(), self.width());
        mix.resize(rows * width, 0.0);
        self.linear.forward(streams, mix, threads);
        threads.for_each_row(mix, width, ROWS, |row, z| {
            let norm = rms_scale(streams.row(row), shape.rms_eps);
            self.weigh(shape, norm, z);
        });
        collapsed.resize(rows * shape.hidden, 0.0);
        threads.for_each_row(collapsed, shape.hidden, ROWS, |row, out| {
            out.fill(0.0);
            let before = &mix[row * width..][..shape.streams];
            for (weight, stream) in before.iter().zip(streams.row(row).chunks(shape.hidden)) {
                add_scaled(out, *weight, stream);
            }
        });
    }

    /// From what the linear says to weights, in place.
    fn weigh(&self, shape: Shape, norm: f32, z: &mut [f32]) {
        let Shape { streams, passes, hyper_eps: eps, .. } = shape;
        for (index, (z, base)) in z.iter_mut().zip(&self.base).enumerate() {
            *z = *z * norm * self.scale[(index / streams).min(2)] + base;
        }
        let (before, rest) = z.split_at_mut(streams);
        for weight in before {
            *weight = sigmoid(*weight) + eps;
        }
        if rest.is_empty() {
            return;
        }
        let (after, mixing) = rest.split_at_mut(streams);
        for weight in after {
            *weight = 2.0 * sigmoid(*weight);
        }
        for row in mixing.chunks_exact_mut(streams) {
            kernels::softmax(row);
            for weight in row {
                *weight += eps;
            }
        }
        divide_columns(mixing, streams, eps);
        for _ in 1..passes {
            for row in mixing.chunks_exact_mut(streams) {
                let sum = row.iter().sum::<f32>() + eps;
                for weight in row {
                    *weight /= sum;
                }
            }
            divide_columns(mixing, streams, eps);
        }
    }

    /// Adds `delta` to the streams of each row and mixes them, into `next`.
    pub(super) fn after(
        &self,
        shape: Shape,
        streams: &Activations,
        (mix, delta): (&[f32], &[f32]),
        next: &mut Activations,
        threads: &ThreadPool,
    ) {
        let Shape { streams: count, hidden, .. } = shape;
        let (row_len, width) = (count * hidden, self.width());
        let next = next.resize(streams.rows(), row_len);
        threads.for_each_row(next, row_len, ROWS, |row, out| {
            let (after, mixing) = mix[row * width + count..(row + 1) * width].split_at(count);
            let added = &delta[row * hidden..(row + 1) * hidden];
            for (to, out) in out.chunks_exact_mut(hidden).enumerate() {
                out.fill(0.0);
                add_scaled(out, after[to], added);
                for (from, stream) in streams.row(row).chunks_exact(hidden).enumerate() {
                    add_scaled(out, mixing[from * count + to], stream);
                }
            }
        });
    }
}

fn divide_columns(matrix: &mut [f32], size: usize, eps: f32) {
    for column in 0..size {
        let values = || (0..size).map(|row| row * size + column);
        let sum = values().map(|at| matrix[at]).sum::<f32>() + eps;
        for at in values() {
            matrix[at] /= sum;
        }
    }
}

fn sigmoid(x: f32) -> f32 {
    (1.0 / (1.0 + (-f64::from(x)).exp())) as f32
}
