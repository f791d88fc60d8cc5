//! A prompt as a chain of hashes.
//!
//! The ends of the pieces are the same for all prompts and lie eight to an octave: the first one
//! after 128 bytes, then each an eighth to a sixteenth further, so that prompts of any length have
//! few pieces and a common beginning is known to within an eighth of its length. Each hash covers
//! everything up to the end of its piece.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::request::Request;

/// Pieces of one prompt at most: what is behind the first 8 MiB is not looked at.
pub(crate) const MAX_PIECES: usize = 128;

/// Bytes before the end of piece `index`.
pub(crate) const fn end(index: usize) -> usize {
    ((8 + index % 8) * 16) << (index / 8)
}

/// The hashes of a prompt's pieces, on the stack.
#[derive(Debug, Clone)]
pub(crate) struct Pieces {
    hashes: [u64; MAX_PIECES],
    len: usize,
    /// Bytes of the whole prompt.
    bytes: usize,
    seed: u64,
}

impl Pieces {
    /// The pieces of `prompt`; the hashes depend on `seed`.
    pub(crate) fn of(prompt: &[u8], seed: u64) -> Self {
        let mut pieces = Self { hashes: [0; MAX_PIECES], len: 0, bytes: prompt.len(), seed };
        let (mut hash, mut begin) = (seed, 0);
        while pieces.len < MAX_PIECES && end(pieces.len) <= prompt.len() {
            let until = end(pieces.len);
            hash = xxh3_64_with_seed(&prompt[begin..until], hash);
            pieces.hashes[pieces.len] = hash;
            (pieces.len, begin) = (pieces.len + 1, until);
        }
        pieces
    }

    /// Those of a request: prompts of other models and namespaces have others.
    pub(crate) fn of_request(request: &Request<'_>) -> Self {
        let seed = xxh3_64_with_seed(request.model.as_bytes(), 1);
        Self::of(request.prompt, xxh3_64_with_seed(request.namespace.as_bytes(), seed))
    }

    /// The hashes, shortest beginning first.
    pub(crate) fn hashes(&self) -> &[u64] {
        &self.hashes[..self.len]
    }

    /// What the hashes depend on beside the prompt.
    pub(crate) const fn seed(&self) -> u64 {
        self.seed
    }

    /// The share of the prompt's bytes that its first `count` pieces are, 0 to 1.
    pub(crate) fn share(&self, count: usize) -> f64 {
        match count {
            0 => 0.0,
            count => end(count - 1) as f64 / self.bytes as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_lie_eight_to_an_octave_from_128_bytes_to_8_mebibytes() {
        let first: Vec<usize> = (0..10).map(end).collect();
        assert_eq!(first, [128, 144, 160, 176, 192, 208, 224, 240, 256, 288]);
        for index in 1..MAX_PIECES {
            let grows = end(index) as f64 / end(index - 1) as f64;
            assert!((1.06..=1.126).contains(&grows), "{index}: {grows}");
        }
        assert_eq!(end(MAX_PIECES), 8 << 20);
        let count = |bytes| Pieces::of(&vec![7; bytes], 1).hashes().len();
        assert_eq!([count(127), count(128), count(60_000), count(9 << 20)], [0, 1, 71, 128]);
    }

    #[test]
    fn a_common_beginning_has_common_pieces_and_no_more() {
        let (one, mut other) = (vec![b'a'; 5_000], vec![b'a'; 9_000]);
        other[3_000] = b'b';
        let (one, other) = (Pieces::of(&one, 5), Pieces::of(&other, 5));
        let same = one.hashes().iter().zip(other.hashes()).take_while(|(a, b)| a == b).count();
        assert!(end(same - 1) <= 3_000 && end(same) > 3_000, "{same}");
        let share = one.share(same);
        assert!((0.5..=0.6).contains(&share), "{share}");
        let salted = Pieces::of(&vec![b'a'; 5_000], 6);
        assert!(one.hashes().iter().all(|hash| !salted.hashes().contains(hash)));
    }
}
