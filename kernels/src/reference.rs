//! Matrix products in plain code: the oracle of the tests and the fallback of other processors.
//!
//! Not written for speed.

use std::ops::Range;

use crate::activations::Int8Rows;
use crate::buffer::SharedOut;
use crate::format::{BLOCK, Block};
use crate::linear::StoredMatrix;
use crate::linear::parts::Parts;
use crate::{Activations, Linear, ThreadPool, WeightFormat, dequantize_row};

/// Weights kept as stored.
pub(crate) struct ReferenceLinear {
    name: &'static str,
    format: WeightFormat,
    bytes: Vec<u8>,
    out_features: usize,
    in_features: usize,
}

impl ReferenceLinear {
    /// `name` is that of the registry's entry.
    pub(crate) fn new(w: StoredMatrix<'_>, name: &'static str) -> Self {
        Self {
            name,
            format: w.format,
            bytes: w.bytes.to_vec(),
            out_features: w.out_features,
            in_features: w.in_features,
        }
    }

    fn row(&self, row: usize) -> &[u8] {
        StoredMatrix {
            format: self.format,
            bytes: &self.bytes,
            out_features: self.out_features,
            in_features: self.in_features,
        }
        .row(row)
    }

    /// Output `o` of every activation row, float weights.
    fn float_column(&self, o: usize, x: &Activations, mut write: impl FnMut(usize, f32)) {
        let mut weights = vec![0.0; self.in_features];
        dequantize_row(self.format, self.row(o), &mut weights)
            .expect("the byte count was checked when the matrix was packed");
        for row in 0..x.rows() {
            let products = weights.iter().zip(x.row(row)).map(|(w, x)| w * x);
            write(row, products.fold(0.0, |sum, p| sum + p));
        }
    }

    /// Output `o` of every activation row, block weights.
    fn block_column(&self, o: usize, x: &Int8Rows, rows: usize, mut write: impl FnMut(usize, f32)) {
        let read = |at| Block::read(self.format, self.row(o), at);
        let blocks: Vec<Block> = (0..self.in_features / BLOCK).map(read).collect();
        for row in 0..rows {
            let mut sum = 0.0f32;
            for (i, block) in blocks.iter().enumerate() {
                let at = row * blocks.len() + i;
                let dot = dot(block, &x.q[at * BLOCK..(at + 1) * BLOCK]);
                sum += dot as f32 * (block.scale() * x.scale[at]);
                if let Some(offset) = block.offset() {
                    sum += offset * x.total[at];
                }
            }
            write(row, sum);
        }
    }
}

/// The exact sum of a block's products, integer scales included.
fn dot(block: &Block, x: &[i8]) -> i32 {
    let products =
        block.q.iter().zip(x).map(|(w, x)| (i32::from(*w) - block.centre()) * i32::from(*x));
    let scales = block.scales.map(i32::from);
    products.enumerate().map(|(i, product)| scales[i / 16] * product).sum()
}

impl Parts for ReferenceLinear {
    fn parts(&self, _: usize, _: usize) -> (usize, usize) {
        (self.out_features, 1)
    }

    fn prepare(&self, x: &Activations, pool: &ThreadPool) {
        if self.format.is_quantized() {
            x.int8(pool);
        }
    }

    unsafe fn run(
        &self,
        outputs: Range<usize>,
        x: &Activations,
        out: &SharedOut<'_, f32>,
        pool: &ThreadPool,
    ) {
        let int8 = self.format.is_quantized().then(|| x.int8(pool));
        for o in outputs {
            let write = |row: usize, value: f32| {
                let at = row * self.out_features + o;
                // SAFETY: this thread alone has this output, and the reference lives only for
                // this store.
                unsafe { out.slice(at..at + 1)[0] = value };
            };
            match int8 {
                None => self.float_column(o, x, write),
                Some(int8) => self.block_column(o, int8, x.rows(), write),
            }
        }
    }
}

impl Linear for ReferenceLinear {
    fn in_features(&self) -> usize {
        self.in_features
    }

    fn out_features(&self) -> usize {
        self.out_features
    }

    fn kernel(&self) -> &'static str {
        self.name
    }

    fn format(&self) -> WeightFormat {
        self.format
    }

    fn weight_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }
}
