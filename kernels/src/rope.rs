//! Rotary position embedding from a table of cosines and sines.
//!
//! Which angles the table holds (base, scaling variants) is the model's business.

use crate::ThreadPool;
use crate::ops::grain;

/// Which two values of a head form a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RopeStyle {
    /// `i` with `i + rotary / 2` (Hugging Face, NeoX).
    HalfSplit,
    /// `2 i` with `2 i + 1` (the llama architecture in GGUF files).
    AdjacentPair,
}

/// Cosines and sines for positions `0..positions`, `half` pairs each.
#[derive(Debug, Clone, PartialEq)]
pub struct RopeTable {
    half: usize,
    cos: Vec<f32>,
    sin: Vec<f32>,
}

impl RopeTable {
    /// Takes the tables, position after position, `half` values each.
    ///
    /// # Panics
    /// When `half` is 0 or the lengths are unequal or no multiple of it.
    #[must_use]
    pub fn new(half: usize, cos: Vec<f32>, sin: Vec<f32>) -> Self {
        assert!(half > 0 && cos.len().is_multiple_of(half), "cosines must be whole positions");
        assert_eq!(cos.len(), sin.len(), "as many sines as cosines");
        Self { half, cos, sin }
    }

    /// Number of positions.
    #[must_use]
    pub fn positions(&self) -> usize {
        self.cos.len() / self.half
    }
}

/// Rotates the first values of every head of every row in place, two per pair of `table`.
///
/// `x` holds `positions.len()` rows of whole heads of `head_dim` values.
///
/// # Panics
/// When the shapes disagree, a head is shorter than its rotated part, or a position lies outside
/// the table.
pub fn rope(
    x: &mut [f32],
    head_dim: usize,
    positions: &[u32],
    table: &RopeTable,
    style: RopeStyle,
    pool: &ThreadPool,
) {
    if x.is_empty() && positions.is_empty() {
        return;
    }
    let rows = positions.len();
    assert!(rows > 0 && x.len().is_multiple_of(rows), "{} values in {rows} rows", x.len());
    let row_len = x.len() / rows;
    assert!(head_dim > 0 && row_len.is_multiple_of(head_dim), "rows are not whole heads");
    let half = table.half;
    assert!(2 * half <= head_dim, "{half} pairs do not fit a head of {head_dim}");
    let last = positions.iter().max().map_or(0, |p| *p as usize);
    assert!(last < table.positions(), "position {last} is outside the table");
    pool.for_each_row(x, row_len, grain(row_len), |row, x| {
        let at = positions[row] as usize * half;
        let (cos, sin) = (&table.cos[at..at + half], &table.sin[at..at + half]);
        for head in x.chunks_exact_mut(head_dim) {
            rotate(head, cos, sin, style);
        }
    });
}

fn rotate(head: &mut [f32], cos: &[f32], sin: &[f32], style: RopeStyle) {
    match style {
        RopeStyle::HalfSplit => {
            let (first, second) = head.split_at_mut(cos.len());
            for (((a, b), c), s) in first.iter_mut().zip(second).zip(cos).zip(sin) {
                (*a, *b) = (*a * c - *b * s, *b * c + *a * s);
            }
        }
        RopeStyle::AdjacentPair => {
            for ((pair, c), s) in head.as_chunks_mut::<2>().0.iter_mut().zip(cos).zip(sin) {
                let [a, b] = *pair;
                *pair = [a * c - b * s, b * c + a * s];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(half: usize, positions: usize) -> RopeTable {
        let angle =
            |i: usize| (i / half) as f32 * 0.5f32.powi(i32::try_from(i % half).expect("small"));
        let n = half * positions;
        let cos = (0..n).map(|i| angle(i).cos()).collect();
        RopeTable::new(half, cos, (0..n).map(|i| angle(i).sin()).collect())
    }

    #[test]
    fn both_styles_rotate_their_pairs() {
        let (half, dim, heads) = (3, 8, 2);
        let table = table(half, 10);
        let pool = ThreadPool::new(2);
        let positions = [0, 9, 4];
        let x: Vec<f32> = (0..3 * dim * heads).map(|i| i as f32).collect();
        for style in [RopeStyle::HalfSplit, RopeStyle::AdjacentPair] {
            let mut y = x.clone();
            rope(&mut y, dim, &positions, &table, style, &pool);
            assert_eq!(y[..dim * heads], x[..dim * heads], "position 0 does not turn");
            for (head, (x, y)) in x.chunks(dim).zip(y.chunks(dim)).enumerate() {
                let position = positions[head / heads] as usize;
                for i in 0..half {
                    let (a, b) = match style {
                        RopeStyle::HalfSplit => (i, i + half),
                        RopeStyle::AdjacentPair => (2 * i, 2 * i + 1),
                    };
                    let angle = position as f64 * 0.5f64.powi(i32::try_from(i).expect("small"));
                    let (s, c) = angle.sin_cos();
                    let (xa, xb) = (f64::from(x[a]), f64::from(x[b]));
                    assert!((f64::from(y[a]) - (xa * c - xb * s)).abs() < 1e-4);
                    assert!((f64::from(y[b]) - (xb * c + xa * s)).abs() < 1e-4);
                }
                assert_eq!(x[2 * half..], y[2 * half..], "the rest of a head stays");
            }
        }
    }

    #[test]
    fn no_rows_is_fine_and_a_far_position_is_not() {
        let (table, pool) = (table(2, 4), ThreadPool::new(1));
        rope(&mut [], 4, &[], &table, RopeStyle::HalfSplit, &pool);
        let far = std::panic::catch_unwind(|| {
            rope(&mut [0.0; 4], 4, &[4], &table, RopeStyle::HalfSplit, &ThreadPool::new(1));
        });
        assert!(far.is_err());
    }
}
