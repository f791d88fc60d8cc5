//! Names: hashes of pages, and the folders that keep models and layouts apart.
//!
//! ```text
//! v1/MODEL/lLAYOUT-tpRANKS-pTOKENS-PARTS/HH/HASH
//! ```
//! `v1` is the format of the object; MODEL the first 16 bytes of the model's fingerprint; LAYOUT,
//! RANKS and TOKENS (of a page) are decimal; PARTS the first 4 bytes of a hash over the parts'
//! ranks, names and lengths; HH the first byte and HASH the first 16 bytes of the page's hash, all
//! in lower-case hex. HH spreads the pages of a scope over 256 folders. What a name abbreviates,
//! the object has in full.

use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use types::TokenId;

/// The version of the object's format, and the first folder of every path.
pub(crate) const FORMAT: u32 = 1;
/// Bytes of a hash that are in the name of its object.
const NAME_BYTES: usize = 16;

/// The name of a page by everything up to its end: a chain of SHA-256 over the pages of a prefix.
///
/// Unlike the hashes of the prefix cache, whose users compare tokens all the way to the root, this
/// one stands alone: the pages before it may never be read. Hence a function for which nobody can
/// make up two prefixes with one hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PageHash(pub [u8; 32]);

impl PageHash {
    /// What the hash of a first page starts from. Only requests with equal `namespace` bytes share
    /// pages; the bytes (which may contain a client's secret) cannot be read back from a hash, but
    /// short ones can be guessed.
    #[must_use]
    pub fn root(namespace: &[u8]) -> Self {
        let hash = Sha256::new().chain_update(b"sightline kv page\0").chain_update(namespace);
        Self(hash.finalize().into())
    }

    /// The hash of the page of `tokens` that follows the page with this hash.
    #[must_use]
    pub fn next(&self, tokens: &[TokenId]) -> Self {
        let mut hash = Sha256::new().chain_update(self.0);
        for token in tokens {
            hash.update(token.0.to_le_bytes());
        }
        Self(hash.finalize().into())
    }

    /// The hashes of the whole pages of `tokens`, in order.
    #[must_use]
    pub fn pages(namespace: &[u8], tokens: &[TokenId], page_tokens: usize) -> Vec<Self> {
        assert!(page_tokens > 0, "pages have tokens");
        let mut last = Self::root(namespace);
        let chain = tokens.chunks_exact(page_tokens).map(|page| {
            last = last.next(page);
            last
        });
        chain.collect()
    }

    pub(crate) fn name(&self) -> [u8; NAME_BYTES] {
        let mut name = [0; NAME_BYTES];
        name.copy_from_slice(&self.0[..NAME_BYTES]);
        name
    }
}

/// A byte array that a page may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartShape {
    /// The rank whose rows it holds.
    pub rank: u16,
    /// The name of the pool of bytes, at most 255 bytes.
    pub name: String,
    /// Its length in bytes, at most 1 GiB.
    pub bytes: u64,
}

/// What two servers must agree on to read each other's pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    /// Names the weights and everything else that decides the bytes of a page.
    pub model: [u8; 32],
    /// The version of the order of bytes inside the parts.
    pub layout: u32,
    /// Tensor-parallel ranks.
    pub ranks: u32,
    /// Tokens of a page, at most 65536.
    pub page_tokens: u32,
    /// The parts that a page may have; each page has some of them.
    pub parts: Vec<PartShape>,
}

/// A [`Scope`] no page fits in.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ScopeError {
    /// Out of bounds.
    #[error("{what} is {value}; it must be from 1 to {max}")]
    Range {
        /// Which value.
        what: &'static str,
        /// The value.
        value: u64,
        /// The largest that works.
        max: u64,
    },
    /// Two parts with one rank and name.
    #[error("part {0:?} of rank {1} is there twice")]
    Twice(String, u16),
}

impl Scope {
    /// Checks the bounds of the fields.
    ///
    /// # Errors
    /// The first field that is out of bounds, with what would work.
    pub fn check(&self) -> Result<(), ScopeError> {
        let range = |what, value, max| {
            if (1..=max).contains(&value) {
                return Ok(());
            }
            Err(ScopeError::Range { what, value, max })
        };
        range("the number of ranks", self.ranks.into(), 65_536)?;
        range("the number of tokens of a page", self.page_tokens.into(), 65_536)?;
        range("the number of parts", self.parts.len() as u64, 4096)?;
        for (place, part) in self.parts.iter().enumerate() {
            range("the length of a part's name", part.name.len() as u64, 255)?;
            range("the length of a part", part.bytes, 1 << 30)?;
            let same = |other: &&PartShape| (other.rank, &other.name) == (part.rank, &part.name);
            if let Some(twice) = self.parts[..place].iter().find(same) {
                return Err(ScopeError::Twice(twice.name.clone(), twice.rank));
            }
        }
        Ok(())
    }

    /// The folder of this scope's pages, without a slash at the end.
    pub(crate) fn folder(&self) -> String {
        let mut hash = Sha256::new();
        for part in &self.parts {
            hash.update(part.rank.to_le_bytes());
            hash.update((part.name.len() as u64).to_le_bytes());
            hash.update(part.name.as_bytes());
            hash.update(part.bytes.to_le_bytes());
        }
        let parts: [u8; 32] = hash.finalize().into();
        let (model, parts) = (hex(&self.model[..NAME_BYTES]), hex(&parts[..4]));
        let Self { layout, ranks, page_tokens, .. } = self;
        format!("v{FORMAT}/{model}/l{layout}-tp{ranks}-p{page_tokens}-{parts}")
    }
}

/// The path of an object: the folder of its scope and the name of its page.
pub(crate) fn path(folder: &str, name: &[u8; NAME_BYTES]) -> String {
    format!("{folder}/{:02x}/{}", name[0], hex(name))
}

/// The folder and the name in the path of an object; `None` for what is not one of ours.
pub(crate) fn parse(path: &str) -> Option<(&str, [u8; NAME_BYTES])> {
    let (rest, last) = path.rsplit_once('/')?;
    let (folder, fan) = rest.rsplit_once('/')?;
    let mut parts = folder.split('/');
    let version = parts.next()?.strip_prefix('v')?;
    let (model, shape) = (parts.next()?, parts.next()?);
    if parts.next().is_some() || version.parse::<u32>().is_err() || !shape.starts_with('l') {
        return None;
    }
    unhex(model)?;
    let name = unhex(last)?;
    (fan == hex(&name[..1])).then_some((folder, name))
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        write!(text, "{byte:02x}").expect("writing to a string cannot fail");
    }
    text
}

fn unhex(text: &str) -> Option<[u8; NAME_BYTES]> {
    let lower = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if text.len() != NAME_BYTES * 2 || !text.bytes().all(lower) {
        return None;
    }
    let number = u128::from_str_radix(text, 16).ok()?;
    Some(number.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope() -> Scope {
        let part = |rank, name: &str| PartShape { rank, name: name.to_owned(), bytes: 64 };
        let parts = vec![part(0, "kv"), part(1, "kv"), part(0, "swa")];
        Scope { model: [7; 32], layout: 3, ranks: 2, page_tokens: 16, parts }
    }

    #[test]
    fn a_path_is_read_as_it_was_written_and_nothing_else_is() {
        let folder = scope().folder();
        assert!(folder.starts_with("v1/07070707070707070707070707070707/l3-tp2-p16-"), "{folder}");
        let hash = PageHash::root(b"").next(&[TokenId(1)]);
        let written = path(&folder, &hash.name());
        assert_eq!(parse(&written), Some((folder.as_str(), hash.name())));
        let upper = written.to_uppercase();
        let (deeper, shorter) = (format!("x/{written}"), &written[..written.len() - 1]);
        let wrong_fan = path(&folder, &hash.name()).replace("/l3", "/m3");
        for other in ["", "/", "v1/a/b", &upper, &deeper, shorter, &wrong_fan, "tmp/v1/x"] {
            assert_eq!(parse(other), None, "{other}");
        }
    }

    #[test]
    fn scopes_that_differ_in_anything_have_different_folders() {
        let base = scope();
        let mut others = vec![base.clone(); 7];
        others[0].model[15] = 8;
        others[1].layout = 4;
        others[2].ranks = 3;
        others[3].page_tokens = 17;
        others[4].parts[0].bytes = 65;
        others[5].parts[1].rank = 2;
        others[6].parts[2].name = "kv2".to_owned();
        for other in others {
            assert_ne!(base.folder(), other.folder(), "{other:?}");
        }
    }

    #[test]
    fn hashes_chain_over_pages_and_namespaces() {
        let tokens: Vec<TokenId> = (0..10).map(TokenId).collect();
        let pages = PageHash::pages(b"", &tokens, 4);
        assert_eq!(pages.len(), 2, "the third page is not whole");
        assert_eq!(pages[1], PageHash::root(b"").next(&tokens[..4]).next(&tokens[4..8]));
        assert_ne!(pages[0], PageHash::pages(b"salt", &tokens, 4)[0]);
        assert_ne!(pages[1], PageHash::pages(b"", &tokens[4..], 4)[0], "without what came before");
    }

    #[test]
    fn bounds_are_checked_and_named() {
        assert_eq!(scope().check(), Ok(()));
        let mut twice = scope();
        twice.parts[1].rank = 0;
        assert_eq!(twice.check(), Err(ScopeError::Twice("kv".to_owned(), 0)));
        let mut none = scope();
        none.parts.clear();
        let text = none.check().expect_err("no parts").to_string();
        assert_eq!(text, "the number of parts is 0; it must be from 1 to 4096");
        let mut long = scope();
        long.parts[2].bytes = (1 << 30) + 1;
        assert!(matches!(long.check(), Err(ScopeError::Range { value: 1_073_741_825, .. })));
    }
}
