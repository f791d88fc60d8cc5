//! The input of matrix products: rows of f32, and their int8 form made once on demand.
//!
//! The int8 form has one f32 scale per 32 values of a row. It depends on that row alone, and it is
//! the same on every kernel path.

use std::sync::{Mutex, OnceLock, PoisonError};

use crate::ThreadPool;
use crate::buffer::SharedOut;
use crate::format::BLOCK;

/// `rows` x `features` activations, row after row.
///
/// Several linears may share one value: the first quantised one makes the int8 form and the
/// others reuse it. Changing the values drops that form. Buffers are kept for reuse, so a value
/// that is resized every step stops allocating once it has seen its largest shape.
#[derive(Debug, Default)]
pub struct Activations {
    rows: usize,
    features: usize,
    values: Vec<f32>,
    int8: OnceLock<Int8Rows>,
    lanes: OnceLock<Lanes>,
    /// Buffers of forms that were dropped.
    spare: Mutex<(Int8Rows, Lanes)>,
}

/// Sums of int8 activations as the two i16 lanes of an output hold them, for kernels that start
/// from them: for each half of a block a word whose low 16 bits are the sum of the first two of
/// each four activations, and whose high 16 bits are that of the last two.
pub(crate) type Lanes = Vec<[i32; 2]>;

/// The int8 form: `value = scale * q`, `|q| <= 127`, blocks of 32.
#[derive(Debug, Default)]
pub(crate) struct Int8Rows {
    /// rows x features.
    pub(crate) q: Vec<i8>,
    /// rows x features / 32; NaN for a block that holds a value that is not finite.
    pub(crate) scale: Vec<f32>,
    /// rows x features / 32: the sum of `q` of the block.
    pub(crate) sum: Vec<i32>,
    /// rows x features / 32: `scale * sum`, which multiplies the offset of a weight block.
    pub(crate) total: Vec<f32>,
}

impl Activations {
    /// No rows yet; see [`Activations::resize`].
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes `rows` x `features` values.
    ///
    /// # Panics
    /// When the length does not match.
    #[must_use]
    pub fn from_vec(rows: usize, features: usize, values: Vec<f32>) -> Self {
        assert_eq!(
            Some(values.len()),
            rows.checked_mul(features),
            "values must be rows x features"
        );
        Self { rows, features, values, ..Self::default() }
    }

    /// Changes the shape and gives the values for writing. Their contents are unspecified.
    pub fn resize(&mut self, rows: usize, features: usize) -> &mut [f32] {
        self.drop_forms();
        self.rows = rows;
        self.features = features;
        self.values.resize(rows * features, 0.0);
        &mut self.values
    }

    /// Number of rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Values of one row.
    #[must_use]
    pub fn features(&self) -> usize {
        self.features
    }

    /// All values, row after row.
    #[must_use]
    pub fn as_slice(&self) -> &[f32] {
        &self.values
    }

    /// All values for writing; drops the int8 form.
    pub fn as_mut_slice(&mut self) -> &mut [f32] {
        self.drop_forms();
        &mut self.values
    }

    /// One row.
    ///
    /// # Panics
    /// When there is no such row.
    #[must_use]
    pub fn row(&self, row: usize) -> &[f32] {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        &self.values[row * self.features..(row + 1) * self.features]
    }

    fn drop_forms(&mut self) {
        let spare = self.spare.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(int8) = self.int8.take() {
            spare.0 = int8;
        }
        if let Some(lanes) = self.lanes.take() {
            spare.1 = lanes;
        }
    }

    /// The int8 form; made at the first call.
    ///
    /// Values below 1e-36 in magnitude throughout a block become 0.
    pub(crate) fn int8(&self, pool: &ThreadPool) -> &Int8Rows {
        self.int8.get_or_init(|| {
            let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
            let mut form = std::mem::take(&mut spare.0);
            drop(spare);
            self.quantize(&mut form, pool);
            form
        })
    }

    /// The lane sums of the int8 form, one entry per block; made at the first call.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn lanes(&self, pool: &ThreadPool) -> &[[i32; 2]] {
        self.lanes.get_or_init(|| {
            let q = &self.int8(pool).q;
            let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
            let mut lanes = std::mem::take(&mut spare.1);
            drop(spare);
            lanes.resize(q.len() / BLOCK, [0; 2]);
            let rows = SharedOut::new(&mut lanes);
            pool.parallel_for(q.len() / BLOCK, 1024, |blocks| {
                let q = &q[blocks.start * BLOCK..blocks.end * BLOCK];
                // SAFETY: `parallel_for` hands out each block once.
                crate::math::lane_sums(q, unsafe { rows.slice(blocks) });
            });
            lanes
        })
    }

    fn quantize(&self, form: &mut Int8Rows, pool: &ThreadPool) {
        let features = self.features;
        assert!(features.is_multiple_of(BLOCK), "int8 rows need whole blocks of {BLOCK}");
        let blocks = features / BLOCK;
        form.q.resize(self.values.len(), 0);
        form.scale.resize(self.rows * blocks, 0.0);
        form.sum.resize(self.rows * blocks, 0);
        let q = SharedOut::new(&mut form.q);
        let scale = SharedOut::new(&mut form.scale);
        let sum = SharedOut::new(&mut form.sum);
        pool.parallel_for(self.rows, (16 * 1024 / features.max(1)).max(1), |rows| {
            let values = rows.start * features..rows.end * features;
            let per_block = rows.start * blocks..rows.end * blocks;
            // SAFETY: `parallel_for` hands out each row once, so the parts do not overlap.
            let (q, scale, sum) = unsafe {
                (q.slice(values.clone()), scale.slice(per_block.clone()), sum.slice(per_block))
            };
            crate::math::quantize(&self.values[values], q, scale, sum);
        });
        form.total.clear();
        form.total.extend(form.scale.iter().zip(&form.sum).map(|(d, sum)| d * *sum as f32));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_int8_form_is_within_half_a_step() {
        let pool = ThreadPool::new(2);
        let values: Vec<f32> = (0..192).map(|i| ((i * 37 % 101) as f32 - 50.0) * 0.3).collect();
        let x = Activations::from_vec(3, 64, values.clone());
        let form = x.int8(&pool);
        for (i, v) in values.iter().enumerate() {
            let scale = form.scale[i / BLOCK];
            assert!((v - scale * f32::from(form.q[i])).abs() <= scale * 0.5001);
        }
        for (block, sum) in form.q.as_chunks::<BLOCK>().0.iter().zip(&form.sum) {
            assert_eq!(block.iter().map(|q| i32::from(*q)).sum::<i32>(), *sum);
            assert_eq!(block.iter().map(|q| q.unsigned_abs()).max(), Some(127));
        }
    }

    #[test]
    fn odd_blocks_keep_their_meaning() {
        let pool = ThreadPool::new(1);
        let mut values = vec![0.0f32; 32 * 5];
        values[32] = 1e-40;
        values[64] = f32::NAN;
        values[96] = f32::NEG_INFINITY;
        values[128] = f32::MAX;
        values[129] = -f32::MAX;
        let x = Activations::from_vec(1, 160, values);
        let form = x.int8(&pool);
        assert_eq!(form.scale[..2], [0.0, 0.0]);
        assert!(form.scale[2].is_nan() && form.scale[3].is_nan());
        assert_eq!((form.q[128], form.q[129]), (127, -127));
    }

    #[test]
    fn changing_the_values_drops_the_int8_form() {
        let pool = ThreadPool::new(1);
        let mut x = Activations::from_vec(1, 32, vec![1.0; 32]);
        assert_eq!(x.int8(&pool).sum, [127 * 32]);
        x.as_mut_slice()[0] = -1.0;
        assert_eq!(x.int8(&pool).sum, [127 * 30]);
        x.resize(2, 32).fill(0.0);
        assert_eq!(x.int8(&pool).sum, [0, 0]);
        assert_eq!(x.row(1), [0.0; 32]);
    }
}
