//! The bytes of an object: one page with all that says whose it is.
//!
//! All numbers are little-endian.
//!
//! ```text
//!   8  magic "SLKVPAGE"
//!   4  format (1)
//!   4  layout          \
//!   4  ranks            | of the scope
//!  32  model           /
//!  32  hash of the page
//!   4  tokens          4 x that: the page's own token ids
//!   4  parts           each: 2 rank, 2 length of the name, 8 bytes, the name
//!      the bytes of the parts, in that order
//!  16  XXH3-128 of everything before
//! ```

use crate::key::{FORMAT, PageHash, Scope};
use crate::stats::Miss;
use bytes::Bytes;
use types::TokenId;
use xxhash_rust::xxh3::Xxh3;

const MAGIC: &[u8; 8] = b"SLKVPAGE";
const CHECKSUM_BYTES: usize = 16;
/// Before the tokens.
const FIXED_BYTES: usize = 8 + 3 * 4 + 2 * 32 + 4;

/// One part of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Which of [`Scope::parts`].
    pub part: usize,
    /// Its bytes, as many as the scope says.
    pub bytes: Bytes,
}

/// What is kept of one page: some of the scope's parts, ascending, each at most once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// At least one.
    pub parts: Vec<Part>,
}

impl Page {
    /// Whether the parts are as promised: the contract of whoever writes a page.
    fn fits(&self, scope: &Scope) -> bool {
        let ascending = self.parts.windows(2).all(|pair| pair[0].part < pair[1].part);
        let length = |part: &Part| scope.parts.get(part.part).map(|shape| shape.bytes);
        let lengths = self.parts.iter().all(|p| length(p) == Some(p.bytes.len() as u64));
        !self.parts.is_empty() && ascending && lengths
    }

    /// Bytes of the parts.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.bytes.len() as u64).sum()
    }
}

/// Length of the object of a page.
pub(crate) fn length(scope: &Scope, page: &Page) -> u64 {
    length_of(scope, page.parts.iter().map(|part| part.part))
}

/// Length of the longest object of a scope: a page with all parts.
pub(crate) fn longest(scope: &Scope) -> u64 {
    length_of(scope, 0..scope.parts.len())
}

fn length_of(scope: &Scope, parts: impl Iterator<Item = usize>) -> u64 {
    let fixed = (FIXED_BYTES + 4 + CHECKSUM_BYTES) as u64 + u64::from(scope.page_tokens) * 4;
    let part = |part: usize| {
        let shape = &scope.parts[part];
        2 + 2 + 8 + shape.name.len() as u64 + shape.bytes
    };
    fixed + parts.map(part).sum::<u64>()
}

/// The object of a page in pieces, none of which copies a part.
///
/// Panics where the page does not fit the scope or has other than `page_tokens` tokens.
pub(crate) fn encode(
    scope: &Scope,
    hash: &PageHash,
    tokens: &[TokenId],
    page: &Page,
) -> Vec<Bytes> {
    assert!(page.fits(scope), "parts are those of the scope, ascending");
    assert_eq!(tokens.len(), scope.page_tokens as usize, "a page is whole");
    let number =
        |value: usize| u32::try_from(value).expect("checked by Scope::check").to_le_bytes();
    let mut head = Vec::with_capacity(FIXED_BYTES + tokens.len() * 4 + page.parts.len() * 32);
    head.extend_from_slice(MAGIC);
    for value in [FORMAT, scope.layout, scope.ranks] {
        head.extend_from_slice(&value.to_le_bytes());
    }
    head.extend_from_slice(&scope.model);
    head.extend_from_slice(&hash.0);
    head.extend_from_slice(&number(tokens.len()));
    for token in tokens {
        head.extend_from_slice(&token.0.to_le_bytes());
    }
    head.extend_from_slice(&number(page.parts.len()));
    for part in &page.parts {
        let shape = &scope.parts[part.part];
        let length = u16::try_from(shape.name.len()).expect("checked by Scope::check");
        head.extend_from_slice(&shape.rank.to_le_bytes());
        head.extend_from_slice(&length.to_le_bytes());
        head.extend_from_slice(&shape.bytes.to_le_bytes());
        head.extend_from_slice(shape.name.as_bytes());
    }
    let mut pieces = vec![Bytes::from(head)];
    pieces.extend(page.parts.iter().map(|part| part.bytes.clone()));
    let mut checksum = Xxh3::new();
    for piece in &pieces {
        checksum.update(piece);
    }
    pieces.push(Bytes::copy_from_slice(&checksum.digest128().to_le_bytes()));
    pieces
}

/// The page in an object, without copying a part.
///
/// # Errors
/// Why it is not the page that was asked for: [`Miss::Foreign`] without our magic,
/// [`Miss::Truncated`] and [`Miss::Corrupt`] for ours that broke, [`Miss::Model`],
/// [`Miss::Layout`], [`Miss::Collision`] for whole objects of something else.
pub(crate) fn decode(
    scope: &Scope,
    hash: &PageHash,
    tokens: &[TokenId],
    object: &Bytes,
) -> Result<Page, Miss> {
    let shortest = object.len().min(MAGIC.len());
    if object[..shortest] != MAGIC[..shortest] {
        return Err(Miss::Foreign);
    }
    let header = Header::read(object).ok_or(Miss::Truncated)?;
    let end = header.total_bytes.ok_or(Miss::Corrupt)?;
    match (object.len() as u64).cmp(&end) {
        std::cmp::Ordering::Less => return Err(Miss::Truncated),
        std::cmp::Ordering::Greater => return Err(Miss::Corrupt),
        std::cmp::Ordering::Equal => {}
    }
    let (content, checksum) = object.split_at(object.len() - CHECKSUM_BYTES);
    let mut actual = Xxh3::new();
    actual.update(content);
    // The format is in the path too: another one here is a broken one.
    if actual.digest128().to_le_bytes() != checksum || header.format != FORMAT {
        return Err(Miss::Corrupt);
    }
    if header.model != scope.model {
        return Err(Miss::Model);
    }
    let tokens_bytes: Vec<u8> = tokens.iter().flat_map(|token| token.0.to_le_bytes()).collect();
    if (header.layout, header.ranks) != (scope.layout, scope.ranks)
        || header.tokens.len() != scope.page_tokens as usize * 4
    {
        return Err(Miss::Layout);
    }
    if header.hash != hash.0 || header.tokens != tokens_bytes {
        return Err(Miss::Collision);
    }
    header.page(scope, object).ok_or(Miss::Layout)
}

/// Everything before the bytes of the parts.
struct Header<'a> {
    format: u32,
    layout: u32,
    ranks: u32,
    model: &'a [u8],
    hash: &'a [u8],
    tokens: &'a [u8],
    /// Rank, name, bytes.
    parts: Vec<(u16, &'a [u8], u64)>,
    /// Where the bytes of the parts begin.
    body: usize,
    /// Length of the whole object; `None` where it does not fit into 64 bits.
    total_bytes: Option<u64>,
}

impl<'a> Header<'a> {
    /// `None` where the bytes end before the header does.
    fn read(object: &'a [u8]) -> Option<Self> {
        let mut rest = &object[MAGIC.len().min(object.len())..];
        let mut take = |bytes: usize| -> Option<&'a [u8]> {
            let (head, tail) = rest.split_at_checked(bytes)?;
            rest = tail;
            Some(head)
        };
        let format = u32::from_le_bytes(take(4)?.try_into().ok()?);
        let layout = u32::from_le_bytes(take(4)?.try_into().ok()?);
        let ranks = u32::from_le_bytes(take(4)?.try_into().ok()?);
        let (model, hash) = (take(32)?, take(32)?);
        let count = u32::from_le_bytes(take(4)?.try_into().ok()?) as usize;
        let tokens = take(count.checked_mul(4)?)?;
        let count = u32::from_le_bytes(take(4)?.try_into().ok()?);
        let mut parts = Vec::new();
        // Each turn takes bytes that are there, so a wrong count ends with the object.
        for _ in 0..count {
            let rank = u16::from_le_bytes(take(2)?.try_into().ok()?);
            let name = u16::from_le_bytes(take(2)?.try_into().ok()?);
            let bytes = u64::from_le_bytes(take(8)?.try_into().ok()?);
            parts.push((rank, take(usize::from(name))?, bytes));
        }
        let body = object.len() - rest.len();
        let fixed = (body + CHECKSUM_BYTES) as u64;
        let total_bytes = parts.iter().try_fold(fixed, |sum, part| sum.checked_add(part.2));
        Some(Self { format, layout, ranks, model, hash, tokens, parts, body, total_bytes })
    }

    /// The parts by the scope's numbers; `None` where the scope lacks one or their order is wrong.
    fn page(&self, scope: &Scope, object: &Bytes) -> Option<Page> {
        let mut parts: Vec<Part> = Vec::with_capacity(self.parts.len());
        let mut at = self.body;
        for (rank, name, bytes) in &self.parts {
            let same = |shape: &crate::PartShape| {
                (shape.rank, shape.name.as_bytes(), shape.bytes) == (*rank, *name, *bytes)
            };
            let part = scope.parts.iter().position(same)?;
            let end = at + usize::try_from(*bytes).ok()?;
            parts.push(Part { part, bytes: object.slice(at..end) });
            at = end;
        }
        let page = Page { parts };
        page.fits(scope).then_some(page)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::key::PartShape;
    use proptest::prelude::*;

    pub(crate) fn scope(parts: &[(u16, &str, u64)], page_tokens: u32) -> Scope {
        let part = |&(rank, name, bytes): &(u16, &str, u64)| PartShape {
            rank,
            name: name.to_owned(),
            bytes,
        };
        let parts = parts.iter().map(part).collect();
        Scope { model: [9; 32], layout: 1, ranks: 2, page_tokens, parts }
    }

    fn two_pools() -> Scope {
        scope(&[(0, "kv", 40), (1, "kv", 40), (0, "swa", 8)], 4)
    }

    fn page_of(scope: &Scope, parts: &[usize], seed: u8) -> Page {
        let part = |&part: &usize| {
            let bytes = usize::try_from(scope.parts[part].bytes).expect("small");
            let byte = |at: usize| (at as u8).wrapping_mul(31).wrapping_add(seed);
            Part { part, bytes: (0..bytes).map(byte).collect::<Vec<u8>>().into() }
        };
        Page { parts: parts.iter().map(part).collect() }
    }

    fn tokens(first: u32) -> Vec<TokenId> {
        (first..first + 4).map(TokenId).collect()
    }

    fn object(scope: &Scope, first: u32, page: &Page) -> (PageHash, Vec<u8>) {
        let hash = PageHash::root(b"").next(&tokens(first));
        (hash, encode(scope, &hash, &tokens(first), page).concat())
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(first in 0_u32..9, seed: u8, chosen in 1_usize..8) {
            let scope = two_pools();
            let parts: Vec<usize> = (0..3).filter(|part| chosen >> part & 1 == 1).collect();
            let page = page_of(&scope, &parts, seed);
            let (hash, bytes) = object(&scope, first, &page);
            prop_assert_eq!(bytes.len() as u64, length(&scope, &page));
            prop_assert!(bytes.len() as u64 <= longest(&scope));
            let read = decode(&scope, &hash, &tokens(first), &bytes.into());
            prop_assert_eq!(read, Ok(page));
        }

        #[test]
        fn any_bytes_are_a_miss_and_not_a_panic(bytes: Vec<u8>, ours: bool) {
            let mut all = if ours { MAGIC.to_vec() } else { Vec::new() };
            all.extend(bytes);
            let hash = PageHash::root(b"");
            prop_assert!(decode(&two_pools(), &hash, &tokens(0), &all.into()).is_err());
        }

        #[test]
        fn bytes_behind_the_end_are_a_miss(extra in proptest::collection::vec(any::<u8>(), 1..40)) {
            let scope = two_pools();
            let (hash, mut bytes) = object(&scope, 1, &page_of(&scope, &[0, 2], 3));
            bytes.extend(extra);
            let read = decode(&scope, &hash, &tokens(1), &bytes.into());
            prop_assert_eq!(read, Err(Miss::Corrupt));
        }
    }

    /// All of them, not a sample: an object is small.
    #[test]
    fn every_single_bit_flip_is_a_miss() {
        let scope = two_pools();
        let (hash, bytes) = object(&scope, 1, &page_of(&scope, &[0, 1, 2], 5));
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let miss = decode(&scope, &hash, &tokens(1), &flipped.into()).expect_err("a miss");
            // Whatever carries our magic and broke is known as ours.
            let expected_broken = bit >= MAGIC.len() * 8;
            assert_eq!(miss.is_broken(), expected_broken, "bit {bit}: {miss:?}");
        }
    }

    #[test]
    fn every_truncation_is_a_miss() {
        let scope = two_pools();
        let (hash, bytes) = object(&scope, 1, &page_of(&scope, &[0, 1, 2], 5));
        let whole = Bytes::from(bytes);
        for length in 0..whole.len() {
            let read = decode(&scope, &hash, &tokens(1), &whole.slice(..length));
            assert_eq!(read, Err(Miss::Truncated), "{length} bytes");
        }
    }

    #[test]
    fn whole_objects_of_something_else_are_told_apart() {
        let scope = two_pools();
        let page = page_of(&scope, &[0, 2], 1);
        let (hash, bytes) = object(&scope, 1, &page);
        let bytes = Bytes::from(bytes);
        let read = |scope: &Scope, hash: &PageHash, first| {
            decode(scope, hash, &tokens(first), &bytes).expect_err("something else")
        };
        let other = |change: &dyn Fn(&mut Scope)| {
            let mut scope = scope.clone();
            change(&mut scope);
            read(&scope, &hash, 1)
        };
        assert_eq!(other(&|s| s.model[31] = 0), Miss::Model);
        assert_eq!(other(&|s| s.layout = 2), Miss::Layout);
        assert_eq!(other(&|s| s.ranks = 1), Miss::Layout);
        assert_eq!(other(&|s| s.page_tokens = 5), Miss::Layout);
        assert_eq!(other(&|s| s.parts[2].bytes = 9), Miss::Layout);
        assert_eq!(other(&|s| s.parts[0].name = "swa".to_owned()), Miss::Layout);
        assert_eq!(other(&|s| s.parts[0].rank = 3), Miss::Layout);
        // The same name for other tokens, and the same tokens after another prefix.
        assert_eq!(read(&scope, &hash, 2), Miss::Collision);
        assert_eq!(read(&scope, &PageHash([1; 32]), 1), Miss::Collision);
    }
}
