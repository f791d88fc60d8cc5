//! The system's generator, for rooms and nonces.

use crate::Random;
use rustls::crypto::{SecureRandom, ring};

/// Unpredictable bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SystemRandom(&'static dyn SecureRandom);

impl SystemRandom {
    pub(crate) fn new() -> Self {
        Self(ring::default_provider().secure_random)
    }

    /// For what only has to differ.
    pub(crate) fn number(&mut self) -> u64 {
        let mut bytes = [0; 8];
        self.fill(&mut bytes);
        u64::from_le_bytes(bytes)
    }
}

impl Random for SystemRandom {
    fn fill(&mut self, bytes: &mut [u8]) {
        self.0.fill(bytes).expect("a system without random numbers runs no server");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_differ() {
        let mut random = SystemRandom::new();
        assert_ne!(random.number(), random.number());
    }
}
