//! Rotary angles of a model: base, scaling, and a table of cosines that grows with the context.

use kernels::RopeTable;

use crate::config::RopeScaling;

/// Positions of the first table; it doubles when a request gets further.
const FIRST_POSITIONS: usize = 512;

/// The angles of some layers of a model.
#[derive(Debug)]
pub(crate) struct Rotary {
    /// Radians per position, one per pair.
    frequencies: Vec<f32>,
    max_context: usize,
    table: RopeTable,
}

impl Rotary {
    /// For heads of `head_dim` numbers and positions below `max_context`. `divisors` are what some
    /// GGUF files store instead of the scaling's parameters: one number per pair that divides its
    /// frequency.
    pub(crate) fn new(
        (theta, scaling): (f64, RopeScaling),
        head_dim: usize,
        max_context: usize,
        divisors: Option<&[f32]>,
    ) -> Self {
        let plain = |pair: usize| theta.powf(-2.0 * pair as f64 / head_dim as f64);
        let scaled = |pair| scale(scaling, plain(pair)) as f32;
        let mut frequencies: Vec<f32> = (0..head_dim / 2).map(scaled).collect();
        for (frequency, divisor) in frequencies.iter_mut().zip(divisors.unwrap_or_default()) {
            *frequency /= divisor;
        }
        let table = build(&frequencies, FIRST_POSITIONS.min(max_context));
        Self { frequencies, max_context, table }
    }

    /// Makes the table reach `positions` positions.
    pub(crate) fn reach(&mut self, positions: usize) {
        if positions > self.table.positions() {
            let wanted = positions.max(self.table.positions() * 2).min(self.max_context);
            self.table = build(&self.frequencies, wanted.max(positions));
        }
    }

    /// The cosines and sines of the positions reached so far.
    pub(crate) const fn table(&self) -> &RopeTable {
        &self.table
    }
}

fn scale(scaling: RopeScaling, frequency: f64) -> f64 {
    match scaling {
        RopeScaling::Default => frequency,
        RopeScaling::Linear { factor } => frequency / factor,
        RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_context } => {
            let turns = original_context * frequency / std::f64::consts::TAU;
            let keep = (turns - low_freq_factor) / (high_freq_factor - low_freq_factor);
            let keep = keep.clamp(0.0, 1.0);
            (1.0 - keep) * frequency / factor + keep * frequency
        }
    }
}

fn build(frequencies: &[f32], positions: usize) -> RopeTable {
    let half = frequencies.len();
    let mut cos = Vec::with_capacity(positions * half);
    let mut sin = Vec::with_capacity(positions * half);
    for position in 0..positions {
        for frequency in frequencies {
            // Rounded to f32 before the cosine, as in the programs that models are trained with.
            let angle = f64::from(position as f32 * frequency);
            cos.push(angle.cos() as f32);
            sin.push(angle.sin() as f32);
        }
    }
    RopeTable::new(half, cos, sin)
}
